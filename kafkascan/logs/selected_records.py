"""The records of logs that a condition may select."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from kafkascan.batches.columns import BatchTable
from kafkascan.io.folders import SingleFileFolder
from kafkascan.io.sources import SourceLike
from kafkascan.logs.log_problems import LogProblems
from kafkascan.logs.opened_logs import Log
from kafkascan.logs.queries.conditions import Condition, Span, mask_batches
from kafkascan.logs.queries.index_seek import segments_to_read
from kafkascan.logs.reading import Isolation, visible_batches
from kafkascan.logs.walking.log_reading import iter_log, last_table
from kafkascan.records.read_options import ReadOptions
from kafkascan.records.record_table import RecordTable


@dataclass(frozen=True)
class RecordSelection:
    """
    The records of a log that a condition may select.

    Parameters
    ----------
    log : Log
    condition : Condition
        On ``topic``, ``partition``, ``offset``, ``timestamp`` and columns of the batch table.
        Others decide nothing.
    """

    log: Log
    condition: Condition

    def is_possible(self) -> bool:
        """Return False if the log's topic and partition rule the condition out."""
        return bool(self.condition.may_hold(self._place()))

    def tables(self, options: ReadOptions, isolation: Isolation) -> Iterator[RecordTable]:
        """
        Yield tables with all records that fulfil the condition, and others of their batches.

        The headers of segments whose offsets may fulfil it are read, and of these segments the
        batches of which the header does not rule the condition out.

        Parameters
        ----------
        options : ReadOptions
            Of a record reader, without `visible`.
        isolation : str
            See `read_records`.
        """
        self.log.begin_answer()
        problems = LogProblems([self.log])
        read = segments_to_read(self.log.segments, self.condition, self._place())
        if self.log.error is not None:
            if options.on_corrupt == "raise":
                raise self.log.error
            yield from last_table(problems, options)
            return
        if isolation == "read_committed":
            visible, _ = visible_batches(
                self._transaction_log(), isolation, None,
                on_corrupt=options.on_corrupt, problems=problems,
            )  # fmt: skip
            options = replace(options, visible=visible)

        def may_hold(batches: BatchTable) -> NDArray[np.bool_]:
            return mask_batches(self.condition, batches, self._place())

        selects_few = not self.condition.columns.isdisjoint(("offset", "timestamp"))
        options = replace(options.select_visible(may_hold), selects_few=selects_few)
        yield from iter_log(self.log, options, problems=problems, is_wanted=read.__contains__)

    def _place(self) -> dict[str, Span | None]:
        one = self.log.partition
        return {"topic": _exactly(one.topic), "partition": _exactly(one.partition)}

    def _transaction_log(self) -> Log | SourceLike:
        """Return what contains the log's transactions."""
        is_alone = isinstance(self.log.partition.folder, SingleFileFolder)
        return self.log.segments[0].as_source() if is_alone else self.log


def _exactly(value: int | str | None) -> Span | None:
    return None if value is None else Span(value, value)
