"""Audit checks that need a segment's bytes: checksums, index entries, control records."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from kafkascan.auditing.header_checks import Limits, screen_headers
from kafkascan.batches.collecting import collect
from kafkascan.batches.columns import BatchTable, is_control, join_tables, last_offset
from kafkascan.batches.verify import verify_rows
from kafkascan.batches.walks import BatchWalk
from kafkascan.broker_state.index_checks import (
    IndexScreen,
    check_entries,
    is_padded,
    parse_index_file,
)
from kafkascan.broker_state.indexes import IndexEntries
from kafkascan.broker_state.markers import (
    MARKER,
    NO_RECORD,
    ControlRows,
    read_control_rows,
)
from kafkascan.format.errors import CorruptIndexError, KafkaScanError
from kafkascan.format.findings import Finding, Severity
from kafkascan.format.layout import TRANSACTION_INDEX_ENTRY
from kafkascan.io.sources import Source
from kafkascan.logs.segment import SegmentFile
from kafkascan.logs.walking.log_walk import ScreenedTable
from kafkascan.records.decoding import iter_decoded
from kafkascan.records.read_options import ReadOptions
from kafkascan.records.record_table import RecordTable

_INDEXES = ("index", "timeindex", "txnindex")


@dataclass(eq=False)
class TableChecks(ScreenedTable):
    """
    Results for one table of batches.

    Attributes
    ----------
    is_bad : ndarray of bool, or None
        Whether a batch's checksum is wrong; None if all are right.
    of_records : list of (str, int, str)
        Symbols of findings about records, the rows of their batches, and messages.
    tombstones : int
        Number of records without a value.
    """

    is_bad: NDArray[np.bool_] | None = None
    of_records: Sequence[tuple[str, int, str]] = ()
    tombstones: int = 0


@dataclass(eq=False)
class SegmentChecks:
    """
    Results for a whole segment.

    Attributes
    ----------
    of_indexes : list of (str, Finding)
        File names and findings.
    aborted : ndarray of TRANSACTION_INDEX_ENTRY, or None
        Entries of the ``.txnindex`` file; None if it cannot be read.
    """

    of_indexes: list[tuple[str, Finding]]
    aborted: NDArray[np.void] | None


@dataclass
class SegmentIndexes:
    """
    The index files of a segment.

    Attributes
    ----------
    entries : dict of str to array
        By kind, of the files that can be read.
    found : list of (str, Finding)
        File names, and what is wrong with the files by themselves.
    aborted : ndarray of TRANSACTION_INDEX_ENTRY, or None
        Entries of the ``.txnindex`` file; None if it cannot be read.
    """

    entries: dict[str, IndexEntries] = field(default_factory=dict)
    found: list[tuple[str, Finding]] = field(default_factory=list)
    aborted: NDArray[np.void] | None = field(
        default_factory=lambda: np.empty(0, TRANSACTION_INDEX_ENTRY)
    )


def read_indexes(segment: SegmentFile, names: Collection[str]) -> SegmentIndexes:
    """
    Read the index files of a segment.

    They must be read before the segment: a broker appends to the log first.

    Parameters
    ----------
    segment : SegmentFile
    names : collection of str
        Names of the files in its folder.
    """
    indexes = SegmentIndexes()
    prefix = segment.file_name.removesuffix(".log")
    for kind in _INDEXES:
        name = f"{prefix}.{kind}"
        if name not in names:
            continue
        entries: IndexEntries | None = None
        try:
            data = segment.folder.read(name)
            if data is None:
                continue
            entries, odd = parse_index_file(data, os.path.join(segment.folder.path, name))
            indexes.entries[kind] = entries
        except CorruptIndexError as error:
            odd = [Finding(error.symbol, Severity.ERROR, error.reason, None, error.position)]
        except OSError as error:
            odd = [Finding("UNREADABLE", Severity.ERROR, str(error))]
        indexes.found += [(name, one) for one in odd]
        if kind == "txnindex":
            indexes.aborted = entries
    return indexes


class AuditInspector:
    """
    Checks a segment while it is open; a `SegmentInspector`.

    Parameters
    ----------
    segment : SegmentFile
    indexes : SegmentIndexes
    limits : Limits
    largest : int
        Size above which a batch is a finding.
    verify : bool
        Whether to compare checksums.
    deep : bool
        Whether to decode records.
    """

    def __init__(
        self,
        segment: SegmentFile,
        indexes: SegmentIndexes,
        limits: Limits,
        largest: int,
        *,
        verify: bool,
        deep: bool,
    ) -> None:
        self._segment = segment
        self._indexes = indexes
        entries = indexes.entries
        self._screen = IndexScreen(entries, segment.base_offset or 0) if entries else None
        self._markers: list[BatchTable] = []
        self._limits = limits
        self._largest = largest
        self._verify = verify
        self._deep = deep
        self.reads_content = verify or deep
        self.reads_side_files = True

    def open(self, source: Source) -> None:
        """Take the source of the segment."""
        self._source = source

    def table(self, batches: BatchTable) -> TableChecks:
        """Check the next batches."""
        flags = screen_headers(batches, self._limits, self._largest)
        if self._screen is not None:
            self._screen.add(batches)
        is_bad = None
        if self._verify:
            verdicts = verify_rows(self._source, batches)
            is_bad = None if verdicts.all() else ~verdicts
        control = self._control(batches, flags, is_bad)
        if "txnindex" in self._indexes.entries:
            self._markers.append(batches.take(control.rows))
        if not self._deep:
            return TableChecks(flags, control, is_bad)
        return self._check_records(batches, flags, control, is_bad)

    def _control(
        self, batches: BatchTable, flags: int, is_bad: NDArray[np.bool_] | None
    ) -> ControlRows:
        """Read control batches; damaged ones have no contents."""
        if is_bad is None:
            return read_control_rows(self._source, batches, flags)
        intact = np.flatnonzero(~is_bad)
        control = read_control_rows(self._source, batches.take(intact))
        rows = np.flatnonzero(is_control(batches) & (batches["producer_id"] >= 0))
        markers = np.zeros(len(rows), MARKER)
        markers["kind"] = NO_RECORD
        at = np.searchsorted(rows, intact[control.rows])
        markers[at] = control.markers
        return ControlRows(rows, markers, {int(at[n]): e for n, e in control.errors.items()})

    def _check_records(
        self,
        batches: BatchTable,
        flags: int,
        control: ControlRows,
        is_bad: NDArray[np.bool_] | None,
    ) -> TableChecks:
        row_at = dict(zip(batches["position"].tolist(), range(len(batches)), strict=True))
        unreadable: list[tuple[str, int, str]] = []
        wrong_times: list[tuple[str, int, str]] = []
        wrong_offsets: list[tuple[str, int, str]] = []
        tombstones = 0
        intact = batches if is_bad is None else batches.take(np.flatnonzero(~is_bad))
        options = ReadOptions(
            columns=("offset", "timestamp", "value"),
            control="include",
            on_damage=lambda error: unreadable.append(
                ("BAD_RECORDS", row_at[error.position], error.reason)
            ),
        )
        for table in iter_decoded(self._source, intact, options):
            positions = table.batches["position"]
            for one, message in _wrong_times(table):
                wrong_times.append(("MAX_TIMESTAMP_MISMATCH", row_at[positions[one]], message))
            for one, message in _wrong_offsets(table):
                wrong_offsets.append(("RECORD_OFFSETS", row_at[positions[one]], message))
            tombstones += int((table.columns["value_size"] < 0).sum())
        of_records = wrong_times + wrong_offsets + unreadable
        return TableChecks(flags, control, is_bad, of_records, tombstones)

    def end(self, *, is_whole: bool) -> SegmentChecks:
        """Check the indexes."""
        found = list(self._indexes.found)
        if is_whole and self._screen is not None:
            try:
                found += self._check_indexes(self._screen)
            except (OSError, KafkaScanError) as error:  # the file changed since it was read
                finding = Finding("UNREADABLE", Severity.ERROR, str(error))
                found.append((self._segment.file_name, finding))
        return SegmentChecks(found, self._indexes.aborted)

    def _check_indexes(self, screen: IndexScreen) -> list[tuple[str, Finding]]:
        base_offset = self._segment.base_offset or 0
        batches: BatchTable | None = None
        result = []
        for kind, entries in self._indexes.entries.items():
            name = self._segment.file_name.removesuffix("log") + kind
            if kind == "txnindex":
                markers = join_tables(self._markers)
                found = check_entries(entries, markers, base_offset).joined()
            elif (known := screen.findings(kind)) is not None:
                found = known
            else:
                if batches is None:  # read all headers once more
                    batches = collect(BatchWalk(self._source, 0, self._source.size))
                checks = check_entries(entries, batches, base_offset)
                if is_padded(one for file, one in self._indexes.found if file == name):
                    checks = checks.without_stale()
                found = checks.joined()
            result += [(name, one) for one in _count_by_kind(found)]
        return result


def _wrong_times(table: RecordTable) -> Iterator[tuple[int, str]]:
    """Yield batches whose latest timestamp is not that of their records, with messages."""
    batch, timestamp = table.columns["batch"], table.columns["timestamp"]
    first = np.flatnonzero(np.diff(batch, prepend=np.int32(-1)))
    latest = np.maximum.reduceat(timestamp, first)
    read = table.batches.take(batch[first])
    differs = np.flatnonzero((latest != read["max_timestamp"]) & (read["magic"] >= 1))
    for row in differs.tolist():
        stored = read["max_timestamp"][row]
        message = f"the latest timestamp is {latest[row]}, but max_timestamp is {stored}"
        yield int(batch[first[row]]), message


def _wrong_offsets(table: RecordTable) -> Iterator[tuple[int, str]]:
    """Yield batches with offsets that do not ascend, or are not in the batch, with messages."""
    batch, offset = table.columns["batch"], table.columns["offset"]
    is_wrong = offset > last_offset(table.batches)[batch]
    is_wrong[1:] |= (batch[1:] == batch[:-1]) & (offset[1:] <= offset[:-1])
    # The stored offset of a message of magic 0 or 1 is that of its last record.
    has_first = (table.batches["magic"] >= 2)[batch]
    is_wrong |= has_first & (offset < table.batches["base_offset"][batch])
    rows = np.flatnonzero(is_wrong)
    of_batch, first = np.unique(batch[rows], return_index=True)
    for row, wrong in zip(of_batch.tolist(), offset[rows[first]].tolist(), strict=True):
        yield row, f"offset {wrong} of a record does not ascend, or is not in the batch"


def _count_by_kind(findings: list[Finding]) -> list[Finding]:
    """Return the first finding of each kind, with the number of all."""
    first: dict[str, Finding] = {}
    for one in findings:
        known = first.get(one.symbol)
        first[one.symbol] = one if known is None else replace(known, count=known.count + one.count)
    return list(first.values())
