"""Records and tables to a Parquet file. Needs pyarrow (``pip install kafkascan[arrow]``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kafkascan.arrow import require_pyarrow
from kafkascan.cli.inputs import PLACE_COLUMNS
from kafkascan.files import AtomicFile
from kafkascan.record_table import RecordTable


class ParquetOutput:
    """
    A file that appears under its name when it is whole.

    Parameters
    ----------
    path : Path
    names : sequence of str
        Columns, in order.
    """

    def __init__(self, path: Path, names: Sequence[str]) -> None:
        require_pyarrow()
        self._file = AtomicFile(path)
        self._names = names
        self._writer: Any = None

    def write(self, place: Mapping[str, object], records: RecordTable) -> None:
        """Write records of one segment."""
        pa = require_pyarrow()
        columns = records.to_arrow()
        table = pa.table(
            {
                name: _repeated(place[name], name, len(records))
                if name in PLACE_COLUMNS
                else _plain(columns[name])
                for name in self._names
            }
        )
        self._open(table.schema).write_table(table)

    def _open(self, schema: Any) -> Any:
        import pyarrow.parquet

        if self._writer is None:
            self._writer = pyarrow.parquet.ParquetWriter(
                self._file.stream, schema, compression="zstd"
            )
        return self._writer

    def __enter__(self) -> Self:
        self._file.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if kind is None and self._writer is None:
                self.write(dict.fromkeys(PLACE_COLUMNS), _no_records(self._names))
            if self._writer is not None:
                self._writer.close()
        except BaseException as closing:
            self._file.__exit__(type(closing), closing, closing.__traceback__)
            raise
        self._file.__exit__(kind, error, traceback)


def _no_records(names: Sequence[str]) -> RecordTable:
    from kafkascan import read_records

    return read_records(b"", columns=[name for name in names if name not in PLACE_COLUMNS])


def _repeated(value: object, name: str, count: int) -> Any:
    pa = require_pyarrow()
    return pa.repeat(pa.scalar(value, pa.int32() if name == "partition" else pa.string()), count)


def _plain(column: Any) -> Any:
    """Undo dictionaries: those of two segments differ, and a file has one schema."""
    pa = require_pyarrow()
    is_dictionary = pa.types.is_dictionary(column.type)
    return column.cast(column.type.value_type) if is_dictionary else column


def write_tables(path: Path, tables: Sequence[Any]) -> None:
    """Write Arrow tables of the same columns to a file that appears when it is whole."""
    import pyarrow.parquet

    pa = require_pyarrow()
    table = pa.concat_tables(tables) if tables else pa.table({})
    with AtomicFile(path) as file:
        pyarrow.parquet.write_table(table, file.stream, compression="zstd")
