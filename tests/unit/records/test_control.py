"""Control records and the schemas that decode them."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

import kafkascan as ks
from kafkascan.format.schemas import message_decoder as decoder
from kafkascan.format.schemas.message_decoder import Array, MessageField, MessageSchema, SchemaError
from tests.support.message_schemas import SCHEMAS
from tests.support.paths import GOLDEN
from tests.support.records import RecordV2, batch_of

MARKER = (
    "000000000000000a00000042000000070298bf00e50030000000000000018f125c74000000018f125c7400"
    "00000000000000090002ffffffff000000012000000008000000010c00000000000500"
)
KRAFT = (
    "0000000000000000000000cb0000000302a76df48c0020000000040000018f125c74000000018f125c7400"
    "ffffffffffffffffffffffffffff0000000544000000080000000230000000000001030000000100000000"
    "020002000000010000002a00000208000000031600000000018f125c740000001e00000408000000050a00"
    "0000010000820100000608000000066e0000020000000100000000000000010000000000000002020b434f"
    "4e54524f4c4c45520a6c6f63616c686f737423850000000001000000001a00000808000000040600000000"
)


def test_a_marker() -> None:
    (record,) = ks.records.read_control_records(bytes.fromhex(MARKER))
    assert record.type is ks.records.ControlRecordType.COMMIT
    assert (record.offset, record.producer_id, record.producer_epoch) == (10, 9, 2)
    assert record.value == {"version": 0, "coordinator_epoch": 5}


def test_kraft_records() -> None:
    records = ks.records.read_control_records(bytes.fromhex(KRAFT))
    assert [record.type.name for record in records] == [
        "LEADER_CHANGE", "SNAPSHOT_HEADER", "KRAFT_VERSION", "KRAFT_VOTERS", "SNAPSHOT_FOOTER",
    ]  # fmt: skip
    leader, header, version, voters, footer = (record.value for record in records)
    assert leader is not None
    assert leader["leader_id"] == 1
    assert [voter["voter_id"] for voter in leader["voters"]] == [1, 2]
    assert [voter["voter_id"] for voter in leader["granting_voters"]] == [1]
    assert header == {"version": 0, "last_contained_log_timestamp": 0x18F125C7400}
    assert version == {"version": 0, "k_raft_version": 1}
    assert footer == {"version": 0}
    assert voters == {
        "version": 0,
        "voters": [
            {
                "voter_id": 1,
                "voter_directory_id": uuid.UUID(int=1 << 64 | 2),
                "endpoints": [{"name": "CONTROLLER", "host": "localhost", "port": 9093}],
                "k_raft_version_feature": {"min_supported_version": 0, "max_supported_version": 1},
            }
        ],
    }


def control(key: bytes | None, value: bytes | None) -> bytes:
    return batch_of([RecordV2(key, value)], attributes=0x20)


def test_leader_change_with_directories() -> None:
    directory = uuid.UUID(int=77)
    voter = b"\0\0\0\5" + directory.bytes + b"\0"
    value = b"\0\1" + b"\0\0\0\5" + b"\2" + voter + b"\1" + b"\0"
    (record,) = ks.records.read_control_records(control(b"\0\0\0\2", value))
    assert record.value == {
        "version": 1,
        "leader_id": 5,
        "voters": [{"voter_id": 5, "voter_directory_id": directory}],
        "granting_voters": [],
    }


def test_a_version_that_its_bytes_do_not_have_is_read_as_version_0() -> None:
    voters = b"\2" + b"\0\0\0\5\0" + b"\1"
    for version in (1, 16):
        value = version.to_bytes(2, "big") + b"\0\0\0\5" + voters + b"\0"
        (record,) = ks.records.read_control_records(control(b"\0\0\0\2", value))
        assert record.value == {
            "version": version,
            "leader_id": 5,
            "voters": [{"voter_id": 5, "voter_directory_id": uuid.UUID(int=0)}],
            "granting_voters": [],
        }


def test_later_types_and_versions() -> None:
    (record,) = ks.records.read_control_records(control(b"\0\7\0\x63more", None))
    assert (record.type, record.type_code) == (ks.records.ControlRecordType.UNKNOWN, 99)
    assert record.version == 7
    (marker,) = ks.records.read_control_records(control(b"\0\1\0\0", b"\0\1\0\0\0\3later"))
    assert marker.value == {"version": 1, "coordinator_epoch": 3}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b""), (b"\0\0\0", b""), (b"\xff\xff\0\0", bytes(6)), (b"\0\0\0\0", None),
        (b"\0\0\0\1", bytes(5)), (b"\0\0\0\1", b"\xff\xff\0\0\0\0"), (b"\0\0\0\2", b"\0\0"),
        (b"\0\0\0\2", b"\0\0\0\0\0\1\xff\xff\xff\xff\x0f"), (b"\0\0\0\6", b"\0\0\x00\0"),
    ],
)  # fmt: skip
def test_invalid_control_records(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(ks.InvalidRecordError, match="BAD_CONTROL_RECORD"):
        ks.records.read_control_records(control(key, value))


def test_an_error_in_a_file_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    path.write_bytes(control(b"\0\0\0\1", bytes(5)))
    with pytest.raises(ks.InvalidRecordError, match=r"0\.log: position 0"):
        ks.records.read_control_records(path)


def test_real_logs() -> None:
    """All types of control records that a broker and a controller write."""
    kinds: set[str] = set()
    for path in GOLDEN.rglob("*.log"):
        kinds |= {record.type.name for record in ks.records.read_control_records(path)}
    for path in GOLDEN.rglob("*.checkpoint"):
        kinds |= {record.type.name for record in ks.records.read_control_records(path)}
    assert kinds >= {"ABORT", "COMMIT", "LEADER_CHANGE", "SNAPSHOT_HEADER", "SNAPSHOT_FOOTER"}
    assert "UNKNOWN" not in kinds


# ---- schemas -----------------------------------------------------------------------------

INNER = MessageSchema("Inner", (MessageField("x", "int8"),), 1)
SCHEMA = MessageSchema(
    "Everything",
    (
        MessageField("flag", "bool"),
        MessageField("name", "string", nullable_since=1),
        MessageField("blob", "bytes", nullable_since=0),
        MessageField("items", Array("int16"), nullable_since=1),
        MessageField("old", "int32", until=0, default=-1),
        MessageField("inner", INNER, nullable_since=1),
        MessageField("ratio", "float64", since=1),
        MessageField("extra", "string", since=1, tag=0, default=""),
        MessageField("maybe", INNER, since=1, tag=3, nullable_since=1),
    ),
    1,
)


def test_plain_encoding() -> None:
    data = b"\1" + b"\0\2hi" + b"\xff\xff\xff\xff" + b"\0\0\0\2\0\1\xff\xff" + b"\0\0\0\7" + b"\5"
    assert decoder.decode_prefix(SCHEMA, data + b"rest", 0) == (
        {"flag": True, "name": "hi", "blob": None, "items": [1, -1], "old": 7,
         "inner": {"x": 5}, "ratio": None, "extra": "", "maybe": None},
        len(data), (),
    )  # fmt: skip


def test_flexible_encoding() -> None:
    tags = b"\3" + b"\0\3\3hi" + b"\3\3\1\x09\0" + b"\x11\2zz"
    data = b"\0" + b"\0" + b"\3ab" + b"\0" + b"\xff" + b"\x3f\xf8" + bytes(6) + tags
    assert decoder.decode(SCHEMA, data, 1) == {
        "flag": False, "name": None, "blob": b"ab", "items": None, "old": -1, "inner": None,
        "ratio": 1.5, "extra": "hi", "maybe": {"x": 9},
    }  # fmt: skip


@pytest.mark.parametrize("size", range(19))
def test_messages_truncated_anywhere(size: int) -> None:
    data = b"\1" + b"\0\2hi" + b"\xff\xff\xff\xff" + b"\0\0\0\2\0\1\xff\xff" + b"\0\0\0\7"
    with pytest.raises(SchemaError):
        decoder.decode(SCHEMA, data[:size], 0)


@pytest.mark.parametrize(
    ("schema", "data"),
    [
        (MessageSchema("S", (MessageField("a", Array("int8")),)), b"\x7f\xff\xff\xff"),
        (MessageSchema("S", (MessageField("a", "string"),)), b"\xff\xff"),
        (MessageSchema("S", (MessageField("a", "string"),), 0), b"\xff\xff\xff\xff\xff\x01"),
        (MessageSchema("S", (), 0), b"\xff\xff\xff\xff\x0f"),
    ],
)
def test_sizes_out_of_range(schema: MessageSchema, data: bytes) -> None:
    with pytest.raises(SchemaError):
        decoder.decode(schema, data, 0)


def test_every_schema_names_its_fields_once() -> None:
    def check(schema: Any) -> None:
        if isinstance(schema, Array):
            check(schema.element)
        elif isinstance(schema, MessageSchema):
            names = [field.name for field in schema.fields]
            assert len(set(names)) == len(names)
            for field in schema.fields:
                check(field.type)

    for schema in SCHEMAS.values():
        check(schema)
