"""Select the first rows of a command, the last ones, or those around an offset or a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from kafkascan.cli.inputs import SegmentInput
from kafkascan.cli.queries.around import Place, indexed_start, logs_of

Table = TypeVar("Table", bound=Any)
Found: TypeAlias = Iterator[tuple[SegmentInput, Table]]
Read: TypeAlias = Callable[[Sequence[SegmentInput]], Found[Table]]
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


def rows_at_end(
    inputs: Sequence[SegmentInput], read: Read[Table], count: int, *, by_index: bool
) -> Iterator[tuple[SegmentInput, Table]]:
    """
    Yield the last rows of all inputs together.

    Parameters
    ----------
    inputs : sequence of SegmentInput
    read : callable
        Yields the rows of inputs.
    count : int
    by_index : bool
        Whether to begin at an entry of an index of the last log. All inputs are read if there are
        fewer rows from there on.
    """
    logs = list(logs_of(inputs))
    start = indexed_start(logs[-1], Place.end(count)) if by_index and logs else None
    if start is not None:
        found = list(last_rows(read(start), count))
        if sum(len(rows) for _, rows in found) >= count:
            yield from found
            return
    yield from last_rows(read(inputs), count)


def rows_around(
    inputs: Sequence[SegmentInput],
    read: Read[Table],
    reaches: Reaches[Table],
    place: Place,
    *,
    by_index: bool,
) -> Iterator[tuple[SegmentInput, Table]]:
    """
    Yield, of each log, the rows before and after the first one that reaches an offset or a time.

    Parameters
    ----------
    inputs : sequence of SegmentInput
    read : callable
        Yields the rows of inputs. It is closed after the last row that is needed.
    reaches : callable
        Returns which rows of a table reach it.
    place : Place
    by_index : bool
        Whether to begin at an entry of an index. The rows of a log that has fewer rows between it
        and the place are read from the beginning of the log.
    """
    for log in logs_of(inputs):
        start = indexed_start(log, place) if by_index else None
        found = _divide(read(log if start is None else start), reaches, place.count)
        if start is not None and found.count_before < place.count:
            found = _divide(read(log), reaches, place.count)
        yield from found.before.take()
        yield from first_rows(found.rest, place.count)


class _Divided(NamedTuple, Generic[Table]):
    """The last rows before a place, the number of all rows before it, and what follows them."""

    before: _LastRows[Table]
    count_before: int
    rest: Found[Table]


def _divide(found: Found[Table], reaches: Reaches[Table], count: int) -> _Divided[Table]:
    before: _LastRows[Table] = _LastRows(count)
    count_before = 0
    for one, rows in found:
        reached = reaches(rows)
        first = int(reached.argmax()) if reached.any() else len(rows)
        before.add(one, rows[:first])
        count_before += first
        if first < len(rows):
            return _Divided(before, count_before, chain([(one, rows[first:])], found))
    return _Divided(before, count_before, iter(()))
