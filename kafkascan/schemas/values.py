"""Keys and values of records as typed columns, by the schemas of a registry."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from kafkascan.format.errors import SENTENCES, SYMBOLS, ValueSchemaError
from kafkascan.format.findings import Severity
from kafkascan.records.record_table import RecordTable
from kafkascan.records.typed_items import ItemPlace, TypedItems
from kafkascan.schemas.avro_program import AvroProgram
from kafkascan.schemas.avro_schema import AvroType, parse_avro
from kafkascan.schemas.framing import FramedRecords, FrameReader, Framing
from kafkascan.schemas.program_runs import Program, decode_values
from kafkascan.schemas.registry import RegisteredSchema, Registry, SchemaError
from kafkascan.tables.schema import require_pyarrow
from kafkascan.tables.table import Problem

if TYPE_CHECKING:
    import pyarrow as pa

NO_READER = "NO_READER_SCHEMA"
"""Symbol of a problem: no subject says what the columns are; they follow the records' schemas."""
BAD_SCHEMA = "BAD_SCHEMA"
"""Symbol of a problem: values have a schema that cannot be read."""
UNDECODED = "UNDECODED_VALUES"
"""Symbol of a problem: more values that could not be decoded, which are not listed."""

_MAX_PROBLEMS = 1_000
_MAX_UNPACKED = 1 << 28
_UNFRAMED = {
    Framing.NO_PREFIX: "it has no prefix with the id of a schema",
    Framing.UNKNOWN_ID: "the registry does not have the schema that it names",
    Framing.AMBIGUOUS: "its prefix is that of two schemas",
    Framing.BAD_HEADER: "its header names no schema in a known form",
}


class Reader(Protocol):
    """The columns of one schema, and the programs that fill them."""

    @property
    def program(self) -> Program:
        """The program that fills the columns."""

    def first_step(self, writer: RegisteredSchema) -> int:
        """Return the first step for values that were written with a schema."""


class AvroReader:
    """
    Reads values of Avro schemas into the columns of one of them.

    Parameters
    ----------
    registry : Registry
    schemas : sequence of RegisteredSchema
        The schema of the columns; of several, the columns are those of their union.
    """

    def __init__(self, registry: Registry, schemas: Sequence[RegisteredSchema]) -> None:
        self._registry = registry
        types = [self._parsed(one) for one in schemas]
        self.program = AvroProgram(types[0] if len(types) == 1 else AvroType("union", parts=types))

    def _parsed(self, schema: RegisteredSchema) -> AvroType:
        if schema.schema_type != "AVRO":
            raise ValueSchemaError(f"a schema of type {schema.schema_type} is no Avro schema")
        referenced = self._registry.referenced(schema)
        return parse_avro(schema.text, {name: one.text for name, one in referenced.items()})

    def first_step(self, writer: RegisteredSchema) -> int:
        """See `Reader`."""
        return self.program.add(self._parsed(writer))


@dataclass(frozen=True)
class ReaderSchema:
    """
    One schema of a registry, whose columns keys or values are read into.

    Attributes
    ----------
    registry : Registry
    schema : RegisteredSchema
    """

    registry: Registry
    schema: RegisteredSchema

    def decoder(self, place: ItemPlace) -> ValueDecoder:
        """Return the decoder of the keys or values of a topic."""
        return ValueDecoder(self.registry, place, self.schema)


class ValueDecoder:
    """
    Decodes the keys or values of a topic into columns of one schema.

    Parameters
    ----------
    registry : Registry
    place : ItemPlace
    schema : RegisteredSchema, optional
        Of the columns. By default the newest one of the subject ``TOPIC-value``; if there is none,
        the newest schemas of the records that are decoded first.
    """

    def __init__(
        self, registry: Registry, place: ItemPlace, schema: RegisteredSchema | None = None
    ) -> None:
        self._registry, self._place = registry, place
        self._frames = FrameReader(registry)
        schema = schema or registry.newest(f"{place.topic}-{place.name}")
        self._reader: Reader | None = None if schema is None else AvroReader(registry, [schema])
        self._first_steps: dict[int, int | ValueSchemaError] = {}
        self._problems_left = _MAX_PROBLEMS

    @property
    def arrow_type(self) -> pa.DataType | None:
        """See `ColumnDecoder`."""
        return None if self._reader is None else self._reader.program.layout.columns[0].type

    def decode(self, table: RecordTable, threads: int) -> TypedItems:
        """Return the decoded items of a table; see `ColumnDecoder`."""
        framed = self._frames.read(table, "key" if self._place.name == "key" else "value")
        present = [int(one) for one in np.unique(framed.schema) if one >= 0]
        problems: list[Problem] = []
        if self._reader is None and present:
            self._reader = self._chosen_reader(framed.schemas, present, problems)
        if self._reader is None:
            failed = self._failed(framed, np.zeros(len(table), np.uint8))
            problems += self._undecoded(table, framed, failed, failed.view(np.uint8))
            nulls = require_pyarrow().nulls(len(table))
            return TypedItems(require_pyarrow().chunked_array([nulls]), failed, problems)
        steps = np.full(len(framed.schemas) + 1, -1, np.int32)
        for row in present:
            steps[row] = self._first_step(self._reader, row, framed.schemas[row])
        address, size, kept = self._payloads(table, framed)
        buffers = table.buffers
        arrays, status = decode_values(
            self._reader.program, address, size, steps[framed.schema], buffers.source_bytes,
            buffers.fault_error, threads,
        )  # fmt: skip
        del kept
        failed = self._failed(framed, status)
        problems += self._undecoded(table, framed, failed, status)
        values = require_pyarrow().chunked_array(arrays, arrays[0].type)
        return TypedItems(values, failed, problems)

    # ---- the schema of the columns -------------------------------------------------------

    def _chosen_reader(
        self, schemas: Sequence[RegisteredSchema], present: Sequence[int], problems: list[Problem]
    ) -> Reader | None:
        """Return the reader; of an unknown subject, one of the schemas that records have."""
        newest: dict[str, RegisteredSchema] = {}
        for schema in sorted((schemas[row] for row in present), key=lambda one: one.id):
            newest[_name_of(schema)] = schema
        chosen = [one for one in newest.values() if one.schema_type == "AVRO"]
        if not chosen:
            return None
        ids = ", ".join(str(one.id) for one in chosen)
        subject = f"{self._place.topic or 'TOPIC'}-{self._place.name}"
        problems.append(
            self._problem(
                NO_READER,
                f"the registry has no subject {subject}: the columns are those of the schemas"
                f" with id {ids}, which records have",
                Severity.NOTE,
                is_missing=False,
            )
        )
        return AvroReader(self._registry, chosen)

    def _first_step(self, reader: Reader, row: int, schema: RegisteredSchema) -> int:
        if row not in self._first_steps:
            try:
                self._first_steps[row] = reader.first_step(schema)
            except (ValueSchemaError, SchemaError) as error:
                self._first_steps[row] = ValueSchemaError(str(error))
        found = self._first_steps[row]
        return found if isinstance(found, int) else -1

    # ---- the bytes -----------------------------------------------------------------------

    def _payloads(
        self, table: RecordTable, framed: FramedRecords
    ) -> tuple[NDArray[np.uintp], NDArray[np.int32], object]:
        """Return addresses and sizes behind the prefixes, and what keeps the bytes."""
        address, size = table.addresses(self._place.name)
        address += framed.skip.astype(np.uintp)
        size -= framed.skip
        packed = np.flatnonzero(framed.framing == Framing.GLUE_ZLIB)
        if not len(packed):
            return address, size, None
        items = table[packed].items(self._place.name)
        unpacked = [_unpacked((one or b"")[skip:]) for one, skip in
                    zip(items, framed.skip[packed].tolist(), strict=True)]  # fmt: skip
        data = np.frombuffer(b"".join(unpacked) + b"\0", np.uint8)
        sizes = np.array([len(one) for one in unpacked])
        address[packed] = data.ctypes.data + (np.cumsum(sizes) - sizes).astype(np.uintp)
        size[packed] = sizes
        return address, size, data

    # ---- problems ------------------------------------------------------------------------

    def _failed(self, framed: FramedRecords, status: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Return the records whose item is not decoded, though there is one."""
        is_null = framed.framing == Framing.NULL
        failed: NDArray[np.bool_] = (status != 0) | ((framed.schema < 0) & ~is_null)
        for row, error in self._first_steps.items():
            if isinstance(error, ValueSchemaError):
                failed |= framed.schema == row
        return failed

    def _undecoded(
        self,
        table: RecordTable,
        framed: FramedRecords,
        failed: NDArray[np.bool_],
        status: NDArray[np.uint8],
    ) -> Iterator[Problem]:
        """Yield a problem for each record that failed, up to a number of them."""
        rows = np.flatnonzero(failed)
        listed = rows[: self._problems_left]
        self._problems_left -= len(listed)
        for row in listed.tolist():
            symbol, reason = self._reason(framed, row, int(status[row]))
            offset = table.columns["offset"][row]
            message = f"the {self._place.name} of offset {offset} is not decoded: {reason}"
            yield self._problem(symbol, message)
        if len(rows) > len(listed):
            text = f"{len(rows) - len(listed):,} more {self._place.name}s are not decoded"
            at = f"from offset {table.columns['offset'][rows[len(listed)]]} on"
            yield self._problem(UNDECODED, f"{text}, {at}")

    def _reason(self, framed: FramedRecords, row: int, status: int) -> tuple[str, str]:
        number = int(framed.schema[row])
        if number < 0:
            framing = Framing(int(framed.framing[row]))
            return framing.name, _UNFRAMED[framing]
        name = f"schema id {framed.schemas[number].id}"
        error = self._first_steps.get(number)
        if isinstance(error, ValueSchemaError):
            return BAD_SCHEMA, f"{name}: {error}"
        return SYMBOLS[status], f"{name}: {SENTENCES[status]}"

    def _problem(
        self,
        symbol: str,
        message: str,
        severity: Severity = Severity.ERROR,
        *,
        is_missing: bool = True,
    ) -> Problem:
        place = self._place
        return Problem(
            symbol, message, place.path, severity, None, place.topic, place.partition, is_missing
        )  # fmt: skip


def _name_of(schema: RegisteredSchema) -> str:
    """Return the name of the type of an Avro schema; that of the schema itself otherwise."""
    try:
        return parse_avro(schema.text).name or str(schema.id)
    except ValueSchemaError:
        return str(schema.id)


def _unpacked(data: bytes) -> bytes:
    """Return decompressed bytes; none of invalid ones, so that they are not decoded."""
    unpacker = zlib.decompressobj()
    try:
        found = unpacker.decompress(data, _MAX_UNPACKED)
    except zlib.error:
        return b""
    return b"" if unpacker.unconsumed_tail or not unpacker.eof else found
