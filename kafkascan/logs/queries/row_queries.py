"""Queries on the batches and the records of segments: conditions, and the rows that meet them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from kafkascan.batches.columns import BatchTable, is_control, last_offset
from kafkascan.io.sources import Source
from kafkascan.logs.log_problems import LogProblems
from kafkascan.logs.opened_logs import LogView
from kafkascan.logs.queries.conditions import Condition, RowRange, mask_batches, mask_records
from kafkascan.logs.queries.index_seek import RowAnchor
from kafkascan.logs.queries.segment_inputs import SEGMENT_FIELDS, SegmentInput
from kafkascan.logs.reading import iter_records
from kafkascan.logs.record_scan import Isolation, visible_in_log, visible_in_source
from kafkascan.records.read_options import Control, Visible
from kafkascan.records.record_table import RecordTable
from kafkascan.tables.table import Problems

Rows = TypeVar("Rows")

# Records of a table: larger ones are printed faster, but if only the first records are wanted, more
# are decoded needlessly.
_RECORDS = 1 << 15


class Findings(Protocol):
    """Receives what is wrong with segments."""

    def add(self, message: str, /) -> None:
        """Add the message of a batch that cannot be read."""

    def add_problems(self, problems: Problems, /) -> None:
        """Add problems."""


class RowQuery(Protocol[Rows]):
    """Selects rows of segments: a `BatchQuery` or a `RecordQuery`."""

    @property
    def selects_all(self) -> bool:
        """Whether all rows meet the conditions."""

    @property
    def reads_batches(self) -> bool:
        """Whether all batches are read, not only their headers."""

    def read_transactions(self, one: SegmentInput, findings: Findings, /) -> None:
        """
        Read what decides which batches of a log are visible, before a segment of it is opened.

        A segment that is opened before has none of the records that the transactions make visible
        and that were appended in between.
        """

    def rows(
        self,
        one: SegmentInput,
        start_offset: int,
        source: Source,
        batches: BatchTable,
        findings: Findings,
        /,
    ) -> Iterator[Rows]:
        """
        Yield tables of the rows that meet the conditions.

        Parameters
        ----------
        one : SegmentInput
        start_offset : int
            The first offset that is read of the segment.
        source : Source
            The bytes of the segment.
        batches : array of BATCH_DTYPE
            The next batches of the segment.
        findings : Findings
            Receives what is wrong with batches and transactions.
        """

    def reaches(self, rows: Rows, anchor: RowAnchor, /) -> NDArray[np.bool_]:
        """Return which rows of a table reach an anchor."""


@dataclass(frozen=True)
class BatchQuery:
    """Selects batches by offsets and by `max_timestamp`."""

    limits: RowRange = field(default_factory=RowRange)
    reads_batches = False

    @property
    def selects_all(self) -> bool:
        """See `RowQuery`."""
        return not self.limits.is_limited

    def read_transactions(self, one: SegmentInput, findings: Findings) -> None:
        """See `RowQuery`."""

    def rows(
        self,
        _one: SegmentInput,
        start_offset: int,
        _source: Source,
        batches: BatchTable,
        _findings: Findings,
    ) -> Iterator[BatchTable]:
        """See `RowQuery`."""
        wanted = self.limits.condition("base_offset", "last_offset", "max_timestamp", start_offset)
        mask = mask_batches(wanted, batches)
        yield batches if mask.all() else batches[mask]

    @staticmethod
    def reaches(batches: BatchTable, anchor: RowAnchor) -> NDArray[np.bool_]:
        """Return which batches reach an anchor."""
        return anchor.is_reached(last_offset(batches), batches["max_timestamp"])


class RecordSample:
    """
    Records that are chosen by their numbers: among those of the batches that a query reads, or
    among those that meet its conditions on keys, values and headers.

    Parameters
    ----------
    numbers : ndarray of int64
        Ascending.
    """

    def __init__(self, numbers: NDArray[np.int64]) -> None:
        self._numbers = numbers
        self._seen = 0

    def take(self, count: int) -> NDArray[np.int64]:
        """Return which of the next records are chosen."""
        first, self._seen = self._seen, self._seen + count
        low, high = np.searchsorted(self._numbers, (first, self._seen)).tolist()
        return self._numbers[low:high] - first

    def choose(self, batches: BatchTable) -> tuple[NDArray[np.intp], set[tuple[int, int]]]:
        """
        Return what is chosen of the next batches.

        Returns
        -------
        rows : ndarray of intp
            The batches that have chosen records.
        chosen : set of (int, int)
            Position of the batch, and number of the record in it.
        """
        ends = np.cumsum(records_of(batches))
        numbers = self.take(int(ends[-1]) if len(ends) else 0)
        rows = np.searchsorted(ends, numbers, "right")
        inner = numbers - ends[rows] + records_of(batches[rows])
        positions = batches["position"][rows]
        return np.unique(rows), set(zip(positions.tolist(), inner.tolist(), strict=True))


def records_of(batches: BatchTable) -> NDArray[np.int64]:
    """Return the number of records of each batch; 0 if its header does not contain it."""
    counts: NDArray[np.int64] = np.maximum(batches["records_count"], 0).astype(np.int64)
    return counts


@dataclass(frozen=True, kw_only=True)
class RecordQuery:
    """
    Selects records.

    Parameters
    ----------
    columns : tuple of str
        The columns to return; those of `SEGMENT_FIELDS` are not read.
    limits : RowRange
    key : bytes, optional
    headers : tuple of (bytes, bytes or None)
        Keys of headers that records have, each with its value or with any.
    pattern : re.Pattern of bytes, optional
        Searched in keys and values.
    control, isolation, verify, max_decompressed_size
        See `read_records`.
    sample : RecordSample, optional
        Of the records that meet the conditions, those to return. Without conditions on keys,
        values and headers, other batches are not read.
    decodes : bool, default False
        Whether keys and values are needed to decode the records of Kafka's own topics.
    also_read : tuple of str
        Other columns to read; as `columns`.
    visible : dict
        The masks of visible batches of logs whose transactions were read, by path. Copies of a
        query share it.
    """

    columns: tuple[str, ...]
    limits: RowRange
    key: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...]
    pattern: re.Pattern[bytes] | None
    control: Control
    isolation: Isolation
    verify: bool
    max_decompressed_size: int
    sample: RecordSample | None = None
    decodes: bool = False
    also_read: tuple[str, ...] = ()
    visible: dict[Path, Visible | None] = field(default_factory=dict, repr=False)

    @property
    def selects_all(self) -> bool:
        """Whether all records of clients meet the conditions."""
        return (
            not self.limits.is_limited
            and not self.has_row_filter
            and self.sample is None
            and self.isolation == "read_uncommitted"
            and self.control != "only"
        )

    @property
    def has_row_filter(self) -> bool:
        """Whether there are conditions on keys, values or headers."""
        return self.key is not None or bool(self.headers) or self.pattern is not None

    @property
    def reads_batches(self) -> bool:
        """See `RowQuery`."""
        return not self.limits.is_limited

    @property
    def read_columns(self) -> list[str]:
        """The columns to read: those that are returned, and those of the conditions."""
        labels = {one.name for one in SEGMENT_FIELDS}
        needed = ["offset", "timestamp", *(["key"] if self.key is not None else [])]
        if self.headers:
            needed.append("headers")
        # A control record is decoded from both.
        if self.control != "skip" or self.pattern is not None or self.decodes:
            needed += ["key", "value"]
        if self.decodes:
            needed.append("is_control")
        names = dict.fromkeys((*self.columns, *needed, *self.also_read))
        return [name for name in names if name not in labels]

    def rows(
        self,
        one: SegmentInput,
        start_offset: int,
        source: Source,
        batches: BatchTable,
        findings: Findings,
    ) -> Iterator[RecordTable]:
        """See `RowQuery`."""
        wanted = self.limits.condition("offset", "offset", "timestamp", start_offset)
        read = self.batches_to_read(one, start_offset, source, batches, findings)
        chosen: set[tuple[int, int]] | None = None
        if self.sample is not None and not self.has_row_filter:
            rows, chosen = self.sample.choose(read)
            read = read.take(rows)
        for table in iter_records(
            source,
            read,
            columns=self.read_columns,
            control=self.control,
            verify=self.verify,
            max_decompressed_size=self.max_decompressed_size,
            batch_size=_RECORDS,
            on_damage=lambda error: findings.add(str(error)),
        ):
            selected = self._select(table if chosen is None else _chosen(table, chosen), wanted)
            if self.sample is not None and self.has_row_filter:
                selected = selected[self.sample.take(len(selected))]
            if len(selected):
                yield selected

    def batches_to_read(
        self,
        one: SegmentInput,
        start_offset: int,
        source: Source,
        batches: BatchTable,
        findings: Findings,
    ) -> BatchTable:
        """Return the batches whose headers meet the conditions; see `rows`."""
        wanted = self.limits.condition("offset", "offset", "timestamp", start_offset)
        mask = mask_batches(wanted, batches)
        path, log = (one.partition.path, one.log) if one.is_served else (one.path, source)
        visible = self._visible_in(path, log, findings)
        if visible is not None:
            mask = mask & visible(batches)
        if self.sample is not None and self.control != "include":
            mask = mask & (is_control(batches) == (self.control == "only"))
        return batches if mask.all() else batches.take(np.flatnonzero(mask))

    @staticmethod
    def reaches(records: RecordTable, anchor: RowAnchor) -> NDArray[np.bool_]:
        """Return which records reach an anchor."""
        return anchor.is_reached(records["offset"], records["timestamp"])

    def read_transactions(self, one: SegmentInput, findings: Findings) -> None:
        """See `RowQuery`."""
        if one.is_served:
            self._visible_in(one.partition.path, one.log, findings)

    def _visible_in(self, path: Path, log: LogView | Source, findings: Findings) -> Visible | None:
        """Return the mask of visible batches; the transactions of a log are read once."""
        if path not in self.visible:
            problems = LogProblems()
            options: Any = {"on_corrupt": "stop", "problems": problems}
            if isinstance(log, LogView):
                visible = visible_in_log(log, self.isolation, None, **options)
            else:
                visible, _ = visible_in_source(log, self.isolation, None, **options)
            self.visible[path] = visible
            findings.add_problems(problems.found)
        return self.visible[path]

    def _select(self, table: RecordTable, wanted: Condition) -> RecordTable:
        mask = mask_records(wanted, table)
        if self.key is not None:
            mask &= table["key_size"] == len(self.key)
            candidates = np.flatnonzero(mask)
            mask[candidates] = [key == self.key for key in table[candidates].items("key")]
        for header in self.headers:
            mask &= table["headers_count"] > 0
            candidates = np.flatnonzero(mask)
            mask[candidates] = [_has(pairs, *header) for pairs in table[candidates]["headers"]]
        if self.pattern is not None:
            candidates = np.flatnonzero(mask)
            mask[candidates] = _have_match(self.pattern, table[candidates])
        return table if mask.all() else table[mask]


def _chosen(table: RecordTable, chosen: set[tuple[int, int]]) -> RecordTable:
    """Return the chosen records of a table, which contains whole batches."""
    batch = table.columns["batch"]
    inner = np.arange(len(batch)) - np.searchsorted(batch, batch, "left")
    pairs = zip(table["position"].tolist(), inner.tolist(), strict=True)
    return table[np.fromiter((pair in chosen for pair in pairs), np.bool_, len(batch))]


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
