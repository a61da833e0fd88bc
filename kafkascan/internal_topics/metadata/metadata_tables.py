"""The tables of a metadata image."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from kafkascan.format.layout import NamedCode
from kafkascan.format.schemas.message_json import uuid_text
from kafkascan.internal_topics.metadata.metadata_image import (
    BROKER_RESOURCE,
    TOPIC_RESOURCE,
    Fields,
    MetadataImage,
)
from kafkascan.tables.schema import PARTITION, TOPIC, Field, Schema, Shown
from kafkascan.tables.table import NO_PROBLEMS, Problems, Table

Rows: TypeAlias = "Iterator[Fields]"

HIDDEN = "[hidden]"
"""The value of a setting that is a secret; Kafka prints it in the same way."""

_SECRET_WORDS = ("password", "secret", "jaas", "keystore.key", "token")
_RESOURCES = {TOPIC_RESOURCE: "TOPIC", BROKER_RESOURCE: "BROKER", 16: "CLIENT_METRICS", 32: "GROUP"}
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}


class AclResource(NamedCode):
    """Type of the resource of an ACL."""

    UNKNOWN, ANY, TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID, DELEGATION_TOKEN, USER = range(8)


class AclPattern(NamedCode):
    """How the name of a resource of an ACL is matched."""

    UNKNOWN, ANY, MATCH, LITERAL, PREFIXED = range(5)


class AclOperation(NamedCode):
    """Operation of an ACL."""

    (
        UNKNOWN, ANY, ALL, READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, CLUSTER_ACTION,
        DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE, CREATE_TOKENS, DESCRIBE_TOKENS,
        TWO_PHASE_COMMIT,
    ) = range(16)  # fmt: skip


class AclPermission(NamedCode):
    """Permission of an ACL."""

    UNKNOWN, ANY, DENY, ALLOW = range(4)


def build_tables(
    image: MetadataImage, problems: Problems = NO_PROBLEMS, *, secrets: bool
) -> dict[str, Table]:
    """
    Return the tables of an image by name.

    Parameters
    ----------
    image : MetadataImage
    problems : Problems
        Of the tables.
    secrets : bool
        Whether to contain SCRAM keys and the values of secret settings.
    """
    tables = {
        name: Table.of_rows(TABLE_SCHEMAS[name], rows(image), problems)
        for name, (_, rows) in _TABLES.items()
    }
    return (
        tables if secrets else tables | {name: _without_secrets(tables[name]) for name in _SECRET}
    )


def _without_secrets(table: Table) -> Table:
    if table.schema.name == "scram":
        rows = [row | dict.fromkeys(_SCRAM_SECRETS) for row in table.rows()]
    else:
        rows = [row | {"value": HIDDEN} if _is_secret(row["name"]) else row for row in table.rows()]
    return Table.of_rows(table.schema, rows, table.problems)


def _is_secret(setting: str) -> bool:
    return any(word in setting for word in _SECRET_WORDS)


# ---- rows ------------------------------------------------------------------------------------


def _node(fields: Fields) -> Fields:
    return {
        "incarnation_id": uuid_text(fields["incarnation_id"]),
        "endpoints": sorted(_endpoint(one) for one in fields["end_points"]),
        # Kafka keeps them in a map without an order.
        "features": sorted(
            f"{one['name']}={one['min_supported_version']}-{one['max_supported_version']}"
            for one in fields["features"]
        ),
    }


def _endpoint(one: Fields) -> str:
    code = one["security_protocol"]
    protocol = _PROTOCOLS[code] if 0 <= code < len(_PROTOCOLS) else f"unknown({code})"
    return f"{one['name']}://{one['host']}:{one['port']} ({protocol})"


def _brokers(image: MetadataImage) -> Rows:
    for broker_id, fields in sorted(image.brokers.items()):
        yield _node(fields) | {
            "broker_id": broker_id,
            "broker_epoch": fields["broker_epoch"],
            "rack": fields["rack"],
            "fenced": fields["fenced"],
            "in_controlled_shutdown": fields["in_controlled_shutdown"],
            "log_dirs": [uuid_text(one) for one in fields["log_dirs"]],
            "cordoned_log_dirs": [uuid_text(one) for one in fields["cordoned_log_dirs"] or []],
        }


def _controllers(image: MetadataImage) -> Rows:
    for controller_id, fields in sorted(image.controllers.items()):
        yield _node(fields) | {"controller_id": controller_id}


def _topics(image: MetadataImage) -> Rows:
    counts: dict[Any, list[int]] = {}
    for (topic_id, _), fields in image.partitions.items():
        counts.setdefault(topic_id, []).append(len(fields["replicas"]))
    for topic_id, name in sorted(image.topics.items(), key=lambda one: one[1]):
        replicas = counts.get(topic_id, [])
        yield {
            "topic": name,
            "topic_id": uuid_text(topic_id),
            "partitions": len(replicas),
            "replication_factor": max(replicas, default=0),
        }


def _partitions(image: MetadataImage) -> Rows:
    by_name = sorted(
        image.partitions.items(), key=lambda one: (image.topics.get(one[0][0], ""), one[0][1])
    )
    for (topic_id, number), fields in by_name:
        yield {
            "topic": image.topics.get(topic_id),
            "partition": number,
            "topic_id": uuid_text(topic_id),
            "directories": [uuid_text(one) for one in fields["directories"]],
        } | {name: fields[name] for name in _PARTITION_FIELDS}


def _configs(image: MetadataImage) -> Rows:
    for (kind, resource, name), value in sorted(image.configs.items()):
        yield {
            "resource_type": _RESOURCES.get(kind, f"unknown({kind})"),
            "resource": resource,
            "name": name,
            "value": value,
        }


def _features(image: MetadataImage) -> Rows:
    for name, level in sorted(image.features.items()):
        yield {"feature": name, "level": level}


def _credentials(image: MetadataImage) -> Rows:
    for (user, mechanism), fields in sorted(image.credentials.items()):
        yield {
            "user": user,
            "mechanism": _MECHANISMS.get(mechanism, f"unknown({mechanism})"),
            "iterations": fields["iterations"],
        } | {name: fields[name] for name in _SCRAM_SECRETS}


def _acls(image: MetadataImage) -> Rows:
    found = [
        {
            "principal": one["principal"],
            "host": one["host"],
            "operation": AclOperation.name_of(one["operation"]),
            "permission": AclPermission.name_of(one["permission_type"]),
            "resource_type": AclResource.name_of(one["resource_type"]),
            "resource": one["resource_name"],
            "pattern": AclPattern.name_of(one["pattern_type"]),
            "acl_id": uuid_text(acl_id),
        }
        for acl_id, one in image.acls.items()
    ]
    yield from sorted(found, key=lambda row: (row["resource_type"], row["resource"], row["acl_id"]))


def _quotas(image: MetadataImage) -> Rows:
    order = sorted(image.quotas.items(), key=lambda one: repr(one[0]))
    for (entity, name), value in order:
        entities = [f"{kind}={'<default>' if of is None else of}" for kind, of in entity]
        yield {"entity": ",".join(entities), "quota": name, "value": value}


def _tokens(image: MetadataImage) -> Rows:
    for token_id, fields in sorted(image.tokens.items()):
        yield {"token_id": token_id} | {name: fields[name] for name in _TOKEN_FIELDS}


_PARTITION_FIELDS = (
    "replicas", "isr", "leader", "leader_epoch", "partition_epoch", "leader_recovery_state",
    "adding_replicas", "removing_replicas", "eligible_leader_replicas", "last_known_elr",
)  # fmt: skip
_SCRAM_SECRETS = ("salt", "stored_key", "server_key")
_TOKEN_FIELDS = (
    "owner", "requester", "renewers", "issue_timestamp", "expiration_timestamp", "max_timestamp",
)  # fmt: skip
_SECRET = ("configs", "scram")
_NODE_FIELDS = (
    Field("endpoints", "list<string>", "listeners: name, host, port and protocol"),
    Field("features", "list<string>", "versions of features that it supports", shown=Shown.WIDE),
    Field("incarnation_id", "string", "id of the process", shown=Shown.WIDE),
)
_TOPIC_ID = Field("topic_id", "string", "id of the topic", nullable=False)
_RESOURCE = Field("resource", "string", "name of the resource", nullable=False, shown=Shown.ALWAYS)
_RESOURCE_TYPE = Field(
    "resource_type", "string", "type of the resource", nullable=False, shown=Shown.ALWAYS
)


def _replicas(name: str, meaning: str, shown: Shown = Shown.USUALLY) -> Field:
    return Field(name, "list<int32>", meaning, nullable=False, shown=shown)


_TABLES: dict[str, tuple[tuple[Field, ...], Callable[[MetadataImage], Rows]]] = {
    "brokers": (
        (
            Field("broker_id", "int32", "node id of the broker", nullable=False,
                  shown=Shown.ALWAYS),
            Field("broker_epoch", "int64", "epoch of its registration", nullable=False),
            Field("rack", "string", "its broker.rack"),
            Field("fenced", "bool", "whether it may not lead partitions", nullable=False),
            Field("in_controlled_shutdown", "bool", "whether it is shutting down",
                  nullable=False, shown=Shown.WIDE),
            Field("log_dirs", "list<string>", "ids of its log directories"),
            Field("cordoned_log_dirs", "list<string>", "ids of the log directories that get no"
                  " new partitions", shown=Shown.WIDE),
            *_NODE_FIELDS,
        ),
        _brokers,
    ),
    "controllers": (
        (
            Field("controller_id", "int32", "node id of the controller", nullable=False,
                  shown=Shown.ALWAYS),
            *_NODE_FIELDS,
        ),
        _controllers,
    ),
    "topics": (
        (
            Field("topic", "string", "name of the topic", nullable=False, shown=Shown.ALWAYS),
            _TOPIC_ID,
            Field("partitions", "int32", "number of partitions", nullable=False),
            Field("replication_factor", "int32", "most replicas of a partition",
                  nullable=False),
        ),
        _topics,
    ),
    "partitions": (
        (
            TOPIC,
            PARTITION,
            Field("leader", "int32", "broker that leads it; -1 without one", nullable=False),
            _replicas("replicas", "brokers that have a replica, the preferred leader first"),
            _replicas("isr", "brokers whose replicas are in sync"),
            Field("leader_epoch", "int32", "leader epoch", nullable=False),
            Field("partition_epoch", "int32", "number of changes of the partition",
                  nullable=False),
            Field("leader_recovery_state", "int8", "1 while the leader recovers from an unclean"
                  " election, otherwise 0", nullable=False, shown=Shown.WIDE),
            _replicas("adding_replicas", "brokers that a reassignment adds", Shown.WIDE),
            _replicas("removing_replicas", "brokers that a reassignment removes", Shown.WIDE),
            _replicas("eligible_leader_replicas", "brokers not in sync that have all committed"
                      " records"),
            _replicas("last_known_elr", "brokers that were eligible leaders before an unclean"
                      " shutdown", Shown.WIDE),
            Field("directories", "list<string>", "ids of the log directories of its replicas",
                  nullable=False, shown=Shown.WIDE),
            replace(_TOPIC_ID, shown=Shown.WIDE),
        ),
        _partitions,
    ),
    "configs": (
        (
            _RESOURCE_TYPE,
            _RESOURCE,
            Field("name", "string", "name of the setting", nullable=False, shown=Shown.ALWAYS),
            Field("value", "string", "its value, or [hidden]"),
        ),
        _configs,
    ),
    "features": (
        (
            Field("feature", "string", "name of the feature", nullable=False, shown=Shown.ALWAYS),
            Field("level", "int16", "its finalized version", nullable=False),
        ),
        _features,
    ),
    "scram": (
        (
            Field("user", "string", "name of the user", nullable=False, shown=Shown.ALWAYS),
            Field("mechanism", "string", "SCRAM-SHA-256 or SCRAM-SHA-512", nullable=False,
                  shown=Shown.ALWAYS),
            Field("iterations", "int32", "iterations of the key derivation", nullable=False),
            Field("salt", "binary", "salt; none without secrets", shown=Shown.WIDE),
            Field("stored_key", "binary", "stored key; none without secrets", shown=Shown.WIDE),
            Field("server_key", "binary", "server key; none without secrets", shown=Shown.WIDE),
        ),
        _credentials,
    ),
    "acls": (
        (
            Field("principal", "string", "who it is about", nullable=False, shown=Shown.ALWAYS),
            Field("host", "string", "host from which, * for all", nullable=False),
            Field("operation", "string", "operation that is allowed or denied", nullable=False),
            Field("permission", "string", "ALLOW or DENY", nullable=False),
            replace(_RESOURCE_TYPE, shown=Shown.USUALLY),
            replace(_RESOURCE, shown=Shown.USUALLY),
            Field("pattern", "string", "how the name of the resource is matched: LITERAL or"
                  " PREFIXED", nullable=False),
            Field("acl_id", "string", "id of the ACL", nullable=False, shown=Shown.WIDE),
        ),
        _acls,
    ),
    "quotas": (
        (
            Field("entity", "string", "users, clients or IP addresses that it limits",
                  nullable=False, shown=Shown.ALWAYS),
            Field("quota", "string", "name of the quota", nullable=False, shown=Shown.ALWAYS),
            Field("value", "float64", "its limit", nullable=False),
        ),
        _quotas,
    ),
    "tokens": (
        (
            Field("token_id", "string", "id of the delegation token", nullable=False,
                  shown=Shown.ALWAYS),
            Field("owner", "string", "principal that owns it", nullable=False),
            Field("requester", "string", "principal that requested it", nullable=False,
                  shown=Shown.WIDE),
            Field("renewers", "list<string>", "principals that may renew it", nullable=False),
            Field("issue_timestamp", "time", "time at which it was issued", shown=Shown.WIDE),
            Field("expiration_timestamp", "time", "time at which it expires unless it is renewed"),
            Field("max_timestamp", "time", "time after which it cannot be renewed",
                  shown=Shown.WIDE),
        ),
        _tokens,
    ),
}  # fmt: skip

TABLE_SCHEMAS: Mapping[str, Schema] = {
    name: Schema(name, fields) for name, (fields, _) in _TABLES.items()
}
"""The columns of the tables of `Metadata`, by name of the table."""

TABLE_KEYS: Mapping[str, tuple[str, ...]] = {
    "brokers": ("broker_id",),
    "controllers": ("controller_id",),
    "topics": ("topic", "topic_id"),
    "partitions": ("topic", "partition", "topic_id"),
    "configs": ("resource_type", "resource", "name"),
    "features": ("feature",),
    "scram": ("user", "mechanism"),
    "acls": ("acl_id",),
    "quotas": ("entity", "quota"),
    "tokens": ("token_id",),
}
"""Columns that identify a row of each table."""
