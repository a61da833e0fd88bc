"""Bytes between the batches of a damaged log that no batch covers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from kafkascan.batches.columns import BatchTable, join_rows, last_offset, size_in_bytes
from kafkascan.batches.resyncing.ranges import Gap
from kafkascan.format.errors import (
    STATUS,
    SYMBOLS,
    CorruptBatchError,
    NotALogError,
    UnsupportedMagicError,
    frame_reason,
    record_error,
)
from kafkascan.format.layout import BATCH_HEADER, HEADER_SIZE_UP_TO_MAGIC
from kafkascan.io.sources import Source, read_bytes

DAMAGED_DTYPE = np.dtype(
    [
        ("position", "=i8"),
        ("stop", "=i8"),
        ("base_offset", "=i8"),
        ("batch_length", "=i4"),
        ("magic", "=i1"),
        ("status", "=u1"),
        ("is_framed", "=u1"),
    ]
)
"""One range of bytes that contain no batch of the log.

``position`` and ``stop`` of the range, three fields of the header at its start, whatever is there,
what is wrong at the start, and whether the range is one damaged batch whose length is correct: a
batch or the end of the log follows it.
"""

OUT_OF_ORDER = "OFFSETS_NOT_ASCENDING"
"""What is wrong with valid batches whose offsets contradict those of the log."""

UNCOVERED_FIELDS = ("base_offset", "batch_length", "partition_leader_epoch", "magic")
UNCOVERED = np.dtype([(name, BATCH_HEADER[name]) for name in UNCOVERED_FIELDS])
"""The first bytes of a batch as they are stored, which its checksum does not cover."""

RANGES_AT_ONCE = 1 << 14
"""Ranges that are Python objects at the same time."""

NOT_A_LOG = STATUS["OK"]
"""In place of the status of a file of another kind, which has a reason of its own."""


@dataclass(frozen=True)
class DamagedRanges:
    """
    Bytes that contain no batch of the log.

    Attributes
    ----------
    path : str
        The path of the source, for errors.
    rows : ndarray of DAMAGED_DTYPE
        Sorted by position.
    not_a_log : NotALogError or None
        What is wrong at the start of a file of another kind.
    """

    path: str
    rows: NDArray[np.void]
    not_a_log: NotALogError | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def have(self, symbol: str) -> NDArray[np.bool_]:
        """Return which ranges begin with this damage."""
        have: NDArray[np.bool_] = self.rows["status"] == STATUS[symbol]
        return have

    def joined(self, others: Sequence[NDArray[np.void]]) -> DamagedRanges:
        """Return these and other ranges, sorted by position."""
        return self.of(join_rows([self.rows, *others], DAMAGED_DTYPE))

    def of(self, rows: NDArray[np.void]) -> DamagedRanges:
        """Return other ranges of the same source, sorted by position."""
        return replace(self, rows=rows.take(np.argsort(rows["position"], kind="stable")))

    def parts(self, first: int, stop: int) -> Iterator[DamagedRanges]:
        """Yield these ranges from one row up to another, some at a time."""
        for start in range(first, stop, RANGES_AT_ONCE):
            rows = self.rows[start : min(start + RANGES_AT_ONCE, stop)]
            yield replace(self, rows=rows, not_a_log=None if start else self.not_a_log)

    def symbols_and_reasons(self) -> list[tuple[str, str]]:
        """Return what is wrong at the start of each range."""
        columns = (self.rows[name].tolist() for name in ("status", "batch_length", "magic"))
        found = list(map(_symbol_and_reason, *columns))
        if self.not_a_log is not None and len(found) and self.rows["status"][0] == NOT_A_LOG:
            found[0] = self.not_a_log.symbol, self.not_a_log.reason
        return found

    def errors(self) -> list[CorruptBatchError]:
        """Return the error at the start of each range."""
        return [self._error(row) for row in self.rows]

    def _error(self, row: np.void) -> CorruptBatchError:
        status = int(row["status"])
        if self.not_a_log is not None and status == NOT_A_LOG:
            return self.not_a_log
        if status > STATUS["BAD_MAGIC"]:
            return record_error(status, self.path, row)
        kind = UnsupportedMagicError if status == STATUS["BAD_MAGIC"] else CorruptBatchError
        symbol, reason = _symbol_and_reason(status, int(row["batch_length"]), int(row["magic"]))
        return kind(self.path, int(row["position"]), int(row["base_offset"]), reason, symbol)


@lru_cache(1024)
def _symbol_and_reason(status: int, length: int, magic: int) -> tuple[str, str]:
    return SYMBOLS[status], frame_reason(status, length, magic)


def damaged_range(
    source: Source, position: int, stop: int, error: CorruptBatchError | str
) -> NDArray[np.void]:
    """Return a row for bytes of a source; `error` is what is wrong with them, or its symbol."""
    stored = read_bytes(source, position, HEADER_SIZE_UP_TO_MAGIC)
    header = np.frombuffer(stored.ljust(HEADER_SIZE_UP_TO_MAGIC, b"\0"), UNCOVERED)
    symbol = error if isinstance(error, str) else error.symbol
    row = np.zeros(1, DAMAGED_DTYPE)
    row["position"], row["stop"] = position, stop
    row["status"] = STATUS.get(symbol, NOT_A_LOG)
    for name in ("base_offset", "batch_length", "magic"):
        row[name] = header[name]
    return row


def damaged_batches(
    batches: BatchTable, symbol: str, *, is_framed: bool = False
) -> NDArray[np.void]:
    """Return a row for each of these batches, which all have the same damage."""
    rows = np.empty(len(batches), DAMAGED_DTYPE)
    rows["stop"] = batches["position"] + size_in_bytes(batches)
    for name in ("position", "base_offset", "batch_length", "magic"):
        rows[name] = batches[name]
    rows["status"], rows["is_framed"] = STATUS[symbol], is_framed
    return rows


def gaps_between(batches: BatchTable, damaged: DamagedRanges) -> list[Gap]:
    """Return the gaps of a log from its batches and damaged ranges, both sorted by position."""
    starts, stops = damaged.rows["position"], damaged.rows["stop"]
    following = np.searchsorted(batches["position"], starts)
    has_first = (batches["magic"] == 2) | (batches["records_count"] >= 0)
    return list(
        map(
            Gap,
            starts.tolist(),
            (stops - starts).tolist(),
            known_values(np.append(0, last_offset(batches))[following], following > 0),
            known_values(
                np.append(batches["base_offset"], 0)[following],
                np.append(has_first, False)[following],
            ),
            damaged.errors(),
        )
    )


def known_values(values: NDArray[np.integer], are_known: NDArray[np.bool_]) -> list[int | None]:
    """Return values, and None for those that are not known."""
    pairs = zip(values.tolist(), are_known.tolist(), strict=True)
    return [one if is_known else None for one, is_known in pairs]


def are_joined(start: int, batches: BatchTable, damaged: DamagedRanges) -> NDArray[np.bool_]:
    """Return which batches follow the previous one without bytes whose extent is unknown."""
    framed_sizes = np.zeros(len(batches) + 1, np.int64)
    framed = damaged.rows[damaged.rows["is_framed"] != 0]
    following = np.searchsorted(batches["position"], framed["position"])
    np.add.at(framed_sizes, following, framed["stop"] - framed["position"])
    stops = batches["position"] + size_in_bytes(batches)
    joined: NDArray[np.bool_] = batches["position"] == (
        np.append(start, stops[:-1]) + framed_sizes[:-1]
    )
    joined[:1] &= framed_sizes[0] == 0
    return joined
