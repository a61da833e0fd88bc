"""What an audit finds out of a segment while it is open: checksums, indexes, records."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafkascan.audit_batches import Limits
from kafkascan.batch_columns import BatchTable, is_control, join_tables
from kafkascan.checks import verify_rows
from kafkascan.decoding import iter_decoded
from kafkascan.errors import CorruptIndexError, KafkaScanError
from kafkascan.findings import Finding, Severity
from kafkascan.index_checks import IndexScreen, index_findings, parse_index_file
from kafkascan.indexes import IndexEntries
from kafkascan.layout import TRANSACTION_INDEX_ENTRY
from kafkascan.log_dir import SegmentFile
from kafkascan.logs import ControlLook
from kafkascan.screening import screen
from kafkascan.sources import Source
from kafkascan.transactions import (
    MARKER,
    NO_RECORD,
    ControlRows,
    read_control_rows,
)
from kafkascan.walks import BatchWalk, collect

_INDEXES = ("index", "timeindex", "txnindex")
_NONE_ABORTED: NDArray[np.void] | None = np.empty(0, TRANSACTION_INDEX_ENTRY)


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
    names : collection of str
        Of the files in its folder.
    limits : Limits
    verify : bool
        Whether to compare checksums.
    deep : bool
        Whether to decode records.
    """

    def __init__(
        self,
        segment: SegmentFile,
        names: Collection[str],
        limits: Limits,
        *,
        verify: bool,
        deep: bool,
    ) -> None:
        self._segment = segment
        self._found: list[tuple[str, Counted]] = []
        self._indexes: dict[str, IndexEntries] = {}
        self._has_transactions = True  # that can be told
        prefix = segment.path.name.removesuffix(".log")
        for kind in _INDEXES:
            if f"{prefix}.{kind}" in names:
                self._read(kind, f"{prefix}.{kind}")
        base_offset = segment.name.base_offset or 0
        self._screen = IndexScreen(self._indexes, base_offset) if self._indexes else None
        self._markers: list[BatchTable] = []
        self._limits = limits
        self._verify = verify
        self._deep = deep

    def _read(self, kind: str, name: str) -> None:
        """Read an index: before the log, of which it speaks."""
        try:
            data = self._segment.folder.read(name)
            if data is not None:
                path = self._segment.path.with_name(name)
                self._indexes[kind], odd = parse_index_file(data, path)
                self._found += [(name, Counted(one, 1)) for one in odd]
            return
        except CorruptIndexError as error:
            finding = Finding(error.symbol, Severity.ERROR, error.reason, None, error.position)
        except OSError as error:
            finding = Finding("UNREADABLE", Severity.ERROR, str(error), None, None)
        self._found.append((name, Counted(finding, 1)))
        self._has_transactions &= kind != "txnindex"

    def open(self, source: Source) -> None:
        """Take the segment's bytes."""
        self._source = source

    def table(self, batches: BatchTable) -> TableLook:
        """Look at the batches that follow."""
        limits = self._limits
        flags = screen(
            batches,
            earliest=limits.earliest_ms,
            latest=limits.now_ms + limits.future_ms,
            largest=limits.largest_batch,
        )
        if self._screen is not None:
            self._screen.add(batches)
        is_bad = None
        if self._verify:
            verdicts = verify_rows(self._source, batches)
            is_bad = None if verdicts.all() else ~verdicts
        control = self._control(batches, flags, is_bad)
        if "txnindex" in self._indexes:
            self._markers.append(batches.take(control.rows))
        if not self._deep:
            return TableLook(flags, control, is_bad)
        return self._look_into(batches, flags, control, is_bad)

    def _control(
        self, batches: BatchTable, flags: int, is_bad: NDArray[np.bool_] | None
    ) -> ControlRows:
        """Read control batches; one that is damaged says nothing."""
        if is_bad is None:
            return read_control_rows(self._source, batches, flags)
        whole = np.flatnonzero(~is_bad)
        control = read_control_rows(self._source, batches.take(whole))
        rows = np.flatnonzero(is_control(batches) & (batches["producer_id"] >= 0))
        markers = np.zeros(len(rows), MARKER)
        markers["kind"] = NO_RECORD
        at = np.searchsorted(rows, whole[control.rows])
        markers[at] = control.markers
        return ControlRows(rows, markers, {int(at[n]): e for n, e in control.errors.items()})

    def _look_into(
        self,
        batches: BatchTable,
        flags: int,
        control: ControlRows,
        is_bad: NDArray[np.bool_] | None,
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
        return TableLook(flags, control, is_bad, wrong_times, unreadable, tombstones)

    def end(self, *, is_whole: bool) -> EndLook:
        """Say what is wrong with the indexes."""
        if is_whole and self._indexes:
            try:
                self._check_indexes()
            except (OSError, KafkaScanError) as error:  # it was read a moment ago
                finding = Finding("UNREADABLE", Severity.ERROR, str(error), None, None)
                self._found.append((self._segment.path.name, Counted(finding, 1)))
        aborted = self._indexes.get("txnindex", _NONE_ABORTED)
        return EndLook(self._found, aborted if self._has_transactions else None)

    def _check_indexes(self) -> None:
        assert self._screen is not None
        base_offset = self._segment.name.base_offset or 0
        batches: BatchTable | None = None
        for kind, entries in self._indexes.items():
            name = self._segment.path.name.removesuffix("log") + kind
            if kind == "txnindex":
                found = index_findings(entries, join_tables(self._markers), base_offset)
            elif (known := self._screen.findings(kind)) is not None:
                found = iter(known)
            else:
                if batches is None:  # the headers once more, all at once
                    batches = collect(BatchWalk(self._source, 0, self._source.size))
                found = index_findings(entries, batches, base_offset)
            self._found += [(name, one) for one in _counted(found)]


def _counted(findings: Iterator[Finding]) -> list[Counted]:
    """Keep the first finding of each kind: a file of garbage has a million."""
    first: dict[str, Finding] = {}
    counts: dict[str, int] = {}
    for one in findings:
        first.setdefault(one.symbol, one)
        counts[one.symbol] = counts.get(one.symbol, 0) + 1
    return [Counted(finding, counts[symbol]) for symbol, finding in first.items()]
