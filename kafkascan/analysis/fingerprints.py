"""Compact header fingerprints of logs, for comparing replicas across hosts.

The checksum of a batch of magic 2 covers everything but base offset, length, leader epoch and
magic byte; the checksum of an older message everything but offset and size. Two batches of the
same size and checksum therefore have the same content, at whatever position and offset.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kafkascan._core import fingerprints as _core
from kafkascan.batches.columns import BatchTable, join_rows, require_batch_table, rows_from
from kafkascan.batches.scan import iter_open_batches, scan_batches
from kafkascan.broker_state.checkpoints import CLEANER_CHECKPOINT, LeaderEpoch
from kafkascan.broker_state.leader_epochs import loaded_epochs
from kafkascan.broker_state.offset_checkpoints import CheckpointReader
from kafkascan.format.errors import CorruptCheckpointError, KafkaScanError
from kafkascan.format.findings import Severity
from kafkascan.format.layout import ScanEnd
from kafkascan.format.texts import json_text
from kafkascan.io import result_memory
from kafkascan.io.atomic_files import AtomicFile
from kafkascan.io.concurrency import map_parts
from kafkascan.io.folders import DiskFolder
from kafkascan.io.sources import Source, borrowed_source, read_bytes
from kafkascan.io.stores.urls import UrlPath, as_path
from kafkascan.logs.log_chunks import threads_for
from kafkascan.logs.log_dir import PartitionDir
from kafkascan.logs.log_finding import PartitionFilter
from kafkascan.logs.log_problems import LogProblems, notes_of_moving
from kafkascan.logs.opened_logs import LogsLike, LogView, open_logs, open_partition, selected_logs
from kafkascan.logs.walking.log_reader import LogReader, SegmentReading
from kafkascan.tables.schema import PARTITION, TOPIC, Field, Schema, require_pyarrow
from kafkascan.tables.table import NO_PROBLEMS, AnyTable, Column, Problem, Problems, plain_rows

FINGERPRINT: np.dtype[np.void] = np.asarray(_core.blank_fingerprint).dtype
"""
One row per batch: 39 bytes. For a compressed message of magic 0 or 1, both offsets are the offset
of its last record, and the count is -1.
"""

FingerprintRows: TypeAlias = NDArray[np.void]
"""An array of `FINGERPRINT`, shape (n,)."""

ROWS = 1 << 16
"""Rows that are read of a log at once."""

_NO_ROWS = np.empty(0, FINGERPRINT)
_NAMES: tuple[str, ...] = FINGERPRINT.names or ()
_VERSION = 3
_METADATA = b"kafkascan.fingerprints"


class FingerprintFileError(KafkaScanError, ValueError):
    """A file does not contain fingerprints, or has an unknown version."""


@dataclass(frozen=True, eq=False)
class LogFingerprints:
    """
    The fingerprints of one log.

    Attributes
    ----------
    topic : str or None
    partition : int or None
    rows : ndarray of FINGERPRINT, shape (n,)
        In log order.
    problems : Problems
        Errors, unreadable and doubtful ranges of the log, checkpoints that cannot be read, and
        segments with the same offsets: each offset is read once, from the first of them.
    epochs : list of LeaderEpoch
        Entries of ``leader-epoch-checkpoint``, also of epochs without batches.
    cleaned_up_to : int
        Offset up to which the cleaner has removed records, by ``cleaner-offset-checkpoint``; 0 if
        it has not, or if the checkpoint is missing.
    """

    topic: str | None
    partition: int | None
    rows: FingerprintRows
    problems: Problems = NO_PROBLEMS
    epochs: list[LeaderEpoch] = field(default_factory=list)
    cleaned_up_to: int = 0

    @property
    def key(self) -> tuple[str | None, int | None]:
        """Topic and partition, by which logs are matched."""
        return self.topic, self.partition

    @property
    def name(self) -> str:
        """Topic and partition, if they are known."""
        return "" if self.topic is None else f"{self.topic}-{self.partition}"


FINGERPRINT_SCHEMA = Schema(
    "fingerprints",
    (
        TOPIC,
        PARTITION,
        Field("first_offset", "int64", "offset of the first record; of a compressed message of"
              " magic 0 and 1, of the last", nullable=False),
        Field("last_offset", "int64", "offset of the last record", nullable=False),
        Field("size", "int64", "size in bytes, header included", nullable=False),
        Field("crc", "uint32", "stored checksum", nullable=False),
        Field("records_count", "int32", "number of records; -1 of a compressed message of magic"
              " 0 and 1", nullable=False),
        Field("leader_epoch", "int32", "epoch of the leader that appended it", nullable=False),
        Field("attributes", "int16", "bits of codec, timestamp type, transaction and control",
              nullable=False),
        Field("magic", "int8", "version of the message format", nullable=False),
    ),
)  # fmt: skip
"""The columns of `Fingerprints`, with a row per batch."""


@dataclass(frozen=True, eq=False, repr=False)
class Fingerprints(AnyTable):
    """
    The fingerprints of logs, a row per batch; returned by `read_fingerprints`.

    Attributes
    ----------
    path : str
        Path of the logs or of the file that was read.
    logs : list of LogFingerprints
    notes : Problems
        Copies of logs that a broker was moving to the data dir: they were not read.
    """

    schema: ClassVar[Schema] = FINGERPRINT_SCHEMA

    path: str
    logs: list[LogFingerprints]
    notes: Problems = NO_PROBLEMS

    @property
    def problems(self) -> Problems:
        """What was not read, and segments with the same offsets."""
        return Problems([*self.notes, *(one for log in self.logs for one in log.problems)])

    def __len__(self) -> int:
        return sum(len(one.rows) for one in self.logs)

    def _summary_lines(self) -> list[str]:
        return [f"<Fingerprints of {self.path}: {len(self.logs):,} logs, {len(self):,} batches>"]

    def to_columns(self) -> dict[str, Column]:
        """Return the values of each column."""
        rows = join_rows([log.rows for log in self.logs], FINGERPRINT)
        owners = [log for log in self.logs for _ in range(len(log.rows))]
        return {
            "topic": [log.topic for log in owners],
            "partition": [log.partition for log in owners],
            **{name: rows[name] for name in _NAMES},
        }

    def save(self, path: str | os.PathLike[str], /) -> None:
        """
        Write the fingerprints to a Parquet file, atomically, with what was not read.

        Parameters
        ----------
        path : path
            Ends with ``.parquet``.
        """
        path = Path(path)
        if path.suffix != ".parquet":
            raise ValueError(f"{path}: fingerprints are saved as .parquet")
        require_pyarrow()
        import pyarrow.parquet

        logs = [_head_of(log) | {"batches": len(log.rows)} for log in self.logs]
        head = {"version": _VERSION, "path": self.path, "logs": logs}
        head["notes"] = plain_rows(self.notes)
        table = self.arrow_table().replace_schema_metadata({_METADATA: json_text(head)})
        with AtomicFile(path) as file:
            pyarrow.parquet.write_table(table, file.stream, compression="zstd")


def read_fingerprints(
    logs: LogsLike | Fingerprints,
    /,
    *,
    topics: Collection[str] | None = None,
    partitions: Collection[int] | None = None,
    log_start_offset: int | None = None,
    threads: int | None = None,
) -> Fingerprints:
    """
    Compute the fingerprints of logs from their batch headers, or read them from a file.

    Parameters
    ----------
    logs : path, LogDir, PartitionDir, bytes-like, Source or SegmentFile
        A data directory, a partition directory, a tar archive of them, or a segment; or a
        ``.parquet`` file that `Fingerprints.save` wrote.
    topics : collection of str, optional
        Topics to read of a directory or an archive; by default all.
    partitions : collection of int, optional
        Numbers of the partitions to read; by default all.
    log_start_offset : int, optional
        First offset of each log; see `read_transactions`. Batches that end before it are omitted.
    threads : int, optional
        Number of logs that are read in parallel; by default one per CPU.

    Returns
    -------
    Fingerprints
        39 bytes per batch. Damage does not end a log: batches after it are included, and
        `Fingerprints.problems` lists what could not be read.

    Raises
    ------
    FingerprintFileError
        If a file with such a name does not contain fingerprints.
    NotALogError
        If `logs` is a file of another kind, such as a text or an index.
    As `open_log_dir`.
    """
    wanted = PartitionFilter.of(topics, partitions)
    found = logs_to_read(logs, wanted, log_start_offset)
    read = map_parts(found.logs, whole_fingerprints, threads_of(found.logs, threads))
    read = [one.fingerprints for one in with_checkpoints(zip(found.logs, read, strict=True))]
    return Fingerprints(found.path, read, found.notes)


LogToRead: TypeAlias = LogView | LogFingerprints
"""A log whose fingerprints are to be read, or those that a file has of it."""


@dataclass(frozen=True, eq=False)
class LogsToRead:
    """
    Logs whose fingerprints are to be read; the attributes are as those of `Fingerprints`.

    Attributes
    ----------
    path : str
    logs : list of LogToRead
    notes : Problems
    """

    path: str
    logs: list[LogToRead]
    notes: Problems = NO_PROBLEMS


def logs_to_read(
    logs: LogsLike | Fingerprints, wanted: PartitionFilter, log_start_offset: int | None
) -> LogsToRead:
    """Return the logs of a place; see `read_fingerprints`."""
    if isinstance(logs, (str, os.PathLike)) and as_path(logs).suffix == ".parquet":
        logs = _load(as_path(logs))
    if isinstance(logs, Fingerprints):
        kept: list[LogToRead] = [one for one in logs.logs if wanted.has(*one.key)]
        if not kept and wanted.is_given:
            raise wanted.nothing_in(logs.path)
        return LogsToRead(logs.path, kept, logs.notes)
    logs = selected_logs(logs, wanted)
    found = open_logs(logs, log_start_offset)
    return LogsToRead(_path_of(logs), [*found], notes_of_moving(found))


def key_of(log: LogToRead) -> tuple[str | None, int | None]:
    """Return topic and partition, by which logs are matched."""
    one = log if isinstance(log, LogFingerprints) else log.partition
    return one.topic, one.partition


def threads_of(logs: Iterable[LogToRead], threads: int | None) -> int:
    """Return the number of threads that reading logs profits from."""
    listed = [log for log in logs if isinstance(log, LogView)]
    segments = [(log.partition, one) for log in listed for one in log.served_segments]
    return threads_for(segments, threads)


@dataclass(frozen=True, eq=False)
class FingerprintedLog:
    """
    A log whose fingerprints were read.

    Attributes
    ----------
    fingerprints : LogFingerprints
    listed : LogView or None
        The log as it was when it was read; None if its fingerprints come from a file.
    checkpoint : (int, int) or None
        Inode and time of the cleaner's checkpoint in its data dir; None without one.
    """

    fingerprints: LogFingerprints
    listed: LogView | None = None
    checkpoint: tuple[int, int] | None = None

    def has_changed(self) -> bool:
        """Return whether retention or the cleaner changed the log since it was listed."""
        log = self.listed
        if log is None or not isinstance(log.partition.folder, DiskFolder):
            return False
        return self._is_cleaned(log) or not all(one.is_in_place() for one in log.served_segments)

    def _is_cleaned(self, log: LogView) -> bool:
        """Return whether the cleaner wrote another offset; it writes those of all logs at once."""
        if self.checkpoint == _cleaner_checkpoint(log):
            return False
        now = CheckpointReader(_ignore).offset_of(log.partition, CLEANER_CHECKPOINT)
        return now != self.fingerprints.cleaned_up_to

    def listed_again(self, log_start_offset: int | None) -> LogToRead | None:
        """Return the log as it is now, to be read again; None if it cannot be listed any more."""
        if self.listed is None:
            return self.fingerprints
        try:
            return open_partition(self.listed.partition, log_start_offset)
        except OSError:
            return None


def with_checkpoints(
    read: Iterable[tuple[LogToRead, LogFingerprints]],
) -> list[FingerprintedLog]:
    """
    Return logs whose fingerprints were read, with what the cleaner's checkpoints say of them now.

    The cleaner replaces segments before it writes its checkpoint, also while logs are read.
    """
    read = list(read)
    written = [_cleaner_checkpoint(log) for log, _ in read]
    checkpoints, found = CheckpointReader(), list[FingerprintedLog]()
    for (log, fingerprints), checkpoint in zip(read, written, strict=True):
        if isinstance(log, LogFingerprints):
            found.append(FingerprintedLog(fingerprints))
            continue
        offset = checkpoints.offset_of(log.partition, CLEANER_CHECKPOINT)
        found.append(FingerprintedLog(replace(fingerprints, cleaned_up_to=offset), log, checkpoint))
    return found


def _cleaner_checkpoint(log: LogToRead) -> tuple[int, int] | None:
    """Return inode and time of the cleaner's checkpoint beside a log on disk."""
    folder = None if isinstance(log, LogFingerprints) else log.partition.folder
    if not isinstance(folder, DiskFolder):
        return None
    try:
        found = folder.parent.status(CLEANER_CHECKPOINT)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def _ignore(_: Path, __: Exception) -> None:
    """Ignore a checkpoint that cannot be read: the read of the log has warned of it."""


def _path_of(logs: Any) -> str:
    return str(logs if isinstance(logs, (str, os.PathLike)) else getattr(logs, "path", "<bytes>"))


@dataclass(frozen=True, eq=False)
class LogTables:
    """
    The fingerprints of a log, which are read some rows at a time.

    Attributes
    ----------
    log : LogToRead
    problems : LogProblems
        Receives what is wrong; complete after the last table.
    epochs : list of LeaderEpoch
        Entries of ``leader-epoch-checkpoint``.
    by_segment : bool
        Whether no rows of a segment are yielded before it was read to its end: they stay then,
        unless retention deletes it meanwhile.
    """

    log: LogToRead
    problems: LogProblems
    epochs: list[LeaderEpoch]
    by_segment: bool

    @classmethod
    def of(cls, log: LogToRead, *, by_segment: bool = False) -> LogTables:
        """Return the tables of a log, which are to be read."""
        if isinstance(log, LogFingerprints):
            return cls(log, LogProblems(), log.epochs, by_segment)
        problems = LogProblems([log])
        return cls(log, problems, _epochs_of(log.partition, problems), by_segment)

    def __iter__(self) -> Iterator[tuple[int, FingerprintRows]]:
        """Yield the number of tables before that still count, and the next one."""
        log, problems = self.log, self.problems
        if isinstance(log, LogFingerprints):
            starts = range(0, len(log.rows), ROWS)
            yield from enumerate(log.rows[start : start + ROWS] for start in starts)
            return
        count, partition = 0, log.partition
        for reading in LogReader(log, problems, goes_on=True):
            if reading.is_first and count:  # retention has deleted the others
                count = 0
                yield count, _NO_ROWS
            before = count
            with reading, borrowed_source(reading.segment.listed()) as source:
                tables: Iterable[FingerprintRows] = _of_segment(source, reading)
                if self.by_segment:
                    read = list(tables)
                    tables = read if reading.end is not None else []
                for table in tables:
                    yield count, table
                    count += 1
                if reading.end is not None:
                    continue
                reading.end = scan = scan_batches(source, on_corrupt="resync")
                unread = reading.offsets.unread(scan.batches)
                reading.offsets.add_around([gap.position for gap in scan.gaps], [unread])
                yield before, fingerprint_batches(rows_from(unread, reading.start_offset))
                count = before + 1
                for one in scan.problems:
                    problems.add(replace(one, topic=partition.topic, partition=partition.partition))
            if reading.error is not None:
                count = before
                yield count, _NO_ROWS

    def fingerprints(self, rows: FingerprintRows) -> LogFingerprints:
        """Return rows with what else was found of the log, after its last table."""
        if isinstance(self.log, LogFingerprints):
            return replace(self.log, rows=rows)
        return LogFingerprints(*key_of(self.log), rows, self.problems.found, self.epochs)


def whole_fingerprints(log: LogToRead) -> LogFingerprints:
    """Return the fingerprints of all batches of a log."""
    if isinstance(log, LogFingerprints):
        return log
    read, tables = LogTables.of(log), list[FingerprintRows]()
    for count, table in read:
        del tables[count:]
        tables.append(table)
    return read.fingerprints(join_rows(tables, FINGERPRINT))


def _of_segment(source: Source, reading: SegmentReading) -> Iterator[FingerprintRows]:
    """Yield the fingerprints of a segment; they count if it ends after a batch."""
    offsets = reading.new_offsets()
    headers = iter_open_batches(source, rows=ROWS, on_corrupt="stop")
    for table in headers:
        yield fingerprint_batches(rows_from(offsets.take(table), reading.start_offset))
    if headers.end is ScanEnd.CLEAN:
        reading.offsets, reading.end = offsets, headers


def _epochs_of(partition: PartitionDir, problems: LogProblems) -> list[LeaderEpoch]:
    """Return the entries of ``leader-epoch-checkpoint``, as a broker reads them."""
    if len(problems.found):
        return []  # the folder cannot be listed
    try:
        return loaded_epochs(partition.leader_epochs or [])
    except (OSError, CorruptCheckpointError) as error:
        problems.add_error(partition, partition.path, error)
        return []


def fingerprint_batches(batches: BatchTable, /) -> FingerprintRows:
    """
    Return the fingerprints of batches.

    Parameters
    ----------
    batches : array of BATCH_DTYPE, shape (n,)

    Returns
    -------
    ndarray of FINGERPRINT, shape (n,)
    """
    batches = require_batch_table(batches)
    rows = result_memory.empty(len(batches), FINGERPRINT)
    _core.take_into(batches, rows)
    return rows


# ---- files -----------------------------------------------------------------------------------


def _head_of(log: LogFingerprints) -> dict[str, Any]:
    """Return what a file contains of a log, except its rows."""
    return {
        "topic": log.topic,
        "partition": log.partition,
        "problems": plain_rows(log.problems),
        "epochs": log.epochs,
        "cleaned_up_to": log.cleaned_up_to,
    }


def _load(path: Path) -> Fingerprints:
    try:
        return _load_parquet(path)
    except (KeyError, TypeError, OverflowError, AttributeError, IndexError, ValueError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise FingerprintFileError(
            f"{path}: not a file of fingerprints: {reason or 'bad data'}"
        ) from error


def _require_version(version: object) -> None:
    if version != _VERSION:
        raise ValueError(f"unknown version {version}")


def _content(path: Path) -> bytes:
    with Source(path, memory_map=False) as source:
        return read_bytes(source, 0, source.size)


def _load_parquet(path: Path) -> Fingerprints:
    require_pyarrow()
    import pyarrow.parquet

    file = pyarrow.BufferReader(_content(path)) if isinstance(path, UrlPath) else path
    table = pyarrow.parquet.read_table(file)
    head = json.loads((table.schema.metadata or {})[_METADATA])
    _require_version(head["version"])
    rows = np.empty(len(table), FINGERPRINT)
    for name in _NAMES:
        rows[name] = table.column(name).to_numpy()
    counts = [int(one["batches"]) for one in head["logs"]]
    if sum(counts) != len(rows) or min([0, *counts]) < 0:
        raise ValueError("the number of rows differs from the sum of the logs")
    parts: Sequence[FingerprintRows] = np.split(rows, np.cumsum(counts)[:-1]) if counts else []
    logs = [_checked_log(one, part) for one, part in zip(head["logs"], parts, strict=True)]
    return Fingerprints(str(head["path"]), logs, _problems_of(head.get("notes", ())))


def _checked_log(one: dict[str, Any], rows: FingerprintRows) -> LogFingerprints:
    topic, partition = one["topic"], one["partition"]
    if not isinstance(topic, (str, type(None))) or not isinstance(partition, (int, type(None))):
        raise TypeError("topic must be a string and partition a number")
    epochs = [LeaderEpoch(int(epoch), int(start)) for epoch, start in one["epochs"]]
    problems = _problems_of(one["problems"])
    return LogFingerprints(topic, partition, rows, problems, epochs, int(one["cleaned_up_to"]))


def _problems_of(rows: Iterable[dict[str, Any]]) -> Problems:
    return Problems(Problem(**row | {"severity": Severity(row["severity"])}) for row in rows)
