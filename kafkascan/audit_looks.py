"""What an audit finds out of a segment while it is open: checksums, indexes, records."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafkascan.batch_columns import BatchTable, is_control, join_tables
from kafkascan.checks import verify_rows
from kafkascan.decoding import iter_decoded
from kafkascan.errors import CorruptIndexError
from kafkascan.findings import Finding, Severity
from kafkascan.index_checks import index_findings, parse_index_file
from kafkascan.layout import TRANSACTION_INDEX_ENTRY, ScanEnd
from kafkascan.log_chunks import SegmentEnd
from kafkascan.log_dir import SegmentFile
from kafkascan.logs import ControlLook
from kafkascan.sources import Source
from kafkascan.transactions import MARKER, NO_RECORD, ControlRows, read_control_rows

_INDEXES = ("index", "timeindex", "txnindex")


class Counted(NamedTuple):
    """Findings of one kind: the first of them, and how many there are."""

    finding: Finding
    times: int


@dataclass(frozen=True, eq=False)
class TableLook(ControlLook):
    """
    What is found of each table of batches.

    Attributes
    ----------
    is_bad : ndarray of bool, or None
        Whose checksum is wrong; None if none is.
    wrong_times : list of (int, int)
        Rows whose latest timestamp is not that of their records, and what that is.
    unreadable : list of (int, str)
        Rows whose records cannot be read, and why.
    tombstones : int
    """

    is_bad: NDArray[np.bool_] | None = None
    wrong_times: list[tuple[int, int]] = field(default_factory=list)
    unreadable: list[tuple[int, str]] = field(default_factory=list)
    tombstones: int = 0


@dataclass(frozen=True, eq=False)
class EndLook:
    """
    What is found when all of a segment has been read.

    Attributes
    ----------
    of_indexes : list of (str, Counted)
        By the name of the file.
    aborted : ndarray of TRANSACTION_INDEX_ENTRY
        What the ``.txnindex`` file says; None if it cannot be read.
    """

    of_indexes: list[tuple[str, Counted]]
    aborted: NDArray[np.void] | None


class AuditLooks:
    """
    Looks at a segment while it is open; a `SegmentLook`.

    Parameters
    ----------
    segment : SegmentFile
    verify : bool
        Whether to compare checksums.
    deep : bool
        Whether to decode records.
    """

    def __init__(self, segment: SegmentFile, *, verify: bool, deep: bool) -> None:
        self._segment = segment
        self._siblings = [segment.read_sibling(kind) for kind in _INDEXES]
        self._verify = verify
        self._deep = deep
        self._tables: list[BatchTable] = []

    def open(self, source: Source) -> None:
        """Take the segment's bytes."""
        self._source = source

    def table(self, batches: BatchTable) -> TableLook:
        """Look at the batches that follow."""
        if any(self._siblings):
            self._tables.append(batches)
        is_bad = None
        if self._verify:
            verdicts = verify_rows(self._source, batches)
            is_bad = None if verdicts.all() else ~verdicts
        control = self._control(batches, is_bad)
        if not self._deep:
            return TableLook(control, is_bad)
        return self._look_into(batches, control, is_bad)

    def _control(self, batches: BatchTable, is_bad: NDArray[np.bool_] | None) -> ControlRows:
        """Read control batches; one that is damaged says nothing."""
        if is_bad is None:
            return read_control_rows(self._source, batches)
        whole = np.flatnonzero(~is_bad)
        control = read_control_rows(self._source, batches.take(whole))
        rows = np.flatnonzero(is_control(batches) & (batches["producer_id"] >= 0))
        markers = np.zeros(len(rows), MARKER)
        markers["kind"] = NO_RECORD
        at = np.searchsorted(rows, whole[control.rows])
        markers[at] = control.markers
        return ControlRows(rows, markers, {int(at[n]): e for n, e in control.errors.items()})

    def _look_into(
        self, batches: BatchTable, control: ControlRows, is_bad: NDArray[np.bool_] | None
    ) -> TableLook:
        row_at = dict(zip(batches["position"].tolist(), range(len(batches)), strict=True))
        unreadable: list[tuple[int, str]] = []
        wrong_times: list[tuple[int, int]] = []
        tombstones = 0
        whole = batches if is_bad is None else batches.take(np.flatnonzero(~is_bad))
        for table in iter_decoded(
            self._source,
            whole,
            columns=("timestamp", "value"),
            control="include",
            on_damage=lambda error: unreadable.append((row_at[error.position], error.reason)),
        ):
            batch, timestamp = table.columns["batch"], table.columns["timestamp"]
            first = np.flatnonzero(np.diff(batch, prepend=np.int32(-1)))
            latest = np.maximum.reduceat(timestamp, first)
            said = table.batches.take(batch[first])
            differs = np.flatnonzero((latest != said["max_timestamp"]) & (said["magic"] > 0))
            wrong_times += [
                (row_at[position], time)
                for position, time in zip(
                    said["position"][differs].tolist(), latest[differs].tolist(), strict=True
                )
            ]
            tombstones += int((table.columns["value_size"] < 0).sum())
        return TableLook(control, is_bad, wrong_times, unreadable, tombstones)

    def end(self, end: SegmentEnd) -> EndLook:
        """Hold the indexes against the batches."""
        tables, self._tables = self._tables, []
        look = EndLook([], np.empty(0, TRANSACTION_INDEX_ENTRY))
        if not any(self._siblings):
            return look
        is_whole = end.end is not ScanEnd.CORRUPT and end.error is None
        batches = join_tables(tables) if is_whole else None
        for kind, sibling in zip(_INDEXES, self._siblings, strict=True):
            if sibling is not None:
                entries = self._check(*sibling, batches, look.of_indexes)
                if kind == "txnindex":
                    look = EndLook(look.of_indexes, entries)
        return look

    def _check(
        self, path: Path, data: bytes, batches: BatchTable | None, found: list[tuple[str, Counted]]
    ) -> NDArray[np.void] | None:
        """Check one index; returns its entries, None if they cannot be read."""
        try:
            entries, odd = parse_index_file(data, path)
        except CorruptIndexError as error:
            unreadable = Finding(error.symbol, Severity.ERROR, error.reason, None, error.position)
            found.append((path.name, Counted(unreadable, 1)))
            return None
        more: Iterator[Finding] = iter(())
        if batches is not None:
            more = index_findings(entries, batches, self._segment.name.base_offset or 0)
        found += [(path.name, one) for one in _counted(itertools.chain(odd, more))]
        return entries


def _counted(findings: Iterator[Finding]) -> list[Counted]:
    """Keep the first finding of each kind: a file of garbage has a million."""
    first: dict[str, Finding] = {}
    counts: dict[str, int] = {}
    for one in findings:
        first.setdefault(one.symbol, one)
        counts[one.symbol] = counts.get(one.symbol, 0) + 1
    return [Counted(finding, counts[symbol]) for symbol, finding in first.items()]
