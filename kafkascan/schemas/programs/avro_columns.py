"""The typed columns of an Avro schema."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kafkascan.format.errors import ValueSchemaError
from kafkascan.schemas.programs.avro_schema import MAX_DEPTH, AvroType
from kafkascan.schemas.programs.typed_columns import ColumnCounter, TypedColumn
from kafkascan.tables.schema import require_pyarrow

if TYPE_CHECKING:
    import pyarrow as pa

# A fixed type that is larger, or all of a schema together, are columns of items: a null would take
# their size, too.
_LARGEST_FIXED_VALUE, _LARGEST_FIXED_VALUES = 1 << 10, 1 << 16
_LARGEST_DECIMAL128 = 38
_DURATION = ("months", "days", "milliseconds")
_ALIASES = {"boolean": "bool", "int": "int32", "long": "int64", "bytes": "binary"}
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
    return replace(_Columns().of(schema, name, ()), nullable=True)


class _Columns(ColumnCounter):
    _fixed_left = _LARGEST_FIXED_VALUES

    def of(self, one: AvroType, name: str, outer: tuple[AvroType, ...]) -> TypedColumn:
        pa = require_pyarrow()
        self._count()
        if len(outer) > MAX_DEPTH:
            raise ValueSchemaError(f"types are nested in more than {MAX_DEPTH} levels")
        if one.kind == "union":
            return self._union(one, name, outer)
        if one in outer:
            return TypedColumn(name, pa.binary())
        if one.kind == "record":
            inner = (*outer, one)
            members = [self.of(field.type, field.name, inner) for field in one.fields]
            return TypedColumn.of_struct(name, members)
        if one.kind == "array":
            return TypedColumn.of_list(name, self.of(one.parts[0], "item", (*outer, one)))
        if one.kind == "map":
            return TypedColumn.of_map(name, self.of(one.parts[0], "value", (*outer, one)))
        if one.kind == "enum":
            kind = pa.dictionary(pa.int32(), pa.string())
            return TypedColumn(name, kind, symbols=one.symbols)
        if one.logical == "duration":
            return TypedColumn.of_struct(name, [TypedColumn(p, pa.uint32()) for p in _DURATION])
        if one.kind == "fixed" and not one.logical:
            return TypedColumn(name, self._fixed(one.size))
        return TypedColumn(name, _plain_type(one), nullable=one.kind == "null")

    def _fixed(self, size: int) -> pa.DataType:
        if not 0 < size <= min(_LARGEST_FIXED_VALUE, self._fixed_left):
            return require_pyarrow().binary()
        self._fixed_left -= size
        return require_pyarrow().binary(size)

    def _union(self, union: AvroType, name: str, outer: tuple[AvroType, ...]) -> TypedColumn:
        branches = [one for one in union.parts if one.kind != "null"]
        if not branches:
            return TypedColumn(name, require_pyarrow().null(), nullable=True)
        if len(branches) == 1:
            found = self.of(branches[0], name, outer)
        else:
            members = [self.of(one, one.name or one.kind, outer) for one in branches]
            found = TypedColumn.of_struct(name, [replace(one, nullable=True) for one in members])
        return replace(found, nullable=found.nullable or len(branches) < len(union.parts))


def _plain_type(one: AvroType) -> pa.DataType:
    pa = require_pyarrow()
    if one.logical == "decimal":
        wide = one.precision > _LARGEST_DECIMAL128
        return (pa.decimal256 if wide else pa.decimal128)(one.precision, one.scale)
    if one.logical == "uuid":
        return pa.string()
    if one.logical:
        clock, _, unit = one.logical.rpartition("-")
        times = {
            "date": pa.date32(),
            "time-millis": pa.time32("ms"),
            "time-micros": pa.time64("us"),
        }
        zone = "UTC" if clock == "timestamp" else None
        return times.get(one.logical) or pa.timestamp(_UNITS[unit], zone)
    return pa.type_for_alias(_ALIASES.get(one.kind, one.kind))
