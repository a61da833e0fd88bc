"""Protobuf schemas: imports come from references, and from nowhere else."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from kafkascan.format.errors import ValueSchemaError
from kafkascan.schemas.programs import protobuf_schema
from kafkascan.schemas.programs.protobuf_schema import compile_protobuf

CITY = 'syntax = "proto3"; package geo; message City { string name = 1; }'
ORDER = """
syntax = "proto3";
package shop;
import "geo/city.proto";
import "google/protobuf/timestamp.proto";
message Order {
  map<string, int32> counts = 1;
  message Line { int32 pieces = 1; message Part {} }
  geo.City city = 2;
  google.protobuf.Timestamp at = 3;
}
message Refund {}
"""


def encoded(text: str, name: str) -> str:
    """Return the descriptor of a file that imports nothing, in base64."""
    schema = compile_protobuf(text, {})
    file = FileDescriptorProto.FromString(schema.messages[(0,)].file.serialized_pb)
    file.name = name
    return base64.b64encode(file.SerializeToString()).decode()


def test_messages_by_their_path() -> None:
    schema = compile_protobuf(ORDER, {"geo/city.proto": CITY})
    names = {path: message.full_name for path, message in schema.messages.items()}
    assert names == {
        (0,): "shop.Order",
        (1,): "shop.Refund",
        (0, 1): "shop.Order.Line",  # the first one in a message with a map is its entry
        (0, 1, 0): "shop.Order.Line.Part",
    }
    assert schema.path_of("shop.Order.Line") == (0, 1)
    assert schema.path_of("geo.City") is None
    city = schema.messages[(0,)].fields_by_name["city"].message_type
    assert [one.name for one in city.fields] == ["name"]


def test_a_file_without_messages() -> None:
    assert compile_protobuf("", {}).messages == {}


def test_references_of_references() -> None:
    middle = 'syntax = "proto3"; import public "a.proto"; message B { A a = 1; }'
    text = 'syntax = "proto2"; import "b.proto"; message C { optional A a = 1; optional B b = 2; }'
    a = 'edition = "2023"; message A { int32 x = 1; }'
    schema = compile_protobuf(text, {"a.proto": a, "b.proto": middle})
    assert schema.messages[(0,)].fields_by_name["a"].message_type.full_name == "A"


def test_a_descriptor_in_base64() -> None:
    text = encoded(CITY, "anything.proto")
    assert compile_protobuf(text, {}).messages[(0,)].full_name == "geo.City"
    in_lines = "\n".join(text[at : at + 60] for at in range(0, len(text), 60))
    assert compile_protobuf(in_lines, {}).path_of("geo.City") == (0,)


def test_a_text_imports_a_descriptor_and_the_reverse() -> None:
    schema = compile_protobuf(ORDER, {"geo/city.proto": encoded(CITY, "city.proto")})
    assert schema.path_of("shop.Refund") == (1,)
    file = FileDescriptorProto(name="x", syntax="proto3", dependency=["geo/city.proto"])
    field = file.message_type.add(name="Home").field.add(name="city", number=1, label=1, type=11)
    field.type_name = ".geo.City"
    text = base64.b64encode(file.SerializeToString()).decode()
    home = compile_protobuf(text, {"geo/city.proto": CITY}).messages[(0,)]
    assert home.fields_by_name["city"].message_type.full_name == "geo.City"


@pytest.mark.parametrize(
    "name", ["confluent/meta.proto", "confluent/type/decimal.proto", "google/type/money.proto"]
)
def test_files_that_need_no_reference(name: str) -> None:
    text = f'syntax = "proto3"; import "{name}"; message A {{ int32 x = 1; }}'
    assert compile_protobuf(text, {}).path_of("A") == (0,)


def test_entries_of_maps_that_a_text_declares() -> None:
    """Apicurio's serializers write them so."""
    entry = "message CountsEntry { option map_entry = true; string key = 1; int32 value = 2; }"
    declared = f'syntax = "proto3"; message Order {{ repeated CountsEntry counts = 1; {entry} }}'
    written = 'syntax = "proto3"; message Order { map<string, int32> counts = 1; }'
    (found,), (expected,) = (
        compile_protobuf(text, {}).messages.values() for text in (declared, written)
    )
    assert found.fields_by_name["counts"].message_type is found.nested_types[0]
    one, other = FileDescriptorProto(), FileDescriptorProto()
    found.file.CopyToProto(one)
    expected.file.CopyToProto(other)
    for field in (*one.message_type[0].field, *other.message_type[0].field):
        field.ClearField("json_name")
    assert one == other


def test_messages_by_their_name() -> None:
    text = "message A { message Part {} } message B { message Part {} message Other {} }"
    found = compile_protobuf(f'syntax = "proto3"; {text}', {})
    other = found.message_named("Other")
    assert other is not None
    assert other.full_name == "B.Other"
    assert found.message_named("Part") is None
    assert found.message_named("C") is None
    assert not found.has_one_message
    assert not found.is_deep
    deep = "message A { message B { message C { message D {} } } }"
    assert compile_protobuf(f'syntax = "proto3"; {deep}', {}).is_deep


def test_options_of_confluent() -> None:
    text = """
    syntax = "proto3";
    import "confluent/meta.proto";
    message A { int32 x = 1 [(confluent.field_meta) = { params: [{ key: "a", value: "b" }] }]; }
    """
    assert compile_protobuf(text, {}).path_of("A") == (0,)


@pytest.mark.parametrize(
    "name", ["../up.proto", "/etc/up.proto", "a//b.proto", "a/../b.proto", "./a.proto", "", "a/"]
)
def test_references_stay_in_their_folder(name: str) -> None:
    with pytest.raises(ValueSchemaError, match="which is no path"):
        compile_protobuf(CITY, {name: CITY})


@pytest.mark.parametrize("how", ["{}", "../{}", "geo/../../{}"])
def test_files_of_the_machine_are_not_imported(tmp_path: Path, how: str) -> None:
    secret = tmp_path / "secret.proto"
    secret.write_text('syntax = "proto3"; message Secret {}')
    name = how.format(secret if how == "{}" else "../" * 20 + str(secret)[1:])
    text = f'syntax = "proto3"; import "{name}"; message A {{ Secret s = 1; }}'
    with pytest.raises(ValueSchemaError):
        compile_protobuf(text, {"geo/city.proto": CITY})


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("message {", "Expected message name"),
        ('syntax = "proto3"; message A { B b = 1; }', '"B" is not defined'),
        ('syntax = "proto3"; import "b.proto"; message A {}', "b.proto"),
        ("message A { required int32 x = 1; optional int32 y = 1; }", "already been used"),
        ("message A " * 200_000, "1 MiB"),
        ("message A {" + "message A {" * 10_000, "protoc|nest|recursion|Reached"),
        ("\ud800", "surrogates"),
    ],
)
def test_invalid_texts(text: str, reason: str) -> None:
    with pytest.raises(ValueSchemaError, match=reason) as raised:
        compile_protobuf(text, {})
    assert len(str(raised.value)) <= 1100


def test_invalid_descriptors() -> None:
    file = FileDescriptorProto(name="x", syntax="proto3", dependency=["kafkascan-value.proto"])
    with pytest.raises(ValueSchemaError, match="imports itself"):
        compile_protobuf(base64.b64encode(file.SerializeToString()).decode(), {})
    file = FileDescriptorProto(name="x", syntax="proto3", dependency=["other.proto"])
    with pytest.raises(ValueSchemaError, match=r"imports 'other.proto'"):
        compile_protobuf(base64.b64encode(file.SerializeToString()).decode(), {})
    file = FileDescriptorProto(name="x", syntax="proto3")
    file.message_type.add(name="A").field.add(name="x", number=0, label=1, type=5)
    with pytest.raises(ValueSchemaError):
        compile_protobuf(base64.b64encode(file.SerializeToString()).decode(), {})


def test_files_that_import_one_another() -> None:
    references = {
        "a.proto": 'syntax = "proto3"; import "b.proto";',
        "b.proto": 'syntax = "proto3"; import "a.proto";',
    }
    with pytest.raises(ValueSchemaError, match="recursively"):
        compile_protobuf('syntax = "proto3"; import "a.proto";', references)


def test_a_compiler_that_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protobuf_schema, "_SECONDS", 0.001)
    with pytest.raises(ValueSchemaError, match="in time"):
        compile_protobuf(CITY, {})


def test_without_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protobuf_schema.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"kafkascan\[protobuf\]"):
        compile_protobuf(CITY, {})
