"""Validate batches as a broker does before it appends them (``LogValidator``)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kafkascan.batches.columns import (
    BatchTable,
    compression_type,
    is_control,
    is_transactional,
    last_offset,
    require_batch_table,
    size_in_bytes,
)
from kafkascan.batches.scan import BatchScan, scan_batches
from kafkascan.batches.verify import verify_crcs
from kafkascan.format.arguments import require_integers, require_not_negative
from kafkascan.format.errors import SENTENCES, STATUS
from kafkascan.format.findings import BatchFinding, Severity
from kafkascan.format.layout import (
    LOG_OVERHEAD,
    CompressionType,
    ScanEnd,
    TimestampType,
)
from kafkascan.format.times import TimeLike, milliseconds_or_now
from kafkascan.io.sources import Source, SourceLike, borrowed_source
from kafkascan.records.read_options import DEFAULT_MAX_DECOMPRESSED_SIZE
from kafkascan.write.record_validation import (
    CORRUPT,
    INVALID,
    INVALID_TIMESTAMP,
    Append,
    batch_finding,
    record_findings,
)

Origin: TypeAlias = Literal["client", "coordinator", "raft_leader", "replication"]
"""Who writes the batches, for `validate_batches`."""

DEFAULT_MAX_MESSAGE_BYTES = 1_048_588
"""Kafka's ``max.message.bytes``."""

_ORIGINS = ("client", "coordinator", "raft_leader", "replication")
_NEVER_TOO_OLD = 2**63 - 1
_ONE_HOUR = 3_600_000

_UNSUPPORTED_FORMAT = "UnsupportedForMessageFormatException"


def validate_batches(
    source: SourceLike,
    batches: BatchTable | None = None,
    /,
    *,
    origin: Origin = "client",
    as_append: bool = False,
    compacted: bool = False,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    timestamp_before_max_ms: int = _NEVER_TOO_OLD,
    timestamp_after_max_ms: int = _ONE_HOUR,
    now_ms: TimeLike | None = None,
    max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES,
    leader_epoch: int | None = None,
    to_magic: int = 2,
    threads: int | None = None,
    max_decompressed_size: int = DEFAULT_MAX_DECOMPRESSED_SIZE,
) -> list[BatchFinding]:
    """
    Return the reasons for which a broker would reject batches in an append.

    Parameters
    ----------
    source : path, bytes-like, Source or SegmentFile
    batches : array of BATCH_DTYPE, optional
        Rows of the source. By default all of it; then an unreadable end of the source is
        reported, too.
    origin : {"client", "coordinator", "raft_leader", "replication"}
        The writer whose rules apply: a producer, a coordinator of the broker, a KRaft leader, or
        a follower, which accepts batches as its leader wrote them.
    as_append : bool, default False
        Validate the batches as one request, before offsets are assigned. By default each batch
        is validated as a request that is in the log already, with ascending offsets.
    compacted : bool, default False
        Whether the topic is compacted, so that records need keys.
    timestamp_type : TimestampType
        The topic's ``message.timestamp.type``.
    timestamp_before_max_ms, timestamp_after_max_ms : int
        How much earlier and later than `now_ms` a timestamp may be, in milliseconds; by default
        Kafka's defaults: unlimited, and one hour.
    now_ms : int, str, datetime, numpy.datetime64 or pandas.Timestamp, optional
        Current time in milliseconds since the epoch; by default the system's.
    max_message_bytes : int, default 1048588
        Maximum bytes of a batch.
    leader_epoch : int, optional
        The epoch that batches must have with ``origin="raft_leader"``; the highest known epoch
        with ``origin="replication"``.
    to_magic : int, default 2
        The topic's message format.
    threads : int, optional
        Number of threads that verify checksums; as of `verify_crcs`.
    max_decompressed_size : int, default 256 MiB
        See `read_records`.

    Returns
    -------
    list of BatchFinding
        In the order of a broker's checks; a broker rejects the append at the first. Each kind
        occurs once per batch. Empty if all batches would be accepted.

    Raises
    ------
    BatchTableError
        If a row does not describe the batch at its position in this source.
    SourceReadError
        If the file was truncated, or its disk failed, during the validation.
    OSError
        If the file cannot be opened.

    Notes
    -----
    ``UnifiedLog.analyzeAndValidateRecords`` and ``LogValidator`` of Kafka 4. The state of
    producers, such as sequence numbers and open transactions, is not checked. Records are decoded
    completely; a broker skips keys and values of compressed records, and does not find damage in
    them.
    """
    if origin not in _ORIGINS:
        raise ValueError(f"origin must be one of {', '.join(_ORIGINS)}, not {origin!r}")
    require_not_negative(
        timestamp_before_max_ms=timestamp_before_max_ms,
        timestamp_after_max_ms=timestamp_after_max_ms,
        max_message_bytes=max_message_bytes,
    )
    require_integers(leader_epoch=-1 if leader_epoch is None else leader_epoch)
    if to_magic not in (0, 1, 2):
        raise ValueError(f"to_magic must be 0, 1 or 2, not {to_magic!r}")
    append = Append(
        origin, as_append, bool(compacted), TimestampType(timestamp_type), timestamp_before_max_ms,
        timestamp_after_max_ms, milliseconds_or_now(now_ms, "now_ms"),
        max_message_bytes, leader_epoch, to_magic, max_decompressed_size, threads,
    )  # fmt: skip
    with borrowed_source(source, close=False) as owner:
        scan = scan_batches(owner, on_corrupt="stop") if batches is None else None
        rows = require_batch_table(scan.batches if scan is not None else batches)
        rows, findings = _up_to_later_epoch(rows, append)
        findings += _analyzed(owner, rows, append)
        if scan is not None:
            findings += _ending(scan)
        if append.assigns_offsets:
            findings += _validated(owner, rows, append)
    return findings


# ---- UnifiedLog.analyzeAndValidateRecords ------------------------------------------------


def _up_to_later_epoch(
    batches: BatchTable, append: Append
) -> tuple[BatchTable, list[BatchFinding]]:
    """Drop the batches that a follower drops: those from an unknown leader epoch on."""
    if append.origin != "replication" or append.leader_epoch is None:
        return batches, []
    later = np.flatnonzero(batches["partition_leader_epoch"] > append.leader_epoch)
    if not len(later):
        return batches, []
    row = int(later[0])
    position, message = int(batches["position"][row]), "followers drop the batches from here on"
    note = BatchFinding("LATER_LEADER_EPOCH", Severity.NOTE, message, row, position)
    return batches[:row], [note]


def _analyzed(source: Source, batches: BatchTable, append: Append) -> Iterator[BatchFinding]:
    checks = []
    if append.origin == "raft_leader" and append.leader_epoch is not None:
        wrong = batches["partition_leader_epoch"] != append.leader_epoch
        checks.append(
            ("WRONG_LEADER_EPOCH", INVALID, wrong, "its leader epoch is not the expected one")
        )
    if append.as_append and append.origin == "client":
        wrong = (batches["magic"] >= 2) & (batches["base_offset"] != 0)
        checks.append(
            ("BASE_OFFSET_NOT_ZERO", INVALID, wrong, "the base offset of a client's batch is not 0")
        )
    if append.origin != "replication":
        wrong = size_in_bytes(batches) > append.max_message_bytes
        message = f"the batch is larger than {append.max_message_bytes} bytes"
        checks.append(("TOO_LARGE", "RecordTooLargeException", wrong, message))
    wrong = ~verify_crcs(source, batches, threads=append.threads)
    checks.append(("CHECKSUM_MISMATCH", CORRUPT, wrong, SENTENCES[STATUS["CHECKSUM_MISMATCH"]]))
    wrong = compression_type(batches) > CompressionType.ZSTD
    unknown = SENTENCES[STATUS["UNSUPPORTED_COMPRESSION"]]
    checks.append(("UNSUPPORTED_COMPRESSION", "IllegalArgumentException", wrong, unknown))
    if not (append.as_append and append.assigns_offsets):
        offsets = last_offset(batches)
        # Kafka compares the first offset with -1.
        wrong = offsets <= np.concatenate([np.full(min(1, len(offsets)), -1), offsets[:-1]])
        message = SENTENCES[STATUS["OFFSETS_NOT_ASCENDING"]]
        checks.append(("OUT_OF_ORDER", "OffsetsOutOfOrderException", wrong, message))
    if append.origin == "replication":
        wrong = (batches["magic"] >= 2) & (batches["partition_leader_epoch"] < 0)
        message = "the batch of a leader has no leader epoch"
        checks.append(("BAD_LEADER_EPOCH", "IllegalArgumentException", wrong, message))
    yield from _row_by_row(batches, checks)


_Check: TypeAlias = "tuple[str, str, NDArray[np.bool_], str]"


def _row_by_row(batches: BatchTable, checks: list[_Check]) -> Iterator[BatchFinding]:
    """Yield findings batch by batch, in the order of the checks."""
    if not checks or not len(batches):
        return
    found = np.stack([wrong for _, _, wrong, _ in checks])
    for row in np.flatnonzero(found.any(axis=0)).tolist():
        for number in np.flatnonzero(found[:, row]).tolist():
            symbol, exception, _, message = checks[number]
            yield batch_finding(batches, row, symbol, exception, message)


def _ending(scan: BatchScan) -> list[BatchFinding]:
    """Report trailing bytes after the last batch; a broker ignores a torn batch silently."""
    position = scan.start + scan.valid_bytes
    if scan.end is ScanEnd.CLEAN:
        return []
    if scan.end is ScanEnd.TORN_TAIL or scan.trailing_bytes < LOG_OVERHEAD:
        message = SENTENCES[STATUS["TORN_TAIL"]]
        return [BatchFinding("TORN_TAIL", Severity.NOTE, message, None, position)]
    symbol = "ZERO_TAIL" if scan.error is None else scan.error.symbol
    message = "zeros follow the last batch" if scan.error is None else scan.error.reason
    return [BatchFinding(symbol, Severity.ERROR, message, None, position, CORRUPT)]


# ---- LogValidator ------------------------------------------------------------------------


def _validated(source: Source, batches: BatchTable, append: Append) -> Iterator[BatchFinding]:
    if not len(batches):
        return
    if append.as_append:
        first = batches["magic"][0]
        codecs = compression_type(batches)
        if len(batches) > 1 and (first >= 2 or codecs.any()):
            message = "in an append, a compressed batch or one of magic 2 must be the only one"
            yield batch_finding(batches, 1, "SEVERAL_BATCHES", INVALID, message)
    headers: dict[int, list[BatchFinding]] = {}
    for finding in _row_by_row(batches, _header_checks(batches, append)):
        assert finding.row is not None
        headers.setdefault(finding.row, []).append(finding)
    records = record_findings(source, batches, append)
    for row in sorted(headers.keys() | records.keys()):
        yield from headers.get(row, ())
        # A broker reports unreadable records first, then wrong timestamps, then the rest.
        yield from sorted(records.get(row, ()), key=_weight)


def _weight(finding: BatchFinding) -> int:
    if finding.symbol in ("NO_KEY", "INNER_MAGIC"):
        return 2
    return 1 if finding.exception == INVALID_TIMESTAMP else 0


def _header_checks(batches: BatchTable, append: Append) -> list[_Check]:
    """``LogValidator.validateBatch``."""
    magic, count = batches["magic"], batches["records_count"].astype(np.int64)
    checks: list[_Check] = []
    if append.as_append:
        message = f"magic differs from that of the first batch, {magic[0]}"
        checks.append(("MAGIC_MIX", INVALID, magic != magic[0], message))
    if append.origin == "client":
        is_v2 = magic >= 2
        span = last_offset(batches) - batches["base_offset"] + 1
        is_range, is_counted = span > 0, count > 0
        has_sequence = (batches["producer_id"] < 0) | (batches["base_sequence"] >= 0)
        checks += [
            ("BAD_OFFSET_RANGE", INVALID, is_v2 & ~is_range,
             "the last offset is below the base offset"),
            ("BAD_RECORD_COUNT", INVALID, is_v2 & is_range & ~is_counted,
             "records_count is not positive"),
            ("COUNT_MISMATCH", INVALID, is_v2 & is_range & is_counted & (span != count),
             "records_count differs from the number of offsets"),
            ("CONTROL_BATCH", INVALID, is_control(batches),
             "clients must not write control batches"),
            ("BAD_SEQUENCE", INVALID, ~has_sequence, "the sequence of a producer is negative"),
        ]  # fmt: skip
    if append.to_magic < 2:
        transactional, idempotent = is_transactional(batches), batches["producer_id"] >= 0
        message = f"magic {append.to_magic} does not support transactions"
        checks.append(("TRANSACTIONAL", _UNSUPPORTED_FORMAT, transactional, message))
        message = f"magic {append.to_magic} does not support producer ids"
        checks.append(("IDEMPOTENT", _UNSUPPORTED_FORMAT, idempotent, message))
    return checks
