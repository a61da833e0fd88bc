"""Segments in remote storage as partitions and segments, without a broker (KIP-405)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkascan.format.lazy_names import attach

if TYPE_CHECKING:
    from kafkascan.tiered.data_keys import (
        KeyPairs as KeyPairs,
    )
    from kafkascan.tiered.joined_logs import (
        JoinedLogs as JoinedLogs,
    )
    from kafkascan.tiered.tier_errors import (
        CorruptObjectError as CorruptObjectError,
        MissingKeyError as MissingKeyError,
        UnknownLayoutError as UnknownLayoutError,
    )
    from kafkascan.tiered.tier_files import (
        TierFile as TierFile,
    )
    from kafkascan.tiered.tier_listing import (
        TieredLogs as TieredLogs,
        TopicSize as TopicSize,
        open_tiered as open_tiered,
    )
    from kafkascan.tiered.tier_segments import (
        TierProblem as TierProblem,
        TierSegment as TierSegment,
    )
else:
    __getattr__, __dir__, __all__ = attach(
        __name__,
        names={
            "tier_files": ["TierFile"],
            "data_keys": ["KeyPairs"],
            "joined_logs": ["JoinedLogs"],
            "tier_errors": ["CorruptObjectError", "MissingKeyError", "UnknownLayoutError"],
            "tier_listing": ["TieredLogs", "open_tiered", "TopicSize"],
            "tier_segments": ["TierProblem", "TierSegment"],
        },
    )
