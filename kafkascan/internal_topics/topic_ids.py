"""Names of topics by their ids, from what a data dir knows."""

from __future__ import annotations

import base64
import uuid

from kafkascan.format.errors import KafkaScanError
from kafkascan.logs.log_dir import LogDir


def topic_names(log_dir: LogDir) -> dict[uuid.UUID, str]:
    """Return the names of the topics that have a partition in a data dir (KIP-516)."""
    names: dict[uuid.UUID, str] = {}
    for partition in log_dir.partitions:
        if partition.topic is None or not partition.is_log:
            continue
        try:
            text = partition.topic_id
        except (KafkaScanError, OSError):
            continue  # an audit reports the file
        if text is not None:
            names[uuid_of(text)] = partition.topic
    return names


def uuid_of(text: str) -> uuid.UUID:
    """Return the id of a text that ``Uuid.toString`` returned."""
    return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=="))
