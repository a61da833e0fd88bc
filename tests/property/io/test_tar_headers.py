"""Headers of tars are those that Python's slow reader finds."""

from __future__ import annotations

import contextlib
import io
import tarfile
from pathlib import Path

from hypothesis import given, strategies as st

from kafkascan.io.tar_headers import TarHeaders
from tests.support.examples import examples

KINDS = {
    tarfile.REGTYPE: "file", tarfile.AREGTYPE: "file", tarfile.CONTTYPE: "file",
    tarfile.DIRTYPE: "folder", tarfile.LNKTYPE: "link",
    tarfile.SYMTYPE: None, tarfile.FIFOTYPE: None,
}  # fmt: skip
PARTS = st.text("aé😀 .-0", min_size=1, max_size=99)
NAMES = st.lists(PARTS, min_size=1, max_size=4).map("/".join)
FILES = st.tuples(
    NAMES, st.sampled_from(sorted(KINDS)), NAMES, st.sampled_from([0, 1, 511, 512, 513, 3000])
)
FORMATS = st.sampled_from([tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])


@examples(200)
@given(st.lists(FILES, max_size=5), FORMATS, st.dictionaries(st.just("comment"), PARTS))
def test_headers(
    files: list[tuple[str, bytes, str, int]], tar_format: int, for_all: dict[str, str]
) -> None:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tar_format, pax_headers=for_all) as tar:
        # Python's reader refuses a tar without files.
        for name, kind, link, size in [*files, ("last", tarfile.REGTYPE, "", 1)]:
            info = tarfile.TarInfo(name)
            info.type, info.linkname, info.size = kind, link, size if KINDS[kind] == "file" else 0
            with contextlib.suppress(ValueError):  # ustar has no room for long names
                tar.addfile(info, io.BytesIO(bytes(info.size)))
    size = len(made.getvalue())
    headers = TarHeaders(Path("made.tar"), made, size)
    ours = [(one.name.rstrip("/"), one.kind, one.start, one.size) for one in headers]
    made.seek(0)
    with tarfile.open(fileobj=made) as tar:
        theirs = [
            (one.name.rstrip("/"), KINDS[one.type], one.offset_data, one.size)
            for one in tar
            if KINDS[one.type]
        ]
    assert ours == theirs
