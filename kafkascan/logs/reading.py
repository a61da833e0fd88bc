"""Public functions that read records: `read_records`, `iter_records`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from kafkascan.batches.columns import BatchTable
from kafkascan.format.arguments import require_integers, require_not_negative
from kafkascan.format.times import TimeLike, moment_of
from kafkascan.io.concurrency import require_threads
from kafkascan.io.stores.urls import ObjectUrl, as_object_url
from kafkascan.logs.log_dir import PartitionDir
from kafkascan.logs.log_finding import find_partition
from kafkascan.logs.opened_logs import LogLike, LogView, at_one_moment, open_logs
from kafkascan.logs.queries.conditions import EVERY_RECORD, Condition, RowRange
from kafkascan.logs.record_scan import Isolation, RecordScan, log_of
from kafkascan.records.read_options import (
    DEFAULT_MAX_DECOMPRESSED_SIZE,
    Control,
    OnCorruptLog,
    OnDamage,
    ReadOptions,
)
from kafkascan.records.record_table import RecordTable
from kafkascan.records.typed_items import ColumnDecoders, ItemDecoding, ItemPlace, require_decoders

if TYPE_CHECKING:
    from kafkascan.logs.read_committed import CommittedView


def read_records(
    source: LogLike,
    batches: BatchTable | None = None,
    /,
    *,
    columns: Sequence[str] | None = None,
    control: Control = "skip",
    isolation: Isolation = "read_uncommitted",
    transactions: CommittedView | None = None,
    log_start_offset: int | None = None,
    from_offset: int | None = None,
    to_offset: int | None = None,
    from_time: TimeLike | None = None,
    to_time: TimeLike | None = None,
    verify: bool = False,
    threads: int | None = None,
    max_decompressed_size: int = DEFAULT_MAX_DECOMPRESSED_SIZE,
    on_corrupt: OnCorruptLog = "raise",
    storage_options: Mapping[str, object] | None = None,
    key: ColumnDecoders | None = None,
    value: ColumnDecoders | None = None,
) -> RecordTable:
    """
    Decode records of every format and codec into columns; checksums are not verified by default.

    Parameters
    ----------
    source : path, bytes-like, Source, SegmentFile or PartitionDir
        A segment, or the folder of a partition. A path of a segment is opened for the table and
        stays mapped while the table exists. The batches of a partition with several segments are
        read into memory. Each offset of a partition is read once: if segments overlap, from the
        first of them; `RecordTable.problems` names them.
    batches : array of BATCH_DTYPE, optional
        Rows of a segment to read, in any order and selection, such as ``scan.batches[mask]``;
        all of it by default.
    columns : sequence of str, optional
        Names of `RECORD_COLUMN_NAMES` and `COLUMN_NAMES`; by default ``offset``, ``timestamp``,
        ``key``, ``value`` and ``headers``. Without key, value and headers, only the fields
        before a record's key are decoded and checked, so invalid keys, values and headers are
        not noticed.
    control : {"skip", "only", "include"}
        What to do with control batches: transaction markers and KRaft's control records.
    isolation : {"read_uncommitted", "read_committed"}
        "read_committed" returns the records that a consumer with this ``isolation.level`` would
        get: it omits aborted transactions, and everything from the first offset of a
        transaction that is still open at the end of the log. What is appended after the
        transactions were read is omitted, too.
    transactions : CommittedView, optional
        The outcome of the log's transactions. By default it is read from all segments of the
        partition folder that contains the file, or from the source alone if it is not such a
        file.
    log_start_offset : int, optional
        Records before this offset are omitted. By default, of a partition as a broker has it:
        the base offset of the first segment, or the offset in the data dir's
        ``log-start-offset-checkpoint`` if it is higher (``DeleteRecords``). 0 reads everything
        that is on disk.
    from_offset, to_offset : int, optional
        Only records with offsets of ``[from_offset, to_offset)`` are returned. Other batches are
        not decoded. Of a partition, a segment is left out if its name and the next one, or its
        index, show that it has no such offsets.
    from_time, to_time : int, str, datetime, numpy.datetime64 or pandas.Timestamp, optional
        Only records with timestamps of ``[from_time, to_time)`` are returned. An int is
        milliseconds since the epoch, a str in ISO 8601; without a zone, it is UTC. Batches are not
        decoded if their headers rule them out; see `select_times`. A record without a timestamp
        (-1) is before every time.
    verify : bool, default False
        Verify the checksums of the batches first. `kafkascan.polars.scan_records`, the command
        line and Spark do so by default. Without it, damage in the bytes of a record is noticed
        only if the record cannot be decoded.
    threads : int, optional
        Maximum number of threads; by default one per CPU. Small inputs use fewer.
    max_decompressed_size : int, default 256 MiB
        Maximum bytes that one batch may decompress to.
    on_corrupt : {"raise", "stop"}
        What to do at damage: raise, or return the records that can be read. Then a segment ends at
        damage, and the next one is read; batches whose records cannot be read are skipped.
        `RecordTable.problems` says what is missing.
    storage_options : mapping, optional
        Options of the store, if the source is a URL; see `ObjectUrl`.
    key, value : Registry, ReaderSchema or `kafkascan.schemas.json_values`, optional
        Decode keys or values into columns with the types of their schemas: by a registry
        (`kafkascan.schemas.open_registry`), into the newest schema of the subject ``TOPIC-key``
        or ``TOPIC-value``, or into the named one. What cannot be decoded is null, and one of
        `RecordTable.problems`.

    Returns
    -------
    RecordTable

    Raises
    ------
    FileNotFoundError, PermissionError, NotADirectoryError
        If the file or folder cannot be opened.
    IsADirectoryError
        If the folder is that of several partitions: give one of ``open_log_dir(path).partitions``,
        or read the records of all with `kafkascan.polars.scan_records`.
    NoLogsError
        If the folder contains no logs.
    InvalidRecordError
        If Kafka would reject the records of a batch, or they cannot be decompressed.
    UnsupportedCompressionError
        If the codec of a batch does not exist in its format.
    ChecksumMismatchError
        If `verify` is set and a checksum is wrong.
    CorruptBatchError, UnsupportedMagicError
        As `scan_batches`, if `batches` is not given.
    IncompleteLogError
        If a segment before the last one of a partition was cut short, if intact batches follow
        what looks like the torn end of the last one, or if offsets are missing and nothing says
        that the log was compacted. Of a single file, the first two are only `problems`.
    BatchTableError
        If a row does not describe the batch at its position in this source.
    UnknownColumnError
        If a column does not exist; the message suggests one.
    SourceReadError
        If the file was truncated or its disk failed during the read.

    Notes
    -----
    Records are those of Kafka's ``DefaultRecordBatch`` and ``AbstractLegacyRecordBatch``
    iterators: offsets inside compressed messages of magic 1 are relative (KIP-31), and records
    of LOG_APPEND_TIME batches have the batch's timestamp (KIP-32). Memory: up to 56 bytes per
    record, plus the decompressed bytes of compressed batches.
    """
    place = _partition_or_source(as_object_url(source, storage_options), batches)
    scan = RecordScan(
        options=ReadOptions(
            columns=columns,
            control=control,
            verify=verify,
            threads=threads,
            max_decompressed_size=max_decompressed_size,
            on_corrupt=on_corrupt,
        ),
        condition=_condition(from_offset, to_offset, from_time, to_time),
        isolation=isolation,
        transactions=transactions,
        typed=_decoding_of(place, key, value, require_threads(threads)),
    )
    if isinstance(place, (LogView, PartitionDir)):
        return at_one_moment(place, lambda views: scan.table(views[0]), log_start_offset)
    return scan.table_of_source(place, batches, _start_of(source, log_start_offset))


def iter_records(
    source: LogLike,
    batches: BatchTable | None = None,
    /,
    *,
    columns: Sequence[str] | None = None,
    control: Control = "skip",
    isolation: Isolation = "read_uncommitted",
    transactions: CommittedView | None = None,
    log_start_offset: int | None = None,
    from_offset: int | None = None,
    to_offset: int | None = None,
    from_time: TimeLike | None = None,
    to_time: TimeLike | None = None,
    verify: bool = False,
    threads: int | None = None,
    max_decompressed_size: int = DEFAULT_MAX_DECOMPRESSED_SIZE,
    batch_size: int = 65_536,
    on_damage: OnDamage | None = None,
    on_corrupt: OnCorruptLog = "raise",
    storage_options: Mapping[str, object] | None = None,
    key: ColumnDecoders | None = None,
    value: ColumnDecoders | None = None,
) -> Iterator[RecordTable]:
    """
    Decode records in tables of bounded size; checksums are not verified by default.

    Parameters
    ----------
    source, batches, columns, control, isolation, transactions, log_start_offset
        See `read_records`.
    from_offset, to_offset, from_time, to_time, verify, max_decompressed_size, on_corrupt
        See `read_records`.
    storage_options, key, value
        See `read_records`.
    threads : int, optional
        Maximum number of threads that verify checksums; by default one. Tables are decoded in
        the calling thread.
    batch_size : int, default 65536
        Number of records of a table. A table ends with the batch that reaches this number,
        32 MiB of decompressed or 16 MiB of stored bytes; batches are not split.
    on_damage : callable, optional
        Called with the error of each batch whose records cannot be read; the batch is skipped.
        By default the first error is raised, or with ``on_corrupt="stop"`` added to `problems`.
        Where the bytes cannot be a batch, such as after a wrong magic byte, no next batch is
        known: that error is always raised, or with ``on_corrupt="stop"`` ends the segment.

    Yields
    ------
    RecordTable
        Each has at least one record and no problems. If there are problems, one more table follows
        at the end: it has no records, but the problems.

    Raises
    ------
    As `read_records`. Records before the damage are yielded before the error is raised.
    """
    place = _partition_or_source(as_object_url(source, storage_options), batches)
    scan = RecordScan(
        options=ReadOptions(
            columns=columns,
            control=control,
            verify=verify,
            threads=threads,
            max_decompressed_size=max_decompressed_size,
            batch_size=batch_size,
            on_damage=on_damage,
            on_corrupt=on_corrupt,
        ),
        condition=_condition(from_offset, to_offset, from_time, to_time),
        isolation=isolation,
        transactions=transactions,
        typed=_decoding_of(place, key, value, 1),
    )
    if isinstance(place, (LogView, PartitionDir)):
        return scan.tables(open_logs(place, log_start_offset)[0])
    return scan.tables_of_source(place, batches, _start_of(source, log_start_offset))


# ---- typed keys and values -------------------------------------------------------------------


def _decoding_of(
    source: LogLike,
    key: ColumnDecoders | None,
    value: ColumnDecoders | None,
    threads: int,
) -> ItemDecoding | None:
    """Return what decodes keys and values; None if they stay bytes."""
    given = require_decoders(key=key, value=value)
    if not given:
        return None
    if isinstance(source, LogView):
        source = source.partition
    log = source if isinstance(source, PartitionDir) else log_of(source)
    topic, partition = (None, None) if log is None else (log.topic, log.partition)
    if isinstance(source, (bytes, bytearray, memoryview)):  # whose text would have all of them
        path = f"<{type(source).__name__}>"
    else:
        path = str(log.path if log is not None else getattr(source, "path", source))
    return ItemDecoding(
        {name: one.decoder(ItemPlace(name, path, topic, partition)) for name, one in given.items()},
        threads,
    )


# ---- logs, and the log start offset ------------------------------------------------------------


def _partition_or_source(source: LogLike, batches: BatchTable | None) -> LogLike:
    """Return the partition that a path names, and the file of a view of one; others as they are."""
    if isinstance(source, LogView) and source.is_single_file:
        return source.segments[0].listed()
    if isinstance(source, (str, os.PathLike, ObjectUrl)):
        source = find_partition(source) or source
    if isinstance(source, (LogView, PartitionDir)) and batches is not None:
        raise ValueError(f"{source.path}: give the segment to which the batches belong")
    return source


def _start_of(source: LogLike, log_start_offset: int | None) -> int:
    """Return the first offset that is read of a file; 0 reads all of it."""
    require_not_negative(log_start_offset=log_start_offset)
    if log_start_offset is None and isinstance(source, LogView) and source.has_deleted_offsets:
        return source.start_offset
    return log_start_offset or 0


# ---- offsets and times -------------------------------------------------------------------------


def _condition(
    from_offset: int | None,
    to_offset: int | None,
    from_time: TimeLike | None,
    to_time: TimeLike | None,
) -> Condition:
    """Return the condition on records; raise ValueError if a range ends before it begins."""
    offsets = {"from_offset": from_offset, "to_offset": to_offset}
    require_integers(**{name: one for name, one in offsets.items() if one is not None})
    limits = RowRange(
        from_offset,
        to_offset,
        None if from_time is None else moment_of(from_time, "from_time"),
        None if to_time is None else moment_of(to_time, "to_time"),
    )
    if not limits.is_limited:
        return EVERY_RECORD
    if _ends_before(limits.from_offset, limits.to_offset):
        raise ValueError(f"to_offset {to_offset!r} is before from_offset {from_offset!r}")
    if _ends_before(limits.from_time, limits.to_time):
        raise ValueError(f"to_time {to_time!r} is before from_time {from_time!r}")
    return limits.condition("offset", "offset", "timestamp")


def _ends_before(start: int | None, stop: int | None) -> bool:
    return start is not None and stop is not None and stop < start
