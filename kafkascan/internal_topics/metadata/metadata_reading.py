"""Read the cluster's metadata from its snapshots and log, now or as of an earlier moment."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from kafkascan.format.errors import CorruptBatchError, KafkaScanError, detached
from kafkascan.format.file_names import METADATA_TOPIC
from kafkascan.format.findings import Severity
from kafkascan.format.schemas.log_messages import METADATA_RECORDS
from kafkascan.format.schemas.message_decoder import SchemaError
from kafkascan.internal_topics.coordinator_records import (
    UNKNOWN_SCHEMA,
    UnknownParts,
    decode_framed_records,
    unknown_table,
)
from kafkascan.internal_topics.metadata.metadata_image import MetadataImage
from kafkascan.internal_topics.metadata.metadata_tables import (
    HIDDEN,
    TABLE_KEYS,
    TABLE_SCHEMAS,
    build_tables,
)
from kafkascan.internal_topics.topic_messages import (
    Message,
)
from kafkascan.logs.log_table import LogDirLike
from kafkascan.logs.opened_logs import LogView
from kafkascan.logs.reading import iter_records
from kafkascan.logs.segment import SegmentFile
from kafkascan.logs.topic_records import (
    AsOf,
    PartitionRecords,
    ReplayLimit,
    damage,
    open_topic,
    require_reached,
    topic_problem,
)
from kafkascan.records.control import ControlRecordType, decode_control_record
from kafkascan.records.record_table import RecordTable
from kafkascan.tables.schema import Field, Schema, Shown, schemas_by_name
from kafkascan.tables.table import Problems, Table
from kafkascan.tables.table_set import TableSet

MISSING_SNAPSHOT = "MISSING_SNAPSHOT"
"""Symbol of a problem: no snapshot has what the records before the log contained."""

_NEVER = 2**63 - 1
_COLUMNS = ("offset", "timestamp", "key", "value", "is_control")

CHANGE_SCHEMA = Schema(
    "changes",
    (
        Field("table", "string", "table of the changed row", nullable=False, shown=Shown.ALWAYS),
        Field("key", "string", "what identifies the row", nullable=False, shown=Shown.ALWAYS),
        Field("change", "string", "added, removed or changed", nullable=False),
        Field("column", "string", "column of a changed row", shown=Shown.ALWAYS),
        Field("left", "string", "its value before the change"),
        Field("right", "string", "its value after the change"),
    ),
)
"""The columns of `diff_metadata`."""


@dataclass(frozen=True, eq=False, repr=False)
class Metadata(TableSet):
    """
    The cluster's metadata as tables; result of `read_metadata`.

    Attributes
    ----------
    image : MetadataImage
        With secrets.
    brokers, controllers, topics, partitions, configs, features, scram, acls, quotas, tokens : Table
        Each is an item of this object, too: ``metadata["topics"]``.
    unknown : Table
        Records of unknown types and versions, with their bytes.
    end_offset : int
        The first offset that was not applied.
    snapshot_offset : int or None
        The end offset of the snapshot with which the replay began.
    problems : Problems
        Damage, unknown records, and a missing snapshot.
    """

    image: MetadataImage
    brokers: Table
    controllers: Table
    topics: Table
    partitions: Table
    configs: Table
    features: Table
    scram: Table
    acls: Table
    quotas: Table
    tokens: Table
    unknown: Table
    end_offset: int
    snapshot_offset: int | None
    problems: Problems

    schemas: ClassVar[dict[str, Schema]] = schemas_by_name(*TABLE_SCHEMAS.values(), UNKNOWN_SCHEMA)


def read_metadata(
    path: LogDirLike, /, *, as_of: AsOf | None = None, secrets: bool = False
) -> Metadata:
    """
    Read the cluster's metadata from ``__cluster_metadata``.

    Parameters
    ----------
    path : path, URL or LogDir
        A data dir of a controller or broker, the folder ``__cluster_metadata-0``, or a tar of them.
    as_of : int, str, datetime or numpy.datetime64, optional
        The metadata before this offset; a datetime or a text in ISO 8601 is a time. By default,
        at the end of the log.
    secrets : bool, default False
        Whether tables contain the keys of SCRAM credentials and the values of secret settings.

    Returns
    -------
    Metadata
        As a controller loads it: from the last snapshot before `as_of`, and the records after it.
        Records of a metadata transaction count after its end (KIP-868).

    Raises
    ------
    NoLogsError
        If there is no metadata log.
    ValueError
        If `as_of` is an offset after the end of the log, or no time.
    As `open_log_dir`.

    Notes
    -----
    The last records of a log may not be committed: which they are is known to the quorum only.
    """
    _, (log, *_) = open_topic(path, METADATA_TOPIC)
    limit = ReplayLimit.of(as_of, log.partition.partition)
    replay = _MetadataLoader(log, limit)
    replay.load()
    require_reached(as_of, [replay.end_offset])
    return replay.result(secrets=secrets)


def diff_metadata(left: Metadata, right: Metadata, /) -> Table:
    """
    Return the differences between two states of metadata.

    Returns
    -------
    Table
        `CHANGE_SCHEMA` has the columns: ``change`` is ``added``, ``removed`` or ``changed``, and a
        changed row has a row for each ``column``. A secret that has changed is ``[hidden]`` on
        both sides, unless both states were read with ``secrets=True``.
    """
    rows: list[dict[str, Any]] = []
    tables = [build_tables(one.image, one.problems, secrets=True) for one in (left, right)]
    for name, keys in TABLE_KEYS.items():
        before, after = (_by_key(one[name], keys) for one in tables)
        hidden = _hidden_cells(tables[0][name], left[name], keys)
        hidden |= _hidden_cells(tables[1][name], right[name], keys)
        for key in dict.fromkeys((*before, *after)):
            for one in _changes(before.get(key), after.get(key), keys):
                is_hidden = (key, one["column"]) in hidden
                shown = {"left": HIDDEN, "right": HIDDEN} if is_hidden else {}
                rows.append({"table": name, "key": key} | one | shown)
    return Table.of_rows(CHANGE_SCHEMA, rows, left.problems + right.problems)


def _by_key(table: Table, keys: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    return {_key_of(row, keys): row for row in table.rows()}


def _key_of(row: dict[str, Any], keys: tuple[str, ...]) -> str:
    return " ".join(str(row[key]) for key in keys)


def _hidden_cells(complete: Table, shown: Table, keys: tuple[str, ...]) -> set[tuple[str, str]]:
    """Return key and column of each value that a table without secrets does not have."""
    if shown.columns == complete.columns:
        return set()
    return {
        (_key_of(row, keys), column)
        for row, visible in zip(complete.rows(), shown.rows(), strict=True)
        for column, value in row.items()
        if value != visible[column]
    }


def _changes(
    before: dict[str, Any] | None, after: dict[str, Any] | None, keys: tuple[str, ...]
) -> Iterator[dict[str, Any]]:
    if before is None or after is None:
        change = "added" if before is None else "removed"
        yield {"change": change, "column": None, "left": None, "right": None}
        return
    for column, value in before.items():
        if column not in keys and value != after[column]:
            yield {
                "change": "changed",
                "column": column,
                "left": _text(value),
                "right": _text(after[column]),
            }


def _text(value: Any) -> str | None:
    if isinstance(value, (bool, list)):
        return json.dumps(value, ensure_ascii=False)
    if value is None:
        return None
    return value.hex() if isinstance(value, bytes) else str(value)


class _MetadataLoader:
    """Applies a snapshot and the log after it."""

    def __init__(self, log: LogView, limit: ReplayLimit) -> None:
        self.end_offset = 0
        self._log = log
        self._limit = limit
        self._image = MetadataImage()
        self._errors: list[Exception] = []
        self._unknown = UnknownParts()
        self._snapshot: int | None = None
        self._is_complete = True
        self._transaction: list[Message] | None = None

    def load(self) -> None:
        snapshot = self._last_snapshot()
        if snapshot is not None:
            self._snapshot = self.end_offset = snapshot.name.base_offset or 0
            for table in self._records_of(snapshot):
                self._apply(table)
        self._is_complete = self._log.start_offset <= self.end_offset
        start = max(self._log.start_offset, self.end_offset)
        records = PartitionRecords(replace(self._log, start_offset=start), self._limit)
        for table in records.before_limit():
            self._apply(table)
        self.end_offset = records.end_offset
        self._errors += records.errors

    def result(self, *, secrets: bool) -> Metadata:
        found = damage(self._log, self._errors)
        if not self._is_complete:
            text = (
                f"no snapshot is left from before offset {self._log.start_offset}, the beginning"
                " of the log"
            )
            found.append(topic_problem(self._log, MISSING_SNAPSHOT, text, Severity.ERROR))
        found += self._unknown.problems
        problems = Problems(dict.fromkeys(found))  # a snapshot may have been read twice
        return Metadata(
            image=self._image,
            **build_tables(self._image, problems, secrets=secrets),
            unknown=unknown_table(self._unknown.records, problems),
            end_offset=self.end_offset,
            snapshot_offset=self._snapshot,
            problems=problems,
        )

    def _last_snapshot(self) -> SegmentFile | None:
        """Return the last snapshot before the limit."""
        for snapshot in reversed(self._log.partition.kraft_snapshots):
            offset = snapshot.name.base_offset
            if offset is None or (self._limit.offset is not None and offset > self._limit.offset):
                continue
            if self._limit.time_ms is not None and self._time_of(snapshot) > self._limit.time_ms:
                continue
            return snapshot
        return None

    def _time_of(self, snapshot: SegmentFile) -> int:
        """Return the timestamp of the last record in a snapshot; `_NEVER` if it is not known."""
        for table in self._records_of(snapshot):
            for record in table[table["is_control"]]:
                try:
                    kind, _, _, header = decode_control_record(record.key, record.value)
                except SchemaError as error:
                    self._errors.append(error)
                    return _NEVER
                if kind is ControlRecordType.SNAPSHOT_HEADER and header is not None:
                    time: int = header["last_contained_log_timestamp"]
                    return time
        return _NEVER

    def _records_of(self, snapshot: SegmentFile) -> Iterator[RecordTable]:
        def add(error: CorruptBatchError) -> None:
            self._errors.append(detached(error))

        try:
            yield from iter_records(
                snapshot, columns=_COLUMNS, control="include", verify=True, on_damage=add
            )
        except (KafkaScanError, OSError) as error:
            self._errors.append(detached(error))

    def _apply(self, table: RecordTable) -> None:
        for _, message in decode_framed_records(METADATA_RECORDS, self._log, table, self._unknown):
            self._take(message)

    def _take(self, message: Message) -> None:
        """Apply a message, or keep it until the end of its transaction."""
        name = message.schema.name
        if name == "BeginTransactionRecord":
            self._transaction = []
        elif name == "AbortTransactionRecord":
            self._transaction = None
        elif name == "EndTransactionRecord":
            ended, self._transaction = self._transaction or [], None
            for one in ended:
                self._image.apply(one.schema.name, one.fields)
        elif self._transaction is not None:
            self._transaction.append(message)
        else:
            self._image.apply(name, message.fields)
