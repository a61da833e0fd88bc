"""Points in time that callers give."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from fractions import Fraction
from math import ceil, floor
from typing import Any

import numpy as np
import pandas as pd
import pytest

import kafkascan as ks
from kafkascan.format.times import datetimes_to_milliseconds, moment_of, to_milliseconds
from tests.support.command_line import DATA

MS = 1_713_999_999_123
UTC = datetime.UTC
BERLIN = datetime.timezone(datetime.timedelta(hours=2))


@pytest.mark.parametrize(
    "time",
    [
        MS,
        np.int64(MS),
        str(MS),
        "2024-04-24T23:06:39.123Z",
        "2024-04-24 23:06:39.123",
        "2024-04-25T01:06:39.123+02:00",
        datetime.datetime(2024, 4, 24, 23, 6, 39, 123000),
        datetime.datetime(2024, 4, 24, 23, 6, 39, 123000, UTC),
        datetime.datetime(2024, 4, 25, 1, 6, 39, 123000, BERLIN),
        np.datetime64("2024-04-24T23:06:39.123"),
        np.datetime64("2024-04-24T23:06:39.123000", "ns"),
        pd.Timestamp("2024-04-24T23:06:39.123"),
        pd.Timestamp("2024-04-25T01:06:39.123", tz="Europe/Berlin"),
    ],
)
def test_equal_times(time: Any) -> None:
    assert to_milliseconds(time) == MS


@pytest.mark.parametrize(
    "time",
    [
        "2024-04-24T23:06:39.122001",
        datetime.datetime(2024, 4, 24, 23, 6, 39, 122001),
        np.datetime64("2024-04-24T23:06:39.122000001"),
        pd.Timestamp("2024-04-24T23:06:39.122000001"),
        pd.Timestamp("2024-04-24T23:06:39.122999001"),
    ],
)
def test_parts_of_a_millisecond_round_up(time: Any) -> None:
    assert to_milliseconds(time) == MS
    assert to_milliseconds(time, rounds_up=False) == MS - 1


def test_times_before_the_epoch() -> None:
    assert to_milliseconds("1969-12-31T23:59:59.9995") == 0
    assert to_milliseconds(np.datetime64("1969-12-31T23:59:59.999")) == -1
    assert to_milliseconds("1969-12-31") == -86_400_000
    assert to_milliseconds(np.datetime64("2024-04-25")) == 1_714_003_200_000


@pytest.mark.parametrize("time", [1.5, True, None, b"2024-04-24", np.timedelta64(1, "s"), []])
def test_other_types_are_refused(time: Any) -> None:
    with pytest.raises(TypeError, match="from_time must be milliseconds"):
        to_milliseconds(time, "from_time")


@pytest.mark.parametrize(
    "time", ["yesterday", "", pd.NaT, np.datetime64("NaT", "ms"), 2**63, -(2**63) - 1]
)
def test_what_is_not_a_time_is_refused(time: Any) -> None:
    with pytest.raises(ValueError, match="from_time"):
        to_milliseconds(time, "from_time")


def test_functions_that_take_a_time() -> None:
    log = DATA / "headers-0" / "00000000000000000000.log"
    batches = ks.scan_batches(log).batches
    latest = int(batches["max_timestamp"].max())
    when = pd.Timestamp(latest, unit="ms", tz="UTC")
    assert ks.lookup_timestamp(log, when) == ks.lookup_timestamp(log, latest) is not None
    selected = ks.batches.select_times(batches, when, when + pd.Timedelta("1ms"))
    assert selected.tolist() == (batches["max_timestamp"] == latest).tolist()
    before = np.datetime64(latest, "ms") - np.timedelta64(30, "D")
    for now in (before, str(before)):
        expected = ks.audit(log, now_ms=latest - 30 * 86_400_000).findings
        assert ks.audit(log, now_ms=now).findings == expected
        assert [one.symbol for one in expected].count("FUTURE_TIMESTAMP") >= 1


@pytest.mark.parametrize(
    "timestamp",
    [
        "2024-04-24T23:06:39.123",
        datetime.datetime(2024, 4, 24, 23, 6, 39, 123456),
        [datetime.datetime(2024, 4, 25, 1, 6, 39, 123456, BERLIN), MS],
        [pd.Timestamp("2024-04-24T23:06:39.123"), "2024-04-24T23:06:39.123"],
    ],
)
def test_timestamps_of_new_records(timestamp: Any) -> None:
    log = ks.build_batches(value=[b"a", b"b"], timestamp=timestamp)
    assert ks.read_records(log)["timestamp"].tolist() == [MS, MS]


def test_a_new_record_without_a_timestamp() -> None:
    log = ks.build_batches(value=[b"a", b"b"], timestamp=["2024-04-24T23:06:39.123", None])
    assert ks.read_records(log)["timestamp"].tolist() == [MS, -1]
    with pytest.raises(ValueError, match="timestamp: 'x' is neither"):
        ks.build_batches(value=[b"a"], timestamp="x")


_PARTITION = DATA / "transactions-0"


@pytest.mark.parametrize(
    "ask",
    [
        lambda time: ks.lookup_timestamp(_PARTITION, time),
        lambda time: ks.read_records(_PARTITION, from_time=time),
        lambda time: next(ks.iter_records(_PARTITION, to_time=time)),
        lambda time: ks.audit(_PARTITION, now_ms=time),
        lambda time: ks.read_transactions(_PARTITION, now_ms=time),
        lambda time: ks.check_batches(np.empty(0, ks.BATCH_DTYPE), now_ms=time),
        lambda time: ks.batches.select_times(np.empty(0, ks.BATCH_DTYPE), time),
        lambda time: ks.read_metadata(_PARTITION.parent, as_of=str(time)),
    ],
)
def test_a_number_of_seconds_is_refused(ask: Callable[[int], object]) -> None:
    with pytest.raises(
        ValueError, match=r"1714000000 is 1970-\S+Z in .*, and 2024-04-24T\S+Z in sec"
    ):
        ask(1_714_000_000)


def test_a_moment() -> None:
    for time in (0, -1, 1_714_000_000_000, 10_000, 2**62, "1714000000000"):
        assert moment_of(time) == int(time)
    # Says that it is one of 1970.
    assert moment_of(np.datetime64(1_714_000_000, "ms")) == 1_714_000_000


_UNITS = {"W": 7 * 86_400_000, "D": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
_PARTS = {"us": 10**3, "ns": 10**6, "ps": 10**9, "fs": 10**12, "as": 10**15}
_NUMBERS = [-(2**63) + 1, -(2**62), -1001, -1, 0, 1, 999, 2**40, 2**62, 2**63 - 2, 2**63 - 1]


@pytest.mark.parametrize("unit", [*_UNITS, *_PARTS, "25s", "7us"])
@pytest.mark.parametrize("number", _NUMBERS)
def test_numpy_times_are_exact_or_refused(unit: str, number: int) -> None:
    count, name = int(unit[:-1].rstrip("u") or 1) if unit[0].isdecimal() else 1, unit.lstrip("257")
    time = np.datetime64(number, (name, count))
    exact = number * count * Fraction(_UNITS.get(name, 1), _PARTS.get(name, 1))
    if -(2**63) < floor(exact) and ceil(exact) < 2**63:
        assert to_milliseconds(time) == ceil(exact)
        assert to_milliseconds(time, rounds_up=False) == floor(exact)
    else:
        with pytest.raises(ValueError, match="does not fit into 64 bits"):
            to_milliseconds(time)
    if abs(number) * count < 2**63:  # elsewhere, NumPy has no such array
        assert_as_array(time, floor(exact))


def assert_as_array(time: np.datetime64, exact: int) -> None:
    times = np.array([np.datetime64("NaT", np.datetime_data(time)), time])
    if abs(exact) >= 2**63:
        with pytest.raises(ValueError, match=r"time .* does not fit into 64 bits"):
            datetimes_to_milliseconds(times, -1)
    else:
        assert datetimes_to_milliseconds(times, -1).tolist() == [-1, exact]


@pytest.mark.parametrize("number", [*_NUMBERS, -(2**63) + 2])
@pytest.mark.parametrize(("unit", "factor"), [("7us", Fraction(7, 1000)), ("2ms", Fraction(2))])
def test_arrays_of_units_with_a_count(unit: str, factor: Fraction, number: int) -> None:
    times = np.array([number, 0]).view(f"datetime64[{unit}]")
    exact = floor(number * factor)
    if -(2**63) <= exact < 2**63:
        assert datetimes_to_milliseconds(times, -1).tolist() == [exact, 0]
        assert datetimes_to_milliseconds(times[0:1].reshape(()), -1).tolist() == exact
    else:
        with pytest.raises(ValueError, match="does not fit into 64 bits"):
            datetimes_to_milliseconds(times, -1)


@pytest.mark.parametrize("unit", ["Y", "M"])
def test_calendar_units_of_numpy(unit: str) -> None:
    for text in ("1969-11", "1970-01", "2024-02", "292278993-12", "-292275053-01"):
        time = np.datetime64(text, unit)
        expected = int(np.datetime64(time, "ms").astype(np.int64))
        assert to_milliseconds(time) == expected
        assert_as_array(time, expected)
    for number in (10**9 * 12, 2**40, 2**62, 2**63 - 1, -(2**63) + 1):
        with pytest.raises(ValueError, match="64 bits"):
            to_milliseconds(np.datetime64(number, unit))
