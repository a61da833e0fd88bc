"""Topics whose values Confluent's serializers wrote, with a registry that exists in memory."""

from __future__ import annotations

import json
import random
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka.schema_registry import (
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    header_schema_id_serializer,
)
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_SEED = 39


class TypedValue(NamedTuple):
    """A record to write: its topic, its value, and the headers that the serializer added."""

    topic: str
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()


ADDRESS = {"type": "record", "name": "Address", "namespace": "shop", "fields": [
    {"name": "street", "type": "string"},
    {"name": "zip", "type": {"type": "fixed", "name": "Zip", "size": 5}},
]}  # fmt: skip
_LINE = {"type": "record", "name": "Line", "fields": [
    {"name": "sku", "type": "string"}, {"name": "count", "type": "int"},
]}  # fmt: skip
_STATUS = {"type": "enum", "name": "Status", "symbols": ["NEW", "PAID", "SENT"], "default": "NEW"}


def _order(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "Order", "namespace": "shop", "fields": list(fields)}


_ID = {"name": "id", "type": "int"}
_NOTE = {"name": "note", "type": ["null", "string"], "default": None}
_PRICE = {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12,
                                    "scale": 2}, "default": "\u0000"}  # fmt: skip
ORDERS: tuple[dict[str, Any], ...] = (
    _order(_ID, {"name": "customer", "type": "string"}),
    _order({"name": "id", "type": "long"}, {"name": "customer", "type": "string"}, _NOTE,
           {"name": "status", "type": _STATUS, "default": "NEW"}),
    _order(_NOTE, {"name": "id", "type": "long"},
           {"name": "buyer", "type": "string", "aliases": ["customer"]},
           {"name": "status", "type": {**_STATUS, "symbols": ["NEW", "SENT", "GONE"]},
            "default": "NEW"},
           {"name": "lines", "type": {"type": "array", "items": _LINE}, "default": []},
           {"name": "created", "type": {"type": "long", "logicalType": "timestamp-millis"},
            "default": 0}, _PRICE),
    _order({"name": "id", "type": "long"},
           {"name": "buyer", "type": "string", "aliases": ["customer"]},
           {"name": "attributes", "type": {"type": "map", "values": ["null", "double"]},
            "default": {}},
           {"name": "lines", "type": {"type": "array", "items": _LINE}, "default": []},
           {"name": "due", "type": ["null", {"type": "int", "logicalType": "date"}],
            "default": None},
           {"name": "ships_to", "type": ["null", "shop.Address"], "default": None},
           {"name": "origin", "type": ["string", "long", "boolean"], "default": "shop"}, _PRICE),
)  # fmt: skip

PAYMENTS: tuple[str, ...] = (
    'syntax = "proto3"; package shop; message Other { bool is_other = 1; }'
    " message Payment { int64 id = 1; string card = 2; double amount = 3; }",
    'syntax = "proto3"; package shop; import "google/protobuf/timestamp.proto";'
    " message Other { bool is_other = 1; }"
    " message Payment {"
    "  enum State { UNKNOWN = 0; DONE = 1; FAILED = 2; }"
    "  message Part { sint32 number = 1; bytes data = 2; }"
    "  int64 id = 1; string card = 2; optional double amount = 3; State state = 4;"
    "  repeated string tags = 5; map<string, int32> counts = 6; repeated Part parts = 7;"
    "  google.protobuf.Timestamp at = 8; repeated uint32 codes = 9;"
    "  oneof target { string account = 10; Part part = 11; }"
    "  message Batch { repeated int64 ids = 1; } }",
)
EVENTS: tuple[dict[str, Any], ...] = (
    {"title": "Event", "type": "object",
     "properties": {"id": {"type": "integer"}, "name": {"type": "string"}}},
    {"title": "Event", "type": "object",
     "properties": {"id": {"type": "integer"}, "name": {"type": "string"},
                    "score": {"type": ["number", "null"]}, "ok": {"type": "boolean"},
                    "tags": {"type": "array", "items": {"type": "string"}},
                    "place": {"type": "object", "properties": {"x": {"type": "number"},
                                                              "y": {"type": "number"}}}}},
)  # fmt: skip


def registry_client() -> SchemaRegistryClient:
    """Return a client of a registry in memory."""
    return SchemaRegistryClient.new_client({"url": "mock://typed-topics"})


def typed_values(client: SchemaRegistryClient) -> Iterator[TypedValue]:
    """Yield records of three topics; the serializers register their schemas."""
    pick = random.Random(_SEED)
    yield from _orders(client, pick)
    yield from _payments(client, pick)
    yield from _events(client, pick)


def _orders(client: SchemaRegistryClient, pick: random.Random) -> Iterator[TypedValue]:
    client.register_schema("address", Schema(json.dumps(ADDRESS), "AVRO"))
    reference = SchemaReference("shop.Address", "address", 1)
    for version, schema in enumerate(ORDERS):
        references = [reference] if "shop.Address" in json.dumps(schema) else []
        for conf in ({}, {"schema.id.serializer": header_schema_id_serializer}):
            text = Schema(json.dumps(schema), "AVRO", references)
            serializer = AvroSerializer(client, text, conf=conf)
            for _ in range(10):
                headers: list[tuple[str, bytes]] = []
                context = SerializationContext("orders", MessageField.VALUE, headers)
                value = serializer(an_order(pick, version), context)
                yield TypedValue("orders", value, tuple(headers))
    yield TypedValue("orders", None)
    yield TypedValue("orders", b"no schema")


def an_order(pick: random.Random, version: int) -> dict[str, Any]:
    """Return an order of a version of the schema."""
    status = ("NEW", "SENT") if version == 2 else ("NEW", "PAID", "SENT")
    lines = [{"sku": f"sku-{pick.randrange(99)}", "count": pick.randrange(9)}
             for _ in range(pick.randrange(3))]  # fmt: skip
    moment = datetime(2024, 4, 24, tzinfo=UTC) + timedelta(milliseconds=pick.randrange(10**10))
    value = {
        "id": pick.randrange(-(2**31), 2**31),
        "customer": "Zoë 客", "buyer": "buyer", "note": pick.choice([None, "", "a note"]),
        "status": pick.choice(status), "lines": lines, "created": moment,
        "price": Decimal(pick.randrange(-(10**9), 10**9)).scaleb(-2),
        "attributes": {"weight": pick.random(), "none": None},
        "due": pick.choice([None, date(2024, 2, 29)]),
        "ships_to": pick.choice([None, {"street": "Lane 1", "zip": b"01234"}]),
        "origin": pick.choice(["web", 7, True]),
    }  # fmt: skip
    return {one["name"]: value[one["name"]] for one in ORDERS[version]["fields"]}


@cache
def payment_files(version: int) -> list[descriptor_pb2.FileDescriptorProto]:
    """Return the compiled files of a version of the payments, the imported ones first."""
    from grpc_tools import protoc  # a compiler, which few tests need

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "payment.proto").write_text(PAYMENTS[version])
        out = Path(folder) / "out"
        known = Path(sys.modules["grpc_tools"].__path__[0]) / "_proto"
        arguments = ["protoc", f"-I{folder}", f"-I{known}", "--include_imports"]
        assert protoc.main([*arguments, f"--descriptor_set_out={out}", "payment.proto"]) == 0
        found = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())
    return list(found.file)


@cache
def payment_class(version: int, name: str = "shop.Payment") -> Any:
    """Return the class of a message of a version of the payments."""
    pool = descriptor_pool.DescriptorPool()
    for file in payment_files(version):
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def _payments(client: SchemaRegistryClient, pick: random.Random) -> Iterator[TypedValue]:
    context = SerializationContext("payments", MessageField.VALUE)
    for version in range(len(PAYMENTS)):
        serializer = ProtobufSerializer(
            payment_class(version), client, {"use.deprecated.format": False}
        )
        for _ in range(12):
            yield TypedValue("payments", serializer(a_payment(pick, version), context))
    yield TypedValue("payments", None)


def a_payment(pick: random.Random, version: int) -> Any:
    """Return a payment of a version of the schema."""
    found = payment_class(version)()
    found.id, found.card = pick.randrange(-(2**63), 2**63), pick.choice(["", "visa", "ü"])
    if pick.random() < 0.7:
        found.amount = pick.random()
    if version == 0:
        return found
    found.state = pick.choice([0, 1, 2, 7])
    found.tags.extend(["a", "", "b"][: pick.randrange(4)])
    found.counts.update({f"k{n}": n for n in range(pick.randrange(3))})
    for number in range(pick.randrange(3)):
        found.parts.add(number=-number, data=b"\xff" * number)
    if pick.random() < 0.5:
        found.at.FromMilliseconds(1_714_000_000_000 + pick.randrange(10**9))
    found.codes.extend(pick.randrange(2**32) for _ in range(pick.randrange(4)))
    target = pick.randrange(3)
    if target == 1:
        found.account = "DE00"
    elif target == 2:
        found.part.number = -1
    return found


def _events(client: SchemaRegistryClient, pick: random.Random) -> Iterator[TypedValue]:
    context = SerializationContext("events", MessageField.VALUE)
    for version, schema in enumerate(EVENTS):
        serializer = JSONSerializer(json.dumps(schema), client)
        for _ in range(12):
            yield TypedValue("events", serializer(an_event(pick, version), context))


def an_event(pick: random.Random, version: int) -> dict[str, Any]:
    """Return an event of a version of the schema."""
    value = {"id": pick.randrange(2**40), "name": pick.choice(["", "ü\n", "click"])}
    if version:
        value |= {"score": pick.choice([None, 0.1, -3]), "tags": ["a"] * pick.randrange(3),
                  "place": {"x": pick.random(), "y": 1}}  # fmt: skip
    return value
