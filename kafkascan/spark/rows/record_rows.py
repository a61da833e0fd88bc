"""Build rows of the view ``records`` from decoded records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from kafkascan.batches.arrow import NAMED_CODES
from kafkascan.batches.columns import column
from kafkascan.format.errors import CorruptBatchError, ValueSchemaError
from kafkascan.format.findings import Severity
from kafkascan.io.concurrency import group_by_bytes
from kafkascan.records.record_table import RECORD_COLUMN_NAMES, RecordTable
from kafkascan.records.typed_items import ItemDecoding, ItemPlace
from kafkascan.spark.options.reader_options import CORRUPT_RECORD, Options
from kafkascan.spark.options.view_schemas import HEADERS, Row, arrow_schema
from kafkascan.spark.planning.task_plan import ScanRange
from kafkascan.spark.rows.arrow_columns import (
    code_array,
    constant_array,
    number_array,
    record_batch_of_rows,
    timestamp_array,
)
from kafkascan.spark.rows.damage_modes import logger
from kafkascan.spark.rows.range_offsets import WrongOffsetsError
from kafkascan.tables.schema import Field, arrow_type, require_pyarrow

if TYPE_CHECKING:
    import pyarrow as pa

# Usually equal in all batches of a table. Then they need no lookup per record.
_MOSTLY_CONSTANT = {"timestamp_type", "partition_leader_epoch", "magic"}
_ITEM_COLUMNS = {"key", "value", "headers", "key_raw", "value_raw"}
# Estimated bytes of a record besides its key and value, and of a header.
_RECORD_COST, _HEADER_COST = 48, 64


BATCH_ROWS = 32_768
"""Rows of a record batch, at most."""
_BATCH_BYTES = 1 << 22


class RecordRows:
    """
    Build rows of the records of one file.

    Parameters
    ----------
    one : ScanRange
    options : Options

    Attributes
    ----------
    read_columns : list of str
        The columns of `RecordTable` that the rows need, and `offset`.
    """

    def __init__(self, one: ScanRange, options: Options) -> None:
        self._columns = options.schema()
        self._schema = arrow_schema(self._columns)
        names = [one.name.removesuffix("_raw") for one in self._columns]
        needed = [name for name in names if name in RECORD_COLUMN_NAMES]
        # A record header may name the schema of its value.
        also = ["headers"] if options.readers else []
        self.read_columns = list(dict.fromkeys(["offset", *needed, *also]))
        self._file_values = one.file_values
        constants = self._file_values | {CORRUPT_RECORD.name: None}
        self._constants = {
            one.name: (constants[one.name], one.arrow_type(is_spark=True))
            for one in self._columns
            if one.name in constants
        }
        self._bytes = [
            one.name for one in self._columns if one.name in _ITEM_COLUMNS and one.arrow is None
        ]
        self._reads_types = bool(options.readers)
        self.decoding = ItemDecoding(
            {
                name: reader.decoder(ItemPlace(name, one.file.path, *one.partition))
                for name, reader in options.readers.items()
            }
        )

    def build(self, records: RecordTable, options: Options) -> Iterator[pa.RecordBatch]:
        """Yield record batches of bounded size."""
        pa = require_pyarrow()
        for part in self._parts(records):
            found, messages = self._decoded(part, options)
            items = found.arrow_table(columns=self._bytes) if self._bytes else None
            arrays = [
                messages
                if messages is not None and one.name == CORRUPT_RECORD.name
                else self._array(one, found, items)
                for one in self._columns
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _decoded(
        self, records: RecordTable, options: Options
    ) -> tuple[RecordTable, pa.Array | None]:
        """
        Return records with typed columns, and the messages of those that cannot be decoded.

        Raises
        ------
        ValueSchemaError
            At the first of these, if the mode is FAILFAST.
        """
        if not self._reads_types:
            return records, None
        found = self.decoding.decoded(records)
        rows = np.flatnonzero(found.failed)
        if not len(rows):
            return found.records, None
        texts = [str(one) for one in found.problems if one.severity is Severity.ERROR]
        if options.fails_fast:
            raise ValueSchemaError(
                f"{texts[0]}; mode=PERMISSIVE returns a null, and why in {CORRUPT_RECORD.name}"
            )
        if options.mode == "DROPMALFORMED":
            logger.warning("dropped %d records whose values cannot be decoded", len(rows))
            return found.records[~found.failed], None
        messages: list[str | None] = [None] * len(records)
        for number, row in enumerate(rows.tolist()):
            messages[row] = texts[min(number, len(texts) - 1)]
        return found.records, require_pyarrow().array(messages, "string")

    def _parts(self, records: RecordTable) -> Iterator[RecordTable]:
        """Split a table into parts of about equal size."""
        costs = _costs(records)
        if not len(costs):
            return
        total = int(costs.sum())
        parts = max(-(-total // _BATCH_BYTES), -(-len(costs) // BATCH_ROWS))
        if parts == 1:
            yield records
            return
        share = -(-total // parts)
        for group in group_by_bytes(costs, share, most=BATCH_ROWS):
            yield records[group]

    def _array(self, one: Field, records: RecordTable, items: pa.Table | None) -> pa.Array:
        name = one.name
        if name in records.typed:
            return _as_spark(records.typed[name], one)
        if name in self._constants:
            return constant_array(*self._constants[name], len(records))
        if items is not None and name in self._bytes:
            array = items[name].chunk(0)
            is_headers = name == "headers"
            return _header_array(array, records.columns["headers_count"]) if is_headers else array
        if name == "timestamp":
            return timestamp_array(records["timestamp"])
        ours = "timestamp_type" if name == "timestampType" else name
        if ours in _MOSTLY_CONSTANT:
            values = column(records.batches, ours)
            if len(values) and (values == values[0]).all():
                kind = one.arrow_type(is_spark=True)
                return constant_array(int(values[0]), kind, len(records))
        values = records[ours]
        if name in NAMED_CODES:
            return code_array(values, name)
        return number_array(values, one.type)

    def build_damage(self, errors: list[CorruptBatchError]) -> Iterator[pa.RecordBatch]:
        """Yield a row for each batch that cannot be read."""
        for error in errors:
            base_offset = -1 if error.base_offset is None else error.base_offset
            first = error.offset if isinstance(error, WrongOffsetsError) else base_offset
            values: Row = {
                "offset": -1 if first is None else first,
                "position": error.position,
                "base_offset": base_offset,
                CORRUPT_RECORD.name: str(error),
            }
            yield record_batch_of_rows([self._file_values | values], self._columns)


def _as_spark(values: pa.ChunkedArray, one: Field) -> pa.Array:
    """Return typed values in Spark's types."""
    pa = require_pyarrow()
    found = values.cast(one.arrow)
    return pa.concat_arrays(found.chunks) if found.num_chunks else pa.array([], one.arrow)


def _costs(records: RecordTable) -> NDArray[np.int64]:
    """Return the estimated size of each record, in bytes."""
    costs = np.full(len(records), _RECORD_COST, np.int64)
    for name in ("key_size", "value_size"):
        if name in records.columns:
            costs += np.maximum(records.columns[name], 0)
    if "headers_count" in records.columns:
        costs += _HEADER_COST * records.columns["headers_count"].astype(np.int64)
    return costs


def _header_array(lists: pa.ListArray, count: NDArray[np.int32]) -> pa.ListArray:
    """Return headers in Spark's type; null for a record without headers, as in Spark's source."""
    pa = require_pyarrow()
    is_empty = pa.array(count == 0)
    return pa.ListArray.from_arrays(
        lists.offsets, lists.values, type=arrow_type(HEADERS.type, is_spark=True), mask=is_empty
    )
