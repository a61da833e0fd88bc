"""Tiers, schema registries and typed values with extreme numbers."""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path

import zstandard

from tests.support.extremes import BEYOND, EXTREMES, Case, Files, Number, changed, texts_of
from tests.support.files import contents
from tests.support.internal_topics import KeyValue, TopicLog
from tests.support.partitions import HealthyPartition
from tests.support.records import varint
from tests.support.schema_topics import (
    AVRO,
    AVRO_2,
    JSON_SCHEMA,
    MONEY,
    NOOP,
    PROTO,
    delete_subject,
    schema,
    setting,
)
from tests.support.tiers import AivenTier, put_local

# ---- tiers ---------------------------------------------------------------------------------------

_CHUNK = 300


def tier_cases(folder: Path) -> Iterator[Case]:
    """
    Yield tiers with extreme numbers: in manifests, leader epochs, chunk sizes and names.

    The folder `tier` has remote segments of the partition in the folder `local`.
    """
    local = folder / "local"
    HealthyPartition(local / "x-0", segments=2).write()
    AivenTier(folder / "fixed", chunk_size=_CHUNK).put_partition(local / "x-0")
    AivenTier(folder / "variable", chunk_size=_CHUNK, is_compressed=True).put_partition(
        local / "x-0"
    )
    put_local(folder / "filed", local / "x-0")
    beside = {f"local/{name}": data for name, data in contents(local).items()}
    for kind in ("fixed", "variable", "filed"):
        stored = contents(folder / kind).items()
        files = {**beside, **{f"tier/{name}": data for name, data in stored}}
        numbers = _numbers_of_text(files)
        if kind == "variable":  # what follows the chunks is as of fixed ones
            numbers = [
                one for one in numbers if one.start < files[one.file].index(b"segmentIndexes")
            ]
        for number in numbers:
            yield from (changed(files, [(number, value)]) for value in number.values())
        yield from _of_names(files)
        if kind == "variable":
            yield from _of_chunks(files)


def _numbers_of_text(files: Files) -> list[Number]:
    """Return the numbers of the first manifest, or of the first leader epochs."""
    kinds = ("rsm-manifest", "leader_epoch_checkpoint")
    texts = [name for kind in kinds for name in sorted(files) if name.endswith(kind)]
    return texts_of(texts[0], files[texts[0]])


def _of_names(files: Files) -> Iterator[Case]:
    """Yield a tier with extreme numbers in the names of a segment and of its partition."""
    log = min(name for name in files if name.startswith("tier/") and name.endswith(".log"))
    stem = log.rpartition("/")[2].partition("-")[0]
    for value in (*EXTREMES, *BEYOND):
        new_names = {f"/{stem}-": f"/{value:020}-", "/0/0": f"/{value}/0", "/x-0-": f"/x-{value}-"}
        for old, new in new_names.items():
            if old in log:
                yield Case(
                    f"{old} is {new}", {_moved(name, old, new): files[name] for name in files}
                )


def _moved(name: str, old: str, new: str) -> str:
    return name.replace(old, new) if name.startswith("tier/") else name


def _of_chunks(files: Files) -> Iterator[Case]:
    """Yield a tier with extreme numbers among the sizes of its chunks."""
    path = min(name for name in files if name.endswith(".rsm-manifest"))
    manifest = json.loads(files[path])
    sizes = zstandard.decompress(base64.b64decode(manifest["chunkIndex"]["transformedChunks"]))
    for at in (0, 4, 8, len(sizes) - 4):
        for value in (-(2**31), -1, 0, 1, 2**31 - 2, 2**31 - 1):
            data = sizes[:at] + struct.pack(">i", value) + sizes[at + 4 :]
            packed = base64.b64encode(zstandard.compress(data)).decode()
            index = {**manifest["chunkIndex"], "transformedChunks": packed}
            text = json.dumps({**manifest, "chunkIndex": index}).encode()
            yield Case(f"{value} at {at} of the chunk sizes", {**files, path: text})


# ---- registries ----------------------------------------------------------------------------------

_IDS = (7, 8, 0, -1, 2**31 - 1, -(2**31))
_REGISTERED: tuple[KeyValue, ...] = (
    NOOP,
    schema("orders-value", 1, 7, AVRO),
    schema("orders-value", 2, 8, AVRO_2),
    schema("money", 1, 9, MONEY, schemaType="PROTOBUF"),
    schema("prices-value", 1, 10, PROTO, schemaType="PROTOBUF",
           references=[{"name": "money.proto", "subject": "money", "version": 1}]),
    schema("texts-value", 1, 11, JSON_SCHEMA, schemaType="JSON"),
    setting("CONFIG", None, {"compatibilityLevel": "FULL"}),
    delete_subject("money", 1),
    schema("gone", 1, 12, AVRO),
)  # fmt: skip
_TOKEN = re.compile(rb"(?<=[:,\[])-?\d+(?=[,}\]])")


def registry_cases() -> Iterator[Case]:
    """Yield data directories whose registry has an extreme number in a key or a value."""
    orders = [(b"k", b"\0" + struct.pack(">i", number) + b"\2\0") for number in _IDS]
    for place, record in enumerate(_REGISTERED):
        for part, data in enumerate(record):
            for found in _TOKEN.finditer(data or b""):
                for value in (*EXTREMES, *BEYOND, 10**400, 1.5):
                    assert data is not None
                    text = data[: found.start()] + str(value).encode() + data[found.end() :]
                    odd = (text, record[1]) if part == 0 else (record[0], text)
                    records = [*_REGISTERED[:place], odd, *_REGISTERED[place + 1 :]]
                    name = f"{str(value)[:30]} at {found.start()} of {record[part]!r}"
                    yield Case(name, _topics({"_schemas": records, "orders": orders}))


def _topics(records: Mapping[str, list[KeyValue]]) -> Files:
    return {
        f"{topic}-0/{0:020}.log": b"".join(TopicLog(Path(topic)).add(*some).batches)
        for topic, some in records.items()
    }


# ---- typed values --------------------------------------------------------------------------------

_ID = 7
_LONGS = (-(2**63), -(2**63) + 1, -(2**31) - 1, -(2**31), -1, 0, 1, 2**31 - 1, 2**31, 2**32 - 1,
          2**62, 2**63 - 2, 2**63 - 1)  # fmt: skip
_AVRO: tuple[object, ...] = (
    "int", "long", "bytes", "string", "boolean", "double", ["null", "long"],
    {"type": "int", "logicalType": "date"}, {"type": "int", "logicalType": "time-millis"},
    *({"type": "long", "logicalType": name} for name in (
        "time-micros", "timestamp-millis", "timestamp-micros", "timestamp-nanos",
        "local-timestamp-millis", "local-timestamp-micros", "local-timestamp-nanos")),
    {"type": "array", "items": "int"}, {"type": "array", "items": "null"},
    {"type": "array", "items": {"type": "int", "logicalType": "date"}},
    {"type": "map", "values": "null"},
    {"type": "map", "values": {"type": "long", "logicalType": "timestamp-millis"}},
    {"type": "enum", "name": "E", "symbols": ["A", "B"]},
    {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 2},
    {"type": "array", "items": {"type": "array", "items": "null"}},
)  # fmt: skip
_PROTOBUF = (
    "int32", "int64", "uint32", "uint64", "sint32", "sint64", "bool", "fixed32", "fixed64",
    "sfixed64", "string", "bytes", "Sub", "E", "repeated int64", "map<int64, int64>",
    "google.protobuf.Timestamp", "google.protobuf.Duration", "google.protobuf.Int64Value",
    "google.protobuf.Value",
)  # fmt: skip
_IMPORTS = "".join(
    f'import "google/protobuf/{name}.proto"; '
    for name in ("timestamp", "duration", "wrappers", "struct")
)
_JSON = (
    {"type": "integer"}, {"type": "number"}, {"type": "string", "format": "date-time"},
    {"type": "array", "items": {"type": "integer"}},
)  # fmt: skip
_JSON_NUMBERS = (
    *map(str, _LONGS), "18446744073709551615", "1e400", "-1e400", "1e-400", "1e308", "9" * 400,
    "-0", "1E+2147483648", "1e99999999999999999999", "9007199254740993",
    '"9999-12-31T23:59:59.999999999-23:59"', '"0000-01-01T00:00:00Z"', '"2024-01-01T24:00:00Z"',
)  # fmt: skip


def typed_cases() -> Iterator[Case]:
    """Yield data directories with a topic of typed values with odd numbers, sizes and counts."""
    for one in _AVRO:
        yield _typed(f"Avro {one}", json.dumps(one), "AVRO", list(_avro_values()))
        fields = [{"name": "x", "type": one}, {"name": "after", "type": "string"}]
        record = {"type": "record", "name": "R", "fields": fields}
        values = [value + b"\2z" for value in _avro_values()]
        yield _typed(f"Avro record of {one}", json.dumps(record), "AVRO", values)
    for kind in _PROTOBUF:
        text = (
            f'syntax = "proto3"; {_IMPORTS if "google" in kind else ""}'
            f"message T {{ {kind} x = 1; int64 y = 2; }} message Sub {{ int64 z = 1; }}"
            " enum E { A = 0; B = 1; }"
        )
        yield _typed(f"Protobuf {kind}", text, "PROTOBUF", list(_protobuf_values()))
    for properties in _JSON:
        text = json.dumps({"type": "object", "properties": {"x": properties}})
        numbers = [
            f'{{"x": {one}}}' for one in (*_JSON_NUMBERS, *(f"[{one}]" for one in _JSON_NUMBERS))
        ]
        yield _typed(f"JSON {properties}", text, "JSON", [one.encode() for one in numbers])


def _typed(name: str, text: str, kind: str, values: list[bytes]) -> Case:
    prefix = b"\0" + struct.pack(">i", _ID)
    records = [NOOP, schema("values-value", 1, _ID, text, schemaType=kind)]
    framed: list[KeyValue] = [(None, prefix + value) for value in values]
    return Case(name, _topics({"_schemas": records, "values": framed}))


def _avro_values() -> Iterator[bytes]:
    for number in _LONGS:
        one = varint(number)
        yield from (one, one + b"abc", one * 2 + bytes(4), b"\1" + one + bytes(2), one * 6)
        yield from (b"\2" + one + b"aaaaa", b"\4" + one * 2 + b"\0", b"\2\2k" + one + b"\0")
        yield b"\x10" + struct.pack(">q", number) + struct.pack("<d", number)


def _protobuf_values() -> Iterator[bytes]:
    """Yield values behind the index of the first message."""
    for number in _LONGS:
        one = _unsigned(number)
        fixed = struct.pack("<Q", number & 2**64 - 1)
        inner = (b"\x08" + one, b"\x08" + one + b"\x10" + one, b"\x08\1\x10" + one, one * 3)
        yield from (b"\0" + bytes([8 | wire]) + one for wire in range(8))
        yield from (
            b"\0\x09" + fixed,
            b"\0\x0d" + fixed[:4],
            b"\0" + one * 2,
            b"\0\x0a" + one + b"abc",
        )
        yield from (
            b"\0\x0a" + bytes([len(some)]) + some
            for some in (*inner, b"\x0a" + one, b"\x11" + fixed)
        )
        yield varint(number) * 2 + b"\x08\1"  # another message


def _unsigned(number: int) -> bytes:
    """Return a number as Protobuf has it; a negative one has ten bytes."""
    number &= 2**64 - 1
    return varint(number // 2 if number % 2 == 0 else ~(number // 2))
