"""Side files of a log: indexes, checkpoints, leader epochs, producer snapshots."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkascan.format.lazy_names import attach

if TYPE_CHECKING:
    from kafkascan.broker_state.checkpoints import (
        CleanShutdown as CleanShutdown,
        LeaderEpoch as LeaderEpoch,
        PartitionMetadata as PartitionMetadata,
        read_clean_shutdown as read_clean_shutdown,
        read_leader_epochs as read_leader_epochs,
        read_meta_properties as read_meta_properties,
        read_offset_checkpoint as read_offset_checkpoint,
        read_partition_metadata as read_partition_metadata,
        write_clean_shutdown as write_clean_shutdown,
        write_leader_epochs as write_leader_epochs,
        write_meta_properties as write_meta_properties,
        write_offset_checkpoint as write_offset_checkpoint,
        write_partition_metadata as write_partition_metadata,
    )
    from kafkascan.broker_state.index_checks import (
        check_index as check_index,
    )
    from kafkascan.broker_state.indexes import (
        IndexEntries as IndexEntries,
        build_offset_index as build_offset_index,
        build_time_index as build_time_index,
        read_index as read_index,
        write_index as write_index,
    )
    from kafkascan.broker_state.leader_epochs import (
        build_leader_epochs as build_leader_epochs,
    )
    from kafkascan.broker_state.markers import (
        TRANSACTION as TRANSACTION,
        TransactionState as TransactionState,
    )
    from kafkascan.broker_state.offset_checkpoints import (
        CheckpointWarning as CheckpointWarning,
    )
    from kafkascan.broker_state.producer_snapshots import (
        build_producer_snapshot as build_producer_snapshot,
        build_transaction_index as build_transaction_index,
        read_producer_snapshot as read_producer_snapshot,
        write_producer_snapshot as write_producer_snapshot,
    )
else:
    __getattr__, __dir__, __all__ = attach(
        __name__,
        names={
            "checkpoints": [
                "CleanShutdown",
                "LeaderEpoch",
                "PartitionMetadata",
                "read_clean_shutdown",
                "read_leader_epochs",
                "read_meta_properties",
                "read_offset_checkpoint",
                "read_partition_metadata",
                "write_clean_shutdown",
                "write_leader_epochs",
                "write_meta_properties",
                "write_offset_checkpoint",
                "write_partition_metadata",
            ],
            "index_checks": ["check_index"],
            "indexes": [
                "build_offset_index",
                "build_time_index",
                "read_index",
                "write_index",
                "IndexEntries",
            ],
            "leader_epochs": ["build_leader_epochs"],
            "markers": ["TRANSACTION", "TransactionState"],
            "offset_checkpoints": ["CheckpointWarning"],
            "producer_snapshots": [
                "build_producer_snapshot",
                "build_transaction_index",
                "read_producer_snapshot",
                "write_producer_snapshot",
            ],
        },
    )
