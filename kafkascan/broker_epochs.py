"""Which registration a broker had: what it says of itself when it shut down cleanly."""

from __future__ import annotations

import struct
from pathlib import Path

from kafkascan.batches import scan_batches
from kafkascan.checkpoints import read_meta_properties
from kafkascan.errors import KafkaScanError
from kafkascan.log_dir import partition_dir
from kafkascan.records import iter_records

METADATA_PARTITION = "__cluster_metadata-0"

# The frame's version, the kind of record and its version: one byte each, as unsigned varints.
_FRAME_VERSION, _REGISTER_BROKER = 1, 0
# RegisterBrokerRecord: broker, whether it migrates (since version 2), incarnation, epoch.
_OLD_REGISTRATION = struct.Struct(">i16xq")
_REGISTRATION = struct.Struct(">i?16xq")
_SINCE = 2


def find_broker_epoch(data_dir: Path) -> int | None:
    """
    Return the epoch that a data dir's broker was last registered with.

    Parameters
    ----------
    data_dir : Path
        With ``meta.properties``, and the metadata log, which brokers keep in one of their
        data dirs.

    Returns
    -------
    int or None
        None if they are not there, or do not say it (KIP-966).
    """
    try:
        properties = read_meta_properties(data_dir / "meta.properties")
        node_id = int(properties.get("node.id", properties.get("broker.id", "")))
        segments = partition_dir(data_dir / METADATA_PARTITION).segments
    except (KafkaScanError, OSError, ValueError):
        return None
    # Snapshots stand behind the log, and are older than it; the latest registration counts.
    snapshots = [one.path for one in segments if one.name.kind == "checkpoint"]
    logs = [one.path for one in segments if one.name.is_live]
    epochs = [epoch for path in snapshots + logs for epoch in _registrations(path, node_id)]
    return max(epochs, default=None)


def _registrations(path: Path, node_id: int) -> list[int]:
    found = []
    try:
        batches = scan_batches(path, on_corrupt="stop").batches
        for table in iter_records(path, batches, columns=("value",), on_damage=lambda _: None):
            for value in table.items("value"):
                broker, epoch = _registration(value or b"")
                if broker == node_id:
                    found.append(epoch)
    except (KafkaScanError, OSError):
        return found
    return found


def _registration(value: bytes) -> tuple[int | None, int]:
    if len(value) < 3 or value[0] != _FRAME_VERSION or value[1] != _REGISTER_BROKER:
        return None, -1
    layout = _REGISTRATION if value[2] >= _SINCE else _OLD_REGISTRATION
    if len(value) < 3 + layout.size:
        return None, -1
    fields = layout.unpack_from(value, 3)
    return fields[0], fields[-1]
