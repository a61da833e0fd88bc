"""Replay a partition of one of Kafka's own topics up to an offset or a time."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafkascan.broker_state.offset_checkpoints import CheckpointReader
from kafkascan.format.schemas.message_decoder import SchemaError
from kafkascan.logs.opened_logs import LogView
from kafkascan.logs.topic_records import (
    COMPACTED,
    AsOf,
    PartitionRecords,
    ReplayLimit,
    cleaned_offset,
    damage,
    inexact_state,
    require_reached,
)
from kafkascan.records.control import ControlRecordType, decode_control_key
from kafkascan.records.record_table import RecordTable
from kafkascan.tables.table import Problem


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
    log : LogView
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

    log: LogView
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


def replay(log: LogView, as_of: AsOf | None, checkpoints: CheckpointReader) -> ReplayedLog:
    """
    Return the latest record of each key of a compacted topic, as a coordinator loads it.

    A record of a transaction counts after the COMMIT marker, unless a later record of its key
    already counts (``OffsetMetadataManager.replayEndTransactionMarker``). A tombstone also removes
    the key from open transactions.

    Parameters
    ----------
    log : LogView
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
        cleaned = cleaned_offset(log, checkpoints)
        is_exact &= records.end_offset >= cleaned
        if not is_exact:
            unsettled = state.unseen_keys(records.after_limit(), cleaned)
    return ReplayedLog(
        log, records.end_offset, state.records, state.pending, unsettled, records.errors, is_exact
    )


def replay_all(logs: Sequence[LogView], as_of: AsOf | None) -> list[ReplayedLog]:
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
