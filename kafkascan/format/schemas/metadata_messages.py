"""Records of the metadata log (KIP-631)."""

from __future__ import annotations

from kafkascan.format.schemas.message_decoder import Array, Field, Schema

_BROKER_ENDPOINT = Schema(
    "BrokerEndpoint",
    (
        Field("name", "string"),
        Field("host", "string"),
        Field("port", "uint16"),
        Field("security_protocol", "int16"),
    ),
)
_BROKER_FEATURE = Schema(
    "BrokerFeature",
    (
        Field("name", "string"),
        Field("min_supported_version", "int16"),
        Field("max_supported_version", "int16"),
    ),
)
REGISTER_BROKER = Schema(
    "RegisterBrokerRecord",
    (
        Field("broker_id", "int32"),
        Field("is_migrating_zk_broker", "bool", since=2, default=False),
        Field("incarnation_id", "uuid"),
        Field("broker_epoch", "int64"),
        Field("end_points", Array(_BROKER_ENDPOINT)),
        Field("features", Array(_BROKER_FEATURE)),
        Field("rack", "string", nullable_since=0),
        Field("fenced", "bool", default=True),
        Field("in_controlled_shutdown", "bool", since=1, default=False),
        Field("log_dirs", Array("uuid"), since=3, tag=0, default=()),
        Field("cordoned_log_dirs", Array("uuid"), since=4, nullable_since=4, tag=1),
    ),
    flexible_since=0,
    newest=4,
)
UNREGISTER_BROKER = Schema(
    "UnregisterBrokerRecord",
    (Field("broker_id", "int32"), Field("broker_epoch", "int64")),
    flexible_since=0,
)
TOPIC = Schema(
    "TopicRecord", (Field("name", "string"), Field("topic_id", "uuid")), flexible_since=0
)
PARTITION = Schema(
    "PartitionRecord",
    (
        Field("partition_id", "int32", default=-1),
        Field("topic_id", "uuid"),
        Field("replicas", Array("int32")),
        Field("isr", Array("int32")),
        Field("removing_replicas", Array("int32")),
        Field("adding_replicas", Array("int32")),
        Field("leader", "int32", default=-1),
        Field("leader_recovery_state", "int8", tag=0, default=0),
        Field("leader_epoch", "int32", default=-1),
        Field("partition_epoch", "int32", default=-1),
        Field("directories", Array("uuid"), since=1),
        Field("eligible_leader_replicas", Array("int32"), since=2, nullable_since=2, tag=1),
        Field("last_known_elr", Array("int32"), since=2, nullable_since=2, tag=2),
    ),
    flexible_since=0,
    newest=2,
)
CONFIG = Schema(
    "ConfigRecord",
    (
        Field("resource_type", "int8"),
        Field("resource_name", "string"),
        Field("name", "string"),
        Field("value", "string", nullable_since=0),
    ),
    flexible_since=0,
)
PARTITION_CHANGE = Schema(
    "PartitionChangeRecord",
    (
        Field("partition_id", "int32", default=-1),
        Field("topic_id", "uuid"),
        Field("isr", Array("int32"), nullable_since=0, tag=0),
        Field("leader", "int32", tag=1, default=-2),
        Field("replicas", Array("int32"), nullable_since=0, tag=2),
        Field("removing_replicas", Array("int32"), nullable_since=0, tag=3),
        Field("adding_replicas", Array("int32"), nullable_since=0, tag=4),
        Field("leader_recovery_state", "int8", tag=5, default=-1),
        Field("directories", Array("uuid"), since=1, nullable_since=1, tag=8),
        Field("eligible_leader_replicas", Array("int32"), since=2, nullable_since=2, tag=6),
        Field("last_known_elr", Array("int32"), since=2, nullable_since=2, tag=7),
    ),
    flexible_since=0,
    newest=2,
)
FENCE_BROKER = Schema(
    "FenceBrokerRecord", (Field("id", "int32"), Field("epoch", "int64")), flexible_since=0
)
UNFENCE_BROKER = Schema(
    "UnfenceBrokerRecord", (Field("id", "int32"), Field("epoch", "int64")), flexible_since=0
)
REMOVE_TOPIC = Schema("RemoveTopicRecord", (Field("topic_id", "uuid"),), flexible_since=0)
DELEGATION_TOKEN = Schema(
    "DelegationTokenRecord",
    (
        Field("owner", "string"),
        Field("requester", "string"),
        Field("renewers", Array("string")),
        Field("issue_timestamp", "int64"),
        Field("max_timestamp", "int64"),
        Field("expiration_timestamp", "int64"),
        Field("token_id", "string"),
    ),
    flexible_since=0,
)
USER_SCRAM_CREDENTIAL = Schema(
    "UserScramCredentialRecord",
    (
        Field("name", "string"),
        Field("mechanism", "int8"),
        Field("salt", "bytes"),
        Field("stored_key", "bytes"),
        Field("server_key", "bytes"),
        Field("iterations", "int32"),
    ),
    flexible_since=0,
)
FEATURE_LEVEL = Schema(
    "FeatureLevelRecord",
    (Field("name", "string"), Field("feature_level", "int16")),
    flexible_since=0,
)
_ENTITY_DATA = Schema(
    "EntityData", (Field("entity_type", "string"), Field("entity_name", "string", nullable_since=0))
)
CLIENT_QUOTA = Schema(
    "ClientQuotaRecord",
    (
        Field("entity", Array(_ENTITY_DATA)),
        Field("key", "string"),
        Field("value", "float64"),
        Field("remove", "bool"),
    ),
    flexible_since=0,
)
PRODUCER_IDS = Schema(
    "ProducerIdsRecord",
    (
        Field("broker_id", "int32"),
        Field("broker_epoch", "int64", default=-1),
        Field("next_producer_id", "int64"),
    ),
    flexible_since=0,
)
BROKER_REGISTRATION_CHANGE = Schema(
    "BrokerRegistrationChangeRecord",
    (
        Field("broker_id", "int32"),
        Field("broker_epoch", "int64"),
        Field("fenced", "int8", tag=0, default=0),
        Field("in_controlled_shutdown", "int8", since=1, tag=1, default=0),
        Field("log_dirs", Array("uuid"), since=2, tag=2, default=()),
        Field("cordoned_log_dirs", Array("uuid"), since=3, nullable_since=3, tag=3),
    ),
    flexible_since=0,
    newest=3,
)
ACCESS_CONTROL_ENTRY = Schema(
    "AccessControlEntryRecord",
    (
        Field("id", "uuid"),
        Field("resource_type", "int8"),
        Field("resource_name", "string"),
        Field("pattern_type", "int8"),
        Field("principal", "string"),
        Field("host", "string"),
        Field("operation", "int8"),
        Field("permission_type", "int8"),
    ),
    flexible_since=0,
)
REMOVE_ACCESS_CONTROL_ENTRY = Schema(
    "RemoveAccessControlEntryRecord", (Field("id", "uuid"),), flexible_since=0
)
NO_OP = Schema("NoOpRecord", (), flexible_since=0)
ZK_MIGRATION_STATE = Schema(
    "ZkMigrationStateRecord", (Field("zk_migration_state", "int8"),), flexible_since=0
)
REMOVE_USER_SCRAM_CREDENTIAL = Schema(
    "RemoveUserScramCredentialRecord",
    (Field("name", "string"), Field("mechanism", "int8")),
    flexible_since=0,
)
BEGIN_TRANSACTION = Schema(
    "BeginTransactionRecord", (Field("name", "string", nullable_since=0, tag=0),), flexible_since=0
)
END_TRANSACTION = Schema("EndTransactionRecord", (), flexible_since=0)
ABORT_TRANSACTION = Schema(
    "AbortTransactionRecord",
    (Field("reason", "string", nullable_since=0, tag=0),),
    flexible_since=0,
)
REMOVE_DELEGATION_TOKEN = Schema(
    "RemoveDelegationTokenRecord", (Field("token_id", "string"),), flexible_since=0
)
_CONTROLLER_ENDPOINT = Schema(
    "ControllerEndpoint",
    (
        Field("name", "string"),
        Field("host", "string"),
        Field("port", "uint16"),
        Field("security_protocol", "int16"),
    ),
)
_CONTROLLER_FEATURE = Schema(
    "ControllerFeature",
    (
        Field("name", "string"),
        Field("min_supported_version", "int16"),
        Field("max_supported_version", "int16"),
    ),
)
REGISTER_CONTROLLER = Schema(
    "RegisterControllerRecord",
    (
        Field("controller_id", "int32"),
        Field("incarnation_id", "uuid"),
        Field("zk_migration_ready", "bool"),
        Field("end_points", Array(_CONTROLLER_ENDPOINT)),
        Field("features", Array(_CONTROLLER_FEATURE)),
    ),
    flexible_since=0,
)
CLEAR_ELR = Schema("ClearElrRecord", (Field("topic_name", "string"),), flexible_since=0)
UNREGISTER_CONTROLLER = Schema(
    "UnregisterControllerRecord", (Field("controller_id", "int32"),), flexible_since=0
)

METADATA_RECORDS: dict[int, Schema] = {
    0: REGISTER_BROKER,
    1: UNREGISTER_BROKER,
    2: TOPIC,
    3: PARTITION,
    4: CONFIG,
    5: PARTITION_CHANGE,
    7: FENCE_BROKER,
    8: UNFENCE_BROKER,
    9: REMOVE_TOPIC,
    10: DELEGATION_TOKEN,
    11: USER_SCRAM_CREDENTIAL,
    12: FEATURE_LEVEL,
    14: CLIENT_QUOTA,
    15: PRODUCER_IDS,
    17: BROKER_REGISTRATION_CHANGE,
    18: ACCESS_CONTROL_ENTRY,
    19: REMOVE_ACCESS_CONTROL_ENTRY,
    20: NO_OP,
    21: ZK_MIGRATION_STATE,
    22: REMOVE_USER_SCRAM_CREDENTIAL,
    23: BEGIN_TRANSACTION,
    24: END_TRANSACTION,
    25: ABORT_TRANSACTION,
    26: REMOVE_DELEGATION_TOKEN,
    27: REGISTER_CONTROLLER,
    28: CLEAR_ELR,
    29: UNREGISTER_CONTROLLER,
}
"""Schemas by the type of the record."""
