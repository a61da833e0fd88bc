"""Build Arrow columns and record batches in the types that Spark expects."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kafkascan.batches.arrow import NAMED_CODES
from kafkascan.spark.options.view_schemas import Row, arrow_schema
from kafkascan.tables.schema import Field, require_pyarrow
from kafkascan.tables.table import LATEST_MS, arrow_column

if TYPE_CHECKING:
    import pyarrow as pa

_MICROSECONDS = 1000

# Spark has no unsigned numbers.
_NUMPY_TYPES: dict[str, type[np.generic]] = {
    "bool": np.bool_,
    "int8": np.int8,
    "int16": np.int16,
    "int32": np.int32,
    "int64": np.int64,
    "uint32": np.int64,
    "float64": np.float64,
}

_PLACEHOLDERS: dict[str, object] = {"string": "", "bool": False}
_NUMBER_PLACEHOLDER = -1


def number_array(values: NDArray[Any], type_name: str) -> pa.Array:
    """Return numbers or booleans as an Arrow array of the type that Spark expects of a field's."""
    # NumPy converts types and gathers fields of a table faster than pyarrow does.
    return require_pyarrow().array(np.require(values, _NUMPY_TYPES[type_name], ["C", "A"]))


def timestamp_array(milliseconds: NDArray[np.int64]) -> pa.Array:
    """
    Return ``timestamp[us, tz=UTC]``; -1 is 1 ms before the epoch, as in Spark's Kafka source.

    Times that do not fit into 64 bits of microseconds become null.
    """
    pa = require_pyarrow()
    mask = None
    if len(milliseconds) and not (
        -LATEST_MS <= milliseconds.min() <= milliseconds.max() <= LATEST_MS
    ):
        mask = (milliseconds < -LATEST_MS) | (milliseconds > LATEST_MS)
    with np.errstate(over="ignore"):
        microseconds = np.ascontiguousarray(milliseconds * _MICROSECONDS)
    raw = pa.array(microseconds, pa.int64(), mask=mask)
    return raw.view(pa.timestamp("us", tz="UTC"))


@cache
def _labels(name: str) -> NDArray[np.str_]:
    names, known = NAMED_CODES[name]
    return np.array([names.name_of(code) for code in known])


def code_names(codes: NDArray[np.int8], name: str) -> NDArray[np.str_]:
    """Return Kafka's names of the codes of a column of `NAMED_CODES`."""
    return _labels(name)[codes - NAMED_CODES[name][1].start]


def code_array(codes: NDArray[np.int8], name: str) -> pa.Array:
    """Return Kafka's names of the codes of a column of `NAMED_CODES` as strings."""
    pa = require_pyarrow()
    if len(codes) and (codes == codes[0]).all():
        return constant_array(str(code_names(codes[:1], name)[0]), pa.string(), len(codes))
    indices = codes - np.int8(NAMED_CODES[name][1].start)
    return pa.array(_labels(name).tolist(), pa.string()).take(pa.array(indices))


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


def record_batch_of_rows(rows: Sequence[Row], columns: Iterable[Field]) -> pa.RecordBatch:
    """
    Return rows as a record batch.

    Missing values become null, or a placeholder where the column is not nullable: -1, the empty
    string, or false.
    """
    arrays = []
    for one in columns:
        default = None if one.nullable else _PLACEHOLDERS.get(one.type, _NUMBER_PLACEHOLDER)
        values = [row.get(one.name, default) for row in rows]
        arrays.append(arrow_column(one, values, is_spark=True))
    return require_pyarrow().RecordBatch.from_arrays(arrays, schema=arrow_schema(columns))
