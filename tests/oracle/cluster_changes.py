"""Changes of a running cluster's metadata, and what its brokers report about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

import kafkascan as ks
from tests.oracle.clients import JavaClients
from tests.oracle.jvm import wait_until
from tests.support.waiting import HANG_SECONDS

Facts = dict[str, Any]
"""Sets and mappings of what a cluster's metadata says, by name."""

_BROKER_ID = "1"
_OF_TOPICS, _OF_ONE_BROKER = 1, 2
_ANY_ACL = AclBindingFilter(
    ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY,
    AclPermissionType.ANY,
)  # fmt: skip


def change_topics(admin: AdminClient, prefix: str) -> None:
    """Create, extend, configure, delete and create again topics of a prefix."""
    topics = [f"{prefix}{number}" for number in range(5)]
    _wait(admin.create_topics([NewTopic(name, 2, 1) for name in topics]))
    wait_until("a broker to know the topics", lambda: set(topics) <= _topic_names(admin))
    _wait(admin.create_partitions([NewPartitions(topics[1], 5)]))
    for value in ("1000", "2000", None):
        _configure(admin, ConfigResource.Type.TOPIC, topics[2], "retention.ms", value)
    _configure(admin, ConfigResource.Type.TOPIC, topics[3], "cleanup.policy", "compact")
    _configure(admin, ConfigResource.Type.TOPIC, topics[0], "segment.bytes", "1048576")
    _wait(admin.delete_topics(topics[3:]))
    _wait(admin.create_topics([NewTopic(topics[4], 1, 1)]))


def change_settings(admin: AdminClient, java: JavaClients, prefix: str) -> None:
    """Change settings of brokers, and create and delete ACLs, users and quotas."""
    java.call("alterBrokers", config={"message.max.bytes": "1048600"})
    _configure(admin, ConfigResource.Type.BROKER, _BROKER_ID, "message.max.bytes", "1048700")
    acls = [
        AclBinding(
            ResourceType.TOPIC, f"{prefix}{number}", ResourcePatternType.PREFIXED, "User:alice",
            "*", AclOperation.READ, AclPermissionType.ALLOW if number else AclPermissionType.DENY,
        )
        for number in range(3)
    ]  # fmt: skip
    _wait(admin.create_acls(acls))
    gone = AclBindingFilter(
        ResourceType.TOPIC, f"{prefix}1", ResourcePatternType.ANY, None, None, AclOperation.ANY,
        AclPermissionType.ANY,
    )  # fmt: skip
    _wait(admin.delete_acls([gone]))
    kept, removed = f"{prefix}-kept", f"{prefix}-removed"
    for iterations in (4096, 8192):
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, iterations)
        users = [UserScramCredentialUpsertion(name, info, b"secret") for name in (kept, removed)]
        _wait(admin.alter_user_scram_credentials(users))
    deletion = UserScramCredentialDeletion(removed, ScramMechanism.SCRAM_SHA_256)
    _wait(admin.alter_user_scram_credentials([deletion]))
    entity = {"user": prefix, "client-id": None}
    for value in (1024, None, 2048):
        java.call("setQuota", entity=entity, quota="producer_byte_rate", value=value)
    java.call("setQuota", entity={"user": None}, quota="request_percentage", value=12.5)


def reported_facts(admin: AdminClient, java: JavaClients) -> Facts:
    """Return what the admin client describes."""
    topics = admin.list_topics(timeout=HANG_SECONDS).topics
    acls = admin.describe_acls(_ANY_ACL).result(HANG_SECONDS)
    users = admin.describe_user_scram_credentials().result(HANG_SECONDS)
    nodes = admin.describe_cluster().result(HANG_SECONDS).nodes
    return {
        "brokers": {(node.id, f"{node.host}:{node.port}") for node in nodes},
        "topics": {(one.topic, len(one.partitions)) for one in topics.values()},
        "partitions": {
            (topic.topic, one.id, one.leader, tuple(one.replicas), tuple(one.isrs))
            for topic in topics.values()
            for one in topic.partitions.values()
        },
        "configs": _reported_configs(admin, list(topics)),
        "acls": {
            (
                one.restype.name, one.name, one.resource_pattern_type.name, one.principal,
                one.host, one.operation.name, one.permission_type.name,
            )
            for one in acls
        },
        "users": {
            (name, info.mechanism.name.replace("_", "-"), info.iterations)
            for name, described in users.items()
            for info in described.scram_credential_infos
        },
        "features": java.call("describeFeatures"),
        "quotas": {
            (_entity_text(one["entity"]), quota, value)
            for one in java.call("describeQuotas")
            for quota, value in one["quotas"].items()
        },
        "log dirs": {(topic, number) for _, topic, number in java.call("describeLogDirs")},
        "voters": set(java.call("describeQuorum")["voters"]),
    }  # fmt: skip


def facts_of(metadata: ks.internal_topics.Metadata) -> Facts:
    """Return the same of metadata that was read from files."""
    rows = {name: table.rows() for name, table in metadata.tables.items()}
    return {
        "brokers": {
            (row["broker_id"], row["endpoints"][0].split("//")[1].split(" ")[0])
            for row in rows["brokers"]
        },
        "topics": {(row["topic"], row["partitions"]) for row in rows["topics"]},
        "partitions": {
            (
                row["topic"], row["partition"], row["leader"], tuple(row["replicas"]),
                tuple(row["isr"]),
            )
            for row in rows["partitions"]
        },
        "configs": {
            (row["resource_type"], row["resource"], row["name"], row["value"])
            for row in rows["configs"]
            if row["resource"]
        },
        "acls": {
            (
                row["resource_type"], row["resource"], row["pattern"], row["principal"],
                row["host"], row["operation"], row["permission"],
            )
            for row in rows["acls"]
        },
        "users": {(row["user"], row["mechanism"], row["iterations"]) for row in rows["scram"]},
        # Brokers do not report a level of 0.
        "features": {row["feature"]: row["level"] for row in rows["features"] if row["level"]},
        "quotas": {(row["entity"], row["quota"], row["value"]) for row in rows["quotas"]},
        "log dirs": {(row["topic"], row["partition"]) for row in rows["partitions"]},
        "voters": {1},
    }  # fmt: skip


def _topic_names(admin: AdminClient) -> set[str]:
    return set(admin.list_topics(timeout=HANG_SECONDS).topics)


def _reported_configs(admin: AdminClient, topics: list[str]) -> set[tuple[str, str, str, str]]:
    asked = {ConfigResource(ConfigResource.Type.TOPIC, name): _OF_TOPICS for name in topics}
    asked[ConfigResource(ConfigResource.Type.BROKER, _BROKER_ID)] = _OF_ONE_BROKER
    return {
        (resource.restype.name, resource.name, entry.name, entry.value)
        for resource, answer in admin.describe_configs(list(asked)).items()
        for entry in answer.result(HANG_SECONDS).values()
        if entry.source == asked[resource]
    }


def _entity_text(entity: Mapping[str, str | None]) -> str:
    return ",".join(
        f"{kind}={'<default>' if name is None else name}" for kind, name in sorted(entity.items())
    )


def _wait(futures: Mapping[Any, Any]) -> None:
    for future in futures.values():
        future.result(HANG_SECONDS)


def _configure(
    admin: AdminClient, kind: ConfigResource.Type, resource: str, name: str, value: str | None
) -> None:
    operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
    entry = ConfigEntry(name, value, incremental_operation=operation)
    changed = ConfigResource(kind, resource, incremental_configs=[entry])
    _wait(admin.incremental_alter_configs([changed]))
