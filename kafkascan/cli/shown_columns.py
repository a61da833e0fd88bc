"""The columns of each command's rows: all of them, and those for which a table has room."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kafkascan.cli.inputs import SEGMENT_COLUMNS
from kafkascan.internal_topics.state_tables import COUNTS


@dataclass(frozen=True)
class ShownColumns:
    """
    The columns of a command's rows.

    Attributes
    ----------
    names : tuple of str
        All columns: of every format but ``table``, and of a table with ``--wide``.
    narrow : tuple of str
        Those of a table of about 100 characters.
    details : tuple of str
        Long texts that this table shows below their row.
    """

    names: tuple[str, ...]
    narrow: tuple[str, ...]
    details: tuple[str, ...] = ()

    def with_first(self, *names: str) -> ShownColumns:
        """Return the columns with others before them."""
        return replace(
            self, names=_unique(*names, *self.names), narrow=_unique(*names, *self.narrow)
        )

    def with_last(self, *names: str) -> ShownColumns:
        """Return the columns with others after them."""
        return replace(
            self, names=_unique(*self.names, *names), narrow=_unique(*self.narrow, *names)
        )


def _unique(*names: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


INFO = ShownColumns(
    (
        *SEGMENT_COLUMNS, "size", "batches", "records", "uncounted_batches", "first_offset",
        "last_offset", "first_timestamp", "max_timestamp", "codecs", "magics", "end",
        "trailing_bytes",
    ),
    (
        "topic", "partition", "segment", "size", "batches", "records", "first_offset",
        "last_offset", "codecs", "end",
    ),
)  # fmt: skip
VERIFY = ShownColumns(
    (
        *SEGMENT_COLUMNS, "size", "batches", "bad_checksums", "end", "valid_bytes",
        "trailing_bytes",
    ),
    (*SEGMENT_COLUMNS, "size", "batches", "bad_checksums", "end", "trailing_bytes"),
)  # fmt: skip
AUDIT = ShownColumns(
    (
        "severity", "symbol", "topic", "partition", "file", "position", "offset", "count",
        "message", "advice", "path",
    ),
    ("severity", "symbol", "topic", "partition", "file", "position", "offset", "count"),
    ("message", "advice"),
)  # fmt: skip
TXNS = ShownColumns(
    (
        "topic", "partition", "producer_id", "producer_epoch", "first_offset", "last_offset",
        "marker_offset", "last_stable_offset", "first_timestamp", "last_timestamp", "batches",
        "records", "size_in_bytes", "coordinator_epoch", "state", "age_ms", "age_at", "clock",
        "is_hanging", "is_empty", "command",
    ),
    (
        "topic", "partition", "producer_id", "state", "first_offset", "last_offset", "records",
        "age_ms", "is_hanging",
    ),
    ("command",),
)  # fmt: skip
PRODUCERS = ShownColumns(
    (
        "topic", "partition", "producer_id", "first_epoch", "producer_epoch", "last_sequence",
        "batches", "records", "size_in_bytes", "largest_batch", "first_offset", "last_offset",
        "first_timestamp", "last_timestamp", "transactional_batches", "markers", "codecs",
        "compressed_batches", "epoch_bumps", "wraps", "sequence_gaps", "missing_records",
        "first_gap", "duplicates", "first_duplicate", "fenced", "first_fenced", "forgotten",
        "spanning_batches", "span_ms_max", "mean_batch_size", "mean_span_ms",
        "compression_ratio", "sampled_batches",
    ),
    (
        "topic", "partition", "producer_id", "producer_epoch", "batches", "records",
        "codecs", "sequence_gaps", "duplicates",
    ),
)  # fmt: skip
COUNT = ShownColumns(
    (
        "topic", "partition", "segments", "batches", "start_offset", "end_offset",
        "last_stable_offset", "records", "uncounted_batches", "transactional_records",
        "aborted_records", "open_records", "committed_records", "control_records",
        "missing_offsets", "size_in_bytes", "is_exact",
    ),
    (
        "topic", "partition", "start_offset", "end_offset", "records", "committed_records",
        "aborted_records", "is_exact",
    ),
)  # fmt: skip
DIFF = ShownColumns(
    (
        "topic", "partition", "kind", "location", "left_first_offset", "left_last_offset",
        "right_first_offset", "right_last_offset", "left_batches", "right_batches",
        "left_records", "right_records", "left_epoch", "right_epoch", "is_difference",
    ),
    (
        "topic", "partition", "kind", "location", "left_first_offset", "left_last_offset",
        "right_first_offset", "right_last_offset",
    ),
)  # fmt: skip
ADVICE = ShownColumns(
    (
        "topic", "producer_id", "codec", "level", "batches", "records_bytes", "stored_bytes",
        "compressed_bytes", "ratio", "saving", "compress_mb_per_s", "decompress_mb_per_s",
        "total_batches", "total_bytes", "stored_codecs",
    ),
    (
        "topic", "codec", "level", "ratio", "saving", "compress_mb_per_s",
        "decompress_mb_per_s", "stored_codecs",
    ),
)  # fmt: skip

RECOVERY = ShownColumns(
    (
        "topic", "partition", "log_start_offset", "log_end_offset", "segments", "recovered",
        "truncated_bytes", "changes", "changes_made", "findings", "error",
    ),
    (
        "topic", "partition", "log_start_offset", "log_end_offset", "recovered",
        "truncated_bytes", "changes", "findings",
    ),
    ("error",),
)  # fmt: skip
_REWRITE = ("path", "target", "size", "new_size", "is_changed", "batches")
CONVERT = ShownColumns(
    (*_REWRITE, "copied", "recompressed", "converted", "dropped"),
    ("path", "size", "new_size", "batches", "copied", "recompressed", "converted", "dropped"),
)
RESTAMP = ShownColumns((*_REWRITE, "signed"), ("path", "size", "new_size", "batches", "signed"))
SCRUB = ShownColumns(
    (
        *_REWRITE, "copied", "rewritten", "emptied", "dropped", "records", "kept_records",
        "first_dropped_offset", "last_dropped_offset",
    ),
    ("path", "size", "new_size", "batches", "rewritten", "dropped", "records", "kept_records"),
)  # fmt: skip
SALVAGE = ShownColumns(
    (
        *SEGMENT_COLUMNS, "outcome", "symbol", "position", "size", "first_offset", "last_offset",
        "claimed_first_offset", "claimed_last_offset", "claimed_records", "zero_bytes", "reason",
    ),
    (*SEGMENT_COLUMNS, "outcome", "symbol", "position", "size", "first_offset", "last_offset"),
    ("reason",),
)  # fmt: skip
RESTORE = ShownColumns(
    (
        "topic", "topic_id", "partition", "segments", "size", "start_offset", "end_offset",
        "gaps", "rebuilt", "destination", "error",
    ),
    ("topic", "partition", "segments", "size", "start_offset", "end_offset", "gaps", "rebuilt"),
    ("error",),
)  # fmt: skip
BATCHES = ShownColumns(
    (
        "position", "base_offset", "last_offset", "records_count", "size_in_bytes", "magic",
        "compression_type", "max_timestamp", "timestamp_type", "producer_id", "producer_epoch",
        "base_sequence", "partition_leader_epoch", "is_transactional", "is_control",
    ),
    (
        "position", "base_offset", "last_offset", "records_count", "size_in_bytes",
        "compression_type", "max_timestamp", "producer_id",
    ),
)  # fmt: skip
INDEX_CHECK = ShownColumns(
    (*SEGMENT_COLUMNS, "file", "entries", "size", "errors", "warnings", "notes"),
    ("topic", "partition", "file", "entries", "size", "errors", "warnings", "notes"),
)
INDEX_BUILD = ShownColumns(
    (*SEGMENT_COLUMNS, "file", "entries", "size", "verdict"),
    ("topic", "partition", "file", "entries", "size", "verdict"),
)
OFFSET_LOOKUP = ("path", "position", "size_in_bytes", "base_offset", "last_offset")
TIME_LOOKUP = ("path", "position", "offset", "timestamp", "leader_epoch")

_FILE = ("topic", "partition", "segment", "path")
_WRITTEN = ShownColumns(
    (*_FILE, "output", "rows", "bytes", "damagedBatches", "error"),
    ("topic", "partition", "output", "rows", "bytes", "damagedBatches"),
    ("error",),
)
JOBS = {
    "verify": ShownColumns(
        (
            *_FILE, "size", "batches", "badChecksums", "endState", "validBytes", "trailingBytes",
            "lastOffset", "status", "error",
        ),
        ("path", "size", "batches", "badChecksums", "endState", "trailingBytes"),
        ("error",),
    ),
    "catalog": _WRITTEN,
    "export": _WRITTEN,
    "rebuild_indexes": ShownColumns(
        (*_FILE, "output", "entries", "crc32", "action", "error"),
        ("topic", "partition", "output", "entries", "action"),
        ("error",),
    ),
    "producer_stats": ShownColumns(
        (
            "topic", "partition", "producerId", "batches", "records", "bytes",
            "transactionalBatches", "firstEpoch", "lastEpoch", "firstOffset", "lastOffset",
            "minTimestampMs", "maxTimestampMs",
        ),
        (
            "topic", "partition", "producerId", "batches", "records", "bytes", "lastEpoch",
            "firstOffset", "lastOffset",
        ),
    ),
    "bad_timestamps": ShownColumns(
        (
            *_FILE, "batches", "lateBatches", "earlyBatches", "missingBatches", "maxTimestampMs",
            "firstBadPosition", "firstBadOffset",
        ),
        (
            "topic", "partition", "segment", "batches", "lateBatches", "earlyBatches",
            "missingBatches", "firstBadOffset",
        ),
    ),
}  # fmt: skip
"""The columns of the manifest of each Spark job, by its name in Python."""

_TEXTS = (
    "topic", "segment", "path", "target", "file", "end", "outcome", "symbol", "reason", "error",
    "verdict", "topic_id", "destination", "compression_type", "timestamp_type",
)  # fmt: skip
_TIMES = (
    "timestamp", "base_timestamp", "first_timestamp", "max_timestamp", "delete_horizon_ms",
)  # fmt: skip
_FLAGS = ("is_transactional", "is_control", "is_changed", "crc_is_valid")
COLUMN_KINDS = {
    **dict.fromkeys(_TEXTS, "string"),
    **dict.fromkeys(_TIMES, "time"),
    **dict.fromkeys(_FLAGS, "bool"),
    **dict.fromkeys(("codecs", "magics"), COUNTS),
    "partition": "int32",
}
"""Kinds of columns in Parquet, as in a `StateTable`; other columns of commands are ``int64``."""
