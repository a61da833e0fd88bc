"""Batch tables to rows of the view ``batches``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kafkascan.arrow import require_pyarrow
from kafkascan.batch_columns import BatchTable, column
from kafkascan.errors import CorruptBatchError, record_error
from kafkascan.spark.constants import CODEC_NAMES, codec_names, repeated, timestamps
from kafkascan.spark.files import FoundFile
from kafkascan.spark.schemas import Column, arrow_schema, arrow_type
from kafkascan.spark.where import BATCH_NAMES

STATUS_OK = "OK"
BAD_CHECKSUM = "CHECKSUM_MISMATCH"


def place_of(file: FoundFile) -> dict[str, Any]:
    """Return what the columns that say where a row comes from hold."""
    return {
        "topic": file.topic,
        "partition": file.partition,
        "segment": file.base_offset,
        "path": file.path,
    }


def batch_values(batches: BatchTable, place: dict[str, Any]) -> Callable[[str], Any]:
    """Return what a condition looks columns up with."""

    def look_up(name: str) -> Any:
        if name in place:
            return place[name]
        values = column(batches, BATCH_NAMES[name])
        return CODEC_NAMES[values] if name == "codec" else values

    return look_up


NUMPY_TYPES: dict[str, type[np.generic]] = {
    "boolean": np.bool_,
    "tinyint": np.int8,
    "smallint": np.int16,
    "int": np.int32,
    "bigint": np.int64,
}


class BatchRows:
    """
    Makes rows of the batches of one file.

    Parameters
    ----------
    file : FoundFile
    columns : sequence of Column
    """

    def __init__(self, file: FoundFile, columns: Sequence[Column]) -> None:
        self._pa = require_pyarrow()
        self._path = file.path
        self._columns = columns
        self._schema = arrow_schema(columns)
        kinds = {one.name: arrow_type(one.type) for one in columns}
        constants = place_of(file) | {"status": STATUS_OK, "error": None}
        self._constants = {
            name: (value, kinds[name]) for name, value in constants.items() if name in kinds
        }

    def of(self, batches: BatchTable, verdicts: NDArray[np.bool_] | None) -> Any:
        """Return a RecordBatch; `verdicts` are those of the checksums."""
        arrays = [self._array(one, batches, verdicts) for one in self._columns]
        return self._pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _array(self, one: Column, batches: BatchTable, verdicts: NDArray[np.bool_] | None) -> Any:
        is_bad = None if verdicts is None or verdicts.all() else ~verdicts
        if one.name == "crcOk":
            return self._pa.array(verdicts)
        if one.name == "status" and is_bad is not None:
            return self._pa.array(np.where(is_bad, BAD_CHECKSUM, STATUS_OK))
        if one.name == "error" and is_bad is not None:
            return self._pa.array(
                [
                    str(record_error(BAD_CHECKSUM, self._path, row)) if bad else None
                    for row, bad in zip(batches, is_bad, strict=True)
                ],
                self._pa.string(),
            )
        if one.name in self._constants:
            return repeated(*self._constants[one.name], len(batches))
        if one.name == "maxTimestamp":
            return timestamps(batches["max_timestamp"])
        values = column(batches, BATCH_NAMES[one.name])
        if one.name == "codec":
            return codec_names(values)
        # NumPy converts faster than pyarrow does; crc is unsigned.
        return self._pa.array(values.astype(NUMPY_TYPES[one.type]))

    def of_error(self, error: CorruptBatchError, trailing_bytes: int) -> Any:
        """Return the row that stands for bytes that are no batch."""
        base_offset = -1 if error.base_offset is None else error.base_offset
        values = {
            "position": error.position,
            "sizeInBytes": trailing_bytes,
            "baseOffset": base_offset,
            "lastOffset": base_offset,
            "status": error.symbol,
            "error": str(error),
        }
        return row_of(self._schema, self._columns, self._place() | values)

    def _place(self) -> dict[str, Any]:
        names = ("topic", "partition", "segment", "path")
        return {name: self._constants[name][0] for name in names if name in self._constants}


NOTHING: dict[str, Any] = {"string": "", "boolean": False}
"""What a column that must say something says where there is nothing to say; numbers: -1."""


def row_of(schema: Any, columns: Sequence[Column], values: dict[str, Any]) -> Any:
    """Return one row of what is known; the rest is null, or nothing."""
    pa = require_pyarrow()
    arrays = []
    for one in columns:
        default = None if one.nullable else NOTHING.get(one.type, -1)
        arrays.append(pa.array([values.get(one.name, default)], arrow_type(one.type)))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
