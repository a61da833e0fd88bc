"""Kafka's own topics: what their records say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkascan.format.lazy_names import attach

if TYPE_CHECKING:
    from kafkascan.internal_topics.consumer_groups import (
        Groups as Groups,
        read_groups as read_groups,
    )
    from kafkascan.internal_topics.metadata.metadata_image import (
        MetadataImage as MetadataImage,
    )
    from kafkascan.internal_topics.metadata.metadata_reading import (
        Metadata as Metadata,
        diff_metadata as diff_metadata,
        read_metadata as read_metadata,
    )
    from kafkascan.internal_topics.remote_segments import (
        RemoteSegments as RemoteSegments,
        read_remote_segments as read_remote_segments,
    )
    from kafkascan.internal_topics.share_states import (
        ShareState as ShareState,
        read_share_state as read_share_state,
    )
    from kafkascan.internal_topics.tier_comparison import (
        TierComparison as TierComparison,
        compare_remote_segments as compare_remote_segments,
    )
    from kafkascan.internal_topics.topic_messages import (
        COORDINATOR_RECORDS as COORDINATOR_RECORDS,
    )
    from kafkascan.internal_topics.topic_replay import (
        ReplayedLog as ReplayedLog,
        StoredRecord as StoredRecord,
    )
    from kafkascan.internal_topics.transaction_states import (
        TransactionStates as TransactionStates,
        read_transaction_state as read_transaction_state,
    )
else:
    __getattr__, __dir__, __all__ = attach(
        __name__,
        names={
            "consumer_groups": ["Groups", "read_groups"],
            "metadata.metadata_image": ["MetadataImage"],
            "metadata.metadata_reading": ["Metadata", "diff_metadata", "read_metadata"],
            "remote_segments": ["RemoteSegments", "read_remote_segments"],
            "tier_comparison": ["TierComparison", "compare_remote_segments"],
            "share_states": ["ShareState", "read_share_state"],
            "topic_messages": ["COORDINATOR_RECORDS"],
            "topic_replay": ["ReplayedLog", "StoredRecord"],
            "transaction_states": ["TransactionStates", "read_transaction_state"],
        },
    )
