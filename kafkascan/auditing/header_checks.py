"""Audit checks on batch headers: offsets, leader epochs, timestamps, sizes, formats."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafkascan.analysis.transactions import TRANSACTION_TIMEOUT_MS
from kafkascan.auditing.finding_kinds import COMPACTED_GAP, FoundInLog
from kafkascan.batches import screening
from kafkascan.batches.columns import (
    BatchTable,
    as_datetime64,
    compression_type,
    delete_horizon_ms,
    last_offset,
    next_offset,
    offset_after,
    size_in_bytes,
)
from kafkascan.batches.screening import screen
from kafkascan.broker_state.producer_state import PRODUCER_EXPIRATION_MS
from kafkascan.format.findings import Severity
from kafkascan.logs.metadata_log import TopicConfig

DEFAULT_MAX_MESSAGE_BYTES = 1_048_588
"""Kafka's default of ``max.message.bytes``."""
FUTURE_MS = 3_600_000
"""Kafka's default of ``message.timestamp.after.max.ms``."""
EARLIEST_MS = 1_293_840_000_000
"""The beginning of 2011: Kafka did not exist before."""
MANY_PRODUCERS = 10_000
"""Number of active producers above which a partition has too many."""


@dataclass(frozen=True)
class Limits:
    """
    Limits that the caller of an audit sets.

    Attributes
    ----------
    now_ms, future_ms, earliest_ms : int
        Timestamps from ``earliest_ms`` to ``now_ms + future_ms`` are plausible.
    max_message_bytes : int or None
        Overrides the ``max.message.bytes`` of all topics.
    many_producers : int
        Number of active producers in one partition above which there is a finding.
    timeout_ms : int
        The broker's ``transaction.max.timeout.ms``.
    expiration_ms : int
        The broker's ``producer.id.expiration.ms``.
    """

    now_ms: int
    future_ms: int = FUTURE_MS
    earliest_ms: int = EARLIEST_MS
    max_message_bytes: int | None = None
    many_producers: int = MANY_PRODUCERS
    timeout_ms: int = TRANSACTION_TIMEOUT_MS
    expiration_ms: int = PRODUCER_EXPIRATION_MS


class SizeLimit(NamedTuple):
    """
    The largest size of a batch.

    Attributes
    ----------
    size_in_bytes : int
    name : str
        What messages call it.
    severity : Severity or None
        Severity of larger batches; None for that of their kind.
    """

    size_in_bytes: int
    name: str
    severity: Severity | None = None


def size_limit(limits: Limits, config: TopicConfig) -> SizeLimit:
    """Return the limit of the caller, else that of the topic, else Kafka's default."""
    if limits.max_message_bytes is not None:
        return SizeLimit(limits.max_message_bytes, "the limit", Severity.WARNING)
    # The topic's limit may have been larger when a batch was written: a larger one is a note.
    if config.max_message_bytes is not None:
        return SizeLimit(config.max_message_bytes, "the topic's limit")
    return SizeLimit(DEFAULT_MAX_MESSAGE_BYTES, "Kafka's default")


# Offsets that a segment can contain: its indexes have 31 bits for them.
_MOST_OFFSETS = 1 << 31


def screen_headers(batches: BatchTable, limits: Limits, largest: int) -> int:
    """Return the flags of `screen` for batches, within the limits."""
    return screen(
        batches,
        earliest=limits.earliest_ms,
        latest=limits.now_ms + limits.future_ms,
        largest=largest,
    )


class HeaderFindings(NamedTuple):
    """
    Findings of one kind in a table of batches.

    Attributes
    ----------
    symbol : str
    batches : array of BATCH_DTYPE, shape (n,)
    segment : array of int32, shape (n,)
        Index of each batch's segment.
    rows : array of int
        Rows of `batches` with the finding, ascending; never empty.
    message : str
        A template with the fields of a batch, and `values`.
    severity : Severity or None
        None for that of the kind.
    values : dict of str to array, shape (n,)
        More values for the message.
    """

    symbol: str
    batches: BatchTable
    segment: NDArray[np.int32]
    rows: NDArray[np.intp]
    message: str
    severity: Severity | None = None
    values: Mapping[str, NDArray[np.int64]] = {}

    def message_of(self, row: int) -> str:
        """Return the message about a row."""
        names = self.batches.dtype.names or ()
        fields = {name: int(self.batches[name][row]) for name in names}
        more = {name: int(values[row]) for name, values in self.values.items()}
        return self.message.format(**fields, **more)

    def add_to(self, found: FoundInLog, names: list[str]) -> None:
        """Add the findings to those of a log, by the names of its segments' files."""
        _, first, counts = np.unique(self.segment[self.rows], return_index=True, return_counts=True)
        for row, count in zip(self.rows[first].tolist(), counts.tolist(), strict=True):
            found.add(
                self.symbol,
                names[self.segment[row]],
                self.message_of(row),
                position=int(self.batches["position"][row]),
                offset=int(self.batches["base_offset"][row]),
                count=count,
                severity=self.severity,
            )


@dataclass
class HeaderChecks:
    """
    Checks the batch headers of one log, table by table.

    Parameters
    ----------
    limits : Limits
    largest : SizeLimit
    base_offsets : array of int64
        Of the segments, by their names; -1 where a name has none.

    Attributes
    ----------
    next_offset : int
        Offset after the last batch; -1 before the first one.
    cleaned_batches, empty_batches : int
        Number of batches from which the cleaner removed records, and of those without records.
    latest : dict of int to int
        Largest timestamp by segment, where it is in the future.
    """

    limits: Limits
    largest: SizeLimit
    base_offsets: NDArray[np.int64]
    next_offset: int = -1
    cleaned_batches: int = 0
    empty_batches: int = 0
    latest: dict[int, int] = field(default_factory=dict)
    _expected_offset: int = -1  # -1 if it is not known
    _epoch: int | None = None
    _last_segment: int = -1  # with batches
    _reached: int = -1  # the highest end of the segments before that one

    def add(
        self,
        batches: BatchTable,
        segment: NDArray[np.int32],
        flags: int,
        starts: list[int],
        is_bad: NDArray[np.bool_] | None = None,
    ) -> tuple[int, list[HeaderFindings]]:
        """
        Check the next batches. Of batches with wrong checksums, only the positions are used.

        Parameters
        ----------
        batches : array of BATCH_DTYPE, shape (n,)
        segment : array of int32, shape (n,)
            Index of each batch's segment.
        flags : int
            Of the tables that were screened, by `screen_headers`.
        starts : list of int
            First row of each table that was screened by itself.
        is_bad : array of bool, shape (n,), optional
            Whether a batch's checksum is wrong.

        Returns
        -------
        flags : int
            Of all batches as one table.
        findings : list of HeaderFindings
        """
        if not len(batches):
            return flags, []
        if self.next_offset < 0:  # a log begins at the offset in the name of its first file
            named, stored = int(self.base_offsets[0]), int(batches["base_offset"][0])
            self._expected_offset = min(named, stored)
        of_starts, reached = self._screen_starts(batches, segment, starts, is_bad)
        flags |= of_starts
        found = [*self._check_offsets(batches, segment, flags, starts, reached, is_bad)]
        self._expected_offset = self.next_offset = offset_after(batches)
        self._epoch = int(batches["partition_leader_epoch"][-1])
        self._last_segment = int(segment[-1])
        if is_bad is not None:
            if is_bad[-1]:  # the end of a damaged batch is not known
                self._expected_offset = -1
            intact = np.flatnonzero(~is_bad)
            batches, segment = batches.take(intact), segment[intact]
            flags |= screening.OFFSETS  # of the intact batches
        if not len(batches):
            return flags, found
        for flag, check in (
            (screening.TIMES, self._check_times),
            (screening.SIZES, self._check_sizes),
            (screening.COUNTS, self._check_counts),
            (screening.FORMATS, self._check_formats),
        ):
            if flags & flag:
                found += check(batches, segment)
        return flags, found

    def _screen_starts(
        self,
        batches: BatchTable,
        segment: NDArray[np.int32],
        starts: list[int],
        is_bad: NDArray[np.bool_] | None,
    ) -> tuple[int, list[int]]:
        """
        Check the boundaries before screened tables.

        Returns
        -------
        flags : int
        reached : list of int
            The highest end of all earlier segments at each start; -1 inside a segment.
        """
        rows = np.array(starts[1:], np.intp) - 1
        bases, epochs = batches["base_offset"], batches["partition_leader_epoch"]
        flags, reached = 0, []
        # Numbers, no arrays: most tables are the only one of their log.
        for head, head_epoch, number, end, epoch, earlier, is_end_bad in zip(
            bases[starts].tolist(),
            epochs[starts].tolist(),
            segment[starts].tolist(),
            [self._expected_offset, *next_offset(batches[rows]).tolist()],
            [self._epoch, *epochs[rows].tolist()],
            [self._last_segment, *segment[rows].tolist()],
            [False, *([False] * len(rows) if is_bad is None else is_bad[rows].tolist())],
            strict=True,
        ):
            is_first = number != earlier
            # No checksum covers offsets: one that no segment could contain says nothing of its end.
            is_possible = end - int(self.base_offsets[earlier]) <= _MOST_OFFSETS
            if is_first and is_possible and not is_end_bad:
                self._reached = max(self._reached, end)
            reached.append(self._reached if is_first else -1)
            if end >= 0 and head != max(end, reached[-1]):
                flags |= screening.OFFSETS
            if epoch is not None and head_epoch != epoch:
                flags |= screening.EPOCHS
        return flags, reached

    def _check_offsets(
        self,
        batches: BatchTable,
        segment: NDArray[np.int32],
        flags: int,
        starts: list[int],
        reached: list[int],
        is_bad: NDArray[np.bool_] | None,
    ) -> Iterator[HeaderFindings]:
        if flags & screening.OFFSETS or is_bad is not None:
            yield from self._check_order(batches, segment, starts, reached, is_bad)
        # Offsets that ascend are outside their segment only if those at a start are.
        elif not (batches["base_offset"][starts] < self.base_offsets[segment[starts]]).any():
            return
        is_before = batches["base_offset"] < self.base_offsets[segment]
        message = "offset {base_offset} is below the base offset in the file's name"
        yield from _where("OFFSET_OUT_OF_SEGMENT", batches, segment, is_before, message)

    def _check_order(
        self,
        batches: BatchTable,
        segment: NDArray[np.int32],
        starts: list[int],
        reached: list[int],
        is_bad: NDArray[np.bool_] | None,
    ) -> Iterator[HeaderFindings]:
        bases = batches["base_offset"].astype(np.int64)
        expected = np.empty(len(batches), np.int64)
        expected[0] = self._expected_offset
        expected[1:] = last_offset(batches)[:-1] + 1
        if is_bad is not None:  # the end of a damaged batch is not known
            expected[1:][is_bad[:-1]] = -1
        expected[starts] = np.where(expected[starts] < 0, -1, np.maximum(expected[starts], reached))
        # Of a compressed message of magic 0 and 1, only the last offset is known.
        is_wrapper = (batches["magic"] < 2) & (batches["records_count"] < 0)
        is_known = expected >= 0
        message = "offset {base_offset} follows an equal or higher offset"
        yield from _where(
            "OFFSET_OVERLAP", batches, segment, (bases < expected) & is_known, message
        )
        message = "offsets from {expected} to {last_missing} are missing"
        values = {"expected": expected, "last_missing": bases - 1}
        is_gap = (bases > expected) & ~is_wrapper & is_known
        yield from _where("OFFSET_GAP", batches, segment, is_gap, message, values=values)

    def _check_times(
        self, batches: BatchTable, segment: NDArray[np.int32]
    ) -> Iterator[HeaderFindings]:
        limits, times = self.limits, batches["max_timestamp"].astype(np.int64)
        is_late = times > limits.now_ms + limits.future_ms
        for file in np.unique(segment[is_late]).tolist():
            latest = int(times[(segment == file) & is_late].max())
            self.latest[file] = max(latest, self.latest.get(file, latest))
        message = "max_timestamp {max_timestamp} ms is in the future"
        yield from _where("FUTURE_TIMESTAMP", batches, segment, is_late, message)
        is_early = (times < limits.earliest_ms) & (times >= 0)
        if is_early.any():
            first = as_datetime64(times[is_early][:1])[0]
            message = f"max_timestamp is {first}Z, before Kafka existed"
            yield from _where("PAST_TIMESTAMP", batches, segment, is_early, message)

    def _check_sizes(
        self, batches: BatchTable, segment: NDArray[np.int32]
    ) -> Iterator[HeaderFindings]:
        size, name, severity = self.largest
        message = f"a batch is larger than {name} of {size} bytes"
        is_large = size_in_bytes(batches) > size
        return _where("OVERSIZED_BATCH", batches, segment, is_large, message, severity)

    def _check_counts(
        self, batches: BatchTable, segment: NDArray[np.int32]
    ) -> Iterator[HeaderFindings]:
        counts, deltas = batches["records_count"], batches["last_offset_delta"]
        is_new = batches["magic"] >= 2
        # In 64 bits: a delta of 2**31 - 1 is as good as any.
        slots = deltas.astype(np.int64) + 1
        is_wrong = is_new & ((counts < 0) | (deltas < 0) | (counts > slots))
        is_cleaned = is_new & ~is_wrong & ((counts < slots) | (delete_horizon_ms(batches) >= 0))
        self.cleaned_batches += int(is_cleaned.sum())
        self.empty_batches += int((is_new & (counts == 0)).sum())
        message = (
            "{records_count} records cannot be in a batch with a last offset delta of"
            " {last_offset_delta}"
        )
        return _where("BAD_COUNT", batches, segment, is_wrong, message)

    def _check_formats(
        self, batches: BatchTable, segment: NDArray[np.int32]
    ) -> Iterator[HeaderFindings]:
        codecs, magics = compression_type(batches), batches["magic"]
        is_unknown = (codecs > 4) | ((codecs == 4) & (magics < 2))
        message = "attributes {attributes} contain a codec that magic {magic} does not support"
        yield from _where("UNKNOWN_CODEC", batches, segment, is_unknown, message)
        message = "messages of magic {magic}"
        yield from _where("OLD_FORMAT", batches, segment, magics < 2, message)

    def finish(
        self, found: FoundInLog, names: list[str], sizes: list[int], *, is_compacted: bool
    ) -> None:
        """
        Complete the messages that depend on the whole log.

        Parameters
        ----------
        found : FoundInLog
            Findings of the log.
        names, sizes : list
            Names and sizes of the segments' files.
        is_compacted : bool
            Whether the cleaner has removed records: gaps are no more than notes then.
        """
        if is_compacted:
            for one in found.of_kind("OFFSET_GAP"):
                message = f"{one.message}; the log is compacted"
                severity, advice, _ = COMPACTED_GAP
                found.change(one, severity=severity, message=message, advice=advice)
        for file, latest in self.latest.items():
            days = (latest - self.limits.now_ms) / 86_400_000
            latest_time = as_datetime64(np.array([latest]))[0]
            message = (
                f"the latest timestamp, {latest_time}Z, is {days:,.1f} days ahead: until then,"
                f" time-based retention keeps {sum(sizes[file:]):,} bytes, from this segment on"
            )
            found.change(found.tallies[names[file], "FUTURE_TIMESTAMP"], message=message)


def _where(
    symbol: str,
    batches: BatchTable,
    segment: NDArray[np.int32],
    is_wrong: NDArray[np.bool_],
    message: str,
    severity: Severity | None = None,
    values: Mapping[str, NDArray[np.int64]] | None = None,
) -> Iterator[HeaderFindings]:
    """Yield the findings of a kind, if there are any."""
    rows = np.flatnonzero(is_wrong)
    if len(rows):
        yield HeaderFindings(symbol, batches, segment, rows, message, severity, values or {})
