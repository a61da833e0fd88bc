"""Totals of batches by codec, format, producer and time, from headers only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kafkascan.batches.columns import BatchTable, compression_type, size_in_bytes
from kafkascan.format.layout import COMPRESSION_MASK, CompressionType

_DAY_MS, _HOUR_MS = 86_400_000, 3_600_000
_NO_TIME = -1


def _periods(size_ms: int) -> Callable[[BatchTable], NDArray[Any]]:
    def number(batches: BatchTable) -> NDArray[Any]:
        times = batches["max_timestamp"]
        return np.where(times < 0, _NO_TIME, times // size_ms)

    return number


_NUMBERS: dict[str, Callable[[BatchTable], NDArray[Any]]] = {
    "codec": compression_type,
    "magic": lambda batches: batches["magic"],
    "producer": lambda batches: batches["producer_id"],
    "day": _periods(_DAY_MS),
    "hour": _periods(_HOUR_MS),
}

TOTALS = ("batches", "records", "uncounted_batches", "size")
"""The totals of `BatchRollup.rows`."""

_CODECS = COMPRESSION_MASK + 1


@dataclass
class BatchRollup:
    """
    Totals of batches by some of their properties. Tables are added in any order.

    Parameters
    ----------
    by : sequence of str
        Some of `ROLLUP_KEYS`; without any, there is one total.
    """

    by: Sequence[str]
    _totals: dict[tuple[int | None, ...], NDArray[np.int64]] = field(default_factory=dict)

    def add(self, batches: BatchTable) -> None:
        """Add batches."""
        if not len(batches):
            return
        numbers = [_NUMBERS[name](batches).astype(np.int64) for name in self.by]
        first, groups = _grouped(numbers, len(batches))
        counts = batches["records_count"].astype(np.int64)
        values = (
            np.ones(len(batches), np.int64),
            np.maximum(counts, 0),
            (counts < 0).astype(np.int64),
            size_in_bytes(batches),
        )
        totals = np.zeros((len(first), len(values) + _CODECS), np.int64)
        for column, value in enumerate(values):
            np.add.at(totals[:, column], groups, value)
        codecs = len(values) + compression_type(batches).astype(np.int64)
        np.add.at(totals, (groups, codecs), 1)
        for row, total in zip(first.tolist(), totals, strict=True):
            key = tuple(int(number[row]) for number in numbers)
            self._totals[key] = self._totals.get(key, 0) + total

    def add_bytes(self, size: int) -> None:
        """Add bytes that are in no batch: the values of `by` are None."""
        if size:
            totals = np.zeros(len(TOTALS) + _CODECS, np.int64)
            totals[TOTALS.index("size")] = size
            key = (None,) * len(self.by)
            self._totals[key] = self._totals.get(key, 0) + totals

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield rows with the values of `by`, `TOTALS`, and ``codecs``: batches by codec."""
        for key, total in self._totals.items():
            named = {
                name: _value_of(name, number) for name, number in zip(self.by, key, strict=True)
            }
            totals = dict(zip(TOTALS, total.tolist(), strict=False))
            yield named | totals | {"codecs": _codec_counts(total[len(TOTALS) :])}


def merge_rows(rows: Sequence[Mapping[str, Any]], by: Sequence[str]) -> list[dict[str, Any]]:
    """
    Return rows of several rollups with one row per value of `by`, and its ``share`` of all bytes.

    Parameters
    ----------
    rows : sequence of mapping
        With the columns `by`, `TOTALS` and ``codecs``.
    by : sequence of str

    Returns
    -------
    list of dict
        The largest first; in the order of time if `by` begins with a day or an hour.
    """
    merged: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        key = tuple(row[name] for name in by)
        zeros: dict[str, Any] = dict.fromkeys(TOTALS, 0) | {"codecs": Counter()}
        known = merged.setdefault(key, dict(zip(by, key, strict=True)) | zeros)
        for name in (*TOTALS, "codecs"):
            known[name] += row[name]
    size = sum(row["size"] for row in merged.values())
    for row in merged.values():
        row["share"] = round(row["size"] / size, 4) if size else 0.0
    found = sorted(merged.values(), key=lambda row: -int(row["size"]))
    if by and by[0] in ("day", "hour"):
        found.sort(key=lambda row: str(row[by[0]] or ""))
    return found


def _codec_counts(counts: NDArray[np.int64]) -> Counter[str]:
    found = np.flatnonzero(counts).tolist()
    return Counter({CompressionType.name_of(code): int(counts[code]) for code in found})


def _grouped(
    numbers: Sequence[NDArray[np.int64]], count: int
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the first row of each combination of numbers, and the combination of each row."""
    groups = np.zeros(count, np.int64)
    for number in numbers:
        values, inverse = np.unique(number, return_inverse=True)
        groups = np.unique(groups * len(values) + inverse, return_inverse=True)[1]
    _, first, inverse = np.unique(groups, return_index=True, return_inverse=True)
    return first, inverse


def _value_of(name: str, number: int | None) -> Any:
    if number is None:
        return None
    if name == "codec":
        return CompressionType.name_of(number)
    if name not in ("day", "hour"):
        return number
    if number == _NO_TIME:
        return None
    unit, size_ms = ("D", _DAY_MS) if name == "day" else ("h", _HOUR_MS)
    try:
        return str(np.datetime64(number * size_ms, "ms").astype(f"datetime64[{unit}]"))
    except (OverflowError, ValueError):  # a damaged timestamp
        return None
