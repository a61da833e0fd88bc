"""Values whose whole Avro schema is bytes: Confluent's serializers write them without a size."""

from __future__ import annotations

import json
import struct
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import pytest
from confluent_kafka.schema_registry import header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

import kafkascan as ks
from kafkascan.schemas import Registry, open_registry
from kafkascan.schemas.places import DUMP_NAME
from tests.support.typed_topics import registry_client
from tests.unit.schemas.test_values import framed, registry_of

VALUES = [b"", b"abcd", b"\x08abcd", bytes(300)]


def written(
    text: str, values: list[Any], part: Literal["key", "value"], *, in_header: bool
) -> tuple[list[bytes | None], list[list[tuple[str, bytes]]], str | None]:
    """Return what Confluent's serializer makes of values, its headers, and the GUID."""
    client = registry_client()
    config = {"schema.id.serializer": header_schema_id_serializer} if in_header else {}
    serializer = AvroSerializer(client, text, conf=config)
    items, headers = list[bytes | None](), []
    for value in values:
        found: list[tuple[str, bytes]] = []
        field = MessageField.KEY if part == "key" else MessageField.VALUE
        items.append(serializer(value, SerializationContext("orders", field, found)))
        headers.append(found)
    return items, headers, client.get_latest_version(f"orders-{part}").guid


def registry_with(folder: Path, text: str, part: str, guid: str | None) -> Registry:
    row = {"subject": f"orders-{part}", "version": 1, "id": 1, "schema": text, "guid": guid}
    (folder / DUMP_NAME).write_text(json.dumps([row]))
    return open_registry(folder / DUMP_NAME)


@pytest.mark.parametrize("part", ["key", "value"])
@pytest.mark.parametrize("in_header", [False, True])
@pytest.mark.parametrize("text", ['"bytes"', '{"type": "bytes"}'])
def test_bytes_of_confluent(tmp_path: Path, part: Any, in_header: bool, text: str) -> None:
    items, headers, guid = written(text, VALUES, part, in_header=in_header)
    log = ks.build_batches(**{part: items}, headers=headers)
    registry = registry_with(tmp_path, text, part, guid)
    records = ks.read_records(log, **{part: registry.reader(f"orders-{part}")})
    assert records[part].tolist() == VALUES
    assert not len(records.problems)


def test_a_union_with_bytes_is_written_as_avro_says(tmp_path: Path) -> None:
    text = '["null", "bytes"]'
    items, headers, guid = written(text, VALUES, "value", in_header=False)
    records = ks.read_records(
        ks.build_batches(value=items, headers=headers),
        value=registry_with(tmp_path, text, "value", guid).reader("orders-value"),
    )
    assert records["value"].tolist() == VALUES


def test_decimals_and_text_of_bytes_have_no_size(tmp_path: Path) -> None:
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
    registry = registry_of(tmp_path, decimal)
    log = ks.build_batches(value=[framed(1, b"\x04\xd2"), framed(1, b"\xff"), framed(1, b"")])
    records = ks.read_records(log, value=registry.reader("orders-value"))
    assert records["value"].tolist() == [Decimal("12.34"), Decimal("-0.01"), Decimal("0.00")]
    registry = registry_of(tmp_path, "bytes", "string")
    log = ks.build_batches(value=[framed(1, b"abcd"), framed(1, b"\xff"), framed(2, b"\x02a")])
    records = ks.read_records(log, value=registry.reader("orders-value"))
    assert records["value"].tolist() == ["abcd", None, "a"]
    assert [one.symbol for one in records.problems] == ["BAD_VALUE_TEXT"]


def test_bytes_of_other_serializers_have_a_size(tmp_path: Path) -> None:
    registry = registry_of(tmp_path, "bytes")
    prefixed = b"\0" + struct.pack(">q", 1) + b"\x08abcd"
    log = ks.build_batches(
        value=[prefixed, b"\x08abcd"], headers=[[], [("apicurio.value.globalId", bytes(7) + b"\1")]]
    )
    records = ks.read_records(log, value=registry.reader("orders-value"))
    assert records["value"].tolist() == [b"abcd"] * 2
    assert not len(records.problems)


def test_a_note_says_that_all_values_begin_with_their_size(tmp_path: Path) -> None:
    registry = registry_of(tmp_path, "bytes")
    sized = [framed(1, b"\x08abcd"), framed(1, b"\xd8\x04" + bytes(300)), framed(1, b"\0")]
    records = ks.read_records(ks.build_batches(value=sized), value=registry.reader("orders-value"))
    assert records["value"].tolist() == [one[5:] for one in sized]
    (note,) = records.problems
    assert (note.symbol, note.rows_missing) == ("SIZED_BYTES", False)
    mixed = ks.build_batches(value=[*sized, framed(1, b"abcd")])
    assert not len(ks.read_records(mixed, value=registry.reader("orders-value")).problems)
