"""Copy segments from remote storage into partition directories that a broker starts on."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

import numpy as np

from kafkascan.batches.columns import BatchTable, offset_after
from kafkascan.batches.scan import scan_batches
from kafkascan.batches.verify import verify_crcs
from kafkascan.broker_state.checkpoints import (
    PARTITION_METADATA,
    PartitionMetadata,
    partition_metadata_file,
)
from kafkascan.broker_state.index_checks import check_parsed_index, parse_index_file
from kafkascan.format.errors import CorruptLogError, NoLogsError, record_error
from kafkascan.format.file_names import sibling_name
from kafkascan.format.findings import Severity
from kafkascan.format.layout import ScanEnd
from kafkascan.format.texts import few_lines
from kafkascan.io.atomic_files import AtomicFile
from kafkascan.io.concurrency import map_ordered, require_threads
from kafkascan.io.source_protocols import FileRange
from kafkascan.io.sources import read_bytes
from kafkascan.io.staged_folders import stage_folder
from kafkascan.io.stores.urls import Place, disk_path
from kafkascan.logs.data_dir_lock import data_dirs_of, locked
from kafkascan.logs.log_dir import PartitionDir
from kafkascan.logs.segment import SegmentFile
from kafkascan.recovery.crash_recovery import recover
from kafkascan.recovery.recovery_results import PartitionRecovery
from kafkascan.recovery.recovery_schemas import RESTORE_SCHEMA
from kafkascan.tables.schema import Schema
from kafkascan.tables.table import AnyTable, Column, Problem, Problems, problem_of
from kafkascan.tiered.tier_listing import TieredLogs, open_tiered
from kafkascan.tiered.tier_segments import TierProblem

_COPY_BYTES = 1 << 23
_CHECKED_KINDS = ("index", "timeindex")


@dataclass
class PartitionRestore:
    """
    The copy of one partition.

    Attributes
    ----------
    path : pathlib.Path
        In remote storage.
    destination : pathlib.Path or None
        The directory that was written; None if nothing was written.
    topic : str
    topic_id : str or None
    partition : int
    segments : int
    size : int
        Bytes of the segments.
    start_offset : int
        The first offset of the new log.
    end_offset : int or None
        The offset after the last batch; None if it is not known without reading.
    gaps : list of (int, int)
        Offsets that no segment contains, although later ones exist: the first one, and the
        first one after them. They are known if segments are copied.
    rebuilt : list of str
        Index files that were missing or wrong in remote storage, and were rebuilt.
    error : Exception or None
        Why the partition was not copied.
    """

    path: Path
    destination: Path | None
    topic: str
    topic_id: str | None
    partition: int
    segments: int
    size: int
    start_offset: int
    end_offset: int | None = None
    gaps: list[tuple[int, int]] = field(default_factory=list)
    rebuilt: list[str] = field(default_factory=list)
    error: Exception | None = None


@dataclass(frozen=True, repr=False)
class Restore(AnyTable):
    """
    The result of `restore`, a row per partition.

    Attributes
    ----------
    path : pathlib.Path
        The remote storage.
    destination : pathlib.Path or None
    partitions : list of PartitionRestore
    tier_problems : list of TierProblem
        What is wrong in the remote storage as a whole; see `TieredLogs`.
    """

    schema: ClassVar[Schema] = RESTORE_SCHEMA

    path: Path
    destination: Path | None
    partitions: list[PartitionRestore]
    tier_problems: list[TierProblem]

    @property
    def problems(self) -> Problems:
        """What is wrong in remote storage, missing offsets, and why partitions were not copied."""
        found = [
            Problem("TIER", str(one), str(self.path), Severity.WARNING, rows_missing=False)
            for one in self.tier_problems
        ]
        for one in self.partitions:
            of_log = [
                Problem("MISSING_RANGE", f"no segment contains the offsets {first} to {after - 1}",
                        str(one.path), rows_missing=False, offset=first, count=after - first)
                for first, after in one.gaps
            ]  # fmt: skip
            if one.error is not None:
                of_log.append(problem_of(one.error, str(one.destination or one.path)))
            found += [replace(p, topic=one.topic, partition=one.partition) for p in of_log]
        return Problems(found)

    def __len__(self) -> int:
        return len(self.partitions)

    def to_columns(self) -> dict[str, Column]:
        """Return the values of each column."""
        rows = [
            {
                **vars(one),
                "gaps": len(one.gaps),
                "rebuilt": len(one.rebuilt),
                "destination": None if one.destination is None else str(one.destination),
                "error": None if one.error is None else str(one.error),
            }
            for one in self.partitions
        ]
        return {name: [row[name] for row in rows] for name in RESTORE_SCHEMA.names}

    def _summary_lines(self) -> list[str]:
        complete = "complete" if self.is_complete else "not complete"
        failed_first = sorted(self.partitions, key=lambda one: (one.error is None, not one.gaps))
        lines = (
            f"  {one.topic}-{one.partition}: {one.segments:,} segments, offsets"
            f" {one.start_offset} to {one.end_offset}, {len(one.gaps):,} gaps"
            + ("" if one.error is None else f"; {one.error}")
            for one in failed_first
        )
        return few_lines(f"<Restore {self.path}: {complete}>", lines).split("\n")

    @property
    def is_complete(self) -> bool:
        """Whether all partitions were copied, and no offset is missing between segments."""
        return not any(one.error or one.gaps for one in self.partitions)


def restore(
    tier: TieredLogs | Place,
    destination: str | os.PathLike[str] | None = None,
    /,
    *,
    topics: Collection[str] | None = None,
    new_topic_id: str | None = None,
    threads: int | None = None,
    on_progress: Callable[[PartitionRestore, int, int], object] | None = None,
) -> Restore:
    """
    Copy partitions from remote storage (KIP-405) into directories that a broker starts on.

    Parameters
    ----------
    tier : TieredLogs, path or URL
        What `open_tiered` returns, or takes.
    destination : path, optional
        The directory that receives a directory for each partition, such as a broker's data
        directory while no broker runs. Each one appears when it is complete; one that exists is
        an error of its partition. Without a destination, nothing is read or written but the
        listing.
    topics : collection of str, optional
        Names or ids of topics; by default all.
    new_topic_id : str, optional
        The id to write to ``partition.metadata`` of all partitions, which must be those of one
        topic: for a cluster in which the topic was created again. By default it is the id in the
        remote storage. A broker sets a log aside whose topic id the cluster does not know.
    threads : int, optional
        Segments that are copied at the same time; by default one per CPU.
    on_progress : callable, optional
        Called with the result of each partition, the number of results so far, and the number
        of partitions.

    Returns
    -------
    Restore
        An error in one partition does not prevent the copy of others; it is in
        `PartitionRestore.error`.

    Raises
    ------
    ValueError
        If `new_topic_id` is not an id, or there are several topics.
    NoLogsError
        If the remote storage has no segments of these topics.
    LogDirInUseError
        If the destination is in a data directory that a broker uses.
    OSError
        If the destination cannot be created.
    As `open_tiered`.

    Notes
    -----
    Segments, indexes, producer snapshots, leader epochs and the topic id are those of the remote
    storage. Every checksum is verified: a damaged segment is the error of its partition, and so are
    segments that overlap, such as uploads of two leaders. Indexes
    that are missing, or contradict their segment, are built as a broker builds them. The new log
    starts at the first offset in remote storage and ends at the last one: records that only
    were on the disks of brokers are not in it, and transactions whose end was among them are
    open. Memory: 8 MiB and 69 bytes per batch for each thread.
    """
    threads = require_threads(threads)
    opened = tier if isinstance(tier, TieredLogs) else open_tiered(tier)
    target = None if destination is None else disk_path(destination)
    chosen = [one for one in opened.partitions if _is_chosen(one, topics)]
    if not chosen:
        names = ", ".join(sorted(topics or ()))
        raise NoLogsError(str(opened.path), f"no segments of {names} here")
    if new_topic_id is not None:
        _metadata_file(new_topic_id)
        if len({(one.topic, one.topic_id) for one in chosen}) > 1:
            raise ValueError("new_topic_id is for one topic; select it by topics")
    known = Counter(_directory_name(one) for one in chosen)
    if target is not None:
        target.mkdir(parents=True, exist_ok=True)
    done: list[PartitionRestore] = []
    with contextlib.ExitStack() as steps:
        if target is not None:
            steps.enter_context(locked(*data_dirs_of(target / "any-0"), shared=True))
        for one in chosen:
            result = _described(one)
            try:
                folder = _directory_of(one, target, known)
                if folder is not None:
                    _restore_partition(one, folder, result, new_topic_id, threads)
            except Exception as error:  # an error of any kind must not affect other partitions
                result.error = error
            done.append(result)
            if on_progress is not None:
                on_progress(result, len(done), len(chosen))
    return Restore(opened.path, target, done, opened.problems)


def _is_chosen(one: PartitionDir, topics: Collection[str] | None) -> bool:
    return topics is None or one.topic in topics or one.topic_id in topics


def _directory_name(one: PartitionDir) -> str:
    return f"{one.topic}-{one.partition}"


def _described(one: PartitionDir) -> PartitionRestore:
    logs = one.log_segments
    return PartitionRestore(
        path=one.path,
        destination=None,
        topic=one.topic or "",
        topic_id=one.topic_id,
        partition=one.partition or 0,
        segments=len(logs),
        size=sum(log.size for log in logs),
        start_offset=logs[0].base_offset or 0,
    )


def _directory_of(one: PartitionDir, target: Path | None, names: Counter[str]) -> Path | None:
    """Return the directory to write; it must not exist, nor be that of another topic."""
    name = _directory_name(one)
    if "/" in name or "\0" in name:
        raise ValueError(f"{one.path}: {one.topic!r} is not a name of a topic")
    if target is None:
        return None
    if names[name] > 1:
        reason = f"{names[name]} topics have this name; choose one by its id ({one.topic_id})"
        raise FileExistsError(f"{target / name}: {reason}")
    if os.path.lexists(target / name):
        raise FileExistsError(f"{target / name}: the directory exists")
    return target / name


def _restore_partition(
    one: PartitionDir,
    target: Path,
    result: PartitionRestore,
    new_topic_id: str | None,
    threads: int,
) -> None:
    staged = stage_folder(target)
    try:
        # Recovery locks the directory around it, which must not be one that a broker loads.
        folder = staged.path.with_name("restore") / target.name
        folder.mkdir(parents=True)
        logs = one.log_segments
        copied = map_ordered(logs, lambda log: [_copy_segment(log, folder)], threads)
        ends = list(copied)
        result.rebuilt = [name for end in ends for name in end.rebuilt]
        result.gaps = list(_gaps(logs, ends))
        compared = {sibling for log in logs for sibling in _indexes(log)}
        _copy_side_files(one, folder, compared)
        if new_topic_id is not None:
            _write(folder / PARTITION_METADATA, _metadata_file(new_topic_id))
        known = [end.offset for end in ends if end.offset is not None]
        result.end_offset = max(known, default=result.start_offset)
        recovery = recover(
            folder,
            write=True,
            backup=False,
            recovery_point=result.end_offset,
            interval_bytes=None,
            threads=1,
        )
        _require_sound(one, recovery.partitions[0])
        for path in folder.iterdir():
            path.rename(staged.path / path.name)
        staged.publish()
        result.destination = staged.target
    finally:
        staged.discard()


def _require_sound(one: PartitionDir, done: PartitionRecovery) -> None:
    """Raise the error of a copy that no broker loads, or that it would serve wrongly."""
    if done.error is not None:
        raise done.error
    for finding in done.findings:
        if finding.severity is Severity.ERROR:
            name = finding.file or done.segments[0].name
            reason, position = finding.message, finding.position or 0
            raise CorruptLogError(str(one.path / name), position, None, reason, finding.symbol)


@dataclass(frozen=True)
class _Copied:
    """The offset after a segment's last batch, and the indexes that are not in remote storage."""

    offset: int | None
    rebuilt: list[str]


def _copy_segment(log: SegmentFile, folder: Path) -> _Copied:
    """Copy a segment and its indexes, and compare them."""
    target = folder / log.file_name
    with log.open() as source, AtomicFile(target, like=folder) as file:
        for position in range(0, source.size, _COPY_BYTES):
            size = min(_COPY_BYTES, source.size - position)
            file.stream.write(read_bytes(source, position, size))
        size = source.size
    batches = _verified_batches(FileRange(str(target), 0, size, str(log.path)))
    rebuilt = []
    for kind in _CHECKED_KINDS:
        found = log.read_sibling(kind)
        if found is not None and _is_right(found[1], found[0], batches):
            _write(folder / found[0].name, found[1])
        else:
            rebuilt.append(sibling_name(log.file_name, kind) or kind)
    return _Copied(offset_after(batches) if len(batches) else None, rebuilt)


def _verified_batches(copy: FileRange) -> BatchTable:
    scan = scan_batches(copy)
    if scan.end is not ScanEnd.CLEAN:
        reason = f"{scan.trailing_bytes} bytes after the last batch are no batch"
        raise CorruptLogError(copy.path, scan.valid_bytes, None, reason, "TORN_TAIL")
    wrong = np.flatnonzero(~verify_crcs(copy, scan.batches))
    if len(wrong):
        raise record_error("CHECKSUM_MISMATCH", copy.path, scan.batches[wrong[0]])
    return scan.batches


def _is_right(data: bytes, path: Path, batches: BatchTable) -> bool:
    try:
        findings = check_parsed_index(parse_index_file(data, path), path, batches)
    except CorruptLogError:
        return False
    return all(one.severity is Severity.NOTE for one in findings)


def _indexes(log: SegmentFile) -> Iterator[str]:
    for kind in _CHECKED_KINDS:
        yield sibling_name(log.file_name, kind) or kind


def _copy_side_files(one: PartitionDir, folder: Path, without: Collection[str]) -> None:
    """Copy all files but logs and the indexes that were compared."""
    logs = {log.file_name for log in one.log_segments}
    for name in one.folder.names():
        data = None if name in logs or name in without else one.folder.read(name)
        if data is not None:
            _write(folder / name, data)


def _metadata_file(topic_id: str) -> bytes:
    return partition_metadata_file(PartitionMetadata(0, topic_id))


def _write(path: Path, data: bytes) -> None:
    with AtomicFile(path, like=path.parent) as file:
        file.stream.write(data)


def _gaps(logs: Sequence[SegmentFile], ends: Sequence[_Copied]) -> Iterator[tuple[int, int]]:
    reached = logs[0].base_offset or 0
    for log, end in zip(logs, ends, strict=True):
        if (log.base_offset or 0) > reached:
            yield reached, log.base_offset or 0
        reached = max(reached, log.base_offset or 0, end.offset or 0)
