"""Immutable lists of named tuples whose values are stored by column, in a few bytes for each."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

Row = TypeVar("Row", bound=NamedTuple)

_ROWS = 1 << 12
# More numbers than these are stored as differences.
_MOST_VALUES = 1 << 8
_MOST_RANGE = 1 << 62


class PackedRows(Sequence[Row]):
    """
    Named tuples of one kind, in blocks of columns.

    It behaves as a list of the tuples, which are made when they are read: a damaged log may have
    one for each batch.

    Parameters
    ----------
    kind : type of NamedTuple
    blocks : list of list of columns
        All blocks but the last one have the same number of rows.
    """

    def __init__(self, kind: type[Row], blocks: list[list[_Column]]) -> None:
        self._kind, self._blocks = kind, blocks

    @classmethod
    def of(cls, kind: type[Row], rows: Iterable[Row]) -> PackedRows[Row]:
        """Pack rows, of which only one block exists at a time."""
        left = iter(rows)
        blocks = iter(lambda: list(itertools.islice(left, _ROWS)), [])
        return cls(kind, [list(map(_column_of, zip(*block, strict=True))) for block in blocks])

    def __len__(self) -> int:
        if not self._blocks:
            return 0
        return _ROWS * (len(self._blocks) - 1) + len(self._blocks[-1][0].codes)

    def __iter__(self) -> Iterator[Row]:
        return itertools.chain.from_iterable(map(self._rows, self._blocks))

    @overload
    def __getitem__(self, at: int) -> Row: ...
    @overload
    def __getitem__(self, at: slice) -> list[Row]: ...
    def __getitem__(self, at: int | slice) -> Row | list[Row]:
        if isinstance(at, slice):
            return [self[row] for row in range(*at.indices(len(self)))]
        block, row = divmod(range(len(self))[at], _ROWS)
        return next(self._rows([one.part(row) for one in self._blocks[block]]))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(map(operator.eq, self, other))

    __hash__ = None  # type: ignore[assignment]

    def __add__(self, others: Iterable[Any]) -> list[Any]:
        return [*self, *others]

    def __repr__(self) -> str:
        return repr(list(self))

    def _rows(self, block: list[_Column]) -> Iterator[Row]:
        return map(self._kind, *(one.values() for one in block))


class _Column(NamedTuple):
    """
    The values of one column in a block.

    Attributes
    ----------
    codes : ndarray of unsigned int
    names : list or None
        The value of each code; None if codes are differences.
    low : int
        The number with code 1. Code 0 is None.
    """

    codes: NDArray[np.unsignedinteger]
    names: list[Any] | None = None
    low: int = 0

    def values(self) -> Iterator[Any]:
        codes = self.codes.tolist()
        if self.names is not None:
            return map(self.names.__getitem__, codes)
        above = self.low - 1
        return (code + above if code else None for code in codes)

    def part(self, row: int) -> _Column:
        """Return the column of one row."""
        return self._replace(codes=self.codes[row : row + 1])


def _column_of(values: tuple[Any, ...]) -> _Column:
    distinct = dict.fromkeys(values)
    if len(distinct) == 1:
        return _Column(np.broadcast_to(np.uint8(0), len(values)), list(distinct))
    numbers = [value for value in distinct if isinstance(value, int)]
    is_numeric = len(numbers) + (None in distinct) == len(distinct)
    if len(distinct) > _MOST_VALUES and is_numeric and max(numbers) - min(numbers) < _MOST_RANGE:
        low = min(numbers)
        codes = (
            [0 if value is None else value - low + 1 for value in values]
            if None in distinct
            else np.array(values, np.int64) - (low - 1)
        )
        kind = np.min_scalar_type(max(numbers) - low + 1)
        return _Column(np.array(codes, kind), None, low)
    names = {value: code for code, value in enumerate(distinct)}
    kind = np.min_scalar_type(len(names) - 1)
    return _Column(np.fromiter(map(names.__getitem__, values), kind, len(values)), list(names))
