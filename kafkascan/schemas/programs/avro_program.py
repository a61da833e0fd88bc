"""Programs of csrc/avro.h: how values of a writer's schema fill the columns of a reader's."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress

from kafkascan._core import typed_values as _core
from kafkascan.format.errors import ValueSchemaError
from kafkascan.schemas.programs.avro_columns import column_of
from kafkascan.schemas.programs.avro_defaults import encoded_default
from kafkascan.schemas.programs.avro_schema import NO_DEFAULT, PRIMITIVES, AvroField, AvroType
from kafkascan.schemas.programs.program_runs import StepProgram
from kafkascan.tables.schema import require_pyarrow

# By the kinds of writer and reader (specification 1.12, "Schema Resolution").
_WIDER = {"int": ("long", "float", "double"), "long": ("float", "double"), "float": ("double",)}
_PLAIN = {
    **{(kind, kind): kind.upper() for kind in PRIMITIVES},
    **{(kind, to): f"{kind}_as_{to}".upper() for kind, wider in _WIDER.items() for to in wider},
    **{(kind, "string"): "TEXT" for kind in ("bytes", "string")},
    ("string", "bytes"): "BYTES",
}
_SKIPPED = {
    "boolean": ("SKIP_FIXED", 1), "int": ("SKIP_INT", 0), "long": ("SKIP_INT", 0),
    "float": ("SKIP_FIXED", 4), "double": ("SKIP_FIXED", 8), "bytes": ("SKIP_BYTES", 0),
    "string": ("SKIP_BYTES", 0), "null": ("SKIP_NULL", 0),
}  # fmt: skip
_WITHOUT_SIZE = {"BYTES": "REST", "TEXT": "REST_AS_TEXT"}
_OF_VALUE, _OF_REST = -1, -2  # sizes of decimals
_SKIPPED_ITEM = 8  # bytes of room: items of no bytes take time
_ROOT = 0
# Branches of unions that are tried, and bytes of all defaults: a text can have many in little.
_MAX_TRIES, _MAX_DEFAULTS = 1 << 16, 1 << 26


class _UnresolvedError(Exception):
    """The reader's type cannot hold values of the writer's."""


class AvroProgram(StepProgram):
    """
    The steps that decode values of any number of writer's schemas into one reader's columns.

    Parameters
    ----------
    reader : AvroType
        Of the columns.

    Attributes
    ----------
    raw_columns : dict of int to int
        Columns of records inside themselves, whose values are in the encoding of their writer, and
        how many writers fill each.
    """

    decode_into, _ops = staticmethod(_core.decode_into), _core.AVRO_OPS

    def __init__(self, reader: AvroType) -> None:
        super().__init__(column_of(reader))
        self._reader = reader
        self.raw_columns: Counter[int] = Counter()
        self._skips: dict[AvroType, int] = {}
        self._branches: dict[AvroType, _Branches] = {}
        self._defaults: dict[AvroField, tuple[int, int]] = {}  # sizes and places
        self._tries = 0

    def add(self, writer: AvroType) -> int:
        """
        Return the first step for values of a writer's schema; one that fails if none fits.

        Raises
        ------
        ValueSchemaError
            If it needs more than 2**18 steps, or matches too many branches of unions; or if a
            default is not a value of its type, or they are too large together.
        """
        self._tries = 0
        try:
            return self._resolved(writer, self._reader, _ROOT)
        except RecursionError:
            raise ValueSchemaError("types are nested too deeply") from None

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
        if reader.kind == "record":
            if require_pyarrow().types.is_struct(self.layout.columns[column].type):
                return self._record(writer, reader, column)
            self.raw_columns[column] += 1
            return self._step("RAW", column, [self._skip(writer)])
        if reader.kind in ("array", "map"):
            return self._list(writer, reader, column)
        if reader.kind == "enum":
            numbers = {symbol: number for number, symbol in enumerate(reader.symbols)}
            other = numbers.get(reader.default_symbol or "", -1)
            parts = [numbers.get(symbol, other) for symbol in writer.symbols]
            return self._step("ENUM", column, parts)
        return self._value(writer, reader, column)

    def _value(self, writer: AvroType, reader: AvroType, column: int) -> int:
        if reader.logical == "decimal":
            width = self.layout.columns[column].width
            limit = self._constant((10**reader.precision).to_bytes(width, "little"))
            size = _OF_VALUE if writer.has_size else _OF_REST
            if writer.kind == "fixed":
                size = writer.size
            return self._step("DECIMAL", column, [limit], size)
        if reader.logical.startswith("time-"):
            return self._step(reader.logical.upper().replace("-", "_"), column)
        if reader.kind != "fixed":
            op = _PLAIN[writer.kind, reader.kind]
            return self._step(op if writer.has_size else _WITHOUT_SIZE[op], column)
        if reader.logical in ("uuid", "duration"):
            return self._step(reader.logical.upper(), column)
        is_value = self.layout.columns[column].width > 0
        return self._step("FIXED" if is_value else "FIXED_AS_ITEM", column, (), reader.size)

    def _in_union(self, writer: AvroType, reader: AvroType, column: int) -> int:
        if reader not in self._branches:
            self._branches[reader] = _Branches(reader)
        branches = self._branches[reader]
        if writer.kind == "null":
            if branches.count == len(reader.parts):
                raise _UnresolvedError
            return self._step("NULL", column)
        for number, branch in branches.of(writer):
            self._tries += 1
            if self._tries > _MAX_TRIES:
                raise ValueSchemaError("types match too many branches of unions")
            if not _match(writer, branch):
                continue
            if branches.count == 1:
                return self._matched(writer, branch, column)
            with suppress(_UnresolvedError):
                step = self._matched(writer, branch, self.layout.first_child[column] + number)
                return self._step("MEMBER", column, [step])
        raise _UnresolvedError

    def _list(self, writer: AvroType, reader: AvroType, column: int) -> int:
        child = self.layout.first_child[column]
        item = child if reader.kind == "array" else self.layout.first_child[child] + 1
        step = self._matched(writer.parts[0], reader.parts[0], item)
        return self._step(reader.kind.upper(), column, [step], self.layout.sizes[child])

    def _record(self, writer: AvroType, reader: AvroType, column: int) -> int:
        first = self.layout.first_child[column]
        numbers, steps = _fields_by_name(writer, reader), []
        for field in writer.fields:
            number = numbers.get(field.name, -1)
            if number < 0:
                steps.append(self._skip(field.type))
            else:
                steps.append(self._matched(field.type, reader.fields[number].type, first + number))
        missing = sorted(set(range(len(reader.fields))).difference(numbers.values()))
        steps += [self._default(reader.fields[number], first + number) for number in missing]
        return self._step("RECORD", column, steps)

    def _default(self, field: AvroField, column: int) -> int:
        if field.default is NO_DEFAULT:
            raise _UnresolvedError
        if field not in self._defaults:
            data = encoded_default(field.type, field.default)
            if len(self._constants) + len(data) > _MAX_DEFAULTS:
                raise ValueSchemaError(f"defaults have more than {_MAX_DEFAULTS} bytes together")
            self._defaults[field] = len(data), self._constant(data)
        step = self._matched(field.type, field.type, column)
        return self._step("CONSTANT", column, [step], *self._defaults[field])

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
            parts, is_map = [self._skip(one.parts[0])], one.kind == "map"
            return self._step("SKIP_LIST", 0, parts, _SKIPPED_ITEM, is_map)
        if one not in self._skips:
            # The step of the record is put in once its parts are known.
            call = self._skips[one] = self._step("SKIP_NAMED", 0, [0])
            parts = [self._skip(field.type) for field in one.fields]
            self._parts[self._steps[call][2]] = self._step("SKIP_RECORD", 0, parts)
        return self._skips[one]


class _Branches:
    """
    The branches of a reader's union, without null, by the types of writers that they may match.

    Parameters
    ----------
    union : AvroType

    Attributes
    ----------
    count : int
    """

    def __init__(self, union: AvroType) -> None:
        branches = [one for one in union.parts if one.kind != "null"]
        self.count = len(branches)
        self._unnamed = [pair for pair in enumerate(branches) if not pair[1].name]
        self._by_name: defaultdict[tuple[str, str], list[tuple[int, AvroType]]] = defaultdict(list)
        for number, one in enumerate(branches):
            for name in {one.name, one.short_name, *one.aliases} if one.name else ():
                self._by_name[one.kind, name].append((number, one))

    def of(self, writer: AvroType) -> Iterator[tuple[int, AvroType]]:
        """Yield branches that may match, with their numbers; first that of the same full name."""
        if not writer.name:
            yield from sorted(self._unnamed, key=lambda pair: pair[1].kind != writer.kind)
            return
        own = self._by_name.get((writer.kind, writer.name), [])
        yield from sorted(own, key=lambda pair: pair[1].name != writer.name)
        if writer.short_name != writer.name:
            yield from self._by_name.get((writer.kind, writer.short_name), [])


def _fields_by_name(writer: AvroType, reader: AvroType) -> Mapping[str, int]:
    """
    Return the numbers of the reader's fields by the names of the writer's that they are read from.

    A field's own name comes before its aliases.
    """
    written = {one.name for one in writer.fields}
    numbers = {one.name: at for at, one in enumerate(reader.fields) if one.name in written}
    for number, one in enumerate(reader.fields):
        aliases = () if one.name in written else one.aliases
        alias = next((name for name in aliases if name in written and name not in numbers), None)
        if alias is not None:
            numbers[alias] = number
    return numbers


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
    # A local time counts the same as one with a time zone.
    return writer.logical.removeprefix("local-") == reader.logical.removeprefix("local-")
