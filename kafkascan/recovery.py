"""Logs put in order after an unclean end, without a broker: what it would do, done or told."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from kafkascan.checkpoints import (
    CLEAN_SHUTDOWN_FILE,
    LOG_START_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    CleanShutdown,
    LeaderEpoch,
    clean_shutdown_file,
    read_offset_checkpoint,
)
from kafkascan.data_dir_lock import as_data_dir, data_dirs_of, locked
from kafkascan.file_changes import Repair, make, sweep
from kafkascan.files import AtomicFile
from kafkascan.indexes import DEFAULT_INTERVAL_BYTES, require_interval_bytes
from kafkascan.log_dir import PartitionDir, open_log_dir, partition_dir
from kafkascan.log_loading import LoadedLog, LoadSettings, load_log
from kafkascan.metadata_log import METADATA_PARTITION, ClusterMetadata, read_cluster_metadata
from kafkascan.producers import PRODUCER_EXPIRATION_MS
from kafkascan.staged_files import Action, Change
from kafkascan.staged_segments import SegmentReport

# Brokers load it themselves, at every start and in full (KafkaRaftLog).
_METADATA_TOPIC = METADATA_PARTITION.rpartition("-")[0]
# To make a file durable is to wait for the disk; file systems let many wait for the same. So
# the files of this many partitions are written together.
_TOGETHER = 16
# Segments below this size take the interpreter longer than the threads that share it gain.
_SMALL = 1 << 20

OnProgress = Callable[["PartitionRecovery", int, int], object]


@dataclass
class PartitionRecovery:
    """
    What a broker would do with the log of a partition, and what was done.

    Attributes
    ----------
    path : pathlib.Path
    topic : str or None
    partition : int or None
    log_start_offset, log_end_offset : int or None
        None if the log cannot be loaded.
    segments : list of SegmentReport
    leader_epochs : list of LeaderEpoch
    changes : list of Change
        Files that are not as they should be.
    applied : list of Change
        Those that were made.
    error : Exception or None
        Why the log cannot be loaded, or could not be put in order.
    """

    path: Path
    topic: str | None
    partition: int | None
    log_start_offset: int | None = None
    log_end_offset: int | None = None
    segments: list[SegmentReport] = field(default_factory=list)
    leader_epochs: list[LeaderEpoch] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    applied: list[Change] = field(default_factory=list)
    error: Exception | None = None

    @property
    def truncated_bytes(self) -> int:
        """Bytes of logs that a broker gives up."""
        return sum(segment.truncated_bytes for segment in self.segments)

    @property
    def is_in_order(self) -> bool:
        """Whether nothing is left to do."""
        return self.error is None and len(self.applied) == len(self.changes)

    def __repr__(self) -> str:
        lines = [f"<PartitionRecovery {self.path}: {self._verdict()}>"]
        for change in self.changes:
            done = "done" if change in self.applied else "to do"
            lines.append(f"  {change.action:<8} {change.name}: {change.reason} ({done})")
        return "\n".join(lines)

    def _verdict(self) -> str:
        if self.error is not None:
            return str(self.error)
        left = len(self.changes) - len(self.applied)
        offsets = f"offsets {self.log_start_offset} to {self.log_end_offset}"
        return f"{offsets}, {left} changes to make, {self.truncated_bytes} bytes to give up"


@dataclass
class Recovery:
    """
    What became of the logs of a data dir, or of one partition.

    Attributes
    ----------
    path : pathlib.Path
    partitions : list of PartitionRecovery
    is_marked_clean : bool
        Whether the next broker was told to take the logs as they are.
    broker_epoch : int or None
        What it was told of its last registration; -1 for nothing.
    """

    path: Path
    partitions: list[PartitionRecovery]
    is_marked_clean: bool = False
    broker_epoch: int | None = None

    @property
    def is_in_order(self) -> bool:
        """Whether nothing is left to do in any partition."""
        return all(partition.is_in_order for partition in self.partitions)

    @property
    def truncated_bytes(self) -> int:
        """Bytes of logs that a broker gives up."""
        return sum(partition.truncated_bytes for partition in self.partitions)

    def __repr__(self) -> str:
        return "\n".join([f"<Recovery {self.path}>", *map(repr, self.partitions)])


def recover(
    path: str | os.PathLike[str],
    /,
    *,
    dry_run: bool | None = None,
    write: bool = False,
    truncate: bool = False,
    backup: bool = True,
    mark_clean: bool = True,
    broker_epoch: int | None = None,
    recovery_point: int | None = None,
    log_start_offset: int | None = None,
    interval_bytes: int | None = None,
    producer_expiration_ms: int = PRODUCER_EXPIRATION_MS,
    now_ms: int | None = None,
    threads: int | None = None,
    on_progress: OnProgress | None = None,
) -> Recovery:
    """
    Put logs in order as a broker does when it starts after an unclean end.

    The valid part of each log is found, with checksums; indexes, snapshots of producers and
    leader epochs are built anew. Without `write`, nothing is touched and the result tells
    what would be.

    Parameters
    ----------
    path : path
        A broker's data dir, or the folder of one partition.
    dry_run : bool, optional
        The opposite of `write`, for those who like to say it.
    write : bool, default False
        Write the files. What they replace is kept beside them as ``.bak``.
    truncate : bool, default False
        Cut off logs behind their last valid batch, too, and drop the segments behind it, as
        brokers do. What is cut off is kept beside the log as ``.tail-<position>.bak``. Segments
        with offsets too far apart, from brokers before 1.1, are split (KAFKA-6264). Without it
        no log is changed, and a broker will do it; one with such a segment is left as it is,
        with all that is beside it.
    backup : bool, default True
        Keep what is replaced, cut off or dropped.
    mark_clean : bool, default True
        Once all logs of a data dir are in order, write ``.kafka_cleanshutdown``, so that the
        next broker does not do the same again.
    broker_epoch : int, optional
        What to write there: the epoch of the broker's last registration, without which the
        controller elects new leaders as after an unclean shutdown (KIP-966). By default it
        is looked for in the metadata log, if that is in this data dir.
    recovery_point : int, optional
        Offset up to which logs were flushed: segments before the one that holds it are taken
        as they are. By default what the data dir's checkpoint says; 0 reads all of each log.
    log_start_offset : int, optional
        By default what the data dir's checkpoint says, or 0.
    interval_bytes : int, optional
        The broker's ``index.interval.bytes``. By default what each topic was given, or all,
        if the metadata log that says it is in this data dir; 4096 otherwise.
    producer_expiration_ms : int, default one day
        The broker's ``producer.id.expiration.ms``.
    now_ms : int, optional
        Milliseconds since the epoch, to tell which producers have expired; by default now.
    threads : int, optional
        How many work on partitions; by default one per CPU. Others wait for the disk.
    on_progress : callable, optional
        Gets each partition's result when it is there, how many there are so far, and of how
        many.

    Returns
    -------
    Recovery
        Of all partitions. An error in one of them does not keep others from being put in
        order; it is in that one's `error`.

    Raises
    ------
    LogDirInUseError
        If files are to be written and a broker holds the data dir's lock.
    CorruptCheckpointError
        If a checkpoint of the data dir cannot be read.
    OSError
        If `path` cannot be read.

    Notes
    -----
    ``LogLoader`` and ``LogSegment.recover`` of Kafka 4. It can be interrupted at any point
    and started again: each file is replaced at once. Logs that are being deleted, and the
    metadata log that brokers load by themselves, are left out of a data dir.
    """
    if dry_run is not None and dry_run == write:
        raise ValueError("dry_run is the opposite of write")
    if truncate and not write:
        raise ValueError("truncate needs write=True")
    if interval_bytes is not None:
        require_interval_bytes(interval_bytes)
    settings = LoadSettings(producer_expiration_ms=producer_expiration_ms)
    if now_ms is not None:
        settings = replace(settings, now_ms=now_ms)
    threads = _required_threads(threads)
    job = _Job(Path(path), settings, recovery_point, log_start_offset, interval_bytes)
    if not write:
        return Recovery(job.path, _each(job.partitions, job.look_at, threads, on_progress))
    with locked(*job.data_dirs):

        def put_in_order(some: list[PartitionDir]) -> list[PartitionRecovery]:
            return job.put_in_order(some, truncate=truncate, backup=backup)

        done = Recovery(job.path, _each(job.partitions, put_in_order, threads, on_progress))
        is_whole = job.path == job.data_dir and not job.passes_over
        if mark_clean and is_whole and done.is_in_order:
            if broker_epoch is None:
                broker_epoch = job.metadata.broker_epoch
            epoch = -1 if broker_epoch is None else broker_epoch
            mark = clean_shutdown_file(CleanShutdown(version=0, broker_epoch=epoch))
            with AtomicFile(job.path / CLEAN_SHUTDOWN_FILE, like=job.path) as file:
                file.stream.write(mark)
            done.is_marked_clean, done.broker_epoch = True, epoch
    return done


class _Job:
    def __init__(
        self,
        path: Path,
        settings: LoadSettings,
        recovery_point: int | None,
        log_start_offset: int | None,
        interval_bytes: int | None,
    ) -> None:
        self.path = path
        found = open_log_dir(path).partitions
        is_one = _is_partition(path)
        self.partitions = [_as_its_broker_names_it(path)] if is_one else _loaded_by_broker(found)
        links = [one.path for one in self.partitions if is_one or one.path.is_symlink()]
        # A log may be in use by the broker of any of them.
        self.data_dirs = [data_dir for one in links for data_dir in data_dirs_of(one)]
        if not is_one:
            self.data_dirs = [one for one in (as_data_dir(path), *self.data_dirs) if one]
        self.data_dir = self.data_dirs[0] if is_one and self.data_dirs else as_data_dir(path)
        # Logs that no broker would find, such as a folder that was given another name.
        self.passes_over = any(one.topic is None and one.path != path for one in found)
        self._settings = settings
        self.metadata = _metadata_of(self.data_dir)
        self._interval_bytes = interval_bytes
        self._recovery_points = self._offsets(RECOVERY_POINT_CHECKPOINT, recovery_point)
        self._log_starts = self._offsets(LOG_START_CHECKPOINT, log_start_offset)

    def _offsets(self, name: str, given: int | None) -> Callable[[PartitionDir], int]:
        if given is not None:
            return lambda _: given
        if self.data_dir is None or not (self.data_dir / name).exists():
            return lambda _: 0
        known = read_offset_checkpoint(self.data_dir / name)
        return lambda one: known.get((one.topic or "", one.partition or 0), 0)

    def _interval_of(self, topic: str) -> int:
        if self._interval_bytes is not None:
            return self._interval_bytes
        default = self.metadata.default_interval_bytes
        return self.metadata.interval_bytes.get(
            topic, DEFAULT_INTERVAL_BYTES if default is None else default
        )

    def look_at(self, some: list[PartitionDir]) -> list[PartitionRecovery]:
        return [self._loaded(one)[0] for one in some]

    def _loaded(self, one: PartitionDir) -> tuple[PartitionRecovery, LoadedLog | None]:
        result = PartitionRecovery(one.path, one.topic, one.partition)
        settings = replace(
            self._settings,
            recovery_point=self._recovery_points(one),
            log_start_offset=self._log_starts(one),
            interval_bytes=self._interval_of(one.topic or ""),
        )
        try:
            log = load_log(one.path, settings)
            result.changes = log.files.changes()
        except Exception as error:  # whatever it is, others are not to suffer from it
            result.error = error
            return result, None
        result.log_start_offset, result.log_end_offset = log.log_start_offset, log.log_end_offset
        result.segments, result.leader_epochs = log.segments, log.leader_epochs
        return result, log

    def put_in_order(
        self, some: list[PartitionDir], *, truncate: bool, backup: bool
    ) -> list[PartitionRecovery]:
        results: list[PartitionRecovery] = []
        begun: list[tuple[PartitionRecovery, Repair]] = []
        for one in some:
            with contextlib.suppress(OSError):
                sweep(one.path)
            result, log = self._loaded(one)
            results.append(result)
            if log is not None:
                wanted = _wanted(result.changes, truncate=truncate)
                begun.append((result, Repair(log.files, wanted, backup=backup)))
        make([repair for _, repair in begun])
        for result, repair in begun:
            result.applied, result.error = repair.made, repair.error
        return results


def _wanted(changes: list[Change], *, truncate: bool) -> list[Change]:
    """Leave out what changes logs, and what is of use only to those that are split."""
    if truncate:
        return changes
    if any(change.action is Action.SPLIT for change in changes):
        return []
    return [change for change in changes if not change.shortens_log]


def _as_its_broker_names_it(path: Path) -> PartitionDir:
    """Return the folder of a partition; a link to it from elsewhere may have any name."""
    here, there = Path(os.path.abspath(path)), Path(os.path.realpath(path))
    is_elsewhere = as_data_dir(here.parent) is None and as_data_dir(there.parent) is not None
    return partition_dir(there if is_elsewhere else path)


def _loaded_by_broker(partitions: list[PartitionDir]) -> list[PartitionDir]:
    return [
        one
        for one in partitions
        if one.topic not in (None, _METADATA_TOPIC) and one.state in (None, "future")
    ]


def _metadata_of(data_dir: Path | None) -> ClusterMetadata:
    return ClusterMetadata() if data_dir is None else read_cluster_metadata(data_dir)


def _is_partition(path: Path) -> bool:
    """Tell whether a folder is that of a partition: it has its name, or logs lie in it."""
    if as_data_dir(path) is not None:
        return False
    here = partition_dir(path)
    return here.topic is not None or any(one.name.kind == "log" for one in here.segments)


def _required_threads(threads: int | None) -> int:
    if threads is not None and threads < 1:
        raise ValueError("threads must be at least 1")
    return threads or os.cpu_count() or 1


def _each(
    partitions: list[PartitionDir],
    work: Callable[[list[PartitionDir]], list[PartitionRecovery]],
    threads: int,
    on_progress: OnProgress | None,
) -> list[PartitionRecovery]:
    """Work on partitions side by side, a few in each thread; results are in their order."""
    at_once = max(1, min(_TOGETHER, len(partitions) // threads))
    groups = [partitions[first : first + at_once] for first in range(0, len(partitions), at_once)]
    one_at_a_time = threading.Lock()

    def work_beside_others(some: list[PartitionDir]) -> list[PartitionRecovery]:
        with one_at_a_time if _is_small(some) else contextlib.nullcontext():
            return work(some)

    results: list[PartitionRecovery] = []
    with ThreadPoolExecutor(threads) as pool:
        for found in pool.map(work_beside_others, groups):
            for result in found:
                results.append(result)
                if on_progress is not None:
                    on_progress(result, len(results), len(partitions))
    return results


def _is_small(partitions: list[PartitionDir]) -> bool:
    """Tell whether segments are small, on the average."""
    sizes = []
    for one in partitions:
        with contextlib.suppress(OSError):  # whoever loads it will say so
            sizes += [
                entry.stat().st_size
                for entry in os.scandir(one.path)
                if entry.name.endswith(".log")
            ]
    return sum(sizes) < _SMALL * len(sizes)
