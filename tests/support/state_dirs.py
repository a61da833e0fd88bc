"""A data dir in which every table of Kafka's own topics has rows, with values that are odd."""

from __future__ import annotations

import struct
import uuid
from pathlib import Path
from typing import Any

from kafkascan.format.schemas.log_messages import ASSIGNMENT, REMOTE_LOG_RECORDS, SUBSCRIPTION
from kafkascan.format.schemas.message_encoder import encode
from tests.support.internal_topics import (
    KeyValue,
    TopicLog,
    commit,
    coordinator_record,
    share_snapshot,
    transaction,
)
from tests.support.metadata_logs import metadata_record
from tests.support.segments import T0

STATE_TABLES: dict[str, tuple[str, ...]] = {
    "groups": ("offsets", "pending", "groups", "members", "unknown"),
    "txn-state": ("transactions", "contradictions", "unknown"),
    "share-state": ("partitions", "batches", "unknown"),
    "metadata": (
        "brokers", "controllers", "topics", "partitions", "configs", "features", "scram", "acls",
        "quotas", "tokens", "unknown",
    ),
    "remote-segments": ("segments", "deletions", "unknown"),
}  # fmt: skip
"""The tables of each command about Kafka's own topics."""

ODD_TEXT = '=1+1, "ü" a|b'
"""A formula, a comma, quotes, and a letter that is not ASCII."""
LARGE = 2**53 + 1
"""The smallest integer that a double does not have."""
METADATA_MOMENTS = (5, 17)
"""Offsets between which the metadata of `write_state` changes."""

_ID, _OTHER_ID = uuid.UUID(int=7), uuid.UUID(bytes=b"\xfb\xef\xbe" + bytes(13))
_TASKS = [f"{role}_tasks{suffix}" for role in ("active", "standby", "warmup")
          for suffix in ("", "_pending_revocation")]  # fmt: skip


def write_state(data_dir: Path) -> Path:
    """Write the logs of Kafka's own topics, and one with an open transaction."""
    _group_log(TopicLog(data_dir / "__consumer_offsets-3")).write()
    transactions = TopicLog(data_dir / "__transaction_state-1")
    transactions.add(
        transaction("t", 8, "Empty"),
        transaction(ODD_TEXT, LARGE, "Ongoing", ("orders", 0), ("a,b", 1)),
        (b"\0\x40t", b"\0\0"),
    ).write()
    orders = TopicLog(data_dir / "orders-0").add((b"k", b"v"), producer_id=8)
    orders.add((b"k", b"v"), producer_id=LARGE + 1).write()
    shares = TopicLog(data_dir / "__share_group_state-0")
    shares.add(share_snapshot("g", 0, start=5, batches=[(5, 9, 2, 1), (20, LARGE + 20, 4, 3)]))
    shares.add(share_snapshot(ODD_TEXT, 1, start=-1), (b"\0\x09", b"\0\0")).write()
    _remote_log(TopicLog(data_dir / "__remote_log_metadata-2")).write()
    log = TopicLog(data_dir / "__cluster_metadata-0")
    for value in _metadata_records():
        log.add((None, value))
    log.write()
    return data_dir


# ---- groups ----------------------------------------------------------------------------------


def _group_log(log: TopicLog) -> TopicLog:
    log.add(commit("g", 0, LARGE), commit("g", 1, 6, version=1), commit(ODD_TEXT, 0, 0, topic=""))
    log.add(commit("orders-reader", 0, 1))
    log.add(_classic_group(), *_consumer_group(), *_streams_group())
    log.add((b"\0\x40g", b"\0\xff"))
    return log.add(commit("g", 0, 2), commit("g", 2, 9), producer_id=LARGE)


def _classic_group() -> KeyValue:
    subscription = {"topics": ["orders", ODD_TEXT], "user_data": None, "owned_partitions": []}
    subscription |= {"generation_id": 4, "rack_id": None}
    owned = [{"topic": "orders", "partitions": [0, 2]}, {"topic": ODD_TEXT, "partitions": []}]
    assignment = {"assigned_partitions": owned, "user_data": None}
    member = {
        "member_id": "m1", "group_instance_id": None, "client_id": "", "client_host": "/h",
        "rebalance_timeout": 300, "session_timeout": 45,
        "subscription": struct.pack(">h", 3) + encode(SUBSCRIPTION, subscription, 3),
        "assignment": struct.pack(">h", 3) + encode(ASSIGNMENT, assignment, 3),
    }  # fmt: skip
    value = {"protocol_type": "consumer", "generation": 5, "protocol": "range", "leader": "m1"}
    value |= {"current_state_timestamp": T0, "members": [member]}
    return coordinator_record("__consumer_offsets", 2, {"group": "classic"}, value, 3)


def _of_group(group: str, code: int, value: dict[str, Any], member: str | None = None) -> KeyValue:
    key = {"group_id": group} if member is None else {"group_id": group, "member_id": member}
    return coordinator_record("__consumer_offsets", code, key, value)


def _consumer_group() -> list[KeyValue]:
    ids = {_ID: [1, 2], _OTHER_ID: []}
    partitions = [{"topic_id": one, "partitions": numbers} for one, numbers in ids.items()]
    member = {
        "instance_id": ODD_TEXT, "rack_id": "r", "client_id": "c", "client_host": "/h",
        "subscribed_topic_names": [], "subscribed_topic_regex": "ord.*", "rebalance_timeout_ms": 9,
        "server_assignor": None, "classic_member_metadata": None,
    }  # fmt: skip
    current = {
        "member_epoch": 2, "previous_member_epoch": 1, "state": 0,
        "assigned_partitions": [one | {"assignment_epochs": None} for one in partitions],
        "partitions_pending_revocation": [],
    }  # fmt: skip
    return [
        _of_group("consumer", 5, member, "m"),
        _of_group("consumer", 3, {"epoch": 2, "metadata_hash": 0}),
        _of_group("consumer", 6, {"assignment_epoch": 2, "assignment_timestamp": 0}),
        _of_group("consumer", 7, {"topic_partitions": partitions}, "m"),
        _of_group("consumer", 8, current, "m"),
    ]


def _streams_group() -> list[KeyValue]:
    member = {
        "instance_id": None, "rack_id": None, "client_id": "c", "client_host": "/h",
        "topology_epoch": 6, "process_id": "p", "user_endpoint": None, "client_tags": [],
    }  # fmt: skip
    tasks = [{"subtopology_id": "s", "partitions": [3], "assignment_epochs": None}]
    current = {name: [] for name in _TASKS} | {"active_tasks": tasks, "warmup_tasks": tasks}
    current |= {"member_epoch": 2, "previous_member_epoch": 1, "state": 0}
    return [
        _of_group("streams", 17, {"epoch": 2, "metadata_hash": 0, "validated_topology_epoch": 6}),
        _of_group("streams", 19, member, "m"),
        _of_group("streams", 22, current, "m"),
    ]


# ---- remote segments -------------------------------------------------------------------------


def _remote_log(log: TopicLog) -> TopicLog:
    place = {"name": ODD_TEXT, "id": _OTHER_ID, "partition": 4}
    segment = {"topic_id_partition": place, "id": _ID}
    added = {
        "remote_log_segment_id": segment, "start_offset": 5, "end_offset": LARGE, "broker_id": 1,
        "max_timestamp_ms": T0, "event_timestamp_ms": T0 + 1, "segment_size_in_bytes": 2**31 - 1,
        "segment_leader_epochs": [{"leader_epoch": 0, "offset": 0},
                                  {"leader_epoch": 3, "offset": 9}],
        "custom_metadata": b"\0\xff,\"", "remote_log_segment_state": 0,
    }  # fmt: skip
    other = added | {"custom_metadata": None, "max_timestamp_ms": -1}
    other |= {"remote_log_segment_id": segment | {"id": _OTHER_ID}, "segment_leader_epochs": []}
    deletion = {"topic_id_partition": place, "broker_id": 1, "event_timestamp_ms": T0}
    deletion |= {"remote_partition_delete_state": 1}
    for code, fields in ((0, added), (0, other), (2, deletion)):
        log.add((None, bytes([1, code, 0]) + encode(REMOTE_LOG_RECORDS[code], fields, 0)))
    return log.add((None, b"\x01\x21\x00x"))


# ---- metadata --------------------------------------------------------------------------------


def _metadata_records() -> list[bytes]:
    """Return records of every table; the first change of a row is at the first moment or later."""
    endpoint = {"name": "L", "host": "h", "port": 65535, "security_protocol": 3}
    broker = {
        "broker_id": 1, "incarnation_id": _ID, "broker_epoch": LARGE, "end_points": [endpoint],
        "features": [], "rack": None, "fenced": True, "log_dirs": [_ID],
    }  # fmt: skip
    controller = {"controller_id": 3, "incarnation_id": _OTHER_ID, "zk_migration_ready": False}
    controller |= {"end_points": [endpoint], "features": [
        {"name": "metadata.version", "min_supported_version": 1, "max_supported_version": 27},
    ]}  # fmt: skip
    partition = {
        "partition_id": 0, "topic_id": _OTHER_ID, "replicas": [1, 2], "isr": [1],
        "removing_replicas": [], "adding_replicas": [2], "leader": 1, "leader_epoch": 0,
        "partition_epoch": 0, "directories": [_ID, _ID],
    }  # fmt: skip
    setting = {"resource_type": 4, "resource_name": "1", "name": "ssl.key.password"}
    topic_setting = {"resource_type": 2, "resource_name": ODD_TEXT, "name": "cleanup.policy"}
    acl = {
        "id": _ID, "resource_type": 2, "resource_name": ODD_TEXT, "pattern_type": 4,
        "principal": "User:a", "host": "*", "operation": 3, "permission_type": 3,
    }  # fmt: skip
    quota = {"entity": [{"entity_type": "user", "entity_name": None}], "key": "producer_byte_rate"}
    token = {
        "owner": "User:a", "requester": "User:b", "renewers": ["User:c", ODD_TEXT],
        "issue_timestamp": T0, "max_timestamp": -1, "expiration_timestamp": T0 + 1, "token_id": "t",
    }  # fmt: skip
    return [
        metadata_record("RegisterBroker", 3, **broker),
        metadata_record("Topic", name=ODD_TEXT, topic_id=_OTHER_ID),
        metadata_record("Partition", 1, **partition),
        metadata_record("Config", **setting, value="secret"),
        metadata_record("FeatureLevel", name="metadata.version", feature_level=7),
        metadata_record("RegisterController", **controller),
        metadata_record("RegisterBroker", 3, **(broker | {"rack": ODD_TEXT, "broker_id": 2})),
        metadata_record("PartitionChange", 1, partition_id=0, topic_id=_OTHER_ID, leader=2),
        metadata_record("Config", **setting, value="another"),
        metadata_record("Config", **topic_setting, value=""),
        metadata_record("UnfenceBroker", id=1, epoch=LARGE),
        *_credentials(),
        metadata_record("AccessControlEntry", **acl),
        metadata_record("ClientQuota", **quota, value=0.1, remove=False),
        metadata_record("DelegationToken", **token),
        b"\x01\x6f\x00abc",
    ]


def _credentials() -> list[bytes]:
    keys = {"salt": b"\0salt", "stored_key": b"", "server_key": b"\xff"}
    return [
        metadata_record("UserScramCredential", name=name, mechanism=2, iterations=4096, **keys)
        for name in ("alice", ODD_TEXT)
    ]
