"""Analysis of logs: transactions, producers, counts, differences, codec advice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkascan.format.lazy_names import attach

if TYPE_CHECKING:
    from kafkascan.analysis.codec_advice import (
        Advice as Advice,
        CodecTrial as CodecTrial,
        SampledGroup as SampledGroup,
        advise as advise,
    )
    from kafkascan.analysis.diff import (
        LogDiff as LogDiff,
        PartitionDiff as PartitionDiff,
        diff_logs as diff_logs,
    )
    from kafkascan.analysis.diff_ranges import (
        DiffKind as DiffKind,
        DiffRange as DiffRange,
        OffsetShift as OffsetShift,
        RangeLocation as RangeLocation,
    )
    from kafkascan.analysis.fingerprints import (
        FINGERPRINT as FINGERPRINT,
        FingerprintFileError as FingerprintFileError,
        FingerprintRows as FingerprintRows,
        Fingerprints as Fingerprints,
        LogFingerprints as LogFingerprints,
        fingerprint_batches as fingerprint_batches,
        read_fingerprints as read_fingerprints,
    )
    from kafkascan.analysis.producer_census import (
        PRODUCER_COUNTS as PRODUCER_COUNTS,
        ProducerCensus as ProducerCensus,
        read_producer_state as read_producer_state,
        read_producers as read_producers,
    )
    from kafkascan.analysis.record_counts import (
        RecordCounts as RecordCounts,
        count_records as count_records,
    )
    from kafkascan.analysis.schema_usage import (
        read_schema_usage as read_schema_usage,
    )
    from kafkascan.analysis.transaction_contradictions import (
        find_contradictions as find_contradictions,
        lasting_contradictions as lasting_contradictions,
    )
    from kafkascan.analysis.transactions import (
        Transactions as Transactions,
        read_transactions as read_transactions,
    )
else:
    __getattr__, __dir__, __all__ = attach(
        __name__,
        names={
            "codec_advice": ["Advice", "CodecTrial", "SampledGroup", "advise"],
            "diff": ["LogDiff", "PartitionDiff", "diff_logs"],
            "diff_ranges": ["DiffKind", "DiffRange", "OffsetShift", "RangeLocation"],
            "fingerprints": [
                "FINGERPRINT",
                "FingerprintFileError",
                "Fingerprints",
                "LogFingerprints",
                "fingerprint_batches",
                "read_fingerprints",
                "FingerprintRows",
            ],
            "producer_census": [
                "PRODUCER_COUNTS",
                "ProducerCensus",
                "read_producer_state",
                "read_producers",
            ],
            "record_counts": ["RecordCounts", "count_records"],
            "schema_usage": ["read_schema_usage"],
            "transaction_contradictions": ["find_contradictions", "lasting_contradictions"],
            "transactions": ["Transactions", "read_transactions"],
        },
    )
