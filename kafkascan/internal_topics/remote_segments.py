"""Segments in remote storage from ``__remote_log_metadata`` (KIP-405)."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from kafkascan.format.file_names import REMOTE_TOPIC
from kafkascan.format.findings import Severity
from kafkascan.format.schemas.log_messages import REMOTE_LOG_RECORDS
from kafkascan.format.schemas.message_json import uuid_text
from kafkascan.internal_topics.coordinator_records import (
    RECORD_OFFSET,
    TOPIC_ID,
    UNKNOWN_SCHEMA,
    UnknownParts,
    decode_framed_record,
    unknown_table,
)
from kafkascan.internal_topics.topic_messages import Message
from kafkascan.logs.log_problems import notes_of_moving
from kafkascan.logs.log_table import LogDirLike
from kafkascan.logs.opened_logs import LogView
from kafkascan.logs.topic_records import (
    DELETED_RECORDS,
    AsOf,
    PartitionRecords,
    ReplayLimit,
    damage,
    open_topic,
    require_reached,
    topic_problem,
)
from kafkascan.tables.schema import PARTITION, TOPIC, Field, Schema, Shown, schemas_by_name
from kafkascan.tables.table import Problem, Problems, Table
from kafkascan.tables.table_set import TableSet
from kafkascan.tiered.tier_listing import TieredLogs
from kafkascan.tiered.tier_segments import TierProblem, TierSegment

_ADDED, _UPDATED, _PARTITION_DELETED = range(3)
_DELETED_STATES = (2, 3)
SEGMENT_STATES = (
    "COPY_SEGMENT_STARTED", "COPY_SEGMENT_FINISHED", "DELETE_SEGMENT_STARTED",
    "DELETE_SEGMENT_FINISHED",
)  # fmt: skip
_GONE = 3
PARTITION_STATES = (
    "DELETE_PARTITION_MARKED", "DELETE_PARTITION_STARTED", "DELETE_PARTITION_FINISHED",
)  # fmt: skip

UNKNOWN_SEGMENT = "UNKNOWN_SEGMENT"
"""Symbol of a problem: a record changes a segment that no record has added."""

START_OFFSET = Field(
    "start_offset", "int64", "first offset of the segment", nullable=False, shown=Shown.ALWAYS
)
END_OFFSET = Field("end_offset", "int64", "last offset of the segment")
STATE = Field("state", "string", "its state in the records of the cluster")
MAX_TIMESTAMP = Field("max_timestamp", "time", "latest timestamp of its records")
SEGMENT_ID = Field("segment_id", "string", "id of the segment")
_EVENT_TIMESTAMP = Field("event_timestamp", "time", "time of the latest event")
_BROKER_ID = Field("broker_id", "int32", "broker of the latest event", shown=Shown.WIDE)

SEGMENT_SCHEMA = Schema(
    "segments",
    (
        TOPIC,
        PARTITION,
        START_OFFSET,
        END_OFFSET,
        STATE,
        Field("size", "int32", "size of the segment's log file", "bytes"),
        MAX_TIMESTAMP,
        replace(_EVENT_TIMESTAMP, shown=Shown.WIDE),
        _BROKER_ID,
        Field("leader_epochs", "list<string>", "pairs of leader epoch and its first offset"),
        SEGMENT_ID,
        TOPIC_ID,
        Field("custom_metadata", "binary", "bytes of the plugin that stores segments",
              shown=Shown.WIDE),
        Field("has_transactions", "bool", "whether it has an index of aborted transactions",
              shown=Shown.WIDE),
        Field("metadata_partition", "int32", "partition of __remote_log_metadata that has the"
              " record", shown=Shown.WIDE),
        RECORD_OFFSET,
    ),
)  # fmt: skip
"""The columns of `RemoteSegments.segments`."""

DELETION_SCHEMA = Schema(
    "deletions",
    (
        TOPIC,
        PARTITION,
        Field("state", "string", "how far the deletion is", nullable=False),
        _EVENT_TIMESTAMP,
        _BROKER_ID,
        TOPIC_ID,
    ),
)
"""The columns of `RemoteSegments.deletions`."""


@dataclass(frozen=True, eq=False, repr=False)
class RemoteSegments(TableSet):
    """
    The catalogue of segments in remote storage; result of `read_remote_segments`.

    Attributes
    ----------
    segments : Table
        `SEGMENT_SCHEMA` has the columns. Consumers read segments in the state
        ``COPY_SEGMENT_FINISHED`` only; deleted ones are omitted.
    deletions : Table
        Partitions that are being deleted; `DELETION_SCHEMA` has the columns.
    unknown : Table
        Records of unknown types and versions, with their bytes.
    problems : Problems
        Damage, unknown and deleted records, and objects of a listing that are not read.
    deleted_ids : frozenset of str
        Ids of segments in the state ``DELETE_SEGMENT_FINISHED``: their objects are deleted.
    partitions : frozenset of (str, int)
        Topic ids and partitions that records were about.
    metadata_partitions : frozenset of int
        The partitions of ``__remote_log_metadata`` that were read.
    """

    segments: Table
    deletions: Table
    unknown: Table
    problems: Problems
    deleted_ids: frozenset[str] = frozenset()
    partitions: frozenset[tuple[str, int]] = frozenset()
    metadata_partitions: frozenset[int] = frozenset()

    schemas: ClassVar[dict[str, Schema]] = schemas_by_name(
        SEGMENT_SCHEMA, DELETION_SCHEMA, UNKNOWN_SCHEMA
    )


def read_remote_segments(
    path: LogDirLike | TieredLogs, /, *, as_of: AsOf | None = None
) -> RemoteSegments:
    """
    Read the catalogue of segments in remote storage from ``__remote_log_metadata``.

    Parameters
    ----------
    path : path, URL, LogDir or TieredLogs
        A broker's data dir, the folder of a partition of ``__remote_log_metadata``, or a tar of
        them. If that topic is lost, the result of `open_tiered`: the segments are those of the
        listing and its manifests then, and what these do not say is None: states and brokers, and
        with some layouts ends, times and epochs.
    as_of : int, mapping, str, datetime or numpy.datetime64, optional
        As in `read_groups`.

    Returns
    -------
    RemoteSegments

    Raises
    ------
    NoLogsError
        If there is no partition of ``__remote_log_metadata``.
    ValueError
        If `as_of` is an offset after the end of all partitions, or no time; or if there is one
        for a listing.
    As `open_log_dir`.
    """
    if isinstance(path, TieredLogs):
        if as_of is not None:
            raise ValueError("a listing of remote storage is of now: as_of is for records")
        return catalogue_of_tier(path)
    _, logs = open_topic(path, REMOTE_TOPIC)
    catalogue = _Catalogue(problems=[*notes_of_moving(logs)])
    ends = [catalogue.add_log(log, as_of) for log in logs]
    require_reached(as_of, ends)
    return catalogue.result()


@dataclass
class _Catalogue:
    segments: dict[uuid.UUID, dict[str, Any]] = field(default_factory=dict)
    deletions: dict[tuple[uuid.UUID, int], dict[str, Any]] = field(default_factory=dict)
    unknown: UnknownParts = field(default_factory=UnknownParts)
    problems: list[Problem] = field(default_factory=list)
    deleted: set[uuid.UUID] = field(default_factory=set)
    partitions: set[tuple[str, int]] = field(default_factory=set)
    read: set[int] = field(default_factory=set)
    keys: dict[bytes, uuid.UUID] = field(default_factory=dict)

    def add_log(self, log: LogView, as_of: AsOf | None) -> int:
        """Apply the records of a partition; return the first offset that was not applied."""
        partition = log.partition.partition
        self.read.add(-1 if partition is None else partition)
        records = PartitionRecords(log, ReplayLimit.of(as_of, partition))
        for table in records.before_limit():
            rows = table[~table["is_control"]]
            items = rows["offset"].tolist(), rows.items("key"), rows.items("value")
            for offset, key, value in zip(*items, strict=True):
                if key is not None and value is None:
                    self._remove(key)
                    continue
                message = decode_framed_record(REMOTE_LOG_RECORDS, log, offset, value, self.unknown)
                if message is not None:
                    self._apply(log, offset, key, message)
        self.problems += damage(log, records.errors)
        if log.start_offset > 0:
            text = f"the records before offset {log.start_offset} are deleted"
            self.problems.append(topic_problem(log, DELETED_RECORDS, text))
        return records.end_offset

    def result(self) -> RemoteSegments:
        rows = sorted(
            self.segments.values(),
            key=lambda row: (row["topic"], row["partition"], row["start_offset"]),
        )
        problems = Problems((*self.problems, *self.unknown.problems))
        return RemoteSegments(
            Table.of_rows(SEGMENT_SCHEMA, rows, problems),
            Table.of_rows(DELETION_SCHEMA, self.deletions.values(), problems),
            unknown_table(self.unknown.records, problems),
            problems,
            frozenset(map(uuid_text, self.deleted)),
            frozenset(self.partitions),
            frozenset(self.read),
        )

    def _remove(self, key: bytes) -> None:
        """
        Apply a tombstone of a compacted topic (KIP-1266).

        A key is what the records of a segment have in common, whatever its layout is.
        """
        segment_id = self.keys.pop(key, None)
        if segment_id is not None:
            self.segments.pop(segment_id, None)
            self.deleted.add(segment_id)

    def _apply(self, log: LogView, offset: int, key: bytes | None, message: Message) -> None:
        if key is not None and message.type in (_ADDED, _UPDATED):
            self.keys[key] = message.fields["remote_log_segment_id"]["id"]
        if message.type == _ADDED:
            row = _segment_row(message, log.partition.partition, offset)
            self.segments[message.fields["remote_log_segment_id"]["id"]] = row
            self.partitions.add((row["topic_id"], row["partition"]))
        elif message.type == _UPDATED:
            self._update(log, offset, message.fields, is_compacted=key is not None)
        elif message.type == _PARTITION_DELETED:
            self._delete_partition(message.fields)

    def _update(
        self, log: LogView, offset: int, fields: dict[str, Any], *, is_compacted: bool
    ) -> None:
        segment_id = fields["remote_log_segment_id"]["id"]
        place = fields["remote_log_segment_id"]["topic_id_partition"]
        self.partitions.add((uuid_text(place["id"]), place["partition"]))
        row = self.segments.get(segment_id)
        state = fields["remote_log_segment_state"]
        if state == _GONE:
            self.deleted.add(segment_id)
        if row is None:
            # Compaction keeps the last record of a key: of a segment that is being deleted, no
            # record has the offsets any more, and no consumer reads it.
            is_note = is_compacted and state in _DELETED_STATES
            severity = Severity.NOTE if is_note else Severity.WARNING
            text = f"offset {offset}: the segment {uuid_text(segment_id)} is not known"
            self.problems.append(
                topic_problem(log, UNKNOWN_SEGMENT, text, severity, rows_missing=not is_note)
            )
            return
        if state == _GONE:
            del self.segments[segment_id]
            return
        row["state"] = _name(SEGMENT_STATES, state)
        row["event_timestamp"] = fields["event_timestamp_ms"]
        row["broker_id"] = fields["broker_id"]
        row["record_offset"] = offset
        if fields["custom_metadata"] is not None:
            row["custom_metadata"] = fields["custom_metadata"]

    def _delete_partition(self, fields: dict[str, Any]) -> None:
        place = fields["topic_id_partition"]
        self.partitions.add((uuid_text(place["id"]), place["partition"]))
        self.deletions[place["id"], place["partition"]] = {
            "topic": place["name"],
            "partition": place["partition"],
            "state": _name(PARTITION_STATES, fields["remote_partition_delete_state"]),
            "event_timestamp": fields["event_timestamp_ms"],
            "broker_id": fields["broker_id"],
            "topic_id": uuid_text(place["id"]),
        }


def catalogue_of_tier(tier: TieredLogs) -> RemoteSegments:
    """Return the catalogue of a listing and its manifests; see `read_remote_segments`."""
    uploads = sorted(
        [*tier.remote_segments, *tier.other_copies],
        key=lambda one: (one.topic, one.partition, one.base_offset),
    )
    problems = Problems(tier_problem(tier, one) for one in tier.problems if is_unread(one))
    return RemoteSegments(
        Table.of_rows(SEGMENT_SCHEMA, map(row_of_upload, uploads), problems),
        Table.of_rows(DELETION_SCHEMA, [], problems),
        unknown_table([], problems),
        problems,
    )


def is_unread(problem: TierProblem) -> bool:
    """Return whether a problem of a listing is about an object that is not in the catalogue."""
    return problem.symbol != "OTHER_COPY"


def tier_problem(tier: TieredLogs, problem: TierProblem) -> Problem:
    """Return a problem of a listing as one of an answer."""
    return Problem(problem.symbol, problem.reason, f"{tier.path}/{problem.key}")


def row_of_upload(segment: TierSegment) -> dict[str, Any]:
    """Return what a listing and its manifests say of a segment, as a row of the catalogue."""
    transactions = segment.side_files.get("txnindex")
    known = {
        "topic": segment.topic,
        "partition": segment.partition,
        "start_offset": segment.base_offset,
        "end_offset": segment.end_offset,
        "size": segment.size,
        "max_timestamp": segment.max_timestamp,
        "event_timestamp": segment.event_timestamp,
        "leader_epochs": epoch_texts(segment.leader_epochs) or None,
        "segment_id": segment.segment_id,
        "topic_id": segment.topic_id,
        "has_transactions": transactions is not None and transactions.size > 0,
    }
    return dict.fromkeys(SEGMENT_SCHEMA.names) | known


def epoch_texts(epochs: Iterable[tuple[int, int]]) -> list[str]:
    """Return pairs of epoch and first offset as they stand in the column ``leader_epochs``."""
    return [f"{epoch}:{offset}" for epoch, offset in epochs]


def _segment_row(message: Message, partition: int | None, offset: int) -> dict[str, Any]:
    fields = message.fields
    segment = fields["remote_log_segment_id"]
    place = segment["topic_id_partition"]
    return {
        "topic": place["name"],
        "partition": place["partition"],
        "start_offset": fields["start_offset"],
        "end_offset": fields["end_offset"],
        "state": _name(SEGMENT_STATES, fields["remote_log_segment_state"]),
        "size": fields["segment_size_in_bytes"],
        "max_timestamp": fields["max_timestamp_ms"],
        "event_timestamp": fields["event_timestamp_ms"],
        "broker_id": fields["broker_id"],
        "leader_epochs": epoch_texts(
            (one["leader_epoch"], one["offset"]) for one in fields["segment_leader_epochs"]
        ),
        "segment_id": uuid_text(segment["id"]),
        "topic_id": uuid_text(place["id"]),
        "custom_metadata": fields["custom_metadata"],
        "has_transactions": not fields["txn_index_empty"],
        "metadata_partition": partition,
        "record_offset": offset,
    }


def _name(names: tuple[str, ...], code: int) -> str:
    return names[code] if 0 <= code < len(names) else f"unknown({code})"
