"""Logs: partition directories, segments in offset order, lookups, record reading."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkascan.format.lazy_names import attach

if TYPE_CHECKING:
    from kafkascan.logs.log_chunks import (
        LogChunk as LogChunk,
        SegmentEnd as SegmentEnd,
    )
    from kafkascan.logs.log_dir import (
        LogDir as LogDir,
        PartitionDir as PartitionDir,
        SegmentKinds as SegmentKinds,
        select_segments as select_segments,
    )
    from kafkascan.logs.log_finding import (
        RemoteLogs as RemoteLogs,
        open_log_dir as open_log_dir,
        partition_dir as partition_dir,
    )
    from kafkascan.logs.log_follower import (
        FollowedBatches as FollowedBatches,
        LogFollower as LogFollower,
    )
    from kafkascan.logs.log_problems import (
        IncompleteLogError as IncompleteLogError,
    )
    from kafkascan.logs.log_table import (
        LogBatches as LogBatches,
        LogDirLike as LogDirLike,
        scan_log_dir as scan_log_dir,
    )
    from kafkascan.logs.lookups import (
        BatchLocation as BatchLocation,
        RecordLocation as RecordLocation,
        lookup_offset as lookup_offset,
        lookup_timestamp as lookup_timestamp,
    )
    from kafkascan.logs.opened_logs import (
        LogLike as LogLike,
        LogsLike as LogsLike,
        LogView as LogView,
        SegmentOverlap as SegmentOverlap,
        open_view as open_view,
    )
    from kafkascan.logs.read_committed import (
        CommittedView as CommittedView,
        read_committed_view as read_committed_view,
    )
    from kafkascan.logs.reading import (
        iter_records as iter_records,
        read_records as read_records,
    )
    from kafkascan.logs.record_scan import (
        Isolation as Isolation,
    )
    from kafkascan.logs.segment import (
        SegmentFile as SegmentFile,
        open_segment as open_segment,
    )
    from kafkascan.logs.topic_records import (
        AsOf as AsOf,
    )
else:
    __getattr__, __dir__, __all__ = attach(
        __name__,
        names={
            "log_chunks": ["LogChunk", "SegmentEnd"],
            "log_dir": ["LogDir", "PartitionDir", "SegmentKinds", "select_segments"],
            "log_finding": ["open_log_dir", "partition_dir", "RemoteLogs"],
            "log_follower": ["FollowedBatches", "LogFollower"],
            "log_problems": ["IncompleteLogError"],
            "log_table": ["LogBatches", "scan_log_dir", "LogDirLike"],
            "opened_logs": ["LogLike", "LogView", "LogsLike", "SegmentOverlap", "open_view"],
            "lookups": ["BatchLocation", "RecordLocation", "lookup_offset", "lookup_timestamp"],
            "read_committed": ["CommittedView", "read_committed_view"],
            "topic_records": ["AsOf"],
            "reading": ["iter_records", "read_records"],
            "record_scan": ["Isolation"],
            "segment": ["SegmentFile", "open_segment"],
        },
    )
