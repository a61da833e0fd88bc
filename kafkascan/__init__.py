"""Reads Apache Kafka's segment files directly: no broker, no JVM.

>>> import kafkascan as ks
>>> scan = ks.scan_batches("orders-0/00000000000000000000.log")
>>> big = scan.batches[ks.size_in_bytes(scan.batches) > 1_000_000]
>>> ks.verify_crcs("orders-0/00000000000000000000.log", big).all()

`scan_batches` reads batch headers into a NumPy structured array, the batch table; every
deeper operation takes ``(source, batches)``, so selecting is masking. `read_records` decodes
records, in columns; `build_batches` encodes them.
"""

from importlib.metadata import version as _version

from kafkascan.advice import Advice, CodecTrial, SampledGroup, advise
from kafkascan.audit import audit
from kafkascan.audit_findings import Audit, LogFinding
from kafkascan.batch_builder import BatchBuilder
from kafkascan.batch_columns import (
    COLUMN_NAMES,
    as_datetime64,
    column,
    compression_type,
    delete_horizon_ms,
    is_control,
    is_transactional,
    last_offset,
    last_sequence,
    next_offset,
    size_in_bytes,
    timestamp_type,
)
from kafkascan.batch_fates import BatchRetention
from kafkascan.batches import BatchIterator, BatchScan, iter_batches, scan_batches
from kafkascan.building import build_batches, iter_built_batches
from kafkascan.checkpoints import (
    CleanShutdown,
    LeaderEpoch,
    PartitionMetadata,
    read_clean_shutdown,
    read_leader_epochs,
    read_meta_properties,
    read_offset_checkpoint,
    read_partition_metadata,
    write_clean_shutdown,
    write_leader_epochs,
    write_meta_properties,
    write_offset_checkpoint,
    write_partition_metadata,
)
from kafkascan.checks import verify_crcs
from kafkascan.checksums import crc32c, crc32c_implementation, crc32c_implementations
from kafkascan.committed import CommittedView, read_committed_view
from kafkascan.control import (
    ControlRecord,
    ControlRecordType,
    decode_control_record,
    read_control_records,
)
from kafkascan.conversion import ConversionReport, ConvertedRecords, convert_records
from kafkascan.counts import RecordCounts, count_records
from kafkascan.epochs import build_leader_epochs
from kafkascan.errors import (
    ArchiveError,
    BatchTableError,
    ChecksumMismatchError,
    CorruptBatchError,
    CorruptCheckpointError,
    CorruptIndexError,
    CorruptLogError,
    CorruptSnapshotError,
    IndexOverflowError,
    InvalidRecordError,
    KafkaScanError,
    LogDirInUseError,
    RecordInputError,
    RewriteError,
    SourceInUseError,
    SourceReadError,
    UnsupportedCompressionError,
    UnsupportedMagicError,
)
from kafkascan.filtering import FilteredRecords, FilterReport, filter_records
from kafkascan.findings import BatchFinding, Finding, Severity
from kafkascan.fingerprints import (
    FINGERPRINT,
    FingerprintFileError,
    Fingerprints,
    LogFingerprints,
    fingerprint_batches,
    read_fingerprints,
)
from kafkascan.index_checks import check_index
from kafkascan.indexes import build_offset_index, build_time_index, read_index, write_index
from kafkascan.layout import (
    BATCH_DTYPE,
    OFFSET_INDEX_ENTRY,
    PRODUCER_ENTRY,
    TIME_INDEX_ENTRY,
    TRANSACTION_INDEX_ENTRY,
    CompressionType,
    ScanEnd,
    TimestampType,
)
from kafkascan.log_chunks import LogChunk, SegmentEnd
from kafkascan.log_diff import DiffKind, DiffRange, LogDiff, PartitionDiff, Place, Shift, diff_logs
from kafkascan.log_dir import LogDir, PartitionDir, SegmentFile, open_log_dir, partition_dir
from kafkascan.log_rewrites import (
    RestampReport,
    convert_log,
    restamp_log,
    scrub_log,
    without_keys,
    without_offsets,
)
from kafkascan.log_table import LogBatches, scan_log_dir
from kafkascan.logs import Log
from kafkascan.lookups import BatchLocation, RecordLocation, lookup_offset, lookup_timestamp
from kafkascan.mending import Repair
from kafkascan.names import SegmentName, parse_segment_name
from kafkascan.producer_census import (
    PRODUCER_COUNTS,
    ProducerCensus,
    read_producer_state,
    read_producers,
)
from kafkascan.producers import (
    build_producer_snapshot,
    build_transaction_index,
    read_producer_snapshot,
    write_producer_snapshot,
)
from kafkascan.record_table import RECORD_COLUMN_NAMES, Record, RecordTable
from kafkascan.records import iter_records, read_records
from kafkascan.recovery import PartitionRecovery, Recovery, recover
from kafkascan.report import Report, build_report
from kafkascan.restamping import restamp, restamp_in_place
from kafkascan.resync import Gap
from kafkascan.rewrite_reports import LogRewrite, SegmentRewrite
from kafkascan.salvage import PartitionSalvage, Salvage, salvage
from kafkascan.salvaged_segments import Loss, Piece, SegmentSalvage
from kafkascan.segment import Segment, open_segment
from kafkascan.segment_writer import SegmentWriter
from kafkascan.selection import select_offsets, select_times
from kafkascan.sources import FileRange, Source
from kafkascan.staged_files import Action, Change
from kafkascan.staged_segments import SegmentReport
from kafkascan.summary import BatchSummary, summarize
from kafkascan.transaction_spans import Transactions, read_transactions
from kafkascan.transactions import TRANSACTION, TransactionState
from kafkascan.validation import validate_batches

__version__ = _version("kafkascan")

__all__ = [
    "BATCH_DTYPE",
    "COLUMN_NAMES",
    "FINGERPRINT",
    "OFFSET_INDEX_ENTRY",
    "PRODUCER_COUNTS",
    "PRODUCER_ENTRY",
    "RECORD_COLUMN_NAMES",
    "TIME_INDEX_ENTRY",
    "TRANSACTION",
    "TRANSACTION_INDEX_ENTRY",
    "Action",
    "Advice",
    "ArchiveError",
    "Audit",
    "BatchBuilder",
    "BatchFinding",
    "BatchIterator",
    "BatchLocation",
    "BatchRetention",
    "BatchScan",
    "BatchSummary",
    "BatchTableError",
    "Change",
    "ChecksumMismatchError",
    "CleanShutdown",
    "CodecTrial",
    "CommittedView",
    "CompressionType",
    "ControlRecord",
    "ControlRecordType",
    "ConversionReport",
    "ConvertedRecords",
    "CorruptBatchError",
    "CorruptCheckpointError",
    "CorruptIndexError",
    "CorruptLogError",
    "CorruptSnapshotError",
    "DiffKind",
    "DiffRange",
    "FileRange",
    "FilterReport",
    "FilteredRecords",
    "Finding",
    "FingerprintFileError",
    "Fingerprints",
    "Gap",
    "IndexOverflowError",
    "InvalidRecordError",
    "KafkaScanError",
    "LeaderEpoch",
    "Log",
    "LogBatches",
    "LogChunk",
    "LogDiff",
    "LogDir",
    "LogDirInUseError",
    "LogFinding",
    "LogFingerprints",
    "LogRewrite",
    "Loss",
    "PartitionDiff",
    "PartitionDir",
    "PartitionMetadata",
    "PartitionRecovery",
    "PartitionSalvage",
    "Piece",
    "Place",
    "ProducerCensus",
    "Record",
    "RecordCounts",
    "RecordInputError",
    "RecordLocation",
    "RecordTable",
    "Recovery",
    "Repair",
    "Report",
    "RestampReport",
    "RewriteError",
    "Salvage",
    "SampledGroup",
    "ScanEnd",
    "Segment",
    "SegmentEnd",
    "SegmentFile",
    "SegmentName",
    "SegmentReport",
    "SegmentRewrite",
    "SegmentSalvage",
    "SegmentWriter",
    "Severity",
    "Shift",
    "Source",
    "SourceInUseError",
    "SourceReadError",
    "TimestampType",
    "TransactionState",
    "Transactions",
    "UnsupportedCompressionError",
    "UnsupportedMagicError",
    "advise",
    "as_datetime64",
    "audit",
    "build_batches",
    "build_leader_epochs",
    "build_offset_index",
    "build_producer_snapshot",
    "build_report",
    "build_time_index",
    "build_transaction_index",
    "check_index",
    "column",
    "compression_type",
    "convert_log",
    "convert_records",
    "count_records",
    "crc32c",
    "crc32c_implementation",
    "crc32c_implementations",
    "decode_control_record",
    "delete_horizon_ms",
    "diff_logs",
    "filter_records",
    "fingerprint_batches",
    "is_control",
    "is_transactional",
    "iter_batches",
    "iter_built_batches",
    "iter_records",
    "last_offset",
    "last_sequence",
    "lookup_offset",
    "lookup_timestamp",
    "next_offset",
    "open_log_dir",
    "open_segment",
    "parse_segment_name",
    "partition_dir",
    "read_clean_shutdown",
    "read_committed_view",
    "read_control_records",
    "read_fingerprints",
    "read_index",
    "read_leader_epochs",
    "read_meta_properties",
    "read_offset_checkpoint",
    "read_partition_metadata",
    "read_producer_snapshot",
    "read_producer_state",
    "read_producers",
    "read_records",
    "read_transactions",
    "recover",
    "restamp",
    "restamp_in_place",
    "restamp_log",
    "salvage",
    "scan_batches",
    "scan_log_dir",
    "scrub_log",
    "select_offsets",
    "select_times",
    "size_in_bytes",
    "summarize",
    "timestamp_type",
    "validate_batches",
    "verify_crcs",
    "without_keys",
    "without_offsets",
    "write_clean_shutdown",
    "write_index",
    "write_leader_epochs",
    "write_meta_properties",
    "write_offset_checkpoint",
    "write_partition_metadata",
    "write_producer_snapshot",
]
