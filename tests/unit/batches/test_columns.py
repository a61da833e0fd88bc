"""Derived columns, with Kafka's semantics."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kafkascan as ks
from tests.support.segments import T0, Rig, batch_v2, message_v0, message_v1

MAX = 2**31 - 1


def rows(*fields: dict[str, int]) -> Any:
    return ks.scan_batches(b"".join(batch_v2(b"", **one) for one in fields)).batches


@pytest.mark.parametrize(
    ("base", "delta", "last"),
    [
        (-1, 5, -1), (0, 0, 0), (10, 4, 14), (MAX, 0, MAX), (MAX, 1, 0), (MAX - 1, 3, 1),
        (MAX, MAX, MAX - 1), (3, -5, 2147483646), (-5, 3, -2),
    ],
)  # fmt: skip
def test_last_sequence_wraps_as_java_does(base: int, delta: int, last: int) -> None:
    table = rows({"base_sequence": base, "last_offset_delta": delta})
    assert ks.batches.last_sequence(table).tolist() == [last]
    assert ks.batches.last_sequence(table).dtype == np.int32


def test_offsets_and_sizes() -> None:
    table = rows({"base_offset": 2**62, "last_offset_delta": 9}, {"base_offset": 5})
    assert ks.batches.last_offset(table).tolist() == [2**62 + 9, 5]
    assert ks.batches.next_offset(table).tolist() == [2**62 + 10, 6]
    assert ks.batches.size_in_bytes(table).tolist() == [61, 61]
    table["batch_length"] = MAX
    assert ks.batches.size_in_bytes(table).tolist() == [2**31 + 11] * 2


def test_flags_are_defined_for_magic_2_only() -> None:
    every_bit = 0x7F
    log = (
        batch_v2(attributes=every_bit, base_timestamp=T0)
        + message_v1(attributes=every_bit)
        + message_v0(attributes=every_bit)
        + batch_v2()
    )
    table = ks.scan_batches(log).batches
    assert ks.batches.is_transactional(table).tolist() == [True, False, False, False]
    assert ks.batches.is_control(table).tolist() == [True, False, False, False]
    assert ks.batches.delete_horizon_ms(table).tolist() == [T0, -1, -1, -1]
    assert ks.batches.timestamp_type(table).tolist() == [1, 1, -1, 0]
    assert ks.batches.compression_type(table).tolist() == [7, 7, 7, 0]


def test_high_attribute_bits_are_ignored() -> None:
    table = rows({"attributes": -(2**15) | 0x0180 | 4})
    assert ks.batches.compression_type(table).tolist() == [ks.CompressionType.ZSTD]
    assert not ks.batches.is_control(table)[0]


def test_datetimes() -> None:
    times = ks.batches.as_datetime64(np.array([T0, -1, 0, 2**63 - 1], np.int64))
    assert times.dtype == "datetime64[ms]"
    assert times[0] == np.datetime64("2024-04-24T23:06:40.000")
    assert np.isnat(times).tolist() == [False, True, False, False]
    scan = Rig().batch(base_timestamp=-1).scan()
    assert np.isnat(scan.base_timestamps[0])
    assert scan.max_timestamps[0] == times[0]


def test_columns_by_name() -> None:
    scan = Rig().batches(3).scan()
    for name in ks.batches.COLUMN_NAMES:
        assert scan[name].shape == (3,)
    assert scan["last_offset"].tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="did you mean 'max_timestamp'"):
        scan["max_timestam"]


def test_tables_are_empty_or_large() -> None:
    empty = ks.scan_batches(b"").batches
    for name in ks.batches.COLUMN_NAMES:
        assert ks.batches.column(empty, name).shape == (0,)
