"""Reads Apache Kafka's segment files directly: no broker, no JVM.

>>> import kafkascan as ks
>>> scan = ks.scan_batches("orders-0/00000000000000000000.log")
>>> big = scan.batches[ks.size_in_bytes(scan.batches) > 1_000_000]
>>> ks.verify_crcs("orders-0/00000000000000000000.log", big).all()

`scan_batches` reads batch headers into a NumPy structured array, the batch table; every
deeper operation takes ``(source, batches)``, so selecting is masking. `read_records` decodes
records, in columns.
"""

from importlib.metadata import version as _version

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
from kafkascan.batches import BatchIterator, BatchScan, iter_batches, scan_batches
from kafkascan.checks import verify_crcs
from kafkascan.checksums import crc32c, crc32c_implementation, crc32c_implementations
from kafkascan.control import (
    ControlRecord,
    ControlRecordType,
    decode_control_record,
    read_control_records,
)
from kafkascan.errors import (
    BatchTableError,
    ChecksumMismatchError,
    CorruptBatchError,
    CorruptIndexError,
    CorruptLogError,
    IndexOverflowError,
    InvalidRecordError,
    KafkaScanError,
    SourceInUseError,
    SourceReadError,
    UnsupportedCompressionError,
    UnsupportedMagicError,
)
from kafkascan.indexes import build_offset_index, build_time_index, read_index, write_index
from kafkascan.layout import (
    BATCH_DTYPE,
    OFFSET_INDEX_ENTRY,
    TIME_INDEX_ENTRY,
    CompressionType,
    ScanEnd,
    TimestampType,
)
from kafkascan.log_dir import LogDir, PartitionDir, SegmentFile, open_log_dir, partition_dir
from kafkascan.names import SegmentName, parse_segment_name
from kafkascan.record_table import RECORD_COLUMN_NAMES, Record, RecordTable
from kafkascan.records import iter_records, read_records
from kafkascan.segment import Segment, open_segment
from kafkascan.selection import select_offsets, select_times
from kafkascan.sources import Source
from kafkascan.summary import BatchSummary, summarize

__version__ = _version("kafkascan")

__all__ = [
    "BATCH_DTYPE",
    "COLUMN_NAMES",
    "OFFSET_INDEX_ENTRY",
    "RECORD_COLUMN_NAMES",
    "TIME_INDEX_ENTRY",
    "BatchIterator",
    "BatchScan",
    "BatchSummary",
    "BatchTableError",
    "ChecksumMismatchError",
    "CompressionType",
    "ControlRecord",
    "ControlRecordType",
    "CorruptBatchError",
    "CorruptIndexError",
    "CorruptLogError",
    "IndexOverflowError",
    "InvalidRecordError",
    "KafkaScanError",
    "LogDir",
    "PartitionDir",
    "Record",
    "RecordTable",
    "ScanEnd",
    "Segment",
    "SegmentFile",
    "SegmentName",
    "Source",
    "SourceInUseError",
    "SourceReadError",
    "TimestampType",
    "UnsupportedCompressionError",
    "UnsupportedMagicError",
    "as_datetime64",
    "build_offset_index",
    "build_time_index",
    "column",
    "compression_type",
    "crc32c",
    "crc32c_implementation",
    "crc32c_implementations",
    "decode_control_record",
    "delete_horizon_ms",
    "is_control",
    "is_transactional",
    "iter_batches",
    "iter_records",
    "last_offset",
    "last_sequence",
    "next_offset",
    "open_log_dir",
    "open_segment",
    "parse_segment_name",
    "partition_dir",
    "read_control_records",
    "read_index",
    "read_records",
    "scan_batches",
    "select_offsets",
    "select_times",
    "size_in_bytes",
    "summarize",
    "timestamp_type",
    "verify_crcs",
    "write_index",
]
