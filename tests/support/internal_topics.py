"""Logs of Kafka's own topics, record by record."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kafkascan.format.schemas.message_encoder import encode
from kafkascan.internal_topics.topic_messages import COORDINATOR_RECORDS
from tests.support.logs import COMMIT, TRANSACTIONAL, marker
from tests.support.records import RecordV2, batch_of
from tests.support.segments import T0

TRANSACTION_STATUSES = (
    "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead",
    "PrepareEpochFence",
)  # fmt: skip
"""The states of transactions by Kafka's numbers (``TransactionState``)."""

KeyValue = tuple[bytes | None, bytes | None]


def coordinator_record(
    topic: str, code: int, key: Mapping[str, Any], value: Mapping[str, Any] | None, version: int = 0
) -> KeyValue:
    """Return the key and value of a record of a coordinator's topic; None is a tombstone."""
    of_key, of_value = COORDINATOR_RECORDS[topic][code]
    data = struct.pack(">h", code) + encode(of_key, key, 0)
    if value is None:
        return data, None
    return data, struct.pack(">h", version) + encode(of_value, value, version)


def commit(
    group: str, partition: int, offset: int | None, *, topic: str = "orders", version: int = 4
) -> KeyValue:
    """Return a committed offset, or its tombstone."""
    key = {"group": group, "topic": topic, "partition": partition}
    value = {"offset": offset, "leader_epoch": 3, "metadata": "m", "commit_timestamp": T0}
    if version == 1:
        value["expire_timestamp"] = T0 + 5
    return coordinator_record(
        "__consumer_offsets", 1, key, None if offset is None else value, version
    )


def transaction(
    name: str, producer_id: int, status: str, *partitions: tuple[str, int], epoch: int = 0
) -> KeyValue:
    """Return the state of a transactional id."""
    value = {
        "producer_id": producer_id, "producer_epoch": epoch, "transaction_timeout_ms": 60_000,
        "transaction_status": TRANSACTION_STATUSES.index(status),
        "transaction_partitions": [
            {"topic": topic, "partition_ids": [number]} for topic, number in partitions
        ],
        "transaction_last_update_timestamp_ms": T0, "transaction_start_timestamp_ms": T0 - 1,
    }  # fmt: skip
    return coordinator_record("__transaction_state", 0, {"transactional_id": name}, value, 1)


def share_snapshot(
    group: str,
    partition: int,
    *,
    start: int = 0,
    batches: Iterable[tuple[int, int, int, int]] = (),
    epoch: int = 0,
    state_epoch: int = 0,
    deleted: bool = False,
) -> KeyValue:
    """Return the state of a partition of a share group, or its tombstone."""
    value = {
        "snapshot_epoch": epoch, "state_epoch": state_epoch, "create_timestamp": T0,
        "write_timestamp": T0 + 1, **_share_fields(start, batches),
    }  # fmt: skip
    return coordinator_record(
        "__share_group_state", 0, _share_key(group, partition), None if deleted else value
    )


def share_update(
    group: str,
    partition: int,
    *,
    start: int = -1,
    batches: Iterable[tuple[int, int, int, int]] = (),
) -> KeyValue:
    """Return a change of the state of a partition of a share group."""
    value = {"snapshot_epoch": 0, **_share_fields(start, batches)}
    return coordinator_record("__share_group_state", 1, _share_key(group, partition), value)


def _share_key(group: str, partition: int) -> dict[str, Any]:
    return {"group_id": group, "topic_id": uuid.UUID(int=7), "partition": partition}


def _share_fields(start: int, batches: Iterable[tuple[int, int, int, int]]) -> dict[str, Any]:
    names = ("first_offset", "last_offset", "delivery_state", "delivery_count")
    listed = [dict(zip(names, one, strict=True)) for one in batches]
    return {"leader_epoch": 1, "start_offset": start, "state_batches": listed}


@dataclass
class TopicLog:
    """
    The log of a partition of one of Kafka's own topics.

    Every record has a batch and the timestamp T0 plus its offset and `later_ms`.
    """

    folder: Path
    offset: int = 0
    later_ms: int = 0
    batches: list[bytes] = field(default_factory=list)

    def add(self, *records: KeyValue, producer_id: int = -1) -> TopicLog:
        """Append records, in a transaction of a producer if it is given."""
        for key, value in records:
            fields = self._fields()
            if producer_id >= 0:
                fields |= {"attributes": TRANSACTIONAL, "producer_id": producer_id}
                fields |= {"producer_epoch": 0, "base_sequence": 0}
            self.batches.append(batch_of([RecordV2(key=key, value=value)], **fields))
            self.offset += 1
        return self

    def end(self, producer_id: int, kind: int = COMMIT) -> TopicLog:
        """Append a transaction marker."""
        self.batches.append(marker(kind, producer_id=producer_id, **self._fields()))
        self.offset += 1
        return self

    def without(self, offsets: Iterable[int]) -> TopicLog:
        """Remove records, as the cleaner does."""
        removed = set(offsets)
        self.batches = [
            batch for batch in self.batches if int.from_bytes(batch[:8], "big") not in removed
        ]
        return self

    def write(self) -> Path:
        """Write the segment; return the folder."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / f"{0:020}.log").write_bytes(b"".join(self.batches))
        return self.folder

    def _fields(self) -> dict[str, int]:
        time = T0 + self.offset + self.later_ms
        return {"base_offset": self.offset, "base_timestamp": time, "max_timestamp": time}
