"""The screen of batches: its flags equal the flags of all rows, checked one by one."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given, strategies as st

from kafkascan.batches import screening
from kafkascan.batches.columns import BatchTable
from kafkascan.batches.screening import screen
from kafkascan.format.layout import BATCH_DTYPE

LEAST, GREATEST = -(2**63), 2**63 - 1
SOUND = {
    "magic": 2, "batch_length": 100, "records_count": 3, "last_offset_delta": 2,
    "partition_leader_epoch": 5, "producer_id": -1, "max_timestamp": 1000, "attributes": 0,
}  # fmt: skip
ODD: dict[str, list[int]] = {
    "base_offset": [0, -1, 7, LEAST, GREATEST],
    "magic": [0, 1, 3, 127],
    "batch_length": [0, 1, 99, 101, 2**31 - 1, -1, -(2**31)],
    "records_count": [0, -1, 1, 4, 2**31 - 1, -(2**31)],
    "last_offset_delta": [0, -1, 1, 3, 2**31 - 1, -(2**31)],
    "partition_leader_epoch": [0, -1, 6, 2**31 - 1, -(2**31)],
    "producer_id": [0, 1, -2, LEAST, GREATEST],
    "max_timestamp": [-1, 0, 999, 1001, LEAST, GREATEST],
    "attributes": [*range(8), 8, 16, 32, 64, 128, 0x7FFF, -1, -(2**15)],
}


def wrapped(value: int) -> int:
    """Wrap a number to 64 bits."""
    return (value + 2**63) % 2**64 - 2**63


def told_one_by_one(rows: BatchTable, earliest: int, latest: int, largest: int) -> int:
    flags = 0
    expected, epoch = int(rows["base_offset"][0]), int(rows["partition_leader_epoch"][0])
    for row in rows:
        one = {name: int(row[name]) for name in ODD}
        codec, delta, count = one["attributes"] & 7, one["last_offset_delta"], one["records_count"]
        for flag, is_so in (
            (screening.OFFSETS, one["base_offset"] != expected or delta < 0),
            (screening.EPOCHS, one["partition_leader_epoch"] != epoch or one["magic"] < 2),
            (screening.TIMES, not earliest <= one["max_timestamp"] <= latest),
            (screening.SIZES, one["batch_length"] + 12 > largest),
            (screening.COUNTS, count < 1 or count - 1 != delta or one["attributes"] & 64),
            (screening.FORMATS, one["magic"] < 2 or codec > 4),
            (screening.PRODUCERS, one["producer_id"] >= 0),
            (screening.TRANSACTIONS, one["attributes"] & 16),
            (screening.CONTROL, one["attributes"] & 32),
        ):
            flags |= flag if is_so else 0
        expected = wrapped(one["base_offset"] + delta + 1)
        epoch = one["partition_leader_epoch"]
    return flags


def table_of(changes: list[tuple[str, int] | None]) -> BatchTable:
    rows = np.zeros(len(changes), BATCH_DTYPE)
    for name, value in SOUND.items():
        rows[name] = value
    rows["base_offset"] = 10 + 3 * np.arange(len(rows))
    for number, change in enumerate(changes):
        if change is not None:
            rows[change[0]][number] = change[1]
    return rows


@given(
    changes=st.lists(
        st.none() | st.sampled_from([(name, value) for name in ODD for value in ODD[name]]),
        min_size=1,
        max_size=6,
    ),
    limits=st.tuples(
        st.sampled_from([LEAST, 0, 1000, 1001]),
        st.sampled_from([GREATEST, 2000, 1000, 999, -5]),
        st.sampled_from([GREATEST, 112, 111, 0, -1, LEAST]),
    ),
)
@example([None, None], (0, 2000, 112))
@example([("batch_length", 2**31 - 1)], (0, 2000, 2**31 + 11))
def test_flags_are_the_union_of_the_flags_of_rows(
    changes: list[tuple[str, int] | None], limits: tuple[int, int, int]
) -> None:
    rows = table_of(changes)
    earliest, latest, largest = limits
    found = screen(rows, earliest=earliest, latest=latest, largest=largest)
    assert found == told_one_by_one(rows, earliest, latest, largest)


def test_sound_batches_and_empty_tables_have_no_flags() -> None:
    assert screen(table_of([None] * 5)) == 0
    assert screen(table_of([])) == 0
