"""The tables of a metadata image."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from kafkascan.format.layout import NamedCode
from kafkascan.format.schemas.message_json import uuid_text
from kafkascan.internal_topics.metadata.metadata_image import (
    BROKER_RESOURCE,
    TOPIC_RESOURCE,
    Fields,
    MetadataImage,
)
from kafkascan.internal_topics.state_tables import StateTable

Kinds: TypeAlias = "dict[str, str]"
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

    @property
    def display_name(self) -> str:
        """Kafka's name."""
        return self.name


class AclPattern(NamedCode):
    """How the name of a resource of an ACL is matched."""

    UNKNOWN, ANY, MATCH, LITERAL, PREFIXED = range(5)

    @property
    def display_name(self) -> str:
        """Kafka's name."""
        return self.name


class AclOperation(NamedCode):
    """Operation of an ACL."""

    (
        UNKNOWN, ANY, ALL, READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, CLUSTER_ACTION,
        DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE, CREATE_TOKENS, DESCRIBE_TOKENS,
        TWO_PHASE_COMMIT,
    ) = range(16)  # fmt: skip

    @property
    def display_name(self) -> str:
        """Kafka's name."""
        return self.name


class AclPermission(NamedCode):
    """Permission of an ACL."""

    UNKNOWN, ANY, DENY, ALLOW = range(4)

    @property
    def display_name(self) -> str:
        """Kafka's name."""
        return self.name


def build_tables(image: MetadataImage, *, secrets: bool) -> dict[str, StateTable]:
    """
    Return the tables of an image by name.

    Parameters
    ----------
    image : MetadataImage
    secrets : bool
        Whether to contain SCRAM keys and the values of secret settings.
    """
    tables = {
        name: StateTable.of_rows(name, kinds, rows(image))
        for name, (kinds, rows) in _TABLES.items()
    }
    return (
        tables if secrets else tables | {name: _without_secrets(tables[name]) for name in _SECRET}
    )


def _without_secrets(table: StateTable) -> StateTable:
    if table.name == "scram":
        rows = [row | dict.fromkeys(_SCRAM_SECRETS) for row in table.rows()]
    else:
        rows = [row | {"value": HIDDEN} if _is_secret(row["name"]) else row for row in table.rows()]
    return StateTable.of_rows(table.name, table.kinds, rows)


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
_NODE_KINDS: Kinds = {
    "endpoints": "list<string>", "features": "list<string>", "incarnation_id": "string",
}  # fmt: skip

_TABLES: dict[str, tuple[Kinds, Callable[[MetadataImage], Rows]]] = {
    "brokers": (
        {
            "broker_id": "int32", "broker_epoch": "int64", "rack": "string", "fenced": "bool",
            "in_controlled_shutdown": "bool", "log_dirs": "list<string>",
            "cordoned_log_dirs": "list<string>",
        } | _NODE_KINDS,
        _brokers,
    ),
    "controllers": ({"controller_id": "int32"} | _NODE_KINDS, _controllers),
    "topics": (
        {
            "topic": "string", "topic_id": "string", "partitions": "int32",
            "replication_factor": "int32",
        },
        _topics,
    ),
    "partitions": (
        {
            "topic": "string", "partition": "int32", "leader": "int32", "replicas": "list<int32>",
            "isr": "list<int32>", "leader_epoch": "int32", "partition_epoch": "int32",
            "leader_recovery_state": "int8", "adding_replicas": "list<int32>",
            "removing_replicas": "list<int32>", "eligible_leader_replicas": "list<int32>",
            "last_known_elr": "list<int32>", "directories": "list<string>", "topic_id": "string",
        },
        _partitions,
    ),
    "configs": (
        {"resource_type": "string", "resource": "string", "name": "string", "value": "string"},
        _configs,
    ),
    "features": ({"feature": "string", "level": "int16"}, _features),
    "scram": (
        {
            "user": "string", "mechanism": "string", "iterations": "int32", "salt": "binary",
            "stored_key": "binary", "server_key": "binary",
        },
        _credentials,
    ),
    "acls": (
        {
            "principal": "string", "host": "string", "operation": "string",
            "permission": "string", "resource_type": "string", "resource": "string",
            "pattern": "string", "acl_id": "string",
        },
        _acls,
    ),
    "quotas": ({"entity": "string", "quota": "string", "value": "float64"}, _quotas),
    "tokens": (
        {
            "token_id": "string", "owner": "string", "requester": "string",
            "renewers": "list<string>", "issue_timestamp": "time", "expiration_timestamp": "time",
            "max_timestamp": "time",
        },
        _tokens,
    ),
}  # fmt: skip

TABLE_KINDS: Mapping[str, Kinds] = {name: kinds for name, (kinds, _) in _TABLES.items()}
"""Columns of the tables of `Metadata`, by name of the table."""

TABLE_NAMES: Sequence[str] = tuple(_TABLES)
"""Names of the tables of `Metadata`."""

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
