"""Replay a partition of one of Kafka's own topics up to an offset or a time."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kafkascan.broker_state.checkpoints import CLEANER_CHECKPOINT
from kafkascan.broker_state.offset_checkpoints import CheckpointReader
from kafkascan.format.errors import CorruptBatchError, KafkaScanError, NoLogsError, detached
from kafkascan.format.findings import Severity
from kafkascan.format.layout import ScanEnd
from kafkascan.format.schemas.message_decoder import SchemaError
from kafkascan.format.times import TimeLike, to_milliseconds
from kafkascan.logs.log_dir import LogDir
from kafkascan.logs.log_finding import open_log_dir
from kafkascan.logs.log_problems import OFFSET_GAP, IncompleteLogError
from kafkascan.logs.log_table import LogDirLike
from kafkascan.logs.opened_logs import Log, live_logs
from kafkascan.logs.reading import iter_records
from kafkascan.records.control import ControlRecordType, decode_control_key
from kafkascan.records.record_table import RecordTable
from kafkascan.tables.table import Problem, Problems, problem_of

AsOf: TypeAlias = "int | Mapping[int, int] | TimeLike"
"""A point in the log of a topic: an offset of all partitions, offsets by partition, or a time
(a datetime, or a text in ISO 8601)."""

COMPACTED = "COMPACTED"
"""Symbol of a problem: compaction may have removed records that an earlier state depends on."""

DELETED_RECORDS = "DELETED_RECORDS"
"""Symbol of a problem: the log starts after records that the state depends on."""

_COLUMNS = (
    "offset", "timestamp", "key", "value", "producer_id", "is_transactional", "is_control",
)  # fmt: skip


@dataclass(frozen=True)
class ReplayLimit:
    """
    The first record that is not applied: by its offset, or by its timestamp.

    Attributes
    ----------
    offset : int or None
        Records from this offset on are not applied.
    time_ms : int or None
        The first record with a later timestamp is not applied, nor are the records after it, as
        ``ListOffsets`` finds the offset of a time.
    """

    offset: int | None = None
    time_ms: int | None = None

    @classmethod
    def of(cls, as_of: AsOf | None, partition: int | None) -> ReplayLimit:
        """Return the limit of a partition; None is the end of the log."""
        if as_of is None:
            return cls()
        if isinstance(as_of, Mapping):
            return cls(as_of.get(partition if partition is not None else -1))
        if isinstance(as_of, (int, np.integer)) and not isinstance(as_of, bool):
            return cls(int(as_of))
        return cls(time_ms=to_milliseconds(as_of, "as_of", rounds_up=False))

    @property
    def is_end(self) -> bool:
        """Whether all records are applied."""
        return self.offset is None and self.time_ms is None

    def count_before(self, records: RecordTable) -> int:
        """Return the number of records of a table that are before the limit."""
        after = np.zeros(len(records), np.bool_)
        if self.offset is not None:
            after |= records["offset"] >= self.offset
        if self.time_ms is not None:
            after |= records["timestamp"] > self.time_ms
        return int(after.argmax()) if after.any() else len(records)


class StoredRecord(NamedTuple):
    """The latest record of a key."""

    offset: int
    timestamp: int
    key: bytes
    value: bytes
    producer_id: int
    """-1 if the record was not written in a transaction."""


@dataclass(frozen=True, eq=False)
class ReplayedLog:
    """
    The latest record of each key of a partition, at the limit of the replay.

    Attributes
    ----------
    log : Log
    end_offset : int
        The first offset that was not applied.
    records : dict of bytes to StoredRecord
        By key: the records that count, without deleted keys.
    pending : dict of int to dict of bytes to StoredRecord
        By producer id: records of transactions that are open at the end offset.
    unsettled : dict of bytes to StoredRecord
        By key: the first record at or after the end offset, of keys without one before it. The
        cleaner may have removed the one before it.
    errors : list of Exception
        Damage that was skipped, or that ended the replay.
    is_exact : bool
        Whether no record that the state depends on can have been removed, and nothing was damaged.
    """

    log: Log
    end_offset: int
    records: dict[bytes, StoredRecord]
    pending: dict[int, dict[bytes, StoredRecord]]
    unsettled: dict[bytes, StoredRecord]
    errors: list[Exception]
    is_exact: bool

    @property
    def partition(self) -> int | None:
        """Number of the partition."""
        return self.log.partition.partition

    @property
    def problems(self) -> list[Problem]:
        """Damage; or that records which the state depends on may have been removed."""
        if self.is_exact or self.errors:
            return damage(self.log, self.errors)
        reason = "records before it have been removed"
        return [inexact_state(self.log, COMPACTED, self.end_offset, reason)]


def damage(log: Log, errors: Iterable[Exception]) -> list[Problem]:
    """Return the problems that the errors of reading a log are."""
    one = log.partition
    return [
        problem_of(error, str(one.path), topic=one.topic, partition=one.partition)
        for error in errors
    ]


def topic_problem(
    log: Log,
    symbol: str,
    message: str,
    severity: Severity = Severity.WARNING,
    *,
    rows_missing: bool = True,
) -> Problem:
    """Return a problem of a partition of one of Kafka's own topics; see `Problem`."""
    one = log.partition
    return Problem(
        symbol,
        message,
        str(one.path),
        severity,
        topic=one.topic,
        partition=one.partition,
        rows_missing=rows_missing,
    )


def inexact_state(log: Log, symbol: str, end_offset: int, reason: str) -> Problem:
    """Return the problem of a state that depends on records which the log no longer has."""
    text = f"the state before offset {end_offset} is not exact, because {reason}"
    return topic_problem(log, symbol, text)


def open_topic(path: LogDirLike, topic: str) -> tuple[LogDir, list[Log]]:
    """
    Return a data dir, and the logs of one topic in it.

    Raises
    ------
    NoLogsError
        If there are none.
    As `open_log_dir`.
    """
    log_dir = path if isinstance(path, LogDir) else open_log_dir(path)
    partitions = [one for one in log_dir.partitions if one.topic == topic]
    logs = live_logs(LogDir(log_dir.path, partitions))
    if not logs:
        raise NoLogsError(str(log_dir.path), f"no partitions of {topic} here")
    return log_dir, logs


class PartitionRecords:
    """
    Yields the records of a log before a limit, in offset order, and then those after it.

    Parameters
    ----------
    log : Log
    limit : ReplayLimit

    Attributes
    ----------
    errors : list of Exception
        Damaged batches, which are skipped, and the error that ended the log.
    end_offset : int
        After the last record that was yielded by `before_limit`, or at the limit.
    is_gapless : bool
        Whether no offset before `end_offset` lacks a record.
    """

    def __init__(self, log: Log, limit: ReplayLimit) -> None:
        self.errors: list[Exception] = []
        self.end_offset = log.start_offset
        self.is_gapless = log.start_offset == 0
        self._log = log
        self._limit = limit
        self._after: RecordTable | None = None
        self._tables = self._read()

    def before_limit(self) -> Iterator[RecordTable]:
        """Yield the records before the limit."""
        for table in self._tables:
            count = self._limit.count_before(table)
            applied = table[:count]
            if count:
                yield applied
                self._advance(applied)
            if count < len(table):
                self._after = table[count:]
                self._reach(int(table["offset"][count]))
                return

    def after_limit(self) -> Iterator[RecordTable]:
        """Yield the records at or after the limit."""
        if self._after is not None:
            yield self._after
            yield from self._tables

    def _reach(self, next_offset: int) -> None:
        """Move the end to the limit; there may have been records between it and the last one."""
        end = next_offset if self._limit.offset is None else self._limit.offset
        self.is_gapless &= end == self.end_offset
        self.end_offset = end

    def _advance(self, table: RecordTable) -> None:
        offsets = table["offset"]
        count = int(offsets[-1]) + 1 - self.end_offset
        self.is_gapless &= count == len(offsets)
        self.end_offset = int(offsets[-1]) + 1

    def _add_problems(self, problems: Problems) -> None:
        """Add what is missing; damaged batches are known, and gaps make a log not gapless."""
        known = {getattr(error, "position", None) for error in self.errors}
        for one in problems:
            is_news = one.rows_missing or one.symbol == str(ScanEnd.TORN_TAIL)
            if is_news and one.symbol != OFFSET_GAP and one.position not in known:
                position = one.position or 0
                self.errors.append(
                    IncompleteLogError(one.path, position, None, one.message, one.symbol)
                )

    def _read(self) -> Iterator[RecordTable]:
        def add(error: CorruptBatchError) -> None:
            self.errors.append(detached(error))

        try:
            tables = iter_records(
                self._log.partition,
                columns=_COLUMNS,
                control="include",
                log_start_offset=self._log.start_offset,
                verify=True,
                on_damage=add,
                on_corrupt="stop",
            )
            for table in tables:
                if len(table):
                    yield table
                self._add_problems(table.problems)
        except (KafkaScanError, OSError) as error:
            self.errors.append(detached(error))


def replay(log: Log, as_of: AsOf | None, checkpoints: CheckpointReader) -> ReplayedLog:
    """
    Return the latest record of each key of a compacted topic, as a coordinator loads it.

    A record of a transaction counts after the COMMIT marker, unless a later record of its key
    already counts (``OffsetMetadataManager.replayEndTransactionMarker``). A tombstone also removes
    the key from open transactions.

    Parameters
    ----------
    log : Log
    as_of : AsOf or None
        None is the end of the log.
    checkpoints : CheckpointReader
        Reads the offset up to which the cleaner has compacted the log.
    """
    limit = ReplayLimit.of(as_of, log.partition.partition)
    records = PartitionRecords(log, limit)
    state = _LatestRecords(records.errors)
    for table in records.before_limit():
        state.add(table)
    is_exact = not records.errors and log.start_offset == 0
    unsettled: dict[bytes, StoredRecord] = {}
    if not limit.is_end and not records.is_gapless:
        cleaned = _cleaned_offset(log, checkpoints)
        is_exact &= records.end_offset >= cleaned
        if not is_exact:
            unsettled = state.unseen_keys(records.after_limit(), cleaned)
    return ReplayedLog(
        log, records.end_offset, state.records, state.pending, unsettled, records.errors, is_exact
    )


def replay_all(logs: Sequence[Log], as_of: AsOf | None) -> list[ReplayedLog]:
    """
    Return the latest records of each log.

    Raises
    ------
    ValueError
        If `as_of` is an offset that no log reaches: it was probably meant as a time.
    """
    checkpoints = CheckpointReader()
    replayed = [replay(log, as_of, checkpoints) for log in logs]
    require_reached(as_of, [one.end_offset for one in replayed])
    return replayed


def require_reached(as_of: AsOf | None, end_offsets: Sequence[int]) -> None:
    """
    Refuse an offset after the end of all logs.

    Raises
    ------
    ValueError
    """
    if isinstance(as_of, int) and as_of > max(end_offsets, default=0):
        raise ValueError(
            f"as_of {as_of} is after the last offset, {max(end_offsets, default=0)}; a time is a"
            " datetime, or a text in ISO 8601"
        )


def _cleaned_offset(log: Log, checkpoints: CheckpointReader) -> int:
    """Return the offset before which the cleaner may have removed records."""
    known = checkpoints.offset_of(log.partition, CLEANER_CHECKPOINT)
    # Without the checkpoint: the cleaner never cleans the last segment.
    return known or (log.segments[-1].base_offset or 0)


@dataclass
class _LatestRecords:
    """The latest record of each key, and those of open transactions; markers may be errors."""

    errors: list[Exception]
    records: dict[bytes, StoredRecord] = field(default_factory=dict)
    pending: dict[int, dict[bytes, StoredRecord]] = field(default_factory=dict)
    deleted: set[bytes] = field(default_factory=set)

    def add(self, table: RecordTable) -> None:
        for run in _runs(table):
            if run["is_control"][0]:
                for row in range(len(run)):
                    self._end(run, row)
            else:
                self._store(run)

    def _store(self, run: RecordTable) -> None:
        producer_id = int(run["producer_id"][0]) if run["is_transactional"][0] else -1
        target = self.records if producer_id < 0 else self.pending.setdefault(producer_id, {})
        for offset, timestamp, key, value in _items(run):
            if key is None:
                continue  # Kafka's loader refuses it, and no coordinator writes it
            if value is None:
                self._delete(key)
            else:
                target[key] = StoredRecord(offset, timestamp, key, value, producer_id)

    def _delete(self, key: bytes) -> None:
        self.records.pop(key, None)
        self.deleted.add(key)
        for transaction in self.pending.values():
            transaction.pop(key, None)

    def _end(self, run: RecordTable, row: int) -> None:
        """Apply a transaction marker."""
        record = run[row]
        try:
            kind, _, _ = decode_control_key(record.key)
        except SchemaError as error:
            self.errors.append(SchemaError(f"the marker at offset {record.offset}: {error}"))
            return
        finished = self.pending.pop(int(run["producer_id"][row]), {})
        if kind is not ControlRecordType.COMMIT:
            return
        for key, stored in finished.items():
            known = self.records.get(key)
            if known is None or stored.offset > known.offset:
                self.records[key] = stored

    def unseen_keys(self, tables: Iterator[RecordTable], stop: int) -> dict[bytes, StoredRecord]:
        """Return the first record of each key that has none so far, before an offset."""
        found: dict[bytes, StoredRecord] = {}
        known = self.records.keys() | self.deleted
        for table in tables:
            for run in _runs(table):
                if run["is_control"][0]:
                    continue
                for offset, timestamp, key, value in _items(run):
                    if offset >= stop:
                        return found
                    if key is not None and key not in known:
                        found.setdefault(
                            key, StoredRecord(offset, timestamp, key, value or b"", -1)
                        )
        return found


def _items(
    run: RecordTable,
) -> Iterator[tuple[int, int, bytes | None, bytes | None]]:
    return zip(
        run["offset"].tolist(), run["timestamp"].tolist(), run.items("key"), run.items("value"),
        strict=True,
    )  # fmt: skip


def _runs(table: RecordTable) -> Iterator[RecordTable]:
    """Split a table where the producer or the kind of its records changes."""
    columns: Sequence[NDArray[np.generic]] = [
        table[name] for name in ("producer_id", "is_transactional", "is_control")
    ]
    changes = np.zeros(len(table), np.bool_)
    for column in columns:
        changes[1:] |= column[1:] != column[:-1]
    bounds = [0, *np.flatnonzero(changes).tolist(), len(table)]
    for start, stop in itertools.pairwise(bounds):
        yield table[start:stop]
