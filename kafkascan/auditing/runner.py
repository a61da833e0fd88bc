"""Audit log directories for damage, inconsistencies and risks."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kafkascan.analysis.transaction_contradictions import Coordinators
from kafkascan.analysis.transactions import TRANSACTION_TIMEOUT_MS
from kafkascan.auditing.cluster_checks import (
    AuditedDirs,
    ClusterChecks,
    OpenTransaction,
    check_cluster,
)
from kafkascan.auditing.finding_kinds import NOTE, Audit, FoundInLog, LogFinding, fold_padded
from kafkascan.auditing.header_checks import (
    EARLIEST_MS,
    FUTURE_MS,
    MANY_PRODUCERS,
    Limits,
    size_limit,
)
from kafkascan.auditing.log_audit import AuditedLog, LogAudit, LogCheckpoints
from kafkascan.auditing.placement_checks import (
    UnreadCheckpoints,
    check_duplicates,
    check_folders,
    check_states,
    check_topics,
)
from kafkascan.auditing.segment_checks import AuditInspector, read_indexes
from kafkascan.broker_state.checkpoints import (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
from kafkascan.broker_state.offset_checkpoints import CheckpointReader
from kafkascan.broker_state.producer_state import PRODUCER_EXPIRATION_MS
from kafkascan.format.arguments import require_integers, require_not_negative
from kafkascan.format.times import TimeLike, milliseconds_or_now, moment_of
from kafkascan.io.concurrency import Share, allocate_threads, map_unordered
from kafkascan.io.folders import SWAP_WAITS_S, DiskFolder, PinnedFolder
from kafkascan.io.stores.store_folders import UrlFolder
from kafkascan.io.stores.urls import ObjectUrl, as_object_url
from kafkascan.logs.data_dir_lock import LogClocks
from kafkascan.logs.log_chunks import threads_for
from kafkascan.logs.log_dir import LogDir, PartitionDir, SegmentKinds
from kafkascan.logs.log_finding import PartitionFilter, find_log_dir, no_logs, partition_of
from kafkascan.logs.log_problems import OFFSET_GAP
from kafkascan.logs.log_table import LogDirLike
from kafkascan.logs.metadata_log import METADATA_PARTITION, TopicConfig, read_metadata_log
from kafkascan.logs.opened_logs import LogsLike, LogView, list_logs, open_logs, selected_logs
from kafkascan.logs.segment import SegmentFile
from kafkascan.logs.walking.log_walk import LogWalk

if TYPE_CHECKING:
    from kafkascan.auditing.tiers.tier_audit import TierAudit


def audit(
    logs: LogsLike,
    /,
    *,
    topics: Collection[str] | None = None,
    partitions: Collection[int] | None = None,
    verify: bool = True,
    deep: bool = False,
    now_ms: TimeLike | None = None,
    future_ms: int = FUTURE_MS,
    earliest_ms: int = EARLIEST_MS,
    max_message_bytes: int | None = None,
    many_producers: int = MANY_PRODUCERS,
    timeout_ms: int = TRANSACTION_TIMEOUT_MS,
    expiration_ms: int = PRODUCER_EXPIRATION_MS,
    threads: int | None = None,
    on_progress: Callable[[int, int], object] | None = None,
    keep_cache: bool = False,
    storage_options: Mapping[str, object] | None = None,
    cluster: LogDirLike | None = None,
    other_dirs: Iterable[LogDirLike] = (),
) -> Audit:
    """
    Check logs and their side files for damage, inconsistencies and risks.

    Parameters
    ----------
    logs : path, LogDir, PartitionDir, bytes-like, Source or SegmentFile
        A data dir, the folder of a partition, a tar of them; a tier (`open_tiered`), whose
        objects, manifests and lineage are checked, too; or a source, which is read as a
        log of one segment.
    topics : collection of str, optional
        Topics to read of a directory or an archive; by default all.
    partitions : collection of int, optional
        Numbers of the partitions to read; by default all.
    verify : bool, default True
        Compare the checksums of all batches. Without it, only headers and markers are read.
    deep : bool, default False
        Also decode records: check that they can be read and that the latest timestamp of each
        batch is theirs, and count tombstones.
    now_ms : int, str, datetime, numpy.datetime64 or pandas.Timestamp, optional
        Milliseconds since the epoch; by default now. Open transactions of a log whose data dir
        no broker has locked, such as a copy, are by default as old as they were at the latest
        write to the log.
    future_ms : int, default 1 hour
        How far ahead of now a timestamp may be (``message.timestamp.after.max.ms``).
    earliest_ms : int, default 2011
        Earlier timestamps are findings.
    max_message_bytes : int, optional
        Overrides the ``max.message.bytes`` of all topics; larger batches are a warning. By
        default it is each topic's own as the metadata log of the data dir has it now, else the
        brokers' default there, else Kafka's default; larger batches are a note.
    many_producers : int, default 10000
        Number of active producers in one partition above which there is a finding.
    timeout_ms : int, default 15 minutes
        The broker's ``transaction.max.timeout.ms``.
    expiration_ms : int, default 1 day
        The broker's ``producer.id.expiration.ms``.
    threads : int, optional
        Number of threads; by default one per CPU. They read several logs, or several segments
        of a large one. Small segments are read by one thread.
    on_progress : callable, optional
        Is called with the number of bytes of segments that are done, and with the total.
    keep_cache : bool, default False
        Leave everything in the page cache. By default, what was not there before the audit is
        dropped from it, in pieces of 4 MiB, so that an audit of cold files evicts no other ones.
        Segments below 128 KiB and side files are left there.
    storage_options : mapping, optional
        Options of the store, for a URL; see `ObjectUrl`.
    cluster : path, URL or LogDir, optional
        For a tier: a data dir with ``__remote_log_metadata``, and with the metadata log. Segments
        that the cluster does not know, or that are not there, deleted topics and the retention
        of topics are findings then. `now_ms` counts for retention.
    other_dirs : iterable of path, URL or LogDir
        Other data dirs that are audited, too: `Audit.unchecked` does not name those of the same
        broker. Of their files, only ``meta.properties`` is read; URLs have no influence.

    Returns
    -------
    Audit
        One finding for each kind in each file, with the number of occurrences.

    Raises
    ------
    NotALogError
        If `logs` is a file of another kind, such as a text or an index.
    As `open_log_dir`. What is wrong inside the logs is a finding, not an exception.

    Notes
    -----
    An audit reads everything that is on disk, also batches before the log start offset: a broker
    reads them when it recovers the log.

    Notes are found in the data dirs of healthy brokers, too, whether they run, were stopped or
    were killed; warnings and errors are not. Memory: at most ten chunks of 65,536 headers for
    each thread.
    """
    require_integers(future_ms=future_ms, earliest_ms=earliest_ms)
    require_not_negative(
        timeout_ms=timeout_ms,
        expiration_ms=expiration_ms,
        max_message_bytes=max_message_bytes,
        many_producers=many_producers,
    )
    limits = Limits(
        now_ms=milliseconds_or_now(now_ms, "now_ms"),
        future_ms=future_ms,
        earliest_ms=earliest_ms,
        max_message_bytes=max_message_bytes,
        many_producers=many_producers,
        timeout_ms=timeout_ms,
        expiration_ms=expiration_ms,
    )
    logs = selected_logs(
        as_object_url(logs, storage_options), PartitionFilter.of(topics, partitions)
    )
    if isinstance(logs, (str, os.PathLike, ObjectUrl)):
        logs = find_log_dir(logs) or logs
    tier = _tier_of(logs)
    if cluster is not None and tier is None:
        raise TypeError("cluster is for remote storage: a data dir is compared with its own topics")
    logs = logs if tier is None else tier.logs
    listed = logs.partitions if isinstance(logs, LogDir) else []
    unread = UnreadCheckpoints()
    path, audited = _audited_logs(
        logs,
        None if now_ms is None else moment_of(now_ms, "now_ms"),
        CheckpointReader(unread.add),
    )
    if not audited and all(one.is_log for one in listed):
        raise no_logs(path, listed)
    shares, at_once, total = _share_threads(audited, threads, needs_sizes=on_progress is not None)
    audit_log = partial(
        _audit_log, audited, limits=limits, verify=verify, deep=deep, keep_cache=keep_cache,
        tier=tier,
    )  # fmt: skip
    by_log: list[list[LogFinding]] = [[] for _ in audited]
    opened: list[OpenTransaction] = []
    size = segments = batches = 0
    for step in map_unordered(shares, audit_log, at_once):
        size += step.size
        segments += step.segments
        batches += step.batches
        by_log[step.log] += step.findings
        opened += step.opened
        if on_progress is not None:
            on_progress(size, total)
    placements = [
        *check_states(listed), *check_topics(listed), *check_duplicates(listed),
    ]  # fmt: skip
    # The topics of Kafka itself are not in remote storage.
    in_cluster = ClusterChecks()
    if tier is not None and cluster is not None:
        in_cluster = tier.check_cluster(cluster, limits.now_ms)
    elif isinstance(logs, LogDir) and tier is None:
        others = other_dirs if isinstance(other_dirs, AuditedDirs) else AuditedDirs(other_dirs)
        in_cluster = check_cluster(logs, opened, others)
        placements += check_folders(logs)
    of_logs = itertools.chain(*by_log)
    of_tier = [] if tier is None else tier.findings()
    found = [*unread.findings, *of_tier, *placements, *in_cluster.findings, *of_logs]
    findings = fold_padded(found, path)
    count = sum(not one.is_snapshot for one in audited)
    return Audit(path, findings, count, segments, batches, size, in_cluster.unchecked)


# ---- what is audited -------------------------------------------------------------------------


def _tier_of(logs: LogsLike) -> TierAudit | None:
    """Return the audit of a tier; None for other logs, which need none of its modules."""
    if not isinstance(logs, LogDir) or type(logs) is LogDir:
        return None
    from kafkascan.auditing.tiers.tier_audit import TierAudit
    from kafkascan.tiered.tier_listing import TieredLogs

    return TierAudit(logs) if isinstance(logs, TieredLogs) else None


def _audited_logs(
    logs: LogsLike, now_ms: int | None, reader: CheckpointReader
) -> tuple[Path, list[AuditedLog]]:
    """Return the path of an audit, and its logs; KRaft snapshots come last."""
    clocks = LogClocks(now_ms)
    partitions = _partitions(logs)
    # Checkpoints are read before segments are listed: a broker may write both meanwhile.
    known = {one: _checkpoints_of(one, reader) for one in partitions}
    opened, snapshots = _opened(logs)
    configs = _topic_configs(partitions)
    coordinators, without_settings = Coordinators(), TopicConfig()
    audited = [
        AuditedLog(
            log,
            known.get(log.partition) or _checkpoints_of(log.partition, reader),
            configs.get(log.partition, without_settings),
            clocks.time_of(log.partition),
            coordinators=coordinators,
        )
        for log in opened
    ]
    audited = _with_listed_checkpoints(audited)
    audited += [
        AuditedLog(one, LogCheckpoints(), without_settings, is_snapshot=True) for one in snapshots
    ]
    return logs.path if isinstance(logs, LogDir) else opened[0].partition.path, audited


def _with_listed_checkpoints(audited: list[AuditedLog]) -> list[AuditedLog]:
    """Return logs, those listed again for which the cleaner wrote its checkpoint meanwhile."""
    now = CheckpointReader(lambda path, error: None)

    def is_of_listing(log: AuditedLog) -> bool:
        return now.offset_of(log.log.partition, CLEANER_CHECKPOINT) == log.checkpoints.cleaned_up_to

    return [log if is_of_listing(log) else _listed_now(log) or log for log in audited]


def _opened(logs: LogsLike) -> tuple[list[LogView], list[LogView]]:
    """Return the logs that a broker would load, from their first offset on, and KRaft snapshots."""
    if not isinstance(logs, LogDir):
        return open_logs(logs, 0), []
    opened, snapshots = [], []
    both = SegmentKinds.LOG | SegmentKinds.KRAFT_SNAPSHOTS | SegmentKinds.DROPPED_LOGS
    for one in list_logs(logs, both):
        segments = [segment for segment in one.segments if segment.name.is_live]
        is_loaded = one.partition.is_log or logs.is_partition
        if is_loaded and (segments or one.error is not None):
            start = (segments[0].base_offset or 0) if segments else 0
            opened.append(
                LogView(one.partition, tuple(segments), start, one.error, names=one.names)
            )
        others = (segment for segment in one.segments if not segment.name.is_live)
        snapshots += [LogView(one.partition, (segment,), names=one.names) for segment in others]
    return opened, snapshots


def _partitions(logs: LogsLike) -> list[PartitionDir]:
    if isinstance(logs, LogDir):
        return logs.partitions
    if isinstance(logs, LogView) and not logs.is_single_file:
        return [logs.partition]
    return [logs] if isinstance(logs, PartitionDir) else []


def _checkpoints_of(partition: PartitionDir, reader: CheckpointReader) -> LogCheckpoints:
    names = (
        CLEANER_CHECKPOINT,
        HIGH_WATERMARK_CHECKPOINT,
        RECOVERY_POINT_CHECKPOINT,
        LOG_START_CHECKPOINT,
    )
    return LogCheckpoints(*reader.offsets_of(partition, *names))


def _topic_configs(partitions: list[PartitionDir]) -> dict[PartitionDir, TopicConfig]:
    """Return the topics' settings in the metadata log of the data dir, by partition."""
    metadata_log = _metadata_partition(partitions)
    if metadata_log is None:
        return {}
    try:
        metadata = read_metadata_log(metadata_log)
    except OSError:
        return {}
    return {
        one: metadata.config_of(one.topic)
        for one in partitions
        # Settings of topics and brokers do not apply to the metadata log itself.
        if one.topic is not None and one.topic != metadata_log.topic
    }


def _metadata_partition(partitions: list[PartitionDir]) -> PartitionDir | None:
    """Return the metadata log of a data dir, whether or not it exists."""
    for one in partitions:
        if f"{one.topic}-{one.partition}" == METADATA_PARTITION:
            return one
    parent = partitions[0].folder.parent if partitions else None
    if isinstance(parent, (DiskFolder, UrlFolder)):
        return partition_of(parent.folder(METADATA_PARTITION))
    return None


# ---- how it is audited -----------------------------------------------------------------------


class _Step(NamedTuple):
    """Progress of the audit of a log; the last step of a log has its findings."""

    log: int
    batches: int = 0
    segments: int = 0
    size: int = 0
    findings: Sequence[LogFinding] = ()
    opened: Sequence[OpenTransaction] = ()


def _share_threads(
    audited: list[AuditedLog], threads: int | None, *, needs_sizes: bool
) -> tuple[list[Share], int, int]:
    """Return threads for each log, how many logs are audited concurrently, and all their bytes."""
    logs = [one.log for one in audited]
    count = threads_for([(log.partition, one) for log in logs for one in log.segments], threads)
    if count == 1 and not needs_sizes:
        return [Share(number, 1) for number in range(len(logs))], 1, 0
    sizes = [sum(segment.current_size() for segment in log.segments) for log in logs]
    return *allocate_threads(sizes, count), sum(sizes)


# Retention and the cleaner seldom change the same log twice while it is read.
_LOOKS_AGAIN = 3
_GONE = "a broker deleted the topic, or moved the log, while it was audited"
_CHANGED = "a broker changed the log while it was audited: findings may not be of one time"


def _audit_log(
    audited: list[AuditedLog],
    share: Share,
    *,
    limits: Limits,
    verify: bool,
    deep: bool,
    keep_cache: bool,
    tier: TierAudit | None,
) -> Iterator[_Step]:
    """Audit one log."""
    one = audited[share.log_index]
    if one.log.error is not None:
        message = f"the folder cannot be listed: {one.log.error.strerror}"
        unread = FoundInLog.of(one.log.partition).add("UNREADABLE", None, message)
        yield _Step(share.log_index, findings=[unread])
    if not one.log.segments:
        return
    largest = size_limit(limits, one.config).size_in_bytes

    def open_inspector(segment: SegmentFile) -> AuditInspector:
        indexes = read_indexes(segment, one.log.names)
        return AuditInspector(segment, indexes, limits, largest, verify=verify, deep=deep)

    for is_last in [False] * _LOOKS_AGAIN + [True]:
        # Side files are read before the log: a broker may write both meanwhile.
        current = LogAudit(one, limits, frozenset(one.log.names))
        walk = LogWalk([one.log], share.threads, open_inspector, once=False, keep_cache=keep_cache)
        batches = segments = size = present = 0
        for part in walk:
            is_bad = current.add(part)
            if tier is not None:
                tier.add(share.log_index, part.batches, part.chunk.segment, is_bad)
            ends = part.chunk.ends
            step = _Step(
                share.log_index, len(part.batches), len(ends), sum(end.size for end in ends)
            )
            batches += step.batches
            segments += step.segments
            size += step.size
            present += sum(not end.is_gone for end in ends)
            yield step
        findings = current.finish(walk.problems)
        is_changed = bool(findings) and _has_changed(one, findings)
        # Notes are no reason to read all of it again.
        are_notes = all(finding.severity is NOTE for finding in findings)
        if present and (is_last or are_notes or not is_changed):
            if is_changed:
                findings = [*findings, _changed(one.log, _CHANGED)]
            yield _Step(share.log_index, findings=findings, opened=current.opened)
            return
        yield _Step(share.log_index, -batches, -segments, -size)
        again = None if is_last else _listed_again(one)
        if again is None:
            gone = [] if one.is_snapshot else [_changed(one.log, _GONE)]
            yield _Step(share.log_index, findings=gone)
            return
        one = again


def _changed(log: LogView, message: str) -> LogFinding:
    return FoundInLog.of(log.partition).add("CHANGED_WHILE_READ", None, message)


def _has_changed(audited: AuditedLog, findings: Sequence[LogFinding]) -> bool:
    """Return whether a log changed while it was read, which may have caused findings."""
    if _has_lost_files(audited.log):
        return True
    if audited.is_snapshot or audited.checkpoints.cleaned_up_to:
        return False
    # The cleaner replaces segments before it writes the checkpoint that explains their gaps.
    has_gap = any(finding.symbol == OFFSET_GAP for finding in findings)
    return has_gap and _cleaned_up_to(audited.log) > 0


def _cleaned_up_to(log: LogView) -> int:
    """Return a log's offset in the cleaner's checkpoint now."""
    checkpoints = CheckpointReader(lambda path, error: None)
    return checkpoints.offset_of(log.partition, CLEANER_CHECKPOINT)


def _has_lost_files(log: LogView) -> bool:
    """Return whether files of a log were replaced, removed or cut off since it was listed."""
    if not all(segment.is_in_place() for segment in log.segments):
        return True
    folder = log.segments[0].folder
    if not isinstance(folder, PinnedFolder):
        return False
    try:
        for segment in log.segments:
            folder.listed_size(segment.file_name)
        return not set(log.names).issubset(DiskFolder(folder.path).names())
    except OSError:
        return True


def _listed_again(one: AuditedLog) -> AuditedLog | None:
    """
    Return a log as it is now; None if a broker has deleted it.

    A broker that moves a log between disks renames the folder, and then the copy.
    """
    for seconds in SWAP_WAITS_S:
        again = _listed_now(one)
        if again is not None or one.is_snapshot:
            return again
        time.sleep(seconds)
    return None


def _listed_now(one: AuditedLog) -> AuditedLog | None:
    """Return a log with the cleaner's checkpoint of the same moment, if that is to be had."""
    again = None
    for _ in range(_LOOKS_AGAIN):
        checkpoints = _checkpoints_of(one.log.partition, CheckpointReader())
        again = _listed_with(one, checkpoints)
        if again is None or _cleaned_up_to(again.log) == checkpoints.cleaned_up_to:
            break
    return again


def _listed_with(one: AuditedLog, checkpoints: LogCheckpoints) -> AuditedLog | None:
    """Return a log as it is listed now, with checkpoints that were read before; None if gone."""
    partition = one.log.partition
    opened, snapshots = _opened(LogDir(partition.path, [partition]))
    names = [segment.file_name for segment in one.log.segments]
    for log in snapshots if one.is_snapshot else opened:
        if log.error is None and (not one.is_snapshot or log.segments[0].file_name in names):
            known = LogCheckpoints() if one.is_snapshot else checkpoints
            return replace(one, log=log, checkpoints=known)
    return None
