"""Programs of csrc/avro.h: how values of a writer's schema fill the columns of a reader's."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from kafkascan._core import typed_values as _core
from kafkascan.format.errors import ValueSchemaError
from kafkascan.schemas.programs.avro_columns import column_of
from kafkascan.schemas.programs.avro_defaults import encoded_default
from kafkascan.schemas.programs.avro_schema import NO_DEFAULT, AvroField, AvroType
from kafkascan.schemas.programs.typed_columns import ColumnLayout
from kafkascan.tables.schema import require_pyarrow

STEP_DTYPE = np.dtype(
    [("op", "i4"), ("column", "i4"), ("first_part", "i4"), ("parts", "i4"),
     ("size", "i8"), ("at", "i8")]
)  # fmt: skip

# By the kinds of writer and reader (specification 1.12, "Schema Resolution").
_PLAIN = {
    ("null", "null"): "NULL",
    ("boolean", "boolean"): "BOOLEAN",
    ("int", "int"): "INT",
    ("int", "long"): "INT_AS_LONG",
    ("int", "float"): "INT_AS_FLOAT",
    ("int", "double"): "INT_AS_DOUBLE",
    ("long", "long"): "LONG",
    ("long", "float"): "LONG_AS_FLOAT",
    ("long", "double"): "LONG_AS_DOUBLE",
    ("float", "float"): "FLOAT",
    ("float", "double"): "FLOAT_AS_DOUBLE",
    ("double", "double"): "DOUBLE",
    ("bytes", "bytes"): "BYTES",
    ("bytes", "string"): "TEXT",
    ("string", "bytes"): "BYTES",
    ("string", "string"): "TEXT",
}
_SKIPPED = {
    "boolean": ("SKIP_FIXED", 1), "int": ("SKIP_INT", 0), "long": ("SKIP_INT", 0),
    "float": ("SKIP_FIXED", 4), "double": ("SKIP_FIXED", 8), "bytes": ("SKIP_BYTES", 0),
    "string": ("SKIP_BYTES", 0), "null": ("SKIP_NULL", 0),
}  # fmt: skip
_ROOT, _MAX_STEPS = 0, 1 << 18


class _UnresolvedError(Exception):
    """The reader's type cannot hold values of the writer's."""


class AvroProgram:
    """
    The steps that decode values of any number of writer's schemas into one reader's columns.

    Parameters
    ----------
    reader : AvroType

    Attributes
    ----------
    layout : ColumnLayout
        The reader's columns.
    """

    def __init__(self, reader: AvroType) -> None:
        self.layout = ColumnLayout(column_of(reader))
        self._reader = reader
        self._steps: list[tuple[int, int, int, int, int, int]] = []
        self._parts: list[int] = []
        self._constants = bytearray()
        self._skips: dict[AvroType, int] = {}
        self._below: dict[int, int] = {}
        self._sizes: dict[AvroType, int] = {}

    def add(self, writer: AvroType) -> int:
        """
        Return the first step for values of a writer's schema; one that fails if none fits.

        Raises
        ------
        ValueSchemaError
            If it needs more than 2**18 steps, or a default is not a value of its type.
        """
        try:
            return self._resolved(writer, self._reader, _ROOT)
        except RecursionError:
            raise ValueSchemaError("types are nested too deeply") from None

    @property
    def decode_into(self) -> Callable[..., tuple[int, int, int, int, int]]:
        """The compiled loop that runs the program."""
        return _core.decode_into

    def as_arrays(self) -> tuple[NDArray[np.uint8], NDArray[np.int32], NDArray[np.uint8]]:
        """Return steps, their parts, and constants, for `decode_into`."""
        steps = np.array(self._steps, STEP_DTYPE).view(np.uint8)
        parts = np.array(self._parts, np.int32)
        return steps, parts, np.frombuffer(bytes(self._constants), np.uint8)

    # ---- steps ---------------------------------------------------------------------------

    def _step(
        self, op: str, column: int = 0, parts: Sequence[int] = (), size: int = 0, at: int = 0
    ) -> int:
        if len(self._steps) == _MAX_STEPS:
            raise ValueSchemaError(f"the schema needs more than {_MAX_STEPS} steps")
        self._steps.append((_core.AVRO_OPS[op], column, len(self._parts), len(parts), size, at))
        self._parts += parts
        return len(self._steps) - 1

    def _constant(self, data: bytes) -> int:
        self._constants += data
        return len(self._constants) - len(data)

    # ---- resolution ----------------------------------------------------------------------

    def _resolved(self, writer: AvroType, reader: AvroType, column: int) -> int:
        """Return the step; of values that cannot be resolved, one that fails."""
        try:
            return self._matched(writer, reader, column)
        except _UnresolvedError:
            return self._step("UNRESOLVED", column)

    def _matched(self, writer: AvroType, reader: AvroType, column: int) -> int:
        if writer.kind == "union":
            branches = [self._resolved(one, reader, column) for one in writer.parts]
            return self._step("UNION", column, branches)
        if reader.kind == "union":
            return self._in_union(writer, reader, column)
        if not _match(writer, reader):
            raise _UnresolvedError
        if reader.kind == "record" and not self._is_struct(column):
            return self._step("RAW", column, [self._skip(writer)])
        if reader.kind == "record":
            return self._record(writer, reader, column)
        if reader.kind in ("array", "map"):
            return self._list(writer, reader, column)
        if reader.kind == "enum":
            return self._step("ENUM", column, _symbol_numbers(writer, reader))
        return self._value(writer, reader, column)

    def _is_struct(self, column: int) -> bool:
        return bool(require_pyarrow().types.is_struct(self.layout.columns[column].type))

    def _value(self, writer: AvroType, reader: AvroType, column: int) -> int:
        if reader.logical == "decimal":
            width = self.layout.columns[column].width
            limit = self._constant((10**reader.precision).to_bytes(width, "little"))
            size = writer.size if writer.kind == "fixed" else -1
            return self._step("DECIMAL", column, [limit], size)
        if reader.logical.startswith("time-"):
            return self._step(reader.logical.upper().replace("-", "_"), column)
        if reader.kind != "fixed":
            return self._step(_PLAIN[writer.kind, reader.kind], column)
        if reader.logical in ("uuid", "duration"):
            return self._step(reader.logical.upper(), column)
        is_value = self.layout.columns[column].width > 0
        return self._step("FIXED" if is_value else "FIXED_AS_ITEM", column, (), reader.size)

    def _in_union(self, writer: AvroType, reader: AvroType, column: int) -> int:
        branches = [one for one in reader.parts if one.kind != "null"]
        if writer.kind == "null":
            if len(branches) == len(reader.parts):
                raise _UnresolvedError
            return self._step("NULL", column)
        for chosen in _candidates(writer, branches):
            if len(branches) == 1:
                return self._matched(writer, branches[chosen], column)
            member = self.layout.first_child[column] + chosen
            try:
                step = self._matched(writer, branches[chosen], member)
            except _UnresolvedError:
                continue
            return self._step("MEMBER", column, [step])
        raise _UnresolvedError

    def _list(self, writer: AvroType, reader: AvroType, column: int) -> int:
        child = self.layout.first_child[column]
        item = child if reader.kind == "array" else self.layout.first_child[child] + 1
        step = self._matched(writer.parts[0], reader.parts[0], item)
        smallest = self._smallest(writer.parts[0]) + (writer.kind == "map")
        cost = max(1, self._count_below(child) // max(1, smallest))
        return self._step(reader.kind.upper(), column, [step], cost)

    def _count_below(self, column: int) -> int:
        """Return the number of columns of a tree."""
        if column not in self._below:
            inner = sum(self._count_below(one) for one in self.layout.children_of(column))
            self._below[column] = 1 + inner
        return self._below[column]

    def _smallest(self, one: AvroType) -> int:
        """Return the size of the smallest encoding of a type; inside itself, a record has 0."""
        if one.kind == "union":
            return 1 + min((self._smallest(part) for part in one.parts), default=0)
        if one.kind != "record":
            return {"null": 0, "fixed": one.size, "float": 4, "double": 8}.get(one.kind, 1)
        if one not in self._sizes:
            self._sizes[one] = 0
            self._sizes[one] = sum(self._smallest(field.type) for field in one.fields)
        return self._sizes[one]

    def _record(self, writer: AvroType, reader: AvroType, column: int) -> int:
        first = self.layout.first_child[column]
        numbers = {one.name: number for number, one in enumerate(reader.fields)}
        aliases = {name: number for number, one in enumerate(reader.fields) for name in one.aliases}
        steps, found = [], set()
        for field in writer.fields:
            number = numbers.get(field.name, aliases.get(field.name, -1))
            if number < 0 or number in found:
                steps.append(self._skip(field.type))
                continue
            found.add(number)
            steps.append(self._matched(field.type, reader.fields[number].type, first + number))
        for number, one in enumerate(reader.fields):
            if number not in found:
                steps.append(self._default(one, first + number))
        return self._step("RECORD", column, steps)

    def _default(self, field: AvroField, column: int) -> int:
        if field.default is NO_DEFAULT:
            raise _UnresolvedError
        data = encoded_default(field.type, field.default)  # type: ignore[arg-type]
        step = self._matched(field.type, field.type, column)
        return self._step("CONSTANT", column, [step], len(data), self._constant(data))

    # ---- values that no column needs -----------------------------------------------------

    def _skip(self, one: AvroType) -> int:
        """Return the step that skips a value; a record has one, as it may contain itself."""
        if one.kind in _SKIPPED:
            op, size = _SKIPPED[one.kind]
            return self._step(op, size=size)
        if one.kind == "fixed":
            return self._step("SKIP_FIXED", size=one.size)
        if one.kind == "enum":
            return self._step("SKIP_ENUM", size=len(one.symbols))
        if one.kind == "union":
            return self._step("SKIP_UNION", 0, [self._skip(part) for part in one.parts])
        if one.kind in ("array", "map"):
            return self._step("SKIP_LIST", 0, [self._skip(one.parts[0])], 1, one.kind == "map")
        if one not in self._skips:
            # The step of the record is put in once its parts are known.
            call = self._skips[one] = self._step("SKIP_NAMED", 0, [0])
            parts = [self._skip(field.type) for field in one.fields]
            self._parts[self._steps[call][2]] = self._step("SKIP_RECORD", 0, parts)
        return self._skips[one]


def _match(writer: AvroType, reader: AvroType) -> bool:
    """Return whether values of a type can be read as another one, but for what is below them."""
    if (writer.kind, reader.kind) in _PLAIN:
        return _same_unit(writer, reader)
    if writer.kind != reader.kind:
        return False
    if writer.kind in ("array", "map"):
        return True
    if writer.kind == "fixed" and (writer.size != reader.size or not _same_unit(writer, reader)):
        return False
    return writer.short_name == reader.short_name or writer.name in reader.aliases


def _same_unit(writer: AvroType, reader: AvroType) -> bool:
    """Return False if numbers would mean something else: another scale or unit, a text."""
    if reader.logical == "decimal" and writer.kind == "string":
        return False
    if not writer.logical or not reader.logical:
        return True
    if "decimal" in (writer.logical, reader.logical):
        return writer.logical == reader.logical and writer.scale == reader.scale
    return _unit(writer) == _unit(reader)


def _unit(one: AvroType) -> str:
    """Return what a number counts; a local time counts the same as one with a time zone."""
    return one.logical.removeprefix("local-")


def _candidates(writer: AvroType, branches: Sequence[AvroType]) -> list[int]:
    """Return the branches that may be read: first those of the same type and full name."""
    matching = [number for number, one in enumerate(branches) if _match(writer, one)]
    return sorted(matching, key=lambda number: _distance(writer, branches[number]))


def _distance(writer: AvroType, branch: AvroType) -> int:
    if writer.kind != branch.kind:
        return 2
    return int(writer.name != branch.name)


def _symbol_numbers(writer: AvroType, reader: AvroType) -> list[int]:
    numbers = {symbol: number for number, symbol in enumerate(reader.symbols)}
    other = numbers.get(reader.default_symbol or "", -1)
    return [numbers.get(symbol, other) for symbol in writer.symbols]
