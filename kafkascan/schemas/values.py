"""Keys and values of records as typed columns, by the schemas of a registry."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafkascan.format.errors import STATUS, ValueSchemaError
from kafkascan.records.record_table import RecordTable
from kafkascan.records.typed_items import ItemPlace, TypedItems
from kafkascan.schemas.framing import PROTOBUF, FramedRecords, FrameReader, Framing, Part
from kafkascan.schemas.programs.program_runs import DecodedValues, decode_values
from kafkascan.schemas.readers import (
    AVRO,
    JSON,
    AvroReader,
    JsonReader,
    ProtobufReader,
    Reader,
    ValueWriter,
    compiled_protobuf,
    message_of,
    parsed_avro,
)
from kafkascan.schemas.registry import RegisteredSchema, Registry, SchemaError
from kafkascan.schemas.value_problems import ItemProblems, Reason, reason_of
from kafkascan.tables.schema import require_pyarrow
from kafkascan.tables.table import Problem

if TYPE_CHECKING:
    import pyarrow as pa

    from kafkascan.schemas.programs.protobuf_schema import ProtobufSchema

NO_READER = "NO_READER_SCHEMA"
"""Symbol of a problem: no subject says what the columns are; they follow the records' schemas."""
BAD_SCHEMA = "BAD_SCHEMA"
"""Symbol of a problem: values have a schema that cannot be read."""
UNNAMED = "UNNAMED_MESSAGE"
"""Symbol of a problem: neither records nor the caller say which message of a schema they are."""
RAW_RECORDS = "RAW_RECORDS"
"""Symbol of a problem: records inside themselves are bytes in the encodings of several schemas."""
SIZED_BYTES = "SIZED_BYTES"
"""Symbol of a problem: values that are only bytes may begin with a size that is not theirs."""

# Bytes that the values of one table may decompress to.
_MAX_UNPACKED = 1 << 28
# Records that are looked at for their messages or sizes, and bytes of their prefixes.
_FIRST_RECORDS, _LONGEST_PATH, _LONGEST_SIZE = 100, 256, 16
_UNFRAMED = {
    Framing.NO_PREFIX: "it has no prefix with the id of a schema",
    Framing.UNKNOWN_ID: "the registry does not have the schema that it names",
    Framing.AMBIGUOUS: "its prefix is that of two schemas",
    Framing.BAD_HEADER: "its header names no schema in a known form",
    Framing.NOT_BINARY: "its header says that it is written in Avro's JSON encoding",
}


@dataclass(frozen=True)
class ReaderSchema:
    """
    One schema of a registry, whose columns keys or values are read into.

    Attributes
    ----------
    registry : Registry
    schema : RegisteredSchema
    message : str, default ""
        Full name of a Protobuf message. By default the only one of the schema, or the one of the
        records that are read first. Records that do not name their message are of this one.
    """

    registry: Registry
    schema: RegisteredSchema
    message: str = ""

    def decoder(self, place: ItemPlace) -> ValueDecoder:
        """Return the decoder of the keys or values of a topic."""
        return ValueDecoder(self.registry, place, self.schema, self.message)


class ColumnChoice(NamedTuple):
    """Columns that records chose, by the reader of them, and why these."""

    new_reader: Callable[[], Reader]
    notes: tuple[str, ...]


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
    message : str, default ""
        See `ReaderSchema`.
    choice : ColumnChoice, optional
        The columns that records of another place chose.

    Raises
    ------
    ValueSchemaError
        If the schema cannot be read.
    """

    def __init__(
        self,
        registry: Registry,
        place: ItemPlace,
        schema: RegisteredSchema | None = None,
        message: str = "",
        choice: ColumnChoice | None = None,
    ) -> None:
        self._registry, self._place, self._named = registry, place, (schema, message)
        # Ids are those of the context that the schema of the columns is in.
        self._frames = FrameReader(registry, context="" if schema is None else schema.context)
        self._schema = schema or registry.newest(f"{place.topic}-{place.name}")
        self._choice = choice
        self._reader: Reader | None = None
        if choice is not None:
            self._reader = choice.new_reader()
        elif self._schema is not None:
            self._reader = self._reader_of(self._schema, message)
        self._notes = () if choice is None else choice.notes  # not said yet
        self._no_reader = UNNAMED, " has several messages: say which one it is"
        self._first_steps: dict[ValueWriter, int | ValueSchemaError] = {}
        self._doubted: set[RegisteredSchema] = set()
        self._raw_schemas = 0
        self._problems = ItemProblems(place)

    @property
    def arrow_type(self) -> pa.DataType | None:
        """See `ColumnDecoder`."""
        return None if self._reader is None else self._reader.program.layout.columns[0].type

    def at(self, place: ItemPlace) -> ValueDecoder:
        """Return a decoder of another place with the same columns; see `ColumnDecoder`."""
        schema, message = self._named
        return ValueDecoder(self._registry, place, schema, message, self._choice)

    def decode(self, table: RecordTable, threads: int) -> TypedItems:
        """Return the decoded items of a table; see `ColumnDecoder`."""
        part: Part = "key" if self._place.name == "key" else "value"
        framed = self._frames.read(table, part, threads)
        if self._reader is None and (present := np.unique(framed.schema[framed.schema >= 0])).size:
            try:
                self._choice = self._chosen_columns(table, framed, present.tolist())
                if self._choice is not None:
                    self._reader, self._notes = self._choice.new_reader(), self._choice.notes
            except (ValueSchemaError, SchemaError) as error:
                self._no_reader = BAD_SCHEMA, f": {error}"
        problems, self._notes = [self._problems.note(NO_READER, one) for one in self._notes], ()
        if self._reader is None:
            first_step = np.full(len(table), -1, np.int32)
            decoded = _nothing_decoded(len(table))
        else:
            first_step = self._first_steps_of(self._reader, framed)
            address, size, kept = self._payloads(table, framed, first_step)
            buffers = table.buffers
            decoded = decode_values(
                self._reader.program, address, size, first_step, buffers.source_bytes,
                buffers.fault_error, threads,
            )  # fmt: skip
            del kept
        failed = decoded.failed | ((first_step < 0) & (framed.framing != Framing.NULL))
        if isinstance(self._reader, AvroReader):
            problems += self._doubts_of_bytes(self._reader, table, framed)
            problems += self._doubts_of_raw_records(self._reader)
        reason = partial(self._reason, table, framed, decoded)
        problems += self._problems.undecoded(table, np.flatnonzero(failed), reason)
        problems += self._problems.inexact(table, np.flatnonzero(decoded.inexact), reason)
        values = require_pyarrow().chunked_array(decoded.arrays, decoded.arrays[0].type)
        return TypedItems(values, failed, problems)

    # ---- the schema of the columns -------------------------------------------------------

    def _reader_of(self, schema: RegisteredSchema, message: str) -> Reader | None:
        """Return the reader of a schema; None if only records tell the message."""
        if schema.schema_type != PROTOBUF:
            return _new_reader(self._registry, [schema])
        is_clear = message or compiled_protobuf(self._registry, schema).has_one_message
        return ProtobufReader(self._registry, schema, message) if is_clear else None

    def _chosen_columns(
        self, table: RecordTable, framed: FramedRecords, present: Sequence[int]
    ) -> ColumnChoice | None:
        """Return the columns of what the records have: their schemas, or their message."""
        if self._schema is not None:
            return self._columns_of_message(self._schema, table, framed)
        newest: dict[str, RegisteredSchema] = {}
        for schema in sorted((framed.schemas[row] for row in present), key=lambda one: one.id):
            newest[self._name_of(schema)] = schema
        last = list(newest.values())[-1]
        chosen = [one for one in newest.values() if one.schema_type == last.schema_type == AVRO]
        chosen = chosen or [last]
        ids = ", ".join(str(one.id) for one in chosen)
        subject = f"{self._place.topic or 'TOPIC'}-{self._place.name}"
        text = f"the registry has no subject {subject}: the columns are those of the schemas with"
        notes = (f"{text} id {ids}, which records have",)
        if last.schema_type == PROTOBUF:
            found = self._columns_of_message(last, table, framed)
            return None if found is None else found._replace(notes=notes + found.notes)
        return ColumnChoice(partial(_new_reader, self._registry, chosen), notes)

    def _columns_of_message(
        self, schema: RegisteredSchema, table: RecordTable, framed: FramedRecords
    ) -> ColumnChoice | None:
        """Return the columns of the message of the first record, of a schema with several."""
        names = dict.fromkeys(self._messages(table, framed))
        known = compiled_protobuf(self._registry, schema)
        found = [name for name in names if known.path_of(name) is not None]
        if not found:
            return None
        notes = tuple[str, ...]()
        if len(found) > 1:
            text = f"records have the messages {', '.join(found)}: the columns are those of"
            notes = (f"{text} {found[0]}",)
        new = partial(ProtobufReader, self._registry, schema, found[0], is_certain=False)
        return ColumnChoice(new, notes)

    def _messages(self, table: RecordTable, framed: FramedRecords) -> Iterator[str]:
        """Yield the names of the messages of the first records."""
        rows = np.flatnonzero(self._frames.is_protobuf[framed.schema])[:_FIRST_RECORDS]
        begins = table[rows].begins(self._place.name, _LONGEST_PATH)
        compiled: dict[int, ProtobufSchema | None] = {}
        for row, begin in zip(rows.tolist(), begins, strict=True):
            number, skip = int(framed.schema[row]), int(framed.skip[row])
            writer = _writer_of(framed, row)
            if number not in compiled:
                compiled[number] = None
                with suppress(ValueSchemaError, SchemaError):
                    compiled[number] = compiled_protobuf(self._registry, writer.schema)
            if (one := compiled[number]) is None:
                continue
            message = message_of(one, (begin or b"")[skip:], writer)
            if message is not None:
                yield message.full_name

    def _name_of(self, schema: RegisteredSchema) -> str:
        """Return the name of the type of an Avro schema, which others do not have."""
        if schema.schema_type == JSON:
            return ""
        try:
            return parsed_avro(self._registry, schema).name or str(schema.id)
        except (ValueSchemaError, SchemaError):
            return str(schema.id)

    def _first_steps_of(self, reader: Reader, framed: FramedRecords) -> NDArray[np.int32]:
        """Return the first step of each record's value; -1 for those that are not decoded."""
        rows = len(framed.schemas) + 1
        writers = framed.schema + np.int32(1)
        writers[framed.framing == Framing.HEADER] += rows
        writers[framed.is_confluent] += 2 * rows
        steps = np.full(4 * rows, -1, np.int32)
        for writer in np.flatnonzero(np.bincount(writers)).tolist():
            form, row = divmod(writer, rows)
            if row > 0:
                one = ValueWriter(framed.schemas[row - 1], not form & 1, form >= 2, None)
                steps[writer] = self._first_step(reader, one)
        found: NDArray[np.int32] = steps.take(writers)
        if count := len(framed.paths):  # headers name messages
            named = np.flatnonzero(framed.path >= 0)
            codes = framed.schema[named].astype(np.int64) * count + framed.path[named]
            distinct, of_row = np.unique(codes, return_inverse=True)
            steps = np.empty(len(distinct), np.int32)
            for at, code in enumerate(distinct.tolist()):
                schema, path = framed.schemas[code // count], framed.paths[code % count]
                one = ValueWriter(schema, False, is_confluent=True, path=path)
                steps[at] = self._first_step(reader, one)
            found[named] = steps[of_row]
        return found

    def _first_step(self, reader: Reader, writer: ValueWriter) -> int:
        if writer not in self._first_steps:
            try:
                self._first_steps[writer] = reader.first_step(writer)
            except (ValueSchemaError, SchemaError) as error:
                self._first_steps[writer] = ValueSchemaError(str(error))
        found = self._first_steps[writer]
        return found if isinstance(found, int) else -1

    # ---- the bytes -----------------------------------------------------------------------

    def _payloads(
        self, table: RecordTable, framed: FramedRecords, first_step: NDArray[np.int32]
    ) -> tuple[NDArray[np.uintp], NDArray[np.int32], object]:
        """
        Return addresses and sizes behind the prefixes, and what keeps the bytes.

        The first step of a value that cannot be decompressed becomes -1: empty bytes could be a
        value, such as a Protobuf message without fields.
        """
        address, size = table.addresses(self._place.name)
        address += framed.skip.astype(np.uintp)
        size -= framed.skip
        packed = np.flatnonzero(framed.framing == Framing.GLUE_ZLIB)
        if not len(packed):
            return address, size, None
        items = table[packed].items(self._place.name)
        unpacked, left = list[bytes](), _MAX_UNPACKED
        for row, item in zip(packed.tolist(), items, strict=True):
            found = _unpacked((item or b"")[framed.skip[row] :], left)
            if found is None:
                first_step[row] = -1
            unpacked.append(found or b"")
            left -= len(unpacked[-1])
        data = np.frombuffer(b"".join(unpacked) + b"\0", np.uint8)
        sizes = np.array([len(one) for one in unpacked])
        address[packed] = data.ctypes.data + (np.cumsum(sizes) - sizes).astype(np.uintp)
        size[packed] = sizes
        return address, size, data

    # ---- problems ------------------------------------------------------------------------

    def _doubts_of_raw_records(self, reader: AvroReader) -> Iterator[Problem]:
        """Yield the note that records inside themselves have more encodings than said before."""
        count = len(reader.raw_schemas)
        if count > max(1, self._raw_schemas):
            self._raw_schemas = count
            layout = reader.program.layout
            paths = ", ".join(layout.path_of(one) for one in sorted(reader.program.raw_columns))
            ids = ", ".join(str(one.id) for one in reader.raw_schemas)
            text = (
                f"{paths}: records inside themselves stay in their encoding, which is that of the"
                f" {self._place.name}'s own schema: the ids are {ids}"
            )
            yield self._problems.note(RAW_RECORDS, text)

    def _doubts_of_bytes(
        self, reader: AvroReader, table: RecordTable, framed: FramedRecords
    ) -> Iterator[Problem]:
        """Yield a note for each schema of bytes whose first values all begin with their size."""
        for schema in [one for one in reader.bare_schemas if one not in self._doubted]:
            is_of_schema = framed.schema == framed.schemas.index(schema)
            rows = np.flatnonzero(is_of_schema & framed.is_confluent)[:_FIRST_RECORDS]
            if not len(rows):
                continue
            self._doubted.add(schema)
            skips = framed.skip[rows]
            sizes = table.columns[f"{self._place.name}_size"][rows] - skips
            begins = table[rows].begins(self._place.name, _LONGEST_SIZE)
            firsts = zip(begins, skips.tolist(), sizes.tolist(), strict=True)
            if all(_begins_with_size((one or b"")[skip:], size) for one, skip, size in firsts):
                text = (
                    f"{self._place.name}s are read as Confluent's serializers write bytes, without"
                    " their size, but all begin with one, as others write them (Apicurio, kafkajs)"
                )
                yield self._problems.note(SIZED_BYTES, f"schema id {schema.id}: {text}")

    def _reason(
        self, table: RecordTable, framed: FramedRecords, decoded: DecodedValues, row: int
    ) -> Reason:
        number = int(framed.schema[row])
        if number < 0:
            framing = Framing(int(framed.framing[row]))
            return Reason(framing.name, _UNFRAMED[framing])
        form = framed.framing[row]
        name = f"schema id {framed.schemas[number].id}"
        error = self._first_steps.get(_writer_of(framed, row))
        if isinstance(error, ValueSchemaError):
            return Reason(BAD_SCHEMA, f"{name}: {error}")
        if self._reader is None:
            symbol, sentence = self._no_reader
            return Reason(symbol, f"{name}{sentence}")
        status = int(decoded.status[row])
        if status == 0 and form == Framing.GLUE_ZLIB:
            why = "it cannot be decompressed, or is too large"
            return Reason("BAD_COMPRESSED_DATA", f"{name}: {why}")
        status = status or STATUS["UNRESOLVED_VALUE"]
        (item,) = table[row : row + 1].items(self._place.name)
        written = b"" if form == Framing.GLUE_ZLIB else (item or b"")[framed.skip[row] :]
        symbol, why = reason_of(self._reader.program, status, decoded.place[row], written)
        return Reason(symbol, f"{name}: {why}")


def _nothing_decoded(count: int) -> DecodedValues:
    nulls = require_pyarrow().nulls(count)
    return DecodedValues([nulls], np.zeros(count, np.uint8), np.empty((0, 2), np.int32))


def _begins_with_size(data: bytes, size: int) -> bool:
    """Return whether bytes begin with the size of all that follows, in Avro's encoding."""
    number = shift = 0
    for at, byte in enumerate(data, 1):
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return number == 2 * (size - at)
    return False


def _writer_of(framed: FramedRecords, row: int) -> ValueWriter:
    is_prefixed = framed.framing[row] != Framing.HEADER
    schema = framed.schemas[framed.schema[row]]
    return ValueWriter(
        schema, bool(is_prefixed), bool(framed.is_confluent[row]), framed.path_of(row)
    )


def _new_reader(registry: Registry, schemas: Sequence[RegisteredSchema]) -> Reader:
    is_json = schemas[0].schema_type == JSON
    return JsonReader(registry, schemas[0]) if is_json else AvroReader(registry, schemas)


def _unpacked(data: bytes, most: int) -> bytes | None:
    """Return decompressed bytes; None of invalid ones, and of more than the limit."""
    unpacker = zlib.decompressobj()
    try:
        found = unpacker.decompress(data, max(1, most))
    except zlib.error:
        return None
    return found if unpacker.eof and len(found) <= most else None
