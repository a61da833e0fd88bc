"""Crash recovery of log directories without a broker; dry run by default."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from kafkascan.broker_state.checkpoints import (
    CLEAN_SHUTDOWN_FILE,
    LOG_START_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    CleanShutdown,
    clean_shutdown_file,
    read_offset_checkpoint,
)
from kafkascan.broker_state.indexes import DEFAULT_INTERVAL_BYTES, require_interval_bytes
from kafkascan.broker_state.producer_state import PRODUCER_EXPIRATION_MS
from kafkascan.format.errors import NoLogsError
from kafkascan.format.findings import Severity
from kafkascan.format.times import TimeLike, to_milliseconds
from kafkascan.io.atomic_files import AtomicFile
from kafkascan.io.concurrency import are_small, map_ordered, require_threads
from kafkascan.logs.data_dir_lock import as_data_dir, data_dirs_of, locked
from kafkascan.logs.log_dir import LogDir, PartitionDir, no_logs, open_log_dir, partition_dir
from kafkascan.logs.metadata_log import METADATA_PARTITION, ClusterMetadata, read_cluster_metadata
from kafkascan.recovery.apply_changes import ChangeApplier, apply_all, remove_partial_files
from kafkascan.recovery.loading.load_findings import LoadFinding
from kafkascan.recovery.loading.log_loader import LoadedLog, LoadSettings, load_log
from kafkascan.recovery.loading.planned_files import Action, Change, PlannedFiles
from kafkascan.recovery.recovery_results import PartitionRecovery, Recovery

# Brokers load the metadata log separately, at every start and in full (KafkaRaftLog).
_METADATA_TOPIC = METADATA_PARTITION.rpartition("-")[0]
# Number of partitions whose files are written together: one wait for the disk makes them all
# durable.
_PARTITIONS_TOGETHER = 16

OnProgress = Callable[[PartitionRecovery, int, int], object]


def recover(
    path: str | os.PathLike[str],
    /,
    *,
    dry_run: bool | None = None,
    write: bool = False,
    truncate: bool = False,
    backup: bool = True,
    mark_clean: bool = True,
    verify: bool = False,
    broker_epoch: int | None = None,
    recovery_point: int | None = None,
    log_start_offset: int | None = None,
    interval_bytes: int | None = None,
    tiered_topics: Collection[str] | None = None,
    producer_expiration_ms: int = PRODUCER_EXPIRATION_MS,
    now_ms: TimeLike | None = None,
    threads: int | None = None,
    on_progress: OnProgress | None = None,
) -> Recovery:
    """
    Recover logs as a broker does when it starts after an unclean shutdown.

    Finds the valid part of each log by its checksums, and rebuilds indexes, producer snapshots
    and leader epochs. Without `write`, nothing is changed and the result lists the changes.

    Parameters
    ----------
    path : path
        A broker's data directory, or a partition directory.
    dry_run : bool, optional
        The opposite of `write`.
    write : bool, default False
        Write the files. Replaced files are kept next to them as ``.bak``.
    truncate : bool, default False
        Also truncate logs after their last valid batch and drop the segments after it, as brokers
        do. The discarded bytes are kept next to the log as ``.tail-<position>.bak``. Segments of
        brokers before 1.1 whose range of offsets is too large are split (KAFKA-6264). Without
        `truncate`, no log is changed, and the broker truncates it; the directory of a log that
        has to be split is not changed at all.
    backup : bool, default True
        Keep files that are replaced, truncated or dropped.
    mark_clean : bool, default True
        Write ``.kafka_cleanshutdown`` once all logs of a data directory are recovered, so that
        the next broker skips recovery. Not if a log has a finding that is more than a note.
    verify : bool, default False
        Verify also the checksums of the segments below the recovery point. A broker does not read
        them, so their damage stays: it is reported in `PartitionRecovery.findings`.
    broker_epoch : int, optional
        The broker epoch in that file: the epoch of the broker's last registration, without which
        the controller elects new leaders as after an unclean shutdown (KIP-966). By default it is
        read from the metadata log, if the data directory contains that.
    recovery_point : int, optional
        Offset up to which logs were flushed: segments before the one that contains it are not
        recovered. By default from the data directory's checkpoint; 0 reads all of each log.
    log_start_offset : int, optional
        By default from the data directory's checkpoint, or 0.
    interval_bytes : int, optional
        The broker's ``index.interval.bytes``. By default the configuration of the topic or of the
        cluster, if the data directory contains the metadata log; 4096 otherwise.
    tiered_topics : collection of str, optional
        Topics with ``remote.storage.enable``. Their logs start at the offset in the data
        directory's checkpoint, and keep the producer state at their first local segment. By
        default the topics that the metadata log names. For topics that are not in it: those
        whose log start offset in the checkpoint is before their first segment.
    producer_expiration_ms : int, default one day
        The broker's ``producer.id.expiration.ms``.
    now_ms : int, str, datetime, numpy.datetime64 or pandas.Timestamp, optional
        Time at which producers are checked for expiration, in milliseconds since the epoch; by
        default now.
    threads : int, optional
        Number of threads that recover partitions; by default one per CPU.
    on_progress : callable, optional
        Called with the result of each partition, the number of results so far, and the number
        of partitions.

    Returns
    -------
    Recovery
        The results of all partitions. An error in one partition does not prevent the recovery of
        others; it is in `PartitionRecovery.error`.

    Raises
    ------
    LogDirInUseError
        If files are to be written and a broker holds the lock of the data directory.
    CorruptCheckpointError
        If a checkpoint of the data directory cannot be read.
    NoLogsError
        If there are no logs to recover.
    OSError
        If `path` cannot be read.

    Notes
    -----
    Follows ``LogLoader`` and ``LogSegment.recover`` of Kafka 4. Recovery may be interrupted at any
    point and repeated: each file is replaced atomically. In a data directory, logs that are being
    deleted are skipped, as is the metadata log, which brokers load separately.
    """
    if dry_run is not None and dry_run == write:
        raise ValueError("dry_run and write contradict each other")
    if truncate and not write:
        raise ValueError("truncate needs write=True")
    if interval_bytes is not None:
        require_interval_bytes(interval_bytes)
    threads = require_threads(threads)
    target = _target_of(Path(path))
    data_dir = target.data_dir
    metadata = ClusterMetadata() if data_dir is None else read_cluster_metadata(data_dir)
    settings = LoadSettings(producer_expiration_ms=producer_expiration_ms, verify=verify)
    if now_ms is not None:
        settings = replace(settings, now_ms=to_milliseconds(now_ms, "now_ms"))
    settings_of = _partition_settings(
        settings,
        data_dir,
        metadata,
        recovery_point,
        log_start_offset,
        interval_bytes,
        tiered_topics,
    )

    def plan_group(group: list[PartitionDir]) -> list[PartitionRecovery]:
        return [_planned(one, settings_of(one))[0] for one in group]

    if not write:
        partitions = _for_groups(target.partitions, plan_group, threads, on_progress)
        return Recovery(target.path, partitions, had_clean_shutdown=target.had_clean_shutdown)
    with locked(*target.data_dirs):
        recover_group = partial(
            _recover_group, settings_of=settings_of, truncate=truncate, backup=backup
        )
        partitions = _for_groups(target.partitions, recover_group, threads, on_progress)
        done = Recovery(target.path, partitions, had_clean_shutdown=target.had_clean_shutdown)
        is_sound = done.is_in_order and not done.has_alarms
        if mark_clean and target.is_complete and is_sound:
            known = metadata.broker_epoch if broker_epoch is None else broker_epoch
            done.broker_epoch = -1 if known is None else known
            _write_clean_shutdown(target.path, done.broker_epoch)
            done.is_marked_clean = True
    return done


# ---- the partitions to recover ----------------------------------------------------------------


@dataclass(frozen=True)
class _Target:
    """
    The partitions of a path, and the data directories that contain them.

    Attributes
    ----------
    path : Path
    partitions : list of PartitionDir
    data_dirs : list of Path
        The data directories to lock: links may lead to partitions of other brokers.
    data_dir : Path or None
        The data directory with the checkpoints and the metadata log.
    is_complete : bool
        Whether the partitions are all logs of the data directory: no directory has another name
        than that of a partition.
    """

    path: Path
    partitions: list[PartitionDir]
    data_dirs: list[Path]
    data_dir: Path | None
    is_complete: bool

    @property
    def had_clean_shutdown(self) -> bool:
        """Whether the data directory is marked as cleanly shut down."""
        return self.data_dir is not None and (self.data_dir / CLEAN_SHUTDOWN_FILE).exists()


def _target_of(path: Path) -> _Target:
    log_dir = open_log_dir(path)
    found = log_dir.partitions
    if _is_partition(log_dir):
        one = _without_link(path)
        data_dirs = data_dirs_of(one.path)
        return _Target(path, [one], data_dirs, data_dirs[0] if data_dirs else None, False)
    partitions = _loaded_by_broker(found)
    data_dir = as_data_dir(path)
    if not partitions:
        reason = "no logs to recover: brokers load the metadata log separately"
        raise NoLogsError(str(path), reason)
    if data_dir is None and not any(one.segments for one in partitions):
        raise no_logs(path)
    linked = [one.path for one in partitions if one.path.is_symlink()]
    data_dirs = [] if data_dir is None else [data_dir]
    data_dirs += [found_in for one in linked for found_in in data_dirs_of(one)]
    has_others = any(one.topic is None and one.path != path for one in found)
    return _Target(path, partitions, data_dirs, data_dir, path == data_dir and not has_others)


def _is_partition(log_dir: LogDir) -> bool:
    """Return whether a directory has the name of a partition, or contains segments."""
    if not log_dir.is_partition or as_data_dir(log_dir.path) is not None:
        return False
    (here,) = log_dir.partitions
    return here.topic is not None or any(one.name.kind == "log" for one in here.segments)


def _without_link(path: Path) -> PartitionDir:
    """Return a partition under the name that its broker uses; a link may have any name."""
    here, there = Path(os.path.abspath(path)), Path(os.path.realpath(path))
    is_elsewhere = as_data_dir(here.parent) is None and as_data_dir(there.parent) is not None
    return partition_dir(there if is_elsewhere else path)


def _loaded_by_broker(partitions: list[PartitionDir]) -> list[PartitionDir]:
    return [one for one in partitions if one.topic not in (None, _METADATA_TOPIC) and one.is_log]


# ---- settings ---------------------------------------------------------------------------------


def _checkpoint(data_dir: Path | None, name: str) -> dict[tuple[str, int], int]:
    """Read an offset checkpoint of a data directory; empty if there is none."""
    if data_dir is None or not (data_dir / name).exists():
        return {}
    return read_offset_checkpoint(data_dir / name)


def _partition_settings(
    settings: LoadSettings,
    data_dir: Path | None,
    metadata: ClusterMetadata,
    recovery_point: int | None,
    log_start_offset: int | None,
    interval_bytes: int | None,
    tiered_topics: Collection[str] | None,
) -> Callable[[PartitionDir], LoadSettings]:
    """Return a function from partitions to settings; arguments override the data directory."""
    recovery_points = _checkpoint(data_dir, RECOVERY_POINT_CHECKPOINT)
    log_starts = _checkpoint(data_dir, LOG_START_CHECKPOINT)

    def settings_of(one: PartitionDir) -> LoadSettings:
        topic, key = one.topic or "", (one.topic or "", one.partition or 0)
        interval = interval_bytes
        if interval is None:
            interval = metadata.config_of(topic).interval_bytes
        is_tiered = metadata.is_tiered(topic) if tiered_topics is None else topic in tiered_topics
        is_guessed = is_tiered is None and _starts_before_segments(one, log_starts.get(key))
        return replace(
            settings,
            recovery_point=_given_or(recovery_point, recovery_points.get(key, 0)),
            log_start_offset=_given_or(log_start_offset, log_starts.get(key, 0)),
            is_tiered=bool(is_tiered) or is_guessed,
            is_tiering_guessed=is_guessed,
            interval_bytes=_given_or(interval, DEFAULT_INTERVAL_BYTES),
        )

    return settings_of


def _given_or(given: int | None, default: int) -> int:
    return default if given is None else given


def _starts_before_segments(one: PartitionDir, log_start: int | None) -> bool:
    """
    Return whether the checkpoint has a log start offset before the first local segment.

    Brokers write such offsets for tiered topics only (``checkpointLogStartOffsetsInDir``).
    Otherwise the entry is older than the deletion of segments. Then a snapshot too many stays,
    which the broker deletes when it loads the log.
    """
    if log_start is None:
        return False
    with contextlib.suppress(OSError):  # loading the partition reports it
        bases = [segment.name.base_offset for segment in one.log_segments]
        return bool(bases) and log_start < (bases[0] or 0)
    return False


# ---- recovery of partitions -------------------------------------------------------------------


def _planned(
    one: PartitionDir, settings: LoadSettings
) -> tuple[PartitionRecovery, PlannedFiles | None]:
    """Load a log and plan its changes; there are no files if it cannot be loaded."""
    try:
        log = load_log(one.path, settings)
        changes = log.files.changes()
    except Exception as error:  # an error of any kind must not affect other partitions
        return PartitionRecovery(one.path, one.topic, one.partition, error=error), None
    result = PartitionRecovery(
        path=one.path,
        topic=one.topic,
        partition=one.partition,
        log_start_offset=log.log_start_offset,
        log_end_offset=log.log_end_offset,
        is_tiered=settings.is_tiered,
        segments=log.segments,
        leader_epochs=log.leader_epochs,
        findings=log.findings + _tiering_notes(log, settings),
        changes=changes,
    )
    return result, log.files


def _tiering_notes(log: LoadedLog, settings: LoadSettings) -> list[LoadFinding]:
    """Return a note if a log is taken for one of a tiered topic because of its checkpoint."""
    if not settings.is_tiering_guessed:
        return []
    message = (
        f"the log start offset {log.log_start_offset} in the checkpoint is before the first"
        " segment, and no metadata log describes the topic: it is taken for a tiered topic"
    )
    return [LoadFinding("TIERING_GUESSED", Severity.NOTE, message)]


def _recover_group(
    group: list[PartitionDir],
    *,
    settings_of: Callable[[PartitionDir], LoadSettings],
    truncate: bool,
    backup: bool,
) -> list[PartitionRecovery]:
    """Recover several partitions; their files are written together."""
    results: list[PartitionRecovery] = []
    appliers: list[tuple[PartitionRecovery, ChangeApplier]] = []
    for one in group:
        with contextlib.suppress(OSError):
            remove_partial_files(one.path)
        result, files = _planned(one, settings_of(one))
        results.append(result)
        if files is not None:
            changes = _permitted(result.changes, truncate=truncate)
            appliers.append((result, ChangeApplier(files, changes, backup=backup)))
    apply_all([applier for _, applier in appliers])
    for result, applier in appliers:
        result.applied, result.error = applier.applied, applier.error
    return results


def _permitted(changes: list[Change], *, truncate: bool) -> list[Change]:
    """Without `truncate`, return only the changes that do not depend on a changed log."""
    if truncate:
        return changes
    if any(change.action is Action.SPLIT for change in changes):
        return []
    return [change for change in changes if not change.shortens_log]


def _write_clean_shutdown(data_dir: Path, broker_epoch: int) -> None:
    mark = clean_shutdown_file(CleanShutdown(version=0, broker_epoch=broker_epoch))
    with AtomicFile(data_dir / CLEAN_SHUTDOWN_FILE, like=data_dir) as file:
        file.stream.write(mark)


def _for_groups(
    partitions: list[PartitionDir],
    work: Callable[[list[PartitionDir]], list[PartitionRecovery]],
    threads: int,
    on_progress: OnProgress | None,
) -> list[PartitionRecovery]:
    """Work on groups of partitions on several threads; return the results in order."""
    size = max(1, min(_PARTITIONS_TOGETHER, len(partitions) // threads))
    groups = [partitions[first : first + size] for first in range(0, len(partitions), size)]
    one_at_a_time = threading.Lock()

    def work_on(group: list[PartitionDir]) -> list[PartitionRecovery]:
        with one_at_a_time if _has_small_segments(group) else contextlib.nullcontext():
            return work(group)

    results: list[PartitionRecovery] = []
    for result in map_ordered(groups, work_on, threads):
        results.append(result)
        if on_progress is not None:
            on_progress(result, len(results), len(partitions))
    return results


def _has_small_segments(partitions: list[PartitionDir]) -> bool:
    """Return whether segments are so small that the interpreter bounds the work on them."""
    sizes = []
    for one in partitions:
        # Loading the partition reports errors.
        with contextlib.suppress(OSError), os.scandir(one.path) as entries:
            sizes += [entry.stat().st_size for entry in entries if entry.name.endswith(".log")]
    return are_small(sizes)
