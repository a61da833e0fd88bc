"""Decode the latest records of a coordinator's topic, and keep those that are not known."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from kafkascan.format.errors import KafkaScanError
from kafkascan.format.findings import Severity
from kafkascan.format.schemas.log_messages import CoordinatorSchemas
from kafkascan.format.schemas.message_decoder import MessageSchema, SchemaError
from kafkascan.internal_topics.topic_messages import (
    Message,
    UnknownRecordTypeError,
    decode_coordinator_record,
    decode_framed_message,
)
from kafkascan.internal_topics.topic_replay import ReplayedLog, StoredRecord
from kafkascan.logs.log_dir import LogDir
from kafkascan.logs.opened_logs import LogView
from kafkascan.logs.topic_records import topic_problem
from kafkascan.records.record_table import RecordTable
from kafkascan.tables.schema import Field, Schema, Shown
from kafkascan.tables.table import Problem, Problems, Table
from kafkascan.tables.table_set import TableSet


def topic_names(log_dir: LogDir) -> dict[uuid.UUID, str]:
    """Return the names of the topics that have a partition in a data dir (KIP-516)."""
    names: dict[uuid.UUID, str] = {}
    for partition in log_dir.partitions:
        if partition.topic is None or not partition.is_log:
            continue
        try:
            text = partition.topic_id
        except (KafkaScanError, OSError):
            continue  # an audit reports the file
        if text is not None:
            names[uuid_of(text)] = partition.topic
    return names


def uuid_of(text: str) -> uuid.UUID:
    """Return the id of a text that ``Uuid.toString`` returned."""
    return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=="))


UNKNOWN_RECORD = "UNKNOWN_RECORD"
"""Symbol of a problem: a record of an unknown type or version, or a damaged one."""

UNKNOWN_FIELD = "UNKNOWN_FIELD"
"""Symbol of a note: a tagged field that the schemas do not have; its value is not in the answer."""

_MOST_FIELDS = 100

GROUP = Field("group", "string", "id of the group", nullable=False, shown=Shown.ALWAYS)
TOPIC_ID = Field("topic_id", "string", "id of the topic", shown=Shown.WIDE)
COORDINATOR_PARTITION = Field(
    "coordinator_partition", "int32", "partition of Kafka's own topic that has the record",
    shown=Shown.WIDE,
)  # fmt: skip
RECORD_OFFSET = Field(
    "record_offset", "int64", "offset of the latest record of the row", shown=Shown.WIDE
)
IS_EXACT = Field(
    "is_exact", "bool", "whether no record that the row depends on can be missing",
    nullable=False, alarms={"false": "yellow"},
)  # fmt: skip

UNKNOWN_SCHEMA = Schema(
    "unknown",
    (
        Field("partition", "int32", "partition of Kafka's own topic", shown=Shown.ALWAYS),
        Field("offset", "int64", "offset of the record", nullable=False, shown=Shown.ALWAYS),
        Field("type", "int16", "Kafka's number of the record's type; none if the key has none"),
        Field("reason", "string", "why it is not decoded", nullable=False),
        Field("key", "binary", "the record's key", nullable=False, shown=Shown.WIDE),
        Field("value", "binary", "the record's value", nullable=False, shown=Shown.WIDE),
    ),
)
"""The columns of the table ``unknown``: records of unknown types and versions."""


@dataclass(frozen=True, eq=False, repr=False)
class GroupTables(TableSet):
    """A result with tables of groups."""

    def select(self, groups: Iterable[str]) -> Self:
        """Return the answer for some groups."""
        wanted = set(groups)
        chosen = {
            name: Table.of_rows(
                table.schema,
                (row for row in table.rows() if row["group"] in wanted),
                table.problems,
            )
            for name, table in self.tables.items()
            if GROUP in table.schema
        }
        return replace(self, **chosen)


@dataclass(frozen=True)
class DecodedRecord:
    """A record of a coordinator's topic with its decoded key and value."""

    stored: StoredRecord
    partition: int | None
    key: Message
    value: Message


@dataclass(frozen=True)
class UnknownRecord:
    """
    A record that this version of kafkascan does not know, with its bytes.

    Attributes
    ----------
    log : LogView
    offset : int
    type : int or None
        Kafka's number of the type; None if the key has none.
    reason : str
    key, value : bytes
    """

    log: LogView
    offset: int
    type: int | None
    reason: str
    key: bytes
    value: bytes

    @property
    def partition(self) -> int | None:
        """Number of the partition."""
        return self.log.partition.partition

    @property
    def problem(self) -> Problem:
        """What the record means for an answer."""
        text = f"offset {self.offset}: the record is ignored: {self.reason}"
        return topic_problem(self.log, UNKNOWN_RECORD, text)


@dataclass
class _FieldTally:
    """The records with an unknown tagged field."""

    first_offset: int
    count: int = 0


@dataclass
class UnknownParts:
    """
    What records contain that this version of kafkascan does not know.

    Attributes
    ----------
    records : list of UnknownRecord
        Records of unknown types and versions, and damaged ones.
    """

    records: list[UnknownRecord] = field(default_factory=list)
    _fields: dict[tuple[LogView, str, int], _FieldTally] = field(default_factory=dict)
    _unnamed: dict[LogView, _FieldTally] = field(default_factory=dict)

    def add_tags(self, log: LogView, offset: int, *messages: Message | None) -> None:
        """Count the unknown tagged fields of a record."""
        found = {
            (log, tag.structure, tag.tag)
            for one in messages
            if one is not None
            for tag in one.unknown_tags
        }
        for key in found:
            if key in self._fields or len(self._fields) < _MOST_FIELDS:
                self._fields.setdefault(key, _FieldTally(offset)).count += 1
            else:
                self._unnamed.setdefault(log, _FieldTally(offset)).count += 1

    @property
    def problems(self) -> list[Problem]:
        """What this means for an answer; a field is a note."""
        named = (
            (log, f"tagged field {tag} of {structure}", tally)
            for (log, structure, tag), tally in self._fields.items()
        )
        others = ((log, "other tagged fields", tally) for log, tally in self._unnamed.items())
        return [
            *(one.problem for one in self.records),
            *(_note_of_field(*one) for one in (*named, *others)),
        ]


def _note_of_field(log: LogView, what: str, tally: _FieldTally) -> Problem:
    text = (
        f"{what}, which this version of kafkascan does not know, in {tally.count:,} records, first"
        f" at offset {tally.first_offset}: the value is not in the answer"
    )
    return topic_problem(log, UNKNOWN_FIELD, text, Severity.NOTE, rows_missing=False)


def unknown_table(records: Iterable[UnknownRecord], problems: Problems) -> Table:
    """Return unknown records as a table."""
    rows = (vars(one) | {"partition": one.partition} for one in records)
    return Table.of_rows(UNKNOWN_SCHEMA, rows, problems)


def unknown_record(
    log: LogView, offset: int, key: bytes, value: bytes | None, error: SchemaError
) -> UnknownRecord:
    """Return the record of a coordinator's topic that could not be decoded."""
    code = int.from_bytes(key[:2], "big", signed=True)
    is_type = len(key) > 1 or isinstance(error, UnknownRecordTypeError)
    return UnknownRecord(log, offset, code if is_type else None, str(error), key, value or b"")


def decode_records(
    schemas: CoordinatorSchemas,
    log: ReplayedLog,
    records: Iterable[StoredRecord],
    unknown: UnknownParts,
) -> Iterator[DecodedRecord]:
    """
    Yield decoded records.

    Parameters
    ----------
    schemas : mapping
        One of `COORDINATOR_RECORDS`.
    log : ReplayedLog
        Contains the records.
    records : iterable of StoredRecord
    unknown : UnknownParts
        Receives the records of other types and of later versions, and damaged ones.
    """
    for stored in records:
        try:
            key, value = decode_coordinator_record(schemas, stored.key, stored.value)
            assert value is not None  # tombstones are not stored
            require_known_version(value)
        except SchemaError as error:
            record = unknown_record(log.log, stored.offset, stored.key, stored.value, error)
            unknown.records.append(record)
            continue
        unknown.add_tags(log.log, stored.offset, key, value)
        yield DecodedRecord(stored, log.partition, key, value)


def decode_framed_records(
    schemas: Mapping[int, MessageSchema],
    log: LogView,
    table: RecordTable,
    unknown: UnknownParts,
) -> Iterator[tuple[int, Message]]:
    """Yield offset and message of the data records of a table; see `decode_framed_message`."""
    rows = table[~table["is_control"]]
    for offset, value in zip(rows["offset"].tolist(), rows.items("value"), strict=True):
        message = decode_framed_record(schemas, log, offset, value, unknown)
        if message is not None:
            yield offset, message


def decode_framed_record(
    schemas: Mapping[int, MessageSchema],
    log: LogView,
    offset: int,
    value: bytes | None,
    unknown: UnknownParts,
) -> Message | None:
    """Return the message of a record; None if it is not known."""
    try:
        message = decode_framed_message(schemas, value or b"")
        require_known_version(message)
    except SchemaError as error:
        code = error.code if isinstance(error, UnknownRecordTypeError) else None
        unknown.records.append(UnknownRecord(log, offset, code, str(error), b"", value or b""))
        return None
    unknown.add_tags(log, offset, message)
    return message


def require_known_version(message: Message) -> None:
    """
    Refuse a message of a version that the schema does not describe, as Kafka does.

    Raises
    ------
    SchemaError
    """
    if not 0 <= message.version <= message.schema.newest:
        raise SchemaError(
            f"version {message.version} of {message.schema.name} is not known, only 0 to"
            f" {message.schema.newest}"
        )
