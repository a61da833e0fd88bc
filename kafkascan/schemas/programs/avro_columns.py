"""The typed columns of an Avro schema."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkascan.format.errors import ValueSchemaError
from kafkascan.schemas.programs.avro_schema import MAX_DEPTH, AvroType
from kafkascan.schemas.programs.typed_columns import ColumnCounter, TypedColumn
from kafkascan.tables.schema import require_pyarrow

if TYPE_CHECKING:
    import pyarrow as pa

# Larger ones are columns of items: a null would take their size, too.
_LARGEST_FIXED_VALUE = 1 << 10
_LARGEST_DECIMAL128 = 38
_DURATION = ("months", "days", "milliseconds")
_UNITS = {"millis": "ms", "micros": "us", "nanos": "ns"}


def column_of(schema: AvroType, name: str = "value") -> TypedColumn:
    """
    Return the column of a schema's values; it is nullable.

    A union of null and one type is that type, nullable. Other unions are structs of their
    branches, of which one is not null. A record inside itself is ``binary``: its encoding.

    Raises
    ------
    ValueSchemaError
        If it has more than `MAX_COLUMNS` columns.
    """
    return _Columns().of(schema, name, (), nullable=True)


class _Columns(ColumnCounter):
    def of(
        self, one: AvroType, name: str, outer: tuple[AvroType, ...], *, nullable: bool = False
    ) -> TypedColumn:
        pa = require_pyarrow()
        self._count()
        if len(outer) > MAX_DEPTH:
            raise ValueSchemaError(f"types are nested in more than {MAX_DEPTH} levels")
        if one.kind == "union":
            return self._union(one, name, outer, nullable)
        if one in outer:
            return TypedColumn(name, pa.binary(), (), nullable)
        if one.kind == "record":
            inner = (*outer, one)
            members = [self.of(field.type, field.name, inner) for field in one.fields]
            return TypedColumn.of_struct(name, members, nullable=nullable)
        if one.kind == "array":
            item = self.of(one.parts[0], "item", (*outer, one))
            return TypedColumn.of_list(name, item, nullable=nullable)
        if one.kind == "map":
            value = self.of(one.parts[0], "value", (*outer, one))
            return TypedColumn.of_map(name, value, nullable=nullable)
        if one.kind == "enum":
            kind = pa.dictionary(pa.int32(), pa.string())
            return TypedColumn(name, kind, (), nullable, one.symbols)
        if one.logical == "duration":
            parts = [TypedColumn(part, pa.uint32()) for part in _DURATION]
            return TypedColumn.of_struct(name, parts, nullable=nullable)
        return TypedColumn(name, _plain_type(one), (), nullable or one.kind == "null")

    def _union(
        self, union: AvroType, name: str, outer: tuple[AvroType, ...], nullable: bool
    ) -> TypedColumn:
        branches = [one for one in union.parts if one.kind != "null"]
        nullable = nullable or len(branches) < len(union.parts)
        if not branches:
            return TypedColumn(name, require_pyarrow().null(), (), True)
        if len(branches) == 1:
            return self.of(branches[0], name, outer, nullable=nullable)
        members = [self.of(one, one.name or one.kind, outer, nullable=True) for one in branches]
        return TypedColumn.of_struct(name, members, nullable=nullable)


def _plain_type(one: AvroType) -> pa.DataType:
    pa = require_pyarrow()
    if one.logical == "decimal":
        wide = one.precision > _LARGEST_DECIMAL128
        return (pa.decimal256 if wide else pa.decimal128)(one.precision, one.scale)
    if one.logical == "uuid":
        return pa.string()
    if one.kind == "fixed":
        is_value = 0 < one.size <= _LARGEST_FIXED_VALUE
        return pa.binary(one.size) if is_value else pa.binary()
    if one.logical:
        clock, _, unit = one.logical.rpartition("-")
        times = {
            "date": pa.date32(),
            "time-millis": pa.time32("ms"),
            "time-micros": pa.time64("us"),
        }
        zone = "UTC" if clock == "timestamp" else None
        return times.get(one.logical) or pa.timestamp(_UNITS[unit], zone)
    return {
        "null": pa.null(), "boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64(),
        "float": pa.float32(), "double": pa.float64(), "bytes": pa.binary(),
        "string": pa.string(),
    }[one.kind]  # fmt: skip
