"""Conditions on the keys, values and headers of records, and samples of records."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kafkascan.batches.columns import BatchTable
from kafkascan.records.record_table import RecordTable


@dataclass(frozen=True)
class RecordMatch:
    """
    What records contain; by default anything.

    Parameters
    ----------
    key : bytes, optional
    headers : tuple of (bytes, bytes or None)
        Keys of headers that records have, each with its value or with any.
    pattern : re.Pattern of bytes, optional
        Searched in keys and values.
    """

    key: bytes | None = None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()
    pattern: re.Pattern[bytes] | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that decide; none if all records match."""
        return (
            *(() if self.key is None else ("key",)),
            *(("headers",) if self.headers else ()),
            *(() if self.pattern is None else ("key", "value")),
        )

    def narrow(self, mask: NDArray[np.bool_], table: RecordTable) -> None:
        """Remove the records that do not match from a mask."""
        if self.key is not None:
            mask &= table["key_size"] == len(self.key)
            candidates = np.flatnonzero(mask)
            mask[candidates] = [key == self.key for key in table[candidates].items("key")]
        for header in self.headers:
            mask &= table["headers_count"] > 0
            candidates = np.flatnonzero(mask)
            mask[candidates] = [_has(pairs, *header) for pairs in table[candidates].header_lists()]
        if self.pattern is not None:
            candidates = np.flatnonzero(mask)
            mask[candidates] = _have_match(self.pattern, table[candidates])


ANY_MATCH = RecordMatch()
"""All records match it."""


def _has(pairs: list[tuple[bytes, bytes | None]], key: bytes, value: bytes | None) -> bool:
    """Return whether headers have a key, with a value if one is given."""
    return any(name == key and value in (None, found) for name, found in pairs)


def _have_match(pattern: re.Pattern[bytes], table: RecordTable) -> NDArray[np.bool_]:
    """Return whether the key or the value of each record contains a match."""
    found = np.zeros(len(table), np.bool_)
    for name in ("key", "value"):
        rest = np.flatnonzero(~found)
        items = table[rest].items(name)
        found[rest] = [item is not None and pattern.search(item) is not None for item in items]
    return found


class RecordSample:
    """
    Records that are chosen by their numbers, in a pass over records or over their batches.

    Parameters
    ----------
    numbers : ndarray of int64
        Ascending.
    """

    def __init__(self, numbers: NDArray[np.int64]) -> None:
        self._numbers = numbers
        self._seen = 0
        self._chosen: set[tuple[int, int]] = set()

    def choose(self, mask: NDArray[np.bool_]) -> None:
        """Remove the records that are not chosen from a mask of the next ones."""
        candidates = np.flatnonzero(mask)
        chosen = candidates[self._take(len(candidates))]
        mask[:] = False
        mask[chosen] = True

    def choose_batches(self, mask: NDArray[np.bool_], batches: BatchTable) -> None:
        """Remove the batches without chosen records from a mask of the next ones."""
        candidates = np.flatnonzero(mask)
        read = batches[candidates]
        ends = np.cumsum(records_of(read))
        numbers = self._take(int(ends[-1]) if len(ends) else 0)
        rows = np.searchsorted(ends, numbers, "right")
        inner = numbers - ends[rows] + records_of(read[rows])
        self._chosen = set(zip(read["position"][rows].tolist(), inner.tolist(), strict=True))
        mask[:] = False
        mask[candidates[rows]] = True

    def choose_in_batches(self, mask: NDArray[np.bool_], table: RecordTable) -> None:
        """Remove the records that are not chosen from a mask of those of chosen batches."""
        batch = table.columns["batch"]
        inner = np.arange(len(batch)) - np.searchsorted(batch, batch, "left")
        pairs = zip(table["position"].tolist(), inner.tolist(), strict=True)
        mask &= np.fromiter((pair in self._chosen for pair in pairs), np.bool_, len(batch))

    def _take(self, count: int) -> NDArray[np.int64]:
        """Return which of the next records are chosen."""
        first, self._seen = self._seen, self._seen + count
        low, high = np.searchsorted(self._numbers, (first, self._seen)).tolist()
        return self._numbers[low:high] - first


def records_of(batches: BatchTable) -> NDArray[np.int64]:
    """Return the number of records of each batch; 0 if its header does not contain it."""
    counts: NDArray[np.int64] = np.maximum(batches["records_count"], 0).astype(np.int64)
    return counts
