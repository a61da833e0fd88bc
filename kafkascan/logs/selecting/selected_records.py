"""The records of logs that a condition may select."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import zip_longest

import numpy as np
from numpy.typing import NDArray

from kafkascan.batches.columns import (
    COLUMN_NAMES,
    BatchTable,
    column,
    compression_type,
    last_offset,
    timestamp_type,
)
from kafkascan.batches.scan import iter_batches
from kafkascan.broker_state.indexes import parse_index
from kafkascan.format.errors import KafkaScanError
from kafkascan.format.layout import ScanEnd, TimestampType
from kafkascan.io.folders import SingleFileFolder
from kafkascan.logs.opened_logs import Log
from kafkascan.logs.read_committed import LogLike
from kafkascan.logs.reading import Isolation, iter_log, visible_batches
from kafkascan.logs.segment import SegmentFile
from kafkascan.logs.selecting.conditions import Condition, Span, Spans
from kafkascan.records.read_options import ReadOptions
from kafkascan.records.record_table import RecordTable

# After its last entry, an index says nothing of about 4 KiB of batches (index.interval.bytes).
_ROWS = 64


def ends_before(segment: SegmentFile, offset: int) -> bool:
    """
    Return whether the offsets of a segment end before an offset, if that can be read cheaply.

    The last entry of the ``.index`` is where the batches are read that it does not contain. Without
    such an entry, or if batches do not follow it to the end of the file, the answer is False.

    Parameters
    ----------
    segment : SegmentFile
    offset : int
    """
    start = _last_indexed_position(segment)
    if start is None:
        return False
    try:
        with segment.borrow() as source:
            tail = iter_batches(source, rows=_ROWS, start=start, on_corrupt="stop")
            is_below = [bool((last_offset(table) < offset).all()) for table in tail]
            return bool(is_below) and all(is_below) and tail.end is ScanEnd.CLEAN
    except (OSError, KafkaScanError):
        return False  # a reader of the whole segment says what is wrong with it


def _last_indexed_position(segment: SegmentFile) -> int | None:
    """Return the position of the last entry of a segment's index, if it is within the file."""
    try:
        found = segment.read_sibling("index")
        entries = None if found is None else parse_index(found[1], found[0])
    except (OSError, KafkaScanError):
        return None
    if entries is None or not len(entries):
        return None
    position = int(entries["position"][-1])
    return position if 0 < position < segment.current_size() else None


_LOWEST, _HIGHEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
_MAGIC_V2 = 2


@dataclass(frozen=True)
class RecordSelection:
    """
    The records of a log that a condition may select.

    Parameters
    ----------
    log : Log
    condition : Condition
        On ``topic``, ``partition``, ``offset``, ``timestamp`` and columns of the batch table.
        Others decide nothing.
    """

    log: Log
    condition: Condition

    def is_possible(self) -> bool:
        """Return False if the log's topic and partition rule the condition out."""
        return bool(self.condition.may_hold(self._place()))

    def tables(self, options: ReadOptions, isolation: Isolation) -> Iterator[RecordTable]:
        """
        Yield tables with all records that fulfil the condition, and others of their batches.

        The headers of segments whose offsets may fulfil it are read, and of these segments the
        batches of which the header does not rule the condition out.

        Parameters
        ----------
        options : ReadOptions
            Of a record reader, without `visible`.
        isolation : str
            See `read_records`.
        """
        log = replace(self.log, segments=self._segments())
        visible = None
        if isolation == "read_committed":
            visible, _ = visible_batches(self._transaction_log(), isolation, None)

        def wanted(batches: BatchTable) -> NDArray[np.bool_]:
            mask = self._mask(batches)
            return mask if visible is None else mask & visible(batches)

        selects_few = not self.condition.columns.isdisjoint(("offset", "timestamp"))
        yield from iter_log(log, replace(options, visible=wanted, selects_few=selects_few))

    def _place(self) -> dict[str, Span | None]:
        one = self.log.partition
        return {"topic": _exactly(one.topic), "partition": _exactly(one.partition)}

    def _segments(self) -> list[SegmentFile]:
        """
        Return the segments without those whose offsets the condition rules out.

        A segment ends where the next one begins, but segments may overlap: it is left out if its
        index leads to batches that end there.
        """
        segments = self.log.segments
        ends = [one.base_offset or 0 for one in segments[1:]]
        return [one for one, end in zip_longest(segments, ends) if self._is_read(one, end)]

    def _is_read(self, segment: SegmentFile, end: int | None) -> bool:
        base_offset = segment.base_offset or 0
        if not self._may_hold(base_offset, _HIGHEST):
            return False
        if end is None or self._may_hold(base_offset, end - 1):
            return True
        return not ends_before(segment, end)

    def _may_hold(self, first: int, last: int) -> bool:
        """Return False if the condition rules a range of offsets out."""
        return bool(self.condition.may_hold({**self._place(), "offset": Span(first, last)}))

    def _transaction_log(self) -> LogLike:
        """Return what contains the log's transactions."""
        is_alone = isinstance(self.log.partition.folder, SingleFileFolder)
        return self.log.segments[0].as_source() if is_alone else self.log.partition

    def _mask(self, batches: BatchTable) -> NDArray[np.bool_]:
        spans = {**self._place(), **_batch_spans(batches, self.condition.columns)}
        held = np.asarray(self.condition.may_hold(spans))
        return np.broadcast_to(held, len(batches))


def _exactly(value: int | str | None) -> Span | None:
    return None if value is None else Span(value, value)


def _batch_spans(batches: BatchTable, names: frozenset[str]) -> Spans:
    spans: dict[str, Span | None] = {}
    for name in names & set(COLUMN_NAMES):
        values = column(batches, name)
        spans[name] = Span(values, values)
    if "offset" in names:
        spans["offset"] = _offset_span(batches)
    if "timestamp" in names:
        spans["timestamp"] = _timestamp_span(batches)
    return spans


def _offset_span(batches: BatchTable) -> Span:
    """Return the offsets of records. The header of a compressed message has the last one only."""
    is_wrapper = (batches["magic"] < _MAGIC_V2) & (compression_type(batches) != 0)
    return Span(np.where(is_wrapper, _LOWEST, batches["base_offset"]), last_offset(batches))


def _timestamp_span(batches: BatchTable) -> Span:
    """
    Return the timestamps of records.

    A record of magic 2 may be older than the batch's base timestamp, so only the largest is known,
    unless the broker has set it for the whole batch (KIP-32). Old messages decide nothing.
    """
    largest, is_v2 = batches["max_timestamp"], batches["magic"] >= _MAGIC_V2
    is_appended = is_v2 & (timestamp_type(batches) == TimestampType.LOG_APPEND_TIME)
    return Span(np.where(is_appended, largest, _LOWEST), np.where(is_v2, largest, _HIGHEST))
