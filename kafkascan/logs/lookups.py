"""Find records by offset or timestamp, as a broker does.

A lookup walks headers from the start of a segment unless ``trust_index=True``. An index entry that
leads to a plausible batch with the right offset proves nothing about the batches before it.
"""

from __future__ import annotations

import bisect
import itertools
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from kafkascan.batches.columns import (
    BatchTable,
    column,
    first_reaching,
    last_offset,
    require_batch_table,
)
from kafkascan.batches.scan import iter_batches
from kafkascan.broker_state.indexes import floor_entry
from kafkascan.format.arguments import require_integers
from kafkascan.format.errors import CorruptIndexError, FileGoneError
from kafkascan.format.layout import ScanEnd
from kafkascan.format.times import TimeLike, moment_of
from kafkascan.io.folders import DiskFolder
from kafkascan.io.sources import Source, SourceLike, borrowed_source
from kafkascan.io.stores.urls import ObjectUrl, as_object_url
from kafkascan.logs.log_dir import PartitionDir, attempts_to_open, read_again_if_changed
from kafkascan.logs.log_finding import find_partition
from kafkascan.logs.log_problems import cut_segment_error
from kafkascan.logs.opened_logs import LogLike, LogView, open_logs
from kafkascan.logs.queries.index_seek import read_entries
from kafkascan.logs.reading import iter_records
from kafkascan.logs.segment import SegmentFile, segment_at

_ROWS_AT_ONCE = 4096
# After a position from an index, few batches are read.
_ROWS_AFTER_INDEX = 64


@dataclass(frozen=True)
class BatchLocation:
    """
    The batch that contains an offset, or the first one after it.

    Attributes
    ----------
    path : str
        Path of the segment.
    position, size_in_bytes : int
        Byte position and size of the batch.
    base_offset, last_offset : int
    """

    path: str
    position: int
    size_in_bytes: int
    base_offset: int
    last_offset: int


@dataclass(frozen=True)
class RecordLocation:
    """
    The first record at or after a timestamp.

    Attributes
    ----------
    path : str
        Path of the segment.
    position : int
        Byte position of the record's batch.
    offset, timestamp : int
        Offset of the record, and its timestamp in milliseconds since the epoch.
    partition_leader_epoch : int or None
        None if the batch has no leader epoch.
    """

    path: str
    position: int
    offset: int
    timestamp: int
    partition_leader_epoch: int | None


def lookup_offset(
    source: LogLike,
    offset: int,
    /,
    *,
    batches: BatchTable | None = None,
    trust_index: bool = False,
    log_start_offset: int | None = None,
    storage_options: Mapping[str, object] | None = None,
) -> BatchLocation | None:
    """
    Find the batch at which a broker starts to read.

    Parameters
    ----------
    source : path or URL, bytes-like, Source, SegmentFile or PartitionDir
        A segment, or a partition's folder.
    offset : int
    batches : array of BATCH_DTYPE, optional
        All batches of the segment, to save scanning it at every lookup.
    trust_index : bool, default False
        Start at the entry of the ``.index`` file, as brokers do. By default all headers are
        scanned, so that a wrong index has no effect.
    log_start_offset : int, optional
        First offset of the log; see `lookup_timestamp`.
    storage_options : mapping, optional
        Options of the store, for a URL; see `ObjectUrl`.

    Returns
    -------
    BatchLocation or None
        The first batch whose last offset is not below the offset or the log's first offset
        (``LogSegment.translateOffset``); None if there is none. If segments overlap, it is in the
        last one that may contain the offset: a fetch begins there.

    Raises
    ------
    CorruptIndexError
        If a trusted index points to a position without a batch.
    IncompleteLogError
        If a segment that was searched, and is not the last one, was cut short.
    NoLogsError, IsADirectoryError
        If the folder contains no logs, or those of several partitions.
    As `scan_batches`.
    """
    source = as_object_url(source, storage_options)
    require_integers(offset=offset)
    if batches is not None:
        offset = max(offset, log_start_offset or 0)
        return _first_reaching(_path_of(source), require_batch_table(batches), offset)

    def search() -> BatchLocation | None:
        segments, start_offset = _segments(source, log_start_offset)
        first = max(offset, start_offset)
        for segment, owner in _opened(_from_offset(segments, first)):
            start = _indexed_position(segment.file, owner, first) if trust_index else None
            for table in _tables(owner, start, segment.is_last):
                found = _first_reaching(owner.path, table, first)
                if found is not None:
                    return found
        return None

    return read_again_if_changed(search)


def lookup_timestamp(
    source: LogLike,
    timestamp: TimeLike,
    /,
    *,
    batches: BatchTable | None = None,
    trust_index: bool = False,
    log_start_offset: int | None = None,
    storage_options: Mapping[str, object] | None = None,
) -> RecordLocation | None:
    """
    Find the first record at or after a timestamp, as ``OffsetsForTimes`` does.

    Parameters
    ----------
    source : path or URL, bytes-like, Source, SegmentFile or PartitionDir
        A segment, or a partition's folder.
    timestamp : int, str, datetime, numpy.datetime64 or pandas.Timestamp
        An int is milliseconds since the epoch, a str in ISO 8601; without a zone, it is UTC.
    batches : array of BATCH_DTYPE, optional
        As in `lookup_offset`.
    trust_index : bool, default False
        Give the answer of a broker that has loaded these files: the last entry of a
        ``.timeindex`` says whether a segment reaches the timestamp, and the entries of it and of
        the ``.index`` where the search begins. A wrong time index hides records from brokers.
        By default all headers are scanned, so that a wrong index has no effect.
    log_start_offset : int, optional
        First offset of the log: records before it are skipped. By default, as a broker has it:
        in a partition's folder, the base offset of the first segment, or the offset in the data
        dir's ``log-start-offset-checkpoint`` if it is higher. 0 finds everything on disk.
    storage_options : mapping, optional
        Options of the store, for a URL; see `ObjectUrl`.

    Returns
    -------
    RecordLocation or None
        In a folder, the first segment with such a timestamp is searched, as brokers do. A
        segment whose batches have no timestamps is skipped; a broker, and a lookup that trusts
        indexes, uses the time of the file's last modification instead.

    Raises
    ------
    CorruptIndexError
        If a trusted index points to a position without a batch.
    InvalidRecordError
        If the records of a batch that may contain it cannot be read.
    IncompleteLogError
        If a segment that was searched, and is not the last one, was cut short.
    NoLogsError, IsADirectoryError
        If the folder contains no logs, or those of several partitions.
    As `scan_batches`.
    """
    source = as_object_url(source, storage_options)
    wanted = moment_of(timestamp, "timestamp")
    if batches is not None:
        with borrowed_source(_one_segment(source), close=False) as owner:
            rows = require_batch_table(batches)
            return _first_not_before(owner, rows, wanted, log_start_offset or 0)

    def search() -> RecordLocation | None:
        segments, start = _segments(source, log_start_offset)
        for segment, owner in _opened(_from_offset(segments, start)):
            reaches, found = _search(segment, owner, wanted, start, trust_index=trust_index)
            if reaches:
                return found
        return None

    return read_again_if_changed(search)


def _search(
    segment: _Searched, source: Source, timestamp: int, start_offset: int, *, trust_index: bool
) -> tuple[bool, RecordLocation | None]:
    """
    Return whether a segment reaches a timestamp, and its first record that does.

    By indexes as ``UnifiedLog.fetchOffsetByTimestamp``; a broker rebuilds both if one is missing.
    """
    file, start, reaches = segment.file, None, False
    if trust_index and file is not None and read_entries(file, "index") is not None:
        largest = _largest_timestamp(file)
        if largest is not None and largest < timestamp:
            return False, None
        if largest is not None:
            start, reaches = _timed_position(file, source, timestamp, start_offset), True
    for table in _tables(source, start, segment.is_last):
        reaches |= bool((table["max_timestamp"] >= timestamp).any())
        found = _first_not_before(source, table, timestamp, start_offset)
        if found is not None:
            return True, found
    return reaches, None


# ---- segments and tables to search -----------------------------------------------------------


def _path_of(source: LogLike) -> str:
    with borrowed_source(_one_segment(source), close=False) as owner:
        return owner.path


def _one_segment(source: LogLike) -> SourceLike:
    if isinstance(source, (LogView, PartitionDir)):
        raise ValueError(f"{source.path}: give the segment to which the batches belong")
    return source


class _Searched(NamedTuple):
    """A segment to search, and its file if it has one, beside which its indexes are."""

    base_offset: int
    source: SourceLike
    file: SegmentFile | None
    is_last: bool = True

    def attempts(self) -> Iterator[_Searched]:
        """Yield it, and then what has its offsets now; see `attempts_to_open`."""
        yield self
        if self.file is not None:
            for file in itertools.islice(attempts_to_open(self.file), 1, None):
                yield self._replace(source=file.listed(), file=file)


def _segments(source: LogLike, log_start_offset: int | None) -> tuple[list[_Searched], int]:
    """Return the segments to search, and the log's first offset."""
    if isinstance(source, (str, os.PathLike, ObjectUrl)):
        source = find_partition(source) or source
    if isinstance(source, LogView) and source.is_single_file:
        first = source.start_offset if source.has_deleted_offsets else 0
        file = source.segments[0].listed()
        return [_Searched(0, file, _file_of(file))], log_start_offset or first
    if isinstance(source, (LogView, PartitionDir)):
        (log,) = open_logs(source, log_start_offset)
        last = log.segments[-1]
        segments = [
            _Searched(segment.base_offset or 0, segment.listed(), segment, segment is last)
            for segment in log.segments
        ]
        return segments, log.start_offset
    return [_Searched(0, source, _file_of(source))], log_start_offset or 0


def _file_of(source: SourceLike) -> SegmentFile | None:
    if isinstance(source, Source) and source.is_file:
        source = source.path
    if isinstance(source, (str, os.PathLike, ObjectUrl)):
        return segment_at(source)
    return source if isinstance(source, SegmentFile) else None


def _from_offset(segments: list[_Searched], offset: int) -> Iterator[_Searched]:
    """Yield the segments from the one on that may contain an offset."""
    bases = [one.base_offset for one in segments]
    yield from segments[max(0, bisect.bisect_right(bases, offset) - 1) :]


def _opened(segments: Iterable[_Searched]) -> Iterator[tuple[_Searched, Source]]:
    """Yield segments and their open sources; of those that are gone, what has their offsets."""
    for listed in segments:
        for segment in listed.attempts():
            try:
                with borrowed_source(segment.source, close=False) as owner:
                    yield segment, owner
            except FileGoneError:
                if segment.file is None or not segment.file.is_listed:
                    raise
            else:
                break


def _tables(source: Source, start: int | None, is_last: bool) -> Iterator[BatchTable]:
    """Yield the headers of a segment; that it was cut short is an error, unless it is the last."""
    if start is None:
        tables = iter_batches(source, rows=_ROWS_AT_ONCE)
    else:
        tables = iter_batches(source, rows=_ROWS_AFTER_INDEX, start=start, on_corrupt="stop")
    yield from tables
    if start is not None and tables.position == start < source.size:
        reason = f"it points to position {start} of the log, where no batch begins"
        raise CorruptIndexError(f"{source.path}'s index", 0, None, reason, "WRONG_POSITION")
    if tables.error is not None:
        raise tables.error
    if tables.end is not ScanEnd.CLEAN and not is_last:
        raise cut_segment_error(source.path, tables)


def _first_reaching(path: str, batches: BatchTable, offset: int) -> BatchLocation | None:
    row = first_reaching(batches, offset)
    if row == len(batches):
        return None
    names = ("position", "size_in_bytes", "base_offset", "last_offset")
    return BatchLocation(path, *(int(column(batches[row : row + 1], name)[0]) for name in names))


def _first_not_before(
    source: Source, batches: BatchTable, timestamp: int, start_offset: int
) -> RecordLocation | None:
    """``FileRecords.searchForTimestamp``: in file order, records of all kinds."""
    may_hold = (batches["max_timestamp"] >= timestamp) & (last_offset(batches) >= start_offset)
    for row in np.flatnonzero(may_hold).tolist():
        one = batches[row : row + 1]
        for records in iter_records(
            source, one, columns=("offset", "timestamp"), control="include"
        ):
            offsets, timestamps = records.columns["offset"], records.columns["timestamp"]
            fits = np.flatnonzero((timestamps >= timestamp) & (offsets >= start_offset))
            if len(fits):
                epoch = int(one["partition_leader_epoch"][0])
                return RecordLocation(
                    path=source.path,
                    position=int(one["position"][0]),
                    offset=int(offsets[fits[0]]),
                    timestamp=int(timestamps[fits[0]]),
                    partition_leader_epoch=epoch if epoch >= 0 else None,
                )
    return None


# ---- positions by indexes --------------------------------------------------------------------


def _indexed_position(file: SegmentFile | None, source: Source, offset: int) -> int | None:
    """``OffsetIndex.lookup``: the last entry that is not above an offset."""
    entries = read_entries(file, "index")
    if file is None or entries is None:
        return None
    row = floor_entry(entries, "relative_offset", offset - (file.base_offset or 0))
    if row < 0:
        return 0
    position = int(entries["position"][row])
    if source.size < position <= file.current_size():  # of a batch that was appended since
        return source.size
    if not 0 <= position <= source.size:
        place = row * entries.itemsize
        reason = f"position {position} is outside the log of {source.size} bytes"
        raise CorruptIndexError(f"{source.path}'s index", place, None, reason, "TOO_LARGE")
    return position


def _largest_timestamp(file: SegmentFile) -> int | None:
    """``LogSegment.largestTimestamp`` of a segment that was loaded; None if nothing says it."""
    entries = read_entries(file, "timeindex")
    largest = int(entries["timestamp"][-1]) if entries is not None and len(entries) else -1
    if largest >= 0:
        return largest
    if not isinstance(file.folder, DiskFolder):
        return None
    return file.folder.status(file.file_name).st_mtime_ns // 1_000_000


def _timed_position(
    file: SegmentFile, source: Source, timestamp: int, start_offset: int
) -> int | None:
    """``LogSegment.findOffsetByTimestamp``: time index, then offset index."""
    entries = read_entries(file, "timeindex")
    offset = start_offset
    if entries is not None:
        row = floor_entry(entries, "timestamp", timestamp)
        if row >= 0:
            offset = max(offset, (file.base_offset or 0) + int(entries["relative_offset"][row]))
    return _indexed_position(file, source, offset)
