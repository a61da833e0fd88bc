"""Values that Confluent's serializers wrote are those that its deserializers read."""

from __future__ import annotations

import json
import random
import struct
import uuid
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import (
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    header_schema_id_serializer,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

import kafkascan as ks
from kafkascan.format.errors import ValueSchemaError
from kafkascan.schemas import Registry, open_registry
from tests.property.schemas.test_avro import equal, names_of
from tests.property.schemas.test_protobuf import equal as same_message, row_of
from tests.support.paths import GOLDEN
from tests.support.protobuf_values import plain
from tests.support.typed_topics import (
    ADDRESS,
    EVENTS,
    ORDERS,
    PAYMENTS,
    a_payment,
    payment_class,
    registry_client,
)

DATA = GOLDEN / "kafka-4.4.0-typed" / "data"


@pytest.fixture(scope="module")
def registry() -> Registry:
    return open_registry(DATA)


def client_of(registry: Registry) -> SchemaRegistryClient:
    """Return a client of a registry in memory with the same ids."""
    client = registry_client()
    for version in sorted(registry, key=lambda one: one.schema.id):
        one = version.schema
        references = [SchemaReference(it.name, it.subject, it.version) for it in one.references]
        schema = Schema(one.text, one.schema_type, references)
        assert client.register_schema(version.subject, schema) == one.id
    return client


def framed_values(registry: Registry, topic: str) -> list[bytes | None]:
    """Return the values; those whose schema a header names, with the prefix of its id."""
    records = ks.read_records(DATA / f"{topic}-0")
    values = []
    for value, headers in zip(records["value"].tolist(), records["headers"].tolist(), strict=True):
        for _, guid in headers:
            schema = registry.schema_of_guid(str(uuid.UUID(bytes=guid[1:])))
            assert schema is not None
            value = b"\0" + struct.pack(">i", schema.id) + value
        values.append(value)
    return values


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_avro(registry: Registry, version: int) -> None:
    schema: Any = ORDERS[version - 1]
    has_address = "shop.Address" in str(schema)
    references = [SchemaReference("shop.Address", "address", 1)] if has_address else []
    found = registry.version("orders-value", version)
    assert found is not None
    deserializer = AvroDeserializer(
        client_of(registry), Schema(found.schema.text, "AVRO", references)
    )
    context = SerializationContext("orders", MessageField.VALUE)
    reader = registry.reader("orders-value", version)
    records = ks.read_records(DATA / "orders-0", value=reader)
    named = names_of(schema) | names_of(ADDRESS) | {"shop.Address": ADDRESS, "Status": _status()}
    compared = unresolved = 0
    for value, decoded in zip(framed_values(registry, "orders"), records["value"], strict=True):
        try:
            expected = deserializer(value, context)
        except Exception:  # of several libraries
            assert decoded is None
            unresolved += 1
            continue
        if expected is None:
            assert decoded is None
            continue
        assert equal(expected, decoded, schema, named), (expected, decoded)
        compared += 1
    assert compared + unresolved == 81
    problems = [one.symbol for one in records.problems]
    assert problems.count("NO_PREFIX") == 1
    assert len(problems) == unresolved


def _status() -> Any:
    return next(one["type"] for one in ORDERS[1]["fields"] if one["name"] == "status")


@pytest.mark.parametrize("version", [1, 2])
def test_protobuf(registry: Registry, version: int) -> None:
    """The values of both versions are read into the columns of each."""
    reader = registry.reader("payments-value", version, message="shop.Payment")
    records = ks.read_records(DATA / "payments-0", value=reader)
    message = payment_class(version - 1)
    deserializer = ProtobufDeserializer(message, {"use.deprecated.format": False})
    context = SerializationContext("payments", MessageField.VALUE)
    rows = [row for chunk in records.typed["value"].chunks for row in plain(chunk)]
    values = framed_values(registry, "payments")
    for value, row in zip(values, rows, strict=True):
        expected = deserializer(value, context)
        assert row is None if expected is None else same_message(row_of(expected), row), value
    assert [one is None for one in rows] == [False] * 24 + [True]
    assert not len(records.problems)
    if version == len(PAYMENTS):  # the newest one, and the message that the records have
        by_topic = ks.read_records(DATA / "payments-0", value=registry)
        assert by_topic.typed["value"].equals(records.typed["value"])
        assert not len(by_topic.problems)


@pytest.mark.parametrize("name", ["shop.Payment", "shop.Other", "shop.Payment.Part"])
def test_a_header_names_the_message(tmp_path: Path, name: str) -> None:
    """Values are those of the deserializer, which reads the message from the header, too."""
    client, pick = registry_client(), random.Random(name)
    conf = {"use.deprecated.format": False}
    values, all_headers, expected = list[bytes | None](), list[Any](), list[Any]()
    for message in (a_payment(pick, 0), a_payment(pick, 1), payment_class(1, name)(),
                    payment_class(1, "shop.Other")(is_other=True)):  # fmt: skip
        headers: list[tuple[str, bytes]] = []
        context = SerializationContext("payments", MessageField.VALUE, headers)
        by_header = {**conf, "schema.id.serializer": header_schema_id_serializer}
        value = ProtobufSerializer(type(message), client, by_header)(message, context)
        found = ProtobufDeserializer(type(message), conf, client)(value, context)
        assert row_of(found) == row_of(message)
        found = payment_class(1, name).FromString(value)
        values.append(value)
        all_headers.append(headers)
        expected.append(row_of(found) if message.DESCRIPTOR.full_name == name else None)
    batches, registry = (
        ks.build_batches(value=values, headers=all_headers),
        registry_of(client, tmp_path),
    )
    records = ks.read_records(batches, value=registry.reader("payments-value", message=name))
    rows = [row for chunk in records.typed["value"].chunks for row in plain(chunk)]
    for row, wanted in zip(rows, expected, strict=True):
        assert row == wanted if wanted is None else same_message(wanted, row)
    assert len(records.problems) == expected.count(None)
    assert {one.symbol for one in records.problems} <= {"UNRESOLVED_VALUE", "BAD_SCHEMA"}
    if name == "shop.Payment":  # that of the first record
        by_record = ks.read_records(batches, value=registry)
        assert by_record.typed["value"].equals(records.typed["value"])


def registry_of(client: SchemaRegistryClient, folder: Path) -> Registry:
    """Return what a client's registry has."""
    rows = [
        {"subject": one.subject, "version": one.version, "id": one.schema_id, "guid": one.guid,
         "schemaType": one.schema.schema_type, "schema": one.schema.schema_str}
        for subject in client.get_subjects()
        for one in (client.get_version(subject, version)
                    for version in client.get_versions(subject))
    ]  # fmt: skip
    (folder / "registry.json").write_text(json.dumps(rows))
    return open_registry(folder / "registry.json")


def test_a_message_that_a_schema_does_not_have(registry: Registry) -> None:
    reader = registry.reader("payments-value", message="shop.Nothing")
    with pytest.raises(ValueSchemaError, match=r"no message 'shop.Nothing', but .*shop\.Payment"):
        ks.read_records(DATA / "payments-0", value=reader)
    other = registry.reader("payments-value", message="shop.Other")
    problems = ks.read_records(DATA / "payments-0", value=other).problems
    assert {one.symbol for one in problems} == {"UNRESOLVED_VALUE"}


@pytest.mark.parametrize("version", [1, 2])
def test_json(registry: Registry, version: int) -> None:
    deserializer = JSONDeserializer(json.dumps(EVENTS[version - 1]))
    context = SerializationContext("events", MessageField.VALUE)
    records = ks.read_records(DATA / "events-0", value=registry.reader("events-value", version))
    for value, found in zip(framed_values(registry, "events"), records["value"], strict=True):
        expected = deserializer(value, context)
        assert found == {name: expected.get(name) for name in EVENTS[version - 1]["properties"]}
    assert not len(records.problems)
