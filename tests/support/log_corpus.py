"""Logs of random batches of every format and codec, written without the package's writers."""

from __future__ import annotations

import gzip
import random
import struct
from collections.abc import Sequence

import lz4.frame
import snappy
import xxhash
import zstandard

from tests.support.records import RecordV2, batch_of
from tests.support.segments import T0, batch_v2, message_v0, message_v1

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
LOG_APPEND_TIME, TRANSACTIONAL, CONTROL, DELETE_HORIZON = 0x08, 0x10, 0x20, 0x40


def compress(codec: int, magic: int, content: bytes) -> bytes:
    """Compress record bytes as a producer does."""
    if codec == NONE:
        return content
    if codec == GZIP:
        return gzip.compress(content, mtime=0)
    if codec == SNAPPY:
        block = snappy.compress(content)
        return b"\x82SNAPPY\x00" + struct.pack(">iii", 1, 1, len(block)) + block
    if codec == LZ4:
        frame = bytearray(lz4.frame.compress(content, block_linked=False, store_size=False))
        if magic == 0:  # KAFKA-3160
            frame[6] = xxhash.xxh32_intdigest(bytes(frame[:6])) >> 8 & 0xFF
        return bytes(frame)
    return zstandard.ZstdCompressor(write_content_size=False).compress(content)


def compressed_v2(batch: bytes, codec: int) -> bytes:
    """Return the same batch of magic 2 with compressed records."""
    fields = {
        name: struct.unpack_from(">" + code, batch, at)[0]
        for name, (at, code) in {
            "base_offset": (0, "q"), "partition_leader_epoch": (12, "i"),
            "attributes": (21, "h"), "last_offset_delta": (23, "i"), "base_timestamp": (27, "q"),
            "max_timestamp": (35, "q"), "producer_id": (43, "q"), "producer_epoch": (51, "h"),
            "base_sequence": (53, "i"), "records_count": (57, "i"),
        }.items()
    }  # fmt: skip
    fields["attributes"] = fields["attributes"] & ~7 | codec
    return batch_v2(compress(codec, 2, batch[61:]), **fields)


def random_bytes(dice: random.Random, most: int = 40) -> bytes | None:
    if dice.random() < 0.15:
        return None
    return (
        dice.randbytes(dice.randrange(most)) if dice.random() < 0.5 else b"a" * dice.randrange(most)
    )


def random_headers(dice: random.Random) -> list[tuple[bytes, bytes | None]]:
    if dice.random() < 0.6:
        return []
    names = (b"", b"h", "größe".encode(), b"trace-id")
    return [(dice.choice(names), random_bytes(dice, 9)) for _ in range(dice.randrange(4))]


def random_batch_v2(dice: random.Random, base_offset: int, codec: int) -> tuple[bytes, int]:
    """Return a batch and the next offset."""
    if dice.random() < 0.1:
        return marker(
            base_offset, dice.choice(["COMMIT", "ABORT"]), dice.randrange(9)
        ), base_offset + 1
    attributes = codec
    fields = {"partition_leader_epoch": dice.choice([-1, 0, 7])}
    base_timestamp = dice.choice([T0, T0 + dice.randrange(10_000), 0])
    if dice.random() < 0.2:
        attributes |= LOG_APPEND_TIME
    elif dice.random() < 0.15:
        attributes |= DELETE_HORIZON
        base_timestamp = T0 + 86_400_000
    if dice.random() < 0.4:
        fields |= {"producer_id": dice.randrange(1 << 40), "producer_epoch": dice.randrange(9)}
        fields["base_sequence"] = dice.choice([0, 5, 2**31 - 2])
        attributes |= TRANSACTIONAL * (dice.random() < 0.5)
    records: list[RecordV2] = []
    delta = dice.choice([0, 0, 0, 2])  # compaction took the first ones
    for _ in range(dice.choice([1, 1, 2, 3, 5, 12])):
        early = -dice.randrange(500) if base_timestamp else 0
        records.append(
            RecordV2(
                random_bytes(dice),
                random_bytes(dice, 90),
                random_headers(dice),
                delta,
                dice.choice([0, early, dice.randrange(5000)]),
            )
        )
        delta += dice.choice([1, 1, 1, 4])
    last_delta = records[-1].offset_delta + dice.choice([0, 0, 0, 3])
    times = [base_timestamp + one.timestamp_delta for one in records]
    fields |= {
        "base_offset": base_offset,
        "attributes": attributes & ~7,
        "base_timestamp": base_timestamp,
        "max_timestamp": T0 + 77_777 if attributes & LOG_APPEND_TIME else max(times),
        "last_offset_delta": last_delta,
    }
    batch = batch_of(records, **fields)
    return compressed_v2(batch, codec), base_offset + last_delta + 1


def marker(offset: int, kind: str, producer_id: int, timestamp: int = T0) -> bytes:
    """Return the control batch that ends a transaction."""
    key = struct.pack(">hh", 0, ["ABORT", "COMMIT"].index(kind))
    return batch_of(
        [RecordV2(key, struct.pack(">hi", 0, 3))],
        base_offset=offset,
        attributes=TRANSACTIONAL | CONTROL,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=producer_id,
        producer_epoch=0,
    )


def random_message(
    dice: random.Random, magic: int, offset: int, attributes: int = 0, timestamp: int | None = None
) -> bytes:
    key, value = random_bytes(dice), random_bytes(dice, 90)
    if magic == 0:
        return message_v0(key, value, offset=offset)
    timestamp = T0 + dice.randrange(9999) if timestamp is None else timestamp
    return message_v1(key, value, offset=offset, attributes=attributes, timestamp=timestamp)


def random_wrapper(
    dice: random.Random, magic: int, base_offset: int, codec: int, count: int = 0
) -> tuple[bytes, int]:
    """Return a compressed message of magic 0 or 1 and the next offset."""
    count = count or dice.choice([1, 2, 3, 7])
    flag = LOG_APPEND_TIME * (magic == 1 and dice.random() < 0.3)
    times = [T0 + dice.randrange(9999) for _ in range(count)]
    if flag:
        times = [T0 + 5555] * count
    inner = b"".join(
        random_message(dice, magic, at + base_offset * (magic == 0), flag, times[at])
        for at in range(count)
    )
    value, last = compress(codec, magic, inner), base_offset + count - 1
    if magic == 0:
        return message_v0(None, value, offset=last, attributes=codec), last + 1
    wrapper = message_v1(None, value, offset=last, attributes=codec | flag, timestamp=max(times))
    return wrapper, last + 1


def random_log(
    dice: random.Random,
    *,
    magics: Sequence[int] = (0, 1, 2),
    codecs: Sequence[int] = (NONE, GZIP, SNAPPY, LZ4, ZSTD),
    batches: int = 6,
    has_gaps: bool = True,
    has_append_times: bool = True,
) -> bytes:
    """Return consecutive batches of random formats and codecs; offsets ascend."""
    offset, parts = dice.choice([0, 0, 100, 5_000_000_000]), []
    for _ in range(batches):
        magic, codec = dice.choice(magics), dice.choice(codecs)
        if magic == 2:
            part, offset = random_batch_v2(dice, offset, codec)
        elif codec in (NONE, ZSTD):
            flag = LOG_APPEND_TIME * (magic == 1 and has_append_times and dice.random() < 0.2)
            part, offset = random_message(dice, magic, offset, flag), offset + 1
        else:
            part, offset = random_wrapper(dice, magic, offset, codec)
        parts.append(part)
        offset += dice.choice([0, 0, 2]) * has_gaps
    return b"".join(parts)
