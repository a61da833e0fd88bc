"""Crash recovery of log directories without a broker; dry run by default."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from kafkascan.broker_state.checkpoints import (
    CLEAN_SHUTDOWN_FILE,
    CleanShutdown,
    clean_shutdown_file,
)
from kafkascan.broker_state.indexes import require_interval_bytes
from kafkascan.broker_state.producer_state import PRODUCER_EXPIRATION_MS
from kafkascan.broker_state.server_properties import ServerProperties, read_server_properties
from kafkascan.format.arguments import require_items, require_not_negative
from kafkascan.format.errors import LinkedFileError, NoLogsError, SourceReadError
from kafkascan.format.file_names import METADATA_TOPIC
from kafkascan.format.times import TimeLike, milliseconds_or_now
from kafkascan.io.atomic_files import AtomicFile
from kafkascan.io.concurrency import are_small, map_ordered, require_threads
from kafkascan.io.stores.urls import disk_path
from kafkascan.logs.data_dir_lock import as_data_dir, data_dirs_of, locked, parents_of
from kafkascan.logs.log_dir import LogDir, PartitionDir
from kafkascan.logs.log_finding import no_logs, open_log_dir, partition_dir
from kafkascan.recovery.loading.log_loader import LoadSettings
from kafkascan.recovery.log_jobs import LogJob, log_names, recover_logs, require_logs
from kafkascan.recovery.partition_settings import PartitionSettings, first_set, read_metadata
from kafkascan.recovery.recovery_results import PartitionRecovery, Recovery


@dataclass(frozen=True)
class Target:
    """
    The partitions of a path, and the data directories that contain them.

    Attributes
    ----------
    path : Path
    partitions : list of PartitionDir
    locked : list of Path
        The directories to lock: links may lead to partitions of other brokers.
    data_dir : Path or None
        The data directory with the checkpoints and the metadata log.
    is_complete : bool
        Whether the partitions are all logs of the data directory: no directory has another name
        than that of a partition.
    """

    path: Path
    partitions: list[PartitionDir]
    locked: list[Path]
    data_dir: Path | None
    is_complete: bool

    @functools.cached_property
    def had_clean_shutdown(self) -> bool:
        """Whether the data directory is marked as cleanly shut down."""
        return self.data_dir is not None and (self.data_dir / CLEAN_SHUTDOWN_FILE).exists()


def find_targets(paths: list[Path]) -> list[Target]:
    """
    Return the partitions of data directories and partition directories.

    Raises
    ------
    NoLogsError
        If a path contains no logs. A data directory may be empty if others are not.
    OSError
        If a directory cannot be listed.
    """
    if len(paths) == 1:
        return [_target_of(paths[0])]
    targets, empty = list[Target](), list[NoLogsError]()
    for path in paths:
        try:
            targets.append(_target_of(path))
        except NoLogsError as error:
            if as_data_dir(path) is None:
                raise
            empty.append(error)
            targets.append(Target(path, [], [path], path, True))
    if len(empty) == len(targets):
        raise empty[0]
    return targets


def find_duplicates(targets: list[Target]) -> dict[Path, Path]:
    """
    Return directories that are of the same partition, each with another one of them.

    A broker does not start if two data directories contain the same log.
    """
    found: dict[tuple[str | None, int | None, str | None], list[Path]] = {}
    for target in targets:
        for one in target.partitions:
            found.setdefault((one.topic, one.partition, one.state), []).append(one.path)
    return {
        path: paths[0] if path != paths[0] else paths[1]
        for paths in found.values()
        if len(paths) > 1
        for path in paths
    }


def require_different(targets: list[Target]) -> None:
    """Raise `ValueError` if a directory is named twice, or is inside another one that is named."""
    if len(targets) < 2:
        return
    paths = [os.path.realpath(one.path) for one in targets]
    inside = [os.path.realpath(one.path) for target in targets for one in target.partitions]
    for found in (paths, inside):
        for path, count in Counter(found).items():
            if count > 1:
                raise ValueError(f"{path} is named {count} times")


def _target_of(path: Path) -> Target:
    log_dir = open_log_dir(path)
    if path.is_file():
        reason = "a tar archive is only read: unpack it, and recover the directory"
        raise NotADirectoryError(errno.ENOTDIR, reason, str(path))
    found = log_dir.partitions
    if _is_partition(log_dir):
        one = _without_link(path)
        data_dirs = data_dirs_of(one.path)
        return Target(path, [one], parents_of(one.path), data_dirs[0] if data_dirs else None, False)
    partitions = _loaded_by_broker(found)
    data_dir = as_data_dir(path)
    if not partitions:
        reason = "no logs to recover: brokers load the metadata log separately"
        raise NoLogsError(str(path), reason)
    if data_dir is None and not any(one.segments for one in partitions):
        raise no_logs(path)
    linked = [one.path for one in partitions if one.path.is_symlink()]
    locked = [path, *(parent for one in linked for parent in parents_of(one))]
    has_others = any(one.topic is None and one.path != path for one in found)
    return Target(path, partitions, locked, data_dir, path == data_dir and not has_others)


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
    # Brokers load the metadata log separately, at every start and in full (KafkaRaftLog).
    return [one for one in partitions if one.topic not in (None, METADATA_TOPIC) and one.is_log]


# Number of partitions whose files are written together: one wait for the disk makes them all
# durable.
_PARTITIONS_TOGETHER = 16
# Of as many partitions of a group, the segments of one are asked for their sizes.
_SAMPLED = 4


def recover(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | None = None,
    /,
    *,
    write: bool = False,
    truncate: bool = False,
    backup: bool = True,
    mark_clean: bool = True,
    verify: bool | None = None,
    broker_epoch: int | None = None,
    recovery_point: int | None = None,
    log_start_offset: int | None = None,
    interval_bytes: int | None = None,
    broker_interval_bytes: int | None = None,
    server_properties: str | os.PathLike[str] | None = None,
    tiered_topics: Collection[str] | None = None,
    producer_expiration_ms: int | None = None,
    follow_links: bool = False,
    now_ms: TimeLike | None = None,
    threads: int | None = None,
    on_progress: Callable[[PartitionRecovery, int, int], object] | None = None,
    on_verify: Callable[[list[Path], int], object] | None = None,
) -> Recovery:
    """
    Recover logs as a broker does when it starts after an unclean shutdown.

    Finds the valid part of each log by its checksums, and rebuilds indexes, producer snapshots
    and leader epochs. Without `write`, nothing is changed and the result lists the changes.

    Parameters
    ----------
    paths : path or iterable of paths, optional
        A broker's data directory, all of its data directories, or partition directories. By
        default the directories in `server_properties`.
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
        the next broker skips recovery. Not if a log has a finding that is an error.
    verify : bool, optional
        Verify also the checksums of the segments below the recovery point, which is a pass over
        all bytes. A broker does not read them, so their damage stays: it is reported in
        `PartitionRecovery.findings`. By default in data directories that are marked as cleanly
        shut down, where a broker recovers nothing; segments that are not verified elsewhere are in
        `PartitionRecovery.unverified`.
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
        ``index.interval.bytes`` of all topics. By default each topic's own setting, if a data
        directory contains the metadata log, and `broker_interval_bytes` for other topics.
    broker_interval_bytes : int, optional
        The broker's ``log.index.interval.bytes``. By default from `server_properties`, or 4096.
        A value that was set while the brokers ran (a dynamic one) is not used: brokers apply it
        after they have loaded their logs.
    server_properties : path, optional
        The broker's configuration file. Its data directories, ``log.index.interval.bytes``,
        ``producer.id.expiration.ms``, ``log.cleanup.policy`` and
        ``remote.log.storage.system.enable`` are used.
    tiered_topics : collection of str, optional
        Topics with ``remote.storage.enable``. Their logs start at the offset in the data
        directory's checkpoint, and keep the producer state at their first local segment. By
        default the topics that the metadata log names. For topics that are not in it: those
        whose log start offset in the checkpoint is before their first segment.
    producer_expiration_ms : int, optional
        The broker's ``producer.id.expiration.ms``. By default from `server_properties`, or one
        day.
    follow_links : bool, default False
        Change files behind symbolic links inside a partition directory. Otherwise a link to a
        file that has to be changed is the error of its partition.
    now_ms : int, str, datetime, numpy.datetime64 or pandas.Timestamp, optional
        Time at which producers are checked for expiration, in milliseconds since the epoch; by
        default now.
    threads : int, optional
        Number of threads that recover partitions; by default one per CPU.
    on_progress : callable, optional
        Called with the result of each partition, the number of results so far, and the number
        of partitions.
    on_verify : callable, optional
        Called before any log is read, if `verify` is not given and there are directories that
        are marked as cleanly shut down: with their paths, and the number of bytes to verify.

    Returns
    -------
    Recovery
        The results of all partitions. An error in one partition does not prevent the recovery of
        others; it is in `PartitionRecovery.error`, such as a `DuplicateLogError`, a
        `LinkedFileError`, or a `FileChangedError` if another process changed a log since it was
        read: such a log is not changed.

    Raises
    ------
    LogDirInUseError
        If files are to be written and a broker, or another run, holds the lock of a directory.
    LinkedFileError
        If the lock file of a data directory is a symbolic link.
    CorruptCheckpointError
        If a checkpoint of a data directory, or `server_properties`, cannot be read.
    NoLogsError
        If there are no logs to recover.
    OSError
        If a path cannot be read.

    Notes
    -----
    Follows ``LogLoader`` and ``LogSegment.recover`` of Kafka 4. Recovery may be interrupted at any
    point and repeated: each file is replaced atomically. In a data directory, logs that are being
    deleted are skipped, as is the metadata log, which brokers load separately.
    """
    if truncate and not write:
        raise ValueError("truncate needs write=True")
    for given in (interval_bytes, broker_interval_bytes):
        if given is not None:
            require_interval_bytes(given)
    require_not_negative(
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
        producer_expiration_ms=producer_expiration_ms,
    )
    require_items(str, tiered_topics=tiered_topics)
    threads = require_threads(threads)
    properties = None if server_properties is None else read_server_properties(server_properties)
    targets = find_targets(_paths(paths, properties))
    require_different(targets)
    duplicates = find_duplicates(targets)
    metadata = read_metadata(_metadata_folders(targets, properties))
    settings = PartitionSettings(
        LoadSettings(
            producer_expiration_ms=first_set(
                producer_expiration_ms,
                None if properties is None else properties.producer_expiration_ms,
                PRODUCER_EXPIRATION_MS,
            ),
            now_ms=milliseconds_or_now(now_ms, "now_ms"),
        ),
        metadata,
        properties,
        recovery_point,
        log_start_offset,
        interval_bytes,
        broker_interval_bytes,
        tiered_topics,
    )
    jobs = [
        LogJob(
            one,
            replace(own, verify=target.had_clean_shutdown if verify is None else verify),
            duplicates.get(one.path),
            log_names(one.path),
            follow_links=follow_links,
        )
        for target in targets
        for one, own in zip(
            target.partitions,
            settings.of_partitions(target.partitions, target.data_dir),
            strict=True,
        )
    ]
    clean = [one for one in targets if one.had_clean_shutdown and one.partitions]
    if on_verify is not None and verify is None and clean:
        on_verify([one.path for one in clean], sum(map(_log_size, clean)))
    done = Recovery(
        [target.path for target in targets],
        had_clean_shutdown=[
            one.data_dir for one in targets if one.data_dir is not None and one.had_clean_shutdown
        ],
    )
    work = functools.partial(recover_logs, write=write, truncate=truncate, backup=backup)
    if not write:
        done.partitions = _for_groups(jobs, work, threads, on_progress)
        return done
    with locked(*(folder for target in targets for folder in target.locked)):
        done.partitions = _for_groups(jobs, work, threads, on_progress)
        for job, one in zip(jobs, done.partitions, strict=True):
            require_logs(one, job.logs)
        if mark_clean:
            known = metadata.broker_epoch if broker_epoch is None else broker_epoch
            _mark_clean(done, targets, -1 if known is None else known)
    return done


def _paths(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | None,
    properties: ServerProperties | None,
) -> list[Path]:
    if paths is None:
        if properties is None:
            raise ValueError("paths or server_properties must be given")
        return properties.log_dirs
    if isinstance(paths, (str, os.PathLike)):
        return [disk_path(paths)]
    found = [disk_path(one) for one in paths]
    if not found:
        raise ValueError("paths is empty")
    return found


def _metadata_folders(targets: list[Target], properties: ServerProperties | None) -> list[Path]:
    """Return the directories that may contain the metadata log."""
    folders = [one.data_dir for one in targets if one.data_dir is not None]
    if properties is not None:
        folders += [] if properties.metadata_dir is None else [properties.metadata_dir]
        folders += properties.log_dirs
    return list(dict.fromkeys(folders))


def _log_size(target: Target) -> int:
    """Return the size of all logs of a directory that can be listed, in bytes."""
    size = 0
    for one in target.partitions:
        with contextlib.suppress(OSError):  # the result of the partition has the error
            size += sum(segment.current_size() for segment in one.log_segments)
    return size


# ---- the mark of a clean shutdown -------------------------------------------------------------


def _mark_clean(done: Recovery, targets: list[Target], broker_epoch: int) -> None:
    """Mark the data directories whose logs are all recovered and without alarms."""
    by_path = {one.path: one for one in done.partitions}
    for target in targets:
        logs = [by_path[one.path] for one in target.partitions]
        is_sound = all(one.is_in_order and not one.has_alarms for one in logs)
        if target.is_complete and is_sound and not _has_new_logs(target, done):
            _write_clean_shutdown(target.path, broker_epoch)
            done.marked_clean.append(target.path)
            done.broker_epoch = broker_epoch


def _has_new_logs(target: Target, done: Recovery) -> bool:
    """Return whether there are logs that were not there at the start; they are errors."""
    known = {one.path for one in target.partitions}
    try:
        now = find_targets([target.path])[0].partitions
    except NoLogsError:
        return False
    new = [one for one in now if one.path not in known]
    for one in new:
        error = SourceReadError(str(one.path), 0, "the log appeared during the recovery")
        done.partitions.append(PartitionRecovery(one.path, one.topic, one.partition, error=error))
    return bool(new)


def _write_clean_shutdown(data_dir: Path, broker_epoch: int) -> None:
    mark = clean_shutdown_file(CleanShutdown(version=0, broker_epoch=broker_epoch))
    path = data_dir / CLEAN_SHUTDOWN_FILE
    if path.is_symlink():
        raise LinkedFileError(str(path))
    with AtomicFile(path, like=data_dir) as file:
        file.stream.write(mark)


# ---- threads ----------------------------------------------------------------------------------


def _for_groups(
    jobs: list[LogJob],
    work: Callable[[list[LogJob]], list[PartitionRecovery]],
    threads: int,
    on_progress: Callable[[PartitionRecovery, int, int], object] | None,
) -> list[PartitionRecovery]:
    """Work on groups of partitions on several threads; return the results in order."""
    size = max(1, min(_PARTITIONS_TOGETHER, len(jobs) // threads))
    groups = [jobs[first : first + size] for first in range(0, len(jobs), size)]
    is_small = [_has_small_segments(group) for group in groups]
    one_at_a_time = threading.Lock()

    def work_on(number: int) -> list[PartitionRecovery]:
        with one_at_a_time if is_small[number] else contextlib.nullcontext():
            return work(groups[number])

    results: list[PartitionRecovery] = []
    threads = 1 if all(is_small) else threads
    for result in map_ordered(range(len(groups)), work_on, threads):
        results.append(result)
        if on_progress is not None:
            on_progress(result, len(results), len(jobs))
    return results


def _has_small_segments(jobs: list[LogJob]) -> bool:
    """Return whether segments are so small that the interpreter bounds the work on them."""
    sizes = []
    for job in jobs[::_SAMPLED]:
        # Loading the partition reports errors.
        with contextlib.suppress(OSError):
            sizes += [os.path.getsize(os.path.join(job.partition.path, one)) for one in job.logs]
    return are_small(sizes)
