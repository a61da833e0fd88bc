"""Build Arrow columns and record batches in the types that Spark expects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kafkascan.format.layout import CompressionType
from kafkascan.spark.options.view_schemas import Column, Row, arrow_schema, arrow_type
from kafkascan.tables.schema import require_pyarrow

if TYPE_CHECKING:
    import pyarrow as pa

_MICROSECONDS = 1000
# The range of times that microseconds in 64 bits can hold.
_EARLIEST_MS = -(2**63 // _MICROSECONDS)
LATEST_MS = (2**63 - 1) // _MICROSECONDS
"""The latest time in milliseconds that Spark's microseconds can hold."""

CODEC_NAMES = np.array([CompressionType.name_of(code) for code in range(8)])
"""Names of codecs, indexed by code."""

_NUMPY_TYPES: dict[str, type[np.generic]] = {
    "boolean": np.bool_,
    "tinyint": np.int8,
    "smallint": np.int16,
    "int": np.int32,
    "bigint": np.int64,
}

_PLACEHOLDERS: dict[str, object] = {"string": "", "boolean": False}
_NUMBER_PLACEHOLDER = -1


def number_array(values: NDArray[Any], spark_type: str) -> pa.Array:
    """Return numbers or booleans as an Arrow array of the type that Spark expects."""
    # NumPy converts types and gathers fields of a table faster than pyarrow does.
    return require_pyarrow().array(np.require(values, _NUMPY_TYPES[spark_type], ["C", "A"]))


def timestamp_array(milliseconds: NDArray[np.int64]) -> pa.Array:
    """
    Return ``timestamp[us, tz=UTC]``; -1 is 1 ms before the epoch, as in Spark's Kafka source.

    Times that do not fit into 64 bits of microseconds become null.
    """
    pa = require_pyarrow()
    mask = None
    if (
        len(milliseconds)
        and not _EARLIEST_MS <= milliseconds.min() <= milliseconds.max() <= LATEST_MS
    ):
        mask = (milliseconds < _EARLIEST_MS) | (milliseconds > LATEST_MS)
    with np.errstate(over="ignore"):
        microseconds = np.ascontiguousarray(milliseconds * _MICROSECONDS)
    raw = pa.array(microseconds, pa.int64(), mask=mask)
    return raw.view(pa.timestamp("us", tz="UTC"))


def codec_array(codes: NDArray[np.int8]) -> pa.Array:
    """Return Kafka's names of codecs as strings."""
    pa = require_pyarrow()
    if len(codes) and (codes == codes[0]).all():
        return constant_array(str(CODEC_NAMES[codes[0]]), pa.string(), len(codes))
    return pa.array(CODEC_NAMES.tolist(), pa.string()).take(pa.array(codes))


def constant_array(value: object, kind: pa.DataType, count: int) -> pa.Array:
    """Return an array of one repeated value, sliced from a cached longer one."""
    column = _constants.get((value, kind))
    if column is None or count > len(column):
        pa = require_pyarrow()
        # Record batches of a log have similar lengths: a reserve avoids building most again.
        column = pa.repeat(pa.scalar(value, kind), count + count // 4)
        _constants[value, kind] = column
        while len(_constants) > _CONSTANTS_KEPT:
            _constants.pop(next(iter(_constants)), None)
    return column[:count]


# Global, because each task builds rows in a new thread: later tasks of a worker reuse the arrays.
_constants: dict[tuple[object, pa.DataType], pa.Array] = {}
_CONSTANTS_KEPT = 16


def single_row(schema: pa.Schema, columns: Sequence[Column], values: Row) -> pa.RecordBatch:
    """
    Return one row from known values.

    Unknown values become null, or a placeholder where the column is not nullable: -1, the empty
    string, or false.
    """
    pa = require_pyarrow()
    arrays = []
    for one in columns:
        default = None if one.nullable else _PLACEHOLDERS.get(one.type, _NUMBER_PLACEHOLDER)
        arrays.append(pa.array([values.get(one.name, default)], arrow_type(one.type)))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def record_batch_of_rows(rows: Sequence[Row], columns: Sequence[Column]) -> pa.RecordBatch:
    """Return rows as a record batch; missing values are null."""
    pa = require_pyarrow()
    arrays = []
    for one in columns:
        values = [row.get(one.name) for row in rows]
        if one.type.startswith("map<"):
            values = [list(value.items()) if isinstance(value, dict) else None for value in values]
        arrays.append(pa.array(values, arrow_type(one.type)))
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(columns))
