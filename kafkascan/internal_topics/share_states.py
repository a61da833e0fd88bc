"""Start offsets and delivery states of share groups from ``__share_group_state`` (KIP-932)."""

from __future__ import annotations

import heapq
import itertools
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from kafkascan.format.file_names import SHARE_TOPIC
from kafkascan.format.schemas.message_decoder import SchemaError
from kafkascan.format.schemas.message_json import uuid_text
from kafkascan.internal_topics.coordinator_records import (
    COORDINATOR_PARTITION,
    GROUP,
    IS_EXACT,
    RECORD_OFFSET,
    TOPIC_ID,
    UNKNOWN_SCHEMA,
    GroupTables,
    UnknownParts,
    require_known_version,
    topic_names,
    unknown_record,
    unknown_table,
)
from kafkascan.internal_topics.topic_messages import (
    COORDINATOR_RECORDS,
    Message,
    decode_coordinator_record,
)
from kafkascan.logs.log_problems import notes_of_moving
from kafkascan.logs.log_table import LogDirLike
from kafkascan.logs.opened_logs import LogView
from kafkascan.logs.topic_records import (
    DELETED_RECORDS,
    AsOf,
    PartitionRecords,
    ReplayLimit,
    damage,
    inexact_state,
    open_topic,
    require_reached,
)
from kafkascan.records.record_table import RecordTable
from kafkascan.tables.schema import PARTITION, Field, Schema, Shown, schemas_by_name
from kafkascan.tables.table import Problem, Problems, Table

_DELIVERY_STATES = {
    0: "Available", 1: "Acquired", 2: "Acknowledged", 3: "Archiving", 4: "Archived",
}  # fmt: skip


class StateBatch(NamedTuple):
    """The delivery state of the records from the first to the last offset."""

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


def delivery_state_name(code: int) -> str:
    """Return Kafka's name of a delivery state (``RecordState``)."""
    return _DELIVERY_STATES.get(code, f"unknown({code})")


def combine_batches(batches: Iterable[StateBatch]) -> list[StateBatch]:
    """
    Return the state of each offset that any batch contains, as the fewest batches.

    Of the batches that contain an offset, the one with the highest delivery count applies, and
    among these the one with the highest state (``PersisterStateBatchCombiner``). Batches whose last
    offset is before their first one are ignored.
    """
    ordered = sorted(one for one in batches if one.first_offset <= one.last_offset)
    bounds = {bound for one in ordered for bound in (one.first_offset, one.last_offset + 1)}
    upcoming = iter(ordered)
    following = next(upcoming, None)
    # A heap of the batches at the offset, and of ended ones that have not been its first item.
    current: list[tuple[int, int, int]] = []
    combined: list[StateBatch] = []
    for start, stop in itertools.pairwise(sorted(bounds)):
        while following is not None and following.first_offset <= start:
            rank = -following.delivery_count, -following.delivery_state
            heapq.heappush(current, (*rank, following.last_offset))
            following = next(upcoming, None)
        while current and current[0][2] < start:
            heapq.heappop(current)
        if current:
            _append(combined, StateBatch(start, stop - 1, -current[0][1], -current[0][0]))
    return combined


def _append(combined: list[StateBatch], batch: StateBatch) -> None:
    """Append a batch, or extend the last one if it is adjacent and has the same state."""
    if combined and combined[-1] == (combined[-1][0], batch.first_offset - 1, *batch[2:]):
        combined[-1] = combined[-1]._replace(last_offset=batch.last_offset)
    else:
        combined.append(batch)


def batches_from(batches: Iterable[StateBatch], start_offset: int) -> list[StateBatch]:
    """Return what batches contain from an offset on; -1 is no offset."""
    return [
        one._replace(first_offset=max(one.first_offset, start_offset))
        for one in batches
        if one.last_offset >= start_offset or start_offset == -1
    ]


_SNAPSHOT = 0
_MAX_INT64 = 2**63 - 1
_COUNTED = {0: "available", 2: "acknowledged", 4: "archived"}

_TOPIC = Field(
    "topic", "string", "topic of the log; none if the directory has no partition of it",
    shown=Shown.ALWAYS,
)  # fmt: skip

SHARE_PARTITION_SCHEMA = Schema(
    "partitions",
    (
        GROUP,
        _TOPIC,
        PARTITION,
        Field("start_offset", "int64", "first offset that may still be delivered; -1 before the"
              " first fetch, none if the records of the state are deleted"),
        Field("available", "int64", "offsets from the start offset on with the stored state"
              " Available"),
        Field("acknowledged", "int64", "offsets from the start offset on with the stored state"
              " Acknowledged"),
        Field("archived", "int64", "offsets from the start offset on with the stored state"
              " Archived"),
        Field("delivery_complete_count", "int32", "offsets from the start offset on whose delivery"
              " is complete", shown=Shown.WIDE),
        Field("state_epoch", "int32", "epoch of the state: that of the group that initialized it"),
        Field("leader_epoch", "int32", "leader epoch of the partition"),
        Field("snapshot_epoch", "int32", "number of the snapshot", shown=Shown.WIDE),
        Field("create_timestamp", "time", "time at which the state was created", shown=Shown.WIDE),
        Field("write_timestamp", "time", "time at which the snapshot was written",
              shown=Shown.WIDE),
        TOPIC_ID,
        COORDINATOR_PARTITION,
        RECORD_OFFSET,
        IS_EXACT,
    ),
)  # fmt: skip
"""The columns of `ShareState.partitions`."""

SHARE_BATCH_SCHEMA = Schema(
    "batches",
    (
        GROUP,
        _TOPIC,
        PARTITION,
        Field("first_offset", "int64", "first offset of the range", nullable=False,
              shown=Shown.ALWAYS),
        Field("last_offset", "int64", "last offset of the range", nullable=False),
        Field("delivery_state", "string", "Available, Acquired, Acknowledged, Archiving or"
              " Archived", nullable=False),
        Field("delivery_count", "int16", "deliveries so far", nullable=False),
        TOPIC_ID,
        IS_EXACT,
    ),
)  # fmt: skip
"""The columns of `ShareState.batches`."""


@dataclass(frozen=True, eq=False, repr=False)
class ShareState(GroupTables):
    """
    The state of share groups; result of `read_share_state`.

    Attributes
    ----------
    partitions : Table
        A row per group and partition; `SHARE_PARTITION_SCHEMA` has the columns. A row without a
        start offset (``is_exact`` is false) stands for a state whose records have been deleted.
    batches : Table
        A row per range of offsets with the same state; `SHARE_BATCH_SCHEMA` has the columns.
        Offsets after the start offset that no row contains have not been delivered, or their
        delivery has not been stored.
    unknown : Table
        Records of unknown types and versions, with their bytes.
    problems : Problems
        Damage, and unknown and deleted records.
    """

    partitions: Table
    batches: Table
    unknown: Table
    problems: Problems

    schemas: ClassVar[dict[str, Schema]] = schemas_by_name(
        SHARE_PARTITION_SCHEMA, SHARE_BATCH_SCHEMA, UNKNOWN_SCHEMA
    )


def read_share_state(path: LogDirLike, /, *, as_of: AsOf | None = None) -> ShareState:
    """
    Read start offsets and delivery states of share groups from ``__share_group_state``.

    Parameters
    ----------
    path : path, URL or LogDir
        A broker's data dir, the folder of a partition of ``__share_group_state``, or a tar of them.
    as_of : int, mapping, str, datetime or numpy.datetime64, optional
        As in `read_groups`.

    Returns
    -------
    ShareState
        As a share coordinator loads it: from the last snapshot of each partition of a group, and
        the updates after it. Adjacent batches of the same state are one row.

    Raises
    ------
    NoLogsError
        If there is no partition of ``__share_group_state``.
    ValueError
        If `as_of` is an offset after the end of all partitions, or no time.
    As `open_log_dir`.

    Notes
    -----
    Coordinators delete the records before the oldest snapshot that they need. An answer at the end
    of the log needs none of them. An answer as of an earlier point names the partitions whose
    snapshot has been deleted: their rows have ``is_exact`` false.
    """
    log_dir, logs = open_topic(path, SHARE_TOPIC)
    names = topic_names(log_dir)
    unknown = UnknownParts()
    replays = [
        _ShareReplay(log, ReplayLimit.of(as_of, log.partition.partition), unknown) for log in logs
    ]
    for one in replays:
        one.load()
    require_reached(as_of, [one.end_offset for one in replays])
    states = sorted(
        ((key, state, one.log) for one in replays for key, state in one.states.items()),
        key=lambda item: (item[0].group, names.get(item[0].topic_id, ""), item[0]),
    )
    problems = notes_of_moving(logs)
    problems += (problem for one in replays for problem in one.problems)
    problems += unknown.problems
    return ShareState(
        Table.of_rows(
            SHARE_PARTITION_SCHEMA,
            [_partition_row(key, state, names, log) for key, state, log in states],
            problems,
        ),
        Table.of_rows(
            SHARE_BATCH_SCHEMA,
            [row for key, state, _ in states for row in _batch_rows(key, state, names)],
            problems,
        ),
        unknown_table(unknown.records, problems),
        problems,
    )  # fmt: skip


class _ShareKey(NamedTuple):
    """A partition as a share group reads it."""

    group: str
    topic_id: uuid.UUID
    partition: int


@dataclass
class _PartitionState:
    """
    The state of a partition of a group.

    ``fields`` are those of the last snapshot with the changes of its updates; None if the state
    existed, but its records have been deleted.
    """

    fields: dict[str, Any] | None
    record_offset: int | None
    is_exact: bool
    batches: list[StateBatch] = field(default_factory=list)
    _uncombined: int = field(init=False)

    def __post_init__(self) -> None:
        self._uncombined = len(self.batches)

    def update(self, changes: Mapping[str, Any], offset: int) -> None:
        """Apply a later update record (``ShareCoordinatorShard.merge``)."""
        assert self.fields is not None
        start = self.fields["start_offset"]
        for name in ("start_offset", "leader_epoch"):
            if changes[name] != -1:
                self.fields[name] = changes[name]
        self.fields["delivery_complete_count"] = changes["delivery_complete_count"]
        self.record_offset = offset
        added = batches_from(_state_batches(changes), self.fields["start_offset"])
        self.batches += added
        self._uncombined += len(added)
        has_moved = self.fields["start_offset"] != start
        # Combining after every update would take quadratic time.
        if has_moved or self._uncombined > len(self.batches) // 2:
            self.combine()

    def combine(self) -> None:
        """Drop states before the start offset, and combine the others."""
        if self.fields is not None:
            self.batches = combine_batches(batches_from(self.batches, self.fields["start_offset"]))
            self._uncombined = 0


def _state_batches(fields: Mapping[str, Any]) -> list[StateBatch]:
    return [
        StateBatch(*(one[name] for name in StateBatch._fields)) for one in fields["state_batches"]
    ]


class _ShareReplay:
    """Replays a partition of ``__share_group_state``."""

    def __init__(self, log: LogView, limit: ReplayLimit, unknown: UnknownParts) -> None:
        self.log = log
        self.states: dict[_ShareKey, _PartitionState] = {}
        self._unknown = unknown
        self.problems: list[Problem] = []
        self.end_offset = 0
        self._limit = limit
        self._deleted: set[_ShareKey] = set()

    def load(self) -> None:
        """Apply the records before the limit, and find states that they no longer contain."""
        records = PartitionRecords(self.log, self._limit)
        for table in records.before_limit():
            for offset, key, value in self._decode(table):
                self._apply(offset, key, value)
        self.end_offset = records.end_offset
        if self.log.start_offset > 0 and not self._limit.is_end:
            self._add_deleted_states(records)
        for state in self.states.values():
            state.combine()
            state.is_exact &= not records.errors
        self.problems += damage(self.log, records.errors)
        if records.errors:
            return
        if any(not state.is_exact for state in self.states.values()):
            self._add_deleted("snapshots have been deleted")
        elif self.end_offset <= self.log.start_offset > 0:
            self._add_deleted("the records before it have been deleted")

    def _add_deleted(self, reason: str) -> None:
        self.problems.append(inexact_state(self.log, DELETED_RECORDS, self.end_offset, reason))

    def _apply(self, offset: int, key: Message, value: Message | None) -> None:
        place = _ShareKey(*key.fields.values())
        state = self.states.get(place)
        if value is None:
            self.states.pop(place, None)
            self._deleted.add(place)
        elif key.type == _SNAPSHOT:
            batches = _state_batches(value.fields)
            self.states[place] = _PartitionState(value.fields, offset, True, batches)
        elif state is None:
            missing = dict.fromkeys(("state_epoch", "create_timestamp", "write_timestamp"))
            batches = _state_batches(value.fields)
            fields = missing | value.fields
            self.states[place] = _PartitionState(fields, offset, False, batches)
        else:
            state.update(value.fields, offset)

    def _add_deleted_states(self, records: PartitionRecords) -> None:
        """Add the partitions whose first record after the limit shows that they had a state."""
        seen = self.states.keys() | self._deleted
        for table in records.after_limit():
            for _, key, value in self._decode(table):
                place = _ShareKey(*key.fields.values())
                if place in seen:
                    continue
                seen.add(place)
                if value is None or value.fields["snapshot_epoch"] or key.type != _SNAPSHOT:
                    self.states[place] = _PartitionState(None, None, False)

    def _decode(self, table: RecordTable) -> Iterator[tuple[int, Message, Message | None]]:
        rows = table[~table["is_control"]]
        items = rows["offset"].tolist(), rows.items("key"), rows.items("value")
        for offset, key, value in zip(*items, strict=True):
            try:
                of_key, of_value = _decode_share_record(key or b"", value)
            except SchemaError as error:
                record = unknown_record(self.log, offset, key or b"", value, error)
                self._unknown.records.append(record)
                continue
            self._unknown.add_tags(self.log, offset, of_key, of_value)
            yield offset, of_key, of_value


def _decode_share_record(key: bytes, value: bytes | None) -> tuple[Message, Message | None]:
    of_key, of_value = decode_coordinator_record(COORDINATOR_RECORDS[SHARE_TOPIC], key, value)
    if of_value is not None:
        require_known_version(of_value)
    elif of_key.type != _SNAPSHOT:
        raise SchemaError("only the key of a snapshot has tombstones")
    return of_key, of_value


def _place(key: _ShareKey, names: Mapping[uuid.UUID, str]) -> dict[str, Any]:
    return {
        "group": key.group, "topic": names.get(key.topic_id), "partition": key.partition,
        "topic_id": uuid_text(key.topic_id),
    }  # fmt: skip


def _partition_row(
    key: _ShareKey, state: _PartitionState, names: Mapping[uuid.UUID, str], log: LogView
) -> dict[str, Any]:
    place = _place(key, names) | {"coordinator_partition": log.partition.partition}
    place |= {"record_offset": state.record_offset, "is_exact": state.is_exact}
    if state.fields is None:
        return dict.fromkeys(SHARE_PARTITION_SCHEMA.names) | place
    counts = dict.fromkeys(_COUNTED.values(), 0)
    for one in state.batches:
        if one.delivery_state in _COUNTED:
            counts[_COUNTED[one.delivery_state]] += one.last_offset - one.first_offset + 1
    # Offsets of damaged records may be negative.
    counts = {name: min(count, _MAX_INT64) for name, count in counts.items()}
    return state.fields | counts | place


def _batch_rows(
    key: _ShareKey, state: _PartitionState, names: Mapping[uuid.UUID, str]
) -> Iterator[dict[str, Any]]:
    for one in state.batches:
        row = _place(key, names) | one._asdict() | {"is_exact": state.is_exact}
        yield row | {"delivery_state": delivery_state_name(one.delivery_state)}
