"""Whole logs restamped, converted, scrubbed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kafkascan.batch_columns import BatchTable, compression_type, last_offset, size_in_bytes
from kafkascan.conversion import DEFAULT_GATHERED_SIZE, RecordConverter
from kafkascan.errors import RewriteError
from kafkascan.filtering import FilterReport, RecordFilter
from kafkascan.layout import CompressionType, TimestampType
from kafkascan.log_rewriting import Rewriting
from kafkascan.record_table import RecordTable
from kafkascan.records import iter_records
from kafkascan.restamping import restamp_in_place
from kafkascan.rewrite_reports import LogRewrite
from kafkascan.rewriting import Buffer, sound_groups
from kafkascan.sources import Source
from kafkascan.walks import read_into


@dataclass
class RestampReport:
    """
    What became of batches.

    Attributes
    ----------
    batches : int
    signed : int
        Those whose checksum is another one now.
    """

    batches: int = 0
    signed: int = 0


def restamp_log(
    path: str | os.PathLike[str],
    target: str | os.PathLike[str] | None = None,
    /,
    *,
    in_place: bool = False,
    offset_shift: int = 0,
    partition_leader_epoch: int | None = None,
    max_timestamp: int | None = None,
    timestamp_type: TimestampType | None = None,
    interval_bytes: int | None = None,
) -> LogRewrite:
    """
    Write header fields of all batches of a log, or of a partition's logs, anew.

    Parameters
    ----------
    path : path
        A ``.log`` file, or the folder of a partition.
    target : path, optional
        A file or a folder that is not there yet. A file may be named by its folder.
    in_place : bool, default False
        Replace what is there, each file at once.
    offset_shift : int, default 0
        Added to all offsets, and to the base offsets in the names of files; not in place.
    partition_leader_epoch : int, optional
    max_timestamp : int, optional
        Milliseconds since the epoch.
    timestamp_type : TimestampType, optional
        With ``LOG_APPEND_TIME`` every record has its batch's `max_timestamp`.
    interval_bytes : int, optional
        The broker's ``index.interval.bytes``; by default as of `recover`.

    Returns
    -------
    LogRewrite
        Of a folder, indexes, snapshots of producers and leader epochs are built anew, as a
        broker would; of one log, its indexes of offsets and times.

    Raises
    ------
    LogDirInUseError
        If it is in place and a broker holds the data dir's lock.
    FileExistsError
        If `target` is there already.
    CorruptBatchError
        If there are batches behind what looks like a torn tail.
    ChecksumMismatchError
        If a checksum is wrong: what is damaged is not signed anew.
    ValueError
        If a format lacks a field, or an offset does not fit into 64 bits; if offsets are shifted
        that messages of magic 0 bear inside of a compressed one.
    As `scan_batches`.
    """

    def work(source: Source, batches: BatchTable) -> _Restamper:
        fields = {
            "partition_leader_epoch": partition_leader_epoch,
            "max_timestamp": max_timestamp,
            "timestamp_type": timestamp_type,
        }
        return _Restamper(source, batches, offset_shift, fields)

    how = Rewriting(
        work,
        offset_shift=offset_shift,
        interval_bytes=interval_bytes,
        keeps_epochs=not offset_shift and partition_leader_epoch is None,
    )
    return how.run(Path(path), None if target is None else Path(target), in_place=in_place)


class _Restamper:
    def __init__(
        self, source: Source, batches: BatchTable, offset_shift: int, fields: dict[str, Any]
    ) -> None:
        self._source, self._batches = source, batches
        self._shift, self._fields = offset_shift, fields
        if not -(1 << 63) <= offset_shift < 1 << 63:
            raise ValueError(f"offsets have 64 bits, and cannot be shifted by {offset_shift}")
        self.report = RestampReport()
        is_wrapper = compression_type(batches) != CompressionType.NONE
        rows = np.flatnonzero((batches["magic"] == 0) & is_wrapper)
        if offset_shift and len(rows):
            position = batches["position"][rows[0]]
            raise ValueError(
                f"{source.path}: position {position}: a compressed message of magic 0 holds"
                " offsets that stay; convert it first"
            )

    def __iter__(self) -> Iterator[Buffer]:
        for part in sound_groups(self._source, self._batches, None):
            rows = self._batches[part].copy()
            start = int(rows["position"][0])
            data = np.empty(int(size_in_bytes(rows).sum()), np.uint8)
            read_into(self._source, start, data)
            self._source.require_unshrunk()
            rows["position"] -= start
            offsets = last_offset(rows) + self._shift if self._shift else None
            stamped = restamp_in_place(data, rows, last_offset=offsets, **self._fields)
            self.report.batches += len(rows)
            self.report.signed += int(np.count_nonzero(stamped["crc"] != rows["crc"]))
            yield data.data


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
) -> LogRewrite:
    """
    Convert all batches of a log, or of a partition's logs.

    Parameters
    ----------
    path, target, in_place, interval_bytes
        As of `restamp_log`.
    to_magic, compression_type, compression_level, batch_size, threads
        As of `convert_records`.

    Returns
    -------
    LogRewrite
        The reports of its segments tell what was lost.

    Raises
    ------
    LogDirInUseError, FileExistsError
        As `restamp_log`.
    As `convert_records`.
    """

    def work(source: Source, batches: BatchTable) -> RecordConverter:
        return RecordConverter(
            source, batches, to_magic=to_magic, compression_type=compression_type,
            compression_level=compression_level, batch_size=batch_size, threads=threads,
        )  # fmt: skip

    is_old = to_magic is not None and to_magic < 2
    how = Rewriting(
        work, interval_bytes=interval_bytes, keeps_epochs=not is_old, keeps_producers=not is_old
    )
    return how.run(Path(path), None if target is None else Path(target), in_place=in_place)


def scrub_log(
    path: str | os.PathLike[str],
    target: str | os.PathLike[str] | None = None,
    /,
    *,
    keep: Callable[[RecordTable], NDArray[np.bool_]],
    in_place: bool = False,
    threads: int | None = None,
    interval_bytes: int | None = None,
) -> LogRewrite:
    """
    Take records out of a log, or out of a partition's logs, and make sure that they are gone.

    Offsets, sequences of producers and markers stay, as in compaction (`filter_records`). Each
    new log is read to its end before it is put in its place: no record that was dropped is
    there any more, and none that `keep` would drop.

    Parameters
    ----------
    path, target, in_place, interval_bytes
        As of `restamp_log`.
    keep : callable
        As of `filter_records`; see `without_keys` and `without_offsets`.
    threads : int, optional
        As of `read_records`.

    Returns
    -------
    LogRewrite
        The reports of its segments tell which offsets were dropped. Findings name files beside
        the logs that may still hold them.

    Raises
    ------
    LogDirInUseError, FileExistsError
        As `restamp_log`.
    RewriteError
        If something of it is left; then nothing is put in its place.
    As `filter_records`.

    Notes
    -----
    In place, the old file's blocks are given back to the file system, which does not write over
    them at once; replicas, tiered storage and backups are other files.
    """

    def work(source: Source, batches: BatchTable) -> RecordFilter:
        return RecordFilter(source, batches, keep=keep, threads=threads)

    def check(source: Source, batches: BatchTable, report: FilterReport) -> None:
        _require_gone(source, batches, report, keep)

    how = Rewriting(work, check, interval_bytes=interval_bytes)
    return how.run(Path(path), None if target is None else Path(target), in_place=in_place)


def _require_gone(
    source: Source,
    batches: BatchTable,
    report: FilterReport,
    keep: Callable[[RecordTable], NDArray[np.bool_]],
) -> None:
    """Read what was written, and find nothing in it that was to go."""
    count, dropped = 0, report.dropped_offsets  # which ascend
    for records in iter_records(source, batches, control="include"):
        offsets = records["offset"]
        at = np.searchsorted(dropped, offsets, "right") - 1
        if len(dropped) and (dropped[at] == offsets).any():
            raise RewriteError(f"{source.path}: a record that was dropped is still there")
        count += len(records)
    if count != report.kept_records:
        raise RewriteError(f"{source.path}: {count} records, not {report.kept_records}")
    for records in iter_records(source, batches):
        if not keep(records).all():
            raise RewriteError(f"{source.path}: a record is still there that was to go")


def without_keys(keys: Iterable[bytes]) -> Callable[[RecordTable], NDArray[np.bool_]]:
    """
    Return what keeps all records but those with some keys.

    Parameters
    ----------
    keys : iterable of bytes

    Returns
    -------
    callable
        A `keep` of `filter_records` and `scrub_log`.
    """
    wanted: dict[int, list[bytes]] = {}
    for key in keys:
        wanted.setdefault(len(key), []).append(key)

    def keep(records: RecordTable) -> NDArray[np.bool_]:
        mask = np.ones(len(records), np.bool_)
        for size, of_size in wanted.items():
            rows = np.flatnonzero(records.columns["key_size"] == size)
            mask[rows] = False
            if size and len(rows):
                # NumPy's strings lose zeros at their end; among those of one size that is no harm.
                found = records[rows].gathered("key").data.view(f"S{size}")
                mask[rows] = ~np.isin(found, np.array(of_size, f"S{size}"))
        return mask

    return keep


def without_offsets(
    first: int | None = None, last: int | None = None
) -> Callable[[RecordTable], NDArray[np.bool_]]:
    """
    Return what keeps all records but those of a range of offsets.

    Parameters
    ----------
    first, last : int, optional
        Of the range, both belonging to it; open where it is not given.
    """

    def keep(records: RecordTable) -> NDArray[np.bool_]:
        offsets = records.columns["offset"]
        is_dropped = np.ones(len(records), np.bool_)
        if first is not None:
            is_dropped &= offsets >= first
        if last is not None:
            is_dropped &= offsets <= last
        return ~is_dropped

    return keep
