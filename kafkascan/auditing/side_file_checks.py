"""Audit checks on side files: missing, left over or inconsistent ones."""

from __future__ import annotations

import functools
import os
import re
from collections import Counter
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafkascan.analysis.transaction_follower import Pause
from kafkascan.auditing.finding_kinds import NOTE, FoundInLog
from kafkascan.batches.columns import BatchTable
from kafkascan.broker_state.checkpoints import (
    PARTITION_METADATA,
    parse_partition_metadata,
)
from kafkascan.broker_state.index_checks import parse_index_file
from kafkascan.broker_state.producer_snapshots import parse_producer_snapshot
from kafkascan.broker_state.producer_state import ProducerState
from kafkascan.format.file_names import INTERRUPTED_REWRITE, REWRITE_MARK
from kafkascan.logs.opened_logs import LogView
from kafkascan.logs.segment import SegmentFile

_OF_LOG = re.compile(r"(\d+)\.(log|index|timeindex|txnindex|snapshot)")
_SNAPSHOT = re.compile(r"(\d+)\.snapshot")
_LEFTOVER = re.compile(r".+\.(deleted|cleaned|swap)|.+\.part|.+\.tmp|.+\.bak\d*")
_INDEXES = ("index", "timeindex", "txnindex")
# A broker reads an offset from these names (``LogFileUtils.offsetFromFileName``).
_WITHOUT_OFFSET = re.compile(
    r"(?!\d+\.).*\.(log|index|timeindex|txnindex|snapshot|cleaned|swap)", re.DOTALL
)
_COMPARED = ("producer_epoch", "last_sequence", "last_offset", "current_txn_first_offset")


def check_folder(log: LogView, names: Collection[str], found: FoundInLog) -> None:
    """Check the names of the files in a partition's folder, and ``partition.metadata``."""
    partition = log.partition
    matches = {name: _OF_LOG.fullmatch(name) for name in names}
    others = [name for name, match in matches.items() if match is None]
    _check_leftovers(others, found)
    for name in others:
        if REWRITE_MARK.fullmatch(name):
            found.add("INTERRUPTED_REWRITE", name, INTERRUPTED_REWRITE)
        if _WITHOUT_OFFSET.fullmatch(name):
            found.add("FOREIGN_NAME", name, "the file is named as one of a log, without an offset")
    logs = {name.removesuffix(".log") for name in names if name.endswith(".log")}
    for name, match in matches.items():
        if match is not None and match[2] in _INDEXES and match[1] not in logs:
            if f"{match[1]}.log.deleted" in names:  # a broker renames it next
                message = f"{match[1]}.log is marked for deletion"
                found.add("ORPHAN", name, message, severity=NOTE)
            else:
                found.add("ORPHAN", name, f"{match[1]}.log is missing")
    for base in sorted(logs):
        for kind in ("index", "timeindex"):
            if f"{base}.{kind}" not in names:
                found.add("MISSING_INDEX", f"{base}.log", f"{base}.{kind} is missing")
    with found.reading(PARTITION_METADATA, "BAD_CHECKPOINT"):
        data = partition.folder.read(PARTITION_METADATA)
        if data is not None:
            parse_partition_metadata(data, str(partition.path / PARTITION_METADATA))


def _check_leftovers(names: Collection[str], found: FoundInLog) -> None:
    """Add one finding about all files that are not part of the log."""
    left = sorted(name for name in names if _LEFTOVER.fullmatch(name))
    if not left:
        return
    incomplete_from = _first_cleaned(names)
    counts = Counter(_leftover(name, incomplete_from) for name in left)
    parts = [f"{count:,} {state}" for state, count in counts.items()]
    message = f"files beside the log: {'; '.join(parts)}; the first is {left[0]}"
    found.add("LEFTOVER", None, message, count=len(left))


def _first_cleaned(names: Collection[str]) -> str:
    """Return the digits of the first ``.cleaned`` file; text above all digits without one."""
    return min((name.partition(".")[0] for name in names if name.endswith(".cleaned")), default=":")


def _leftover(name: str, incomplete_from: str) -> str:
    """Describe a leftover, and what a broker that loads the log does (``LogLoader``)."""
    if name.endswith(".swap"):
        if name.partition(".")[0] >= incomplete_from:
            return "of an incomplete replacement of segments, which a broker deletes"
        return "of a complete replacement of segments, which a broker puts in their place"
    if name.endswith(".cleaned"):
        return "of an incomplete output of the cleaner, which a broker deletes"
    if name.endswith(".deleted"):
        return "marked for deletion, which a broker completes"
    if name.endswith(".part"):
        return "left by a killed command, which a broker ignores"
    return "as a backup or a copy, which a broker ignores"


class SnapshotCheck:
    """
    Compares producer snapshots with the batches before them.

    Those up to the log's first offset are read now. The one at the first offset is trusted: it is
    the state after batches that were deleted.

    Parameters
    ----------
    log : LogView
    names : collection of str
        Names of the files in its folder.
    found : FoundInLog

    Attributes
    ----------
    known : array of PRODUCER_ENTRY or None
        Entries of the snapshot at the first offset.
    latest : int
        Offset of the last snapshot, or the log's first offset.
    """

    def __init__(self, log: LogView, names: Collection[str], found: FoundInLog) -> None:
        self._partition = log.partition
        self._found = found
        self._first = first = (log.segments[0].base_offset or 0) if log.segments else 0
        matches = (_SNAPSHOT.fullmatch(name) for name in names)
        named = {int(match[1]): match[0] for match in matches if match is not None}
        self.known: NDArray[np.void] | None = None
        for offset in sorted(offset for offset in named if offset <= first):
            entries = self._read(named[offset])
            self.known = entries if offset == first else self.known
        self._knows_before = first == 0 or self.known is not None
        # Offsets and names of the later snapshots, descending.
        self._remaining = sorted((one for one in named.items() if one[0] > first), reverse=True)
        self.latest = max([first, *named])
        # Differences by file: whether the log is compacted is known at its end.
        self._otherwise: dict[str, _Difference] = {}
        self._if_compacted: dict[str, _Difference] = {}

    def _read(self, name: str) -> NDArray[np.void] | None:
        """Return the entries of a snapshot; None if it is missing or damaged."""
        with self._found.reading(name, "BAD_SNAPSHOT"):
            data = self._partition.folder.read(name)
            if data is not None:  # a broker may have deleted it meanwhile
                return parse_producer_snapshot(data, os.path.join(self._partition.path, name))
        return None

    def pauses(self, batches: BatchTable) -> list[Pause]:
        """Return the rows before which there are snapshots, and functions that compare them."""
        pauses: list[Pause] = []
        bases, row = batches["base_offset"], 0
        while self._remaining and len(batches) and self._remaining[-1][0] <= int(bases[-1]):
            offset, name = self._remaining.pop()
            row = max(row, int(np.argmax(bases >= offset)))
            pauses.append((row, functools.partial(self._compare, offset, name)))
        return pauses

    def finish(self, end_offset: int, state: ProducerState | None, *, is_compacted: bool) -> None:
        """Check the snapshot at the end of the log, and add the findings about all snapshots."""
        for offset, name in reversed(self._remaining):
            if offset == end_offset:
                self._compare(offset, name, state)
            else:
                self._read(name)
        for name, difference in (self._if_compacted if is_compacted else self._otherwise).items():
            self._found.add(
                "SNAPSHOT_MISMATCH", name, difference.message, count=difference.producers
            )

    def _compare(self, offset: int, name: str, state: ProducerState | None) -> None:
        stored = self._read(name)
        if stored is None or state is None or not len(stored):
            return
        known, stored = _by_producer(state.entries()), _by_producer(stored)
        row = np.searchsorted(known["producer_id"], stored["producer_id"])
        is_known = row < len(known)
        is_known[is_known] = known["producer_id"][row[is_known]] == stored["producer_id"][is_known]
        theirs, ours = stored[is_known], known[row[is_known]]
        strangers = stored[~is_known]
        # Loading a snapshot drops idle producers; a marker alone makes them known again.
        is_forgotten = theirs["last_offset"] < 0
        for field in ("last_sequence", "last_offset"):
            ours[field][is_forgotten] = -1
        if not self._knows_before:
            has_batches = ours["last_offset"] >= 0
            theirs, ours, strangers = theirs[has_batches], ours[has_batches], strangers[:0]
        # Starts of transactions are not known either if the state before the log is not.
        fields = _COMPARED if self._knows_before else _COMPARED[:3]
        strangers = strangers[strangers["last_offset"] >= self._first]
        difference = _difference(theirs, ours, fields) or _strangers(strangers, offset)
        if difference is not None:
            self._otherwise[name] = difference
        difference = _difference(*_contradicting(theirs, ours), fields)
        if difference is not None:
            self._if_compacted[name] = difference


def _by_producer(entries: NDArray[np.void]) -> NDArray[np.void]:
    # np.sort compares the other fields of equal ids, too, which is slow.
    return entries[np.argsort(entries["producer_id"], kind="stable")]


class _Difference(NamedTuple):
    """A difference between a snapshot and its log, and the number of producers with it."""

    message: str
    producers: int


def _difference(
    stored: NDArray[np.void], known: NDArray[np.void], fields: Sequence[str]
) -> _Difference | None:
    """Return the first field in which entries of the same producers differ."""
    for field in fields:
        differs = np.flatnonzero(stored[field] != known[field])
        if len(differs):
            one, other = stored[differs[0]], known[differs[0]]
            message = (
                f"{field} of producer {one['producer_id']} is {other[field]} in the log,"
                f" but {one[field]} in the snapshot"
            )
            return _Difference(message, len(differs))
    return None


def _strangers(strangers: NDArray[np.void], offset: int) -> _Difference | None:
    if not len(strangers):
        return None
    producer = strangers[0]["producer_id"]
    return _Difference(f"producer {producer} has no batch before offset {offset}", len(strangers))


def _contradicting(
    stored: NDArray[np.void], known: NDArray[np.void]
) -> tuple[NDArray[np.void], NDArray[np.void]]:
    """
    Return the entries of a snapshot, and of its log, that no cleaning of the log explains.

    The cleaner may have removed a producer's last batches and markers after the snapshot was
    written. But a snapshot has every batch that is in the log.
    """
    epochs, other_epochs = stored["producer_epoch"], known["producer_epoch"]
    offsets, other_offsets = stored["last_offset"], known["last_offset"]
    begins, other_begins = (of["current_txn_first_offset"] for of in (stored, known))
    is_same = (epochs == other_epochs) & (offsets == other_offsets)
    is_wrong = is_same & (stored["last_sequence"] != known["last_sequence"])
    is_wrong |= (other_epochs > epochs) | ((other_epochs == epochs) & (other_offsets > offsets))
    is_wrong |= (other_begins >= 0) & ((begins < 0) | (begins > other_begins))
    rows = np.flatnonzero(is_wrong)
    return stored[rows], known[rows]


class AbortedCheck:
    """
    Finds aborted transactions of a log that its ``.txnindex`` files lack.

    `check_index` finds the entries that they should not have.

    Parameters
    ----------
    found : FoundInLog
    is_enabled : bool
        Whether the log has side files at all.
    """

    def __init__(self, found: FoundInLog, *, is_enabled: bool) -> None:
        self._found = found
        self._is_enabled = is_enabled
        self._wanted = np.empty(0, np.int64)
        self._firsts = np.empty(0, np.int64)

    def add(self, aborted: NDArray[np.void]) -> None:
        """Add aborted transactions, in the order of their markers."""
        if self._is_enabled:
            self._wanted = np.concatenate([self._wanted, aborted["marker_offset"]])
            self._firsts = np.concatenate([self._firsts, aborted["first_offset"]])

    def end_segment(
        self,
        segment: SegmentFile,
        end_offset: int,
        entries: NDArray[np.void] | None,
    ) -> None:
        """Compare the transactions that ended in a segment with the entries of its file."""
        if not len(self._wanted):
            return
        count = int(np.searchsorted(self._wanted, end_offset))
        wanted, firsts = self._wanted[:count], self._firsts[:count]
        self._wanted, self._firsts = self._wanted[count:], self._firsts[count:]
        if entries is None or not count:
            return
        missing = _missing(wanted, firsts, entries)
        if missing:  # a broker may have written both meanwhile, first the log
            again = segment.read_sibling("txnindex")
            entries = entries if again is None else parse_index_file(again[1], again[0])[0]
            missing = _missing(wanted, firsts, entries)
        if missing:
            marker, first = missing[0]
            message = f"the transaction from offset {first} aborted at {marker} is missing"
            name = segment.file_name.removesuffix(".log") + ".txnindex"
            self._found.add("TXN_INDEX_MISMATCH", name, message, offset=marker, count=len(missing))


def _missing(
    wanted: NDArray[np.int64], firsts: NDArray[np.int64], entries: NDArray[np.void]
) -> list[tuple[int, int]]:
    """Return markers and first offsets of the transactions that an index does not contain."""
    stored = dict(
        zip(entries["last_offset"].tolist(), entries["first_offset"].tolist(), strict=True)
    )
    return [
        (marker, first)
        for marker, first in zip(wanted.tolist(), firsts.tolist(), strict=True)
        # Its beginning may have been deleted, by retention or by the cleaner.
        if stored.get(marker, first + 1) > first
    ]
