"""Validate index files against the batches of their segment."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from kafkascan._core import indexes as _core
from kafkascan.batches.columns import (
    BatchTable,
    is_control,
    last_offset,
    require_batch_table,
    size_in_bytes,
)
from kafkascan.broker_state.indexes import (
    UNKNOWN_INDEX_LAYOUT,
    IndexEntries,
    entries_of,
    parse_index,
)
from kafkascan.format.arguments import require_not_negative
from kafkascan.format.errors import CorruptIndexError
from kafkascan.format.file_names import leading_offset
from kafkascan.format.findings import Finding, Severity
from kafkascan.format.layout import (
    BATCH_DTYPE,
    OFFSET_INDEX_ENTRY,
    TIME_INDEX_ENTRY,
    TRANSACTION_INDEX_ENTRY,
)
from kafkascan.io.folders import read_regular
from kafkascan.io.stores.urls import as_path

# Findings of the same kind of error in one index, which are listed one by one.
_MOST_LISTED = 1000

# What `IndexScreen` finds right in one pass needs no masks.
_SCREENED = {OFFSET_INDEX_ENTRY: "index", TIME_INDEX_ENTRY: "timeindex"}
_NO_BYTES = np.empty(0, np.uint8)


def check_index(
    index: str | os.PathLike[str] | IndexEntries,
    batches: BatchTable,
    /,
    *,
    base_offset: int | None = None,
) -> list[Finding]:
    """
    Compare an index with the batches of its segment.

    An entry that leads to the right record is no finding: an index may be sparser than a rebuilt
    one, and may name another offset of the same batch. (For each append, brokers before 2.0 write
    the first offset, later brokers the last.)

    Parameters
    ----------
    index : path, or array of OFFSET_INDEX_ENTRY, TIME_INDEX_ENTRY or TRANSACTION_INDEX_ENTRY
        Padding and incomplete entries are found in files only.
    batches : array of BATCH_DTYPE, shape (n,)
        All batches of the segment, in file order.
    base_offset : int, optional
        Of the segment; by default that of the file name, or of the first batch.

    Returns
    -------
    list of Finding
        ``row`` is the index of the entry. At most 1001 findings have the same message: the last
        one is about all remaining entries, and ``count`` is their number. Errors:
        ``OUT_OF_ORDER``, ``WRONG_POSITION`` (no batch starts at the position, or a lookup would
        miss earlier records), ``OFFSET_NOT_IN_LOG``, ``TIMESTAMP_MISMATCH``, ``TOO_LARGE`` (the
        position is after the end of the log), ``ODD_INDEX_SIZE``, ``PRODUCER_MISMATCH``. A
        warning: ``UNKNOWN_INDEX_LAYOUT`` (of a later version; entries are not checked). Notes:
        ``PADDED`` (preallocated), ``STALE`` (entries that a truncation of the log left in a
        preallocated file), ``INCOMPLETE`` (the latest timestamp is missing, as in an active
        segment).

    Raises
    ------
    CorruptIndexError
        If entries of aborted transactions have an unknown version.
    OSError
    """
    batches = require_batch_table(batches)
    require_not_negative(base_offset=base_offset)
    if not isinstance(index, np.ndarray):
        path = as_path(index)
        parsed = parse_index_file(read_regular(path), path)
        return check_parsed_index(parsed, path, batches, base_offset)
    if base_offset is None:
        base_offset = _first_offset(batches)
    return check_entries(index, batches, base_offset).findings()


def check_parsed_index(
    parsed: tuple[IndexEntries, list[Finding]],
    path: Path,
    batches: BatchTable,
    base_offset: int | None = None,
) -> list[Finding]:
    """Compare what `parse_index_file` returns of a file with batches; as `check_index`."""
    entries, findings = parsed
    if base_offset is None:
        named = leading_offset(path.name)
        base_offset = _first_offset(batches) if named is None else named
    kind = _SCREENED.get(entries.dtype)
    if kind is not None and batches.flags.c_contiguous:
        screen = IndexScreen({kind: entries}, base_offset)
        screen.add(batches)
        known = screen.findings(kind)
        if known is not None:
            return findings + known
    found = check_entries(entries, batches, base_offset)
    return findings + (found.without_stale() if is_padded(findings) else found).findings()


def _first_offset(batches: BatchTable) -> int:
    return int(batches["base_offset"][0]) if len(batches) else 0


def is_padded(findings: Iterable[Finding]) -> bool:
    """Return whether an index file is preallocated, by findings of `parse_index_file`."""
    return any(one.symbol == "PADDED" for one in findings)


@dataclass(frozen=True)
class WrongEntries:
    """
    Entries of an index with the same kind of error; at least one.

    A finding for each entry costs a hundred times as much as the check, and every entry of a
    forged index may be wrong, so findings are built for those that are shown.

    Attributes
    ----------
    entries : array of entries
        All entries of the index.
    rows : array of int
        The wrong ones, ascending.
    symbol, message : str
        Of a finding; the message has a placeholder for each field of an entry.
    """

    entries: IndexEntries
    rows: NDArray[np.intp]
    symbol: str
    message: str

    def findings(self) -> Iterator[Finding]:
        """Yield a finding for each of the first entries, and one for the remaining ones."""
        most = _MOST_LISTED if len(self.rows) > _MOST_LISTED + 1 else len(self.rows)
        for row in self.rows[:most].tolist():
            yield self._finding(row, 1)
        if most < len(self.rows):
            count = len(self.rows) - most
            more = f", and {count - 1} later entries are wrong in the same way"
            yield self._finding(int(self.rows[most]), count, more)

    def joined(self) -> Finding:
        """Return one finding about all of them, with the message of the first."""
        return self._finding(int(self.rows[0]), len(self.rows))

    def _finding(self, row: int, count: int, more: str = "") -> Finding:
        message = self.message.format(*self.entries[row].tolist()) + more
        position = row * self.entries.itemsize
        return Finding(self.symbol, Severity.ERROR, message, row, position, count=count)


@dataclass(frozen=True)
class EntryChecks:
    """
    The result of comparing the entries of an index with batches.

    Attributes
    ----------
    entries : array of entries
    wrong : list of WrongEntries
    notes : list of Finding
        Findings about the index, not about an entry.
    """

    entries: IndexEntries
    wrong: list[WrongEntries]
    notes: list[Finding]

    def findings(self) -> list[Finding]:
        """Return findings, of each kind of error the first ones and one for the others."""
        return [one for wrong in self.wrong for one in wrong.findings()] + self.notes

    def joined(self) -> list[Finding]:
        """Return one finding for each kind of error, and the notes."""
        return [wrong.joined() for wrong in self.wrong] + self.notes

    def without_stale(self) -> EntryChecks:
        """
        Replace errors of the last entries of a preallocated index by one note.

        A truncation of the log moves the end of a mapped index
        (``AbstractIndex.truncateToEntries0``) and leaves the entries after it in the file, until
        new entries replace them.
        """
        if len(self.entries) - 1 not in (int(one.rows[-1]) for one in self.wrong):
            return self
        first = min(int(one.rows[0]) for one in self.wrong)
        count = len(self.entries) - first
        message = f"{count} entries are left from before a truncation of the log"
        position = first * self.entries.itemsize
        stale = Finding("STALE", Severity.NOTE, message, first, position)
        return EntryChecks(self.entries, [], [stale, *self.notes])


def check_entries(entries: IndexEntries, batches: BatchTable, base_offset: int) -> EntryChecks:
    """Compare entries with the batches of their segment."""
    notes: list[Finding] = []
    if entries.dtype == OFFSET_INDEX_ENTRY:
        wrong = _check_offsets(entries, batches, base_offset)
    elif entries.dtype == TIME_INDEX_ENTRY:
        wrong = _check_times(entries, batches, base_offset)
        latest = int(batches["max_timestamp"].max()) if len(batches) else -1
        notes = list(_incomplete(entries, latest)) if len(batches) else []
    elif entries.dtype == TRANSACTION_INDEX_ENTRY:
        wrong = _check_transactions(entries, batches)
    else:
        raise TypeError(f"not a dtype of index entries: {entries.dtype}")
    found = [
        WrongEntries(entries, np.flatnonzero(is_wrong), symbol, message)
        for is_wrong, symbol, message in wrong
        if is_wrong.any()
    ]
    return EntryChecks(entries, found, notes)


class IndexScreen:
    """
    Screens the indexes of a segment for errors, one table of batches after another.

    Parameters
    ----------
    indexes : dict of str to array
        Entries by ``index`` and ``timeindex``.
    base_offset : int
        Of the segment.
    """

    def __init__(self, indexes: Mapping[str, IndexEntries], base_offset: int) -> None:
        self._times = indexes.get("timeindex")
        entries = indexes.get("index"), self._times
        self._offset_bytes, self._time_bytes = (
            _NO_BYTES if one is None else one.view(np.uint8) for one in entries
        )
        self._base_offset = base_offset
        self._progress = np.zeros(_core.PROGRESS_SIZE, np.int64)
        self._progress[:2] = -1
        self._are_offsets_right, self._are_times_right, self._latest = True, True, -1
        self.add(np.empty(0, BATCH_DTYPE))

    def add(self, batches: BatchTable) -> None:
        """Compare the next batches."""
        self._are_offsets_right, self._are_times_right, self._latest = _core.screen_entries(
            batches, self._offset_bytes, self._time_bytes, self._base_offset, self._progress
        )

    def findings(self, kind: str) -> list[Finding] | None:
        """Return the findings; None if only `check_entries` can determine them."""
        if kind == "index":
            return [] if self._are_offsets_right else None
        if self._times is None or not self._are_times_right:
            return None
        return list(_incomplete(self._times, self._latest))


def parse_index_file(
    data: bytes, path: str | os.PathLike[str]
) -> tuple[IndexEntries, list[Finding]]:
    """Return the entries of an index file, and findings about its size."""
    size = len(data)
    try:
        entries = parse_index(data, path)
    except CorruptIndexError as error:
        if error.symbol == UNKNOWN_INDEX_LAYOUT:
            return entries_of(path, b""), [
                Finding(error.symbol, Severity.WARNING, error.reason, None, error.position)
            ]
        if error.symbol != "ODD_INDEX_SIZE":
            raise
        entries = entries_of(path, data[: error.position])
        finding = Finding(error.symbol, Severity.ERROR, error.reason, None, error.position)
        return entries, [finding]
    if entries.nbytes < size - size % entries.itemsize:
        message = f"{size - entries.nbytes} bytes of zeros follow the last entry"
        return entries, [Finding("PADDED", Severity.NOTE, message, None, entries.nbytes)]
    return entries, []


_Error: TypeAlias = "tuple[NDArray[np.bool_], str, str]"
"""Which entries are wrong, and the symbol and message of `WrongEntries`."""


def _not_ascending(values: NDArray[np.int64]) -> NDArray[np.bool_]:
    return np.diff(values, prepend=np.int64(-1)) <= 0


def _check_offsets(
    entries: IndexEntries, batches: BatchTable, base_offset: int
) -> Iterator[_Error]:
    offsets = entries["relative_offset"].astype(np.int64) + base_offset
    positions = entries["position"].astype(np.int64)
    starts, ends = batches["position"], last_offset(batches)
    log_size = int((starts + size_in_bytes(batches)).max()) if len(batches) else 0
    out_of_order = _not_ascending(offsets - base_offset)
    out_of_order |= _not_ascending(positions)
    too_large = positions >= log_size
    row = np.searchsorted(starts, positions)
    is_start = _take_or(starts, row, -1) == positions
    missed = _take_or(np.maximum.accumulate(ends), row - 1, -1) >= offsets
    is_known = (offsets >= _take_or(batches["base_offset"], row, 0)) & np.isin(
        offsets, np.concatenate([ends, batches["base_offset"]])
    )
    yield out_of_order, "OUT_OF_ORDER", "offset +{0} follows a larger offset"
    yield (too_large, "TOO_LARGE", f"position {{1}} is after the end of the log, {log_size} bytes")
    yield (~too_large & ~is_start, "WRONG_POSITION", "no batch starts at position {1} of the log")
    yield (
        ~too_large & is_start & missed,
        "WRONG_POSITION",
        "offset +{0} is in a batch before position {1} of the log",
    )
    yield (
        ~too_large & is_start & ~missed & ~is_known,
        "OFFSET_NOT_IN_LOG",
        "no batch starts or ends with offset +{0}",
    )


def _take_or(values: NDArray[np.int64], rows: NDArray[np.intp], default: int) -> NDArray[np.int64]:
    """Return values at rows, and a default where there is no such row."""
    is_row = (rows >= 0) & (rows < len(values))
    found = np.full(len(rows), default, np.int64)
    found[is_row] = values[rows[is_row]]
    return found


def _check_times(entries: IndexEntries, batches: BatchTable, base_offset: int) -> Iterator[_Error]:
    timestamps = entries["timestamp"].astype(np.int64)
    offsets = entries["relative_offset"].astype(np.int64) + base_offset
    ends, latest = last_offset(batches), batches["max_timestamp"].astype(np.int64)
    so_far = np.maximum.accumulate(latest) if len(batches) else latest
    out_of_order = _not_ascending(timestamps)
    out_of_order |= np.diff(offsets, prepend=np.int64(base_offset)) < 0
    row = np.searchsorted(np.maximum.accumulate(ends) if len(ends) else ends, offsets)
    is_missing = row >= len(batches)
    differs = _take_or(latest, row, -1) != timestamps
    is_late = _take_or(so_far, row - 1, -1) >= timestamps
    yield out_of_order, "OUT_OF_ORDER", "timestamp {0} or offset +{1} follows a larger value"
    yield is_missing, "OFFSET_NOT_IN_LOG", "offset +{1} is after the end of the log"
    yield (
        ~is_missing & differs,
        "TIMESTAMP_MISMATCH",
        "the latest timestamp of the batch with offset +{1} is not {0}",
    )
    yield (
        ~is_missing & ~differs & is_late,
        "TIMESTAMP_MISMATCH",
        "a batch before offset +{1} already has timestamp {0} or a later one",
    )


def _incomplete(entries: IndexEntries, latest: int) -> Iterator[Finding]:
    if latest > (int(entries["timestamp"][-1]) if len(entries) else -1):
        message = f"the latest timestamp of the log, {latest}, is missing"
        yield Finding("INCOMPLETE", Severity.NOTE, message, None, entries.nbytes)


def _check_transactions(entries: IndexEntries, batches: BatchTable) -> Iterator[_Error]:
    markers = batches[is_control(batches) & (batches["producer_id"] >= 0)]
    ends = entries["last_offset"].astype(np.int64)
    row = np.searchsorted(markers["base_offset"], ends)
    is_there = _take_or(markers["base_offset"], row, -1) == ends
    differs = _take_or(markers["producer_id"], row, -1) != entries["producer_id"]
    yield _not_ascending(ends), "OUT_OF_ORDER", "offset {3} follows a larger offset"
    yield ~is_there, "OFFSET_NOT_IN_LOG", "no marker has offset {3}"
    yield (
        is_there & differs,
        "PRODUCER_MISMATCH",
        "the marker with offset {3} does not belong to producer {1}",
    )
