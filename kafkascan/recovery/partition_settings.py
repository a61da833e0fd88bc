"""Settings with which a broker loads each partition."""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path

from kafkascan.broker_state.checkpoints import LOG_START_CHECKPOINT, RECOVERY_POINT_CHECKPOINT
from kafkascan.broker_state.index_schemas import DEFAULT_INTERVAL_BYTES
from kafkascan.broker_state.offset_checkpoints import read_offsets
from kafkascan.broker_state.server_properties import ServerProperties
from kafkascan.io.folders import DiskFolder
from kafkascan.logs.log_dir import PartitionDir
from kafkascan.logs.metadata_log import ClusterMetadata, read_cluster_metadata
from kafkascan.recovery.loading.log_loader import LoadSettings


def read_metadata(folders: list[Path]) -> ClusterMetadata:
    """Read the metadata log, which is in one of a broker's directories; empty if in none."""
    for folder in folders:
        found = read_cluster_metadata(folder)
        if found.names or found.broker_epoch is not None:
            return found
    return ClusterMetadata()


@dataclass(frozen=True)
class PartitionSettings:
    """
    Settings of partitions: arguments, then topics' own, then those of the broker.

    A broker loads logs before it applies settings of brokers that were changed while it ran
    (dynamic ones), so those are not used.

    Attributes
    ----------
    base : LoadSettings
        Settings that are the same for all partitions.
    metadata : ClusterMetadata
    properties : ServerProperties or None
    recovery_point, log_start_offset, interval_bytes : int or None
        For all logs; None for what the data directories contain.
    broker_interval_bytes : int or None
        For topics without a setting of their own.
    tiered_topics : collection of str or None
    """

    base: LoadSettings
    metadata: ClusterMetadata
    properties: ServerProperties | None
    recovery_point: int | None = None
    log_start_offset: int | None = None
    interval_bytes: int | None = None
    broker_interval_bytes: int | None = None
    tiered_topics: Collection[str] | None = None

    def of_partitions(
        self, partitions: list[PartitionDir], data_dir: Path | None
    ) -> list[LoadSettings]:
        """
        Return the settings of partitions in a data directory.

        Raises
        ------
        CorruptCheckpointError
        """
        points, starts = dict[tuple[str, int], int](), dict[tuple[str, int], int]()
        if data_dir is not None:
            folder = DiskFolder(data_dir)
            points = read_offsets(folder, RECOVERY_POINT_CHECKPOINT)
            starts = read_offsets(folder, LOG_START_CHECKPOINT)
        keys = [(one.topic or "", one.partition or 0) for one in partitions]
        return [
            self._of(one, points.get(key, 0), starts.get(key))
            for one, key in zip(partitions, keys, strict=True)
        ]

    def _of(self, one: PartitionDir, recovery_point: int, log_start: int | None) -> LoadSettings:
        topic = one.topic or ""
        is_tiered = self._is_tiered(topic)
        is_guessed = is_tiered is None and _starts_before_segments(one, log_start)
        return replace(
            self.base,
            recovery_point=first_set(self.recovery_point, recovery_point),
            log_start_offset=first_set(self.log_start_offset, log_start, 0),
            is_tiered=bool(is_tiered) or is_guessed,
            is_tiering_guessed=is_guessed,
            interval_bytes=first_set(
                self.interval_bytes,
                self.metadata.own_config(topic).interval_bytes,
                self.broker_interval_bytes,
                None if self.properties is None else self.properties.interval_bytes,
                DEFAULT_INTERVAL_BYTES,
            ),
        )

    def _is_tiered(self, topic: str) -> bool | None:
        """Return whether a topic has remote storage; None if that is unknown."""
        if self.tiered_topics is not None:
            return topic in self.tiered_topics
        if self.properties is None:
            return self.metadata.is_tiered(topic)
        if not self.properties.has_remote_storage:
            return False
        return self.metadata.is_tiered(topic, is_compacted=self.properties.is_compacted)


def first_set(*values: int | None) -> int:
    """Return the first value that is set; the last one always is."""
    return next(value for value in values if value is not None)


def _starts_before_segments(one: PartitionDir, log_start: int | None) -> bool:
    """
    Return whether the checkpoint has a log start offset before the first local segment.

    Brokers write such offsets for tiered topics only (``checkpointLogStartOffsetsInDir``).
    Otherwise the entry is older than the deletion of segments. Then a snapshot too many stays,
    which the broker deletes when it loads the log.
    """
    if log_start is None:
        return False
    with contextlib.suppress(OSError):  # loading the partition reports it
        bases = [segment.name.base_offset for segment in one.log_segments]
        return bool(bases) and log_start < (bases[0] or 0)
    return False
