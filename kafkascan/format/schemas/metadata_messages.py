"""Records of the metadata log (KIP-631)."""

from __future__ import annotations

from kafkascan.format.schemas.message_decoder import Array, MessageField, MessageSchema

_BROKER_ENDPOINT = MessageSchema(
    "BrokerEndpoint",
    (
        MessageField("name", "string"),
        MessageField("host", "string"),
        MessageField("port", "uint16"),
        MessageField("security_protocol", "int16"),
    ),
)
_BROKER_FEATURE = MessageSchema(
    "BrokerFeature",
    (
        MessageField("name", "string"),
        MessageField("min_supported_version", "int16"),
        MessageField("max_supported_version", "int16"),
    ),
)
REGISTER_BROKER = MessageSchema(
    "RegisterBrokerRecord",
    (
        MessageField("broker_id", "int32"),
        MessageField("is_migrating_zk_broker", "bool", since=2, default=False),
        MessageField("incarnation_id", "uuid"),
        MessageField("broker_epoch", "int64"),
        MessageField("end_points", Array(_BROKER_ENDPOINT)),
        MessageField("features", Array(_BROKER_FEATURE)),
        MessageField("rack", "string", nullable_since=0),
        MessageField("fenced", "bool", default=True),
        MessageField("in_controlled_shutdown", "bool", since=1, default=False),
        MessageField("log_dirs", Array("uuid"), since=3, tag=0, default=()),
        MessageField("cordoned_log_dirs", Array("uuid"), since=4, nullable_since=4, tag=1),
    ),
    flexible_since=0,
    newest=4,
)
UNREGISTER_BROKER = MessageSchema(
    "UnregisterBrokerRecord",
    (MessageField("broker_id", "int32"), MessageField("broker_epoch", "int64")),
    flexible_since=0,
)
TOPIC = MessageSchema(
    "TopicRecord",
    (MessageField("name", "string"), MessageField("topic_id", "uuid")),
    flexible_since=0,
)
PARTITION = MessageSchema(
    "PartitionRecord",
    (
        MessageField("partition_id", "int32", default=-1),
        MessageField("topic_id", "uuid"),
        MessageField("replicas", Array("int32")),
        MessageField("isr", Array("int32")),
        MessageField("removing_replicas", Array("int32")),
        MessageField("adding_replicas", Array("int32")),
        MessageField("leader", "int32", default=-1),
        MessageField("leader_recovery_state", "int8", tag=0, default=0),
        MessageField("leader_epoch", "int32", default=-1),
        MessageField("partition_epoch", "int32", default=-1),
        MessageField("directories", Array("uuid"), since=1),
        MessageField("eligible_leader_replicas", Array("int32"), since=2, nullable_since=2, tag=1),
        MessageField("last_known_elr", Array("int32"), since=2, nullable_since=2, tag=2),
    ),
    flexible_since=0,
    newest=2,
)
CONFIG = MessageSchema(
    "ConfigRecord",
    (
        MessageField("resource_type", "int8"),
        MessageField("resource_name", "string"),
        MessageField("name", "string"),
        MessageField("value", "string", nullable_since=0),
    ),
    flexible_since=0,
)
PARTITION_CHANGE = MessageSchema(
    "PartitionChangeRecord",
    (
        MessageField("partition_id", "int32", default=-1),
        MessageField("topic_id", "uuid"),
        MessageField("isr", Array("int32"), nullable_since=0, tag=0),
        MessageField("leader", "int32", tag=1, default=-2),
        MessageField("replicas", Array("int32"), nullable_since=0, tag=2),
        MessageField("removing_replicas", Array("int32"), nullable_since=0, tag=3),
        MessageField("adding_replicas", Array("int32"), nullable_since=0, tag=4),
        MessageField("leader_recovery_state", "int8", tag=5, default=-1),
        MessageField("directories", Array("uuid"), since=1, nullable_since=1, tag=8),
        MessageField("eligible_leader_replicas", Array("int32"), since=2, nullable_since=2, tag=6),
        MessageField("last_known_elr", Array("int32"), since=2, nullable_since=2, tag=7),
    ),
    flexible_since=0,
    newest=2,
)
FENCE_BROKER = MessageSchema(
    "FenceBrokerRecord",
    (MessageField("id", "int32"), MessageField("epoch", "int64")),
    flexible_since=0,
)
UNFENCE_BROKER = MessageSchema(
    "UnfenceBrokerRecord",
    (MessageField("id", "int32"), MessageField("epoch", "int64")),
    flexible_since=0,
)
REMOVE_TOPIC = MessageSchema(
    "RemoveTopicRecord", (MessageField("topic_id", "uuid"),), flexible_since=0
)
DELEGATION_TOKEN = MessageSchema(
    "DelegationTokenRecord",
    (
        MessageField("owner", "string"),
        MessageField("requester", "string"),
        MessageField("renewers", Array("string")),
        MessageField("issue_timestamp", "int64"),
        MessageField("max_timestamp", "int64"),
        MessageField("expiration_timestamp", "int64"),
        MessageField("token_id", "string"),
    ),
    flexible_since=0,
)
USER_SCRAM_CREDENTIAL = MessageSchema(
    "UserScramCredentialRecord",
    (
        MessageField("name", "string"),
        MessageField("mechanism", "int8"),
        MessageField("salt", "bytes"),
        MessageField("stored_key", "bytes"),
        MessageField("server_key", "bytes"),
        MessageField("iterations", "int32"),
    ),
    flexible_since=0,
)
FEATURE_LEVEL = MessageSchema(
    "FeatureLevelRecord",
    (MessageField("name", "string"), MessageField("feature_level", "int16")),
    flexible_since=0,
)
_ENTITY_DATA = MessageSchema(
    "EntityData",
    (
        MessageField("entity_type", "string"),
        MessageField("entity_name", "string", nullable_since=0),
    ),
)
CLIENT_QUOTA = MessageSchema(
    "ClientQuotaRecord",
    (
        MessageField("entity", Array(_ENTITY_DATA)),
        MessageField("key", "string"),
        MessageField("value", "float64"),
        MessageField("remove", "bool"),
    ),
    flexible_since=0,
)
PRODUCER_IDS = MessageSchema(
    "ProducerIdsRecord",
    (
        MessageField("broker_id", "int32"),
        MessageField("broker_epoch", "int64", default=-1),
        MessageField("next_producer_id", "int64"),
    ),
    flexible_since=0,
)
BROKER_REGISTRATION_CHANGE = MessageSchema(
    "BrokerRegistrationChangeRecord",
    (
        MessageField("broker_id", "int32"),
        MessageField("broker_epoch", "int64"),
        MessageField("fenced", "int8", tag=0, default=0),
        MessageField("in_controlled_shutdown", "int8", since=1, tag=1, default=0),
        MessageField("log_dirs", Array("uuid"), since=2, tag=2, default=()),
        MessageField("cordoned_log_dirs", Array("uuid"), since=3, nullable_since=3, tag=3),
    ),
    flexible_since=0,
    newest=3,
)
ACCESS_CONTROL_ENTRY = MessageSchema(
    "AccessControlEntryRecord",
    (
        MessageField("id", "uuid"),
        MessageField("resource_type", "int8"),
        MessageField("resource_name", "string"),
        MessageField("pattern_type", "int8"),
        MessageField("principal", "string"),
        MessageField("host", "string"),
        MessageField("operation", "int8"),
        MessageField("permission_type", "int8"),
    ),
    flexible_since=0,
)
REMOVE_ACCESS_CONTROL_ENTRY = MessageSchema(
    "RemoveAccessControlEntryRecord", (MessageField("id", "uuid"),), flexible_since=0
)
NO_OP = MessageSchema("NoOpRecord", (), flexible_since=0)
ZK_MIGRATION_STATE = MessageSchema(
    "ZkMigrationStateRecord", (MessageField("zk_migration_state", "int8"),), flexible_since=0
)
REMOVE_USER_SCRAM_CREDENTIAL = MessageSchema(
    "RemoveUserScramCredentialRecord",
    (MessageField("name", "string"), MessageField("mechanism", "int8")),
    flexible_since=0,
)
BEGIN_TRANSACTION = MessageSchema(
    "BeginTransactionRecord",
    (MessageField("name", "string", nullable_since=0, tag=0),),
    flexible_since=0,
)
END_TRANSACTION = MessageSchema("EndTransactionRecord", (), flexible_since=0)
ABORT_TRANSACTION = MessageSchema(
    "AbortTransactionRecord",
    (MessageField("reason", "string", nullable_since=0, tag=0),),
    flexible_since=0,
)
REMOVE_DELEGATION_TOKEN = MessageSchema(
    "RemoveDelegationTokenRecord", (MessageField("token_id", "string"),), flexible_since=0
)
_CONTROLLER_ENDPOINT = MessageSchema(
    "ControllerEndpoint",
    (
        MessageField("name", "string"),
        MessageField("host", "string"),
        MessageField("port", "uint16"),
        MessageField("security_protocol", "int16"),
    ),
)
_CONTROLLER_FEATURE = MessageSchema(
    "ControllerFeature",
    (
        MessageField("name", "string"),
        MessageField("min_supported_version", "int16"),
        MessageField("max_supported_version", "int16"),
    ),
)
REGISTER_CONTROLLER = MessageSchema(
    "RegisterControllerRecord",
    (
        MessageField("controller_id", "int32"),
        MessageField("incarnation_id", "uuid"),
        MessageField("zk_migration_ready", "bool"),
        MessageField("end_points", Array(_CONTROLLER_ENDPOINT)),
        MessageField("features", Array(_CONTROLLER_FEATURE)),
    ),
    flexible_since=0,
)
CLEAR_ELR = MessageSchema(
    "ClearElrRecord", (MessageField("topic_name", "string"),), flexible_since=0
)
UNREGISTER_CONTROLLER = MessageSchema(
    "UnregisterControllerRecord", (MessageField("controller_id", "int32"),), flexible_since=0
)

METADATA_RECORDS: dict[int, MessageSchema] = {
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
