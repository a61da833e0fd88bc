"""Filters for `scrub_log`: which records to keep, by key or by offset."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from kafkascan.records.record_table import RecordTable

RecordFilter: TypeAlias = Callable[[RecordTable], NDArray[np.bool_]]
"""A function of a `RecordTable` that returns a mask of the records to keep."""


@dataclass(frozen=True)
class KeyFilter:
    """
    A filter that drops the records with certain keys; returned by `without_keys`.

    Attributes
    ----------
    keys : frozenset of bytes
        The keys to drop.
    found : set of bytes
        The keys that the records so far contained.
    """

    keys: frozenset[bytes]
    found: set[bytes] = field(default_factory=set, compare=False, repr=False)

    def __call__(self, records: RecordTable) -> NDArray[np.bool_]:
        """Return a mask of the records to keep."""
        mask = np.ones(len(records), np.bool_)
        for size, of_size in self._by_size().items():
            rows = np.flatnonzero(records.columns["key_size"] == size)
            if size and len(rows):
                # NumPy ignores trailing zeros of strings, which cannot matter for equal sizes.
                keys = records[rows].gathered("key").data.view(f"S{size}")
                rows = rows[np.isin(keys, np.array(of_size, f"S{size}"))]
            mask[rows] = False
        self.found.update(key for key in records[~mask].items("key") if key is not None)
        return mask

    def _by_size(self) -> dict[int, list[bytes]]:
        by_size: dict[int, list[bytes]] = {}
        for key in self.keys:
            by_size.setdefault(len(key), []).append(key)
        return by_size

    @property
    def missing(self) -> list[bytes]:
        """The keys that no record has had so far, sorted."""
        return sorted(self.keys - self.found)


def without_keys(keys: Iterable[bytes | str]) -> KeyFilter:
    """
    Return a filter that drops the records with certain keys.

    Parameters
    ----------
    keys : iterable of bytes or str
        A str is encoded as UTF-8, as `build_batches` does.

    Returns
    -------
    KeyFilter
        For the parameter `keep` of `filter_records` and `scrub_log`.

    Raises
    ------
    TypeError
        If `keys` is one key, or a key is neither bytes-like nor a str.
    """
    if isinstance(keys, (str, bytes, bytearray, memoryview)):
        raise TypeError(f"keys must be several keys, such as [{keys!r}], not one")
    return KeyFilter(frozenset(map(_as_key, keys)))


def _as_key(key: object) -> bytes:
    if isinstance(key, str):
        return key.encode()
    if isinstance(key, (bytes, bytearray, memoryview)):
        return bytes(key)
    raise TypeError(f"a key must be bytes or str, not {type(key).__name__}: {key!r}")


def without_offsets(first: int | None = None, last: int | None = None) -> RecordFilter:
    """
    Return a filter that drops the records of a range of offsets.

    Parameters
    ----------
    first, last : int, optional
        The first and the last offset to drop; without one, the range is open at that end.

    Raises
    ------
    ValueError
        If the range is empty, or neither end is given.
    TypeError
        If an offset is not an integer.
    """
    if first is None and last is None:
        raise ValueError("give the first or the last offset to drop, or both")
    first, last = (None if one is None else operator.index(one) for one in (first, last))
    if first is not None and last is not None and first > last:
        raise ValueError(f"the range of offsets from {first} to {last} is empty")

    def keep(records: RecordTable) -> NDArray[np.bool_]:
        offsets = records.columns["offset"]
        is_dropped = np.ones(len(records), np.bool_)
        if first is not None:
            is_dropped &= offsets >= first
        if last is not None:
            is_dropped &= offsets <= last
        return ~is_dropped

    return keep
