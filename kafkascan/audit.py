"""Logs looked through for everything that is not as it should be."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from kafkascan.audit_batches import EARLIEST_MS, FUTURE_MS, Limits
from kafkascan.audit_files import check_state
from kafkascan.audit_findings import Audit, FoundInLog, LogFinding
from kafkascan.audit_log import LogAudit, Marks
from kafkascan.audit_looks import AuditLooks
from kafkascan.checkpoints import (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
from kafkascan.errors import CorruptCheckpointError
from kafkascan.folders import DiskFolder, Folder
from kafkascan.log_chunks import ChunkTables, OpenLook, threads_for
from kafkascan.log_dir import (
    LogDir,
    PartitionDir,
    SegmentFile,
    is_log_dir,
    open_log_dir,
    partition_dir,
    read_offsets,
)
from kafkascan.logs import Log, LogsLike, LogWalk, open_logs
from kafkascan.metadata_log import METADATA_PARTITION, read_metadata_log
from kafkascan.ordered import Share, as_they_come, share_out
from kafkascan.producers import PRODUCER_EXPIRATION_MS
from kafkascan.transaction_spans import TRANSACTION_TIMEOUT_MS

OnProgress = Callable[[int, int], object]


def audit(
    logs: LogsLike,
    /,
    *,
    verify: bool = True,
    deep: bool = False,
    now_ms: int | None = None,
    future_ms: int = FUTURE_MS,
    earliest_ms: int = EARLIEST_MS,
    max_message_bytes: int | None = None,
    many_producers: int = 10_000,
    timeout_ms: int = TRANSACTION_TIMEOUT_MS,
    expiration_ms: int = PRODUCER_EXPIRATION_MS,
    threads: int | None = None,
    on_progress: OnProgress | None = None,
) -> Audit:
    """
    Look through logs, and what stands beside them, for everything that is not as it should be.

    Parameters
    ----------
    logs : path, LogDir, PartitionDir, bytes-like, Source or Segment
        A data dir, the folder of a partition, a tar of them; or a source, which is taken as
        all there is of its log.
    verify : bool, default True
        Compare the checksums of all batches. Without it, only headers and markers are read.
    deep : bool, default False
        Decode records, too: whether they can be read, whether the latest timestamp of each
        batch is theirs, how many tombstones there are.
    now_ms : int, optional
        Milliseconds since the epoch; by default now.
    future_ms : int, default 1 hour
        How far ahead of now a timestamp may be (``message.timestamp.after.max.ms``).
    earliest_ms : int, default 2011
        Earlier timestamps are not believed.
    max_message_bytes : int, optional
        The topics' ``max.message.bytes``. By default what the metadata log in the data dir says
        of each topic now, or that of all brokers, or else Kafka's default; batches above
        that are no more than a note.
    many_producers : int, default 10000
        More producers than this in one partition are too many.
    timeout_ms : int, default 15 minutes
        The broker's ``transaction.max.timeout.ms``.
    expiration_ms : int, default 1 day
        The broker's ``producer.id.expiration.ms``.
    threads : int, optional
        Logs, or segments of a large one, that are read at once; by default one per CPU. Small
        segments are read in turn.
    on_progress : callable, optional
        Gets how many bytes of segments are done, and of how many.

    Returns
    -------
    Audit
        A finding for each kind of thing in each file, with how often it is there.

    Raises
    ------
    As `open_log_dir`. Whatever is wrong inside of the logs is a finding.

    Notes
    -----
    Logs are judged as brokers leave them: what is no more than a note is found in the data dirs
    of healthy brokers, also of those that run or were killed. Memory: at most
    ten chunks of 65,536 headers for each thread.
    """
    limits = Limits(
        now_ms=time.time_ns() // 1_000_000 if now_ms is None else now_ms,
        future_ms=future_ms,
        earliest_ms=earliest_ms,
        max_message_bytes=max_message_bytes,
        many_producers=many_producers,
        timeout_ms=timeout_ms,
        expiration_ms=expiration_ms,
    )
    if isinstance(logs, (str, os.PathLike)) and is_log_dir(Path(logs)):
        logs = open_log_dir(logs)
    return _Auditing(logs, limits, on_progress).run(verify=verify, deep=deep, threads=threads)


class _Seen(NamedTuple):
    """What has been seen of a log since, and what was found when that is all."""

    log: int
    batches: int = 0
    segments: int = 0
    size: int = 0
    findings: Sequence[LogFinding] = ()


class _Auditing:
    """One audit: what is looked at, and what has been found."""

    def __init__(self, logs: LogsLike, limits: Limits, on_progress: OnProgress | None) -> None:
        self._limits = limits
        self._on_progress = on_progress
        self._checkpoints: dict[Path, dict[tuple[str, int], int]] = {}
        # Before segments are listed: a broker may write both meanwhile.
        for partition in _partitions(logs):
            self._marks(partition)
        self._logs = open_logs(logs)
        self._path = logs.path if isinstance(logs, LogDir) else self._path_of_logs()
        self._others = logs.partitions if isinstance(logs, LogDir) else []
        snapshots = [log for one in self._others for log in _kraft_snapshots(one)]
        self._looked_at = [*self._logs, *snapshots]
        self._total = 0
        self._tables = ChunkTables()
        # By the identity of a folder: the logs hold it for as long as all this lasts.
        self._names_in: dict[int, frozenset[str]] = {}
        self._limits_in = self._limits_of_topics(_partitions(logs))

    def _path_of_logs(self) -> Path:
        return self._logs[0].partition.path if self._logs else Path()

    def run(self, *, verify: bool, deep: bool, threads: int | None) -> Audit:
        """Look at everything."""

        def look(segment: SegmentFile) -> AuditLooks:
            names, limits = self._names(segment.folder), self._limits_of(segment.folder)
            return AuditLooks(segment, names, limits, verify=verify, deep=deep)

        shares, at_once = self._shared(threads)
        by_log: list[list[LogFinding]] = [[] for _ in self._looked_at]
        size = done = batches = 0
        for seen in as_they_come(shares, lambda one: self._look_at(one, look), at_once):
            size += seen.size
            done += seen.segments
            batches += seen.batches
            by_log[seen.log] += seen.findings
            if self._on_progress is not None:
                self._on_progress(size, self._total)
        of_others = [_of_state(one) for one in self._others if not one.is_log]
        findings = list(itertools.chain(*of_others, *by_log))
        return Audit(self._path, findings, len(self._logs), done, batches, size)

    def _shared(self, threads: int | None) -> tuple[list[Share], int]:
        """Share threads out to logs by their sizes; return how many logs get theirs at once."""
        logs = self._looked_at
        count = threads_for([(one.partition, s) for one in logs for s in one.segments], threads)
        if count == 1 and self._on_progress is None:
            return [Share(number, 1) for number in range(len(logs))], 1
        sizes = [sum(map(_size, log.segments)) for log in logs]
        self._total = sum(sizes)
        return share_out(sizes, count)

    def _look_at(self, share: Share, look: OpenLook) -> Iterator[_Seen]:
        """Look at one log; yield what has been seen of it, and at last what was found."""
        log = self._looked_at[share.job]
        current: LogAudit | None = None
        for piece in LogWalk([log], share.threads, look, self._tables):
            current = current or self._audit_of(log, is_snapshot=share.job >= len(self._logs))
            current.add(piece)
            ends = piece.chunk.ends
            size = sum(end.size for end in ends)
            yield _Seen(share.job, len(piece.batches), len(ends), size)
        if current is not None:
            yield _Seen(share.job, findings=current.finish())
            self._names_in.pop(id(log.partition.folder), None)

    def _audit_of(self, log: Log, *, is_snapshot: bool) -> LogAudit:
        folder = log.partition.folder
        marks = Marks() if is_snapshot else self._marks(log.partition)
        limits, names = self._limits_of(folder), self._names(folder)
        return LogAudit(log, limits, marks, names, is_snapshot=is_snapshot)

    def _names(self, folder: Folder) -> frozenset[str]:
        """Return the names of the files in a folder, listed once for all of its segments."""
        names = self._names_in.get(id(folder))
        if names is None:
            names = self._names_in[id(folder)] = frozenset(folder.names())
        return names

    def _limits_of(self, folder: Folder) -> Limits:
        return self._limits_in.get(id(folder), self._limits)

    def _limits_of_topics(self, partitions: list[PartitionDir]) -> dict[int, Limits]:
        """Return the limits of the logs that the metadata log says something of, by folder."""
        place = _metadata_partition(partitions)
        if place is None or self._limits.max_message_bytes is not None:
            return {}
        try:
            said = read_metadata_log(place)
        except OSError:
            return {}
        limits = {}
        for one in partitions:
            # The metadata log itself has no limit that a topic or a broker could be given.
            if one.topic is not None and one.topic != place.topic:
                of_topic = said.max_message_bytes.get(one.topic, said.default_max_message_bytes)
                limits[id(one.folder)] = replace(self._limits, topic_max_message_bytes=of_topic)
        return limits

    def _marks(self, partition: PartitionDir) -> Marks:
        """Return what the checkpoints of a data dir say of a log."""
        if partition.topic is None or partition.partition is None:
            return Marks()
        place = partition.topic, partition.partition
        names = CLEANER_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT, RECOVERY_POINT_CHECKPOINT
        return Marks(
            *(self._checkpoint(partition.folder.parent, name).get(place, 0) for name in names)
        )

    def _checkpoint(self, data_dir: Folder, name: str) -> dict[tuple[str, int], int]:
        path = data_dir.path / name
        if path not in self._checkpoints:
            try:
                self._checkpoints[path] = read_offsets(data_dir, name)
            except CorruptCheckpointError:  # of the data dir, not of this log
                self._checkpoints[path] = {}
        return self._checkpoints[path]


def _partitions(logs: LogsLike) -> list[PartitionDir]:
    if isinstance(logs, LogDir):
        return logs.partitions
    return [logs] if isinstance(logs, PartitionDir) else []


def _metadata_partition(partitions: list[PartitionDir]) -> PartitionDir | None:
    """Return the metadata log of a data dir, whether or not it is there."""
    for one in partitions:
        if f"{one.topic}-{one.partition}" == METADATA_PARTITION:
            return one
    if partitions and isinstance(partitions[0].folder, DiskFolder):
        return partition_dir(partitions[0].folder.parent.path / METADATA_PARTITION)
    return None


def _size(segment: SegmentFile) -> int:
    try:
        return segment.size
    except OSError:
        return 0


def _of_state(partition: PartitionDir) -> list[LogFinding]:
    found = FoundInLog()
    check_state(partition, found)
    return found.findings(partition.topic, partition.partition, partition.path)


def _kraft_snapshots(partition: PartitionDir) -> list[Log]:
    """Return the snapshots of a metadata log, each as a log of its own."""
    return [Log(partition, [one]) for one in partition.kraft_snapshots]
