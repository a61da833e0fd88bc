"""Programs of csrc/protobuf.h: the columns of a Protobuf message, and the tables that fill them.

Fields are matched by number, as Protobuf does; the schema of the writer is not needed. A field that
the reader's message does not have, or that has another wire type, is an unknown field.

============================================  ====================================================
Protobuf                                      Arrow
============================================  ====================================================
field that has presence (`optional`, proto2,  null if it is not set, also where proto2 declares a
member of a oneof, message)                   default: presence is information
other field                                   its default (0, ``""``, false) if it is not set
enum                                          dictionary of names; a number without a name becomes
                                              its digits, so that it is not lost
repeated, map                                 list, map (of a key that occurs twice, the last entry)
``google.protobuf.Timestamp``, ``Duration``   timestamp[ns, UTC], duration[ns]
wrappers such as ``Int32Value``               the value, or null
``Struct``, ``Value``, ``ListValue``          string: its JSON
message inside itself, or without fields      binary: the bytes of the message; Parquet has no
                                              struct without members
other message                                 struct
============================================  ====================================================
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from kafkascan._core import typed_values as _core
from kafkascan.format.errors import ValueSchemaError
from kafkascan.schemas.programs.typed_columns import ColumnCounter, ColumnLayout, TypedColumn
from kafkascan.tables.schema import require_pyarrow

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

_MAX_DEPTH = 64
# Of a field in csrc/protobuf.h.
_NUMBERS_OF_ENTRY = 8
# Numbers of fields up to this many for each field are looked up in a table.
_NUMBERS_OF_FIELD, _FIRST_NUMBERS = 4, 16

_VARINT, _FIXED_64, _SIZED, _GROUP, _FIXED_32 = 0, 1, 2, 3, 5
# By FieldDescriptor's type: what reads it, its wire type, and the name of its Arrow type.
_SCALARS = {
    1: ("FIXED_64", _FIXED_64, "float64"),
    2: ("FIXED_32", _FIXED_32, "float32"),
    3: ("VARINT_64", _VARINT, "int64"),
    4: ("VARINT_64", _VARINT, "uint64"),
    5: ("VARINT_32", _VARINT, "int32"),
    6: ("FIXED_64", _FIXED_64, "uint64"),
    7: ("FIXED_32", _FIXED_32, "uint32"),
    8: ("BOOL", _VARINT, "bool_"),
    9: ("TEXT", _SIZED, "string"),
    12: ("BYTES", _SIZED, "binary"),
    13: ("VARINT_32", _VARINT, "uint32"),
    15: ("FIXED_32", _FIXED_32, "int32"),
    16: ("FIXED_64", _FIXED_64, "int64"),
    17: ("ZIGZAG_32", _VARINT, "int32"),
    18: ("ZIGZAG_64", _VARINT, "int64"),
}
_GROUP_TYPE, _MESSAGE_TYPE, _INT32_TYPE, _INT64_TYPE = 10, 11, 5, 3

_PACKED = {"CLOSED_ENUM", *(op for op, wire_type, _ in _SCALARS.values() if wire_type != _SIZED)}

_TIMES = {"google.protobuf.Timestamp": "TIMESTAMP", "google.protobuf.Duration": "DURATION"}
_WRAPPED = ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
_WRAPPERS = {f"google.protobuf.{name}Value" for name in _WRAPPED}
_DYNAMIC = {"google.protobuf.Struct": "JSON_STRUCT", "google.protobuf.Value": "JSON_VALUE",
            "google.protobuf.ListValue": "JSON_LIST"}  # fmt: skip


@dataclass(frozen=True, eq=False)
class _Field:
    """A field of a message: what reads it, and the columns that it fills."""

    number: int
    op: str
    wire_type: int
    item: TypedColumn
    list: TypedColumn | None = None
    message: _Message | None = None
    enum: EnumDescriptor | None = None  # a closed one
    oneof: str = ""
    has_presence: bool = False
    is_packed: bool = False

    @property
    def column(self) -> TypedColumn:
        """The column under that of the message."""
        return self.item if self.list is None else self.list


@dataclass(frozen=True, eq=False)
class _Message:
    kind: str
    column: TypedColumn
    fields: tuple[_Field, ...] = field(repr=False)


class ProtobufProgram:
    """
    The tables that decode values of a message into its columns.

    Parameters
    ----------
    reader : google.protobuf.descriptor.Descriptor
        The message.

    Attributes
    ----------
    layout : ColumnLayout
        The columns.

    Raises
    ------
    ValueSchemaError
        If the message has more than 16384 columns, or more than 64 inside one another.
    """

    decode_into = staticmethod(_core.decode_protobuf_into)
    may_repeat_keys: ClassVar[bool] = True
    PLAIN = 0
    """The first step of values without a prefix, which do not name their message."""

    def __init__(self, reader: Descriptor) -> None:
        root = _Builder().message("", reader, (), nullable=True)
        self.layout = ColumnLayout(root.column)
        self._numbers = {id(column): at for at, column in enumerate(self.layout.columns)}
        self._parts = [-1]
        self._oneofs: dict[tuple[int, str], int] = {}
        messages = [root]
        for one in messages:  # grows while it is walked
            messages += [part.message for part in one.fields if part.message is not None]
        self._order = {id(one): at for at, one in enumerate(messages)}
        self._fields: list[tuple[int, ...]] = []
        self._messages = [self._tables(one) for one in messages]

    def after_naming(self, path: tuple[int, ...], name: str, *, may_be_unnamed: bool) -> int:
        """
        Return the first step of values that say which message of their schema they are.

        Parameters
        ----------
        path : tuple of int
            Where the writer's schema has the reader's message: the indexes that Confluent's
            serializers write. A value with others is one of another message, and not decoded.
        name : str
            The name in Apicurio's `Ref`; empty if several messages have it.
        may_be_unnamed : bool
            Whether a value that says nothing is one of this message.
        """
        first = len(self._parts)
        self._parts += [len(path), *path, may_be_unnamed, len(name), *name.encode()]
        return first

    def as_arrays(self) -> tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.int32]]:
        """Return messages, fields and their parts, for `decode_into`."""
        messages = np.array(self._messages, np.int32).ravel().view(np.uint8)
        fields = np.array(self._fields, np.int64).astype(np.uint32)  # tags have no sign
        return messages, fields.ravel().view(np.uint8), np.array(self._parts, np.int32)

    def _tables(self, message: _Message) -> tuple[int, ...]:
        fields = sorted(message.fields, key=lambda one: one.number)
        first_field = len(self._fields)
        for one in fields:
            key = (id(message), one.oneof)
            oneof = self._oneofs.setdefault(key, len(self._oneofs)) if one.oneof else -1
            self._fields.append(self._field(one, oneof))
        self._fields.append((0,) * _NUMBERS_OF_ENTRY)
        most = _FIRST_NUMBERS + _NUMBERS_OF_FIELD * len(fields)
        positions = {one.number: at for at, one in enumerate(fields) if one.number < most}
        first_number, numbers = len(self._parts), max(positions, default=-1) + 1
        self._parts += [positions.get(number, -1) for number in range(numbers)]
        column = self._numbers[id(message.column)]
        kind, size = _core.PROTOBUF_KINDS[message.kind], self.layout.sizes[column]
        return kind, column, first_field, len(fields), first_number, numbers, size

    def _field(self, one: _Field, oneof: int) -> tuple[int, ...]:
        tag, other_tag, below = one.number << 3 | one.wire_type, 0, -1
        if one.list is not None and one.op in _PACKED:
            other_tag = one.number << 3 | _SIZED
            if one.is_packed:
                tag, other_tag = other_tag, tag
        if one.message is not None:
            below = self._order[id(one.message)]
        if one.enum is not None:
            known = sorted(one.enum.values_by_number)
            below = len(self._parts)
            self._parts += [len(known), *known]
        column = self._numbers[id(one.item)]
        above = -1 if one.list is None else self._numbers[id(one.list)]
        op = _core.PROTOBUF_OPS[one.op]
        return tag, other_tag, op, column, above, below, oneof, one.has_presence


class _Builder(ColumnCounter):
    """Makes columns of messages."""

    def message(
        self, name: str, type_: Descriptor, outside: tuple[str, ...], *, nullable: bool
    ) -> _Message:
        """Return the column of a message; `outside` are the messages that it is in."""
        pa = require_pyarrow()
        if len(outside) > _MAX_DEPTH:
            raise ValueSchemaError(f"the message has more than {_MAX_DEPTH} levels")
        self._count()
        kind = _kind_of(type_)
        if kind in ("TIMESTAMP", "DURATION"):
            time = pa.timestamp("ns", "UTC") if kind == "TIMESTAMP" else pa.duration("ns")
            column = TypedColumn(name, time, (), nullable)
            return _Message(kind, column, (
                _Field(1, "SECONDS", _VARINT, column), _Field(2, "NANOS", _VARINT, column),
            ))  # fmt: skip
        if kind == "WRAPPER":
            (value,) = type_.fields
            op, wire_type, arrow = _SCALARS[value.type]
            column = TypedColumn(name, getattr(pa, arrow)(), (), nullable)
            return _Message(kind, column, (_Field(1, op, wire_type, column),))
        inside = (*outside, type_.full_name)
        fields = tuple(self._field(one, inside) for one in type_.fields)
        members = [one.column for one in fields]
        column = TypedColumn.of_struct(name, members, nullable=nullable)
        return _Message(kind, column, fields)

    def _field(self, one: FieldDescriptor, inside: tuple[str, ...]) -> _Field:
        pa = require_pyarrow()
        if not one.is_repeated:
            return self._value(one, one.name, inside, nullable=one.has_presence)
        self._count()
        item = self._value(one, "item", (*inside, ""), nullable=False)
        column = TypedColumn.of_list(one.name, item.item)
        if one.message_type is not None and one.message_type.GetOptions().map_entry:
            key, value = item.item.children
            column = replace(column, type=pa.map_(key.arrow_field, value.arrow_field))
        return replace(item, list=column, is_packed=one.is_packed)

    def _value(
        self, one: FieldDescriptor, name: str, inside: tuple[str, ...], *, nullable: bool
    ) -> _Field:
        pa = require_pyarrow()
        message, enum = None, None
        # The value of a map is never null, although its field has presence.
        nullable &= not one.containing_type.GetOptions().map_entry
        if one.message_type is not None:
            wire_type = _GROUP if one.type == _GROUP_TYPE else _SIZED
            if one.message_type.full_name in _DYNAMIC:
                op = _DYNAMIC[one.message_type.full_name]
                column = TypedColumn(name, pa.string(), (), nullable)
            elif one.message_type.full_name in inside or not one.message_type.fields:
                op, column = "RAW", TypedColumn(name, pa.binary(), (), nullable)
            else:
                op = "MESSAGE"
                message = self.message(name, one.message_type, inside, nullable=nullable)
                column = message.column
        elif one.enum_type is not None:
            symbols: dict[int, str] = {}
            for symbol in one.enum_type.values:
                symbols.setdefault(symbol.number, symbol.name)
            type_ = pa.dictionary(pa.int32(), pa.string())
            wire_type, op = _VARINT, "VARINT_32"
            if one.enum_type.is_closed:
                op, enum = "CLOSED_ENUM", one.enum_type
            texts, numbers = tuple(symbols.values()), tuple(symbols)
            column = TypedColumn(name, type_, (), nullable, texts, numbers)
        else:
            op, wire_type, arrow = _SCALARS[one.type]
            column = TypedColumn(name, getattr(pa, arrow)(), (), nullable)
        if message is None:
            self._count()
        oneof = "" if one.containing_oneof is None else one.containing_oneof.name
        return _Field(one.number, op, wire_type, column, None, message, enum, oneof, nullable)


def _kind_of(message: Descriptor) -> str:
    """Return what a message fills; a well-known name is not enough for a special type."""
    if message.GetOptions().map_entry:
        return "ENTRY"
    types = {one.number: -1 if one.is_repeated else one.type for one in message.fields}
    if message.full_name in _TIMES and types == {1: _INT64_TYPE, 2: _INT32_TYPE}:
        return _TIMES[message.full_name]
    if message.full_name in _WRAPPERS and types.keys() == {1} and types[1] in _SCALARS:
        return "WRAPPER"
    return "STRUCT"
