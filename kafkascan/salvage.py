"""Logs copied without their damage: all that is intact, also what a broker would throw away."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kafkascan import arrow
from kafkascan.batch_columns import size_in_bytes
from kafkascan.checkpoints import (
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_CHECKPOINT,
    parse_leader_epochs,
)
from kafkascan.errors import KafkaScanError
from kafkascan.files import AtomicFile
from kafkascan.folders import Folder
from kafkascan.indexes import DEFAULT_INTERVAL_BYTES, require_interval_bytes
from kafkascan.log_dir import SegmentFile, is_log_dir
from kafkascan.logs import Log, open_logs
from kafkascan.mending import MendedLog
from kafkascan.recovery import PartitionRecovery, Recovery, recover
from kafkascan.salvaged_segments import Doubtful, SegmentSalvage, salvage_segment
from kafkascan.sources import Source
from kafkascan.true_batches import HIGHEST_OFFSET
from kafkascan.walks import read_bytes

if TYPE_CHECKING:
    import pyarrow as pa

_COPIED_AT_ONCE = 1 << 23
# What is known of a log besides its batches and what follows from them.
_KEPT_FILES = ("partition.metadata", "quorum-state")
_DATA_DIR_FILES = ("meta.properties", "bootstrap.checkpoint", LOG_START_CHECKPOINT)

OnProgress = Callable[["PartitionSalvage", int, int], object]


@dataclass
class PartitionSalvage:
    """
    What became of the log of one partition.

    Attributes
    ----------
    path : pathlib.Path
    destination : pathlib.Path or None
        The folder that was written; None if none was to be.
    topic : str or None
    partition : int or None
    segments : list of SegmentSalvage
        In log order.
    left_out : list of str
        Other log files, that are no part of the log: on their way out or in.
    recovery : PartitionRecovery or None
        What was done for a broker to take the copy as it is.
    error : Exception or None
        Why there is no copy, or none that a broker takes. If a segment could not be read or
        written, the copy has a hole: its folder's name ends with ``.incomplete`` then.
    """

    path: Path
    destination: Path | None
    topic: str | None
    partition: int | None
    segments: list[SegmentSalvage] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    recovery: PartitionRecovery | None = None
    error: Exception | None = None

    @property
    def lost_bytes(self) -> int:
        """Bytes of all losses."""
        return sum(segment.lost_bytes for segment in self.segments)


@dataclass
class Salvage:
    """
    What became of the logs of a data dir, of a partition, or of one segment.

    Attributes
    ----------
    path : pathlib.Path
    destination : pathlib.Path or None
    partitions : list of PartitionSalvage
    is_marked_clean : bool
        Whether brokers are told to take the copy of a data dir as it is.
    """

    path: Path
    destination: Path | None
    partitions: list[PartitionSalvage]
    is_marked_clean: bool = False

    @property
    def lost_bytes(self) -> int:
        """Bytes of all losses."""
        return sum(one.lost_bytes for one in self.partitions)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the losses and repairs as rows that all have the same columns."""
        for partition in self.partitions:
            place = {"topic": partition.topic, "partition": partition.partition}
            for segment in partition.segments:
                here = place | {"segment": segment.name}
                for loss in segment.losses:
                    yield _ROW | here | {"what": "lost"} | asdict(loss)
                for one in segment.repairs:
                    reason = f"{one.field} was {one.old}, is {one.new}"
                    last = {"first_offset": one.base_offset, "position": one.position}
                    yield _ROW | here | last | {
                        "what": "mended", "symbol": one.field.upper(), "reason": reason
                    }  # fmt: skip

    def to_columns(self) -> dict[str, list[Any]]:
        """Return losses and repairs as a table."""
        rows = list(self.rows())
        return {name: [row[name] for row in rows] for name in SALVAGE_COLUMNS}

    def to_arrow(self) -> pa.Table:
        """Return losses and repairs as Arrow's table."""
        return arrow.table_of(self.to_columns(), texts=_TEXTS)

    def to_dict(self) -> dict[str, Any]:
        """Return all of it in dictionaries and lists."""
        return {
            "path": str(self.path),
            "destination": None if self.destination is None else str(self.destination),
            "is_marked_clean": self.is_marked_clean,
            "lost_bytes": self.lost_bytes,
            "partitions": [_partition_dict(one) for one in self.partitions],
        }

    def to_json(self) -> str:
        """Return all of it as a JSON document."""
        return json.dumps(self.to_dict(), indent=2)

    def __repr__(self) -> str:
        lines = [f"<Salvage {self.path}: {self.lost_bytes:,} bytes lost>"]
        for one in self.partitions:
            kept = sum(segment.batches for segment in one.segments)
            losses = sum(len(segment.losses) for segment in one.segments)
            repairs = sum(len(segment.repairs) for segment in one.segments)
            lines.append(
                f"  {one.path.name}: {kept:,} batches kept, {losses} losses of"
                f" {one.lost_bytes:,} bytes, {repairs} fields mended"
                + ("" if one.error is None else f"; {one.error}")
            )
        return "\n".join(lines)


INCOMPLETE = ".incomplete"
"""What the folder of a copy is named behind its name, if a segment could not be copied."""

SALVAGE_COLUMNS = (
    "topic", "partition", "segment", "what", "symbol", "position", "size", "first_offset",
    "last_offset", "claimed_first_offset", "claimed_last_offset", "claimed_records",
    "zero_bytes", "reason",
)  # fmt: skip
"""Columns of `Salvage.rows`."""

_TEXTS = ("topic", "segment", "what", "symbol", "reason")
_ROW: dict[str, Any] = dict.fromkeys(SALVAGE_COLUMNS)


def _partition_dict(one: PartitionSalvage) -> dict[str, Any]:
    return {
        "path": str(one.path),
        "destination": None if one.destination is None else str(one.destination),
        "topic": one.topic,
        "partition": one.partition,
        "lost_bytes": one.lost_bytes,
        "left_out": one.left_out,
        "error": None if one.error is None else str(one.error),
        "segments": [_segment_dict(segment) for segment in one.segments],
    }


def _segment_dict(segment: SegmentSalvage) -> dict[str, Any]:
    plain = {name: value for name, value in vars(segment).items() if name not in _LISTS}
    return plain | {
        "end": None if segment.end is None else segment.end.name,
        "error": None if segment.error is None else str(segment.error),
        "lost_bytes": segment.lost_bytes,
        **{name: [asdict(one) for one in getattr(segment, name)] for name in _LISTS},
    }


_LISTS = ("pieces", "losses", "repairs")


def salvage(
    path: str | os.PathLike[str],
    destination: str | os.PathLike[str] | None = None,
    /,
    *,
    doubtful: Doubtful = "keep",
    interval_bytes: int = DEFAULT_INTERVAL_BYTES,
    threads: int | None = None,
    on_progress: OnProgress | None = None,
) -> Salvage:
    """
    Copy logs without their damage, and tell what is lost.

    A broker that recovers a log gives up all that follows the first damage. Here what is
    behind it is found again: batches whose checksum is right and whose offsets belong there.

    Parameters
    ----------
    path : path
        A broker's data dir, the folder of one partition, a tar of them, or one segment. It is
        only read.
    destination : path, optional
        A folder that is empty or not there yet. It gets what a broker needs: the logs, their
        indexes, snapshots of producers and leader epochs. Without it, nothing is written and
        the result tells what would be.
    doubtful : {"keep", "drop"}
        What to do with batches in damage of which nothing but their checksums and offsets
        says that they are the log's own, and not the content of a damaged record.
    interval_bytes : int, default 4096
        As of `recover`.
    threads : int, optional
        Partitions that are worked on at once; by default one per CPU.
    on_progress : callable, optional
        Gets each partition's result when it is there, how many there are so far, and of how
        many.

    Returns
    -------
    Salvage
        `Salvage.to_json` is the report. An error in one partition does not keep others from
        being copied; it is in that one's `error`.

    Raises
    ------
    FileExistsError
        If there is something in the destination.
    OSError
        If `path` cannot be read.

    Notes
    -----
    Kept is every batch whose checksum is right and that stands in order. Base offset, length,
    leader epoch and magic byte, which no checksum covers, are mended where neighbours say what
    they were; see docs/salvage.md for what that guarantees, and what it cannot. Time is linear
    in the size of the logs, on any bytes; memory is 69 bytes per batch of a segment.

    A transaction whose marker was lost stays open, up to the next marker of its producer.
    """
    require_interval_bytes(interval_bytes)
    job = _Job(Path(path), None if destination is None else Path(destination), doubtful)
    if job.destination is not None:
        _require_empty(job.destination)
        job.destination.mkdir(parents=True, exist_ok=True)
    if threads is not None and threads < 1:
        raise ValueError("threads must be at least 1")
    done: list[PartitionSalvage] = []
    with ThreadPoolExecutor(threads or os.cpu_count()) as pool:
        for one in pool.map(job.copy, job.logs):
            done.append(one)
            if on_progress is not None:
                on_progress(one, len(done), len(job.logs))
    result = Salvage(job.path, job.destination, done)
    if job.destination is not None:
        job.copy_data_dir_files()
        _make_ready(result, job.destination, interval_bytes, threads)
    return result


class _Job:
    def __init__(self, path: Path, destination: Path | None, doubtful: Doubtful) -> None:
        if doubtful not in ("keep", "drop"):
            raise ValueError(f"doubtful must be 'keep' or 'drop', not {doubtful!r}")
        self.path, self.destination, self._doubtful = path, destination, doubtful
        path.stat()
        self.logs = open_logs(path)
        is_folder = is_log_dir(path)
        self._is_data_dir = is_folder and [log.partition.path for log in self.logs] != [path]
        firsts = {log.partition.path.name: log for log in reversed(self.logs)}
        self._namesakes = set(self.logs) - set(firsts.values())

    def copy(self, log: Log) -> PartitionSalvage:
        """Copy one log."""
        one, folder = log.partition, self.destination
        if folder is not None and self._is_data_dir:
            folder = folder / one.path.name
        result = PartitionSalvage(one.path, folder, one.topic, one.partition)
        if folder is not None and log in self._namesakes:
            # A tar may hold several data dirs; their logs would end up in one.
            reason = "another log has a folder of the same name; there is room for one of them"
            result.destination, result.error = None, FileExistsError(f"{folder}: {reason}")
            return result
        live = {segment.path.name for segment in log.segments}
        result.left_out = [
            segment.path.name
            for segment in one.segments
            if segment.path.name not in live and segment.name.kind == "log"
        ]
        try:
            if folder is not None:
                folder.mkdir(exist_ok=True)
                snapshots = [name for name in one.folder.names() if name.endswith(".checkpoint")]
                _copy_files(one.folder, folder, [*_KEPT_FILES, *snapshots])
            self._copy_segments(log, result)
        except Exception as error:  # whatever it is, others are not to suffer from it
            result.error = error
        if result.error is not None and folder is not None and folder.exists():
            result.destination = _set_aside(folder)
        return result

    def _copy_segments(self, log: Log, result: PartitionSalvage) -> None:
        bases = [segment.name.base_offset for segment in log.segments]
        for segment, following in zip(log.segments, [*bases[1:], None], strict=True):
            outcome = SegmentSalvage(segment.path.name, segment.name.base_offset)
            result.segments.append(outcome)
            highest = HIGHEST_OFFSET if following is None else following - 1
            try:
                self._copy_segment(segment, outcome, highest, result.destination)
            except (OSError, KafkaScanError) as error:
                outcome.give_up(error, _size_of(segment), None if following is None else highest)
                result.error = error

    def _copy_segment(
        self, segment: SegmentFile, outcome: SegmentSalvage, highest: int, folder: Path | None
    ) -> None:
        with segment.open() as source:
            log = salvage_segment(
                source,
                outcome,
                highest=highest,
                known_epochs=_known_epochs(segment.folder),
                doubtful=self._doubtful,
            )
            if folder is None:
                return
            like = segment.path if segment.path.is_file() else None
            with AtomicFile(folder / segment.path.name, like=like) as file:
                for data in _mended_bytes(source, log):
                    file.stream.write(data)
            source.require_unshrunk()

    def copy_data_dir_files(self) -> None:
        """Copy what a data dir says of itself; without it no broker starts."""
        if self._is_data_dir and self.destination is not None and self.logs:
            _copy_files(self.logs[0].partition.folder.parent, self.destination, _DATA_DIR_FILES)


def _size_of(segment: SegmentFile) -> int:
    with contextlib.suppress(OSError):
        return segment.size
    return 0


def _set_aside(folder: Path) -> Path:
    """Give a copy with a hole a name that no broker takes for a log's."""
    whole = Path(os.path.abspath(folder))
    aside = whole.with_name(f"{whole.name}{INCOMPLETE}")
    try:
        os.rename(whole, aside)
    except OSError:
        return folder
    return aside


def _known_epochs(folder: Folder) -> set[int]:
    """Return the leader epochs that a folder's file knows of, if it can be read."""
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


def _mended_bytes(source: Source, log: MendedLog) -> Iterator[bytes]:
    """Yield the batches of a log, neighbours at once, with what was mended."""
    starts = log.batches["position"]
    stops = starts + size_in_bytes(log.batches)
    patches = log.patches()
    is_head = np.append(True, starts[1:] != stops[:-1]) if len(starts) else np.empty(0, bool)
    is_head |= np.isin(starts, list(patches))
    heads = np.append(np.flatnonzero(is_head), len(starts))
    for head, following in zip(heads[:-1].tolist(), heads[1:].tolist(), strict=True):
        position, stop = int(starts[head]), int(stops[following - 1])
        patch = patches.get(position, b"")
        yield patch
        position += len(patch)
        while position < stop:
            size = min(_COPIED_AT_ONCE, stop - position)
            yield read_bytes(source, position, size)
            position += size


def _require_empty(folder: Path) -> None:
    if folder.exists() and os.listdir(folder):
        raise FileExistsError(f"{folder}: there is something in it already")


def _make_ready(
    result: Salvage, destination: Path, interval_bytes: int, threads: int | None
) -> None:
    """Build what belongs to the copied logs, so that a broker takes them as they are."""
    if not destination.exists():  # it was one log, and is set aside
        return
    done: Recovery = recover(
        destination,
        write=True,
        backup=False,
        recovery_point=0,
        interval_bytes=interval_bytes,
        threads=threads,
        mark_clean=all(one.error is None for one in result.partitions),
    )
    result.is_marked_clean = done.is_marked_clean
    by_path = {one.path: one for one in done.partitions}
    for one in result.partitions:
        one.recovery = by_path.get(one.destination) if one.destination else None
        if one.recovery is not None and one.error is None:
            one.error = one.recovery.error
