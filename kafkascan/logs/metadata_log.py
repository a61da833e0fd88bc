"""Read broker epochs and topic settings from the metadata log of a data dir (KIP-631)."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from kafkascan.batches.scan import scan_batches
from kafkascan.broker_state.checkpoints import META_PROPERTIES, read_meta_properties
from kafkascan.format.errors import FileGoneError, KafkaScanError
from kafkascan.format.file_names import (
    GROUPS_TOPIC,
    METADATA_TOPIC,
    REMOTE_TOPIC,
    SHARE_TOPIC,
    TRANSACTIONS_TOPIC,
)
from kafkascan.format.schemas.log_messages import METADATA_RECORDS
from kafkascan.format.schemas.message_decoder import SchemaError, decode_prefix, read_message_frame
from kafkascan.logs.log_dir import PartitionDir, read_again_if_changed
from kafkascan.logs.log_finding import partition_dir
from kafkascan.logs.reading import iter_records
from kafkascan.logs.segment import SegmentFile

METADATA_PARTITION = f"{METADATA_TOPIC}-0"
# Their segments are never kept in remote storage.
_LOCAL_TOPICS = (
    METADATA_TOPIC,
    GROUPS_TOPIC,
    REMOTE_TOPIC,
    SHARE_TOPIC,
    TRANSACTIONS_TOPIC,
)

_READ_RECORDS = {"RegisterBrokerRecord", "TopicRecord", "ConfigRecord", "RemoveTopicRecord"}
_SCHEMAS = {code: one for code, one in METADATA_RECORDS.items() if one.name in _READ_RECORDS}
_OF_TOPIC, _OF_BROKER = 2, 4
_LARGEST = 2**31 - 1


def _number(value: str | None) -> int | None:
    if value is None or not value.isdecimal() or len(value) > len(str(_LARGEST)):
        return None
    return int(value) if int(value) <= _LARGEST else None


def _boolean(value: str | None) -> bool | None:
    """Read a boolean as ``ConfigDef.parseType`` does."""
    return None if value is None else {"true": True, "false": False}.get(value.strip().lower())


def _is_compacted(value: str | None) -> bool | None:
    return None if value is None else "compact" in (one.strip() for one in value.split(","))


def _setting(parse: Callable[[str | None], Any], topic: str, broker: str | None) -> Any:
    """Return a field of `TopicConfig`, with the names that Kafka has for it."""
    return field(default=None, metadata={"parse": parse, "topic": topic, "broker": broker})


@dataclass(frozen=True)
class TopicConfig:
    """
    Settings of a topic that recovery and audits use; None for settings without a value.

    A new setting is a new field here: the metadata log is read by the names that it declares.

    Attributes
    ----------
    interval_bytes : int or None
        ``index.interval.bytes``, or the brokers' ``log.index.interval.bytes``.
    max_message_bytes : int or None
        ``max.message.bytes``, or the brokers' ``message.max.bytes``.
    is_compacted : bool or None
        Whether ``cleanup.policy``, or the brokers' ``log.cleanup.policy``, contains ``compact``.
    has_remote_storage : bool or None
        ``remote.storage.enable``, for which brokers have no default.
    """

    interval_bytes: int | None = _setting(
        _number, "index.interval.bytes", "log.index.interval.bytes"
    )
    max_message_bytes: int | None = _setting(_number, "max.message.bytes", "message.max.bytes")
    is_compacted: bool | None = _setting(_is_compacted, "cleanup.policy", "log.cleanup.policy")
    has_remote_storage: bool | None = _setting(_boolean, "remote.storage.enable", None)


_FIELDS = {
    resource: {one.metadata[names]: one for one in fields(TopicConfig)}
    for resource, names in ((_OF_TOPIC, "topic"), (_OF_BROKER, "broker"))
}


@dataclass
class ClusterMetadata:
    """
    Contents of the metadata log, as of its end.

    Attributes
    ----------
    broker_epoch : int or None
        Epoch of the last registration of the data dir's broker (KIP-966).
    names : set of str
        All topics.
    topics : dict of str to TopicConfig
        Settings of the topics that have their own.
    defaults : TopicConfig
        Settings of all brokers that were changed while they ran; those in the brokers' files
        are not known.
    """

    broker_epoch: int | None = None
    names: set[str] = field(default_factory=set)
    topics: dict[str, TopicConfig] = field(default_factory=dict)
    defaults: TopicConfig = TopicConfig()

    def own_config(self, topic: str) -> TopicConfig:
        """Return the settings that a topic has itself."""
        return self.topics.get(topic, TopicConfig())

    def config_of(self, topic: str) -> TopicConfig:
        """Return the settings of a topic: its own, and otherwise the brokers' defaults."""
        own = self.own_config(topic)
        known = {one.name: getattr(own, one.name) for one in fields(own)}
        return replace(
            self.defaults, **{name: value for name, value in known.items() if value is not None}
        )

    def is_tiered(self, topic: str, *, is_compacted: bool = False) -> bool | None:
        """
        Return whether a broker that starts has segments of a topic in remote storage.

        As ``UnifiedLog.isRemoteLogEnabled``.

        Parameters
        ----------
        topic : str
        is_compacted : bool, default False
            Whether the broker compacts topics that have no ``cleanup.policy``.

        Returns
        -------
        bool or None
            None if the metadata log does not contain the topic.
        """
        if topic not in self.names:
            return None
        own = self.own_config(topic)
        compacted = is_compacted if own.is_compacted is None else own.is_compacted
        return bool(own.has_remote_storage) and not compacted and topic not in _LOCAL_TOPICS


def read_cluster_metadata(data_dir: Path) -> ClusterMetadata:
    """
    Read the metadata log of a data dir.

    Parameters
    ----------
    data_dir : Path
        Contains ``meta.properties`` and the metadata log, which brokers keep in one of their
        data dirs.

    Returns
    -------
    ClusterMetadata
        Empty if the files are missing or cannot be read.
    """
    try:
        properties = read_meta_properties(data_dir / META_PROPERTIES)
        node_id = int(properties.get("node.id", properties.get("broker.id", "")))
        return read_metadata_log(partition_dir(data_dir / METADATA_PARTITION), node_id)
    except (KafkaScanError, OSError, ValueError):
        return ClusterMetadata()


def read_metadata_log(partition: PartitionDir, node_id: int | None = None) -> ClusterMetadata:
    """
    Read a metadata log.

    Parameters
    ----------
    partition : PartitionDir
    node_id : int, optional
        The broker whose epoch is read.

    Returns
    -------
    ClusterMetadata
        Of the records that can be read.

    Raises
    ------
    OSError
        If the folder cannot be read.
    """

    def read() -> ClusterMetadata:
        replay = _MetadataReplay(node_id)
        # The last snapshot contains the whole state; the log's own records come after it.
        for segment in partition.kraft_snapshots[-1:] + partition.log_segments:
            for message in _messages(segment):
                replay.apply(*message)
        return replay.metadata

    return read_again_if_changed(read)


class _MetadataReplay:
    """Applies the messages of a metadata log, one after the other."""

    def __init__(self, node_id: int | None) -> None:
        self.metadata = ClusterMetadata()
        self._node_id = node_id
        self._names: dict[uuid.UUID, str] = {}

    def apply(self, kind: str, message: dict[str, Any]) -> None:
        if kind == "RegisterBrokerRecord":
            if message["broker_id"] == self._node_id:
                self.metadata.broker_epoch = message["broker_epoch"]
        elif kind == "TopicRecord":
            self._names[message["topic_id"]] = message["name"]
            self.metadata.names.add(message["name"])
        elif kind == "RemoveTopicRecord":
            removed = self._names.pop(message["topic_id"], "")
            self.metadata.names.discard(removed)
            self.metadata.topics.pop(removed, None)
        else:
            self._configure(**message)

    def _configure(
        self, resource_type: int, resource_name: str, name: str, value: str | None
    ) -> None:
        setting = _FIELDS.get(resource_type, {}).get(name)
        if setting is None:
            return
        change = {setting.name: setting.metadata["parse"](value)}
        if resource_type == _OF_TOPIC:
            topics = self.metadata.topics
            topics[resource_name] = replace(topics.get(resource_name, TopicConfig()), **change)
        # A broker's setting without a name is that of all brokers.
        elif resource_name == "":
            self.metadata.defaults = replace(self.metadata.defaults, **change)


def _messages(segment: SegmentFile) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield names and fields of the messages that can be read."""
    try:
        source = segment.open()  # closed with the last view of it
        batches = scan_batches(source, on_corrupt="stop").batches
        for table in iter_records(source, batches, columns=("value",), on_damage=lambda _: None):
            for value in table.items("value"):
                if message := _message(value or b""):
                    yield message
    except FileGoneError:  # which state it had is in a newer snapshot
        raise
    except (KafkaScanError, OSError):
        return


def _message(value: bytes) -> tuple[str, dict[str, Any]] | None:
    """
    Return name and fields of a message; None if Kafka would refuse it, or it is another one.

    Garbage after a message is refused, as by Kafka's ``MetadataRecordSerde``. Of a newer version
    than the schema's, the fields that are known count.
    """
    try:
        code, version, start = read_message_frame(value)
        if code not in _SCHEMAS:
            return None
        schema = _SCHEMAS[code]
        fields, size, _ = decode_prefix(schema, value[start:], version)
    except SchemaError:
        return None
    is_newer = version > schema.newest
    return (schema.name, fields) if is_newer or start + size == len(value) else None
