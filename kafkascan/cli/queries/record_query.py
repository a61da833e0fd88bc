"""Conditions on records, and the records of segment files that meet them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import kafkascan as ks
from kafkascan.batches.columns import BatchTable
from kafkascan.cli.inputs import SEGMENT_FIELDS, InputCursor, SegmentInput
from kafkascan.cli.queries.following import Followed, follow
from kafkascan.cli.queries.row_selection import last_rows
from kafkascan.cli.run import FindingReport, Run, scan, scan_to_read
from kafkascan.logs.log_problems import SegmentOffsets
from kafkascan.logs.reading import Isolation
from kafkascan.records.record_table import RecordTable


@dataclass(frozen=True)
class RecordQuery:
    """Conditions on records, and the columns to read; None means no limit."""

    columns: tuple[str, ...]
    control: Any
    from_offset: int | None
    to_offset: int | None
    from_time: int | None
    to_time: int | None
    key: bytes | None
    grep: re.Pattern[bytes] | None
    isolation: Isolation
    verify: bool
    max_decompressed_size: int
    decodes: bool

    def from_start(self, offset: int) -> RecordQuery:
        """Return the conditions on the records of a log that starts at an offset."""
        if offset <= max(0, self.from_offset or 0):
            return self
        return replace(self, from_offset=offset)

    def select_batches(self, table: BatchTable) -> BatchTable:
        """Return the batches that may contain records that meet the conditions."""
        mask = ks.batches.select_offsets(table, self.from_offset, None)
        mask &= ks.batches.select_times(table, self.from_time, None)
        if self.to_offset is not None:
            # The header of a compressed message of magic 0 or 1 contains its last offset only.
            mask &= (table["base_offset"] < self.to_offset) | (table["records_count"] < 0)
        return table if mask.all() else table.take(np.flatnonzero(mask))

    def select_records(self, table: RecordTable) -> RecordTable:
        """Return the records that meet the conditions."""
        mask = np.ones(len(table), np.bool_)
        for name, start, stop in (
            ("offset", self.from_offset, self.to_offset),
            ("timestamp", self.from_time, self.to_time),
        ):
            if start is not None:
                mask &= table[name] >= start
            if stop is not None:
                mask &= table[name] < stop
        if self.key is not None:
            mask &= table["key_size"] == len(self.key)
            candidates = np.flatnonzero(mask)
            mask[candidates] = [key == self.key for key in table[candidates].items("key")]
        if self.grep is not None:
            candidates = np.flatnonzero(mask)
            mask[candidates] = self._matches(table[candidates], self.grep)
        return table if mask.all() else table[mask]

    @staticmethod
    def _matches(table: RecordTable, pattern: re.Pattern[bytes]) -> list[bool]:
        return [
            any(item is not None and pattern.search(item) for item in (key, value))
            for key, value in zip(table.items("key"), table.items("value"), strict=True)
        ]

    @property
    def selects_batches(self) -> bool:
        """Whether there are batches whose records need not be read."""
        bounds = self.from_offset, self.to_offset, self.from_time, self.to_time
        return any(bound is not None for bound in bounds)

    @property
    def selects_all(self) -> bool:
        """Whether all records of clients meet the conditions."""
        return (
            not self.selects_batches
            and self.key is None
            and self.grep is None
            and self.isolation == "read_uncommitted"
            and self.control != "only"
        )

    @property
    def read_columns(self) -> list[str]:
        """The columns to read: those that are shown, and those of the conditions."""
        labels = {one.name for one in SEGMENT_FIELDS}
        shown = [name for name in self.columns if name not in labels]
        needed = ["offset", "timestamp", *(["key"] if self.key is not None else [])]
        # A control record is decoded from both.
        if self.control != "skip" or self.grep is not None or self.decodes:
            needed += ["key", "value"]
        if self.decodes:
            needed.append("is_control")
        return list(dict.fromkeys((*shown, *needed)))


Found = Iterator[tuple[SegmentInput, RecordTable]]


def select_records(run: Run, inputs: Sequence[SegmentInput], query: RecordQuery) -> Found:
    """Yield the records that meet the conditions; a batch that cannot be read is a finding."""
    visible = _Visibility(query.isolation)

    def read(
        wanted: RecordQuery, offsets: SegmentOffsets, source: ks.Source, report: FindingReport
    ) -> Iterator[RecordTable]:
        begin = scan if wanted.selects_batches else scan_to_read
        for batches in report.tables(source, begin(source, one.start_position), offsets):
            selected_batches = visible.select(one, source, wanted.select_batches(batches), report)
            for table in _read_batches(source, selected_batches, wanted, report):
                selected = wanted.select_records(table)
                if len(selected):
                    yield selected

    cursor = InputCursor()
    for one in inputs:
        wanted, offsets = query.from_start(cursor.start_of(one)), SegmentOffsets(one.segment)
        for table in run.stream(one, partial(read, wanted, offsets)):
            yield one, table
        run.print_problems(cursor.add(one, offsets))
    run.print_problems(cursor.finish())


class _Visibility:
    """
    Selects the batches that a consumer sees; the transactions of each log are read once.

    Parameters
    ----------
    isolation : str
    """

    def __init__(self, isolation: Isolation) -> None:
        self._is_committed = isolation == "read_committed"
        self._views: dict[Path, ks.logs.CommittedView] = {}

    def select(
        self, one: SegmentInput, source: ks.Source, batches: BatchTable, report: FindingReport
    ) -> BatchTable:
        """Return the visible batches of a segment."""
        if not self._is_committed or not len(batches):
            return batches
        path = one.partition.path if one.is_served else one.path
        if path not in self._views:
            log = one.partition if one.is_served else source
            self._views[path] = ks.logs.read_committed_view(log, on_corrupt="stop")
            report.add_problems(self._views[path].problems)
        return batches[self._views[path].mask(batches)]


def _read_batches(
    source: ks.Source, batches: BatchTable, query: RecordQuery, report: FindingReport
) -> Iterator[RecordTable]:
    return ks.iter_records(
        source,
        batches,
        columns=query.read_columns,
        control=query.control,
        verify=query.verify,
        max_decompressed_size=query.max_decompressed_size,
        batch_size=8192,
        on_damage=lambda error: report.add(str(error)),
    )


def reporting_none(run: Run, found: Found, key: str) -> Found:
    """Yield the records with a key; if there are none, that is a finding."""
    is_empty = True
    for one, table in found:
        is_empty = False
        yield one, table
    if is_empty:
        report = FindingReport()
        report.add(f"no selected record has the key {key!r} [KEY_NOT_FOUND]")
        run.print_report(report)


def follow_records(
    run: Run, inputs: Sequence[SegmentInput], query: RecordQuery, tail: int | None
) -> Found:
    """
    Yield the records that meet the conditions, and those that are appended, until a signal arrives.

    Parameters
    ----------
    run : Run
    inputs : sequence of SegmentInput
    query : RecordQuery
    tail : int or None
        Of the records that there are now, yield only the last ones.
    """
    is_committed = query.isolation == "read_committed"
    for number, batches in enumerate(follow(run, inputs, is_committed=is_committed)):
        report = FindingReport()
        found = _followed_records(batches, query, report)
        yield from found if tail is None or number else last_rows(found, tail)
        run.print_report(report)


def _followed_records(batches: Followed, query: RecordQuery, report: FindingReport) -> Found:
    for one, followed in batches:
        wanted = query.from_start(one.start_offset)
        selected_batches = wanted.select_batches(followed.batches)
        for table in _read_batches(followed.source, selected_batches, wanted, report):
            selected = wanted.select_records(table)
            if len(selected):
                yield one, selected
