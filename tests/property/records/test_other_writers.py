"""Batches that other clients' encoders write: aiokafka's and kafka-python's, all formats."""

from __future__ import annotations

import random
import struct
from typing import Any

import aiokafka.record.default_records as aiokafka_v2
import aiokafka.record.legacy_records as aiokafka_legacy
import kafka.record.default_records as kafka_python_v2
import kafka.record.legacy_records as kafka_python_legacy
import pytest

import kafkascan as ks
from tests.support.segments import T0

V2 = {"aiokafka": aiokafka_v2, "kafka-python": kafka_python_v2}
LEGACY = {"aiokafka": aiokafka_legacy, "kafka-python": kafka_python_legacy}


def some_records(seed: int) -> list[tuple[bytes | None, bytes | None, list[tuple[str, bytes]]]]:
    rng = random.Random(seed)

    def some_bytes() -> bytes | None:
        return rng.choice([None, b"", rng.randbytes(rng.randrange(500))])

    return [
        (some_bytes(), some_bytes(), [(f"h{i}", rng.randbytes(i)) for i in range(rng.randrange(3))])
        for _ in range(rng.randrange(1, 60))
    ]


def found(data: bytes) -> list[tuple[Any, ...]]:
    table = ks.read_records(data, verify=True)
    return [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in table]


@pytest.mark.parametrize("client", V2)
@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("seed", range(4))
def test_magic_2(client: str, codec: int, seed: int) -> None:
    builder = V2[client].DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, 1 << 20)
    records = some_records(seed)
    for index, (key, value, headers) in enumerate(records):
        builder.append(index, T0 + index, key, value, headers)
    data = bytearray(builder.build())
    struct.pack_into(">q", data, 0, 1000)
    assert found(bytes(data)) == [
        (1000 + index, T0 + index, key, value, [(name.encode(), text) for name, text in headers])
        for index, (key, value, headers) in enumerate(records)
    ]


WRITTEN = [
    (client, magic, codec)
    for client in LEGACY
    for magic in (0, 1)
    for codec in range(4)
    if (client, magic, codec) != ("aiokafka", 0, 3)  # it refuses to write the broken checksum
]


@pytest.mark.parametrize(("client", "magic", "codec"), WRITTEN)
@pytest.mark.parametrize("seed", range(3))
def test_magic_0_and_1(client: str, codec: int, magic: int, seed: int) -> None:
    builder = LEGACY[client].LegacyRecordBatchBuilder(magic, codec, 1 << 20)
    records = some_records(seed)
    for index, (key, value, _) in enumerate(records):
        builder.append(index, T0 + index, key, value)
    data = bytes(builder.build())
    assert found(data) == [
        (index, T0 + index if magic else -1, key, value, [])
        for index, (key, value, _) in enumerate(records)
    ]
