"""Select the first rows of segments, the last ones, or those around an offset or a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from kafkascan.batches.columns import BatchTable, last_offset
from kafkascan.logs.queries.index_seek import RowAnchor, seek_rows
from kafkascan.logs.queries.segment_inputs import SegmentInput, group_by_log
from kafkascan.records.record_table import RecordTable

Rows = TypeVar("Rows", bound=Any)
FoundRows: TypeAlias = Iterator[tuple[SegmentInput, Rows]]
"""Tables of rows, each with the segment that contains them."""

ReadRows: TypeAlias = Callable[[Sequence[SegmentInput]], FoundRows[Rows]]
"""Yields the rows of inputs. It is closed after the last row that is needed."""


class _LastRows(Generic[Rows]):
    """Keeps the last rows of tables."""

    def __init__(self, wanted: int) -> None:
        self._kept: deque[tuple[SegmentInput, Rows]] = deque()
        self._wanted = wanted
        self.count = 0

    def add(self, one: SegmentInput, rows: Rows) -> None:
        self._kept.append((one, rows))
        self.count += len(rows)
        surplus = self.count - self._wanted
        while self._kept and len(self._kept[0][1]) <= surplus:
            surplus -= len(self._kept[0][1])
            self.count -= len(self._kept.popleft()[1])

    def take(self) -> FoundRows[Rows]:
        surplus = max(0, self.count - self._wanted)
        for one, rows in self._kept:
            yield one, rows[surplus:]
            surplus = 0


def first_rows(found: FoundRows[Rows], count: int) -> FoundRows[Rows]:
    """Yield the first rows, and read no further."""
    if count == 0:
        return
    for one, rows in found:
        yield one, rows[:count]
        count -= len(rows)
        if count <= 0:
            return


def last_rows(found: FoundRows[Rows], count: int) -> FoundRows[Rows]:
    """Yield the last rows."""
    last: _LastRows[Rows] = _LastRows(count)
    for one, rows in found:
        last.add(one, rows)
    yield from last.take()


@dataclass(frozen=True)
class Window:
    """
    Which of the rows of segments to return; by default all.

    Attributes
    ----------
    first, last : int or None
        The first rows, or the last ones, of all logs together.
    around : RowAnchor or None
        In each log, the rows before and after the first one that reaches an offset or a time.
    """

    first: int | None = None
    last: int | None = None
    around: RowAnchor | None = None

    def rows(
        self, inputs: Sequence[SegmentInput], read: ReadRows[Rows], *, by_index: bool
    ) -> FoundRows[Rows]:
        """
        Yield the rows in the window.

        Parameters
        ----------
        inputs : sequence of SegmentInput
        read : callable
            See `ReadRows`.
        by_index : bool
            Whether to begin at an entry of an index. All segments of a log are read if it has fewer
            rows than requested between the entry and the end or the anchor.
        """
        if self.around is not None:
            return _rows_around(inputs, read, self.around, by_index=by_index)
        if self.last is not None:
            return _rows_at_end(inputs, read, self.last, by_index=by_index)
        found = read(inputs)
        return found if self.first is None else first_rows(found, self.first)


def _rows_at_end(
    inputs: Sequence[SegmentInput], read: ReadRows[Rows], count: int, *, by_index: bool
) -> FoundRows[Rows]:
    logs = list(group_by_log(inputs))
    start = seek_rows(logs[-1], RowAnchor.at_end(count)) if by_index and logs else None
    if start is not None:
        found = list(last_rows(read(start), count))
        if sum(len(rows) for _, rows in found) >= count:
            yield from found
            return
    yield from last_rows(read(inputs), count)


def _rows_around(
    inputs: Sequence[SegmentInput], read: ReadRows[Rows], anchor: RowAnchor, *, by_index: bool
) -> FoundRows[Rows]:
    for log in group_by_log(inputs):
        start = seek_rows(log, anchor) if by_index else None
        for some in (log,) if start is None else (start, log):
            before: _LastRows[Rows] = _LastRows(anchor.count)
            found, rest = read(some), list[tuple[SegmentInput, Rows]]()
            for one, rows in found:
                reached = _reach(rows, anchor)
                first = int(reached.argmax()) if reached.any() else len(rows)
                before.add(one, rows[:first])
                if first < len(rows):
                    rest.append((one, rows[first:]))
                    break
            if some is log or before.count >= anchor.count:
                yield from before.take()
                yield from first_rows(chain(rest, found), anchor.count)
                break


def _reach(rows: RecordTable | BatchTable, anchor: RowAnchor) -> NDArray[np.bool_]:
    """Return which records or batches reach an anchor."""
    if isinstance(rows, RecordTable):
        return anchor.is_reached(rows["offset"], rows["timestamp"])
    return anchor.is_reached(last_offset(rows), rows["max_timestamp"])
