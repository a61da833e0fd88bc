"""Write rows, chunk by chunk, as JSON, JSON lines, CSV or Parquet; what a writer of rows is."""

from __future__ import annotations

import codecs
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, Any, BinaryIO, ClassVar, NamedTuple, TextIO

import numpy as np
from numpy.typing import NDArray

from kafkascan._core.text_lines import CSV, JSON, LineForm, LineWriter
from kafkascan.format.errors import STATUS
from kafkascan.format.texts import json_text
from kafkascan.tables.schema import Schema
from kafkascan.tables.table import Column, Table, as_list
from kafkascan.tables.text_columns import ItemMemory, TextColumn, iso_times, part_of

_ROWS_PER_GROUP = 1 << 16
# Bytes of text that are written at once.
_CHUNK_SIZE = 1 << 20


class Writer:
    """
    Writes rows, chunk by chunk; `close` ends the document.

    Parameters
    ----------
    schema : Schema
        Of the columns to write, in order.
    out : text stream
    """

    def __init__(self, schema: Schema, out: TextIO) -> None:
        self.schema = schema
        self.out = out

    def write(self, columns: Mapping[str, TextColumn], memory: ItemMemory | None = None) -> None:
        """
        Write a chunk of rows.

        Parameters
        ----------
        columns : mapping of str to columns of equal length
        memory : ItemMemory, optional
            What items are in, if they are in a map.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Write the end of the document."""


class SortOrder(NamedTuple):
    """The column by which rows are sorted; nulls come last."""

    column: str
    is_descending: bool

    def order_of(self, schema: Schema, rows: Sequence[Mapping[str, Any]]) -> list[int]:
        """Return the numbers of rows of a schema in their order."""
        return self.order(schema, [row[self.column] for row in rows])

    def order(self, schema: Schema, keys: Sequence[Any]) -> list[int]:
        """Return the numbers of rows in their order, by the values of the column."""
        if schema[self.column].type == "time":
            keys = [None if key == -1 else key for key in keys]
        present = [row for row, key in enumerate(keys) if key is not None]
        present.sort(key=lambda row: _sort_key(keys[row]), reverse=self.is_descending)
        return [*present, *(row for row, key in enumerate(keys) if key is None)]


class SortedRows(Writer):
    """
    Keeps all rows, and writes them with another writer when they are sorted.

    Parameters
    ----------
    schema : Schema
        Of the rows.
    writer : Writer
    sort : SortOrder
    """

    def __init__(self, schema: Schema, writer: Writer, sort: SortOrder) -> None:
        super().__init__(schema, writer.out)
        self._writer, self._sort = writer, sort
        self._columns: dict[str, list[Any]] = {name: [] for name in schema.names}

    def write(self, columns: Mapping[str, Any], memory: ItemMemory | None = None) -> None:
        """Keep a chunk of rows; see `Writer`."""
        for name, values in self._columns.items():
            values += as_list(columns[name])

    def close(self) -> None:
        """Write the rows, and the end of the document."""
        order = self._sort.order(self.schema, self._columns[self._sort.column])
        self._writer.write(
            {name: [values[row] for row in order] for name, values in self._columns.items()}
        )
        self._writer.close()


def _sort_key(value: Any) -> Any:
    return json_text(value) if isinstance(value, (dict, list, tuple)) else value


class ParquetWriter(Writer):
    """
    A Parquet file, with row groups of at least `_ROWS_PER_GROUP` rows, but for the last one.

    Types are those of the schema. Rows that are sorted are one row group.
    """

    def __init__(self, schema: Schema, stream: IO[bytes], sort: SortOrder | None = None) -> None:
        super().__init__(schema, io.StringIO())
        self._stream = stream
        self._sort = sort
        self._group: list[Any] = []
        self._rows_of_group = 0
        self._file: Any = None

    def write(self, columns: Mapping[str, Any], memory: ItemMemory | None = None) -> None:
        """Write a chunk of rows; see `Writer`."""
        self.write_table(Table(self.schema, columns).arrow_table())

    def write_table(self, table: Any) -> None:
        """Write a `pyarrow.Table` of the same columns."""
        self._group.append(table)
        self._rows_of_group += len(table)
        if self._rows_of_group >= _ROWS_PER_GROUP and self._sort is None:
            self._write_group()

    def _write_group(self) -> None:
        import pyarrow

        table = pyarrow.concat_tables(self._group)
        if self._sort is not None:
            table = table.take(self._sort.order(self.schema, table[self._sort.column].to_pylist()))
        self._group, self._rows_of_group = [], 0
        try:
            if self._file is None:
                self._file = self._open(table.schema)
            self._file.write_table(table)
        except pyarrow.ArrowNotImplementedError as error:  # unions, structs without fields
            raise ValueError(f"Parquet cannot store a column, other formats can: {error}") from None

    def _open(self, schema: Any) -> Any:
        import pyarrow.parquet

        # Statistics of keys and values help no reader, and take copies of large ones.
        counted = [one.name for one in schema if not pyarrow.types.is_binary(one.type)]
        return pyarrow.parquet.ParquetWriter(
            self._stream, schema, compression="zstd", write_statistics=counted
        )

    def close(self) -> None:
        """Write what is left, and the end of the document."""
        if self._file is None and not self._group:
            self.write_table(self.schema.to_arrow().empty_table())
        if self._group:
            self._write_group()
        self._file.close()


class LinesWriter(Writer):
    """Writes a line of text for each row."""

    dialect: ClassVar[int]
    end: ClassVar[bytes] = b"\n"

    def __init__(self, schema: Schema, out: TextIO) -> None:
        super().__init__(schema, out)
        self._put = self.bytes_writer(out)
        self._memory = np.empty(_CHUNK_SIZE, np.uint8)

    @staticmethod
    def bytes_writer(out: TextIO) -> Callable[[memoryview | bytes], object]:
        """Return a function that writes UTF-8 to a stream, in the encoding of the stream."""
        if isinstance(out, io.TextIOWrapper) and codecs.lookup(out.encoding).name == "utf-8":
            out.flush()
            if not out.line_buffering:
                raw: BinaryIO = out.buffer
                return raw.write
        decoder = codecs.getincrementaldecoder("utf-8")()
        return lambda data: out.write(decoder.decode(data))

    def literals(self) -> Iterator[bytes]:
        """Yield what precedes the value of each column."""
        raise NotImplementedError

    def put(self, text: NDArray[np.uint8]) -> None:
        """Write lines, maybe without the end of the last one."""
        self._put(text.data)

    def write(self, columns: Mapping[str, TextColumn], memory: ItemMemory | None = None) -> None:
        """Write a chunk of rows; see `Writer`."""
        named = zip(self.schema.names, self.literals(), strict=True)
        parts = [part_of(columns[name], literal, self.dialect) for name, literal in named]
        count = len(columns[self.schema.names[0]])
        self.print_lines(LineForm(parts, self.dialect, self.end), count, memory)

    def print_lines(self, form: LineForm, count: int, memory: ItemMemory | None) -> None:
        """Write a number of lines of a form."""
        form_of = np.zeros(count, np.uint8)
        lines = LineWriter(
            (form,), form_of,
            (), form_of[:0], np.zeros(count + 1, np.int64),
            form_of[:0] if memory is None else memory.source_bytes,
        )  # fmt: skip
        status = STATUS["OUTPUT_FULL"]
        while status == STATUS["OUTPUT_FULL"]:
            status, fault = lines.fill(self._memory, 0)
            if memory is not None and status != STATUS["OUTPUT_FULL"]:
                memory.require_done((status, fault))
            if lines.end:
                self.put(self._memory[: lines.end])


class CsvWriter(LinesWriter):
    """
    Comma-separated values with a header line; times in milliseconds; a null is an empty field.

    Names and values come from the producers of a log. Text that a spreadsheet would evaluate
    as a formula gets a leading apostrophe; numbers stay unchanged.
    """

    dialect = CSV

    def __init__(self, schema: Schema, out: TextIO) -> None:
        super().__init__(schema, out)
        self._put(",".join(schema.names).encode() + b"\n")

    def literals(self) -> Iterator[bytes]:
        """Yield what precedes the value of each column."""
        for number in range(len(self.schema)):
            yield b"," if number else b""


class JsonLinesWriter(LinesWriter):
    """One JSON object per line; times in milliseconds."""

    dialect = JSON
    begin: ClassVar[bytes] = b"{"
    end = b"}\n"

    def literals(self) -> Iterator[bytes]:
        """Yield what precedes the value of each column."""
        for number, name in enumerate(self.schema.names):
            yield (b", " if number else self.begin) + json_text(name).encode() + b": "


class JsonWriter(JsonLinesWriter):
    """One JSON array of objects, an object per line; times in milliseconds."""

    begin = b",\n{"
    end = b"}"
    is_empty = True

    def put(self, text: NDArray[np.uint8]) -> None:
        """Write lines; the array begins where others have the comma of the one before."""
        if self.is_empty:
            text[0] = ord("[")
            self.is_empty = False
        super().put(text)

    def close(self) -> None:
        """Write what is left, and the end of the document."""
        self._put(b"[]\n" if self.is_empty else b"\n]\n")


class IsoTimes(Writer):
    """
    Writes times in ISO 8601 with another writer, which would write milliseconds.

    Parameters
    ----------
    writer : Writer
    """

    def __init__(self, writer: Writer) -> None:
        super().__init__(writer.schema, writer.out)
        self._writer = writer

    def write(self, columns: Mapping[str, Any], memory: ItemMemory | None = None) -> None:
        """Write a chunk of rows; see `Writer`."""
        times = {one.name: iso_times(columns[one.name]) for one in self.schema
                 if one.type == "time"}  # fmt: skip
        self._writer.write({**columns, **times}, memory)

    def close(self) -> None:
        """Write what is left, and the end of the document."""
        self._writer.close()


TEXT_WRITERS: Mapping[str, type[Writer]] = {
    "json": JsonWriter,
    "jsonl": JsonLinesWriter,
    "csv": CsvWriter,
}
"""The writers of text formats, by their names."""

FORMAT_OF_EXTENSION: Mapping[str, str] = {
    ".json": "json", ".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".parquet": "parquet",
}  # fmt: skip
"""The formats that extensions of files stand for."""


def as_columns(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> dict[str, Column]:
    """Return the named columns of rows."""
    return {name: [row[name] for row in rows] for name in names}
