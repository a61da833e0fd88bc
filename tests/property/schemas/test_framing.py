"""Random records: the schemas of prefixes and headers, as a function of one record finds them."""

from __future__ import annotations

import random
import struct
import uuid
from pathlib import Path

import pytest

import kafkascan as ks
from kafkascan.schemas import Registry, open_registry
from kafkascan.schemas.framing import FrameReader, Framing
from tests.support.internal_topics import TopicLog
from tests.support.schema_topics import schema

GUID = uuid.UUID("0a0b0c0d-0000-4000-8000-000000000000")
PROTOBUF_GUID = uuid.UUID("0a0b0c0d-0000-4000-8000-000000000001")
Headers = list[tuple[str, bytes | None]]
Path_ = tuple[int, ...]
Found = tuple[int | None, int, Framing, Path_ | None]
# What Confluent's serializers of Protobuf write behind a GUID, and what they never do.
INDEXES: dict[bytes, Path_ | None] = {
    b"\0": (0,), b"\2\2": (1,), b"\4\0\2": (0, 1), b"\2\x80\1": (64,), b"\2\0": (0,),
    b"\0\xff": (0,), b"\1": None, b"\4\2": None, b"\x80": None,
}  # fmt: skip


def registry_of(folder: Path, ids: list[int]) -> Registry:
    log = TopicLog(folder / "_schemas-0")
    log.add(*(schema("s", 1 + row, one, f'"{one}"') for row, one in enumerate(ids)))
    log.add(schema(":.x:s", 1, 77, '"x"', guid=str(GUID)))
    log.add(schema(":.x:p", 1, 78, "", guid=str(PROTOBUF_GUID), schemaType="PROTOBUF"))
    return open_registry(log.write())


def of_id(registry: Registry, number: int, size: int, form: Framing) -> Found:
    known = registry.schema(number) is not None
    return (number, size, form, None) if known else (None, 0, Framing.UNKNOWN_ID, None)


def of_guid(registry: Registry, raw: bytes, size: int, form: Framing) -> Found:
    found = registry.schema_of_guid(str(uuid.UUID(bytes=raw)))
    if found is None:
        return None, 0, Framing.UNKNOWN_ID, None
    return found.id, size, form, None


def of_header(registry: Registry, name: str, value: bytes | None) -> Found:
    if name == "__value_schema_id":
        if value and len(value) >= 17 and value[0] == 1:
            found = of_guid(registry, value[1:17], 0, Framing.HEADER)
            return with_indexes(found, value[17:])
        if value and len(value) >= 5 and value[0] == 0:
            found = of_id(registry, struct.unpack(">I", value[1:5])[0], 0, Framing.HEADER)
            return with_indexes(found, value[5:])
    elif value is not None and len(value) == 8:
        return of_id(registry, struct.unpack(">Q", value)[0], 0, Framing.HEADER)
    return None, 0, Framing.BAD_HEADER, None


def with_indexes(found: Found, indexes: bytes) -> Found:
    if found[0] is None or not indexes:
        return found
    path = INDEXES.get(indexes) if found[0] == 78 else None
    return (None, 0, Framing.BAD_HEADER, None) if path is None else (*found[:3], path)


def expected(registry: Registry, value: bytes | None, headers: Headers) -> Found:
    if value is None:
        return None, 0, Framing.NULL, None
    named = dict(headers)  # the last of a name
    for name in ("__value_schema_id", "apicurio.value.globalId", "apicurio.value.contentId"):
        if name in named:
            found = of_header(registry, name, named[name])
            is_binary = named.get("apicurio.value.encoding", b"BINARY") == b"BINARY"
            is_refused = found[2] == Framing.HEADER and not is_binary
            return (None, 0, Framing.NOT_BINARY, None) if is_refused else found
    if value[:1] == b"\3" and len(value) >= 18 and value[1] in (0, 5):
        form = Framing.GLUE if value[1] == 0 else Framing.GLUE_ZLIB
        return of_guid(registry, value[2:18], 18, form)
    if value[:1] != b"\0" or len(value) < 5:
        return None, 0, Framing.NO_PREFIX, None
    short = of_id(registry, struct.unpack(">I", value[1:5])[0], 5, Framing.CONFLUENT)
    if len(value) < 9:
        return short
    long = of_id(registry, struct.unpack(">Q", value[1:9])[0], 9, Framing.APICURIO)
    if short[0] is not None and long[0] is not None:
        return None, 0, Framing.AMBIGUOUS, None
    return long if short[0] is None else short


def found_in(registry: Registry, values: list[bytes | None], headers: list[Headers]) -> list[Found]:
    batches = ks.build_batches(value=values, headers=headers, max_records=7)
    framed = FrameReader(registry).read(ks.read_records(batches))
    columns = (framed.schema, framed.skip, framed.framing, framed.path)
    return [
        (
            None if row < 0 else framed.schemas[row].id,
            skip,
            Framing(form),
            None if row < 0 or path < 0 else framed.paths[path],
        )
        for row, skip, form, path in zip(*(one.tolist() for one in columns), strict=True)
    ]


def random_value(random_: random.Random, ids: list[int]) -> bytes | None:
    number = random_.choice([*ids, 0, 3, 2**31, 2**40 + 3])
    rest = random_.randbytes(random_.choice([0, 0, 3, 4, 12, 40]))
    guid = random_.choice([GUID.bytes, GUID.bytes[::-1]])
    return random_.choice([
        None,
        b"",
        rest,
        b"\0" + struct.pack(">Q", number)[4:] + rest,
        b"\0" + struct.pack(">Q", number)[4:] + bytes(4) + rest,
        b"\0" + struct.pack(">Q", number) + rest,
        b"\3" + random_.choice([b"\0", b"\5", b"\1"]) + guid + rest,
        b"\3\0" + guid[:9],
    ])  # fmt: skip


def random_headers(random_: random.Random, ids: list[int]) -> Headers:
    names = ["__value_schema_id", "__key_schema_id", "apicurio.value.globalId",
             "apicurio.value.contentId", "apicurio.value.encoding", "x" * 17, "trace"]  # fmt: skip
    number = random_.choice([*ids, 5, 2**40])
    values = [None, b"", b"\1" + GUID.bytes, b"\1" + GUID.bytes[::-1], struct.pack(">Q", number),
              b"\0" + struct.pack(">Q", number)[4:], b"\2" + bytes(16),
              b"\1" + random_.choice([GUID, PROTOBUF_GUID]).bytes + random_.choice([*INDEXES]),
              b"\0" + struct.pack(">I", 78) + random_.choice([*INDEXES]),
              b"\1" + PROTOBUF_GUID.bytes + b"\0" * 200]  # fmt: skip
    count = random_.choice([0, 0, 1, 2, 5])
    found = [(random_.choice(names), random_.choice(values)) for _ in range(count)]
    encodings = [b"BINARY", b"BINARY", b"JSON", b"binary", b"", None]
    return [
        (name, random_.choice(encodings) if name == "apicurio.value.encoding" else value)
        for name, value in found
    ]


@pytest.mark.parametrize("ids", [[1, 2, 3], [0, 2], [7, 2**31 - 1], [5, 2**33 + 3, 2**40], []])
@pytest.mark.parametrize("seed", range(6))
def test_random_records(tmp_path: Path, ids: list[int], seed: int) -> None:
    random_ = random.Random(f"{ids} {seed}")
    registry = registry_of(tmp_path, ids)
    values = [random_value(random_, ids) for _ in range(400)]
    headers: list[Headers] = [[] for _ in values]
    if seed % 2:
        headers = [random_headers(random_, ids) for _ in values]
    wanted = [expected(registry, *one) for one in zip(values, headers, strict=True)]
    assert found_in(registry, values, headers) == wanted


@pytest.mark.parametrize("odd", [None, b"", b"\0\0\0\0", b"\0\0\0\0\x09", b"{}{}{}"])
def test_one_odd_record_among_plain_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, odd: bytes | None
) -> None:
    monkeypatch.setattr("kafkascan.schemas.framing._ROWS_AT_ONCE", 64)
    registry = registry_of(tmp_path, [1, 2, 3])
    values: list[bytes | None] = [b"\0\0\0\0" + bytes([1 + one % 3]) for one in range(200)]
    headers: list[Headers] = [[] for _ in values]
    wanted = [expected(registry, one, []) for one in values]
    assert found_in(registry, values, headers) == wanted
    for at in (0, 63, 64, 199):
        changed = [*values[:at], odd, *values[at + 1 :]]
        wanted = [expected(registry, one, []) for one in changed]
        assert found_in(registry, changed, headers) == wanted


def test_many_headers_are_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkascan.schemas.framing._HEADERS_AT_ONCE", 10)
    registry = registry_of(tmp_path, [1])
    random_ = random.Random(1)
    values: list[bytes | None] = [b"x"] * 60
    headers = [[*random_headers(random_, [1]), *([("a", b"")] * random_.choice([0, 30]))]
               for _ in values]  # fmt: skip
    wanted = [expected(registry, *one) for one in zip(values, headers, strict=True)]
    assert found_in(registry, values, headers) == wanted
    headers[0] = [("a", b"")] * 1_000 + [("__value_schema_id", b"\0\0\0\0\1")]
    assert found_in(registry, values, headers)[0] == (None, 0, Framing.NO_PREFIX, None)


def test_keys_and_contexts(tmp_path: Path) -> None:
    registry = registry_of(tmp_path, [1])
    prefix = b"\0\0\0\0"
    table = ks.read_records(
        ks.build_batches(key=[prefix + b"\1k", prefix + b"\x4d"], value=[prefix + b"\x4d", None])
    )
    keys = FrameReader(registry).read(table, "key")
    assert keys.framing.tolist() == [Framing.CONFLUENT, Framing.UNKNOWN_ID]
    values = FrameReader(registry, context=".x").read(table)
    assert values.schema.tolist() == [registry.schemas.index(registry.versions(":.x:s")[0].schema),
                                      -1]  # fmt: skip
    assert not len(FrameReader(registry).read(table[:0]).schema)
    without = ks.read_records(ks.build_batches(value=[prefix + b"\1"]), columns=["value"])
    assert FrameReader(registry).read(without).skip.tolist() == [5]
