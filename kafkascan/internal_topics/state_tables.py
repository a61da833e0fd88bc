"""Tables of state: columns of plain values, for Arrow, pandas, Polars and the command line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kafkascan.format.errors import UnknownColumnError
from kafkascan.format.suggestions import suggestion
from kafkascan.tables.schema import COUNTS_BY_NAME, PARTITION_LISTS, TASK_LISTS, Field, Schema
from kafkascan.tables.table import NO_PROBLEMS, AnyTable, Column, Problems

if TYPE_CHECKING:
    pass

Row = Mapping[str, object]

PARTITIONS = PARTITION_LISTS
"""Kind of a column with lists of topics and partitions: ``topic``, ``topic_id``, ``partitions``."""

TASKS = TASK_LISTS
"""Kind of a column with lists of Streams tasks: ``role``, ``subtopology``, ``partitions``."""


COUNTS = COUNTS_BY_NAME
"""Kind of a column with counts by name: a map of string to int64."""


@dataclass(frozen=True, eq=False, repr=False)
class StateTable(AnyTable):
    """
    A table of Kafka's state.

    ``table["offset"]`` is a column as a list, and iteration yields rows as dicts. pyarrow, Polars
    and DuckDB accept the object directly, through Arrow's stream capsule.

    Attributes
    ----------
    name : str
    kinds : dict of str to str
        By column, in order: an Arrow type such as ``int64`` and ``string``; ``time`` for
        milliseconds since the epoch, -1 or None for no time; ``list<int32>``, ``list<string>``,
        or `PARTITIONS`, `TASKS` and `COUNTS`.
    columns : dict of str to list
    """

    name: str
    kinds: Mapping[str, str]
    columns: dict[str, list[Any]]
    problems: Problems = field(default=NO_PROBLEMS)

    @classmethod
    def of_rows(cls, name: str, kinds: Mapping[str, str], rows: Iterable[Row]) -> StateTable:
        """Return a table of rows, each of which has a value for every column."""
        listed = list(rows)
        return cls(name, kinds, {column: [row[column] for row in listed] for column in kinds})

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitem__(self, name: str) -> list[Any]:
        if name not in self.columns:
            hint = suggestion(name, list(self.columns))
            raise UnknownColumnError(f"{self.name} has no column {name!r}{hint}")
        return self.columns[name]

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows as dicts."""
        names = list(self.columns)
        values = zip(*self.columns.values(), strict=True)
        return [dict(zip(names, row, strict=True)) for row in values]

    def where(self, **wanted: object) -> StateTable:
        """Return the rows whose columns have these values."""
        return self.of_rows(
            self.name,
            self.kinds,
            (row for row in self.rows() if all(row[name] == of for name, of in wanted.items())),
        )

    def to_columns(self) -> dict[str, Column]:
        """Return the columns for text: times are milliseconds, and bytes are hexadecimal."""
        return {
            name: [None if value is None else value.hex() for value in values]
            if self.kinds[name] == "binary"
            else values
            for name, values in self.columns.items()
        }

    @property
    def schema(self) -> Schema:
        """The fields of the columns."""
        return Schema(self.name, tuple(Field(name, kind) for name, kind in self.kinds.items()))

    def _head(self, rows: int) -> Mapping[str, Sequence[object]]:
        return {name: values[:rows] for name, values in self.columns.items()}
