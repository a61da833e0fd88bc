"""The files of a healthy partition: segments, indexes, snapshots, leader epochs."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

import kafkascan as ks
from tests.support.logs import ABORT, COMMIT, TRANSACTIONAL, marker
from tests.support.records import RecordV2, batch_of

NOW = time.time_ns() // 1_000_000


@dataclass
class HealthyPartition:
    """
    Three segments of two producers, one of which has transactions.

    Every batch has three records of 100 bytes; `batches` may be changed before `write`.
    """

    folder: Path
    segments: int = 3
    batches: list[list[bytes]] = field(default_factory=list)
    offset: int = 0
    sequences: dict[int, int] = field(default_factory=dict)
    first_offset: int = field(init=False)

    def __post_init__(self) -> None:
        self.first_offset = self.offset
        for number in range(self.segments):
            self.batches.append([])
            for _ in range(4):
                self.data(7)
            self.data(8, transactional=True)
            self.end(8, COMMIT)
            self.data(8, transactional=True)
            self.data(-1)
            self.end(8, ABORT if number != 1 else COMMIT)

    def _fields(self, producer_id: int) -> dict[str, int]:
        time_ms = NOW - 3_600_000 + self.offset - self.first_offset
        return {
            "base_offset": self.offset,
            "partition_leader_epoch": len(self.batches),
            "base_timestamp": time_ms,
            "max_timestamp": time_ms + 2,
            "producer_id": producer_id,
            "producer_epoch": 0 if producer_id >= 0 else -1,
        }

    def data(self, producer_id: int, *, transactional: bool = False, **fields: int) -> None:
        records = [
            RecordV2(key=b"k", value=b"v" * 100, offset_delta=n, timestamp_delta=n)
            for n in range(3)
        ]
        sequence = self.sequences.get(producer_id, 0) if producer_id >= 0 else -1
        self.sequences[producer_id] = sequence + 3
        defaults = self._fields(producer_id) | {
            "base_sequence": sequence,
            "attributes": TRANSACTIONAL if transactional else 0,
        }
        self.batches[-1].append(batch_of(records, **(defaults | fields)))
        self.offset += 3

    def end(self, producer_id: int, kind: int) -> None:
        fields = self._fields(producer_id)
        fields["max_timestamp"] = fields["base_timestamp"]
        self.batches[-1].append(marker(kind, **fields))
        self.offset += 1

    def write(self) -> HealthyPartition:
        """Write all files, as Kafka's recovery does."""
        self.folder.mkdir(parents=True, exist_ok=True)
        known = None
        epochs: list[ks.broker_state.LeaderEpoch] = []
        for number in range(len(self.batches)):
            path = self.log(number)
            path.write_bytes(b"".join(self.batches[number]))
            batches = ks.scan_batches(path).batches
            base_offset = int(path.stem)
            for kind, build in (
                ("index", ks.build_offset_index),
                ("timeindex", ks.build_time_index),
            ):
                entries = build(batches, base_offset=base_offset, interval_bytes=200)
                ks.write_index(path.with_suffix(f".{kind}"), entries)
            aborted = ks.broker_state.build_transaction_index(path, batches, prior=known)
            if len(aborted):
                ks.write_index(path.with_suffix(".txnindex"), aborted)
            if known is not None:
                ks.broker_state.write_producer_snapshot(path.with_suffix(".snapshot"), known)
            known = ks.broker_state.build_producer_snapshot(path, batches, prior=known)
            epochs = ks.broker_state.build_leader_epochs(batches, prior=epochs)
        assert known is not None
        ks.broker_state.write_producer_snapshot(self.folder / f"{self.offset:020}.snapshot", known)
        ks.broker_state.write_leader_epochs(self.folder / "leader-epoch-checkpoint", epochs)
        metadata = ks.broker_state.PartitionMetadata(0, "Zn3Jq2xNTNuzVmYs3YqX3w")
        ks.broker_state.write_partition_metadata(self.folder / "partition.metadata", metadata)
        return self

    def log(self, number: int) -> Path:
        base_offset = int.from_bytes(self.batches[number][0][:8], "big")
        return self.folder / f"{base_offset:020}.log"
