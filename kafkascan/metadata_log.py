"""What the metadata log in a data dir says of its broker and of its logs (KIP-631)."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kafkascan.batches import scan_batches
from kafkascan.checkpoints import read_meta_properties
from kafkascan.errors import KafkaScanError
from kafkascan.log_dir import PartitionDir, SegmentFile, partition_dir
from kafkascan.records import iter_records
from kafkascan.schemas.decoder import SchemaError, decode_prefix
from kafkascan.schemas.metadata import CONFIG, REGISTER_BROKER, REMOVE_TOPIC, TOPIC

METADATA_PARTITION = "__cluster_metadata-0"

# The frame's version, the kind of record and its version: one byte each, as unsigned varints.
_FRAME_SIZE, _FRAME_VERSION = 3, 1
_SCHEMAS = {0: REGISTER_BROKER, 2: TOPIC, 4: CONFIG, 9: REMOVE_TOPIC}
_OF_TOPIC, _OF_BROKER = 2, 4
# By a topic's name of it, and by a broker's: where it is kept.
_TOPIC_NUMBERS = {"index.interval.bytes": "interval_bytes",
                  "max.message.bytes": "max_message_bytes"}  # fmt: skip
_BROKER_NUMBERS = {"log.index.interval.bytes": "default_interval_bytes",
                   "message.max.bytes": "default_max_message_bytes"}  # fmt: skip
_LARGEST = 2**31 - 1


@dataclass
class ClusterMetadata:
    """
    What recovery and audits want to know, as of the end of the metadata log.

    Attributes
    ----------
    broker_epoch : int or None
        That the data dir's broker was last registered with (KIP-966).
    interval_bytes : dict of str to int
        ``index.interval.bytes`` of the topics that have their own.
    default_interval_bytes : int or None
        That of others, if it was set while brokers ran; not what stands in their files.
    max_message_bytes : dict of str to int
        ``max.message.bytes`` of the topics that have their own.
    default_max_message_bytes : int or None
        ``message.max.bytes``, as `default_interval_bytes`.
    """

    broker_epoch: int | None = None
    interval_bytes: dict[str, int] = field(default_factory=dict)
    default_interval_bytes: int | None = None
    max_message_bytes: dict[str, int] = field(default_factory=dict)
    default_max_message_bytes: int | None = None


def read_cluster_metadata(data_dir: Path) -> ClusterMetadata:
    """
    Read what the metadata log says.

    Parameters
    ----------
    data_dir : Path
        With ``meta.properties``, and the metadata log, which brokers keep in one of their
        data dirs.

    Returns
    -------
    ClusterMetadata
        With nothing in it where they are not there, or cannot be read.
    """
    try:
        properties = read_meta_properties(data_dir / "meta.properties")
        node_id = int(properties.get("node.id", properties.get("broker.id", "")))
        return read_metadata_log(partition_dir(data_dir / METADATA_PARTITION), node_id)
    except (KafkaScanError, OSError, ValueError):
        return ClusterMetadata()


def read_metadata_log(partition: PartitionDir, node_id: int | None = None) -> ClusterMetadata:
    """
    Read what a metadata log says.

    Parameters
    ----------
    partition : PartitionDir
    node_id : int, optional
        The broker that is asked for.

    Returns
    -------
    ClusterMetadata
        As far as it can be read.

    Raises
    ------
    OSError
        If the folder cannot be read.
    """
    reading = _Reading(node_id)
    # Each snapshot holds all there was to know; what the log says besides is later.
    for segment in partition.kraft_snapshots[-1:] + partition.log_segments:
        for message in _messages(segment):
            reading.apply(*message)
    return reading.found


class _Reading:
    """The metadata on the way through the log."""

    def __init__(self, node_id: int | None) -> None:
        self.found = ClusterMetadata()
        self._node_id = node_id
        self._names: dict[uuid.UUID, str] = {}

    def apply(self, kind: str, message: dict[str, Any]) -> None:
        if kind == REGISTER_BROKER.name:
            if message["broker_id"] == self._node_id:
                self.found.broker_epoch = message["broker_epoch"]
        elif kind == TOPIC.name:
            self._names[message["topic_id"]] = message["name"]
        elif kind == REMOVE_TOPIC.name:
            name = self._names.pop(message["topic_id"], "")
            for kept in _TOPIC_NUMBERS.values():
                getattr(self.found, kept).pop(name, None)
        else:
            self._configure(**message)

    def _configure(
        self, resource_type: int, resource_name: str, name: str, value: str | None
    ) -> None:
        number = _number(value)
        if resource_type == _OF_TOPIC and name in _TOPIC_NUMBERS:
            of_topics = getattr(self.found, _TOPIC_NUMBERS[name])
            of_topics.pop(resource_name, None)
            if number is not None:
                of_topics[resource_name] = number
        # Without a name, it is that of all brokers.
        elif resource_type == _OF_BROKER and name in _BROKER_NUMBERS and resource_name == "":
            setattr(self.found, _BROKER_NUMBERS[name], number)


def _number(value: str | None) -> int | None:
    if value is None or not value.isdecimal() or len(value) > len(str(_LARGEST)):
        return None
    return int(value) if int(value) <= _LARGEST else None


def _messages(segment: SegmentFile) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the names and the fields of the messages that can be read."""
    try:
        source = segment.open()  # closed when nobody views it any more
        batches = scan_batches(source, on_corrupt="stop").batches
        for table in iter_records(source, batches, columns=("value",), on_damage=lambda _: None):
            for value in table.items("value"):
                if message := _message(value or b""):
                    yield message
    except (KafkaScanError, OSError):
        return


def _message(value: bytes) -> tuple[str, dict[str, Any]] | None:
    if len(value) < _FRAME_SIZE or value[0] != _FRAME_VERSION or value[1] not in _SCHEMAS:
        return None
    schema = _SCHEMAS[value[1]]
    try:
        return schema.name, decode_prefix(schema, value[_FRAME_SIZE:], value[2])[0]
    except SchemaError:
        return None
