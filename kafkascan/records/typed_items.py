"""Keys and values that a schema gives a type: what a reader of records asks of a decoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from kafkascan.tables.table import Problem

if TYPE_CHECKING:
    import pyarrow as pa

    from kafkascan.records.record_table import RecordTable


@dataclass(frozen=True)
class ItemPlace:
    """
    Where keys or values come from.

    Attributes
    ----------
    name : {"key", "value"}
    path : str
        The file or folder.
    topic, partition : str and int, or None
    """

    name: str
    path: str
    topic: str | None = None
    partition: int | None = None


@dataclass(frozen=True)
class TypedItems:
    """
    Keys or values as a column with types.

    Attributes
    ----------
    values : pyarrow.ChunkedArray
        A value for each record, null where it could not be decoded.
    failed : ndarray of bool
        The records whose value could not be.
    problems : list of Problem
        One for each of these, up to a limit, and others.
    """

    values: pa.ChunkedArray
    failed: NDArray[np.bool_]
    problems: list[Problem]


class ColumnDecoder(Protocol):
    """Decodes the keys or values of one topic."""

    @property
    def arrow_type(self) -> pa.DataType | None:
        """The type of the column; None if the records say it."""

    def at(self, place: ItemPlace) -> ColumnDecoder:
        """Return a decoder of another place, with the columns that this one has by now."""

    def decode(self, table: RecordTable, threads: int) -> TypedItems:
        """Return the decoded items of a table, all of one type, made by so many threads."""


class ColumnDecoders(Protocol):
    """What `read_records` takes as `key` and `value`: a registry, or one schema of it."""

    def decoder(self, place: ItemPlace) -> ColumnDecoder:
        """Return the decoder of the keys or values of a topic."""


def require_decoders(**decoders: ColumnDecoders | None) -> dict[str, ColumnDecoders]:
    """
    Return the arguments that are given, by their names.

    Raises
    ------
    TypeError
        If one decodes nothing.
    """
    given = {name: one for name, one in decoders.items() if one is not None}
    for name, one in given.items():
        if not hasattr(one, "decoder"):
            found = repr(one) if isinstance(one, str) else type(one).__name__
            raise TypeError(
                f"{name} must be a Registry (kafkascan.schemas.open_registry), one schema of it"
                f" (registry.reader(SUBJECT)) or kafkascan.schemas.json_values(), not {found}"
            )
    return given


def selected(values: pa.ChunkedArray, index: slice | NDArray[Any]) -> pa.ChunkedArray:
    """Return the values of some rows, as NumPy selects them."""
    import pyarrow as pa

    if isinstance(index, np.ndarray) and index.dtype == np.bool_:
        return values.filter(pa.array(index))
    rows = np.arange(len(values))[index]
    if len(rows) and rows[-1] - rows[0] == len(rows) - 1 and (np.diff(rows) == 1).all():
        return values.slice(rows[0], len(rows))
    return values.take(pa.array(rows))


class DecodedTable(NamedTuple):
    """A table with typed columns, its records with a key or value that failed, and the problems."""

    records: RecordTable
    failed: NDArray[np.bool_]
    problems: Sequence[Problem]


class ItemDecoding:
    """
    Decodes the tables of a reader.

    Parameters
    ----------
    decoders : mapping of str to ColumnDecoder
        By the name of the column.
    threads : int, default 1
    """

    def __init__(self, decoders: Mapping[str, ColumnDecoder], threads: int = 1) -> None:
        self._decoders, self._threads = decoders, threads

    def decoded(self, table: RecordTable) -> DecodedTable:
        """Return the table with typed columns, and what could not be decoded."""
        typed, problems = {}, list[Problem]()
        failed = np.zeros(len(table), np.bool_)
        for name, decoder in self._decoders.items():
            if name in table.names:
                found = decoder.decode(table, self._threads)
                typed[name] = found.values
                failed |= found.failed
                problems += found.problems
        return DecodedTable(table.with_typed(typed), failed, problems)
