"""What an audit tells from batch headers alone: offsets, epochs, times, sizes, formats."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kafkascan import screening
from kafkascan.audit_findings import NOTE, FoundInLog
from kafkascan.batch_columns import (
    BatchTable,
    as_datetime64,
    compression_type,
    delete_horizon_ms,
    last_offset,
    next_offset,
    size_in_bytes,
)
from kafkascan.findings import Severity

DEFAULT_MAX_MESSAGE_BYTES = 1_048_588
"""Kafka's ``max.message.bytes``."""
FUTURE_MS = 3_600_000
"""Kafka's ``message.timestamp.after.max.ms``."""
EARLIEST_MS = 1_293_840_000_000
"""2011, before there was a Kafka."""


@dataclass(frozen=True)
class Limits:
    """
    What is still as it should be.

    Attributes
    ----------
    now_ms, future_ms, earliest_ms : int
        Timestamps from ``earliest_ms`` to ``now_ms + future_ms`` are plausible.
    max_message_bytes : int or None
        What the caller says is the topics' ``max.message.bytes``.
    many_producers : int
        More of them are too many for one partition.
    timeout_ms : int
        The broker's ``transaction.max.timeout.ms``.
    expiration_ms : int
        The broker's ``producer.id.expiration.ms``.
    topic_max_message_bytes : int or None
        What the metadata log says is the topic's ``max.message.bytes`` now; None if it is not
        known, and Kafka's default counts.
    """

    now_ms: int
    future_ms: int
    earliest_ms: int
    max_message_bytes: int | None
    many_producers: int
    timeout_ms: int
    expiration_ms: int
    topic_max_message_bytes: int | None = None

    @property
    def largest_batch(self) -> int:
        """Bytes that no batch should exceed."""
        for limit in (self.max_message_bytes, self.topic_max_message_bytes):
            if limit is not None:
                return limit
        return DEFAULT_MAX_MESSAGE_BYTES


class HeaderChecks:
    """
    Checks the batch headers of one log, piece by piece.

    Parameters
    ----------
    found : FoundInLog
    limits : Limits
    names : list of str
        Of the segments' files; `segments` in `add` are indices into it.
    base_offsets : list of int or None
        Of the segments.

    Attributes
    ----------
    next_offset : int
        That follows the last batch, -1 before the first one.
    cleaned_batches, empty_batches : int
        Batches from which the cleaner has removed records; without any.
    latest : dict of int to int
        By segment: its greatest timestamp, where that lies in the future.
    """

    def __init__(
        self,
        found: FoundInLog,
        limits: Limits,
        names: list[str],
        base_offsets: list[int | None],
    ) -> None:
        self._found = found
        self._limits = limits
        self._names = names
        self._bases = np.array([-1 if base is None else base for base in base_offsets], np.int64)
        self._next_offset = -1
        self._epoch = -1
        self.cleaned_batches = self.empty_batches = 0
        self.next_offset = -1
        self.latest: dict[int, int] = {}
        self.gaps: list[tuple[int, int, int]] = []  # file, offset, how many are missing

    def add(
        self,
        batches: BatchTable,
        segment: NDArray[np.int32],
        flags: int,
        starts: list[int],
        is_bad: NDArray[np.bool_] | None = None,
    ) -> int:
        """
        Check the batches that follow; those that are damaged say only where they stand.

        Parameters
        ----------
        batches : array of BATCH_DTYPE, shape (n,)
        segment : array of int32, shape (n,)
        flags : int
            What there is among them, by `screen` within the limits.
        starts : list of int
            Rows; each is that of the first of some batches that were screened for themselves.
        is_bad : array of bool, shape (n,), optional
            Whose checksums are wrong.

        Returns
        -------
        int
            What there is among all of them.
        """
        if not len(batches):
            return flags
        flags |= self._screen_starts(batches, starts)
        if flags & screening.OFFSETS or is_bad is not None:
            self._check_offsets(batches, segment, is_bad)
        else:
            self._check_starts(batches, segment, starts)
        if is_bad is not None:
            whole = np.flatnonzero(~is_bad)
            batches, segment = batches.take(whole), segment[whole]
            flags |= screening.OFFSETS  # of those that remain
        if not len(batches):
            return flags
        for flag, check in (
            (screening.EPOCHS, self._check_epochs),
            (screening.TIMES, self._check_times),
            (screening.SIZES, self._check_sizes),
            (screening.COUNTS, self._check_counts),
            (screening.FORMATS, self._check_formats),
        ):
            if flags & flag:
                check(batches, segment)
        return flags

    def _screen_starts(self, batches: BatchTable, starts: list[int]) -> int:
        """Tell whether batches go on where others end that were screened before."""
        heads, before = batches.take(starts), batches.take([row - 1 for row in starts[1:]])
        expected = np.append(self._next_offset, next_offset(before))
        epochs = np.append(self._epoch, before["partition_leader_epoch"])
        flags = 0
        if ((heads["base_offset"] != expected) & (expected >= 0)).any():
            flags |= screening.OFFSETS
        if (heads["partition_leader_epoch"] != epochs).any():
            flags |= screening.EPOCHS
        return flags

    def _note(
        self,
        symbol: str,
        batches: BatchTable,
        segment: NDArray[np.int32],
        is_wrong: NDArray[np.bool_],
        message: str,
        severity: Severity | None = None,
    ) -> None:
        """Note rows: of each file the first, and how many."""
        rows = np.flatnonzero(is_wrong)
        if not len(rows):
            return
        _, first, counts = np.unique(segment[rows], return_index=True, return_counts=True)
        for row, count in zip(rows[first].tolist(), counts.tolist(), strict=True):
            batch = batches[row]
            values = {name: int(batch[name]) for name in batches.dtype.names or ()}
            self._found.add(
                symbol,
                self._names[segment[row]],
                message.format(**values),
                position=values["position"],
                offset=values["base_offset"],
                count=count,
                severity=severity,
            )

    def _check_offsets(
        self, batches: BatchTable, segment: NDArray[np.int32], is_bad: NDArray[np.bool_] | None
    ) -> None:
        bases, ends = batches["base_offset"].astype(np.int64), last_offset(batches)
        expected = np.empty(len(batches), np.int64)
        expected[0] = self._next_offset
        expected[1:] = ends[:-1] + 1
        self._next_offset = self.next_offset = int(next_offset(batches[-1:])[0])
        if is_bad is not None:  # where a damaged batch ends is not known
            expected[1:][is_bad[:-1]] = -1
            self._next_offset = -1 if is_bad[-1] else self._next_offset
        # Of a compressed message of magic 0 and 1, the last offset is all that is known.
        is_wrapper = (batches["magic"] < 2) & (batches["records_count"] < 0)
        is_first = expected < 0
        overlaps = (bases < expected) & ~is_first
        self._note("OFFSET_OVERLAP", batches, segment, overlaps,
                   "offset {base_offset} follows one that is not lower")  # fmt: skip
        gaps = np.flatnonzero((bases > expected) & ~is_wrapper & ~is_first)
        for file in np.unique(segment[gaps]).tolist():
            rows = gaps[segment[gaps] == file]
            missing = int((bases[rows] - expected[rows]).sum())
            self._note_gap(batches, file, int(rows[0]), len(rows), missing, int(expected[rows[0]]))
        self._check_places(batches, segment)

    def _check_starts(
        self, batches: BatchTable, segment: NDArray[np.int32], starts: list[int]
    ) -> None:
        """Check batches whose offsets go on: which lie before their segment, the first tell."""
        if (last_offset(batches.take(starts)) < self._bases[segment[starts]]).any():
            self._check_places(batches, segment)
        self._next_offset = self.next_offset = int(next_offset(batches[-1:])[0])

    def _check_places(self, batches: BatchTable, segment: NDArray[np.int32]) -> None:
        is_before = last_offset(batches) < self._bases[segment]
        message = "offset {base_offset} lies before the one that the file is named by"
        self._note("OFFSET_OUT_OF_SEGMENT", batches, segment, is_before, message)

    def _note_gap(
        self, batches: BatchTable, file: int, row: int, count: int, missing: int, expected: int
    ) -> None:
        batch = batches[row]
        offset = int(batch["base_offset"])
        self.gaps.append((file, offset, missing))
        self._found.add(
            "OFFSET_GAP",
            self._names[file],
            f"offsets from {expected} to {offset - 1} are missing",
            position=int(batch["position"]),
            offset=offset,
            count=count,
        )

    def _check_epochs(self, batches: BatchTable, segment: NDArray[np.int32]) -> None:
        epochs = np.where(batches["magic"] >= 2, batches["partition_leader_epoch"], -1)
        highest = np.maximum(np.maximum.accumulate(epochs), self._epoch)
        self._note("EPOCH_BACKWARDS", batches, segment, (epochs < highest) & (epochs >= 0),
                   "leader epoch {partition_leader_epoch} follows a later one")  # fmt: skip
        self._epoch = int(highest[-1])

    def _check_times(self, batches: BatchTable, segment: NDArray[np.int32]) -> None:
        limits, times = self._limits, batches["max_timestamp"].astype(np.int64)
        is_late = times > limits.now_ms + limits.future_ms
        if is_late.any():
            for file in np.unique(segment[is_late]).tolist():
                latest = int(times[(segment == file) & is_late].max())
                self.latest[file] = max(latest, self.latest.get(file, latest))
            self._note("FUTURE_TIMESTAMP", batches, segment, is_late, "{max_timestamp}")
        is_early = (times < limits.earliest_ms) & (times >= 0)
        if is_early.any():
            first = as_datetime64(times[is_early][:1])[0]
            self._note("PAST_TIMESTAMP", batches, segment, is_early,
                       f"the latest timestamp is {first}Z, before there was a Kafka")  # fmt: skip

    def _check_sizes(self, batches: BatchTable, segment: NDArray[np.int32]) -> None:
        limits = self._limits
        is_given = limits.max_message_bytes is not None
        is_known = limits.topic_max_message_bytes is not None
        said = "the limit" if is_given else "the topic's limit" if is_known else "Kafka's default"
        message = f"a batch is larger than {said} of {limits.largest_batch} bytes"
        # The topic's limit may have been another one when the batch was written.
        severity = Severity.WARNING if is_given else None
        is_large = size_in_bytes(batches) > limits.largest_batch
        self._note("OVERSIZED_BATCH", batches, segment, is_large, message, severity)

    def _check_counts(self, batches: BatchTable, segment: NDArray[np.int32]) -> None:
        counts, deltas = batches["records_count"], batches["last_offset_delta"]
        is_new = batches["magic"] >= 2
        # In 64 bits: a delta of 2**31 - 1 is as good as any.
        slots = deltas.astype(np.int64) + 1
        is_wrong = is_new & ((counts < 0) | (deltas < 0) | (counts > slots))
        message = (
            "{records_count} records cannot be in a batch with a last offset delta of"
            " {last_offset_delta}"
        )
        self._note("BAD_COUNT", batches, segment, is_wrong, message)
        is_cleaned = is_new & ~is_wrong & ((counts < slots) | (delete_horizon_ms(batches) >= 0))
        self.cleaned_batches += int(is_cleaned.sum())
        self.empty_batches += int((is_new & (counts == 0)).sum())

    def _check_formats(self, batches: BatchTable, segment: NDArray[np.int32]) -> None:
        codecs, magics = compression_type(batches), batches["magic"]
        is_unknown = (codecs > 4) | ((codecs == 4) & (magics < 2))
        message = "attributes {attributes} name a codec that magic {magic} does not have"
        self._note("UNKNOWN_CODEC", batches, segment, is_unknown, message)
        self._note("OLD_FORMAT", batches, segment, magics < 2, "messages of magic {magic}")

    def finish(self, cleaned_up_to: int, sizes: list[int]) -> None:
        """
        Say what only the whole log tells.

        Parameters
        ----------
        cleaned_up_to : int
            The offset up to which the cleaner says to have come; 0 if it says nothing.
        sizes : list of int
            Of the segments, in bytes.
        """
        is_compacted = bool(cleaned_up_to) or self.cleaned_batches > 0
        for (_, symbol), spot in self._found.spots.items():
            if symbol == "OFFSET_GAP" and is_compacted:
                spot.severity = NOTE
                spot.message += "; the log is compacted"
        for file, latest in self.latest.items():
            spot = self._found.spots[self._names[file], "FUTURE_TIMESTAMP"]
            days = (latest - self._limits.now_ms) / 86_400_000
            time = as_datetime64(np.array([latest]))[0]
            spot.message = (
                f"the latest timestamp, {time}Z, is {days:,.1f} days ahead: until then, retention"
                f" by time keeps {sum(sizes[file:]):,} bytes, from this segment on"
            )
