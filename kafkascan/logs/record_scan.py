"""Scan the records of a log that a condition selects and an isolation level makes visible."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kafkascan.batches.columns import BatchTable, is_control
from kafkascan.io.folders import SingleFileFolder
from kafkascan.io.source_protocols import PinnedFile
from kafkascan.io.sources import Source, SourceLike, borrowed_source
from kafkascan.io.stores.store_folders import UrlFolder
from kafkascan.io.stores.urls import ObjectUrl
from kafkascan.logs.log_dir import PartitionDir
from kafkascan.logs.log_finding import partition_of
from kafkascan.logs.log_problems import LogProblems
from kafkascan.logs.opened_logs import LogView
from kafkascan.logs.queries.conditions import (
    EVERY_RECORD,
    Comparison,
    Condition,
    Joined,
    Span,
    Spans,
    mask_batches,
    mask_records,
)
from kafkascan.logs.queries.record_matches import ANY_MATCH, RecordMatch, RecordSample
from kafkascan.logs.segment import SegmentFile, segment_at
from kafkascan.logs.walking.log_reader import every_segment
from kafkascan.logs.walking.log_reading import (
    iter_log,
    iter_source,
    last_table,
    read_log,
    read_source,
)
from kafkascan.records.read_options import ReadOptions, Visible
from kafkascan.records.record_table import RecordTable
from kafkascan.records.typed_items import ItemDecoding

if TYPE_CHECKING:
    from kafkascan.logs.queries.row_windows import FoundRows, Window
    from kafkascan.logs.queries.segment_inputs import SegmentInput
    from kafkascan.logs.read_committed import CommittedView

Isolation: TypeAlias = Literal["read_uncommitted", "read_committed"]
"""Kafka's ``isolation.level`` of consumers."""


@dataclass(frozen=True, kw_only=True)
class RecordScan:
    """
    A query on the records of a log, or of a source that is read by itself.

    The headers of segments whose offsets may fulfil the condition are read, and of these segments
    the batches of which the header does not rule the condition out.

    Parameters
    ----------
    options : ReadOptions
        Of a record reader, without `visible` and `wanted`.
    condition : Condition
        On ``topic``, ``partition``, ``offset``, ``timestamp`` and columns of the batch table; by
        default all records. Other columns decide nothing.
    is_exact : bool, default True
        Whether only records are returned whose ``offset`` and ``timestamp`` fulfil the condition.
        Otherwise, others of their batches are returned, too.
    match : RecordMatch
        What the records contain.
    sample : RecordSample, optional
        Those to return of the records that fulfil the condition and match. Without a match, other
        batches are not read.
    isolation : str
        See `read_records`.
    transactions : CommittedView, optional
        See `read_records`.
    typed : ItemDecoding, optional
        Decodes keys and values.
    """

    options: ReadOptions
    condition: Condition = EVERY_RECORD
    is_exact: bool = True
    match: RecordMatch = ANY_MATCH
    sample: RecordSample | None = None
    isolation: Isolation = "read_uncommitted"
    transactions: CommittedView | None = None
    typed: ItemDecoding | None = None

    @property
    def selects_all(self) -> bool:
        """Whether all records of clients are read."""
        return not (
            self.condition.columns
            or self.match.columns
            or self.sample is not None
            or self.isolation == "read_committed"
            or self.options.control == "only"
        )

    def may_select(self, partition: PartitionDir) -> bool:
        """Return False if topic and partition of a log rule the condition out."""
        return bool(self.condition.may_hold(_spans_of(partition)))

    def table(self, log: LogView) -> RecordTable:
        """Return the records of a log, with its problems."""
        problems = LogProblems()
        options = self.selecting(self.visible_in_log(log, problems), log.partition)
        return self._decoded(read_log(log, options, problems, self._is_read(log)), problems)

    def tables(self, log: LogView, window: Window | None = None) -> Iterator[RecordTable]:
        """
        Return tables of the records of a log, by default of all.

        If there are problems, the last table has them, but no records.
        """
        log = log.again()
        problems = LogProblems([log])
        if log.error is not None:
            if self.options.on_corrupt == "raise":
                raise log.error
            return last_table(problems, self.options)
        options = self.selecting(self.visible_in_log(log, problems), log.partition)
        if window is None:
            tables = iter_log(log, options, problems, self._is_read(log))
        else:
            tables = self._tables_in_window(log, window, options, problems)
        return self._decoded_tables(tables, options, problems)

    def _tables_in_window(
        self, log: LogView, window: Window, options: ReadOptions, problems: LogProblems
    ) -> Iterator[RecordTable]:
        from kafkascan.logs.queries.segment_inputs import inputs_of

        is_read = self._is_read(log)
        options = replace(options, also_stored=(*options.also_stored, *_ORDERED))

        if not log.segments:
            return

        def read(inputs: Sequence[SegmentInput]) -> FoundRows[RecordTable]:
            segments, position = [one.segment for one in inputs], inputs[0].start_position
            for table in iter_log(log, options, problems, is_read, segments, position):
                yield inputs[0], table

        for _, table in window.rows(inputs_of(log), read, by_index=self.selects_all):
            yield table

    def table_of_source(
        self, source: SourceLike, batches: BatchTable | None, start_offset: int
    ) -> RecordTable:
        """Return the records of a source, or of some of its batches, from an offset on."""
        problems = LogProblems()
        visible, source = self.visible_in_source(source, problems)
        options = self.selecting(visible)
        table = read_source(source, batches, start_offset, options, problems)
        return self._decoded(table, problems)

    def tables_of_source(
        self, source: SourceLike, batches: BatchTable | None, start_offset: int
    ) -> Iterator[RecordTable]:
        """Return tables of such records; see `tables`."""
        problems = LogProblems()
        visible, source = self.visible_in_source(source, problems)
        options = self.selecting(visible)
        tables = iter_source(source, batches, start_offset, options, problems)
        return self._decoded_tables(tables, options, problems)

    # ---- what is read ----

    def _is_read(self, log: LogView) -> Callable[[SegmentFile], bool]:
        """Return which segments of a log may contain offsets that fulfil the condition."""
        if "offset" not in self.condition.columns:
            return every_segment
        from kafkascan.logs.queries.index_seek import segments_to_read

        return segments_to_read(log.segments, self.condition, _spans_of(log.partition)).__contains__

    def visible_in_log(self, log: LogView, problems: LogProblems) -> Visible | None:
        """
        Return the mask of the visible batches of a log; None if all are.

        What makes the transactions uncertain is added to the problems.
        """
        if log.is_single_file:
            return self.visible_in_source(log.segments[0].as_source(), problems)[0]
        require_isolation(self.isolation)
        if self.isolation == "read_uncommitted":
            return None
        from kafkascan.logs.read_committed import committed_view_of

        transactions = self.transactions
        if transactions is None:
            transactions = committed_view_of(log, on_corrupt=self.options.on_corrupt)
        return _mask_of(transactions, problems)

    def visible_in_source(
        self, source: SourceLike, problems: LogProblems
    ) -> tuple[Visible | None, SourceLike]:
        """Return such a mask, and the source, which may have been opened for it."""
        require_isolation(self.isolation)
        if self.isolation == "read_uncommitted":
            return None, source
        if self.transactions is not None:
            return _mask_of(self.transactions, problems), source
        from kafkascan.logs.read_committed import read_committed_view

        partition = log_of(source)
        with borrowed_source(source, close=False) as owner:
            view = read_committed_view(
                owner if partition is None else partition, on_corrupt=self.options.on_corrupt
            )
            return _mask_of(view, problems), owner

    def selecting(
        self, visible: Visible | None, place: PartitionDir | None = None, start_offset: int = 0
    ) -> ReadOptions:
        """
        Return the options that select the batches and the records to read.

        Parameters
        ----------
        visible : callable or None
            The mask of the visible batches.
        place : PartitionDir, optional
            Where all of them are.
        start_offset : int, default 0
            The first offset to read.
        """
        condition, options = self.condition, self.options
        ordered, match = condition.columns & _ORDERED, self.match.columns
        if visible is not None:
            options = replace(options, visible=visible)
        if self.typed is not None:
            options = replace(options, also_stored=(*options.also_stored, *_NEEDED_BY_DECODERS))
        if ordered:
            options = replace(options, selects_few=True)
        if start_offset > 0:
            condition = Joined((Comparison("offset", ">=", start_offset), condition))
        if not (condition.columns or match or self.sample is not None):
            return options
        needed = {*match, *(condition.columns & _ORDERED if self.is_exact else ())}
        is_masked = needed or self.sample is not None
        return replace(
            options,
            visible=partial(self._mask_batches, condition, place, visible),
            wanted=partial(self._mask_records, condition) if is_masked else None,
            also_stored=(*options.also_stored, *needed),
        )

    def _mask_batches(
        self,
        condition: Condition,
        place: PartitionDir | None,
        visible: Visible | None,
        batches: BatchTable,
    ) -> NDArray[np.bool_]:
        """Return which batches are read."""
        mask = mask_batches(condition, batches, {} if place is None else _spans_of(place))
        if visible is not None:
            mask &= visible(batches)
        if self.sample is not None and not self.match.columns:
            control = self.options.control
            if control != "include":
                mask &= is_control(batches) == (control == "only")
            self.sample.choose_batches(mask, batches)
        return mask

    def _mask_records(self, condition: Condition, table: RecordTable) -> NDArray[np.bool_]:
        """Return which records of such batches are selected."""
        mask = mask_records(condition if self.is_exact else EVERY_RECORD, table)
        self.match.narrow(mask, table)
        if self.sample is not None and self.match.columns:
            self.sample.choose(mask)
        elif self.sample is not None:
            self.sample.choose_in_batches(mask, table)
        return mask

    # ---- typed keys and values ----

    def _decoded(self, table: RecordTable, problems: LogProblems) -> RecordTable:
        """Return a table with typed columns, and with all problems."""
        if self.typed is not None:
            table = _with_types(table, self.typed, problems)
        return table.with_problems(problems.found)

    def _decoded_tables(
        self, tables: Iterator[RecordTable], options: ReadOptions, problems: LogProblems
    ) -> Iterator[RecordTable]:
        """Yield tables with typed columns, then one with all problems if there are any."""
        for table in chain(tables, last_table(problems, options)):
            yield table if self.typed is None else _with_types(table, self.typed, problems)


_ORDERED = frozenset({"offset", "timestamp"})
"""Columns of records on which there are conditions."""


def _spans_of(partition: PartitionDir) -> Spans:
    """Return what all records of a log have in common."""
    return {"topic": _exactly(partition.topic), "partition": _exactly(partition.partition)}


def _exactly(value: int | str | None) -> Span | None:
    return None if value is None else Span(value, value)


_NEEDED_BY_DECODERS = ("offset", "headers")
"""Columns that decoders of keys and values need."""


def _with_types(table: RecordTable, typed: ItemDecoding, problems: LogProblems) -> RecordTable:
    decoded = typed.decoded(table)
    for problem in decoded.problems:
        problems.add(problem)
    return decoded.records


# ---- transactions ----------------------------------------------------------------------------


def require_isolation(isolation: str) -> None:
    """Raise ValueError for anything but an `Isolation`."""
    if isolation not in ("read_uncommitted", "read_committed"):
        raise ValueError(
            f"isolation must be 'read_uncommitted' or 'read_committed', not {isolation!r}"
        )


def _mask_of(transactions: CommittedView, problems: LogProblems) -> Visible:
    for problem in transactions.problems:
        problems.add(problem)
    return transactions.mask


def log_of(source: SourceLike) -> PartitionDir | None:
    """
    Return the partition of a live segment that is given by its path or URL, or as a file.

    None for a file as of an earlier moment: its folder is that of now.
    """
    if isinstance(source, PinnedFile):
        return None
    if isinstance(source, Source) and source.is_file:
        source = source.path
    if isinstance(source, (str, os.PathLike, ObjectUrl)):
        source = segment_at(source)
    if not isinstance(source, SegmentFile) or source.base_offset is None:
        return None
    folder = source.folder
    is_alone = isinstance(folder, SingleFileFolder)
    if isinstance(folder, UrlFolder):
        is_alone = not folder.can_list
    return None if is_alone or not source.name.is_live else partition_of(folder)
