"""Records to rows of the view ``records``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kafkascan.arrow import require_pyarrow
from kafkascan.batch_columns import column
from kafkascan.errors import CorruptBatchError
from kafkascan.record_table import RecordTable
from kafkascan.spark.batch_rows import NUMPY_TYPES, place_of, row_of
from kafkascan.spark.constants import codec_names, repeated, timestamps
from kafkascan.spark.files import FoundFile
from kafkascan.spark.options import Options
from kafkascan.spark.schemas import HEADERS, Column, arrow_schema, arrow_type

# By column: what of a record, or of its batch, it shows.
_READ = {
    "key": "key",
    "value": "value",
    "headers": "headers",
    "offset": "offset",
    "timestamp": "timestamp",
    "timestampMs": "timestamp",
    "sequence": "sequence",
}
_OF_BATCH = {
    "timestampType": "timestamp_type",
    "position": "position",
    "batchBaseOffset": "base_offset",
    "batchLastOffset": "last_offset",
    "leaderEpoch": "partition_leader_epoch",
    "magic": "magic",
    "codec": "compression_type",
    "producerId": "producer_id",
    "producerEpoch": "producer_epoch",
    "isTransactional": "is_transactional",
    "isControl": "is_control",
}
# Of batches, and seldom looked up by records for that reason.
_RARELY_DIFFERENT = {"timestampType", "leaderEpoch", "magic"}
# A record takes this much besides its key and value, a header besides its bytes.
_RECORD_COST, _HEADER_COST = 48, 64


def read_columns(columns: Sequence[Column]) -> list[str]:
    """Return what has to be decoded for some columns; offsets tell records apart."""
    return list(dict.fromkeys(["offset", *(_READ[c.name] for c in columns if c.name in _READ)]))


class RecordRows:
    """
    Makes rows of the records of one file.

    Parameters
    ----------
    file : FoundFile
    options : Options
    """

    def __init__(self, file: FoundFile, options: Options) -> None:
        self._pa = require_pyarrow()
        self._columns = options.schema()
        self._schema = arrow_schema(self._columns)
        self._most_rows, self._most_bytes = options.batch_rows, options.batch_bytes
        self._place = place_of(file)
        corrupt = options.corrupt_column()
        self._corrupt = None if corrupt is None else corrupt.name
        constants = dict(self._place)
        if self._corrupt is not None:
            constants[self._corrupt] = None
        self._constants = {
            one.name: (constants[one.name], arrow_type(one.type))
            for one in self._columns
            if one.name in constants
        }
        self._bytes = [c.name for c in self._columns if c.name in ("key", "value", "headers")]

    def of(self, records: RecordTable) -> Iterator[Any]:
        """Yield RecordBatches of bounded size."""
        for piece in self._pieces(records):
            found = piece.to_arrow(columns=self._bytes) if self._bytes else None
            arrays = [self._array(one, piece, found) for one in self._columns]
            yield self._pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _pieces(self, records: RecordTable) -> Iterator[RecordTable]:
        """Cut into pieces that are about as large as each other."""
        ends = np.cumsum(_costs(records))
        if not len(ends):
            return
        pieces = max(-(-int(ends[-1]) // self._most_bytes), -(-len(ends) // self._most_rows))
        if pieces == 1:
            yield records
            return
        share = -(-int(ends[-1]) // pieces)
        first = 0
        while first < len(records):
            before = ends[first - 1] if first else 0
            last = max(first + 1, int(np.searchsorted(ends, before + share, "right")))
            last = min(last, first + self._most_rows)
            yield records[first:last]
            first = last

    def _array(self, one: Column, records: RecordTable, found: Any) -> Any:
        name = one.name
        if name in self._constants:
            return repeated(*self._constants[name], len(records))
        if name == "headers":
            return _headers(found[name].chunk(0), records.columns["headers_count"])
        if name in self._bytes:
            return found[name].chunk(0)
        if name == "timestamp":
            return timestamps(records["timestamp"])
        if name in _RARELY_DIFFERENT:
            values = column(records.batches, _OF_BATCH[name])
            if len(values) and (values == values[0]).all():
                return repeated(int(values[0]), arrow_type(one.type), len(records))
        values = records[_OF_BATCH.get(name) or _READ[name]]
        if name == "codec":
            return codec_names(values)
        # NumPy converts faster than pyarrow does.
        return self._pa.array(values.astype(NUMPY_TYPES[one.type], copy=False))

    def of_errors(self, errors: list[CorruptBatchError]) -> Iterator[Any]:
        """Yield a row for each batch that cannot be read."""
        for error in errors:
            values = {
                "offset": -1 if error.base_offset is None else error.base_offset,
                "position": error.position,
                "batchBaseOffset": -1 if error.base_offset is None else error.base_offset,
                self._corrupt or "": str(error),
            }
            yield row_of(self._schema, self._columns, self._place | values)


def _costs(records: RecordTable) -> NDArray[np.int64]:
    costs = np.full(len(records), _RECORD_COST, np.int64)
    for name in ("key_size", "value_size"):
        if name in records.columns:
            costs += np.maximum(records.columns[name], 0)
    if "headers_count" in records.columns:
        costs += _HEADER_COST * records.columns["headers_count"].astype(np.int64)
    return costs


def _headers(found: Any, count: NDArray[np.int32]) -> Any:
    """Null where there are none, as Spark's Kafka source has it."""
    pa = require_pyarrow()
    is_empty = pa.array(count == 0)
    return pa.ListArray.from_arrays(
        found.offsets, found.values, type=arrow_type(HEADERS), mask=is_empty
    )
