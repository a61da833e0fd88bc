"""Rewritten logs: convert, restamp and filter batches and whole logs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkascan.format.lazy_names import attach

if TYPE_CHECKING:
    from kafkascan.rewrite.conversion import (
        ConversionReport as ConversionReport,
        ConvertedRecords as ConvertedRecords,
        convert_records as convert_records,
    )
    from kafkascan.rewrite.filtering import (
        FilteredRecords as FilteredRecords,
        FilterReport as FilterReport,
        Keep as Keep,
        filter_records as filter_records,
    )
    from kafkascan.rewrite.log_rewrites import (
        convert_log as convert_log,
        restamp_log as restamp_log,
        scrub_log as scrub_log,
    )
    from kafkascan.rewrite.record_filters import (
        KeyFilter as KeyFilter,
        RecordFilter as RecordFilter,
        without_keys as without_keys,
        without_offsets as without_offsets,
    )
    from kafkascan.rewrite.restamping import (
        WritableBuffer as WritableBuffer,
        restamp as restamp,
        restamp_in_place as restamp_in_place,
    )
    from kafkascan.rewrite.retention import (
        BatchRetention as BatchRetention,
    )
    from kafkascan.rewrite.rewrite_reports import (
        LogRewrite as LogRewrite,
        RestampReport as RestampReport,
        SegmentRewrite as SegmentRewrite,
    )
else:
    __getattr__, __dir__, __all__ = attach(
        __name__,
        names={
            "conversion": ["ConversionReport", "ConvertedRecords", "convert_records"],
            "filtering": ["FilterReport", "FilteredRecords", "filter_records", "Keep"],
            "log_rewrites": [
                "convert_log",
                "restamp_log",
                "scrub_log",
            ],
            "record_filters": ["KeyFilter", "without_keys", "without_offsets", "RecordFilter"],
            "restamping": ["restamp", "restamp_in_place", "WritableBuffer"],
            "retention": ["BatchRetention"],
            "rewrite_reports": ["LogRewrite", "RestampReport", "SegmentRewrite"],
        },
    )
