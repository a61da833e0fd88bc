"""Compact header fingerprints of logs, for comparing replicas across hosts.

The checksum of a batch of magic 2 covers everything but base offset, length, leader epoch and
magic byte; the checksum of an older message everything but offset and size. Two batches of the
same size and checksum therefore have the same content, at whatever position and offset.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kafkascan._core import fingerprints as _core
from kafkascan.batches import arrow
from kafkascan.batches.columns import BatchTable, join_rows, require_batch_table
from kafkascan.batches.scan import scan_batches
from kafkascan.broker_state.checkpoints import CLEANER_CHECKPOINT, LeaderEpoch
from kafkascan.broker_state.leader_epochs import loaded_epochs
from kafkascan.broker_state.offset_checkpoints import CheckpointReader
from kafkascan.format.errors import CorruptCheckpointError, KafkaScanError
from kafkascan.format.texts import json_text
from kafkascan.io.atomic_files import AtomicFile
from kafkascan.io.concurrency import map_parts, require_threads
from kafkascan.io.sources import Source
from kafkascan.io.stores.url_paths import UrlPath, as_path
from kafkascan.logs.log_chunks import end_of, rows_from
from kafkascan.logs.log_dir import PartitionDir
from kafkascan.logs.opened_logs import Log, LogsLike, OffsetCursor, open_logs

if TYPE_CHECKING:
    import pyarrow as pa

FINGERPRINT: np.dtype[np.void] = np.asarray(_core.blank_fingerprint).dtype
"""
One row per batch: 39 bytes. For a compressed message of magic 0 or 1, both offsets are the offset
of its last record, and the count is -1.
"""

FingerprintRows: TypeAlias = "NDArray[np.void]"
"""Array of `FINGERPRINT`, shape (n,)."""

_NAMES: tuple[str, ...] = FINGERPRINT.names or ()
# Rows that become text in one call.
_ROWS_AT_ONCE = 1 << 13
_FORMAT, _VERSION = "kafkascan fingerprints", 2
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
    damage : list of str
        Errors, unreadable and doubtful ranges of the log, and checkpoints that cannot be read.
    epochs : list of LeaderEpoch
        Entries of ``leader-epoch-checkpoint``, also of epochs without batches.
    cleaned_up_to : int
        Offset up to which the cleaner has removed records, by ``cleaner-offset-checkpoint``; 0 if
        it has not, or if the checkpoint is missing.
    unread_segments : list of str
        Errors of segments that could not be read at all.
    overlaps : list of str
        Segments with the same offsets. Each offset is read once, from the first of them.
    """

    topic: str | None
    partition: int | None
    rows: FingerprintRows
    damage: list[str] = field(default_factory=list)
    epochs: list[LeaderEpoch] = field(default_factory=list)
    cleaned_up_to: int = 0
    unread_segments: list[str] = field(default_factory=list)
    overlaps: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Topic and partition, if they are known."""
        return "" if self.topic is None else f"{self.topic}-{self.partition}"


@dataclass(frozen=True, eq=False)
class Fingerprints:
    """
    The fingerprints of logs; returned by `read_fingerprints`.

    Attributes
    ----------
    path : str
        Path of the logs or of the file that was read.
    logs : list of LogFingerprints
    """

    path: str
    logs: list[LogFingerprints]

    def __repr__(self) -> str:
        batches = sum(len(one.rows) for one in self.logs)
        return f"<Fingerprints of {self.path}: {len(self.logs):,} logs, {batches:,} batches>"

    def to_arrow(self) -> pa.Table:
        """Return one `pyarrow.Table` with the rows of all logs."""
        pa = arrow.require_pyarrow()
        counts = [len(log.rows) for log in self.logs]
        rows = join_rows([log.rows for log in self.logs], FINGERPRINT)
        owner = np.repeat(np.arange(len(counts)), counts)
        topics = pa.array([log.topic for log in self.logs], pa.string())
        partitions = pa.array([log.partition for log in self.logs], pa.int32())
        columns = {"topic": topics.take(pa.array(owner)),
                   "partition": partitions.take(pa.array(owner))}  # fmt: skip
        columns |= {name: pa.array(np.ascontiguousarray(rows[name])) for name in _NAMES}
        logs = [_head_of(log) | {"batches": len(log.rows)} for log in self.logs]
        head = {"version": _VERSION, "path": self.path, "logs": logs}
        return pa.table(columns).replace_schema_metadata({_METADATA: json_text(head)})

    def save(self, path: str | os.PathLike[str], /) -> None:
        """
        Write the fingerprints to a Parquet or JSON file, atomically.

        Parameters
        ----------
        path : path
            Ends with ``.parquet`` or ``.json``, which selects the format.
        """
        path = Path(path)
        if path.suffix not in (".parquet", ".json"):
            raise ValueError(f"{path}: fingerprints are saved as .parquet or .json")
        with AtomicFile(path) as file:
            if path.suffix == ".json":
                for piece in self._json_pieces():
                    file.stream.write(piece.encode())
                return
            arrow.require_pyarrow()
            import pyarrow.parquet

            pyarrow.parquet.write_table(self.to_arrow(), file.stream, compression="zstd")

    def _json_pieces(self) -> Iterator[str]:
        """Yield the text of a JSON file: one call for all rows holds the GIL for seconds."""
        head = {"format": _FORMAT, "version": _VERSION, "path": self.path, "columns": list(_NAMES)}
        yield f'{json_text(head)[:-1]}, "logs": ['
        for number, log in enumerate(self.logs):
            yield f'{", " if number else ""}{json_text(_head_of(log))[:-1]}, "rows": ['
            for start in range(0, len(log.rows), _ROWS_AT_ONCE):
                rows = json_text(log.rows[start : start + _ROWS_AT_ONCE].tolist())[1:-1]
                yield f", {rows}" if start else rows
            yield "]}"
        yield "]}"


def read_fingerprints(
    logs: LogsLike | Fingerprints,
    /,
    *,
    log_start_offset: int | None = None,
    threads: int | None = None,
) -> Fingerprints:
    """
    Compute the fingerprints of logs from their batch headers, or read them from a file.

    Parameters
    ----------
    logs : path, LogDir, PartitionDir, bytes-like, Source or SegmentFile
        A data directory, a partition directory, a tar archive of them, or a segment; or a
        ``.parquet`` or ``.json`` file that `Fingerprints.save` wrote.
    log_start_offset : int, optional
        First offset of each log; see `read_transactions`. Batches that end before it are omitted.
    threads : int, optional
        Number of logs that are read in parallel; by default one per CPU.

    Returns
    -------
    Fingerprints
        39 bytes per batch. Damage does not end a log: batches after it are included, and
        `LogFingerprints.damage` lists what could not be read.

    Raises
    ------
    FingerprintFileError
        If a file with such a name does not contain fingerprints.
    As `open_log_dir`.
    """
    if isinstance(logs, Fingerprints):
        return logs
    if isinstance(logs, (str, os.PathLike)) and as_path(logs).suffix in (".parquet", ".json"):
        return _load(as_path(logs))
    threads = require_threads(threads)
    found = open_logs(logs, log_start_offset)
    read = map_parts(found, _of_log, threads)
    # The cleaner replaces segments before it writes its checkpoint, also while logs are read.
    checkpoints = CheckpointReader()
    cleaned = [checkpoints.offset_of(log.partition, CLEANER_CHECKPOINT) for log in found]
    return Fingerprints(
        _path_of(logs),
        [replace(one, cleaned_up_to=offset) for one, offset in zip(read, cleaned, strict=True)],
    )


def _path_of(logs: Any) -> str:
    return str(logs if isinstance(logs, (str, os.PathLike)) else getattr(logs, "path", "<bytes>"))


def _of_log(log: Log) -> LogFingerprints:
    tables: list[FingerprintRows] = []
    damage: list[str] = []
    epochs = _epochs_of(log.partition, damage)
    unread: list[str] = []
    overlaps: list[str] = []
    cursor, start_offset = OffsetCursor(), log.start_offset if log.has_deleted_offsets else 0
    for segment in log.served_segments:
        try:
            scan = scan_batches(segment.folder.source(segment.file_name), on_corrupt="resync")
        except OSError as error:
            unread.append(str(error))
            continue
        except KafkaScanError as error:
            damage.append(str(error))
            continue
        batches = rows_from(scan.batches, max(start_offset, cursor.position))
        overlaps += map(str, cursor.add(segment, end_of(scan.batches)))
        tables.append(fingerprint_batches(batches))
        damage += [str(gap) for gap in scan.gaps]
        damage += [
            f"{scan.path}: position {one.position}: {one.batches} batches after damage may not"
            " belong to the log"
            for one in scan.doubtful
        ]
        if scan.error is not None:
            damage.append(str(scan.error))
    partition = log.partition
    rows = join_rows(tables, FINGERPRINT)
    return LogFingerprints(
        partition.topic, partition.partition, rows, damage, epochs, unread_segments=unread,
        overlaps=overlaps,
    )  # fmt: skip


def _epochs_of(partition: PartitionDir, damage: list[str]) -> list[LeaderEpoch]:
    """Return the entries of ``leader-epoch-checkpoint``, as a broker reads them."""
    try:
        return loaded_epochs(partition.leader_epochs or [])
    except (OSError, CorruptCheckpointError) as error:
        damage.append(str(error))
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
    rows = np.empty(len(batches), FINGERPRINT)
    _core.take_into(batches, rows)
    return rows


# ---- files -----------------------------------------------------------------------------------


def _head_of(log: LogFingerprints) -> dict[str, Any]:
    """Return what a file contains of a log, except its rows."""
    return {"topic": log.topic, "partition": log.partition, "damage": log.damage,
            "unread_segments": log.unread_segments, "overlaps": log.overlaps,
            "epochs": log.epochs,
            "cleaned_up_to": log.cleaned_up_to}  # fmt: skip


def _load(path: Path) -> Fingerprints:
    try:
        return _load_json(path) if path.suffix == ".json" else _load_parquet(path)
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
        return bytes(source.window(0, source.size))


def _load_json(path: Path) -> Fingerprints:
    document = json.loads(_content(path))
    if document["format"] != _FORMAT or document["columns"] != list(_NAMES):
        raise ValueError("unknown format or columns")
    _require_version(document["version"])
    logs = [
        _checked_log(one, np.array([tuple(row) for row in one["rows"]], FINGERPRINT))
        for one in document["logs"]
    ]
    return Fingerprints(str(document["path"]), logs)


def _load_parquet(path: Path) -> Fingerprints:
    arrow.require_pyarrow()
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
    return Fingerprints(str(head["path"]), logs)


def _checked_log(one: dict[str, Any], rows: FingerprintRows) -> LogFingerprints:
    topic, partition = one["topic"], one["partition"]
    if not isinstance(topic, (str, type(None))) or not isinstance(partition, (int, type(None))):
        raise TypeError("topic must be a string and partition a number")
    epochs = [LeaderEpoch(int(epoch), int(start)) for epoch, start in one["epochs"]]
    damage, unread = one["damage"], one["unread_segments"]
    return LogFingerprints(
        topic, partition, rows, [*map(str, damage)], epochs, int(one["cleaned_up_to"]),
        [*map(str, unread)], [*map(str, one.get("overlaps", []))],
    )  # fmt: skip
