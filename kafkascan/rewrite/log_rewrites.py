"""Rewrite whole logs: restamp, convert or scrub the files of a partition."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from kafkascan.batches.columns import (
    BatchTable,
    compression_type as compression_type_of,
    last_offset,
    size_in_bytes,
)
from kafkascan.batches.scan import iter_open_batches
from kafkascan.format.arguments import require_integers
from kafkascan.format.errors import RewriteError, UnfitBatchError
from kafkascan.format.layout import CompressionType, TimestampType
from kafkascan.format.times import TimeLike, to_milliseconds
from kafkascan.io.sources import Source, read_into
from kafkascan.logs.reading import iter_records
from kafkascan.rewrite.batch_stream import Buffer, verified_groups
from kafkascan.rewrite.conversion import ConversionReport, iter_converted
from kafkascan.rewrite.conversion_plan import DEFAULT_GATHERED_SIZE, ConversionOptions
from kafkascan.rewrite.filtering import (
    FilterOptions,
    FilterReport,
    default_retention,
    iter_filtered,
    no_batch,
)
from kafkascan.rewrite.log_rewriter import LogRewriter
from kafkascan.rewrite.record_filters import KeyFilter, RecordFilter
from kafkascan.rewrite.restamping import restamp_range
from kafkascan.rewrite.rewrite_reports import (
    LogRewrite,
    RestampReport,
    converted_findings,
    not_removed_findings,
)


def restamp_log(
    path: str | os.PathLike[str],
    target: str | os.PathLike[str] | None = None,
    /,
    *,
    in_place: bool = False,
    offset_shift: int = 0,
    partition_leader_epoch: int | None = None,
    max_timestamp: TimeLike | None = None,
    timestamp_type: TimestampType | None = None,
    interval_bytes: int | None = None,
    producer_expiration_ms: int | None = None,
) -> LogRewrite[RestampReport]:
    """
    Set header fields of all batches of a log, or of all logs of a partition.

    Parameters
    ----------
    path : path
        A ``.log`` file, or the folder of a partition.
    target : path, optional
        A file or folder that does not exist yet. For a file, also the folder to write it to.
    in_place : bool, default False
        Replace the files of `path`, each atomically.
    offset_shift : int, default 0
        Added to all offsets, and to the base offsets in file names; not with `in_place`.
    partition_leader_epoch : int, optional
    max_timestamp : int, datetime, numpy.datetime64 or str, optional
        Milliseconds since the epoch.
    timestamp_type : TimestampType, optional
        With ``LOG_APPEND_TIME`` the timestamp of every record is its batch's `max_timestamp`.
    interval_bytes : int, optional
        The broker's ``index.interval.bytes``; by default as of `recover`.
    producer_expiration_ms : int, optional
        The broker's ``producer.id.expiration.ms``, as of `recover`: new snapshots do not contain
        producers that have been idle for longer.

    Returns
    -------
    LogRewrite
        For a folder, indexes, producer snapshots and leader epochs have been rebuilt as a broker
        would build them; for a single log, its offset and time index.

    Raises
    ------
    LogDirInUseError
        If `in_place` is set and a broker holds the data directory's lock.
    FileChangedError
        If `in_place` is set and another process changed a log since it was read: it is not
        replaced.
    FileExistsError
        If `target` exists.
    FileNotFoundError
        If `path` or the folder of `target` does not exist.
    NoLogsError
        If `path` is a folder without logs.
    CorruptBatchError
        If valid batches follow what looks like a torn tail.
    ChecksumMismatchError
        If a checksum is wrong: damaged batches do not get a new checksum.
    UnfitBatchError
        If a format lacks a field, or an offset does not fit into 64 bits; if offsets are shifted
        and the log contains compressed messages of magic 0, which hold absolute offsets.
    As `scan_batches`.
    """
    require_integers(offset_shift=offset_shift)
    if not -(1 << 63) <= offset_shift < 1 << 63:
        raise ValueError(f"offset_shift must fit into 64 bits: {offset_shift}")
    time = (
        None
        if max_timestamp is None
        else to_milliseconds(max_timestamp, "max_timestamp", rounds_up=False)
    )

    def rewrite(
        source: Source, tables: Iterable[BatchTable], report: RestampReport
    ) -> Iterator[Buffer]:
        for rows in verified_groups(source, tables, None):
            _require_shiftable(source, rows, offset_shift)
            offsets = last_offset(rows) + offset_shift if offset_shift else None
            stamps = (offsets, partition_leader_epoch, time, timestamp_type)
            data, start = _read_rows(source, rows), int(rows["position"][0])
            stamped = restamp_range(data, start, source.path, rows, *stamps)
            report.batches += len(rows)
            report.signed += int(np.count_nonzero(stamped["crc"] != rows["crc"]))
            yield data.data

    rewriter = LogRewriter(
        rewrite,
        RestampReport,
        offset_shift=offset_shift,
        interval_bytes=interval_bytes,
        producer_expiration_ms=producer_expiration_ms,
        keeps_epochs=not offset_shift and partition_leader_epoch is None,
    )
    return rewriter.run(path, target, in_place=in_place)


def _require_shiftable(source: Source, batches: BatchTable, offset_shift: int) -> None:
    last = last_offset(batches)
    row, highest = int(last.argmax()), int(last.max()) + offset_shift
    if highest >= (1 << 63) - 1:
        reason = f"the last offset would be {highest}; it must be below 2**63 - 1"
        raise _unfit(source, batches[row], reason)
    is_wrapper = compression_type_of(batches) != CompressionType.NONE
    rows = np.flatnonzero((batches["magic"] == 0) & is_wrapper)
    if offset_shift and len(rows):
        reason = "offsets in a compressed message of magic 0 cannot be shifted; convert it first"
        raise _unfit(source, batches[rows[0]], reason)


def _unfit(source: Source, batch: np.void, reason: str) -> UnfitBatchError:
    position, base_offset = int(batch["position"]), int(batch["base_offset"])
    return UnfitBatchError(source.path, position, base_offset, reason)


def _read_rows(source: Source, rows: BatchTable) -> NDArray[np.uint8]:
    """Return the bytes of adjacent batches."""
    data = np.empty(int(size_in_bytes(rows).sum()), np.uint8)
    read_into(source, int(rows["position"][0]), data)
    source.require_unshrunk()
    return data


def convert_log(
    path: str | os.PathLike[str],
    target: str | os.PathLike[str] | None = None,
    /,
    *,
    in_place: bool = False,
    to_magic: int | None = None,
    compression_type: CompressionType | str | int | None = None,
    compression_level: int | None = None,
    batch_size: int = DEFAULT_GATHERED_SIZE,
    threads: int | None = None,
    interval_bytes: int | None = None,
    producer_expiration_ms: int | None = None,
) -> LogRewrite[ConversionReport]:
    """
    Convert all batches of a log, or of all logs of a partition.

    Parameters
    ----------
    path, target, in_place, interval_bytes, producer_expiration_ms
        See `restamp_log`.
    to_magic, compression_type, compression_level, batch_size, threads
        See `convert_records`.

    Returns
    -------
    LogRewrite
        The reports of its segments count what was lost.

    Raises
    ------
    LogDirInUseError, FileChangedError, FileExistsError, FileNotFoundError, NoLogsError
        As `restamp_log`.
    As `convert_records`.
    """
    options = ConversionOptions(
        to_magic=to_magic,
        compression_type=compression_type,
        compression_level=compression_level,
        batch_size=batch_size,
        threads=threads,
    )

    def rewrite(
        source: Source, tables: Iterable[BatchTable], report: ConversionReport
    ) -> Iterator[Buffer]:
        return iter_converted(source, tables, options, report)

    keeps_headers = to_magic is None or to_magic == 2
    rewriter = LogRewriter(
        rewrite,
        ConversionReport,
        interval_bytes=interval_bytes,
        producer_expiration_ms=producer_expiration_ms,
        keeps_epochs=keeps_headers,
        keeps_producers=keeps_headers,
    )
    return rewriter.run(path, target, in_place=in_place)


def scrub_log(
    path: str | os.PathLike[str],
    target: str | os.PathLike[str] | None = None,
    /,
    *,
    keep: RecordFilter,
    in_place: bool = False,
    threads: int | None = None,
    interval_bytes: int | None = None,
    producer_expiration_ms: int | None = None,
) -> LogRewrite[FilterReport]:
    """
    Remove records from a log, or from all logs of a partition, and verify that they are gone.

    Offsets, producer sequences and markers do not change, as in compaction (`filter_records`).
    Messages of magic 0 and 1 are converted to batches of magic 2, also if no record is removed;
    a finding (`CONVERTED`) reports them.
    Each new log is read completely before it replaces the old one: it contains no record that
    was dropped, and none that `keep` would drop.

    Parameters
    ----------
    path, target, in_place, interval_bytes, producer_expiration_ms
        See `restamp_log`.
    keep : callable
        See `filter_records`; see `without_keys` and `without_offsets`.
    threads : int, optional
        See `read_records`.

    Returns
    -------
    LogRewrite
        The reports of its segments contain the dropped offsets. Its findings name files that
        may still contain the records, and say if no record was removed (`NOTHING_REMOVED`), or
        if some keys of `without_keys` do not occur (`KEY_NOT_FOUND`).

    Raises
    ------
    LogDirInUseError, FileChangedError, FileExistsError, FileNotFoundError, NoLogsError
        As `restamp_log`.
    RewriteError
        If a removed record is still in a new log; no file is replaced then.
    As `filter_records`.

    Notes
    -----
    In place, the file system frees the blocks of the old file without overwriting them.
    Replicas, tiered storage and backups still contain the records.
    """
    if isinstance(keep, KeyFilter):
        keep = KeyFilter(keep.keys)  # it notes which keys exist, in this log only
    options = FilterOptions(keep=keep, threads=threads)

    converted = 0

    def counted(tables: Iterable[BatchTable]) -> Iterator[BatchTable]:
        nonlocal converted
        for batches in tables:
            converted += int(np.count_nonzero(batches["magic"] < 2))
            yield batches

    def rewrite(
        source: Source, tables: Iterable[BatchTable], report: FilterReport
    ) -> Iterator[Buffer]:
        retention = default_retention(iter_open_batches(source))
        return iter_filtered(source, counted(tables), options, report, retention, no_batch)

    def check(source: Source, report: FilterReport) -> None:
        _require_gone(source, report, keep)

    rewriter = LogRewriter(
        rewrite,
        FilterReport,
        check,
        interval_bytes=interval_bytes,
        producer_expiration_ms=producer_expiration_ms,
    )
    result = rewriter.run(path, target, in_place=in_place)
    missing = keep.missing if isinstance(keep, KeyFilter) else []
    result.findings += not_removed_findings(result, missing)
    result.findings += converted_findings(result.path, converted)
    return result


def _require_gone(
    source: Source,
    report: FilterReport,
    keep: RecordFilter,
) -> None:
    """Read a new log, and raise if it contains a record that should have been removed."""
    count, dropped = 0, report.dropped_offsets  # in ascending order
    for records in iter_records(source, control="include"):
        offsets = records["offset"]
        at = np.searchsorted(dropped, offsets, "right") - 1
        if len(dropped) and (dropped[at] == offsets).any():
            raise _verification_error(source, "a dropped record is still present")
        count += len(records)
    if count != report.kept_records:
        raise _verification_error(
            source, f"it contains {count} records instead of {report.kept_records}"
        )
    for records in iter_records(source):
        if not keep(records).all():
            raise _verification_error(source, "a record that `keep` drops is still present")


def _verification_error(source: Source, reason: str) -> RewriteError:
    message = f"{source.path}: the rewritten log failed verification: {reason}"
    return RewriteError(f"{message}; the original is unchanged")
