"""Open logs: the segments of partitions that are read, from the log start offset on."""

from __future__ import annotations

import bisect
import enum
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, TypeAlias, TypeVar

from kafkascan.batches.walks import require_log
from kafkascan.broker_state.checkpoints import LOG_START_CHECKPOINT, PARTITION_METADATA
from kafkascan.broker_state.offset_checkpoints import CheckpointReader
from kafkascan.format.arguments import require_not_negative
from kafkascan.format.errors import KafkaScanError, detached
from kafkascan.format.file_names import REWRITE_MARK, parse_segment_name
from kafkascan.io.folders import DiskFolder, PinnedFolder, SingleFileFolder, pinned_folder
from kafkascan.io.source_protocols import PinnedFile
from kafkascan.io.sources import HasSource, Source, SourceLike, borrowed_source
from kafkascan.io.stores.urls import ObjectUrl, as_object_url, as_path, is_url
from kafkascan.logs.log_dir import LogDir, PartitionDir, SegmentKinds, segments_among
from kafkascan.logs.log_finding import (
    PartitionFilter,
    find_log_dir,
    find_partition,
    no_logs,
    partition_dir,
)
from kafkascan.logs.segment import SegmentFile, position_after, segment_file

Result = TypeVar("Result")


@dataclass(frozen=True, eq=False, repr=False)
class LogView:
    """
    A log as of one moment: a partition, and the segments that it had, with their sizes.

    What was appended since is not read. A segment of a folder that was deleted or replaced since is
    looked for in a newer listing; an answer that cannot be that of one moment says so
    (``CHANGED_WHILE_READ``). Each function that reads a log accepts a view, also several times,
    and a view can be pickled unless its segment is an open `Source`.

    Attributes
    ----------
    partition : PartitionDir
    segments : tuple of SegmentFile
        In offset order.
    start_offset : int
        The first offset that is read. Segments and batches before it may exist: a broker deletes
        segments some time after ``DeleteRecords``, and never part of one.
    error : OSError or None
        Why the folder could not be listed; there are no segments then.
    rewrite_marks : tuple of str
        Names of the marks in the folder of rewrites in place that did not end.
    names : sequence of str
        Names of the files in the folder of a partition, as of when its segments were listed.
    is_kept : bool
        Whether the answers about it are to fit together: one of a newer listing is a problem.
    """

    partition: PartitionDir
    segments: Sequence[SegmentFile]
    start_offset: int = 0
    error: OSError | None = None
    rewrite_marks: Sequence[str] = ()
    names: Sequence[str] = ()
    is_kept: bool = False

    def __repr__(self) -> str:
        return (
            f"<LogView {self.name}: {len(self.segments)} segments from offset {self.start_offset}>"
        )

    @property
    def path(self) -> Path:
        """Path of the folder, or of the file that is read by itself."""
        return self.partition.path

    @property
    def name(self) -> str:
        """The log's name in messages: topic and partition, or else its path."""
        one = self.partition
        return str(one.path) if one.topic is None else f"{one.topic}-{one.partition}"

    def again(self) -> LogView:
        """Return the view for another answer, of which nothing was read yet; see `change_of`."""
        folder = self.segments[0].folder if self.segments else None
        if not isinstance(folder, PinnedFolder):
            return self
        unread = folder.again()
        segments = tuple(
            SegmentFile(segment.file_name, segment.name, unread) for segment in self.segments
        )
        return replace(self, segments=segments)

    @property
    def is_single_file(self) -> bool:
        """Whether the log is a file, or another source, that is read by itself."""
        return isinstance(self.partition.folder, SingleFileFolder)

    @property
    def has_deleted_offsets(self) -> bool:
        """Whether the log starts after the first offset on disk."""
        return bool(self.segments) and self.start_offset > (self.segments[0].base_offset or 0)

    @property
    def served_segments(self) -> Sequence[SegmentFile]:
        """The segments that may contain the start offset or later ones."""
        bases = [segment.base_offset or 0 for segment in self.segments]
        return self.segments[max(0, bisect.bisect_right(bases, self.start_offset) - 1) :]


LogLike: TypeAlias = LogView | PartitionDir | SourceLike
"""A `LogView`, a `PartitionDir`, the path or URL of a partition directory, or a `SourceLike`."""

LogsLike: TypeAlias = LogDir | LogLike
"""A `LogDir`, a `LogView`, a `PartitionDir`, the path or URL of a data directory, a partition
directory or a tar archive of one, or a `SourceLike`, which is read as a log of one segment."""


class LogChange(enum.Enum):
    """What happened to a log between two reads of it."""

    START = enum.auto()
    """Retention, ``DeleteRecords`` or the cleaner took segments away, or replaced them."""

    ALL = enum.auto()
    """Retention deleted all segments before one was read; the log goes on with later ones."""

    EMPTIED = enum.auto()
    """Retention deleted all segments before one was read; the log is empty."""

    END = enum.auto()
    """The end was cut off, as a follower of a new leader does."""

    DELETED = enum.auto()
    """Its topic was deleted."""

    WHOLE = enum.auto()
    """Another folder is in its place: of a topic that was made again, or of another disk."""


def change_of(log: LogView) -> LogChange | None:
    """
    Return what happened to a log since it was listed, if the reader noticed.

    None also if all segments that were listed could be read, or those that were read are all of a
    newer listing: then the answer is that of a listing.
    """
    folder = log.segments[0].folder if log.segments else None
    if not isinstance(folder, PinnedFolder):
        return None
    newer = folder.newer
    if newer is not None and not newer.live_logs:
        return LogChange.DELETED
    if folder.has_all_read(folder if newer is None else newer):
        if newer is None:
            return None
        if folder.is_replaced_by(newer):
            return LogChange.ALL if newer.has_bytes else LogChange.EMPTIED
        return LogChange.START if log.is_kept or _has_new_start(log, newer) else None
    if newer is not None and not folder.has_same(PARTITION_METADATA, newer):
        return LogChange.WHOLE
    if newer is None or folder.has_cut or newer.live_logs[-1] < folder.live_logs[-1]:
        return LogChange.END
    return LogChange.START


def _has_new_start(log: LogView, newer: PinnedFolder) -> bool:
    """Return whether ``DeleteRecords`` has deleted a part of the first segment of a new listing."""
    checkpoints = CheckpointReader(lambda path, error: None)
    known = max(log.start_offset, newer.live_logs[0][0])
    return checkpoints.offset_of(log.partition, LOG_START_CHECKPOINT) > known


# Retention and the cleaner work every few minutes.
_ATTEMPTS = 5


def at_one_moment(
    logs: LogsLike,
    read: Callable[[Sequence[LogView]], Result],
    log_start_offset: int | None = None,
) -> Result:
    """
    Read a log, and once more if it changed meanwhile: an answer is true of one moment.

    A broker always changes one of many logs: of these, that an answer has parts of two moments is
    a problem of it (`CHANGED_WHILE_READ`), as it is if a log changes each time, or if it is given
    as of an earlier moment.

    Parameters
    ----------
    logs : LogsLike
    read : callable
        Returns the answer about the views of logs.
    log_start_offset : int, optional
        See `open_logs`.
    """
    attempts = 0 if isinstance(logs, LogView) else _ATTEMPTS
    for _ in range(attempts):
        views = open_logs(logs, log_start_offset)
        try:
            answer = read(views)
        except (OSError, KafkaScanError):
            if not any(map(_is_stale, views)):
                raise
        else:
            if len(views) > 1 or not any(map(_is_stale, views)):
                return answer
    return read(open_logs(logs, log_start_offset))


def _is_stale(log: LogView) -> bool:
    """Return whether a file of a log was gone when it was to be read."""
    folder = log.segments[0].folder if log.segments else None
    return isinstance(folder, PinnedFolder) and folder.is_stale


class OpenedLogs(list[LogView]):
    """
    Logs to read.

    Attributes
    ----------
    moving : list of PartitionDir
        Folders that are not read: a broker with several data dirs is moving a log there
        (``-future``). No consumer reads such a copy.
    """

    def __init__(self) -> None:
        super().__init__()
        self.moving: list[PartitionDir] = []


def open_logs(
    logs: LogsLike,
    log_start_offset: int | None = None,
    *,
    damaged: bool = False,
    moving: bool = False,
) -> list[LogView]:
    """
    Return the logs of a data dir, a partition or a source.

    Only what a broker serves is returned; see `select_segments`. A partition that is given as
    such, or by its path, is read even if its log is being dropped or moved. In a data dir, a
    folder that cannot be listed hides no other one: see `LogView.error`.

    Parameters
    ----------
    logs : LogsLike
    log_start_offset : int, optional
        First offset of each log. By default, as a broker has it: the base offset of the first
        segment, or the offset in the data dir's ``log-start-offset-checkpoint`` if it is
        higher; a segment that is given as such is read from its first offset. 0 reads
        everything that is on disk.
    damaged : bool, default False
        Accept a source whose beginning is that of another kind of file.
    moving : bool, default False
        Also return copies that a broker is moving to the data dir.

    Raises
    ------
    NoLogsError
        If there are no live segments.
    NotALogError
        If a source that is not named as a segment is known to be another kind of file.
    As `open_log_dir`, and `Source`.
    """
    if isinstance(logs, LogView):
        require_not_negative(log_start_offset=log_start_offset)
        return [logs.again() if log_start_offset is None else _starting_at(logs, log_start_offset)]
    if isinstance(logs, PartitionDir):
        logs = LogDir(logs.path, [logs])
    if isinstance(logs, (str, os.PathLike, ObjectUrl)):
        found = find_log_dir(logs)
        logs = as_object_url(logs) if found is None else found
    if isinstance(logs, LogDir):
        require_not_negative(log_start_offset=log_start_offset)
        live = live_logs(logs, log_start_offset, moving=moving)
        if not live:
            raise no_logs(logs.path, logs.partitions)
        if logs.is_partition and live[0].error is not None:
            raise live[0].error
        return live
    return [_one_file(logs, damaged)]


def _starting_at(log: LogView, start_offset: int) -> LogView:
    """Return a view for another answer, with another log start offset."""
    base_offset = (log.segments[0].base_offset or 0) if log.segments else 0
    return replace(log.again(), start_offset=max(start_offset, base_offset))


def open_view(
    place: LogLike,
    /,
    *,
    log_start_offset: int | None = None,
    storage_options: Mapping[str, object] | None = None,
) -> LogView:
    """
    Return a log as of now, of which several calls give answers that fit together.

    Parameters
    ----------
    place : path or URL, bytes-like, Source, SegmentFile, PartitionDir or LogView
        A partition's folder, or a segment.
    log_start_offset : int, optional
        The first offset of the log. By default, as a broker has it: in a partition's folder, the
        base offset of the first segment, or the offset in the data dir's
        ``log-start-offset-checkpoint`` if it is higher. 0 reads everything on disk.
    storage_options : mapping, optional
        Options of the store, for a URL; see `ObjectUrl`.

    Returns
    -------
    LogView
        For `read_records`, `count_records` and the other functions that read a log.

    Raises
    ------
    NoLogsError, IsADirectoryError
        If the folder contains no logs, or those of several partitions.
    NotALogError
        If a source that is not named as a segment is known to be another kind of file.
    As `open_log_dir`, and `Source`.
    """
    place = as_object_url(place, storage_options)
    if isinstance(place, (str, os.PathLike, ObjectUrl)):
        place = find_partition(place) or place
    if isinstance(place, (str, os.PathLike)) and not is_url(place):
        place = PinnedFile.of(os.fspath(place))
    (view,) = open_logs(place, log_start_offset)
    if view.is_single_file and log_start_offset is not None:
        view = _starting_at(view, log_start_offset)
    return replace(view, is_kept=True)


def selected_logs(logs: LogsLike, wanted: PartitionFilter) -> LogsLike:
    """
    Return the wanted logs of a directory or an archive.

    Raises
    ------
    NoLogsError
        If there are none.
    ValueError
        If partitions are wanted of a segment or a source.
    As `open_log_dir`.
    """
    if not wanted.is_given:
        return logs
    if isinstance(logs, PartitionDir):
        logs = LogDir(logs.path, [logs])
    if isinstance(logs, (str, os.PathLike, ObjectUrl)):
        logs = find_log_dir(logs) or logs
    if not isinstance(logs, LogDir):
        raise ValueError("topics and partitions select logs of a directory or an archive")
    return wanted.partitions(logs)


def open_partition(partition: PartitionDir, log_start_offset: int | None = None) -> LogView:
    """
    Return the log of a partition as it is now.

    Raises
    ------
    NoLogsError
        If there are no live segments, as in a data dir.
    OSError
        If the folder cannot be listed.
    """
    (log,) = open_logs(partition, log_start_offset)
    return log


def live_logs(
    log_dir: LogDir, log_start_offset: int | None = None, *, moving: bool = False
) -> OpenedLogs:
    """
    Return the logs of a data dir or a partition that have live segments, as `open_logs`.

    Those whose folders cannot be listed are returned, too: see `LogView.error`.
    """
    for _ in range(_ATTEMPTS):
        checkpoints, found = CheckpointReader(), OpenedLogs()
        if log_start_offset is None:
            by_data_dir = {os.path.dirname(one.path): one for one in log_dir.partitions}
            for one in by_data_dir.values():  # before and after the listing
                checkpoints.offset_of(one, LOG_START_CHECKPOINT)
        for log in list_logs(log_dir, SegmentKinds.LOG):
            if log.partition.is_moving and not (moving or log_dir.is_partition):
                found.moving.append(log.partition)
                continue
            start, first = log_start_offset, log.segments[:1]
            if start is None and first:
                start = checkpoints.offset_of(log.partition, LOG_START_CHECKPOINT)
            base_offset = (first[0].base_offset or 0) if first else 0
            found.append(replace(log, start_offset=max(start or 0, base_offset)))
        if not checkpoints.have_moved():
            break
    return found


def list_logs(log_dir: LogDir, include: SegmentKinds) -> list[LogView]:
    """
    Return the logs with segments of some kinds, and those whose folders cannot be listed.

    Logs that a broker has deleted since their data dir was listed are left out, unless all are.
    """
    found: list[LogView] = []
    dropped: list[LogView] = []
    kinds = log_dir.kinds(include)
    for one in log_dir.partitions:
        if not (one.is_log or SegmentKinds.DROPPED_LOGS in kinds):
            continue
        log = _listed(one, kinds)
        if log is not None:
            (dropped if _is_dropped(log) else found).append(log)
    return found or dropped


def _listed(partition: PartitionDir, kinds: SegmentKinds) -> LogView | None:
    """Return the log in a folder, with the segments of some kinds; None if there are none."""
    try:
        folder = pinned_folder(partition.folder)
        names = folder.names()
        segments = segments_among(folder, names, kinds)
    except OSError as error:
        return LogView(partition, (), error=detached(error))
    if not segments:
        return None
    return LogView(
        partition, tuple(segments), rewrite_marks=rewrite_marks(names), names=tuple(names)
    )


def _is_dropped(log: LogView) -> bool:
    """Return whether a broker has deleted or renamed a folder since its data dir was listed."""
    folder = log.partition.folder
    is_missing = isinstance(log.error, FileNotFoundError) and isinstance(folder, DiskFolder)
    return is_missing and not os.path.lexists(folder.path)


def rewrite_marks(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names of files that mark a rewrite in place which did not end."""
    return tuple(filter(REWRITE_MARK.fullmatch, names))


def _one_file(source: SourceLike, damaged: bool) -> LogView:
    if isinstance(source, HasSource):
        source = source.as_source()
    if isinstance(source, (str, os.PathLike)) and not is_url(source):
        path = Path(source)
        path.stat()  # raises if the file is missing
        is_in_folder = True
    else:
        owner = source if isinstance(source, Source) else Source(source)
        path, source = as_path(owner.path), owner
        is_in_folder = owner.is_file or is_url(path)
    if not damaged and parse_segment_name(path.name) is None:
        with borrowed_source(source) as opened:
            require_log(opened)
    folder = SingleFileFolder(source, path)
    partition = PartitionDir(path, None, None, None, folder)
    if is_in_folder:  # bytes are not in the current folder, which may be named as a partition
        partition = replace(partition_dir(path.parent), path=path, folder=folder)
    segment = segment_file(path, folder)
    return LogView(partition, (segment,), segment.base_offset or 0)


# ---- segments that overlap ----


@dataclass(frozen=True)
class SegmentOverlap:
    """
    Offsets that are in a segment and also in a following one; see `OffsetCursor`.

    Attributes
    ----------
    path, following : Path
        The two segments.
    first_offset, last_offset : int
        The offsets that both contain.
    """

    path: Path
    following: Path
    first_offset: int
    last_offset: int

    @property
    def reason(self) -> str:
        """A sentence with the following segment and the offsets."""
        return (
            f"offsets {self.first_offset} to {self.last_offset} are also in"
            f" {self.following.name}: one of the segments is stale"
        )

    @property
    def message(self) -> str:
        """A sentence with both segments and the offsets."""
        return f"{self.path}: {self.reason}"

    def __str__(self) -> str:
        return f"{self.message} [OFFSET_OVERLAP]"


class PlacedSegment(Protocol):
    """A segment by its place: the name of its file, and the offset in it."""

    @property
    def path(self) -> str | Path:
        """The file of the segment."""

    @property
    def base_offset(self) -> int | None:
        """The offset in its name."""

    def is_in_place(self) -> bool:
        """Return whether it is still the file that was listed."""


class OffsetCursor:
    """
    The first offset that is read of each segment of a log: the end of the segments before it.

    Each offset is read once, also if segments overlap: a backup without ``--delete`` keeps segments
    that the cleaner has merged into an earlier one. A broker serves an offset from the segment with
    the largest base offset that is not above it, but a fetch that begins in a segment continues to
    its end. The fetch size decides which copy a consumer reads; the cursor's rule gives what
    it gets by fetches that reach to the ends of the segments.

    Attributes
    ----------
    position : int
        The end of the segments that were added.
    """

    def __init__(self) -> None:
        self.position = 0
        self._reaching: tuple[PlacedSegment, int] | None = None

    def add(self, segment: PlacedSegment, end_offset: int | None) -> list[SegmentOverlap]:
        """
        Add the next segment of the log, and return its overlap with the segments before it.

        Parameters
        ----------
        segment : PlacedSegment
            Such as a `SegmentFile`.
        end_offset : int or None
            The offset after its last batch; None without batches.
        """
        base_offset, before = segment.base_offset or 0, self._reaching
        self.position = position_after(self.position, base_offset, end_offset)
        if before is None or (end_offset is not None and end_offset > before[1]):
            self._reaching = (segment, end_offset or 0)
        if before is None or before[1] <= base_offset:
            return []
        # The cleaner may have replaced both by one, or one of them, after they were listed.
        is_same = before[0].path == segment.path
        if is_same or not (before[0].is_in_place() and segment.is_in_place()):
            return []
        end = before[1] if end_offset is None else min(before[1], max(end_offset, base_offset + 1))
        paths = as_path(before[0].path), as_path(segment.path)
        return [SegmentOverlap(*paths, base_offset, end - 1)]
