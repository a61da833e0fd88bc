"""Kafka's own messages as columns of Arrow, by the million: decoding alone, and with reading."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import kafkascan as ks
from kafkascan.format.schemas.metadata_messages import METADATA_RECORDS
from kafkascan.internal_topics import decode_coordinator_columns, decode_framed_columns
from kafkascan.internal_topics.topic_messages import COORDINATOR_RECORDS

from . import corpora
from .scan import best_of

_GOLDEN = Path(__file__).parents[2] / "tests" / "golden"
_RUNS = ("kafka-4.4.0", "kafka-4.4.0-tiered", "kafka-4.1.1", "kafka-3.9.1")
COLUMNS = ("offset", "timestamp", "key", "value")
COUNT = 1_000_000


class Kind(NamedTuple):
    """A type of message: its topic, and the type's number in the key or value."""

    topic: str
    number: int
    is_framed: bool


KINDS = {
    "OffsetCommit": Kind("__consumer_offsets", 1, is_framed=False),
    "TransactionLog": Kind("__transaction_state", 0, is_framed=False),
    "Partition": Kind("__cluster_metadata", 3, is_framed=True),
    "PartitionChange": Kind("__cluster_metadata", 5, is_framed=True),
}


def _number(kind: Kind, key: bytes | None, value: bytes | None) -> int:
    if not kind.is_framed:
        return int.from_bytes(key[:2], "big") if key and value else -1
    # Version of the frame, number and version of the message, each as a varint.
    return value[1] if value else -1


def originals(kind: Kind) -> list[tuple[bytes | None, bytes]]:
    """Return the messages of a type that brokers wrote, in the golden files."""
    found = []
    for run in _RUNS:
        for log in sorted((_GOLDEN / run / "data").glob(f"{kind.topic}-*/*.log")):
            records = ks.read_records(log)
            for key, value in zip(records.items("key"), records.items("value"), strict=True):
                if _number(kind, key, value) == kind.number:
                    found.append((key, value))
    return found


def segment(name: str) -> Path:
    """Return a segment with a million messages of a type, each as a broker wrote it."""
    path = corpora.FOLDER / f"messages-{name}-{COUNT}" / "00000000000000000000.log"
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    messages = originals(KINDS[name])
    chosen = np.random.default_rng(3).integers(0, len(messages), COUNT).tolist()
    part = path.with_suffix(".part")
    part.write_bytes(
        ks.build_batches(
            timestamp=1_714_000_000_000 + np.arange(COUNT),
            key=[messages[one][0] for one in chosen],
            value=[messages[one][1] for one in chosen],
        )
    )
    part.rename(path)
    return path


def decoder(name: str) -> Callable[[Any], Any]:
    """Return what decodes a table of records of a type."""
    kind = KINDS[name]
    if kind.is_framed:
        return lambda records: decode_framed_columns(METADATA_RECORDS, records)
    schemas: Mapping[int, Any] = COORDINATOR_RECORDS[kind.topic]
    return lambda records: decode_coordinator_columns(schemas, records)


class MessageColumns:
    """Millions of messages a second."""

    param_names = ("message",)
    params = tuple(KINDS)

    def setup_cache(self) -> None:
        for name in self.params:
            segment(name)

    def setup(self, name: str) -> None:
        self.path = segment(name)
        self.decode = decoder(name)
        self.records = ks.read_records(self.path, columns=COLUMNS)

    def track_decode(self, name: str) -> float:
        """Of records in memory."""
        return COUNT / best_of(lambda: self.decode(self.records)) / 1e6

    def track_read_and_decode(self, name: str) -> float:
        """From the file."""
        return COUNT / best_of(self._read_and_decode) / 1e6

    def _read_and_decode(self) -> object:
        return self.decode(ks.read_records(self.path, columns=COLUMNS))

    track_decode.unit = track_read_and_decode.unit = "M messages/s"
