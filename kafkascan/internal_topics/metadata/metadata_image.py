"""The cluster's metadata, and how each record changes it (``MetadataDelta``)."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Fields: TypeAlias = "dict[str, Any]"

TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
_NO_LEADER_CHANGE = -2
_MIGRATING = uuid.UUID(int=0)
_FENCING = {1: True, -1: False}


@dataclass
class MetadataImage:
    """
    The cluster's metadata; values have the fields of the records, in snake case.

    Attributes
    ----------
    brokers, controllers : dict of int to dict
        By node id.
    topics : dict of UUID to str
    partitions : dict of (UUID, int) to dict
        By topic id and partition.
    configs : dict of (int, str, str) to str
        By type and name of the resource, and name of the setting.
    features : dict of str to int
    credentials : dict of (str, int) to dict
        SCRAM credentials by user and mechanism, with secrets.
    acls : dict of UUID to dict
    quotas : dict of (tuple, str) to float
        By entity, as pairs of type and name, and name of the quota.
    tokens : dict of str to dict
        Delegation tokens by id.
    next_producer_id : int
        -1 without a record.
    """

    brokers: dict[int, Fields] = field(default_factory=dict)
    controllers: dict[int, Fields] = field(default_factory=dict)
    topics: dict[uuid.UUID, str] = field(default_factory=dict)
    partitions: dict[tuple[uuid.UUID, int], Fields] = field(default_factory=dict)
    configs: dict[tuple[int, str, str], str] = field(default_factory=dict)
    features: dict[str, int] = field(default_factory=dict)
    credentials: dict[tuple[str, int], Fields] = field(default_factory=dict)
    acls: dict[uuid.UUID, Fields] = field(default_factory=dict)
    quotas: dict[tuple[tuple[tuple[str, str | None], ...], str], float] = field(
        default_factory=dict
    )
    tokens: dict[str, Fields] = field(default_factory=dict)
    next_producer_id: int = -1

    def apply(self, name: str, record: Fields) -> None:
        """Apply a record by the name of its type; records without an effect are ignored."""
        change = _CHANGES.get(name)
        if change is not None:
            change(self, record)

    # ---- nodes -------------------------------------------------------------------------------

    def register_broker(self, record: Fields) -> None:
        """Apply a RegisterBrokerRecord."""
        self.brokers[record["broker_id"]] = dict(record)

    def unregister_broker(self, record: Fields) -> None:
        """Apply an UnregisterBrokerRecord."""
        self.brokers.pop(record["broker_id"], None)

    def fence_broker(self, record: Fields) -> None:
        """Apply a FenceBrokerRecord."""
        self._change_broker(record["id"], fenced=True)

    def unfence_broker(self, record: Fields) -> None:
        """Apply an UnfenceBrokerRecord."""
        self._change_broker(record["id"], fenced=False)

    def change_broker_registration(self, record: Fields) -> None:
        """Apply a BrokerRegistrationChangeRecord."""
        changes: Fields = {}
        if record["fenced"] in _FENCING:
            changes["fenced"] = _FENCING[record["fenced"]]
        if record["in_controlled_shutdown"] == 1:
            changes["in_controlled_shutdown"] = True
        if record["log_dirs"]:
            changes["log_dirs"] = record["log_dirs"]
        if record["cordoned_log_dirs"] is not None:
            changes["cordoned_log_dirs"] = record["cordoned_log_dirs"]
        self._change_broker(record["broker_id"], **changes)

    def _change_broker(self, broker_id: int, **changes: Any) -> None:
        if broker_id in self.brokers:
            self.brokers[broker_id] = self.brokers[broker_id] | changes

    def register_controller(self, record: Fields) -> None:
        """Apply a RegisterControllerRecord."""
        self.controllers[record["controller_id"]] = dict(record)

    def unregister_controller(self, record: Fields) -> None:
        """Apply an UnregisterControllerRecord."""
        self.controllers.pop(record["controller_id"], None)

    # ---- topics ------------------------------------------------------------------------------

    def add_topic(self, record: Fields) -> None:
        """Apply a TopicRecord."""
        self.topics[record["topic_id"]] = record["name"]

    def remove_topic(self, record: Fields) -> None:
        """Apply a RemoveTopicRecord: the settings of the topic go with it."""
        topic_id = record["topic_id"]
        name = self.topics.pop(topic_id, None)
        self.partitions = {key: of for key, of in self.partitions.items() if key[0] != topic_id}
        self.configs = {
            key: value for key, value in self.configs.items() if key[:2] != (TOPIC_RESOURCE, name)
        }

    def add_partition(self, record: Fields) -> None:
        """Apply a PartitionRecord."""
        replicas = record["replicas"]
        self.partitions[record["topic_id"], record["partition_id"]] = record | {
            "directories": record["directories"] or [_MIGRATING] * len(replicas),
            "eligible_leader_replicas": record["eligible_leader_replicas"] or [],
            "last_known_elr": record["last_known_elr"] or [],
        }

    def change_partition(self, record: Fields) -> None:
        """Apply a PartitionChangeRecord, as ``PartitionRegistration.merge``."""
        key = record["topic_id"], record["partition_id"]
        if key not in self.partitions:
            return
        changed = dict(self.partitions[key])
        for name in _CHANGED_LISTS:
            if record[name] is not None:
                changed[name] = record[name]
        changed["directories"] = changed["directories"] or [_MIGRATING] * len(changed["replicas"])
        if record["leader"] != _NO_LEADER_CHANGE:
            changed["leader"] = record["leader"]
            changed["leader_epoch"] += 1
        if record["leader_recovery_state"] >= 0:
            changed["leader_recovery_state"] = record["leader_recovery_state"]
        changed["partition_epoch"] += 1
        self.partitions[key] = changed

    def clear_elr(self, record: Fields) -> None:
        """Apply a ClearElrRecord, to one topic or to all, as ``TopicDelta.maybeClearElr``."""
        wanted = record["topic_name"]
        for key, partition in self.partitions.items():
            is_wanted = wanted in ("", self.topics.get(key[0]))
            if is_wanted and (partition["eligible_leader_replicas"] or partition["last_known_elr"]):
                cleared: Fields = {"eligible_leader_replicas": [], "last_known_elr": []}
                cleared["partition_epoch"] = partition["partition_epoch"] + 1
                self.partitions[key] = partition | cleared

    # ---- everything else ---------------------------------------------------------------------

    def configure(self, record: Fields) -> None:
        """Apply a ConfigRecord; a null value removes the setting."""
        key = record["resource_type"], record["resource_name"], record["name"]
        if record["value"] is None:
            self.configs.pop(key, None)
        else:
            self.configs[key] = record["value"]

    def set_feature(self, record: Fields) -> None:
        """Apply a FeatureLevelRecord; level 0 removes the feature."""
        if record["feature_level"] == 0:
            self.features.pop(record["name"], None)
        else:
            self.features[record["name"]] = record["feature_level"]

    def set_credential(self, record: Fields) -> None:
        """Apply a UserScramCredentialRecord."""
        self.credentials[record["name"], record["mechanism"]] = dict(record)

    def remove_credential(self, record: Fields) -> None:
        """Apply a RemoveUserScramCredentialRecord."""
        self.credentials.pop((record["name"], record["mechanism"]), None)

    def add_acl(self, record: Fields) -> None:
        """Apply an AccessControlEntryRecord."""
        self.acls[record["id"]] = dict(record)

    def remove_acl(self, record: Fields) -> None:
        """Apply a RemoveAccessControlEntryRecord."""
        self.acls.pop(record["id"], None)

    def set_quota(self, record: Fields) -> None:
        """Apply a ClientQuotaRecord."""
        # ClientQuotaImage.dataToEntity: of two names of one type, the last one counts.
        names = {one["entity_type"]: one["entity_name"] for one in record["entity"]}
        key = tuple(sorted(names.items())), record["key"]
        if record["remove"]:
            self.quotas.pop(key, None)
        else:
            self.quotas[key] = record["value"]

    def set_token(self, record: Fields) -> None:
        """Apply a DelegationTokenRecord."""
        self.tokens[record["token_id"]] = dict(record)

    def remove_token(self, record: Fields) -> None:
        """Apply a RemoveDelegationTokenRecord."""
        self.tokens.pop(record["token_id"], None)

    def set_producer_ids(self, record: Fields) -> None:
        """Apply a ProducerIdsRecord."""
        self.next_producer_id = record["next_producer_id"]


_CHANGED_LISTS = (
    "isr", "replicas", "removing_replicas", "adding_replicas", "directories",
    "eligible_leader_replicas", "last_known_elr",
)  # fmt: skip

_CHANGES: dict[str, Callable[[MetadataImage, Fields], None]] = {
    "RegisterBrokerRecord": MetadataImage.register_broker,
    "UnregisterBrokerRecord": MetadataImage.unregister_broker,
    "FenceBrokerRecord": MetadataImage.fence_broker,
    "UnfenceBrokerRecord": MetadataImage.unfence_broker,
    "BrokerRegistrationChangeRecord": MetadataImage.change_broker_registration,
    "RegisterControllerRecord": MetadataImage.register_controller,
    "UnregisterControllerRecord": MetadataImage.unregister_controller,
    "TopicRecord": MetadataImage.add_topic,
    "RemoveTopicRecord": MetadataImage.remove_topic,
    "PartitionRecord": MetadataImage.add_partition,
    "PartitionChangeRecord": MetadataImage.change_partition,
    "ClearElrRecord": MetadataImage.clear_elr,
    "ConfigRecord": MetadataImage.configure,
    "FeatureLevelRecord": MetadataImage.set_feature,
    "UserScramCredentialRecord": MetadataImage.set_credential,
    "RemoveUserScramCredentialRecord": MetadataImage.remove_credential,
    "AccessControlEntryRecord": MetadataImage.add_acl,
    "RemoveAccessControlEntryRecord": MetadataImage.remove_acl,
    "ClientQuotaRecord": MetadataImage.set_quota,
    "DelegationTokenRecord": MetadataImage.set_token,
    "RemoveDelegationTokenRecord": MetadataImage.remove_token,
    "ProducerIdsRecord": MetadataImage.set_producer_ids,
}
