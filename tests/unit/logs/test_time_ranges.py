"""Records of a range of offsets or times: exact, without decoding batches that cannot have them."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import kafkascan as ks
from tests.support.command_line import DATA, LEGACY, rows
from tests.support.records import RecordV2, batch_of
from tests.support.segments import T0, message_v0, message_v1

APPEND_TIME = 0x08
PARTITIONS = [
    folder
    for data in (DATA, LEGACY)
    for folder in sorted(data.iterdir())
    if folder.is_dir() and any(folder.glob("*.log"))
]


def batch(base_offset: int, *times: int, **fields: int) -> bytes:
    records = [
        RecordV2(offset_delta=delta, timestamp_delta=time - times[0])
        for delta, time in enumerate(times)
    ]
    known = {"base_timestamp": times[0], "max_timestamp": max(times), "base_offset": base_offset}
    return batch_of(records, **(known | fields))


LOG = (
    batch(0, T0, T0 + 1)
    + batch(2, T0 + 9, T0 + 3, T0 + 5)  # the first record is the last one in time
    + batch(5, T0 + 20, attributes=APPEND_TIME, base_timestamp=T0)
    + message_v1(b"k", offset=6, timestamp=T0 + 4)
    + message_v0(b"k", offset=7)
)
TIMES = [T0, T0 + 1, T0 + 9, T0 + 3, T0 + 5, T0 + 20, T0 + 4, -1]


def read(source: Any, **options: Any) -> list[tuple[int, int]]:
    """Return the offsets and times of records, which all functions agree about."""
    table = ks.read_records(source, columns=["offset", "timestamp"], **options)
    found = list(zip(table["offset"].tolist(), table["timestamp"].tolist(), strict=True))
    tables = ks.iter_records(source, columns=["key"], batch_size=2, **options)
    assert sum(len(one) for one in tables) == len(found)
    return found


@pytest.mark.parametrize("start", [None, -5, 0, T0, T0 + 2, T0 + 6, T0 + 21])
@pytest.mark.parametrize("stop", [None, T0 + 3, T0 + 5, T0 + 10, T0 + 30])
def test_records_of_a_range(start: int | None, stop: int | None) -> None:
    if start is not None and stop is not None and stop < start:
        with pytest.raises(ValueError, match=r"to_time .* is before from_time"):
            ks.read_records(LOG, from_time=start, to_time=stop)
        return
    expected = [
        (offset, time)
        for offset, time in enumerate(TIMES)
        if (start is None or time >= start) and (stop is None or time < stop)
    ]
    assert read(LOG, from_time=start, to_time=stop) == expected
    batches = ks.scan_batches(LOG).batches[1:]
    of_rows = ks.read_records(LOG, batches, from_time=start, to_time=stop)["offset"].tolist()
    assert of_rows == [offset for offset, _ in expected if offset >= 2]
    after = read(LOG, from_time=start, to_time=stop, log_start_offset=4)
    assert after == [pair for pair in expected if pair[0] >= 4]


@pytest.mark.parametrize("start", [None, -(2**63), 0, 1, 3, 6, 9, 2**63 - 1])
@pytest.mark.parametrize("stop", [None, 0, 1, 4, 8, 2**63 - 1])
def test_records_of_a_range_of_offsets(start: int | None, stop: int | None) -> None:
    if start is not None and stop is not None and stop < start:
        with pytest.raises(ValueError, match=r"to_offset .* is before from_offset"):
            ks.read_records(LOG, from_offset=start, to_offset=stop)
        return
    expected = list(enumerate(TIMES))[max(start or 0, 0) : stop]
    assert read(LOG, from_offset=start, to_offset=stop) == expected
    batches = ks.scan_batches(LOG).batches[1:]
    of_rows = ks.read_records(LOG, batches, from_offset=start, to_offset=stop)["offset"].tolist()
    assert of_rows == [offset for offset, _ in expected if offset >= 2]
    within = read(LOG, from_offset=start, to_offset=stop, from_time=T0 + 4)
    assert within == [pair for pair in expected if pair[1] >= T0 + 4]


@pytest.mark.parametrize("folder", PARTITIONS, ids=[one.name for one in PARTITIONS])
@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_a_range_of_offsets_of_a_log(folder: Path, isolation: str) -> None:
    everything = read(folder, isolation=isolation)
    last = everything[-1][0] if everything else 10
    for start, stop in ((None, last // 2), (last // 3, None), (last // 3, 2 * last // 3), (5, 5)):
        found = read(folder, from_offset=start, to_offset=stop, isolation=isolation)
        within = range(start or 0, last + 1 if stop is None else stop)
        assert found == [pair for pair in everything if pair[0] in within]


def test_segments_after_a_range_of_offsets_are_not_read(tmp_path: Path) -> None:
    folder = tmp_path / "topic-0"
    folder.mkdir()
    for base_offset in range(0, 50, 10):
        path = folder / f"{base_offset:020d}.log"
        path.write_bytes(b"".join(batch(base_offset + at, T0) for at in range(10)))
    for path in folder.glob("*[34]0.log"):
        path.write_bytes(b"damaged")
    assert [offset for offset, _ in read(folder, from_offset=15, to_offset=28)] == [*range(15, 28)]


@pytest.mark.parametrize("value", [1.5, "7", 2**63])
def test_limits_that_are_no_offsets(value: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="from_offset"):
        ks.read_records(LOG, from_offset=value)


def test_batches_that_may_have_records_of_a_range() -> None:
    batches = ks.scan_batches(LOG).batches

    def selected(*limits: int | None) -> list[int]:
        return np.flatnonzero(ks.batches.select_times(batches, *limits)).tolist()

    assert selected() == [0, 1, 2, 3, 4]
    assert selected(T0 + 2) == [1, 2, 3]
    assert selected(T0 + 2, T0 + 4) == [1]  # its latest timestamp is after the range
    assert selected(None, T0 + 1) == [0, 1, 4]
    assert selected(T0 + 21) == []


def test_wrappers_may_have_any_time() -> None:
    for folder in PARTITIONS:
        for log in folder.glob("*.log"):
            batches, records = ks.scan_batches(log).batches, ks.read_records(log, control="include")
            for time in {*records["timestamp"].tolist()}:
                mask = ks.batches.select_times(batches, time, time + 1)
                found = ks.read_records(log, batches[mask], control="include")
                assert (found["timestamp"] == time).sum() == (records["timestamp"] == time).sum()


@pytest.mark.parametrize("folder", PARTITIONS, ids=lambda folder: f"{folder.parents[1].name}")
def test_partitions_and_the_command(folder: Path) -> None:
    every = read(folder)
    times = sorted(time for _, time in every)
    if not times:
        return
    start, stop = (max(0, times[part * len(times) // 4]) for part in (1, 3))
    for limits in ({"from_time": start}, {"to_time": stop}, {"from_time": start, "to_time": stop}):
        expected = [
            pair
            for pair in every
            if limits.get("from_time", -9) <= pair[1] < limits.get("to_time", 2**62)
        ]
        assert read(folder, **limits) == expected
        options = [
            f"--{name.replace('_', '-')}={np.datetime64(time, 'ms')}"
            for name, time in limits.items()
        ]
        shown = rows("records", folder, "--columns", "offset,timestamp", *options)
        assert [(row["offset"], row["timestamp"]) for row in shown] == expected


def test_batches_outside_of_the_range_are_not_decoded() -> None:
    data = bytearray(LOG)
    data[61] = 1  # the first record's size
    with pytest.raises(ks.InvalidRecordError):
        ks.read_records(bytes(data))
    assert len(read(bytes(data), from_time=T0 + 2)) == 5
    assert len(read(bytes(data), from_time=T0 + 2, on_corrupt="stop")) == 5
    rest = ks.read_records(bytes(data), from_time=T0 + 1, on_corrupt="stop")
    assert [one.symbol for one in rest.problems] == ["RECORD_SIZE_MISMATCH"]
    assert rest["offset"].tolist() == [2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    "time",
    [
        T0 + 4,
        str(T0 + 4),
        "2024-04-24T23:06:40.004",
        "2024-04-24T23:06:40.003500+00:00",
        datetime.datetime(2024, 4, 24, 23, 6, 40, 3001, datetime.UTC),
        np.datetime64(T0 + 4, "ms"),
        pd.Timestamp(T0 + 4, unit="ms"),
    ],
)
def test_times_of_every_kind(time: Any) -> None:
    assert [offset for offset, _ in read(LOG, from_time=time)] == [2, 4, 5, 6]
    assert [offset for offset, _ in read(LOG, to_time=time)] == [0, 1, 3, 7]
    with pytest.raises(TypeError, match="from_time must be milliseconds"):
        ks.read_records(LOG, from_time=1.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="to_time: 'noon'"):
        ks.iter_records(LOG, to_time="noon")


def test_columns_and_transactions_stay_as_requested() -> None:
    table = ks.read_records(LOG, columns=["value"], from_time=T0 + 9)
    assert (table.names, table.to_arrow().column_names) == (("value",), ["value"])
    folder = DATA / "transactions-0"
    committed = ks.read_records(folder, isolation="read_committed")
    middle = int(np.median(committed["timestamp"]))
    expected = committed["offset"][committed["timestamp"] >= middle].tolist()
    found = ks.read_records(folder, isolation="read_committed", from_time=middle)
    assert found["offset"].tolist() == expected
