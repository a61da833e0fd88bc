"""Groups and their members, from the records of all kinds of groups."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from kafkascan.format.schemas import message_decoder
from kafkascan.format.schemas.log_messages import ASSIGNMENT, SUBSCRIPTION
from kafkascan.format.schemas.message_decoder import SchemaError, decode
from kafkascan.format.schemas.message_json import uuid_text
from kafkascan.internal_topics.coordinator_records import (
    COORDINATOR_PARTITION,
    GROUP,
    IS_EXACT,
    DecodedRecord,
)
from kafkascan.tables.schema import PARTITION_LISTS, TASK_LISTS, Field, Schema, Shown

TopicNames: TypeAlias = "Mapping[uuid.UUID, str]"
Row: TypeAlias = "dict[str, Any]"

_VERSION_SIZE = 2
_CONSUMER = "consumer"
_STABLE = "Stable"
# ``MemberState`` of Kafka's packages ``group.modern`` and ``group.streams`` has other numbers.
_MEMBER_STATES = {0: _STABLE, 1: "UnrevokedPartitions", 2: "UnreleasedPartitions"}
_STREAMS_MEMBER_STATES = {1: _STABLE, 2: "UnrevokedTasks", 3: "UnreleasedTasks"}

# Kafka's numbers of the records of each kind of group.
_METADATA, _MEMBER, _TARGET_EPOCH, _TARGET, _CURRENT = range(5)
_PARTS = {
    "Consumer": (3, 5, 6, 7, 8),
    "Share": (11, 10, 12, 13, 14),
    "Streams": (17, 19, 20, 21, 22),
}
_CLASSIC_METADATA, _STREAMS_TOPOLOGY = 2, 23
_PART_OF = {
    code: (group_type, part)
    for group_type, codes in _PARTS.items()
    for part, code in enumerate(codes)
}


@dataclass
class GroupRecords:
    """
    The records of one group.

    Attributes
    ----------
    group : str
    partition : int or None
        Partition of ``__consumer_offsets``.
    type : str
        As Kafka writes it: Classic, Consumer, Share or Streams.
    """

    group: str
    partition: int | None
    type: str = "Classic"
    metadata: Row = field(default_factory=dict)
    topology: Row = field(default_factory=dict)
    assignment_epoch: int = -1
    members: dict[str, Row] = field(default_factory=dict)
    targets: dict[str, Row] = field(default_factory=dict)
    current: dict[str, Row] = field(default_factory=dict)

    def add(self, record: DecodedRecord) -> None:
        """Add a record that is not about offsets."""
        code, key, value = record.key.type, record.key.fields, record.value.fields
        if code == _CLASSIC_METADATA:
            self.metadata = value
        elif code == _STREAMS_TOPOLOGY:
            self.type, self.topology = "Streams", value
        elif code in _PART_OF:
            self.type, part = _PART_OF[code]
            self._add_part(part, key.get("member_id", ""), value)

    def _add_part(self, part: int, member_id: str, value: Row) -> None:
        if part == _METADATA:
            self.metadata = value
        elif part == _TARGET_EPOCH:
            self.assignment_epoch = value["assignment_epoch"]
        else:
            target = {_MEMBER: self.members, _TARGET: self.targets, _CURRENT: self.current}
            target[part][member_id] = value

    @property
    def epoch(self) -> int:
        """The group's epoch, or the generation of a classic group; -1 without a record."""
        name = "generation" if self.type == "Classic" else "epoch"
        epoch: int = self.metadata.get(name, -1)
        return epoch

    @property
    def member_ids(self) -> list[str]:
        """Ids of the members, sorted."""
        if self.type == "Classic":
            return [one["member_id"] for one in self.metadata.get("members", [])]
        return sorted(self.members)

    @property
    def state(self) -> str:
        """The state in which a coordinator that loads the records has the group."""
        if not self.member_ids:
            return "Empty"
        if self.type in ("Classic", "Share"):
            return "Stable"
        if self.type == "Streams" and not self._has_valid_topology:
            return "NotReady"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        is_stable = all(self._is_reconciled(self.current.get(one)) for one in self.members)
        return "Stable" if is_stable else "Reconciling"

    @property
    def _has_valid_topology(self) -> bool:
        epoch = self.topology.get("epoch")
        return epoch is not None and epoch == self.metadata.get("validated_topology_epoch")

    def _is_reconciled(self, current: Row | None) -> bool:
        return (
            current is not None
            and self._member_state(current) == _STABLE
            and current["member_epoch"] == self.assignment_epoch
        )

    def _member_state(self, current: Row) -> str:
        names = _STREAMS_MEMBER_STATES if self.type == "Streams" else _MEMBER_STATES
        return names.get(current.get("state", -1), "Unknown")

    def group_row(self) -> Row:
        """Return the row of the table of groups, without its exactness."""
        return {
            "group": self.group,
            "type": self.type,
            "state": self.state,
            "protocol_type": self.metadata.get("protocol_type"),
            "protocol": self.metadata.get("protocol"),
            "leader": self.metadata.get("leader"),
            "epoch": self.epoch,
            "assignment_epoch": self.assignment_epoch,
            "members": len(self.member_ids),
            "state_timestamp": self.metadata.get("current_state_timestamp", -1),
            "coordinator_partition": self.partition,
        }

    def member_rows(self, names: TopicNames, on_invalid: Callable[[str], object]) -> list[Row]:
        """
        Return the rows of the table of members.

        Parameters
        ----------
        names : mapping of UUID to str
            Names of topics.
        on_invalid : callable
            Called with a message about bytes of a member that cannot be decoded.
        """
        if self.type == "Classic":
            return [self._classic_row(one, on_invalid) for one in self.metadata.get("members", [])]
        return [self._member_row(one, names) for one in self.member_ids]

    def _member_row(self, member_id: str, names: TopicNames) -> Row:
        member, current = self.members[member_id], self.current.get(member_id, {})
        target = self.targets.get(member_id, {})
        return self._row(member_id, member) | {
            "epoch": current.get("member_epoch", -1),
            "state": self._member_state(current),
            "subscription": member.get("subscribed_topic_names"),
            "subscription_regex": member.get("subscribed_topic_regex") or None,
            "assignment": _partitions(current.get("assigned_partitions", []), names),
            "target": _partitions(target.get("topic_partitions", []), names),
            "tasks": _tasks(current),
            "target_tasks": _tasks(target),
        }

    def _classic_row(self, member: Row, on_invalid: Callable[[str], object]) -> Row:
        row = self._row(member["member_id"], member) | {
            "instance_id": member["group_instance_id"],
            "epoch": self.epoch,
            "state": "Stable",
            "session_timeout_ms": member["session_timeout"],
            "rebalance_timeout_ms": member["rebalance_timeout"],
        }
        # The bytes of other protocols, such as Connect's, are not Kafka's.
        if self.metadata.get("protocol_type") != _CONSUMER:
            return row
        try:
            subscription = _embedded(SUBSCRIPTION, member["subscription"])
            assignment = _embedded(ASSIGNMENT, member["assignment"])
        except SchemaError as error:
            on_invalid(f"group {self.group}, member {member['member_id']}: {error}")
            return row
        owned = [one | {"topic_id": None} for one in assignment.get("assigned_partitions", [])]
        return row | {
            "rack_id": subscription.get("rack_id"),
            "subscription": subscription.get("topics"),
            "assignment": owned,
        }

    def _row(self, member_id: str, member: Row) -> Row:
        empty: Row = dict.fromkeys(MEMBER_SCHEMA.names)
        return empty | {
            "group": self.group,
            "type": self.type,
            "member_id": member_id,
            "instance_id": member.get("instance_id"),
            "client_id": member["client_id"],
            "client_host": member["client_host"],
            "rack_id": member.get("rack_id"),
            "assignment": [],
            "target": [],
            "tasks": [],
            "target_tasks": [],
            "session_timeout_ms": -1,
            "rebalance_timeout_ms": member.get("rebalance_timeout_ms", -1),
            "coordinator_partition": self.partition,
        }


GROUP_SCHEMA = Schema(
    "groups",
    (
        GROUP,
        Field("type", "string", "Classic, Consumer, Share or Streams", nullable=False),
        Field("state", "string", "state in which a coordinator that loads the records has the"
              " group", nullable=False),
        Field("protocol_type", "string", "kind of the members of a classic group, such as consumer"
              " or connect", shown=Shown.WIDE),
        Field("protocol", "string", "assignor that the members of a classic group have agreed on"),
        Field("leader", "string", "member id of a classic group's leader"),
        Field("epoch", "int32", "epoch of the group, or generation of a classic one; -1 if no"
              " record has it", nullable=False),
        Field("assignment_epoch", "int32", "epoch of the target assignment; -1 if no record has"
              " it", nullable=False),
        Field("members", "int32", "number of members", nullable=False),
        Field("state_timestamp", "time", "time at which a classic group entered its state"),
        COORDINATOR_PARTITION,
        IS_EXACT,
    ),
)  # fmt: skip
"""The columns of `Groups.groups`."""

MEMBER_SCHEMA = Schema(
    "members",
    (
        GROUP,
        Field("type", "string", "type of the group", nullable=False),
        Field("member_id", "string", "id of the member", nullable=False, shown=Shown.ALWAYS),
        Field("instance_id", "string", "its group.instance.id, if it is a static member",
              shown=Shown.WIDE),
        Field("client_id", "string", "its client.id"),
        Field("client_host", "string", "host from which it is connected"),
        Field("rack_id", "string", "its client.rack", shown=Shown.WIDE),
        Field("epoch", "int32", "epoch of the member, or generation of a classic group; -1 if no"
              " record has it", nullable=False),
        Field("state", "string", "whether it has its target assignment", nullable=False),
        Field("subscription", "list<string>", "topics that it subscribes to", shown=Shown.WIDE),
        Field("subscription_regex", "string", "pattern of the topics that it subscribes to",
              shown=Shown.WIDE),
        Field("assignment", PARTITION_LISTS, "partitions that it has", nullable=False),
        Field("target", PARTITION_LISTS, "partitions that the coordinator wants it to have",
              nullable=False, shown=Shown.WIDE),
        Field("tasks", TASK_LISTS, "tasks of Kafka Streams that it has", nullable=False,
              shown=Shown.WIDE),
        Field("target_tasks", TASK_LISTS, "tasks of Kafka Streams that the coordinator wants it to"
              " have", nullable=False, shown=Shown.WIDE),
        Field("session_timeout_ms", "int32", "time without a heartbeat after which a classic"
              " member is removed; -1 for others", "ms", nullable=False, shown=Shown.WIDE),
        Field("rebalance_timeout_ms", "int32", "time that it may take to revoke partitions; -1 if"
              " no record has it", "ms", nullable=False, shown=Shown.WIDE),
        COORDINATOR_PARTITION,
        replace(IS_EXACT, shown=Shown.WIDE),
    ),
)  # fmt: skip
"""The columns of `Groups.members`."""


def _embedded(schema: message_decoder.MessageSchema, data: bytes) -> Row:
    """Decode a message of the consumer protocol; empty bytes are a message without fields."""
    if not data:
        return {}
    if len(data) < _VERSION_SIZE:
        raise SchemaError(f"{schema.name} has {len(data)} bytes")
    version = int.from_bytes(data[:_VERSION_SIZE], "big", signed=True)
    if version < 0:
        raise SchemaError(f"{schema.name} has version {version}")
    # Consumers decode later versions as the newest that they know (ConsumerProtocol).
    return decode(schema, data[_VERSION_SIZE:], min(version, schema.newest))


def _partitions(owned: list[Row], names: TopicNames) -> list[Row]:
    return [
        {
            "topic": names.get(one["topic_id"]),
            "topic_id": uuid_text(one["topic_id"]),
            "partitions": one["partitions"],
        }
        for one in owned
    ]


def _tasks(assignment: Row) -> list[Row]:
    return [
        {"role": role, "subtopology": one["subtopology_id"], "partitions": one["partitions"]}
        for role in ("active", "standby", "warmup")
        for one in assignment.get(f"{role}_tasks", [])
    ]
