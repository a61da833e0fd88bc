"""Rows compared with headers, locations of records, and groups of rows."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import kafkascan as ks
from kafkascan._core import items, records as core
from kafkascan.format.errors import STATUS
from tests.support.segments import Rig, batch_v2, message_v0, message_v1


def mixed_log() -> bytes:
    parts = [
        batch_v2(b"a" * 20, base_offset=1, records_count=3, last_offset_delta=2),
        message_v0(b"key", b"value", offset=4),
        batch_v2(b"b" * 2000, base_offset=5, attributes=4),
        message_v1(b"key", b"value", offset=6, attributes=1),
        batch_v2(base_offset=9, records_count=0),
    ]
    return b"".join(parts * 9)


def test_rows_are_compared_byte_by_byte() -> None:
    log = mixed_log()
    rows = ks.scan_batches(log).batches
    assert core.check_rows(log, rows) == (STATUS["OK"], len(rows), 0)
    stored = rows.view(np.uint8)
    for at in range(rows.itemsize * 5):
        stored[at] ^= 1
        status, row, _ = core.check_rows(log, rows)
        assert status != STATUS["OK"], f"byte {at % rows.itemsize} of a row is not compared"
        assert row == at // rows.itemsize
        stored[at] ^= 1


@pytest.mark.parametrize("position", [-1, -(2**63), 2**63 - 1, 2**40])
def test_positions_far_away_are_not_read(position: int) -> None:
    log = mixed_log()
    rows = ks.scan_batches(log).batches
    rows["position"][30] = position
    assert core.check_rows(log, rows) == (STATUS["ROW_OUT_OF_BOUNDS"], 30, 0)


def test_locations_equal_those_of_the_derived_columns() -> None:
    rows = ks.scan_batches(mixed_log()).batches
    count = len(rows)
    position, size, records = np.empty((3, count), np.int64)
    is_wrapper, codec = np.empty(count, np.uint8), np.empty(count, np.int8)
    core.locate_payloads(rows, position, size, records, is_wrapper, codec)
    is_legacy = rows["magic"] < 2
    header = np.where(is_legacy, 0, 61)
    assert position.tolist() == (rows["position"] + header).tolist()
    assert size.tolist() == (ks.batches.size_in_bytes(rows) - header).tolist()
    assert records.tolist() == np.where(is_legacy, 1, rows["records_count"]).tolist()
    assert codec.tolist() == ks.batches.compression_type(rows).tolist()
    assert is_wrapper.tolist() == (is_legacy & (codec != 0)).tolist()
    with pytest.raises(ValueError, match="length"):
        core.locate_payloads(rows, position[1:], size, records, is_wrapper, codec)


def test_a_row_that_reaches_a_limit_ends_its_group() -> None:
    rows = Rig().batches(5, b"").scan().batches  # of 61 bytes each
    rows["records_count"] = [3, -1, 0, 9, 1]
    assert core.end_of_group(rows, 0, 61, 100) == 1
    assert core.end_of_group(rows, 0, 62, 100) == 2
    assert core.end_of_group(rows, 1, sys.maxsize, sys.maxsize) == 5
    # Counts below 1 count as 1.
    assert core.end_of_group(rows, 0, 1000, 5) == 3
    assert core.end_of_group(rows, 3, 1000, 9) == 4
    assert core.end_of_group(rows, 5, 1, 1) == 5
    rows["batch_length"] = -(2**31)
    assert core.end_of_group(rows, 0, 1, sys.maxsize) == 5


def test_control_batches_are_those_of_magic_2_with_the_bit() -> None:
    rows = ks.scan_batches(mixed_log()).batches
    assert not core.has_control_batches(rows)
    assert not core.has_control_batches(rows[:0])
    rows["attributes"][1] = 32  # a message of magic 0
    assert not core.has_control_batches(rows)
    rows["attributes"][-1] = 32
    assert core.has_control_batches(rows)


def test_sizes_of_items_are_added_without_nulls() -> None:
    assert items.measure_items(np.array([3, -1, 0, 2**31 - 1, -(2**31)], np.int32)) == (
        2**31 + 2,
        2,
    )
    assert items.measure_items(np.empty(0, np.int32)) == (0, 0)
