"""Tables of state: columns of plain values, for Arrow, pandas, Polars and the command line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kafkascan.batches.arrow import require_pyarrow
from kafkascan.batches.table_exports import TableExports
from kafkascan.format.errors import UnknownColumnError
from kafkascan.format.suggestions import suggestion
from kafkascan.format.texts import with_escaped_bytes

if TYPE_CHECKING:
    import pyarrow as pa

Row = Mapping[str, object]

PARTITIONS = "partitions"
"""Kind of a column with lists of topics and partitions: ``topic``, ``topic_id``, ``partitions``."""

TASKS = "tasks"
"""Kind of a column with lists of Streams tasks: ``role``, ``subtopology``, ``partitions``."""


COUNTS = "counts"
"""Kind of a column with counts by name: a map of string to int64."""


@dataclass(frozen=True, eq=False, repr=False)
class StateTable(TableExports):
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

    def to_columns(self) -> dict[str, list[Any]]:
        """Return the columns for text: times are milliseconds, and bytes are hexadecimal."""
        return {
            name: [None if value is None else value.hex() for value in values]
            if self.kinds[name] == "binary"
            else values
            for name, values in self.columns.items()
        }

    def to_arrow(self, columns: Sequence[str] | None = None) -> pa.Table:
        """
        Return a `pyarrow.Table`.

        Parameters
        ----------
        columns : sequence of str, optional
            Names of columns; all by default.

        Returns
        -------
        pyarrow.Table
            Times are ``timestamp[ms, tz=UTC]``.
        """
        names = list(self.kinds) if columns is None else columns
        pa = require_pyarrow()
        return pa.table({name: _arrow_column(self.kinds[name], self[name]) for name in names})

    def _summary_lines(self) -> list[str]:
        return [f"<StateTable {self.name}: {len(self):,} rows>"]

    def _head(self, rows: int) -> Mapping[str, Sequence[object]]:
        return {name: values[:rows] for name, values in self.columns.items()}


def _arrow_column(kind: str, values: list[Any]) -> Any:
    pa = require_pyarrow()
    if kind == "time":
        known = [None if value is None or value < 0 else value for value in values]
        return pa.array(known, pa.timestamp("ms", tz="UTC"))
    if kind == COUNTS:
        counts = [None if value is None else _pairs(value) for value in values]
        return pa.array(counts, pa.map_(pa.string(), pa.int64()))
    if kind == "string":
        texts = [None if value is None else with_escaped_bytes(value) for value in values]
        return pa.array(texts, pa.string())
    return pa.array(values, _arrow_type(kind))


def _pairs(counts: Mapping[Any, int]) -> list[tuple[str, int]]:
    return [(str(name), count) for name, count in counts.items()]


def _arrow_type(kind: str) -> Any:
    pa = require_pyarrow()
    numbers = pa.list_(pa.int32())
    if kind == PARTITIONS:
        texts = [("topic", pa.string()), ("topic_id", pa.string())]
        return pa.list_(pa.struct([*texts, (PARTITIONS, numbers)]))
    if kind == TASKS:
        texts = [("role", pa.string()), ("subtopology", pa.string())]
        return pa.list_(pa.struct([*texts, (PARTITIONS, numbers)]))
    if kind.startswith("list<"):
        return pa.list_(pa.type_for_alias(kind.removeprefix("list<").removesuffix(">")))
    return pa.type_for_alias(kind)
