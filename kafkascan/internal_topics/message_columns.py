"""Decode the records of Kafka's own topics into Arrow columns, many at once.

For one record, see `topic_messages`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from kafkascan.batches.arrow import require_pyarrow
from kafkascan.format.schemas.message_decoder import Array, Field, Schema, SchemaError, Type
from kafkascan.internal_topics.topic_messages import (
    CoordinatorSchemas,
    Message,
    decode_coordinator_record,
    decode_framed_message,
)
from kafkascan.records.record_table import RecordTable

if TYPE_CHECKING:
    import pyarrow as pa


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
    keys, values = records.items("key"), records.items("value")

    def decode(row: int) -> tuple[Message | None, Message | None]:
        return decode_coordinator_record(schemas, keys[row] or b"", values[row])

    return _decode_rows(len(records), decode, schemas)


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
    values = records.items("value")

    def decode(row: int) -> tuple[Message | None, Message | None]:
        return None, decode_framed_message(schemas, values[row] or b"")

    pairs = {code: (None, schema) for code, schema in schemas.items()}
    return _decode_rows(len(records), decode, pairs)


def _decode_rows(
    count: int,
    decode: Callable[[int], tuple[Message | None, Message | None]],
    schemas: Mapping[int, tuple[Schema | None, Schema]],
) -> DecodedTopic:
    decoded = DecodedTopic()
    found: dict[int, list[tuple[int, Message | None, Message | None]]] = {}
    for row in range(count):
        try:
            key, value = decode(row)
        except SchemaError as error:
            decoded.errors[row] = error
            continue
        one = key or value
        assert one is not None
        found.setdefault(one.type, []).append((row, key, value))
    for code, messages in sorted(found.items()):
        of_key, of_value = schemas[code]
        decoded.messages[code] = _columns_of(messages, of_key, of_value)
    return decoded


def _columns_of(
    messages: list[tuple[int, Message | None, Message | None]],
    of_key: Schema | None,
    of_value: Schema,
) -> MessageColumns:
    return MessageColumns(
        np.array([row for row, _, _ in messages], np.int64),
        None if of_key is None else _structs([key for _, key, _ in messages], of_key),
        _structs([value for _, _, value in messages], of_value),
        np.array([-1 if one is None else one.version for _, _, one in messages], np.int16),
    )


def _structs(messages: list[Message | None], schema: Schema) -> pa.StructArray:
    pa = require_pyarrow()
    kind = message_type(schema)
    return pa.array([one and _plain(one.fields, kind) for one in messages], kind)


def _plain(value: object, kind: pa.DataType) -> object:
    """Return a value as pyarrow takes it: an id is 16 bytes."""
    pa = require_pyarrow()
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {one.name: _plain(value[one.name], one.type) for one in kind}  # type: ignore[index]
    if pa.types.is_list(kind):
        return [_plain(one, kind.value_type) for one in value]  # type: ignore[attr-defined]
    return value.bytes if pa.types.is_fixed_size_binary(kind) else value  # type: ignore[attr-defined]


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
