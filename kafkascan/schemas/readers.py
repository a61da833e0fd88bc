"""Readers: what decodes values of many schemas into the columns of one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from kafkascan.format.errors import ValueSchemaError
from kafkascan.format.optional_modules import require_module
from kafkascan.schemas.framing import PROTOBUF, MessagePath, message_path
from kafkascan.schemas.programs.avro_program import AvroProgram
from kafkascan.schemas.programs.avro_schema import AvroType, parse_avro
from kafkascan.schemas.programs.json_program import JsonProgram
from kafkascan.schemas.programs.json_schema import parse_json_schema
from kafkascan.schemas.registry import RegisteredSchema, Registry

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor

    from kafkascan.schemas.programs.protobuf_program import ProtobufProgram
    from kafkascan.schemas.programs.protobuf_schema import ProtobufSchema

AVRO, JSON = "AVRO", "JSON"

# Apicurio's `Ref`: its size, the tag of a name, the size of that, and letters.
_REF = re.compile(rb"([\x03-\x7f])\n([\x01-\x7d])([A-Za-z0-9_]+)")


class ValueWriter(NamedTuple):
    """
    What values were written with.

    Attributes
    ----------
    schema : RegisteredSchema
    is_prefixed : bool
        Whether the values have a prefix; otherwise a record header names their schema.
    is_confluent : bool
        Whether the prefix or header is in the form of Confluent's serializers.
    path : tuple of int or None
        The message that the header names.
    """

    schema: RegisteredSchema
    is_prefixed: bool
    is_confluent: bool
    path: MessagePath | None


class AvroReader:
    """
    Reads values of Avro schemas into the columns of one of them.

    Parameters
    ----------
    registry : Registry
    schemas : sequence of RegisteredSchema
        The schema of the columns; of several, the columns are those of their union.

    Attributes
    ----------
    program : AvroProgram
    bare_schemas : list of RegisteredSchema
        Those whose values are only bytes, and are read without a size before them.
    raw_schemas : list of RegisteredSchema
        Those of which records inside themselves stay in their encoding.
    """

    def __init__(self, registry: Registry, schemas: Sequence[RegisteredSchema]) -> None:
        self._registry = registry
        self.bare_schemas: list[RegisteredSchema] = []
        self.raw_schemas: list[RegisteredSchema] = []
        types = [parsed_avro(registry, one) for one in schemas]
        self.program = AvroProgram(types[0] if len(types) == 1 else AvroType("union", parts=types))

    def first_step(self, writer: ValueWriter) -> int:
        """See `Reader`."""
        written = parsed_avro(self._registry, writer.schema)
        if written.kind == "bytes" and writer.is_confluent:
            written = replace(written, has_size=False)
            self.bare_schemas.append(writer.schema)
        before = self.program.raw_columns.total()
        step = self.program.add(written)
        if self.program.raw_columns.total() > before and writer.schema not in self.raw_schemas:
            self.raw_schemas.append(writer.schema)
        return step


class ProtobufReader:
    """
    Reads values of one Protobuf message into its columns.

    Parameters
    ----------
    registry : Registry
    schema : RegisteredSchema
        The schema of the columns.
    message : str
        Full name of the message; empty for the only one of the schema.
    is_certain : bool, default True
        Whether values that do not name their message, as kafkajs writes them, are of this one.
        Otherwise they are if their file has one message only.

    Raises
    ------
    ValueSchemaError
        If the schema does not have the message, or has several and none is named.
    """

    def __init__(
        self, registry: Registry, schema: RegisteredSchema, message: str, *, is_certain: bool = True
    ) -> None:
        from kafkascan.schemas.programs.protobuf_program import ProtobufProgram

        self._registry, self._is_certain = registry, is_certain and message != ""
        found = compiled_protobuf(registry, schema)
        paths = [path for path in found.messages if len(path) == 1]
        path = paths[0] if not message and len(paths) == 1 else found.path_of(message)
        if path is None:
            names = ", ".join(one.full_name for one in found.messages.values())
            what = f"no message {message!r}" if message else "several messages"
            raise ValueSchemaError(f"schema id {schema.id} has {what}, but {names}")
        self._name = found.messages[path].full_name
        self.program: ProtobufProgram = ProtobufProgram(found.messages[path])

    def first_step(self, writer: ValueWriter) -> int:
        """See `Reader`."""
        found = compiled_protobuf(self._registry, writer.schema)
        own = found.path_of(self._name)
        if own is None:
            raise ValueSchemaError(f"it has no message {self._name}")
        if writer.path is not None:
            return self.program.PLAIN if writer.path == own else -1
        name = self._name.rpartition(".")[2]
        is_clear = own == (0,) and found.has_one_message
        is_sure = (is_clear or self._is_certain) and not found.is_deep
        name = name if found.message_named(name) is not None else ""
        may_be_unnamed = is_sure or not writer.is_prefixed
        return self.program.after_naming(own, name, may_be_unnamed=may_be_unnamed)


class JsonReader:
    """
    Reads values of JSON Schemas into the columns of one of them.

    Values say themselves what members they have, so their own schema does not matter.

    Parameters
    ----------
    registry : Registry
    schema : RegisteredSchema
        The schema of the columns.
    """

    def __init__(self, registry: Registry, schema: RegisteredSchema) -> None:
        _require_type(schema, JSON)
        self.program = JsonProgram(parse_json_schema(schema.text, _texts_of(registry, schema)))

    def first_step(self, writer: ValueWriter) -> int:
        """See `Reader`."""
        _require_type(writer.schema, JSON)
        return self.program.first_step


Reader: TypeAlias = AvroReader | ProtobufReader | JsonReader
"""
The columns of one schema, and the program that fills them.

`first_step` returns the first step for values, -1 if they are of another message than the columns.
It raises `ValueSchemaError` if the schema of the writer cannot be read, or has nothing in common
with the columns.
"""


def parsed_avro(registry: Registry, schema: RegisteredSchema) -> AvroType:
    """Return the type of an Avro schema."""
    _require_type(schema, AVRO)
    return parse_avro(schema.text, _texts_of(registry, schema))


def compiled_protobuf(registry: Registry, schema: RegisteredSchema) -> ProtobufSchema:
    """Return the messages of a Protobuf schema."""
    _require_type(schema, PROTOBUF)
    require_module("google.protobuf", extra="protobuf")
    return _compiled(schema.text, tuple(_texts_of(registry, schema).items()))


@lru_cache(maxsize=64)  # each takes a process
def _compiled(text: str, references: tuple[tuple[str, str], ...]) -> ProtobufSchema:
    from kafkascan.schemas.programs.protobuf_schema import compile_protobuf

    return compile_protobuf(text, dict(references))


def _texts_of(registry: Registry, schema: RegisteredSchema) -> dict[str, str]:
    """Return the texts of the schemas that one refers to, by name."""
    return {name: one.text for name, one in registry.referenced(schema).items()}


def _require_type(schema: RegisteredSchema, schema_type: str) -> None:
    if schema.schema_type != schema_type:
        raise ValueSchemaError(
            f"a schema of type {schema.schema_type} is not read into columns of {schema_type}"
        )


def message_of(schema: ProtobufSchema, data: bytes, writer: ValueWriter) -> Descriptor | None:
    """
    Return the message that a Protobuf value says it is.

    Parameters
    ----------
    schema : ProtobufSchema
        The writer's.
    data : bytes
        The first bytes behind the prefix; without one, a value that does not say anything is the
        first message.
    writer : ValueWriter
    """
    if writer.path is not None:
        return schema.messages.get(writer.path)
    ref = _REF.match(data)
    if ref and ref[1][0] == ref[2][0] + 2 and len(ref[3]) >= ref[2][0]:
        return schema.message_named(ref[3][: ref[2][0]].decode())
    path = message_path(data) if writer.is_prefixed else (0,)
    return None if path is None else schema.messages.get(path)
