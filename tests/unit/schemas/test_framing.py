"""Records of real serializers: confluent-kafka 2.16.1 with its in-memory registry (``mock://``)."""

from __future__ import annotations

from pathlib import Path

import pytest

import kafkascan as ks
from kafkascan.schemas import FrameReader, Framing, open_registry
from tests.support.internal_topics import TopicLog
from tests.support.schema_topics import AVRO, JSON_SCHEMA, PROTO, schema

# What the client's registry returned: ids 1 to 4 and GUIDs, which are random there.
GUIDS = {"value": "68a21706-69ee-4059-9578-96fa2ce393e5",
         "key": "0f41c241-aa65-4280-b97b-02235a789272"}  # fmt: skip
# AvroSerializer of {"id": 7}, without and with header_schema_id_serializer.
AVRO_BYTES = {"value": "00000000010e", "key": "00000000020e"}
PAYLOAD = "0e"
HEADERS = {"value": ("__value_schema_id", "0168a2170669ee4059957896fa2ce393e5"),
           "key": ("__key_schema_id", "010f41c241aa654280b97b02235a789272")}  # fmt: skip
# JSONSerializer, and ProtobufSerializer of the first message, its nested one, and the second one.
JSON_BYTES = "00000000037b226964223a377d"
PROTOBUF_BYTES = ("000000000400", "00000000040400000807", "000000000402020807")


@pytest.fixture
def reader(tmp_path: Path) -> FrameReader:
    log = TopicLog(tmp_path / "_schemas-0").add(
        schema("orders-value", 1, 1, AVRO, guid=GUIDS["value"]),
        schema("orders-key", 1, 2, AVRO, guid=GUIDS["key"]),
        schema("events-value", 1, 3, JSON_SCHEMA, schemaType="JSON"),
        schema("bills-value", 1, 4, PROTO, schemaType="PROTOBUF"),
    )
    return FrameReader(open_registry(log.write()))


def test_prefixes(reader: FrameReader) -> None:
    values = [AVRO_BYTES["value"], AVRO_BYTES["key"], JSON_BYTES, *PROTOBUF_BYTES]
    batches = ks.build_batches(value=[bytes.fromhex(one) for one in values])
    found = reader.read(ks.read_records(batches))
    ids = [found.schemas[row].id for row in found.schema]
    assert ids == [1, 2, 3, 4, 4, 4]
    assert found.skip.tolist() == [5] * 6  # message indexes are the decoder's
    assert found.framing.tolist() == [Framing.CONFLUENT] * 6


@pytest.mark.parametrize("part", ["value", "key"])
def test_headers(reader: FrameReader, part: str) -> None:
    name, value = HEADERS[part]
    item = [bytes.fromhex(PAYLOAD)]
    batches = ks.build_batches(
        key=item, value=item, headers=[[("trace", b"1"), (name, bytes.fromhex(value))]]
    )
    table = ks.read_records(batches)
    found = reader.read(table, "key" if part == "key" else "value")
    (row,) = found.schema
    assert found.schemas[row].guid == GUIDS[part]
    assert (found.skip[0], found.framing[0]) == (0, Framing.HEADER)
    other = reader.read(table, "value" if part == "key" else "key")
    assert other.framing.tolist() == [Framing.NO_PREFIX]
