"""Build rows of the view ``batches`` from batch tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from kafkascan.batches.arrow import NAMED_CODES
from kafkascan.batches.columns import BatchTable, column
from kafkascan.format.errors import CorruptBatchError, record_error
from kafkascan.spark.options.reader_options import Options
from kafkascan.spark.options.view_schemas import Row, arrow_schema
from kafkascan.spark.planning.task_plan import ScanRange
from kafkascan.spark.rows.arrow_columns import (
    code_array,
    code_names,
    constant_array,
    number_array,
    record_batch_of_rows,
)
from kafkascan.tables.schema import Field, require_pyarrow
from kafkascan.tables.table import arrow_column

if TYPE_CHECKING:
    import pyarrow as pa

STATUS_OK, HEADERS_OK = "OK", "HEADERS_OK"
BAD_CHECKSUM = "CHECKSUM_MISMATCH"


def intact_status(verifies: bool) -> str:
    """Return the status of what is intact, by whether checksums are verified."""
    return STATUS_OK if verifies else HEADERS_OK


def column_lookup(batches: BatchTable, file: Row) -> Callable[[str], object]:
    """Return a function that gives a `WhereClause` the values of a column."""

    def look_up(name: str) -> object:
        if name in file:
            return file[name]
        values = column(batches, name)
        return code_names(values, name) if name in NAMED_CODES else values

    return look_up


class BatchRows:
    """
    Build rows of the batches of one file.

    Parameters
    ----------
    one : ScanRange
    options : Options
    """

    def __init__(self, one: ScanRange, options: Options) -> None:
        self._path = one.file.path
        self._file_values = one.file_values
        self._columns = options.schema()
        self._schema = arrow_schema(self._columns)
        constants = self._file_values | {"status": intact_status(options.verifies), "error": None}
        self._constants = {
            one.name: (constants[one.name], one.arrow_type(is_spark=True))
            for one in self._columns
            if one.name in constants
        }

    def build(self, batches: BatchTable, verdicts: NDArray[np.bool_] | None) -> pa.RecordBatch:
        """Return one row per batch; `verdicts` are the results of checksum verification."""
        arrays = [self._array(one, batches, verdicts) for one in self._columns]
        return require_pyarrow().RecordBatch.from_arrays(arrays, schema=self._schema)

    def _array(
        self, one: Field, batches: BatchTable, verdicts: NDArray[np.bool_] | None
    ) -> pa.Array:
        pa = require_pyarrow()
        is_bad = None if verdicts is None or verdicts.all() else ~verdicts
        if one.name == "crc_is_valid":
            return pa.array(verdicts)
        if one.name == "status" and is_bad is not None:
            return pa.array(np.where(is_bad, BAD_CHECKSUM, STATUS_OK))
        if one.name == "error" and is_bad is not None:
            return pa.array(
                [
                    str(record_error(BAD_CHECKSUM, self._path, row)) if bad else None
                    for row, bad in zip(batches, is_bad, strict=True)
                ],
                pa.string(),
            )
        if one.name in self._constants:
            return constant_array(*self._constants[one.name], len(batches))
        values = column(batches, one.name)
        if one.name in NAMED_CODES:
            return code_array(values, one.name)
        if one.type == "time":
            return arrow_column(one, values, is_spark=True)
        return number_array(values, one.type)

    def build_damage(self, error: CorruptBatchError, trailing_bytes: int) -> pa.RecordBatch:
        """Return the row that reports bytes which are not a valid batch."""
        base_offset = -1 if error.base_offset is None else error.base_offset
        values: Row = {
            "position": error.position,
            "size_in_bytes": trailing_bytes,
            "base_offset": base_offset,
            "last_offset": base_offset,
            "status": error.symbol,
            "error": str(error),
        }
        return record_batch_of_rows([self._file_values | values], self._columns)
