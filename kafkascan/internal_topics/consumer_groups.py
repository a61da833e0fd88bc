"""Committed offsets, groups and members from ``__consumer_offsets``."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from kafkascan.format.errors import KafkaScanError
from kafkascan.format.file_names import GROUPS_TOPIC
from kafkascan.format.findings import Severity
from kafkascan.format.schemas.message_decoder import NO_UUID
from kafkascan.format.schemas.message_json import uuid_text
from kafkascan.internal_topics.coordinator_records import (
    COORDINATOR_PARTITION,
    GROUP,
    IS_EXACT,
    RECORD_OFFSET,
    TOPIC_ID,
    UNKNOWN_SCHEMA,
    DecodedRecord,
    GroupTables,
    UnknownParts,
    decode_records,
    topic_names,
    unknown_table,
)
from kafkascan.internal_topics.group_members import GROUP_SCHEMA, MEMBER_SCHEMA, GroupRecords
from kafkascan.internal_topics.topic_messages import COORDINATOR_RECORDS
from kafkascan.internal_topics.topic_replay import ReplayedLog, StoredRecord, replay_all
from kafkascan.logs.log_dir import LogDir, PartitionDir
from kafkascan.logs.log_problems import notes_of_moving
from kafkascan.logs.log_table import LogDirLike
from kafkascan.logs.topic_records import AsOf, open_topic, topic_problem
from kafkascan.tables.schema import PARTITION, TOPIC, Field, Schema, Shown, schemas_by_name
from kafkascan.tables.table import Problem, Problems, Table

COMMITTED_BEYOND_END = "COMMITTED_BEYOND_END"
_OFFSET_COMMITS = (0, 1)

BAD_MEMBER = "BAD_MEMBER"
"""Symbol of a problem: the subscription or assignment of a classic member is not decoded."""

OFFSET_SCHEMA = Schema(
    "offsets",
    (
        GROUP,
        TOPIC,
        PARTITION,
        Field("offset", "int64", "committed offset: the next one that the group reads; none if"
              " compaction may have removed the commit"),
        Field("leader_epoch", "int32", "leader epoch of the last consumed record; -1 if it is not"
              " known"),
        Field("metadata", "string", "text of the consumer that committed the offset"),
        Field("commit_timestamp", "time", "time of the commit"),
        Field("expire_timestamp", "time", "time at which the offset expires, of old clients",
              shown=Shown.WIDE),
        TOPIC_ID,
        Field("log_end_offset", "int64", "end offset of the topic's log; none if the log is not"
              " in the directory, and for an earlier point"),
        Field("lag", "int64", "end offset of the log minus the committed offset"),
        Field("producer_id", "int64", "producer of the transaction that committed the offset; -1"
              " without one", shown=Shown.WIDE),
        COORDINATOR_PARTITION,
        RECORD_OFFSET,
        IS_EXACT,
    ),
)  # fmt: skip
"""The columns of `Groups.offsets`, and of `Groups.pending`."""

PENDING_SCHEMA = OFFSET_SCHEMA.named("pending")


@dataclass(frozen=True, eq=False, repr=False)
class Groups(GroupTables):
    """
    Groups and their committed offsets; result of `read_groups`.

    Attributes
    ----------
    offsets : Table
        Committed offsets; `OFFSET_SCHEMA` has the columns. A row without an offset
        (``is_exact`` is false) stands for a commit that may have been removed by compaction.
    groups : Table
        `GROUP_SCHEMA` has the columns.
    members : Table
        `MEMBER_SCHEMA` has the columns.
    pending : Table
        Offsets of transactions that are open, with the columns of `offsets`. They do not count.
    unknown : Table
        Records of unknown types and versions, with their bytes.
    logs : list of ReplayedLog
        The partitions of ``__consumer_offsets`` that were read.
    problems : Problems
        Damage, unknown records, and what compaction may have removed.
    """

    offsets: Table
    groups: Table
    members: Table
    pending: Table
    unknown: Table
    logs: list[ReplayedLog]
    problems: Problems

    schemas: ClassVar[dict[str, Schema]] = schemas_by_name(
        OFFSET_SCHEMA, PENDING_SCHEMA, GROUP_SCHEMA, MEMBER_SCHEMA, UNKNOWN_SCHEMA
    )

    @property
    def is_exact(self) -> bool:
        """Whether the answer is complete for the partitions that were read."""
        return all(log.is_exact for log in self.logs) and not len(self.unknown)

    def reset_plan(self) -> str:
        """
        Return the offsets as the file of ``kafka-consumer-groups --reset-offsets --from-file``.

        Returns
        -------
        str
            Lines of group, topic, partition and offset, separated by commas, without a header.

        Raises
        ------
        ValueError
            If the name of a group contains a line break, which the tool cannot read.
        """
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        names = ("group", "topic", "partition", "offset")
        for row in zip(*(self.offsets[name] for name in names), strict=True):
            if row[3] is None:
                continue
            if "\n" in row[0] or "\r" in row[0]:
                raise ValueError(f"group {row[0]!r} contains a line break")
            writer.writerow(row)
        return text.getvalue()


def read_groups(path: LogDirLike, /, *, as_of: AsOf | None = None) -> Groups:
    """
    Read groups and committed offsets from ``__consumer_offsets``.

    Parameters
    ----------
    path : path, URL or LogDir
        A broker's data dir, the folder of a partition of ``__consumer_offsets``, or a tar of them.
    as_of : int, mapping, str, datetime or numpy.datetime64, optional
        The answer before this offset of each partition, or before the offsets of a mapping of
        partitions; a datetime or a text in ISO 8601 is a time: records up to the first one with
        a later timestamp count. By default, all records count.

    Returns
    -------
    Groups
        As a coordinator loads it: offsets committed in a transaction count after its COMMIT
        marker.

    Raises
    ------
    NoLogsError
        If there is no partition of ``__consumer_offsets``.
    ValueError
        If `as_of` is an offset after the end of all partitions, or no time.
    As `open_log_dir`.

    Notes
    -----
    Compaction keeps the last commit of a partition only. An answer as of an offset before the one
    in ``cleaner-offset-checkpoint`` contains what compaction has left: its rows are true, but rows
    may be missing. Rows without an offset have only a later record. With several
    brokers, each data dir has the groups whose coordinator partition it has.
    """
    log_dir, logs = open_topic(path, GROUPS_TOPIC)
    notes = notes_of_moving(logs)
    return _GroupsBuilder(log_dir, notes, lag=as_of is None).build(replay_all(logs, as_of))


class _GroupsBuilder:
    """Builds the tables of `Groups` from the records of all partitions."""

    def __init__(self, log_dir: LogDir, notes: Problems, *, lag: bool) -> None:
        self._ends = TopicEnds(log_dir) if lag else None
        self._log_dir = log_dir
        self._unknown = UnknownParts()
        self._notes = notes
        self._bad_members: list[Problem] = []
        self._groups: dict[str, GroupRecords] = {}
        self._logs: dict[str, ReplayedLog] = {}

    def build(self, logs: list[ReplayedLog]) -> Groups:
        offsets = [row for log in logs for row in self._committed(log)]
        pending = [row for log in logs for row in self._pending(log)]
        names = topic_names(self._log_dir)
        groups = sorted(self._groups.values(), key=lambda one: one.group)
        of_groups = [one.group_row() | self._exactness(one) for one in groups]
        of_members = [
            row | self._exactness(one)
            for one in groups
            for row in one.member_rows(names, partial(self._add_bad_member, one))
        ]
        problems = self._notes + self._bad_members
        problems += map(self._beyond_end, filter(_is_beyond, offsets))
        problems += (problem for log in logs for problem in log.problems)
        problems += self._unknown.problems
        return Groups(
            _offset_table(OFFSET_SCHEMA, offsets, problems),
            Table.of_rows(GROUP_SCHEMA, of_groups, problems),
            Table.of_rows(MEMBER_SCHEMA, of_members, problems),
            _offset_table(PENDING_SCHEMA, pending, problems),
            unknown_table(self._unknown.records, problems),
            logs,
            problems,
        )

    def _beyond_end(self, row: dict[str, Any]) -> Problem:
        """Return the problem of a committed offset after the end of the topic's log."""
        return Problem(
            COMMITTED_BEYOND_END,
            f"the group {row['group']!r} committed offset {row['offset']}, but the log ends at"
            f" {row['log_end_offset']}: it is cut short, or lags behind",
            str(self._log_dir.path),
            Severity.WARNING,
            topic=row["topic"],
            partition=row["partition"],
            rows_missing=False,
        )

    def _add_bad_member(self, group: GroupRecords, message: str) -> None:
        log = self._logs[group.group].log
        self._bad_members.append(topic_problem(log, BAD_MEMBER, message, rows_missing=False))

    def _committed(self, log: ReplayedLog) -> Iterator[dict[str, Any]]:
        found: dict[tuple[str, str, int], DecodedRecord] = {}
        for record in self._decode(log, log.records.values()):
            if record.key.type not in _OFFSET_COMMITS:
                self._group(record, log).add(record)
                continue
            partition = _committed_partition(record)
            known = found.get(partition)
            # Keys of types 0 and 1 stand for the same partition.
            if known is None or known.stored.offset < record.stored.offset:
                found[partition] = record
        for record in found.values():
            self._group(record, log)
            yield self._offset_row(record, is_exact=not log.errors)
        yield from self._unsettled(log, found)

    def _pending(self, log: ReplayedLog) -> Iterator[dict[str, Any]]:
        for transaction in log.pending.values():
            for record in self._decode(log, transaction.values()):
                self._group(record, log)
                if record.key.type in _OFFSET_COMMITS:
                    yield self._offset_row(record, is_exact=not log.errors)

    def _unsettled(
        self, log: ReplayedLog, found: dict[tuple[str, str, int], DecodedRecord]
    ) -> Iterator[dict[str, Any]]:
        """Yield rows of partitions whose commit before the limit may have been removed."""
        ignored = UnknownParts()
        schemas = COORDINATOR_RECORDS[GROUPS_TOPIC]
        for record in decode_records(schemas, log, log.unsettled.values(), ignored):
            if record.key.type in _OFFSET_COMMITS and _committed_partition(record) not in found:
                row = self._offset_row(record, is_exact=False)
                known = ("group", "topic", "partition", "coordinator_partition", "is_exact")
                yield dict.fromkeys(OFFSET_SCHEMA.names) | {name: row[name] for name in known}

    def _decode(self, log: ReplayedLog, records: Iterable[StoredRecord]) -> Iterator[DecodedRecord]:
        return decode_records(COORDINATOR_RECORDS[GROUPS_TOPIC], log, records, self._unknown)

    def _group(self, record: DecodedRecord, log: ReplayedLog) -> GroupRecords:
        key = record.key.fields
        name: str = key["group"] if "group" in key else key["group_id"]
        self._logs[name] = log
        return self._groups.setdefault(name, GroupRecords(name, record.partition))

    def _exactness(self, group: GroupRecords) -> dict[str, bool]:
        return {"is_exact": self._logs[group.group].is_exact}

    def _offset_row(self, record: DecodedRecord, *, is_exact: bool) -> dict[str, Any]:
        key, value = record.key.fields, record.value.fields
        end = None if self._ends is None else self._ends.of(key["topic"], key["partition"])
        topic_id = value.get("topic_id", NO_UUID)
        return {
            "group": key["group"],
            "topic": key["topic"],
            "partition": key["partition"],
            "offset": value["offset"],
            "leader_epoch": value.get("leader_epoch", -1),
            "metadata": value["metadata"],
            "commit_timestamp": value["commit_timestamp"],
            "expire_timestamp": value.get("expire_timestamp", -1),
            "topic_id": None if topic_id == NO_UUID else uuid_text(topic_id),
            "log_end_offset": end,
            "lag": None if end is None else end - value["offset"],
            "producer_id": record.stored.producer_id,
            "coordinator_partition": record.partition,
            "record_offset": record.stored.offset,
            "is_exact": is_exact,
        }


def _is_beyond(row: dict[str, Any]) -> bool:
    return row["lag"] is not None and row["lag"] < 0


def _committed_partition(record: DecodedRecord) -> tuple[str, str, int]:
    key = record.key.fields
    return key["group"], key["topic"], key["partition"]


def _offset_table(schema: Schema, rows: list[dict[str, Any]], problems: Problems) -> Table:
    rows.sort(key=lambda row: (row["group"], row["topic"], row["partition"]))
    return Table.of_rows(schema, rows, problems)


class TopicEnds:
    """
    End offsets of the logs of a data dir, each read once.

    Parameters
    ----------
    log_dir : LogDir
    """

    def __init__(self, log_dir: LogDir) -> None:
        self._partitions: dict[tuple[str | None, int | None], PartitionDir] = {
            (one.topic, one.partition): one for one in log_dir.partitions if one.state is None
        }
        self._known: dict[tuple[str, int], int | None] = {}

    def of(self, topic: str, partition: int) -> int | None:
        """Return the end offset of a log; None if it is not here, or cannot be read."""
        if (topic, partition) not in self._known:
            self._known[topic, partition] = self._read(topic, partition)
        return self._known[topic, partition]

    def _read(self, topic: str, partition: int) -> int | None:
        found = self._partitions.get((topic, partition))
        if found is None:
            return None
        try:
            return found.find_end_offset()
        except (KafkaScanError, OSError):
            return None
