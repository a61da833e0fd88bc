"""Decode the records of Kafka's own topics into Arrow columns, many at once.

For one record, see `topic_messages`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafkascan._core import message_columns as _core
from kafkascan.format.errors import STATUS
from kafkascan.format.schemas.message_decoder import Array, Field, Schema, SchemaError, Type
from kafkascan.internal_topics.message_program import (
    NO_MESSAGE,
    MessageColumn,
    MessagePrograms,
    compile_message,
)
from kafkascan.internal_topics.topic_messages import (
    CoordinatorSchemas,
    decode_coordinator_record,
    decode_framed_message,
)
from kafkascan.records.record_table import RecordTable
from kafkascan.tables.schema import require_pyarrow

if TYPE_CHECKING:
    import pyarrow as pa


_LARGEST_ARRAY = 2**31 - 1


@dataclass(frozen=True)
class MessageColumns:
    """
    Messages of one type in columns.

    Attributes
    ----------
    rows : array of int64, shape (n,)
        Rows of the record table, in ascending order.
    keys : pyarrow.StructArray or None
        Keys by field name, see `message_type`. None for topics whose records have no keys.
    values : pyarrow.StructArray
        Values by field name; null for a tombstone.
    versions : array of int16, shape (n,)
        Versions of the values; -1 for a tombstone. A field that the version does not have has
        its default.
    """

    rows: NDArray[np.int64]
    keys: pa.StructArray | None
    values: pa.StructArray
    versions: NDArray[np.int16]


@dataclass(frozen=True)
class DecodedTopic:
    """
    Records of one of Kafka's own topics in columns.

    Attributes
    ----------
    messages : dict of int to MessageColumns
        By Kafka's number of the type. Types without records are missing.
    errors : dict of int to SchemaError
        The reason why a record cannot be decoded, by its row; `UnknownRecordTypeError` if its
        type is not known.
    """

    messages: dict[int, MessageColumns] = field(default_factory=dict)
    errors: dict[int, SchemaError] = field(default_factory=dict)


def decode_coordinator_columns(schemas: CoordinatorSchemas, records: RecordTable) -> DecodedTopic:
    """
    Decode records of a coordinator's topic into columns, with the rules of Kafka's classes.

    Use it for millions of offset commits or transaction states; the columns are Arrow's. It gives
    what `decode_coordinator_record` gives for each record.

    Parameters
    ----------
    schemas : mapping
        One of `COORDINATOR_RECORDS`.
    records : RecordTable
        With keys and values. Control records must not be among them.

    Returns
    -------
    DecodedTopic

    Examples
    --------
    >>> table = ks.read_records(log, columns=["offset", "timestamp", "key", "value"])
    >>> decoded = decode_coordinator_columns(COORDINATOR_RECORDS["__consumer_offsets"], table)
    >>> commits = decoded.messages[1]
    >>> commits.keys.field("group"), commits.values.field("offset"), table["offset"][commits.rows]
    """
    keys, values = _Messages.of(records, "key"), _Messages.of(records, "value")
    types = keys.numbers
    # The int16 of a value is its version.
    values = values._replace(versions=np.where(values.sizes < 0, NO_MESSAGE, values.numbers))
    keys = keys._replace(versions=np.zeros_like(types))
    is_readable = (keys.starts > 0) & ((values.starts > 0) | (values.sizes < 0))

    def decode(row: int) -> object:
        key, value = records[row].key, records[row].value
        return decode_coordinator_record(schemas, key or b"", value)

    decoded = DecodedTopic()
    for code, rows in _rows_by_type(types, is_readable, schemas):
        of_key, of_value = schemas[code]
        parts = [(of_key, keys.take(rows)), (of_value, values.take(rows))]
        done, (key, value) = _decode(parts, records, must_end=False)
        _add(decoded, code, rows[done], key, value, parts[1][1].versions[done])
    _add_errors(decoded, len(records), decode)
    return decoded


def decode_framed_columns(schemas: Mapping[int, Schema], records: RecordTable) -> DecodedTopic:
    """
    Decode records of the metadata log or of ``__remote_log_metadata`` into columns.

    It gives what `decode_framed_message` gives for each record.

    Parameters
    ----------
    schemas : mapping
        ``METADATA_RECORDS`` or ``REMOTE_LOG_RECORDS``.
    records : RecordTable
        With values. Control records must not be among them.

    Returns
    -------
    DecodedTopic
    """
    values = _Messages.of(records, "value", is_framed=True)

    def decode(row: int) -> object:
        return decode_framed_message(schemas, records[row].value or b"")

    decoded = DecodedTopic()
    for code, rows in _rows_by_type(values.numbers, values.starts > 0, schemas):
        messages = values.take(rows)
        done, (value,) = _decode([(schemas[code], messages)], records, must_end=True)
        _add(decoded, code, rows[done], None, value, messages.versions[done])
    _add_errors(decoded, len(records), decode)
    return decoded


def _rows_by_type(
    types: NDArray[np.int32], is_readable: NDArray[np.bool_], schemas: Mapping[int, object]
) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Yield each known type with its rows."""
    for code in np.unique(types[is_readable]).tolist():
        if code in schemas:
            yield code, np.flatnonzero(is_readable & (types == code))


def _add(
    decoded: DecodedTopic,
    code: int,
    rows: NDArray[np.int64],
    keys: pa.StructArray | None,
    values: pa.StructArray,
    versions: NDArray[np.int32],
) -> None:
    if len(rows):
        printed = np.where(versions == NO_MESSAGE, -1, versions).astype(np.int16)
        decoded.messages[code] = MessageColumns(rows, keys, values, printed)


def _add_errors(decoded: DecodedTopic, count: int, decode: Callable[[int], object]) -> None:
    """Add the reasons why the other rows cannot be decoded, from the decoder for one record."""
    is_left = np.ones(count, np.bool_)
    for one in decoded.messages.values():
        is_left[one.rows] = False
    for row in np.flatnonzero(is_left).tolist():
        try:
            decode(row)
        except SchemaError as error:
            decoded.errors[row] = error
        else:
            decoded.errors[row] = SchemaError("the bytes of the record changed while it was read")


class _Messages(NamedTuple):
    """Encoded messages: addresses and sizes, and what precedes each."""

    addresses: NDArray[np.uintp]
    sizes: NDArray[np.int32]
    numbers: NDArray[np.int32]
    versions: NDArray[np.int32]
    starts: NDArray[np.int32]

    @classmethod
    def of(cls, records: RecordTable, name: str, *, is_framed: bool = False) -> _Messages:
        addresses, sizes = records.addresses(name)
        numbers, versions, starts = np.empty((3, len(sizes)), np.int32)
        outcome = _core.frames_into(
            records.buffers.source_bytes, addresses, sizes, is_framed, numbers, versions, starts
        )
        records.buffers.require_done(outcome)
        return cls(addresses, sizes, numbers, versions, starts)

    def take(self, rows: NDArray[np.int64] | NDArray[np.bool_]) -> _Messages:
        return _Messages(
            self.addresses[rows],
            self.sizes[rows],
            self.numbers[rows],
            self.versions[rows],
            self.starts[rows],
        )


def _decode(
    parts: list[tuple[Schema, _Messages]], records: RecordTable, *, must_end: bool
) -> tuple[NDArray[np.bool_], list[pa.StructArray]]:
    """
    Decode the messages of records: their keys and values, or their values.

    Returns
    -------
    is_done : array of bool
        Whether all messages of a record could be decoded.
    columns : list of pyarrow.StructArray
        The messages of those records.
    """
    jobs = [_Job(compile_message(schema), one, records, must_end) for schema, one in parts]
    counted = [job.count() for job in jobs]
    is_done = np.logical_and.reduce([done for done, _ in counted])
    if is_done.all():
        return is_done, [job.fill(sizes) for job, (_, sizes) in zip(jobs, counted, strict=True)]
    jobs = [replace(job, messages=job.messages.take(is_done)) for job in jobs]
    return is_done, [job.fill(job.count()[1]) for job in jobs]


@dataclass(frozen=True)
class _Job:
    """Messages of one schema that are decoded in two passes: the first one counts values."""

    programs: MessagePrograms
    messages: _Messages
    records: RecordTable
    must_end: bool

    def count(self) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        return self._run(None)

    def fill(self, counts: NDArray[np.int64]) -> pa.StructArray:
        if counts[1].max() > _LARGEST_ARRAY:
            raise OverflowError("the messages are too large for an array: decode fewer records")
        buffers = [
            _ColumnBuffers.empty(column, int(count), int(size))
            for column, count, size in zip(self.programs.root, *counts, strict=True)
        ]
        done, filled = self._run([one.outputs for one in buffers])
        if not done.all() or not np.array_equal(filled, counts):
            self.records.buffers.require_done((STATUS["ROW_MISMATCH"], 0))
        return _arrow_array(self.programs.root, buffers)

    def _run(self, outputs: list[_Outputs] | None) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        done = np.empty(len(self.messages.sizes), np.uint8)
        counts = np.zeros((2, sum(1 for _ in self.programs.root)), np.int64)
        buffers = self.records.buffers
        outcome = self.programs.decoder(must_end=self.must_end).decode(
            buffers.source_bytes, self.messages.addresses, self.messages.sizes,
            self.messages.starts, self.programs.numbers_of(self.messages.versions),
            done, counts, outputs,
        )  # fmt: skip
        buffers.require_done(outcome)
        return done.astype(np.bool_), counts


# ---- Arrow's arrays ----------------------------------------------------------------------------

_Bytes = NDArray[np.uint8]
_Outputs = tuple[_Bytes | None, NDArray[np.int32] | None, _Bytes | None, _Bytes]


class _ColumnBuffers(NamedTuple):
    """Buffers of a column: numbers, starts of items, bytes of items, a byte of validity each."""

    values: _Bytes | None
    starts: NDArray[np.int32] | None
    data: _Bytes | None
    is_valid: _Bytes

    @classmethod
    def empty(cls, column: MessageColumn, count: int, size: int) -> _ColumnBuffers:
        values = starts = data = None
        if column.width:
            values = np.empty(count * column.width, np.uint8)
        elif not isinstance(column.type, Schema):
            starts = np.zeros(count + 1, np.int32)
        if column.type in ("string", "bytes"):
            data = np.empty(size + _core.SLACK, np.uint8)
        return cls(values, starts, data, np.empty(count, np.uint8))

    @property
    def outputs(self) -> _Outputs:
        """What a decoder fills: the end of each item instead of its start."""
        ends = None if self.starts is None else self.starts[1:]
        return self.values, ends, self.data, self.is_valid


def _arrow_array(column: MessageColumn, buffers: list[_ColumnBuffers]) -> pa.Array:
    pa = require_pyarrow()
    one = buffers[column.number]
    children = [_arrow_array(child, buffers) for child in column.children]
    validity = None
    if not one.is_valid.all():
        validity = pa.py_buffer(np.packbits(one.is_valid, bitorder="little"))
    values = one.values
    if values is not None and column.type == "bool":
        values = np.packbits(values, bitorder="little")
    given = (values, one.starts, one.data)
    parts = [validity, *(pa.py_buffer(some) for some in given if some is not None)]
    kind = _arrow_type(column.type)
    return pa.Array.from_buffers(kind, len(one.is_valid), parts, children=children)


def message_type(schema: Schema) -> pa.StructType:
    """
    Return the Arrow type of a message.

    Numbers have Arrow's types of the same size, an id is ``fixed_size_binary(16)``, a structure a
    ``struct``, and an array a ``list``.
    """
    pa = require_pyarrow()
    return pa.struct([_arrow_field(one) for one in schema.fields])


def _arrow_field(one: Field) -> pa.Field:
    return require_pyarrow().field(one.name, _arrow_type(one.type))


def _arrow_type(kind: Type) -> pa.DataType:
    pa = require_pyarrow()
    if isinstance(kind, Schema):
        return message_type(kind)
    if isinstance(kind, Array):
        return pa.list_(_arrow_type(kind.element))
    return _ARROW_TYPES[kind]()


_ARROW_TYPES: dict[str, Callable[[], pa.DataType]] = {
    "int8": lambda: require_pyarrow().int8(),
    "int16": lambda: require_pyarrow().int16(),
    "uint16": lambda: require_pyarrow().uint16(),
    "int32": lambda: require_pyarrow().int32(),
    "uint32": lambda: require_pyarrow().uint32(),
    "int64": lambda: require_pyarrow().int64(),
    "float64": lambda: require_pyarrow().float64(),
    "bool": lambda: require_pyarrow().bool_(),
    "uuid": lambda: require_pyarrow().binary(16),
    "string": lambda: require_pyarrow().string(),
    "bytes": lambda: require_pyarrow().binary(),
}
