"""Check a table of batches from headers alone."""

from __future__ import annotations

import numpy as np

from kafkascan.auditing.epoch_checks import OUT_OF_ORDER, rows_out_of_order
from kafkascan.auditing.finding_kinds import finding_kind
from kafkascan.auditing.header_checks import (
    EARLIEST_MS,
    FUTURE_MS,
    HeaderChecks,
    HeaderFindings,
    Limits,
    screen_headers,
    size_limit,
)
from kafkascan.batches.columns import BatchTable, require_batch_table
from kafkascan.format.arguments import require_integers, require_not_negative
from kafkascan.format.findings import Finding
from kafkascan.format.times import TimeLike, milliseconds_or_now
from kafkascan.logs.metadata_log import TopicConfig

# Batches that are checked before signals are handled: a few milliseconds of work each time.
_ROWS = 1 << 17


def check_batches(
    batches: BatchTable,
    /,
    *,
    now_ms: TimeLike | None = None,
    future_ms: int = FUTURE_MS,
    earliest_ms: int = EARLIEST_MS,
    max_message_bytes: int | None = None,
) -> list[Finding]:
    """
    Check a table of batches: offset order, leader epochs, timestamps, sizes and counts.

    Only headers are checked: `verify_crcs` compares checksums, and `audit` checks whole logs
    with their side files.

    Parameters
    ----------
    batches : array of BATCH_DTYPE, shape (n,)
        Consecutive batches of one log.
    now_ms : int, str, datetime, numpy.datetime64 or pandas.Timestamp, optional
        Milliseconds since the epoch; by default now.
    future_ms : int, default 1 hour
        How far ahead of now a timestamp may be (``message.timestamp.after.max.ms``).
    earliest_ms : int, default 2011
        Earlier timestamps are findings.
    max_message_bytes : int, optional
        The topic's ``max.message.bytes``; larger batches are a warning. By default, batches
        above Kafka's default are a note.

    Returns
    -------
    list of Finding
        One for each batch and kind, by row. Symbols and severities are those of `audit`:
        ``OFFSET_OVERLAP``, ``OFFSET_GAP`` (also left by compaction), ``EPOCH_BACKWARDS``,
        ``FUTURE_TIMESTAMP``, ``PAST_TIMESTAMP``, ``OVERSIZED_BATCH``, ``BAD_COUNT``,
        ``UNKNOWN_CODEC``, ``OLD_FORMAT``.

    Raises
    ------
    TypeError
        If `batches` is not an array of `BATCH_DTYPE`.

    Examples
    --------
    >>> scan = ks.scan_batches(path)
    >>> [str(one) for one in ks.check_batches(scan.batches)]
    []
    """
    batches = require_batch_table(batches)
    require_integers(future_ms=future_ms, earliest_ms=earliest_ms)
    require_not_negative(max_message_bytes=max_message_bytes)
    limits = Limits(
        now_ms=milliseconds_or_now(now_ms, "now_ms"),
        future_ms=future_ms,
        earliest_ms=earliest_ms,
        max_message_bytes=max_message_bytes,
    )
    largest = size_limit(limits, TopicConfig())
    checks = HeaderChecks(limits, largest, np.array([-1], np.int64))
    found = []
    for first in range(0, len(batches), _ROWS):
        part = batches[first : first + _ROWS]
        flags = screen_headers(part, limits, largest.size_in_bytes)
        _, kinds = checks.add(part, np.zeros(len(part), np.int32), flags, [0])
        for kind in kinds:
            found += [_finding(kind, row, first) for row in kind.rows.tolist()]
    segment = np.zeros(len(batches), np.int32)
    odd = rows_out_of_order(batches)
    epochs = HeaderFindings("EPOCH_BACKWARDS", batches, segment, odd, OUT_OF_ORDER)
    found += [_finding(epochs, row, 0) for row in odd.tolist()]
    return sorted(found, key=lambda one: one.row or 0)


def _finding(kind: HeaderFindings, row: int, first: int) -> Finding:
    """Return a finding about a row of a table that begins at a row of the caller's table."""
    return Finding(
        kind.symbol,
        kind.severity or finding_kind(kind.symbol).severity,
        kind.message_of(row),
        first + row,
        int(kind.batches["position"][row]),
    )
