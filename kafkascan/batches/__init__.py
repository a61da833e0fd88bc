"""Batch headers: scan them into a table, verify checksums, search damaged bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkascan.format.lazy_names import attach

if TYPE_CHECKING:
    from kafkascan.batches.batch_schemas import (
        ROLLUP_KEYS as ROLLUP_KEYS,
    )
    from kafkascan.batches.columns import (
        COLUMN_NAMES as COLUMN_NAMES,
        BatchTable as BatchTable,
        as_datetime64 as as_datetime64,
        column as column,
        compression_type as compression_type,
        delete_horizon_ms as delete_horizon_ms,
        first_timestamp as first_timestamp,
        is_control as is_control,
        is_transactional as is_transactional,
        last_offset as last_offset,
        last_sequence as last_sequence,
        next_offset as next_offset,
        select_offsets as select_offsets,
        select_times as select_times,
        size_in_bytes as size_in_bytes,
        timestamp_type as timestamp_type,
    )
    from kafkascan.batches.resyncing.ranges import (
        Gap as Gap,
        KeptRange as KeptRange,
    )
    from kafkascan.batches.rollup import (
        BatchRollup as BatchRollup,
    )
    from kafkascan.batches.scan import (
        BatchIterator as BatchIterator,
        BatchScan as BatchScan,
        OnCorrupt as OnCorrupt,
        iter_batches as iter_batches,
        scan_batches as scan_batches,
    )
    from kafkascan.batches.summary import (
        BatchSummary as BatchSummary,
        summarize as summarize,
    )
    from kafkascan.batches.verify import (
        verify_crcs as verify_crcs,
    )
else:
    __getattr__, __dir__, __all__ = attach(
        __name__,
        names={
            "columns": [
                "COLUMN_NAMES",
                "as_datetime64",
                "column",
                "compression_type",
                "delete_horizon_ms",
                "first_timestamp",
                "is_control",
                "is_transactional",
                "last_offset",
                "last_sequence",
                "next_offset",
                "select_offsets",
                "select_times",
                "size_in_bytes",
                "timestamp_type",
                "BatchTable",
            ],
            "resyncing.ranges": ["Gap", "KeptRange"],
            "rollup": ["BatchRollup"],
            "batch_schemas": ["ROLLUP_KEYS"],
            "scan": ["BatchIterator", "BatchScan", "iter_batches", "scan_batches", "OnCorrupt"],
            "summary": ["BatchSummary", "summarize"],
            "verify": ["verify_crcs"],
        },
    )
