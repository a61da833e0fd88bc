"""Format: errors, dtypes, enums, file names, findings, checksums, message schemas."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkascan.format.lazy_names import attach

if TYPE_CHECKING:
    from kafkascan.format.checksums import (
        crc32c as crc32c,
        crc32c_implementation as crc32c_implementation,
        crc32c_implementations as crc32c_implementations,
    )
    from kafkascan.format.errors import (
        ArchiveError as ArchiveError,
        BatchTableError as BatchTableError,
        ChecksumMismatchError as ChecksumMismatchError,
        CorruptBatchError as CorruptBatchError,
        CorruptCheckpointError as CorruptCheckpointError,
        CorruptIndexError as CorruptIndexError,
        CorruptLogError as CorruptLogError,
        CorruptSnapshotError as CorruptSnapshotError,
        DuplicateLogError as DuplicateLogError,
        FileChangedError as FileChangedError,
        FileGoneError as FileGoneError,
        IndexOverflowError as IndexOverflowError,
        InvalidRecordError as InvalidRecordError,
        KafkaScanError as KafkaScanError,
        LinkedFileError as LinkedFileError,
        LogDirInUseError as LogDirInUseError,
        NoLogsError as NoLogsError,
        NotALogError as NotALogError,
        RecordInputError as RecordInputError,
        RewriteError as RewriteError,
        SegmentWriterError as SegmentWriterError,
        SourceInUseError as SourceInUseError,
        SourceReadError as SourceReadError,
        UnfitBatchError as UnfitBatchError,
        UnknownColumnError as UnknownColumnError,
        UnknownOptionError as UnknownOptionError,
        UnsupportedCompressionError as UnsupportedCompressionError,
        UnsupportedMagicError as UnsupportedMagicError,
    )
    from kafkascan.format.file_names import (
        SegmentName as SegmentName,
        parse_segment_name as parse_segment_name,
    )
    from kafkascan.format.findings import (
        BatchFinding as BatchFinding,
        Finding as Finding,
        Severity as Severity,
    )
    from kafkascan.format.layout import (
        BATCH_DTYPE as BATCH_DTYPE,
        OFFSET_INDEX_ENTRY as OFFSET_INDEX_ENTRY,
        PRODUCER_ENTRY as PRODUCER_ENTRY,
        TIME_INDEX_ENTRY as TIME_INDEX_ENTRY,
        TRANSACTION_INDEX_ENTRY as TRANSACTION_INDEX_ENTRY,
        CompressionType as CompressionType,
        ScanEnd as ScanEnd,
        TimestampType as TimestampType,
    )
    from kafkascan.format.times import (
        TimeLike as TimeLike,
    )
else:
    __getattr__, __dir__, __all__ = attach(
        __name__,
        names={
            "times": ["TimeLike"],
            "checksums": ["crc32c", "crc32c_implementation", "crc32c_implementations"],
            "errors": [
                "ArchiveError",
                "BatchTableError",
                "ChecksumMismatchError",
                "CorruptBatchError",
                "CorruptCheckpointError",
                "CorruptIndexError",
                "CorruptLogError",
                "CorruptSnapshotError",
                "FileChangedError",
                "FileGoneError",
                "IndexOverflowError",
                "InvalidRecordError",
                "KafkaScanError",
                "DuplicateLogError",
                "LinkedFileError",
                "LogDirInUseError",
                "NoLogsError",
                "NotALogError",
                "RecordInputError",
                "RewriteError",
                "SegmentWriterError",
                "SourceInUseError",
                "SourceReadError",
                "UnfitBatchError",
                "UnknownColumnError",
                "UnknownOptionError",
                "UnsupportedCompressionError",
                "UnsupportedMagicError",
            ],
            "file_names": ["SegmentName", "parse_segment_name"],
            "findings": ["BatchFinding", "Finding", "Severity"],
            "layout": [
                "BATCH_DTYPE",
                "CompressionType",
                "OFFSET_INDEX_ENTRY",
                "PRODUCER_ENTRY",
                "ScanEnd",
                "TIME_INDEX_ENTRY",
                "TRANSACTION_INDEX_ENTRY",
                "TimestampType",
            ],
        },
    )
