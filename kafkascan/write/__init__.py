"""Write path: columns of records to batches to the files of a partition."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkascan.format.lazy_names import attach

if TYPE_CHECKING:
    from kafkascan.write.batch_builder import (
        BatchBuilder as BatchBuilder,
        BytesLike as BytesLike,
        HeadersLike as HeadersLike,
        RecordsInfo as RecordsInfo,
    )
    from kafkascan.write.batch_planning import (
        BatchFields as BatchFields,
        build_batches as build_batches,
        iter_built_batches as iter_built_batches,
    )
    from kafkascan.write.record_columns import (
        RecordInput as RecordInput,
    )
    from kafkascan.write.segment_writer import (
        SegmentWriter as SegmentWriter,
    )
    from kafkascan.write.validation import (
        Origin as Origin,
        validate_batches as validate_batches,
    )
else:
    __getattr__, __dir__, __all__ = attach(
        __name__,
        names={
            "record_columns": ["RecordInput"],
            "batch_builder": ["BatchBuilder", "BytesLike", "HeadersLike", "RecordsInfo"],
            "batch_planning": ["build_batches", "iter_built_batches", "BatchFields"],
            "segment_writer": ["SegmentWriter"],
            "validation": ["validate_batches", "Origin"],
        },
    )
