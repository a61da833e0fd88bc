"""Select the first rows of a command, the last ones, or those around an offset or a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from kafkascan.cli.inputs import SegmentInput

Table = TypeVar("Table", bound=Any)
Reaches = Callable[[Table], NDArray[np.bool_]]


class _LastRows(Generic[Table]):
    """Keeps the last rows of tables."""

    def __init__(self, count: int) -> None:
        self._kept: deque[tuple[SegmentInput, Table]] = deque()
        self._surplus = -count

    def add(self, one: SegmentInput, rows: Table) -> None:
        self._kept.append((one, rows))
        self._surplus += len(rows)
        while self._kept and len(self._kept[0][1]) <= self._surplus:
            self._surplus -= len(self._kept.popleft()[1])

    def take(self) -> Iterator[tuple[SegmentInput, Table]]:
        for one, rows in self._kept:
            yield one, rows[max(0, self._surplus) :]
            self._surplus = 0


def first_rows(
    found: Iterator[tuple[SegmentInput, Table]], count: int
) -> Iterator[tuple[SegmentInput, Table]]:
    """Yield the first rows, and read no further."""
    if count == 0:
        return
    for one, rows in found:
        yield one, rows[:count]
        count -= len(rows)
        if count <= 0:
            return


def last_rows(
    found: Iterator[tuple[SegmentInput, Table]], count: int
) -> Iterator[tuple[SegmentInput, Table]]:
    """Yield the last rows."""
    last: _LastRows[Table] = _LastRows(count)
    for one, rows in found:
        last.add(one, rows)
    yield from last.take()


def rows_around(
    found: Iterator[tuple[SegmentInput, Table]], reaches: Reaches[Table], count: int
) -> Iterator[tuple[SegmentInput, Table]]:
    """
    Yield, of each log, the rows before and after the first one that reaches an offset or a time.

    Parameters
    ----------
    found : iterator of (SegmentInput, table)
    reaches : callable
        Returns which rows of a table reach it.
    count : int
        The number of rows before it, and that of rows from it on.
    """
    log: Path | None = None
    before: _LastRows[Table] = _LastRows(count)
    missing: int | None = None
    for one, rows in found:
        if one.partition.path != log:
            if missing is None:
                yield from before.take()
            log, before, missing = one.partition.path, _LastRows(count), None
        after = rows
        if missing is None:
            reached = reaches(rows)
            first = int(reached.argmax()) if reached.any() else len(rows)
            before.add(one, rows[:first])
            if first == len(rows):
                continue
            yield from before.take()
            after, missing = rows[first:], count
        if missing:
            yield one, after[:missing]
            missing = max(0, missing - len(after))
    if missing is None:
        yield from before.take()
