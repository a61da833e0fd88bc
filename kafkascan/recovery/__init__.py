"""Crash recovery and salvage of logs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkascan.format.lazy_names import attach

if TYPE_CHECKING:
    from kafkascan.recovery.crash_recovery import (
        recover as recover,
    )
    from kafkascan.recovery.loading.loaded_segment import (
        DiscardedRange as DiscardedRange,
        LoadFinding as LoadFinding,
        SegmentReport as SegmentReport,
    )
    from kafkascan.recovery.loading.planned_files import (
        Action as Action,
        Change as Change,
    )
    from kafkascan.recovery.recovery_results import (
        PartitionRecovery as PartitionRecovery,
        PartitionSalvage as PartitionSalvage,
        Recovery as Recovery,
        Salvage as Salvage,
    )
    from kafkascan.recovery.salvaging.foreign_ranges import (
        Doubtful as Doubtful,
        KeptRange as KeptRange,
    )
    from kafkascan.recovery.salvaging.header_repair import (
        FieldRepair as FieldRepair,
    )
    from kafkascan.recovery.salvaging.log_salvage import (
        salvage as salvage,
    )
    from kafkascan.recovery.salvaging.segment_salvage import (
        DuplicateRange as DuplicateRange,
        LostRange as LostRange,
        SegmentSalvage as SegmentSalvage,
    )
    from kafkascan.recovery.tier_restore import (
        PartitionRestore as PartitionRestore,
        Restore as Restore,
        restore as restore,
    )
else:
    __getattr__, __dir__, __all__ = attach(
        __name__,
        names={
            "crash_recovery": ["recover"],
            "loading.loaded_segment": ["DiscardedRange", "LoadFinding", "SegmentReport"],
            "loading.planned_files": ["Action", "Change"],
            "recovery_results": [
                "PartitionRecovery",
                "PartitionSalvage",
                "Recovery",
                "Salvage",
            ],
            "salvaging.header_repair": ["FieldRepair"],
            "salvaging.foreign_ranges": ["Doubtful", "KeptRange"],
            "salvaging.log_salvage": ["salvage"],
            "salvaging.segment_salvage": ["DuplicateRange", "LostRange", "SegmentSalvage"],
            "tier_restore": ["PartitionRestore", "Restore", "restore"],
        },
    )
