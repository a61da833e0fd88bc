"""Exports and displays that all tables share: pandas, Polars, Arrow streams, notebooks."""

from __future__ import annotations

import html
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kafkascan.batches.arrow import NAMED_CODES, require_module
from kafkascan.batches.columns import TIMESTAMP_COLUMNS, BatchTable, as_datetime64, column

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

HEAD_ROWS = 10
"""Rows that a notebook shows."""

_CELL_SIZE = 60
# Of pandas, by those of Arrow.
_NULLABLE_TYPES = {"int8": "Int8", "int16": "Int16", "int32": "Int32", "int64": "Int64"}
# Rows that are converted to Python objects before signals are handled.
_PANDAS_ROWS = 1 << 16


class TableExports(ABC):
    """
    Conversions and displays of a table, all derived from three methods of the subclass.

    A subclass implements `to_arrow`, `_summary_lines` and `_head`.
    """

    @abstractmethod
    def to_arrow(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the table as a `pyarrow.Table`."""

    @abstractmethod
    def _summary_lines(self) -> list[str]:
        """Return the lines of `repr`."""

    @abstractmethod
    def _head(self, rows: int) -> Mapping[str, Sequence[object]]:
        """Return at most this many first rows: the values of each column, for display."""

    def _plot(self) -> str:
        """Return an SVG of the table for a notebook; empty, if it has none."""
        return ""

    def to_pandas(self, columns: Sequence[str] | None = None) -> pd.DataFrame:
        """
        Return the table as a `pandas.DataFrame`, with the types of `to_arrow`.

        Parameters
        ----------
        columns : sequence of str, optional
            See `to_arrow`.

        Returns
        -------
        pandas.DataFrame
            A column of integers with nulls has one of pandas' nullable types, such as ``Int64``:
            doubles do not have all integers.
        """
        pandas = require_module("pandas", extra="pandas")
        table = self.to_arrow(columns)
        # In pieces, because pyarrow makes Python objects without handling signals.
        frames = [
            table.slice(at, _PANDAS_ROWS).to_pandas()
            for at in range(0, max(1, table.num_rows), _PANDAS_ROWS)
        ]
        frame: pd.DataFrame = frames[0]
        if len(frames) > 1:
            frame = pandas.concat(frames, ignore_index=True)
        for name, kind in zip(table.column_names, table.schema.types, strict=True):
            if str(kind) in _NULLABLE_TYPES and table[name].null_count:
                dtype = pandas.api.types.pandas_dtype(_NULLABLE_TYPES[str(kind)])
                frame[name] = table[name].to_pandas(types_mapper=lambda _, known=dtype: known)
        return frame

    def to_polars(self, columns: Sequence[str] | None = None) -> pl.DataFrame:
        """
        Return the table as a `polars.DataFrame`, with the types of `to_arrow`.

        Parameters
        ----------
        columns : sequence of str, optional
            See `to_arrow`.

        Returns
        -------
        polars.DataFrame
        """
        polars = require_module("polars", extra="polars")
        frame: pl.DataFrame = polars.from_arrow(self.to_arrow(columns))
        return frame

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Arrow's PyCapsule stream of `to_arrow`."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        return "\n".join(self._summary_lines())

    def _repr_html_(self) -> str:
        """Return the summary, a plot and the first rows for a notebook."""
        summary = html.escape("\n".join(self._summary_lines()))
        return f"<div><pre>{summary}</pre>{self._plot()}{_html_table(self._head(HEAD_ROWS))}</div>"


def display_column(batches: BatchTable, name: str) -> list[object]:
    """Return the values of a batch column for display: times as times, codes by name."""
    values = column(batches, name)
    if name in TIMESTAMP_COLUMNS:
        return list(as_datetime64(values))
    if name in NAMED_CODES:
        names, _ = NAMED_CODES[name]
        return [names.name_of(code) for code in values.tolist()]
    return list(values.tolist())


def _html_table(head: Mapping[str, Sequence[object]]) -> str:
    names = "".join(f"<th>{html.escape(name)}</th>" for name in head)
    rows = "".join(
        f"<tr>{''.join(f'<td>{_html_cell(value)}</td>' for value in row)}</tr>"
        for row in zip(*head.values(), strict=True)
    )
    # The class is pandas': notebooks style it.
    return f'<table class="dataframe"><thead><tr>{names}</tr></thead><tbody>{rows}</tbody></table>'


def _html_cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, (bytes, str)):
        value = value[: _CELL_SIZE + 1]  # of a long value, nothing more is formatted
    text = str(value)
    return html.escape(text if len(text) <= _CELL_SIZE else f"{text[: _CELL_SIZE - 1]}…")
