"""Files that are not logs: their kind is named, and no log is ever taken for one."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import pickle
import tarfile
import zipfile
from pathlib import Path

import lz4.frame
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import kafkascan as ks
from kafkascan.format.file_kinds import HEAD_SIZE, why_not_a_log
from tests.support.paths import GOLDEN
from tests.support.segments import batch_v2

DATA = GOLDEN / "kafka-4.4.0" / "data"
LOG = DATA / "transactions-0" / f"{0:020}.log"


def _tar() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        tar.add(LOG, "transactions-0/log")
    return out.getvalue()


def _zip() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.write(LOG)
    return out.getvalue()


def _zip_of_folder() -> bytes:
    """A zip whose first entry, an empty folder, reads as a message of magic 0."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(zipfile.ZipInfo("d/", (2026, 11, 23, 8, 41, 28)), b"")
        archive.write(LOG)
        archive.writestr("zeros", bytes(20000))
    return out.getvalue()


def _parquet() -> bytes:
    out = io.BytesIO()
    pyarrow.parquet.write_table(pa.table({"a": [1]}), out)
    return out.getvalue()


CONTENTS = {
    "a gzip file": gzip.compress(LOG.read_bytes()),
    "an LZ4 file": lz4.frame.compress(LOG.read_bytes()),
    "a bzip2 file": bz2.compress(LOG.read_bytes()),
    "an xz file": lzma.compress(LOG.read_bytes()),
    "a zip archive": _zip(),
    "a tar archive": _tar(),
    "a Parquet file": _parquet(),
    "a text file": "Grüße, a text\n".encode() * 100,
    "a pointer of Git LFS": b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\n",
}


@pytest.mark.parametrize("kind", CONTENTS)
@pytest.mark.parametrize("name", ["orders.log", f"{0:020}.log"])
@pytest.mark.parametrize("memory_map", [True, False])
def test_content_is_named(kind: str, name: str, tmp_path: Path, *, memory_map: bool) -> None:
    path = tmp_path / name
    path.write_bytes(CONTENTS[kind])
    with ks.Source(path, memory_map=memory_map) as source:
        for read in (ks.scan_batches, ks.read_records, lambda one: list(ks.iter_batches(one))):
            with pytest.raises(ks.format.NotALogError, match=f"begins as {kind} does") as caught:
                read(source)
            assert (caught.value.position, caught.value.base_offset) == (0, None)
            assert caught.value.path == str(path)
        stopped = ks.scan_batches(source, on_corrupt="stop")
    assert (stopped.end, len(stopped)) == (ks.ScanEnd.CORRUPT, 0)
    assert isinstance(stopped.error, ks.format.NotALogError)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_another_file_that_reads_as_a_batch_is_named(tmp_path: Path) -> None:
    path = tmp_path / "backup.log"
    content = _zip_of_folder()
    path.write_bytes(content)
    assert len(ks.scan_batches(b"\0" + content[1:], on_corrupt="stop")) == 1
    for threads in (1, 4):
        stopped = ks.scan_batches(path, on_corrupt="stop", threads=threads)
        assert (stopped.end, len(stopped)) == (ks.ScanEnd.CORRUPT, 0)
        assert "begins as a zip archive does" in str(stopped.error)
    with pytest.raises(ks.format.NotALogError, match="a zip archive"):
        list(ks.iter_batches(path))


def test_a_large_snappy_file_that_reads_as_a_batch_is_named(tmp_path: Path) -> None:
    """Its first offset would be negative, and its length is 1.9 GB."""
    head = b"\xff\x06\0\0sNaPpY" + b"\0\0\x01\0" + b"\x77\x11\x01\x23" + bytes(40)
    path = tmp_path / "backup.log"
    for first, is_log in ((b"\xff", False), (b"\0", True)):
        path.write_bytes(first + head[1:])
        os.truncate(path, 12 + 0x70590000 + 5000)
        scan = ks.scan_batches(path, on_corrupt="stop")
        assert len(scan) == is_log
        assert ("begins as a Snappy file does" in str(scan.error)) != is_log


@pytest.mark.parametrize("kind", ["index", "timeindex", "txnindex", "snapshot"])
def test_side_files_are_named(kind: str, tmp_path: Path) -> None:
    found = [path for path in DATA.glob(f"*/*.{kind}") if path.stat().st_size]
    empty = tmp_path / f"{0:020}.{kind}"
    empty.touch()
    for path in (*found, empty):
        with pytest.raises(ks.format.NotALogError, match=rf"\(\.{kind}\), not a log"):
            ks.scan_batches(path)


@pytest.mark.parametrize("count", [ks.count_records, ks.audit, ks.read_transactions, ks.advise])
def test_whole_log_functions_refuse_other_files(count: object, tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(CONTENTS["a text file"])
    assert callable(count)
    with pytest.raises(ks.format.NotALogError, match="a text file"):
        count(path)


def test_batches_after_another_files_bytes_are_found(tmp_path: Path) -> None:
    """A block of another file may overwrite the beginning of a log."""
    path = tmp_path / "orders.log"
    log = ks.build_batches(value=[bytes(100)] * 100, max_records=1)
    path.write_bytes(CONTENTS["a text file"][:600] + log[600:])
    found = ks.scan_batches(path, on_corrupt="resync")
    assert len(found) == 96
    assert "NOT_A_LOG" in str(found.gaps[0].error)
    (partition,) = ks.salvage(path).partitions
    assert sum(piece.batches for one in partition.segments for piece in one.pieces) == 96


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_no_beginning_of_a_log_is_taken_for_another_file(magic: int) -> None:
    for offset in (0, 0x1F8B, 2**31, 2**48, 2**55):
        data = ks.build_batches(key=["text " * 200], offset=offset, magic=magic)
        for size in (*range(64), len(data)):
            assert why_not_a_log("orders.log", data[:size][:HEAD_SIZE]) is None


def test_a_file_of_valid_batches_is_a_log_whatever_its_first_offset() -> None:
    log = batch_v2(base_offset=0x1F8B << 48) + batch_v2(base_offset=(0x1F8B << 48) + 1)
    assert len(ks.scan_batches(log)) == 2
    with pytest.raises(ks.format.NotALogError, match="a gzip file"):
        ks.scan_batches(log + b"torn")


def test_a_torn_log_with_the_signature_of_a_tar_in_its_first_value_is_a_log() -> None:
    log = batch_v2(bytes(257 - 61) + b"ustar" + bytes(500)) + b"torn"
    scan = ks.scan_batches(log)
    assert (scan.end, len(scan)) == (ks.ScanEnd.TORN_TAIL, 1)


def test_empty_files_and_zeros_are_logs(tmp_path: Path) -> None:
    path = tmp_path / "empty.log"
    path.touch()
    assert ks.scan_batches(path).end is ks.ScanEnd.CLEAN
    path.write_bytes(bytes(4096))
    assert ks.scan_batches(path).end is ks.ScanEnd.ZERO_TAIL
    assert np.array_equal(ks.scan_batches(b"")["magic"], [])
