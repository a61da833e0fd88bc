"""scan_batches and iter_batches: results, errors, arguments."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import kafkascan as ks
from kafkascan.format.layout import ScanEnd
from tests.support.segments import T0, Rig, batch_v2, message_v0, message_v1


def test_empty_log() -> None:
    scan = ks.scan_batches(b"")
    assert (len(scan), scan.end, scan.valid_bytes, scan.trailing_bytes) == (0, "CLEAN", 0, 0)


def test_every_field_of_magic_2() -> None:
    fields = {
        "base_offset": 2**62 + 1, "partition_leader_epoch": 7, "attributes": 0x35,
        "last_offset_delta": 41, "base_timestamp": T0 - 5, "max_timestamp": T0 + 5,
        "producer_id": 2**50, "producer_epoch": 12, "base_sequence": 99, "records_count": 40,
    }  # fmt: skip
    (row,) = ks.scan_batches(batch_v2(b"x" * 10, **fields)).batches
    assert {name: row[name] for name in fields} == fields
    assert (row["position"], row["batch_length"], row["magic"]) == (0, 59, 2)


def test_three_formats_in_one_file() -> None:
    log = (
        message_v0(offset=3)
        + message_v1(offset=4, timestamp=T0 + 1)
        + batch_v2(b"x", base_offset=5)
        + message_v1(offset=9, attributes=1, timestamp=T0 + 2)
        + message_v0(offset=12, attributes=2)
    )
    batches = ks.scan_batches(log).batches
    assert batches["magic"].tolist() == [0, 1, 2, 1, 0]
    assert ks.batches.last_offset(batches).tolist() == [3, 4, 5, 9, 12]
    assert batches["records_count"].tolist() == [1, 1, 1, -1, -1]
    assert batches["max_timestamp"].tolist() == [-1, T0 + 1, T0, T0 + 2, -1]
    assert batches["base_timestamp"].tolist() == [-1, T0 + 1, T0, -1, -1]
    assert ks.batches.compression_type(batches).tolist() == [0, 0, 0, 1, 2]
    for name in ("producer_id", "producer_epoch", "base_sequence", "partition_leader_epoch"):
        assert batches[name][[0, 1, 3, 4]].tolist() == [-1] * 4
    assert ks.verify_crcs(log, batches).all()


def test_torn_tail_is_not_an_error() -> None:
    rig = Rig().batches(2)
    scan = ks.scan_batches(rig.log[:-7])
    assert scan.end is ScanEnd.TORN_TAIL
    assert (len(scan), scan.trailing_bytes) == (1, rig.size_of(1) - 7)


def test_length_that_points_past_the_end_is_a_torn_tail() -> None:
    rig = Rig().batches(2).set(1, "batch_length", 2**31 - 1)
    scan = rig.scan()
    assert (len(scan), scan.end, scan.trailing_bytes) == (1, "TORN_TAIL", rig.size_of(1))


@pytest.mark.parametrize("size", [1, 16, 17, 60, 61, 4096, 1_000_003])
def test_zero_tail(size: int) -> None:
    scan = Rig().batch().end_with(bytes(size)).scan()
    assert (len(scan), scan.end, scan.trailing_bytes) == (1, "ZERO_TAIL", size)


def test_zeros_with_other_bytes_after_them_are_corrupt() -> None:
    scan = Rig().batch().end_with(bytes(100_000) + b"\x01").scan()
    assert (scan.end, scan.trailing_bytes) == ("CORRUPT", 100_001)


@pytest.mark.parametrize("length", [0, 13, -1, -(2**31), 48])
def test_bad_length_is_reported_with_its_position(length: int) -> None:
    rig = Rig().batches(3).set(1, "batch_length", length)
    with pytest.raises(ks.CorruptBatchError) as caught:
        ks.scan_batches(rig.log)
    error = caught.value
    assert (error.position, error.base_offset, error.symbol) == (rig.size_of(0), 1, "BAD_LENGTH")
    assert str(error) == (
        f"<bytes>: position {rig.size_of(0)} (base_offset 1):"
        f" batch_length {length} is below 49 [BAD_LENGTH]"
    )


@pytest.mark.parametrize("magic", [3, 127, -1, -128])
def test_bad_magic(magic: int) -> None:
    rig = Rig().batches(2).set(1, "magic", magic)
    with pytest.raises(ks.UnsupportedMagicError, match=rf"magic {magic} is not 0, 1 or 2"):
        ks.scan_batches(rig.log)


def test_on_corrupt_stop_keeps_the_batches_before() -> None:
    scan = Rig().batches(5).set(3, "magic", 9).scan()
    assert (len(scan), scan.end) == (3, "CORRUPT")
    assert isinstance(scan.error, ks.UnsupportedMagicError)
    assert scan.valid_bytes + scan.trailing_bytes == scan.source_size


def test_start_and_stop_select_the_batches_that_start_between() -> None:
    rig = Rig().batches(10)
    size = rig.size_of(0)
    scan = ks.scan_batches(rig.log, start=2 * size, stop=5 * size + 1)
    assert scan.batches["base_offset"].tolist() == [2, 3, 4, 5]
    assert (scan.start, scan.valid_bytes, scan.trailing_bytes) == (2 * size, 4 * size, 0)
    assert scan.end is ScanEnd.CLEAN


def test_consecutive_ranges_make_up_the_whole_scan() -> None:
    log = Rig().batches(50).log
    whole = ks.scan_batches(log)
    parts, start = [], 0
    for stop in (0, 10, 500, 501, 502, 2000, len(log)):
        part = ks.scan_batches(log, start=start, stop=max(start, stop))
        start = part.start + part.valid_bytes
        parts.append(part.batches)
    assert np.array_equal(np.concatenate(parts), whole.batches)


@pytest.mark.parametrize(
    "arguments",
    [
        {"start": -1}, {"start": 10**9}, {"start": 5, "stop": 4}, {"on_corrupt": "ignore"},
        {"threads": 0},
    ],
)  # fmt: skip
def test_arguments_out_of_range(arguments: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"start|stop|on_corrupt|threads"):
        ks.scan_batches(Rig().batches(2).log, **arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("rows", [1, 2, 3, 7, 64, 1000, 2**31, 2**63 - 1])
def test_iter_batches_resumes_at_any_row(rows: int) -> None:
    log = Rig().batches(100).add(message_v1()).add(message_v0()).batches(30).log
    tables = list(ks.iter_batches(log, rows=rows))
    assert all(len(table) == rows for table in tables[:-1])
    assert np.array_equal(np.concatenate(tables), ks.scan_batches(log).batches)


def test_iter_batches_yields_the_batches_before_damage() -> None:
    log = Rig().batches(5).set(3, "magic", 9).log
    tables = ks.iter_batches(log, rows=2)
    assert len(next(tables)) == 2
    assert len(next(tables)) == 1
    with pytest.raises(ks.UnsupportedMagicError):
        next(tables)
    assert sum(map(len, ks.iter_batches(log, rows=2, on_corrupt="stop"))) == 3


def test_iter_batches_rejects_bad_arguments_when_called() -> None:
    with pytest.raises(ValueError, match="rows"):
        ks.iter_batches(b"", rows=0)
    with pytest.raises(ValueError, match="on_corrupt"):
        ks.iter_batches(b"", on_corrupt="x")  # type: ignore[arg-type]


@pytest.mark.parametrize("memory_map", [True, False])
def test_many_batches_of_many_sizes(tmp_path: Path, memory_map: bool) -> None:
    """The table grows more than once; windows of an unmapped file end anywhere."""
    rng = np.random.default_rng(7)
    sizes = np.concatenate([rng.integers(0, 40, 3000), rng.integers(0, 300_000, 40), [0] * 3000])
    rig = Rig()
    for size in sizes:
        rig.batch(bytes(int(size)))
    path = tmp_path / "0.log"
    path.write_bytes(rig.log)
    with ks.Source(path, memory_map=memory_map) as source:
        scan = ks.scan_batches(source)
        assert ks.verify_crcs(source, scan.batches).all()
    assert (scan.batches["batch_length"] == sizes + 49).all()
    assert scan.batches["base_offset"].tolist() == list(range(len(sizes)))
    assert memory_of(scan.batches) <= 2 * scan.batches.nbytes


def memory_of(array: np.ndarray) -> int:
    """Size of the memory that an array keeps."""
    owner: np.ndarray | memoryview = array
    while isinstance(owner, np.ndarray) and owner.base is not None:
        owner = owner.base
    return owner.nbytes


def test_a_file_above_2_gib(tmp_path: Path) -> None:
    """Sparse: two batches that declare 2 GiB less one byte each, and one after them."""
    path = tmp_path / "0.log"
    giant = batch_v2(base_offset=1, batch_length=2**31 - 1, crc=0)
    small = batch_v2(b"end", base_offset=2)
    with open(path, "wb") as file:
        file.write(giant)
        file.seek(12 + 2**31 - 1)
        file.write(giant)
        file.seek(2 * (12 + 2**31 - 1))
        file.write(small)
    for memory_map in (True, False):
        with ks.Source(path, memory_map=memory_map) as source:
            scan = ks.scan_batches(source)
            assert scan.batches["position"].tolist() == [0, 2**31 + 11, 2**32 + 22]
            assert scan.end is ScanEnd.CLEAN
            assert scan.valid_bytes == os.path.getsize(path)
            assert ks.verify_crcs(source, scan.batches[2:]).tolist() == [True]


def test_a_sparse_zero_tail_above_2_gib(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    log = Rig().batches(3).log
    path.write_bytes(log)
    os.truncate(path, 2**31 + 2**20)
    scan = ks.scan_batches(path)
    assert (len(scan), scan.end, scan.valid_bytes) == (3, "ZERO_TAIL", len(log))


def test_repr_summarizes_the_scan() -> None:
    scan = Rig().batches(2).add(message_v1(offset=7, attributes=3)).end_with(b"\0" * 9).scan()
    text = repr(scan)
    for part in ("3 batches", "ZERO_TAIL", "9 trailing", "offsets  0 to 7", "lz4 1", "2024-04-24"):
        assert part in text
    assert "none" in repr(Rig().add(message_v0()).scan())
    assert "unknown(6) 1" in repr(Rig().batch(attributes=6).scan())
    assert "[BAD_LENGTH]" in repr(Rig().batches(2).set(1, "batch_length", 3).scan())
