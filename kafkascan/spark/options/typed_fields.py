"""Keys and values that a registry gives types: the options, and the types that Spark has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkascan.records.typed_items import ItemPlace
from kafkascan.schemas.places import open_registry
from kafkascan.schemas.readers import compiled_protobuf
from kafkascan.schemas.registry import Registry, SchemaError
from kafkascan.schemas.values import ReaderSchema
from kafkascan.tables.schema import Field, require_pyarrow

if TYPE_CHECKING:
    import pyarrow as pa

_LARGEST_PRECISION = 38


def parse_registry(value: Any) -> Registry:
    """Return a registry; a text is its place, which the driver reads."""
    return value if isinstance(value, Registry) else open_registry(str(value))


def reader_of(registry: Registry, name: str, given: str, message: str = "") -> ReaderSchema:
    """
    Return the schema whose columns keys or values are read into.

    Parameters
    ----------
    registry : Registry
    name : {"key", "value"}
    given : str
        ``SUBJECT`` or ``SUBJECT:VERSION``.
    message : str, default ""
        Of a Protobuf schema; see `Registry.reader`.

    Raises
    ------
    ValueError
        If there is none.
    """
    try:
        return registry.reader_named(given, message=message)
    except SchemaError as error:
        raise ValueError(f"option {name}Schema={given!r}: {error}") from None


def typed_field(field: Field, reader: ReaderSchema) -> Field:
    """Return a column with the types of a schema, as Spark has them."""
    place = ItemPlace(field.name, reader.registry.place)
    kind = reader.decoder(place).arrow_type
    if kind is None:
        found = compiled_protobuf(reader.registry, reader.schema).messages.values()
        names = ", ".join(one.full_name for one in found)
        raise ValueError(
            f"schema id {reader.schema.id} has several messages: name one with"
            f" {field.name}Message=NAME: {names}"
        )
    return Field(field.name, "typed", field.meaning, arrow=spark_kind(kind))


def spark_kind(kind: pa.DataType) -> pa.DataType:
    """
    Return the type that Spark reads values of another type as.

    Texts of an enum are strings; decimals of more than 38 digits and times of a day are texts;
    unsigned numbers have the next larger type; moments have microseconds.
    """
    pa = require_pyarrow()
    types = pa.types
    if types.is_struct(kind):
        return pa.struct([_as_spark(one) for one in kind])
    if types.is_map(kind):
        return pa.map_(spark_kind(kind.key_type), _as_spark(kind.item_field))
    if types.is_list(kind):
        return pa.list_(_as_spark(kind.value_field).with_name("element"))
    if types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if types.is_duration(kind):
        return pa.duration("us")
    if types.is_fixed_size_binary(kind):
        return pa.binary()
    if types.is_unsigned_integer(kind):
        wide = {8: pa.int16(), 16: pa.int32(), 32: pa.int64()}
        return wide.get(kind.bit_width, pa.decimal128(20, 0))
    is_wide = types.is_decimal(kind) and kind.precision > _LARGEST_PRECISION
    if is_wide or types.is_time(kind) or types.is_dictionary(kind) or types.is_null(kind):
        return pa.string()
    return kind


def _as_spark(field: pa.Field) -> pa.Field:
    # A struct that is null has members without a value, which Spark takes for nulls.
    return field.with_type(spark_kind(field.type)).with_nullable(True)
