"""Copy the intact batches of damaged logs into new logs, including those after the damage."""

from __future__ import annotations

import bisect
import contextlib
import errno
import itertools
import os
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kafkascan.batches.resyncing.gaps import UNCOVERED
from kafkascan.batches.resyncing.offset_evidence import HIGHEST_OFFSET
from kafkascan.batches.resyncing.ranges import KeptRange
from kafkascan.batches.scattered_reads import read_pieces
from kafkascan.broker_state.checkpoints import (
    CLEANER_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_CHECKPOINT,
    parse_leader_epochs,
)
from kafkascan.broker_state.indexes import require_interval_bytes
from kafkascan.format.errors import FileChangedError, KafkaScanError, NoLogsError, detached
from kafkascan.format.file_names import METADATA_TOPIC
from kafkascan.io.atomic_files import AtomicFile, give_owner, give_owner_and_mode
from kafkascan.io.concurrency import map_ordered, require_threads
from kafkascan.io.file_identity import FileIdentity
from kafkascan.io.folders import DiskFolder, Folder
from kafkascan.io.sources import Source, borrowed_source
from kafkascan.io.staged_folders import StagedFolder, stage_folder
from kafkascan.io.stores.urls import Place, as_path, disk_path, path_or_url
from kafkascan.logs.data_dir_lock import as_data_dir, data_dirs_of, locked
from kafkascan.logs.log_finding import PartitionFilter, find_log_dir, partition_dir
from kafkascan.logs.opened_logs import LogView, open_logs, selected_logs
from kafkascan.logs.segment import SegmentFile
from kafkascan.logs.walking.batch_offsets import SegmentOffsets
from kafkascan.recovery.crash_recovery import recover
from kafkascan.recovery.partition_settings import read_metadata
from kafkascan.recovery.recovery_results import PartitionSalvage, Salvage
from kafkascan.recovery.salvaging.foreign_ranges import Doubtful
from kafkascan.recovery.salvaging.kept_offsets import KeptOffsets
from kafkascan.recovery.salvaging.overlapping_segments import (
    SegmentBounds,
    covered,
    find_bounds,
    move_kept_elsewhere,
    without_covered,
)
from kafkascan.recovery.salvaging.segment_salvage import (
    LostRange,
    SegmentSalvage,
    not_copied,
    salvage_segment,
)

_COPY_BYTES = 1 << 23
# Files that cannot be rebuilt from the batches.
_KEPT_FILES = ("partition.metadata", "quorum-state")
_DATA_DIR_FILES = (
    "meta.properties", "bootstrap.checkpoint", LOG_START_CHECKPOINT,
    # It explains the missing offsets of compacted logs.
    CLEANER_CHECKPOINT,
)  # fmt: skip


INCOMPLETE = ".incomplete"
"""Suffix of the directory for copies that lack a segment, or that no broker would load."""


def salvage(
    path: Place,
    destination: str | os.PathLike[str] | None = None,
    /,
    *,
    topics: Collection[str] | None = None,
    partitions: Collection[int] | None = None,
    doubtful: Doubtful = "keep",
    interval_bytes: int | None = None,
    threads: int | None = None,
    on_progress: Callable[[PartitionSalvage, int, int], object] | None = None,
    storage_options: Mapping[str, object] | None = None,
) -> Salvage:
    """
    Copy the intact batches of damaged logs into new logs, and report what is lost.

    A broker that recovers a log discards everything after the first damage. `salvage` also keeps
    the batches after it: those whose checksum is valid and whose offsets belong there.

    Parameters
    ----------
    path : path
        A broker's data directory, a partition directory, a tar of them, or one segment. It is
        only read.
    destination : path, optional
        A directory that is empty or does not exist. It receives the logs with their indexes,
        producer snapshots and leader epochs, as a broker needs them. It appears when all of them
        are complete. Logs that no broker would load are in a directory next to it, whose name ends
        with ``.incomplete``. Without a destination, nothing is written and the result describes
        what would be.
    topics : collection of str, optional
        Topics to copy of a directory or an archive; by default all.
    partitions : collection of int, optional
        Numbers of the partitions to copy; by default all.
    doubtful : {"keep", "drop"}
        Whether to keep batches within damage for which only checksums and offsets indicate that
        they belong to the log, and are not the content of a damaged record.
    interval_bytes : int, optional
        ``index.interval.bytes`` of all topics. By default, as in `recover`, each topic's own
        setting in the metadata log of the copy's data directory, else 4096.
    threads : int, optional
        Number of partitions that are processed concurrently; by default one per CPU.
    on_progress : callable, optional
        Called with the result of each partition, the number of results so far, and the number
        of partitions.
    storage_options : mapping, optional
        Options of the store, for a URL; see `ObjectUrl`.

    Returns
    -------
    Salvage
        `Salvage.to_json` is the report. An error in one partition does not prevent others from
        being copied; it is in `PartitionSalvage.error`.

    Raises
    ------
    FileExistsError
        If the destination is not empty.
    LogDirInUseError
        If the destination is in a data directory that a broker uses.
    OSError
        If `path` cannot be read.

    Notes
    -----
    Every batch is kept that has a valid checksum and offsets that fit. Base offset, length, leader
    epoch and magic byte, which no checksum covers, are reconstructed where the neighbouring
    batches determine them; see docs/salvage.md for the guarantees and their limits. Time is linear
    in the size of the logs, for any bytes. Memory grows with the damage of a segment, not with its
    size, unless many of its batches contradict each other.

    If segments overlap, each offset is kept in the segment from which a log is read (see
    `OffsetCursor`), and reported as a duplicate in the others.

    A transaction whose marker is lost stays open up to the next marker of its producer.
    """
    if interval_bytes is not None:
        require_interval_bytes(interval_bytes)
    if doubtful not in ("keep", "drop"):
        raise ValueError(f"doubtful must be 'keep' or 'drop', not {doubtful!r}")
    threads = require_threads(threads)
    place = path_or_url(path, storage_options)
    target = None if destination is None else disk_path(destination)
    if isinstance(place, Path):
        place.stat()
    log_dir = find_log_dir(place)
    wanted = selected_logs(log_dir or place, PartitionFilter.of(topics, partitions))
    logs = open_logs(wanted, 0, damaged=True, moving=True)
    is_data_dir = log_dir is not None and not log_dir.is_partition
    path = place if isinstance(place, Path) else as_path(place.url)

    as_read = [_as_read(log, place) for log in logs]

    def copy_to(folder: Path | None) -> list[PartitionSalvage]:
        done: list[PartitionSalvage] = []
        jobs = _copy_jobs(logs, folder, doubtful, is_data_dir=is_data_dir)
        for one in map_ordered(jobs, lambda job: (job(),), threads):
            one.changed = list(_changes(logs[len(done)], as_read[len(done)]))
            done.append(one)
            if on_progress is not None:
                on_progress(one, len(done), len(logs))
        return done

    if target is None:
        return Salvage(path, target, copy_to(None))
    _require_empty(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    leftovers = _incomplete_copies(_incomplete_place(target))
    with contextlib.ExitStack() as steps:
        steps.enter_context(locked(*data_dirs_of(target), shared=True))
        staged = stage_folder(target)
        steps.callback(staged.discard)
        # `recover` locks this folder, or the one around it.
        folder = staged.path.with_name("salvage") / staged.path.name
        folder.mkdir(parents=True)
        done = copy_to(folder)
        if is_data_dir and logs:  # no broker starts without these files
            _copy_files(logs[0].partition.folder.parent, folder, _DATA_DIR_FILES)
        if interval_bytes is None and not is_data_dir:
            interval_bytes = _interval_at(target)
        is_marked_clean = _recover_copies(done, folder, interval_bytes, threads)
        if path.is_dir():
            _adopt(folder, path)
            give_owner_and_mode(staged.path, like=path)
        _publish(staged, folder, done)
    return Salvage(path, target, done, is_marked_clean, leftovers + staged.abandoned)


# ---- files that change meanwhile -------------------------------------------------------------


def _as_read(log: LogView, place: Place) -> list[FileIdentity]:
    """Return the files that contain a log, before they are read: its segments, or an archive."""
    found = list[FileIdentity]()
    for segment in log.segments:
        with contextlib.suppress(OSError):  # opening it reports the error
            found.append(FileIdentity.of(segment.path))
    if not found and isinstance(place, Path) and place.is_file():
        found.append(FileIdentity.of(place))
    return found


def _changes(log: LogView, as_read: list[FileIdentity]) -> Iterator[FileChangedError]:
    """Yield how the files of a log differ from those that were to be copied."""
    for identity in as_read:
        try:
            identity.require_unchanged()
        except FileChangedError as error:
            yield detached(error)
    if log.names and isinstance(log.partition.folder, DiskFolder):
        known = {segment.path for segment in log.segments}
        with contextlib.suppress(OSError):  # the folder vanished, and its logs with it
            new = [one.path for one in log.partition.log_segments if one.path not in known]
            yield from (FileChangedError(str(path), "it appeared") for path in new)


# ---- the destination -------------------------------------------------------------------------


def _publish(staged: StagedFolder, folder: Path, partitions: list[PartitionSalvage]) -> None:
    """Rename a complete copy to its target, and copies that no broker loads to another folder."""
    for one in partitions:
        if one.destination is None:
            continue
        name = one.destination.relative_to(folder)
        if one.error is None:
            one.destination = staged.target / name
        elif _is_full_disk(one.error):  # a run with more space copies it again
            shutil.rmtree(_incomplete(one.destination), ignore_errors=True)
            one.destination = one.recovery = None
            continue
        else:
            one.destination = _set_aside(_incomplete(one.destination), staged.target, name)
        if one.recovery is not None:
            one.recovery.path = one.destination
    if not folder.exists():  # the only log was set aside
        return
    for path in folder.iterdir():
        path.rename(staged.path / path.name)
    staged.publish()


def _adopt(copy: Path, original: Path) -> None:
    """Give a copy the owner of the original, and its folders their modes: a broker writes there."""
    for root, _, names in os.walk(copy):
        folder = original / os.path.relpath(root, copy)
        give_owner_and_mode(Path(root), like=folder if folder.is_dir() else original)
        for name in names:
            give_owner(Path(root, name), like=original)


def _incomplete(folder: Path) -> Path:
    """Rename the folder of an incomplete copy, so that it is not recovered."""
    incomplete = folder.with_name(f"{folder.name}{INCOMPLETE}")
    if folder.exists():
        os.rename(folder, incomplete)
    return incomplete


def _set_aside(folder: Path, target: Path, name: Path) -> Path:
    """
    Move a copy to a folder outside of data dirs, so that no broker takes it for a log.

    A broker does not start if it cannot load a log, or if the name of a folder is not one of its.
    """
    outside = _incomplete_place(target)
    own_name = name if as_data_dir(target.parent) is None else target.name
    aside, number = outside / own_name, 1
    while aside.exists() and any(aside.iterdir()):  # of an earlier run
        number += 1
        aside = outside.with_name(f"{outside.name}{number}") / own_name
    aside.parent.mkdir(parents=True, exist_ok=True)
    os.rename(folder, aside)
    return aside


def _incomplete_place(target: Path) -> Path:
    """Return the folder for copies that are not complete: next to the target, or its data dir."""
    around = target if as_data_dir(target.parent) is None else target.parent
    return around.with_name(f"{around.name}{INCOMPLETE}")


def _incomplete_copies(place: Path) -> list[Path]:
    """Return what earlier runs have set aside at a place, or next to it where that was taken."""
    number = itertools.count(2)
    places = itertools.chain([place], (place.with_name(f"{place.name}{one}") for one in number))
    return list(itertools.takewhile(Path.exists, places))


def _is_full_disk(error: Exception) -> bool:
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


# ---- copying logs -----------------------------------------------------------------------------


def _copy_jobs(
    logs: list[LogView], target: Path | None, doubtful: Doubtful, *, is_data_dir: bool
) -> list[Callable[[], PartitionSalvage]]:
    jobs, names = list[Callable[[], PartitionSalvage]](), set[str]()
    for log in logs:
        name = log.partition.path.name
        folder = target / name if target is not None and is_data_dir else target
        # A tar may contain several data directories with logs of the same name.
        is_duplicate = folder is not None and name in names
        jobs.append(partial(_copy_log, log, folder, doubtful, is_duplicate=is_duplicate))
        names.add(name)
    return jobs


def _copy_log(
    log: LogView, folder: Path | None, doubtful: Doubtful, *, is_duplicate: bool
) -> PartitionSalvage:
    """Copy a log to a folder, if there is one; `is_duplicate` if it has the copy of another log."""
    one, error = log.partition, log.error
    if is_duplicate:
        error = FileExistsError(f"{folder}: another log was copied to this directory")
    if error is not None:
        return PartitionSalvage(one.path, None, one.topic, one.partition, error=error)
    result = PartitionSalvage(one.path, folder, one.topic, one.partition)
    live = {segment.file_name for segment in log.segments}
    result.left_out = [
        segment.file_name
        for segment in one.segments
        if segment.file_name not in live and segment.name.kind == "log"
    ]
    try:
        if folder is not None:
            folder.mkdir(exist_ok=True)
            snapshots = [name for name in one.folder.names() if name.endswith(".checkpoint")]
            _copy_files(one.folder, folder, [*_KEPT_FILES, *snapshots])
            if one.topic == METADATA_TOPIC and _known_epochs(one.folder):
                # No recovery rebuilds its epochs: those before the log's start are in snapshots.
                _copy_files(one.folder, folder, [LEADER_EPOCH_CHECKPOINT])
        bounds, result.overlaps = find_bounds(log)
        gaps = KeptOffsets(log)
        for segment, bound in zip(log.segments, bounds, strict=True):
            copied = (
                covered(segment, bound)
                if bound.is_covered
                else _copy_segment(segment, bound, folder, doubtful, gaps)
            )
            result.segments.append(copied)
            result.error = copied.error or result.error
        result.gaps = gaps.problems()
        move_kept_elsewhere(result.segments)
    except Exception as error:  # an error of any kind must not affect other partitions
        result.error = error
    if result.error is not None and folder is not None:
        _incomplete(folder)
    return result


def _copy_segment(
    segment: SegmentFile,
    bounds: SegmentBounds,
    folder: Path | None,
    doubtful: Doubtful,
    gaps: KeptOffsets,
) -> SegmentSalvage:
    """Copy the offsets of a segment that no earlier one keeps."""
    name, base_offset = segment.file_name, segment.name.base_offset
    result, patches = SegmentSalvage(name, base_offset), dict[int, bytes]()
    try:
        with borrowed_source(segment.as_source()) as source:
            result, salvaged = salvage_segment(
                source,
                name,
                base_offset,
                highest=bounds.highest,
                known_epochs=_known_epochs(segment.folder),
                doubtful=doubtful,
            )
            result, salvaged = without_covered(result, salvaged, bounds)
            patches, offsets = salvaged.patches(), SegmentOffsets(segment)
            tables = salvaged.runs.tables(salvaged.batches, with_dense=False)
            offsets.add_around(list(_starts(result.losses)), tables)
            if folder is not None and (result.batches or bounds.keeper is None):
                like = segment.path if segment.path.is_file() else None
                with AtomicFile(folder / (result.copied_as or name), like=like) as file:
                    for data in _repaired_bytes(source, result.pieces, patches):
                        file.stream.write(data)
                source.require_unshrunk()
    except Exception as error:  # an error of any kind must not affect other segments
        gaps.skip()
        known_end = None if bounds.highest == HIGHEST_OFFSET else bounds.highest
        return not_copied(result, error, _size_of(segment), known_end)
    gaps.add(result, offsets)
    return result


def _starts(losses: Iterable[LostRange]) -> Iterator[int]:
    """Yield the positions of lost ranges that do not follow another one."""
    stop = None
    for loss in losses:
        if loss.position != stop:
            yield loss.position
        stop = loss.position + loss.size


def _size_of(segment: SegmentFile) -> int:
    with contextlib.suppress(OSError):
        return segment.size
    return 0


def _known_epochs(folder: Folder) -> set[int]:
    """Return the leader epochs in the ``leader-epoch-checkpoint``, if it can be read."""
    with contextlib.suppress(OSError, KafkaScanError):
        data = folder.read(LEADER_EPOCH_CHECKPOINT)
        if data is not None:
            path = str(folder.path / LEADER_EPOCH_CHECKPOINT)
            return {one.epoch for one in parse_leader_epochs(data, path)}
    return set()


def _copy_files(source: Folder, destination: Path, names: Iterable[str]) -> None:
    for name in names:
        data = source.read(name)
        if data is not None:
            with AtomicFile(destination / name) as file:
                file.stream.write(data)


def _repaired_bytes(
    source: Source, ranges: list[KeptRange], patches: dict[int, bytes]
) -> Iterator[memoryview]:
    """Yield the bytes of ranges with the patches at positions, some MiB at a time."""
    starts, sizes = _pieces(ranges)
    patched = list(patches)
    chunks = np.flatnonzero(np.diff(np.cumsum(sizes) // _COPY_BYTES, prepend=-1)).tolist()
    for first, stop in itertools.pairwise([*chunks, len(starts)]):
        part = slice(first, stop)
        places = np.cumsum(sizes[part]) - sizes[part]
        data = np.empty(int(sizes[part].sum()), np.uint8)
        read_pieces(source, starts[part], sizes[part], data, places)
        for start, place, size in zip(
            starts[part].tolist(), places.tolist(), sizes[part].tolist(), strict=True
        ):
            # One may begin in the piece before.
            row = bisect.bisect_left(patched, start - UNCOVERED.itemsize)
            while row < len(patched) and patched[row] < start + size:
                patch, before = patches[patched[row]], max(0, start - patched[row])
                at = place + patched[row] + before - start
                kept = patch[before : start + size - patched[row]]
                data.data[at : at + len(kept)] = kept
                row += 1
        yield data.data


def _pieces(ranges: list[KeptRange]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return position and size of what is copied at once: adjacent ranges, or parts of them."""
    starts = np.array([one.position for one in ranges], np.int64)
    stops = starts + np.array([one.size for one in ranges], np.int64)
    heads = np.flatnonzero(np.append(True, starts[1:] != stops[:-1])[: len(ranges)])
    starts, stops = starts[heads], stops[np.append(heads, len(ranges))[1:] - 1]
    counts = -(-(stops - starts) // _COPY_BYTES)
    number = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    positions = np.repeat(starts, counts) + _COPY_BYTES * number
    return positions, np.minimum(np.repeat(stops, counts) - positions, _COPY_BYTES)


def _require_empty(folder: Path) -> None:
    if folder.exists() and os.listdir(folder):
        raise FileExistsError(f"{folder}: the directory is not empty")


def _interval_at(target: Path) -> int | None:
    """Return the topic's ``index.interval.bytes`` in the data dir of a partition's copy."""
    topic = partition_dir(target).topic or ""
    return read_metadata(data_dirs_of(target)).own_config(topic).interval_bytes


def _recover_copies(
    partitions: list[PartitionSalvage], target: Path, interval_bytes: int | None, threads: int
) -> bool:
    """
    Build the indexes and other files of the copied logs, as `recover` does.

    Returns
    -------
    bool
        Whether the data directory was marked as cleanly shut down.
    """
    if not target.exists():  # the only log is incomplete
        return False
    try:
        done = recover(
            target,
            write=True,
            backup=False,
            recovery_point=0,
            interval_bytes=interval_bytes,
            threads=threads,
            mark_clean=all(one.error is None for one in partitions),
        )
    except NoLogsError:  # no log was copied completely, except the metadata log
        return False
    by_path = {one.path: one for one in done.partitions}
    for one in partitions:
        one.recovery = by_path.get(one.destination) if one.destination else None
        if one.recovery is not None and one.error is None:
            one.error = one.recovery.error
    return done.is_marked_clean
