"""Tars with forged sizes, holes or names; tars of several data dirs."""

from __future__ import annotations

import contextlib
import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import kafkascan as ks
from tests.support.segments import batch_v2
from tests.support.work import require_linear_time

NAME = f"t-0/{0:020}.log"
LOG = batch_v2(base_offset=0) + batch_v2(base_offset=1)
HUGE = 1 << 62


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 512)


def number(value: int) -> bytes:
    if 0 <= value < 8**11:
        return b"%011o\0" % value
    return (b"\x80" if value >= 0 else b"\xff") + (value % (1 << 88)).to_bytes(11, "big")


def header(size: int, kind: bytes = b"0", name: str = NAME, **said: bytes) -> bytes:
    head = bytearray(512)
    head[: len(name)] = name.encode()
    head[124:136], head[156:157], head[257:265] = number(size), kind, b"ustar\x0000"
    if kind == b"S":
        head[386 : 386 + len(said["pieces"])], head[483:495] = said["pieces"], said["real_size"]
    head[148:156] = b"%06o\0 " % (sum(head[:148]) + 8 * 32 + sum(head[156:]))
    return bytes(head)


def sparse(real_size: int, *pieces: tuple[int, int]) -> bytes:
    listed = b"".join(number(value) for piece in pieces for value in piece)
    return header(len(LOG), b"S", pieces=listed, real_size=number(real_size)) + padded(LOG)


def extended(text: bytes, kind: bytes = b"x") -> bytes:
    size = len(text) + 2
    size += len(str(size + len(str(size))))
    return raw_header(b"%d %b\n" % (size, text), kind)


def raw_header(data: bytes, kind: bytes = b"x") -> bytes:
    return header(len(data), kind, "x") + padded(data)


PLAIN = header(len(LOG)) + padded(LOG)
FORGERIES = {
    "piece before the file": sparse(500, (-5, len(LOG))),
    "piece of negative size": sparse(500, (0, -len(LOG))),
    "pieces in disorder": sparse(500, (200, 9), (0, 9)),
    "piece behind the end": sparse(50, (100, len(LOG))),
    "negative size with holes": sparse(-7, (0, len(LOG))),
    "negative size": header(-512) + padded(LOG),
    "negative size of no file": PLAIN + header(-1024 - len(padded(LOG)), b"9"),
    "negative size of a name": header(-512, b"L") + PLAIN,
    "huge name": header(1 << 36, b"L") + PLAIN,
    "map that is none": extended(b"GNU.sparse.map=a") + PLAIN,
    "size that is none": extended(b"GNU.sparse.realsize=z") + PLAIN,
    "negative size, extended": extended(b"size=-99999999") + PLAIN,
    "sparse file of an unknown format": extended(b"GNU.sparse.major=2") + PLAIN,
    "realsize for all files": extended(b"GNU.sparse.realsize=5", b"g") + PLAIN,
    "header without a file": PLAIN + extended(b"path=a"),
    "line behind the end": raw_header(b"99 path=a\n") + PLAIN,
    "line of no length": raw_header(b"00 path=a\n") + PLAIN,
    "name too long": extended(b"path=" + b"a" * 5000) + PLAIN,
    "range behind the data": sparse(HUGE, (0, len(LOG) + 512)) + PLAIN,
    "odd list of ranges": extended(b"GNU.sparse.map=0") + PLAIN,
    "more ranges than data": extended(b"GNU.sparse.map=" + b"0,0," * 9 + b"0,0") + PLAIN,
    "small ranges": sparse(500, (0, 1), (2, 1), (4, 1)),
    "damaged header": PLAIN + b"x" + PLAIN[1:],
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_forged_tar_is_refused(tmp_path: Path, forgery: str) -> None:
    path = tmp_path / "forged.tar"
    path.write_bytes(FORGERIES[forgery] + bytes(1024))
    with pytest.raises(ks.format.ArchiveError):
        ks.open_log_dir(path)


NO_RANGES_YET = header(512, b"S", pieces=bytes(96) + b"\1", real_size=number(5))
NO_RANGES = bytes(504) + b"\1" + bytes(7)
# Each of about 10 kB times n: with quadratic time, 1 MB takes from seconds to minutes.
SLOW: dict[str, Callable[[int], bytes]] = {
    "digits": lambda n: raw_header(b"1" * 10_000 * n) + PLAIN,
    "digits in small headers": lambda n: raw_header(b"1" * 600 * n) * 16 + PLAIN,
    "lines that overlap": lambda n: raw_header(b"2 " * 5_000 * n) + PLAIN,
    "keywords for all files": lambda n: (
        raw_header(b"11 k=1234\n1" * 800 * n, b"g") + PLAIN * 10 * n
    ),
    "headers of headers": lambda n: extended(b"comment=aaaaaaaa") * 10 * n + PLAIN,
    "a number without end": lambda n: (
        extended(b"GNU.sparse.major=1") + header(10_000 * n) + b"1" * (10_000 * n)
    ),
    "headers of no data": lambda n: header(0, b"5", "x/") * 20 * n,
    "blocks of no ranges": lambda n: NO_RANGES_YET + NO_RANGES * 20 * n,
}


@pytest.mark.parametrize("case", SLOW)
def test_reading_headers_takes_linear_time(tmp_path: Path, case: str) -> None:
    def written(times: int) -> Path:
        path = tmp_path / f"{times}.tar"
        path.write_bytes(SLOW[case](times) + bytes(1024))
        return path

    def read(path: Path) -> None:
        with contextlib.suppress(ks.format.ArchiveError, ks.format.NoLogsError):
            ks.open_log_dir(path)

    small, large = written(25), written(100)
    require_linear_time(lambda: read(small), lambda: read(large))


def test_holes_cost_nothing(tmp_path: Path) -> None:
    path = tmp_path / "huge.tar"
    path.write_bytes(sparse(HUGE, (0, len(LOG))) + bytes(1024))
    assert ks.count_records(path).counts["batches"] == 2
    assert ks.salvage(path).lost_bytes == 0
    path.write_bytes(sparse(HUGE, (HUGE // 2, len(LOG))) + bytes(1024))
    result = ks.salvage(path)
    (segment,) = result.partitions[0].segments
    (loss,) = segment.losses
    assert (segment.batches, loss.size, loss.zero_bytes) == (2, HUGE // 2, HUGE // 2)


def tar_of(path: Path, **files: bytes) -> Path:
    with tarfile.open(path, "w") as tar:
        for folder, data in files.items():
            info = tarfile.TarInfo(f"{folder}/{0:020}.log")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def test_nothing_is_written_outside_of_the_destination(tmp_path: Path) -> None:
    tar = tar_of(tmp_path / "evil.tar", **{"..": LOG, "t-0": LOG, "../../u-0": LOG})
    precious = tmp_path / "home" / f"{0:020}.log"
    precious.parent.mkdir()
    precious.write_bytes(b"precious")
    result = ks.salvage(tar, precious.parent / "out")
    assert [one.error for one in result.partitions] == [None] * 3
    assert precious.read_bytes() == b"precious"
    assert sorted(one.name for one in precious.parent.iterdir()) == [precious.name, "out"]


def test_logs_of_one_name_do_not_end_up_in_each_other(tmp_path: Path) -> None:
    tar = tar_of(tmp_path / "two.tar", **{"one/t-0": LOG, "other/t-0": LOG[: len(LOG) // 2]})
    result = ks.salvage(tar, tmp_path / "out")
    first, second = result.partitions
    assert first.error is None
    assert second.destination is None
    assert isinstance(second.error, FileExistsError)
    assert (tmp_path / "out" / "t-0" / f"{0:020}.log").read_bytes() == LOG
    assert not result.is_marked_clean


def test_producers_do_not_choose_where_they_collide() -> None:
    """Ids that one multiplication sent to one place; a table of them took quadratic time."""
    inverse = pow(0x9E3779B97F4A7C15, -1, 1 << 64)
    ids = [one for x in range(1, 1 << 18) if (one := (x << 32 | x) * inverse % (1 << 64)) < 1 << 63]
    first = batch_v2(base_offset=0, producer_id=1, producer_epoch=0, base_sequence=0)
    data = np.tile(np.frombuffer(first, np.uint8), (len(ids), 1))
    data[:, :8] = np.arange(len(ids)).astype(">i8").view(np.uint8).reshape(-1, 8)
    data[:, 43:51] = np.array(ids).astype(">i8").view(np.uint8).reshape(-1, 8)
    assert len(ks.read_producers(data.tobytes()).counts) == len(ids)
