"""Columns of random and mutated messages are those of the decoder for one record."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, strategies as st

import kafkascan as ks
from kafkascan.format.schemas.message_decoder import Schema, SchemaError
from kafkascan.format.schemas.message_encoder import encode
from kafkascan.format.schemas.metadata_messages import METADATA_RECORDS
from kafkascan.format.schemas.remote_log_messages import REMOTE_LOG_RECORDS
from kafkascan.internal_topics.message_columns import (
    DecodedTopic,
    decode_coordinator_columns,
    decode_framed_columns,
)
from kafkascan.internal_topics.topic_messages import (
    COORDINATOR_RECORDS,
    decode_coordinator_record,
    decode_framed_message,
)
from tests.support.message_columns import as_arrow, rows_of
from tests.support.random_messages import random_message

_Record = tuple[bytes | None, bytes | None]
_SEEDS = st.integers(0, 2**32)
_EXTREMES = (b"\xff" * 5, b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x0f", b"\x80" * 6, b"\0" * 9)


def mutated(data: bytes, choice: random.Random) -> bytes:
    """Return bytes that are cut, longer, or changed, or the same bytes."""
    changed = bytearray(data)
    for _ in range(choice.choice((0, 1, 1, 2, 5))):
        at = choice.randrange(len(changed) + 1)
        kind = choice.randrange(5)
        if kind == 0:
            del changed[at:]
        elif kind == 1:
            changed[at:at] = choice.choice((*_EXTREMES, choice.randbytes(3)))
        elif kind == 2:
            changed[at : at + 4] = choice.choice(_EXTREMES)
        elif changed:
            changed[at % len(changed)] = choice.choice((0, 1, 2, 0x7F, 0x80, 0xFF, at & 0xFF))
    return bytes(changed)


def coordinator_records(
    schemas: dict[int, tuple[Schema, Schema]], choice: random.Random
) -> list[_Record]:
    records: list[_Record] = []
    for _ in range(60):
        code = choice.choice(list(schemas))
        of_key, of_value = schemas[code]
        key = struct.pack(">h", code) + encode(of_key, random_message(of_key, 0, choice), 0)
        version = choice.randint(0, of_value.newest)
        value = encode(of_value, random_message(of_value, version, choice), version)
        if choice.random() < 0.1:
            version = choice.choice((-1, -32768, of_value.newest + 1, 32767))
        whole = struct.pack(">h", version) + value
        tombstone = choice.random() < 0.1
        records.append((mutated(key, choice), None if tombstone else mutated(whole, choice)))
    return records


def uvarint(number: int) -> bytes:
    encoded = b""
    while number > 0x7F:
        encoded += bytes([number & 0x7F | 0x80])
        number >>= 7
    return encoded + bytes([number])


def framed_records(schemas: dict[int, Schema], choice: random.Random) -> list[_Record]:
    records: list[_Record] = []
    for _ in range(60):
        code = choice.choice(list(schemas))
        version = choice.randint(0, schemas[code].newest)
        value = encode(schemas[code], random_message(schemas[code], version, choice), version)
        if choice.random() < 0.1:
            version = choice.choice((version + 1, 32767))
        whole = b"\x01" + uvarint(code) + uvarint(version) + value
        records.append((None, mutated(whole, choice)))
    return records


def require_same(
    records: Sequence[_Record], decoded: DecodedTopic, decode: Callable[[_Record], Any]
) -> None:
    found = rows_of(decoded)
    for row, record in enumerate(records):
        try:
            expected = decode(record)
        except SchemaError as error:
            assert row not in found
            assert str(decoded.errors[row]) == str(error)
        else:
            code, (key, value, version) = found[row]
            assert (code, as_arrow(key), as_arrow(value), version) == expected
    assert len(found) + len(decoded.errors) == len(records)


def read(records: Sequence[_Record]) -> ks.RecordTable:
    keys, values = zip(*records, strict=True)
    return ks.read_records(ks.build_batches(key=list(keys), value=list(values)))


@pytest.mark.parametrize("topic", list(COORDINATOR_RECORDS))
@given(seed=_SEEDS)
def test_coordinator_topics(topic: str, seed: int) -> None:
    schemas = COORDINATOR_RECORDS[topic]
    records = coordinator_records(dict(schemas), random.Random(seed))

    def decode(record: _Record) -> Any:
        key, value = decode_coordinator_record(schemas, record[0] or b"", record[1])
        version = -1 if value is None else value.version
        return key.type, as_arrow(key.fields), as_arrow(value and value.fields), version

    require_same(records, decode_coordinator_columns(schemas, read(records)), decode)


@pytest.mark.parametrize("schemas", [METADATA_RECORDS, REMOTE_LOG_RECORDS])
@given(seed=_SEEDS)
def test_framed_messages(schemas: dict[int, Schema], seed: int) -> None:
    records = framed_records(schemas, random.Random(seed))

    def decode(record: _Record) -> Any:
        message = decode_framed_message(schemas, record[1] or b"")
        return message.type, None, as_arrow(message.fields), message.version

    require_same(records, decode_framed_columns(schemas, read(records)), decode)
