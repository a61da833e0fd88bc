"""Scan the records of a log that a condition selects and an isolation level makes visible."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeAlias

from kafkascan.batches.columns import BatchTable
from kafkascan.io.folders import SingleFileFolder
from kafkascan.io.sources import Source, SourceLike, borrowed_source
from kafkascan.io.stores.store_folders import UrlFolder
from kafkascan.io.stores.urls import ObjectUrl
from kafkascan.logs.log_dir import PartitionDir
from kafkascan.logs.log_finding import partition_of
from kafkascan.logs.log_problems import LogProblems
from kafkascan.logs.opened_logs import LogView
from kafkascan.logs.queries.conditions import (
    EVERY_RECORD,
    Condition,
    Span,
    Spans,
    mask_batches,
    mask_records,
)
from kafkascan.logs.segment import SegmentFile, segment_at
from kafkascan.logs.walking.log_reader import every_segment
from kafkascan.logs.walking.log_reading import (
    iter_log,
    iter_source,
    last_table,
    read_log,
    read_source,
)
from kafkascan.records.read_options import OnCorruptLog, ReadOptions, Visible
from kafkascan.records.record_table import RecordTable
from kafkascan.records.typed_items import ItemDecoding

if TYPE_CHECKING:
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
    isolation: Isolation = "read_uncommitted"
    transactions: CommittedView | None = None
    typed: ItemDecoding | None = None

    def may_select(self, partition: PartitionDir) -> bool:
        """Return False if topic and partition of a log rule the condition out."""
        return bool(self.condition.may_hold(_spans_of(partition)))

    def table(self, log: LogView) -> RecordTable:
        """Return the records of a log, with its problems."""
        problems = LogProblems()
        options = self._options_of(log, problems)
        return self._decoded(read_log(log, options, problems, self._is_read(log)), problems)

    def tables(self, log: LogView) -> Iterator[RecordTable]:
        """Return tables of the records of a log; the last one has its problems, but no records."""
        log = log.again()
        problems = LogProblems([log])
        if log.error is not None:
            if self.options.on_corrupt == "raise":
                raise log.error
            return last_table(problems, self.options)
        options = self._options_of(log, problems)
        tables = iter_log(log, options, problems=problems, is_wanted=self._is_read(log))
        return self._decoded_tables(tables, problems)

    def table_of_source(
        self, source: SourceLike, batches: BatchTable | None, start_offset: int
    ) -> RecordTable:
        """Return the records of a source, or of some of its batches, from an offset on."""
        problems = LogProblems()
        visible, source = self._visible_of_source(source, problems)
        options = self._selecting(visible, None)
        table = read_source(source, batches, start_offset, options, problems)
        return self._decoded(table, problems)

    def tables_of_source(
        self, source: SourceLike, batches: BatchTable | None, start_offset: int
    ) -> Iterator[RecordTable]:
        """Return tables of such records; the last one has the problems, but no records."""
        problems = LogProblems()
        visible, source = self._visible_of_source(source, problems)
        options = self._selecting(visible, None)
        tables = iter_source(source, batches, start_offset, options, problems)
        return self._decoded_tables(tables, problems)

    # ---- what is read ----

    def _is_read(self, log: LogView) -> Callable[[SegmentFile], bool]:
        """Return which segments of a log may contain offsets that fulfil the condition."""
        if "offset" not in self.condition.columns:
            return every_segment
        from kafkascan.logs.queries.index_seek import segments_to_read

        return segments_to_read(log.segments, self.condition, _spans_of(log.partition)).__contains__

    def _options_of(self, log: LogView, problems: LogProblems) -> ReadOptions:
        """Return the options that select batches and records of a log."""
        if log.is_single_file:
            visible, _ = self._visible_of_source(log.segments[0].as_source(), problems)
        else:
            visible = visible_in_log(
                log, self.isolation, self.transactions,
                on_corrupt=self.options.on_corrupt, problems=problems,
            )  # fmt: skip
        return self._selecting(visible, log.partition)

    def _visible_of_source(
        self, source: SourceLike, problems: LogProblems
    ) -> tuple[Visible | None, SourceLike]:
        return visible_in_source(
            source, self.isolation, self.transactions,
            on_corrupt=self.options.on_corrupt, problems=problems,
        )  # fmt: skip

    def _selecting(self, visible: Visible | None, partition: PartitionDir | None) -> ReadOptions:
        """Return the options with masks of the batches and the records to read."""
        condition, options = self.condition, self.options
        if visible is not None:
            options = replace(options, visible=visible)
        if self.typed is not None:
            options = replace(options, also_stored=(*options.also_stored, *_NEEDED_BY_DECODERS))
        if not condition.columns:
            return options
        spans = {} if partition is None else _spans_of(partition)
        ordered = condition.columns & {"offset", "timestamp"}
        options = options.select_visible(partial(mask_batches, condition, place=spans))
        options = replace(options, selects_few=bool(ordered))
        if not self.is_exact:
            return options
        also_stored = (*options.also_stored, *ordered)
        return replace(options, wanted=partial(mask_records, condition), also_stored=also_stored)

    # ---- typed keys and values ----

    def _decoded(self, table: RecordTable, problems: LogProblems) -> RecordTable:
        """Return a table with typed columns, and with all problems."""
        if self.typed is not None:
            table = _with_types(table, self.typed, problems)
        return table.with_problems(problems.found)

    def _decoded_tables(
        self, tables: Iterator[RecordTable], problems: LogProblems
    ) -> Iterator[RecordTable]:
        """Return tables with typed columns; the problems of decoding are added."""
        typed = self.typed
        return tables if typed is None else (_with_types(one, typed, problems) for one in tables)


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


def visible_in_log(
    log: LogView,
    isolation: str,
    transactions: CommittedView | None,
    *,
    on_corrupt: OnCorruptLog,
    problems: LogProblems,
) -> Visible | None:
    """
    Return the mask of the visible batches of a log; None if all are.

    What makes the transactions uncertain is added to the problems.
    """
    require_isolation(isolation)
    if isolation == "read_uncommitted":
        return None
    from kafkascan.logs.read_committed import committed_view_of

    return _mask_of(transactions or committed_view_of(log, on_corrupt=on_corrupt), problems)


def visible_in_source(
    source: SourceLike,
    isolation: str,
    transactions: CommittedView | None,
    *,
    on_corrupt: OnCorruptLog,
    problems: LogProblems,
) -> tuple[Visible | None, SourceLike]:
    """Return such a mask, and the source, which may have been opened for it."""
    require_isolation(isolation)
    if isolation == "read_uncommitted":
        return None, source
    if transactions is not None:
        return _mask_of(transactions, problems), source
    from kafkascan.logs.read_committed import read_committed_view

    partition = log_of(source)
    with borrowed_source(source, close=False) as owner:
        log = owner if partition is None else partition
        return _mask_of(read_committed_view(log, on_corrupt=on_corrupt), problems), owner


def _mask_of(transactions: CommittedView, problems: LogProblems) -> Visible:
    for problem in transactions.problems:
        problems.add(problem)
    return transactions.mask


def log_of(source: SourceLike) -> PartitionDir | None:
    """Return the partition of a live segment that is given by its path or URL, or as a file."""
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
