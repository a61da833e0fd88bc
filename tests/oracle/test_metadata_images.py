"""Random metadata records have the effect that they have in Kafka's own image."""

from __future__ import annotations

import random
import uuid

import pytest

from kafkascan.format.schemas.log_messages import METADATA_RECORDS
from kafkascan.internal_topics.metadata.metadata_image import MetadataImage
from kafkascan.internal_topics.topic_messages import decode_framed_message
from tests.oracle.build import ClassPaths
from tests.oracle.metadata_replay import comparable_tables, images_of_kafka
from tests.support.metadata_logs import metadata_record

pytestmark = pytest.mark.oracle


class RandomMetadata:
    """Random records that a controller may write, in their order."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)
        self._topics: dict[uuid.UUID, int] = {}
        self._acls: list[uuid.UUID] = []
        self._users: set[tuple[str, int]] = set()
        self._tokens: set[str] = set()
        self._count = 0

    def records(self, count: int) -> list[bytes]:
        """Return records, the first of which make features and brokers known."""
        found = [
            metadata_record("FeatureLevel", name="metadata.version", feature_level=30),
            metadata_record(
                "FeatureLevel", name="eligible.leader.replicas.version", feature_level=1
            ),
            *(self._broker(number) for number in range(3)),
            # `ScramDelta.apply` loses a user that is added in the same delta as the removal of the
            # last one of a mechanism: the result would depend on the deltas.
            *(self._credential("kept", mechanism) for mechanism in (1, 2)),
        ]
        changes = (
            self._topic, self._partition_change, self._partition_change, self._partition_change,
            self._config, self._fence, self._registration, self._acl, self._user, self._quota,
            self._token, self._remove_topic, self._clear_elr, self._producer_ids,
        )  # fmt: skip
        while len(found) < count:
            found += self._dice.choice(changes)()
        return found

    def _id(self) -> uuid.UUID:
        self._count += 1
        return uuid.UUID(int=(self._count << 64) + 99)

    def _nodes(self, most: int = 3) -> list[int]:
        return self._dice.sample(range(3), self._dice.randrange(1, most + 1))

    def _broker(self, number: int) -> bytes:
        return metadata_record(
            "RegisterBroker", 3, broker_id=number, is_migrating_zk_broker=False,
            incarnation_id=self._id(), broker_epoch=number, rack=self._dice.choice([None, "r"]),
            end_points=[{"name": "P", "host": "h", "port": 65535, "security_protocol": 0}],
            features=[], fenced=True, in_controlled_shutdown=False, log_dirs=[self._id()],
        )  # fmt: skip

    def _topic(self) -> list[bytes]:
        topic_id, count = self._id(), self._dice.randrange(1, 4)
        self._topics[topic_id] = count
        found = [metadata_record("Topic", name=f"t{self._count}", topic_id=topic_id)]
        for number in range(count):
            nodes = self._nodes()
            found.append(
                metadata_record(
                    "Partition",
                    2,
                    partition_id=number,
                    topic_id=topic_id,
                    replicas=nodes,
                    isr=nodes,
                    removing_replicas=[],
                    adding_replicas=[],
                    leader=nodes[0],
                    leader_recovery_state=0,
                    leader_epoch=0,
                    partition_epoch=0,
                    directories=[self._id() for _ in nodes],
                )
            )
        return found

    def _partition_change(self) -> list[bytes]:
        if not self._topics:
            return []
        topic_id = self._dice.choice(list(self._topics))
        nodes = self._nodes()
        changes: dict[str, object] = {
            "isr": self._nodes(), "leader": self._dice.choice([-2, -1, 0, 1, 2]),
            "removing_replicas": self._nodes(1), "adding_replicas": [],
            "leader_recovery_state": self._dice.choice([-1, 0, 1]),
            "eligible_leader_replicas": self._nodes(), "last_known_elr": self._nodes(1),
        }  # fmt: skip
        chosen = self._dice.sample(list(changes), self._dice.randrange(len(changes)))
        fields = {name: changes[name] for name in chosen}
        if self._dice.random() < 0.3:
            fields |= {"replicas": nodes, "directories": [self._id() for _ in nodes]}
        number = self._dice.randrange(self._topics[topic_id])
        return [
            metadata_record("PartitionChange", 2, partition_id=number, topic_id=topic_id, **fields)
        ]

    def _remove_topic(self) -> list[bytes]:
        if len(self._topics) < 4:
            return []
        topic_id = self._dice.choice(list(self._topics))
        del self._topics[topic_id]
        return [metadata_record("RemoveTopic", topic_id=topic_id)]

    def _clear_elr(self) -> list[bytes]:
        return [metadata_record("ClearElr", topic_name="")]

    def _config(self) -> list[bytes]:
        return [
            metadata_record(
                "Config", resource_type=self._dice.choice([2, 4]),
                resource_name=self._dice.choice(["", "1", "t1", "t2"]),
                name=self._dice.choice(["a.b", "c"]), value=self._dice.choice([None, "", "x"]),
            )
        ]  # fmt: skip

    def _fence(self) -> list[bytes]:
        number = self._dice.randrange(3)
        kind = self._dice.choice(["FenceBroker", "UnfenceBroker"])
        return [metadata_record(kind, id=number, epoch=number)]

    def _registration(self) -> list[bytes]:
        number = self._dice.randrange(3)
        return [
            metadata_record(
                "BrokerRegistrationChange", 2, broker_id=number, broker_epoch=number,
                fenced=self._dice.choice([-1, 0, 1]),
                in_controlled_shutdown=self._dice.choice([0, 1]),
                log_dirs=self._dice.choice([[], [self._id()]]),
            )
        ]  # fmt: skip

    def _acl(self) -> list[bytes]:
        if self._acls and self._dice.random() < 0.4:
            return [metadata_record("RemoveAccessControlEntry", id=self._acls.pop())]
        self._acls.append(self._id())
        return [
            metadata_record(
                "AccessControlEntry", id=self._acls[-1], resource_type=2,
                resource_name=f"t{self._count}", pattern_type=3, principal="User:a", host="*",
                operation=self._dice.randrange(2, 15), permission_type=self._dice.choice([2, 3]),
            )
        ]  # fmt: skip

    def _user(self) -> list[bytes]:
        user = self._dice.choice(["a", "b"]), self._dice.choice([1, 2])
        if user in self._users and self._dice.random() < 0.4:
            self._users.remove(user)
            return [metadata_record("RemoveUserScramCredential", name=user[0], mechanism=user[1])]
        self._users.add(user)
        return [self._credential(*user)]

    def _credential(self, name: str, mechanism: int) -> bytes:
        keys = dict.fromkeys(("salt", "stored_key", "server_key"), b"secret")
        iterations = self._dice.randrange(4096, 9999)
        return metadata_record(
            "UserScramCredential", 0, name=name, mechanism=mechanism, iterations=iterations, **keys
        )

    def _quota(self) -> list[bytes]:
        kinds = self._dice.choice([["user"], ["client-id"], ["user", "client-id"], ["ip"]])
        entity = [
            {"entity_type": kind, "entity_name": self._dice.choice([None, "a"])} for kind in kinds
        ]
        return [
            metadata_record(
                "ClientQuota", entity=entity, key=self._dice.choice(["producer_byte_rate", "x"]),
                value=self._dice.random() * 1e9, remove=self._dice.random() < 0.3,
            )
        ]  # fmt: skip

    def _token(self) -> list[bytes]:
        name = f"token-{self._dice.randrange(4)}"
        if name in self._tokens and self._dice.random() < 0.5:
            self._tokens.remove(name)
            return [metadata_record("RemoveDelegationToken", token_id=name)]
        self._tokens.add(name)
        times = {
            f"{kind}_timestamp": self._dice.randrange(10**12)
            for kind in ("issue", "max", "expiration")
        }
        return [
            metadata_record(
                "DelegationToken", owner="User:a", requester="User:b", renewers=["User:c"],
                token_id=name, **times,
            )
        ]  # fmt: skip

    def _producer_ids(self) -> list[bytes]:
        return [
            metadata_record(
                "ProducerIds", broker_id=1, broker_epoch=1, next_producer_id=1000 * self._count
            )
        ]


def test_random_records(class_paths: ClassPaths) -> None:
    for seed in range(5):
        values = RandomMetadata(seed).records(400)
        parts = [values[start : start + 25] for start in range(0, len(values), 25)]
        image = MetadataImage()
        for part, theirs in zip(parts, images_of_kafka(class_paths, parts), strict=True):
            for value in part:
                message = decode_framed_message(METADATA_RECORDS, value)
                image.apply(message.schema.name, message.fields)
            ours = comparable_tables(image)
            for name, rows in theirs.items():
                assert ours[name] == rows, (seed, name)
