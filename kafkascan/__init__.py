"""Read Apache Kafka's segment files directly: no broker, no JVM.

>>> import kafkascan as ks
>>> scan = ks.scan_batches("orders-0/00000000000000000000.log")
>>> big = scan.batches[ks.batches.size_in_bytes(scan.batches) > 1_000_000]
>>> ks.verify_crcs("orders-0/00000000000000000000.log", big).all()

`scan_batches` reads batch headers into a NumPy structured array, the batch table; every
deeper operation takes ``(source, batches)``, so selecting is masking. `read_records` decodes
records, in columns; `build_batches` encodes them.

Every function raises a TypeError for an argument of a wrong type, a ValueError for one that is out
of range, malformed or a closed `Source`, and an ImportError that names the extra to install if a
package is missing. "Raises" sections name the other errors.
"""

from typing import TYPE_CHECKING

from kafkascan.format.lazy_names import attach

if TYPE_CHECKING:
    __version__: str
    from kafkascan import (
        analysis as analysis,
        auditing as auditing,
        batches as batches,
        broker_state as broker_state,
        format as format,
        internal_topics as internal_topics,
        io as io,
        logs as logs,
        polars as polars,
        records as records,
        recovery as recovery,
        report as report,
        rewrite as rewrite,
        schemas as schemas,
        spark as spark,
        tables as tables,
        tiered as tiered,
        write as write,
    )
    from kafkascan.analysis.codec_advice import (
        advise as advise,
    )
    from kafkascan.analysis.diff import (
        diff_logs as diff_logs,
    )
    from kafkascan.analysis.producer_census import (
        read_producers as read_producers,
    )
    from kafkascan.analysis.record_counts import (
        count_records as count_records,
    )
    from kafkascan.analysis.transactions import (
        read_transactions as read_transactions,
    )
    from kafkascan.auditing.batch_checks import (
        check_batches as check_batches,
    )
    from kafkascan.auditing.runner import (
        audit as audit,
    )
    from kafkascan.batches.scan import (
        BatchScan as BatchScan,
        iter_batches as iter_batches,
        scan_batches as scan_batches,
    )
    from kafkascan.batches.verify import (
        verify_crcs as verify_crcs,
    )
    from kafkascan.broker_state.index_checks import (
        check_index as check_index,
    )
    from kafkascan.broker_state.indexes import (
        build_offset_index as build_offset_index,
        build_time_index as build_time_index,
        read_index as read_index,
        write_index as write_index,
    )
    from kafkascan.format.checksums import (
        crc32c as crc32c,
        crc32c_implementation as crc32c_implementation,
    )
    from kafkascan.format.errors import (
        ChecksumMismatchError as ChecksumMismatchError,
        CorruptBatchError as CorruptBatchError,
        CorruptIndexError as CorruptIndexError,
        CorruptLogError as CorruptLogError,
        IndexOverflowError as IndexOverflowError,
        InvalidRecordError as InvalidRecordError,
        KafkaScanError as KafkaScanError,
        SourceInUseError as SourceInUseError,
        UnsupportedCompressionError as UnsupportedCompressionError,
        UnsupportedMagicError as UnsupportedMagicError,
    )
    from kafkascan.format.findings import (
        Severity as Severity,
    )
    from kafkascan.format.layout import (
        BATCH_DTYPE as BATCH_DTYPE,
        OFFSET_INDEX_ENTRY as OFFSET_INDEX_ENTRY,
        TIME_INDEX_ENTRY as TIME_INDEX_ENTRY,
        CompressionType as CompressionType,
        ScanEnd as ScanEnd,
        TimestampType as TimestampType,
    )
    from kafkascan.internal_topics.consumer_groups import (
        read_groups as read_groups,
    )
    from kafkascan.internal_topics.metadata.metadata_reading import (
        read_metadata as read_metadata,
    )
    from kafkascan.internal_topics.share_states import (
        read_share_state as read_share_state,
    )
    from kafkascan.internal_topics.transaction_states import (
        read_transaction_state as read_transaction_state,
    )
    from kafkascan.io.sources import (
        Source as Source,
    )
    from kafkascan.logs.log_finding import open_log_dir as open_log_dir
    from kafkascan.logs.log_problems import (
        IncompleteLogError as IncompleteLogError,
    )
    from kafkascan.logs.log_table import (
        LogBatches as LogBatches,
        scan_log_dir as scan_log_dir,
    )
    from kafkascan.logs.lookups import (
        lookup_offset as lookup_offset,
        lookup_timestamp as lookup_timestamp,
    )
    from kafkascan.logs.reading import (
        iter_records as iter_records,
        read_records as read_records,
    )
    from kafkascan.logs.segment import (
        open_segment as open_segment,
    )
    from kafkascan.records.record_table import (
        RecordTable as RecordTable,
    )
    from kafkascan.recovery.crash_recovery import (
        recover as recover,
    )
    from kafkascan.recovery.salvaging.log_salvage import (
        salvage as salvage,
    )
    from kafkascan.report.page import (
        build_report as build_report,
    )
    from kafkascan.rewrite.conversion import (
        convert_records as convert_records,
    )
    from kafkascan.rewrite.filtering import (
        filter_records as filter_records,
    )
    from kafkascan.rewrite.log_rewrites import (
        convert_log as convert_log,
        restamp_log as restamp_log,
        scrub_log as scrub_log,
    )
    from kafkascan.rewrite.record_filters import (
        without_keys as without_keys,
    )
    from kafkascan.rewrite.restamping import (
        restamp as restamp,
    )
    from kafkascan.write.batch_builder import (
        BatchBuilder as BatchBuilder,
    )
    from kafkascan.write.batch_planning import (
        build_batches as build_batches,
        iter_built_batches as iter_built_batches,
    )
    from kafkascan.write.segment_writer import (
        SegmentWriter as SegmentWriter,
    )
    from kafkascan.write.validation import (
        validate_batches as validate_batches,
    )
else:
    _lazy_name, __dir__, __all__ = attach(
        __name__,
        packages=[
            "analysis",
            "auditing",
            "batches",
            "broker_state",
            "format",
            "internal_topics",
            "io",
            "logs",
            "polars",
            "records",
            "recovery",
            "report",
            "rewrite",
            "schemas",
            "spark",
            "tables",
            "tiered",
            "write",
        ],
        names={
            "analysis.codec_advice": ["advise"],
            "analysis.diff": ["diff_logs"],
            "analysis.producer_census": ["read_producers"],
            "analysis.record_counts": ["count_records"],
            "analysis.transactions": ["read_transactions"],
            "auditing.batch_checks": ["check_batches"],
            "auditing.runner": ["audit"],
            "batches.scan": ["BatchScan", "iter_batches", "scan_batches"],
            "batches.verify": ["verify_crcs"],
            "broker_state.index_checks": ["check_index"],
            "broker_state.indexes": [
                "build_offset_index",
                "build_time_index",
                "read_index",
                "write_index",
            ],
            "format.checksums": ["crc32c", "crc32c_implementation"],
            "format.errors": [
                "ChecksumMismatchError",
                "CorruptBatchError",
                "CorruptIndexError",
                "CorruptLogError",
                "IndexOverflowError",
                "InvalidRecordError",
                "KafkaScanError",
                "SourceInUseError",
                "UnsupportedCompressionError",
                "UnsupportedMagicError",
            ],
            "format.findings": ["Severity"],
            "format.layout": [
                "BATCH_DTYPE",
                "CompressionType",
                "OFFSET_INDEX_ENTRY",
                "ScanEnd",
                "TIME_INDEX_ENTRY",
                "TimestampType",
            ],
            "internal_topics.consumer_groups": ["read_groups"],
            "internal_topics.metadata.metadata_reading": ["read_metadata"],
            "internal_topics.share_states": ["read_share_state"],
            "internal_topics.transaction_states": ["read_transaction_state"],
            "io.sources": ["Source"],
            "logs.log_finding": ["open_log_dir"],
            "logs.log_problems": ["IncompleteLogError"],
            "logs.log_table": ["LogBatches", "scan_log_dir"],
            "logs.lookups": ["lookup_offset", "lookup_timestamp"],
            "logs.reading": ["iter_records", "read_records"],
            "logs.segment": ["open_segment"],
            "records.record_table": ["RecordTable"],
            "recovery.crash_recovery": ["recover"],
            "recovery.salvaging.log_salvage": ["salvage"],
            "report.page": ["build_report"],
            "rewrite.conversion": ["convert_records"],
            "rewrite.filtering": ["filter_records"],
            "rewrite.log_rewrites": ["convert_log", "restamp_log", "scrub_log"],
            "rewrite.record_filters": ["without_keys"],
            "rewrite.restamping": ["restamp"],
            "write.batch_builder": ["BatchBuilder"],
            "write.batch_planning": ["build_batches", "iter_built_batches"],
            "write.segment_writer": ["SegmentWriter"],
            "write.validation": ["validate_batches"],
        },
    )

    def __getattr__(name: str) -> object:
        """Import a public name, or read the version, when it is used."""
        if name == "__version__":
            from importlib.metadata import version

            return version("kafkascan")
        return _lazy_name(name)
