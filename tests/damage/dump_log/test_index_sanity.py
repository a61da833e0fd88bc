"""The check of indexes alone (`--index-sanity-check`)."""

from __future__ import annotations

import io
import struct
from pathlib import Path

import pytest

from kafkascan.dump_log.dump_files import dump_files
from kafkascan.dump_log.dump_options import DumpOptions
from kafkascan.format.errors import CorruptIndexError
from tests.support.segments import T0, Rig

BASE = 5
OFFSETS = [struct.pack(">ii", relative, 100 * relative) for relative in range(3)]
TIMES = [struct.pack(">qi", T0 + relative, relative) for relative in range(3)]


def check(folder: Path, suffix: str, data: bytes) -> str:
    """Return the last line about an index."""
    log = folder / f"{BASE:020}.log"
    log.write_bytes(Rig().batches(3).log)
    log.with_suffix(".index").write_bytes(b"".join(OFFSETS))
    log.with_suffix(suffix).write_bytes(data)
    out = io.BytesIO()
    dump_files([str(log.with_suffix(suffix))], DumpOptions(checks_index_only=True), out.write, str)
    return out.getvalue().decode().splitlines()[-1].removeprefix(str(log.with_suffix(suffix)))


@pytest.mark.parametrize(
    ("suffix", "data", "line"),
    [
        (".index", b"".join(OFFSETS), " passed sanity check."),
        (".index", b"", " is empty."),
        (".timeindex", b"".join(TIMES), " passed sanity check."),
        (".timeindex", b"", " passed sanity check."),
    ],
)
def test_sane_indexes(tmp_path: Path, suffix: str, data: bytes, line: str) -> None:
    assert check(tmp_path, suffix, data) == line


@pytest.mark.parametrize(
    ("suffix", "data"),
    [
        pytest.param(".index", b"".join(OFFSETS)[:-1], id="a size inside of an entry"),
        pytest.param(".index", OFFSETS[0] + struct.pack(">ii", -1, 0), id="an offset below all"),
        pytest.param(".timeindex", b"".join(TIMES) + b"x", id="a size inside of a time entry"),
        pytest.param(".timeindex", TIMES[1] + TIMES[0], id="times that descend"),
        pytest.param(".timeindex", struct.pack(">qi", T0, -1), id="an offset below the base"),
    ],
)
def test_indexes_that_are_not_sane(tmp_path: Path, suffix: str, data: bytes) -> None:
    with pytest.raises(CorruptIndexError) as caught:
        check(tmp_path, suffix, data)
    assert (caught.value.symbol, caught.value.position) == ("INDEX_NOT_SANE", len(data))
