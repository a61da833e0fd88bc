"""Properties of the scan on valid, mixed and damaged bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, strategies as st

import kafkascan as ks
from tests.support import reference
from tests.support.examples import examples
from tests.support.segments import batch_v2, message_v0, message_v1


def int_of(bits: int) -> st.SearchStrategy[int]:
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    return st.integers(low, high) | st.sampled_from([-1, 0, 1, low, high])


payloads = st.binary(max_size=120)
optional_bytes = st.none() | st.binary(max_size=40)

v2_batches = st.builds(
    batch_v2,
    payloads,
    base_offset=int_of(64), partition_leader_epoch=int_of(32), attributes=int_of(16),
    last_offset_delta=int_of(32), base_timestamp=int_of(64), max_timestamp=int_of(64),
    producer_id=int_of(64), producer_epoch=int_of(16), base_sequence=int_of(32),
    records_count=int_of(32),
)  # fmt: skip
v1_messages = st.builds(
    message_v1, optional_bytes, optional_bytes,
    offset=int_of(64), attributes=st.integers(0, 255), timestamp=int_of(64),
)  # fmt: skip
v0_messages = st.builds(
    message_v0, optional_bytes, optional_bytes, offset=int_of(64), attributes=st.integers(0, 255)
)
logs = st.lists(v2_batches | v1_messages | v0_messages, max_size=12)


@st.composite
def damaged_logs(draw: Any) -> bytes:
    """Logs that were cut, overwritten, spliced and zeroed."""
    log = bytearray(b"".join(draw(logs)))
    for _ in range(draw(st.integers(0, 5))):
        at = draw(st.integers(0, len(log)))
        piece = draw(st.binary(max_size=20) | st.builds(bytes, st.integers(0, 70)) | v2_batches)
        match draw(st.sampled_from(["cut", "overwrite", "insert", "flip"])):
            case "cut":
                del log[at : at + len(piece)]
            case "overwrite":
                log[at : at + len(piece)] = piece
            case "insert":
                log[at:at] = piece
            case "flip" if at < len(log):
                log[at] ^= 1 << draw(st.integers(0, 7))
    return bytes(log)


def assert_same(log: bytes, scan: ks.BatchScan, reading: reference.Reading) -> None:
    assert [tuple(row) for row in scan.batches.tolist()] == reading.rows
    if isinstance(scan.error, ks.format.NotALogError):
        assert (scan.end, scan.valid_bytes, reading.valid_bytes) == (ks.ScanEnd.CORRUPT, 0, 0)
        assert reading.end != ks.ScanEnd.CLEAN
        return
    assert (scan.end, scan.valid_bytes) == (reading.end, reading.valid_bytes)
    assert (scan.error.symbol if scan.error else None) == reading.symbol


@given(logs)
@examples(300)
def test_what_is_written_is_read(parts: list[bytes]) -> None:
    log = b"".join(parts)
    scan = ks.scan_batches(log)
    assert_same(log, scan, reference.read(log))
    assert (len(scan), scan.end) == (len(parts), "CLEAN")
    assert ks.verify_crcs(log, scan.batches).all()


@given(damaged_logs())
@examples(1000)
def test_rows_tile_the_valid_bytes_and_the_reference_agrees(log: bytes) -> None:
    scan = ks.scan_batches(log, on_corrupt="stop")
    assert_same(log, scan, reference.read(log))
    ends = scan["position"] + scan["size_in_bytes"]
    assert np.array_equal(scan["position"], np.concatenate([[0], ends])[: len(scan)])
    assert scan.valid_bytes == (ends[-1] if len(scan) else 0)
    assert scan.valid_bytes + scan.trailing_bytes == len(log)
    verdicts = ks.verify_crcs(log, scan.batches).tolist()
    assert verdicts == [reference.crc_is_valid(log, row) for row in scan.batches.tolist()]


@given(damaged_logs(), st.integers(1, 5))
@examples(200)
def test_iteration_is_the_scan_at_any_rows(log: bytes, rows: int) -> None:
    scan = ks.scan_batches(log, on_corrupt="stop")
    iterator = ks.iter_batches(log, rows=rows, on_corrupt="stop")
    tables = list(iterator)
    joined = np.concatenate([np.empty(0, ks.BATCH_DTYPE), *tables])
    assert np.array_equal(joined, scan.batches)
    assert (iterator.end, iterator.valid_bytes, iterator.trailing_bytes) == (
        scan.end, scan.valid_bytes, scan.trailing_bytes,
    )  # fmt: skip
    assert str(iterator.error) == str(scan.error)


@given(damaged_logs(), st.data())
@examples(200)
def test_a_scan_starts_at_any_byte(log: bytes, data: Any) -> None:
    start = data.draw(st.integers(0, len(log)))
    stop = data.draw(st.integers(start, len(log)))
    scan = ks.scan_batches(log, start=start, on_corrupt="stop")
    assert_same(log, scan, reference.read(log, start))
    part = ks.scan_batches(log, start=start, stop=stop, on_corrupt="stop")
    assert np.array_equal(part.batches, scan.batches[scan["position"] < stop])


@given(damaged_logs(), damaged_logs(), st.data())
@examples(300)
def test_wrong_tables_give_a_result_or_an_error(log: bytes, other: bytes, data: Any) -> None:
    """Edited rows of one log, used with another log: no crash, no wrong `True`."""
    batches = ks.scan_batches(other, on_corrupt="stop").batches
    for _ in range(data.draw(st.integers(0, 3)) if len(batches) else 0):
        row = data.draw(st.integers(0, len(batches) - 1))
        field = data.draw(st.sampled_from(["position", "batch_length", "magic", "crc"]))
        limits = np.iinfo(ks.BATCH_DTYPE[field])
        batches[field][row] = data.draw(st.integers(limits.min, limits.max) | st.integers(0, 100))
    try:
        verdicts = ks.verify_crcs(log, batches)
    except ks.format.BatchTableError as error:
        assert 0 <= error.row < len(batches)
        return
    assert verdicts.tolist() == [reference.crc_is_valid(log, row) for row in batches.tolist()]


@given(damaged_logs())
@examples(200)
def test_derived_columns_and_summaries_take_any_table(log: bytes) -> None:
    scan = ks.scan_batches(log, on_corrupt="stop")
    for name in ks.batches.COLUMN_NAMES:
        assert len(scan[name]) == len(scan)
    repr(scan)
    whole, pieces = ks.batches.summarize(scan.batches), ks.batches.BatchSummary()
    for table in ks.iter_batches(log, rows=2, on_corrupt="stop"):
        pieces.add(table)
    assert pieces == whole
