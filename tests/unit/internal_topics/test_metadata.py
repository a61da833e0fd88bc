"""The cluster's metadata: what each record changes, snapshots, transactions, differences."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kafkascan as ks
from kafkascan.format.schemas.message_json import uuid_text
from kafkascan.internal_topics.metadata.metadata_tables import HIDDEN, TABLE_KEYS
from tests.support.command_line import run
from tests.support.internal_topics import TopicLog
from tests.support.metadata_logs import metadata_record
from tests.support.paths import GOLDEN
from tests.support.segments import T0

_GOLDEN = GOLDEN / "kafka-4.4.0" / "data" / "__cluster_metadata-0"
ID, DIR = uuid.UUID(int=900), uuid.UUID(int=901)
MIGRATING = "AAAAAAAAAAAAAAAAAAAAAA"


@pytest.fixture
def log(tmp_path: Path) -> TopicLog:
    return TopicLog(tmp_path / "__cluster_metadata-0")


def add(log: TopicLog, *records: bytes) -> TopicLog:
    for value in records:
        log.add((None, value))
    return log


def read(log: TopicLog, **options: Any) -> ks.internal_topics.Metadata:
    return ks.read_metadata(log.write().parent, **options)


def partition(**fields: object) -> bytes:
    known: dict[str, object] = {
        "partition_id": 0, "topic_id": ID, "replicas": [1, 2], "isr": [1, 2],
        "removing_replicas": [], "adding_replicas": [], "leader": 1, "leader_epoch": 0,
        "partition_epoch": 0, "directories": [DIR, DIR],
    }  # fmt: skip
    return metadata_record("Partition", 1, **(known | fields))


def broker(**fields: object) -> bytes:
    known: dict[str, object] = {
        "broker_id": 1, "incarnation_id": ID, "broker_epoch": 7,
        "end_points": [{"name": "L", "host": "h", "port": 65535, "security_protocol": 3}],
        "features": [], "rack": "r", "fenced": True, "log_dirs": [DIR],
    }  # fmt: skip
    return metadata_record("RegisterBroker", 3, **(known | fields))


TOPIC = metadata_record("Topic", name="orders", topic_id=ID)


@pytest.mark.parametrize("offset", [31, 61, 127, 168])
def test_replaying_the_log_gives_the_snapshots_that_kafka_wrote(
    offset: int, tmp_path: Path
) -> None:
    folder = tmp_path / _GOLDEN.name
    shutil.copytree(_GOLDEN, folder)
    for snapshot in folder.glob("*.checkpoint"):
        snapshot.unlink()
    replayed = ks.read_metadata(folder, as_of=offset, secrets=True)
    loaded = ks.read_metadata(_GOLDEN, as_of=offset, secrets=True)
    assert (replayed.snapshot_offset, loaded.snapshot_offset) == (None, offset)
    assert loaded.is_exact
    assert replayed.is_exact
    assert len(loaded["partitions"]) >= 7
    assert ks.internal_topics.diff_metadata(replayed, loaded).rows() == []


def test_partitions(log: TopicLog) -> None:
    change = metadata_record("PartitionChange", 1, partition_id=0, topic_id=ID, isr=[2], leader=2)
    kept = metadata_record("PartitionChange", 1, partition_id=0, topic_id=ID, replicas=[2, 3])
    add(log, TOPIC, partition(), change, kept)
    (row,) = read(log)["partitions"].rows()
    assert row == {
        "topic": "orders", "partition": 0, "leader": 2, "replicas": [2, 3], "isr": [2],
        "leader_epoch": 1, "partition_epoch": 2, "leader_recovery_state": 0,
        "adding_replicas": [], "removing_replicas": [], "eligible_leader_replicas": [],
        "last_known_elr": [], "directories": [uuid_text(DIR)] * 2, "topic_id": uuid_text(ID),
    }  # fmt: skip
    old = metadata_record(
        "Partition", 0, partition_id=0, topic_id=ID, replicas=[1, 2], isr=[1],
        removing_replicas=[], adding_replicas=[], leader=1, leader_epoch=4, partition_epoch=9,
    )  # fmt: skip
    (row,) = read(add(log, old))["partitions"].rows()
    assert (row["directories"], row["leader_epoch"]) == ([MIGRATING] * 2, 4)


def test_eligible_leaders_are_cleared_by_topic(log: TopicLog) -> None:
    elr = metadata_record(
        "PartitionChange", 2, partition_id=0, topic_id=ID, eligible_leader_replicas=[2],
        last_known_elr=[1],
    )  # fmt: skip
    add(log, TOPIC, partition(), elr, metadata_record("ClearElr", topic_name="other"))
    assert read(log)["partitions"]["eligible_leader_replicas"] == [[2]]
    epoch = read(log)["partitions"]["partition_epoch"][0]
    add(log, metadata_record("ClearElr", topic_name="orders"))
    add(log, metadata_record("ClearElr", topic_name=""))
    assert read(log)["partitions"]["partition_epoch"] == [epoch + 1]
    assert read(log)["partitions"]["eligible_leader_replicas"] == [[]]
    assert read(log, as_of=4)["partitions"]["last_known_elr"] == [[1]]


def test_removed_topics_take_partitions_and_settings_with_them(log: TopicLog) -> None:
    config = {"resource_type": 2, "name": "retention.ms", "value": "1"}
    add(log, TOPIC, partition(), metadata_record("Config", resource_name="orders", **config))
    add(log, metadata_record("Config", resource_name="others", **config))
    add(log, metadata_record("RemoveTopic", topic_id=ID))
    found = read(log)
    assert (len(found["topics"]), len(found["partitions"])) == (0, 0)
    assert found["configs"]["resource"] == ["others"]
    before = read(log, as_of=4)
    assert before["topics"].rows() == [
        {"topic": "orders", "topic_id": uuid_text(ID), "partitions": 1, "replication_factor": 2}
    ]
    null = config | {"value": None}
    add(log, metadata_record("Config", resource_name="others", **null))
    assert len(read(log)["configs"]) == 0


def test_brokers(log: TopicLog) -> None:
    change = {"broker_id": 1, "broker_epoch": 7}
    add(
        log,
        broker(),
        metadata_record("UnfenceBroker", id=1, epoch=7),
        metadata_record("BrokerRegistrationChange", 1, **change, in_controlled_shutdown=1),
        metadata_record("BrokerRegistrationChange", 2, **change, fenced=1, log_dirs=[ID]),
        metadata_record("BrokerRegistrationChange", 3, **change, fenced=-1, cordoned_log_dirs=[ID]),
        metadata_record("UnregisterBroker", **change),
    )
    states = [read(log, as_of=end)["brokers"].rows()[0] for end in range(1, 6)]
    assert [row["fenced"] for row in states] == [True, False, False, True, False]
    assert [row["in_controlled_shutdown"] for row in states] == [False, False, True, True, True]
    assert [row["log_dirs"] for row in states[2:4]] == [[uuid_text(DIR)], [uuid_text(ID)]]
    assert states[4]["cordoned_log_dirs"] == [uuid_text(ID)]
    assert states[0]["endpoints"] == ["L://h:65535 (SASL_SSL)"]
    assert len(read(log)["brokers"]) == 0


def test_secrets_are_hidden_unless_they_are_requested(log: TopicLog) -> None:
    credential = {"name": "alice", "mechanism": 1, "iterations": 4096}
    keys = {"salt": b"s", "stored_key": b"k", "server_key": b"v"}
    add(log, metadata_record("UserScramCredential", **credential, **keys))
    config = {"resource_type": 4, "resource_name": "1", "value": "geheim"}
    add(log, metadata_record("Config", name="listener.name.l.ssl.key.password", **config))
    add(log, metadata_record("Config", name="log.cleaner.threads", **config))
    shown, full = read(log), read(log, secrets=True)
    assert shown["scram"].rows() == [
        {"user": "alice", "mechanism": "SCRAM-SHA-256", "iterations": 4096, "salt": None,
         "stored_key": None, "server_key": None}
    ]  # fmt: skip
    assert full["scram"]["stored_key"] == [b"k"]
    assert shown["configs"]["value"] == [HIDDEN, "geheim"]
    assert full["configs"]["value"] == ["geheim", "geheim"]
    add(log, metadata_record("RemoveUserScramCredential", name="alice", mechanism=1))
    assert len(read(log)["scram"]) == 0


def test_features_acls_quotas_and_tokens(log: TopicLog) -> None:
    acl = {
        "id": ID, "resource_type": 2, "resource_name": "orders", "pattern_type": 4,
        "principal": "User:a", "host": "*", "operation": 3, "permission_type": 3,
    }  # fmt: skip
    entity = [{"entity_type": "user", "entity_name": None}]
    quota = {"entity": entity, "key": "producer_byte_rate", "value": 0.5}
    token = {
        "owner": "User:a", "requester": "User:b", "renewers": ["User:c"], "issue_timestamp": T0,
        "max_timestamp": T0 + 2, "expiration_timestamp": T0 + 1, "token_id": "t",
    }  # fmt: skip
    add(
        log,
        metadata_record("FeatureLevel", name="metadata.version", feature_level=7),
        metadata_record("AccessControlEntry", **acl),
        metadata_record("ClientQuota", **quota, remove=False),
        metadata_record("DelegationToken", **token),
        metadata_record("ProducerIds", broker_id=1, broker_epoch=7, next_producer_id=3000),
    )
    found = read(log)
    assert found["features"].rows() == [{"feature": "metadata.version", "level": 7}]
    assert found["acls"].rows() == [
        {"principal": "User:a", "host": "*", "operation": "READ", "permission": "ALLOW",
         "resource_type": "TOPIC", "resource": "orders", "pattern": "PREFIXED",
         "acl_id": uuid_text(ID)}
    ]  # fmt: skip
    assert found["quotas"].rows() == [
        {"entity": "user=<default>", "quota": "producer_byte_rate", "value": 0.5}
    ]
    assert found["tokens"]["renewers"] == [["User:c"]]
    assert found.image.next_producer_id == 3000
    add(
        log,
        metadata_record("FeatureLevel", name="metadata.version", feature_level=0),
        metadata_record("RemoveAccessControlEntry", id=ID),
        metadata_record("ClientQuota", **quota, remove=True),
        metadata_record("RemoveDelegationToken", token_id="t"),
    )
    found = read(log)
    assert [len(found[name]) for name in TABLE_KEYS] == [0] * len(TABLE_KEYS)


def test_of_two_names_of_an_entity_the_last_one_counts(log: TopicLog) -> None:
    """As in ``ClientQuotaImage.dataToEntity``."""
    names = ({"entity_type": "user", "entity_name": one} for one in ("alice", None))
    quota = {"entity": list(names), "key": "producer_byte_rate", "value": 0.5, "remove": False}
    add(log, metadata_record("ClientQuota", **quota))
    assert read(log)["quotas"]["entity"] == ["user=<default>"]


def test_transactions_count_after_their_end(log: TopicLog) -> None:
    begin, end = metadata_record("BeginTransaction"), metadata_record("EndTransaction")
    other = metadata_record("Topic", name="other", topic_id=DIR)
    add(log, begin, TOPIC, metadata_record("AbortTransaction"), begin, other, end)
    assert read(log)["topics"]["topic"] == ["other"]
    assert read(log, as_of=5)["topics"]["topic"] == []
    assert read(log, as_of=2)["topics"]["topic"] == []


def test_as_of_times(log: TopicLog) -> None:
    other = metadata_record("Topic", name="other", topic_id=DIR)
    add(log, TOPIC, other)
    at = np.datetime64(T0, "ms")
    assert read(log, as_of=at)["topics"]["topic"] == ["orders"]
    assert read(log, as_of=at - np.timedelta64(1, "ms"))["topics"]["topic"] == []
    with pytest.raises(ValueError, match="after the last offset, 2"):
        read(log, as_of=3)
    # Snapshots after the time are not used.
    early = ks.read_metadata(_GOLDEN, as_of="2026-11-21T03:05:30")
    assert early.snapshot_offset is not None
    assert early.snapshot_offset < ks.read_metadata(_GOLDEN).snapshot_offset  # type: ignore


def test_a_log_without_its_beginning_is_not_exact(tmp_path: Path) -> None:
    folder = tmp_path / _GOLDEN.name
    folder.mkdir()
    data = (_GOLDEN / f"{0:020}.log").read_bytes()
    batches = ks.scan_batches(data).batches
    late = batches[batches["base_offset"] >= 40]
    name = f"{late['base_offset'][0]:020}.log"
    (folder / name).write_bytes(data[int(late["position"][0]) :])
    found = ks.read_metadata(folder)
    assert not found.is_exact
    (problem,) = found.problems
    assert (problem.symbol, found.is_complete) == ("MISSING_SNAPSHOT", False)
    assert "no snapshot is left" in problem.message
    snapshot = f"{61:020}-0000000001.checkpoint"
    shutil.copy(_GOLDEN / snapshot, folder / snapshot)
    assert ks.read_metadata(folder).is_exact


def test_unknown_records_keep_their_bytes_and_are_named(log: TopicLog) -> None:
    add(log, b"\x01\x6f\x00abc", broker() + b"x", b"", b"\x01\x00\x09" + broker()[3:])
    found = read(log)
    assert found.unknown["type"] == [111, None, None, None]
    assert found.unknown["value"][0] == b"\x01\x6f\x00abc"
    assert len(found["brokers"]) == 0
    assert not found.is_exact
    first = next(iter(found.problems))
    assert (first.symbol, first.topic, first.partition) == (
        "UNKNOWN_RECORD", "__cluster_metadata", 0,
    )  # fmt: skip
    assert first.message == "offset 0: the record is ignored: unknown record type 111"


def test_differences(log: TopicLog) -> None:
    change = metadata_record("PartitionChange", 1, partition_id=0, topic_id=ID, leader=2)
    feature = metadata_record("FeatureLevel", name="f", feature_level=7)
    add(log, TOPIC, partition(), feature, change)
    add(log, metadata_record("FeatureLevel", name="f", feature_level=0), broker())
    found = ks.internal_topics.diff_metadata(read(log, as_of=3), read(log))
    key = f"orders 0 {uuid_text(ID)}"
    assert [tuple(row.values()) for row in found.rows()] == [
        ("brokers", "1", "added", None, None, None),
        ("partitions", key, "changed", "leader", "1", "2"),
        ("partitions", key, "changed", "leader_epoch", "0", "1"),
        ("partitions", key, "changed", "partition_epoch", "0", "1"),
        ("features", "f", "removed", None, None, None),
    ]


def _secrets(
    salt: bytes, key: bytes, iterations: int, password: str, expiration: int
) -> list[bytes]:
    """Return a SCRAM credential, a secret setting and a delegation token."""
    return [
        metadata_record("UserScramCredential", name="u", mechanism=1, salt=salt, stored_key=key,
                        server_key=key[::-1], iterations=iterations),
        metadata_record("Config", resource_type=4, resource_name="1",
                        name="listener.name.l.ssl.key.password", value=password),
        metadata_record("DelegationToken", owner="User:a", requester="User:a", renewers=[],
                        issue_timestamp=1, max_timestamp=9, expiration_timestamp=expiration,
                        token_id="t"),
    ]  # fmt: skip


def test_differences_name_changed_secrets_without_showing_them(log: TopicLog) -> None:
    add(log, *_secrets(b"salt-1", b"key-ab", 4096, "before", 5))
    add(log, *_secrets(b"salt-2", b"key-xy", 8192, "after", 7))
    setting = "BROKER 1 listener.name.l.ssl.key.password"
    found = ks.internal_topics.diff_metadata(read(log, as_of=3), read(log))
    assert [tuple(row.values()) for row in found.rows()] == [
        ("configs", setting, "changed", "value", HIDDEN, HIDDEN),
        ("scram", "u SCRAM-SHA-256", "changed", "iterations", "4096", "8192"),
        ("scram", "u SCRAM-SHA-256", "changed", "salt", HIDDEN, HIDDEN),
        ("scram", "u SCRAM-SHA-256", "changed", "stored_key", HIDDEN, HIDDEN),
        ("scram", "u SCRAM-SHA-256", "changed", "server_key", HIDDEN, HIDDEN),
        ("tokens", "t", "changed", "expiration_timestamp", "5", "7"),
    ]
    shown = ks.internal_topics.diff_metadata(
        read(log, as_of=3, secrets=True), read(log, secrets=True)
    )
    assert shown["left"][0::2] == ["before", b"salt-1".hex(), b"ba-yek".hex()]
    assert shown["right"][0::2] == ["after", b"salt-2".hex(), b"yx-yek".hex()]
    same = ks.internal_topics.diff_metadata(read(log), read(log, secrets=True))
    assert len(same) == 0


def test_values_in_differences_are_those_of_other_tables(log: TopicLog) -> None:
    add(log, broker(rack=None), broker(rack="r", fenced=False, log_dirs=[]))
    found = ks.internal_topics.diff_metadata(read(log, as_of=1), read(log))
    assert {row["column"]: (row["left"], row["right"]) for row in found.rows()} == {
        "rack": (None, "r"),
        "fenced": ("true", "false"),
        "log_dirs": (f'["{uuid_text(DIR)}"]', "[]"),
    }


def test_tables() -> None:
    found = ks.read_metadata(_GOLDEN)
    for name in TABLE_KEYS:
        assert list(found[name].to_pandas().columns) == list(found[name].to_polars().columns)
        assert found[name].to_arrow().num_rows == len(found[name])
    assert "15 topics" in repr(found)


def test_a_tagged_field_of_another_vendor_is_a_note(log: TopicLog) -> None:
    """Inkless has one in PartitionRecord."""
    bare = partition(directories=[])
    assert bare[-1] == 0  # the number of tagged fields
    tagged = bare[:-1] + b"\x01" + bytes([100]) + b"\x02ab"
    found = read(add(log, TOPIC, tagged, tagged))
    assert len(found.partitions) == 1
    (note,) = found.problems
    assert (note.symbol, note.severity, note.rows_missing) == (
        "UNKNOWN_FIELD", ks.Severity.NOTE, False,
    )  # fmt: skip
    assert note.message.startswith("tagged field 100 of PartitionRecord, which")
    assert (note.topic, note.partition) == ("__cluster_metadata", 0)
    done = run("metadata", log.folder.parent, "--format", "jsonl")
    assert (done.returncode, done.stderr.count("UNKNOWN_FIELD")) == (0, 1)


def test_only_so_many_unknown_fields_are_named(log: TopicLog) -> None:
    bare = partition(directories=[])
    fields = b"".join(bytes([7 + number, 0]) for number in range(110))
    found = read(add(log, TOPIC, bare[:-1] + bytes([110]) + fields))
    assert len(found.problems) == 101
    assert found.problems[100].message.startswith("other tagged fields, which")
