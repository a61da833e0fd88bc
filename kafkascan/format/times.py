"""Points in time that callers give: integers, datetimes of Python, NumPy and pandas, texts."""

from __future__ import annotations

import datetime
import time as clock
from fractions import Fraction
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

TimeLike: TypeAlias = int | str | datetime.datetime | np.datetime64 | np.integer
"""Milliseconds since the epoch, a text in ISO 8601 (UTC without a zone), a `datetime`, a
`numpy.datetime64` or a pandas `Timestamp`, which is a `datetime`."""

THIS_CENTURY = range(946_684_800_000, 4_102_444_800_000)
"""Milliseconds; Kafka is not older."""
_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))
_MILLISECONDS = {
    "W": Fraction(604_800_000), "D": Fraction(86_400_000), "h": Fraction(3_600_000),
    "m": Fraction(60_000), "s": Fraction(1000), "ms": Fraction(1), "us": Fraction(1, 10**3),
    "ns": Fraction(1, 10**6), "ps": Fraction(1, 10**9), "fs": Fraction(1, 10**12),
    "as": Fraction(1, 10**15),
}  # fmt: skip
"""In a unit of NumPy, but for months and years."""
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND = datetime.timedelta(microseconds=1)


def to_milliseconds(time: TimeLike, name: str = "time", *, rounds_up: bool = True) -> int:
    """
    Return a point in time as milliseconds since the epoch, as Kafka stores it.

    Parameters
    ----------
    time : int, str, datetime, numpy.datetime64 or pandas.Timestamp
        An integer is a number of milliseconds since the epoch. A str is such a number, or a time
        in ISO 8601. A time without a zone is in UTC.
    name : str
        The name of the argument, for messages.
    rounds_up : bool, default True
        Round parts of a millisecond up, so that "at or after" and "before" stay exact;
        otherwise down, as for the timestamp of a record.

    Raises
    ------
    TypeError
        For other types, such as float, whose unit is not known.
    ValueError
        If a str is not a time, the time is NaT, or it does not fit into 64 bits.
    """
    whole, has_rest = _split(time, name)
    milliseconds = whole + (rounds_up and has_rest)
    if not -(2**63) <= milliseconds < 2**63:
        raise ValueError(f"{name} of {milliseconds} ms does not fit into 64 bits")
    return milliseconds


def moment_of(time: TimeLike, name: str = "time", *, rounds_up: bool = True) -> int:
    """
    Return a point in time that a caller asks for; see `to_milliseconds`.

    Raises
    ------
    ValueError
        Also if it is a number that would be a time of this century in seconds: an answer about
        1970 is none.
    """
    milliseconds = to_milliseconds(time, name, rounds_up=rounds_up)
    is_number = isinstance(time, (int, np.integer)) or (isinstance(time, str) and _is_number(time))
    if is_number and milliseconds * 1000 in THIS_CENTURY:
        raise ValueError(
            f"{name} {time} is {_iso(milliseconds)} in milliseconds, and"
            f" {_iso(milliseconds * 1000)} in seconds: give milliseconds, a datetime or a text in"
            " ISO 8601"
        )
    return milliseconds


def milliseconds_or_now(time: TimeLike | None = None, name: str = "time") -> int:
    """Return a point in time as milliseconds since the epoch, as `moment_of`; now if it is None."""
    return clock.time_ns() // 1_000_000 if time is None else moment_of(time, name)


def datetimes_to_milliseconds(
    times: NDArray[np.datetime64], missing: int, name: str = "time"
) -> NDArray[np.int64]:
    """
    Return points in time as milliseconds since the epoch, rounded down.

    NumPy's own conversion overflows in silence.

    Parameters
    ----------
    times : array of datetime64
        Of any unit.
    missing : int
        The result for NaT.
    name : str
        The name of the argument, for messages.

    Raises
    ------
    ValueError
        If a time does not fit into 64 bits.
    """
    numbers, size = _split_datetime64(times, name)
    is_known = ~np.isnat(times)
    numbers = np.where(is_known, numbers, 0)
    if size.numerator > 1:
        limit = (2**63 - 1) // size.numerator
        is_large = (numbers < -limit) | (numbers > limit)
        large = [int(one) * size.numerator // size.denominator for one in numbers[is_large]]
        for milliseconds in large:
            if not -(2**63) <= milliseconds < 2**63:
                raise ValueError(f"{name} of {milliseconds} ms does not fit into 64 bits")
        numbers *= size.numerator
        numbers //= size.denominator
        numbers[is_large] = large
    elif size.denominator > 1:
        numbers //= size.denominator
    return np.where(is_known, numbers, missing)


def age_text(milliseconds: int) -> str:
    """Return a duration in its largest unit: 4 d, 12 min, 300 ms."""
    for size, unit in _UNITS:
        if abs(milliseconds) >= size:
            return f"{milliseconds // size:,} {unit}"
    return f"{milliseconds} ms"


def _is_number(text: str) -> bool:
    return text.strip().lstrip("+-").isdecimal()


def _iso(milliseconds: int) -> str:
    return str(np.datetime_as_string(np.datetime64(milliseconds, "ms"), timezone="UTC"))


def _split(time: TimeLike, name: str) -> tuple[int, bool]:
    """Return the whole milliseconds, and whether a part of one remains."""
    if isinstance(time, (int, np.integer)) and not isinstance(time, (bool, np.timedelta64)):
        return int(time), False
    if isinstance(time, str):
        return _split_text(time, name)
    if isinstance(time, (datetime.datetime, np.datetime64)) and time != time:
        raise ValueError(f"{name} is not a time: NaT")
    if isinstance(time, datetime.datetime):
        return _split_datetime(time)
    if isinstance(time, np.datetime64):
        number, size = _split_datetime64(np.array(time), name)
        whole, rest = divmod(int(number) * size.numerator, size.denominator)
        return whole, rest > 0
    raise TypeError(
        f"{name} must be milliseconds, a datetime, a numpy.datetime64 or a text in ISO 8601, "
        f"not {type(time).__name__}"
    )


def _split_text(text: str, name: str) -> tuple[int, bool]:
    try:
        return int(text), False
    except ValueError:
        pass
    try:
        return _split_datetime(datetime.datetime.fromisoformat(text))
    except ValueError:
        raise ValueError(f"{name}: {text!r} is neither milliseconds nor an ISO 8601 time") from None


def _split_datetime(time: datetime.datetime) -> tuple[int, bool]:
    aware = time if time.tzinfo else time.replace(tzinfo=datetime.UTC)
    whole, rest = divmod((aware - _EPOCH) // _MICROSECOND, 1000)
    nanoseconds: int = getattr(time, "nanosecond", 0)  # of a pandas.Timestamp
    return whole, rest > 0 or nanoseconds > 0


def _split_datetime64(
    times: NDArray[np.datetime64], name: str
) -> tuple[NDArray[np.int64], Fraction]:
    """Return times as numbers, and the milliseconds of their unit."""
    unit, count = np.datetime_data(times.dtype)
    if unit not in _MILLISECONDS:  # months and years
        days = times.astype("datetime64[D]")
        if not np.array_equal(days.astype(times.dtype), times, equal_nan=True):
            raise ValueError(f"{name} has years that do not fit into 64 bits of days")
        times, unit, count = days, "D", 1
    return times.astype(np.int64), count * _MILLISECONDS[unit]
