"""Golden batches with damaged records, and valid lengths and checksums."""

from __future__ import annotations

import gzip
import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import lz4.block
import lz4.frame
import snappy
import zstandard

import kafkascan as ks
from kafkascan.records.decompression import decompress
from tests.support.segments import V2_FIELDS, sign

_GOLDEN = Path(__file__).resolve().parent.parent / "golden"

_SEED = 20240424
_PER_KIND = 350
_LARGE, _LARGE_SHARE = 1500, 0.05

_HEAD_SIZES = {0: 18, 1: 26, 2: 61}
"""The size of the header before the records of magic 2, and before the key of a message."""
_SMALLEST = {0: 26, 1: 34, 2: 61}
_GZIP, _SNAPPY, _LZ4, _ZSTD = 1, 2, 3, 4
_ODD_BYTES = (0x00, 0x01, 0x02, 0x7F, 0x80, 0xFF)


@dataclass(frozen=True)
class Mutant:
    """A damaged batch of a magic and codec; `what` names the damage."""

    source_kind: tuple[int, int]
    what: str
    data: bytes

    @property
    def magic(self) -> int:
        return self.data[16]

    @property
    def codec(self) -> int:
        return _codec(self.data)

    def __str__(self) -> str:
        return f"magic {self.magic}, codec {self.codec}, {self.what}: {self.data.hex()}"


def mutants() -> Iterator[Mutant]:
    """Yield mutants of every format and codec; the same in each run."""
    for kind, sources in sorted(_sources().items()):
        dice = random.Random(f"{_SEED} {kind}")
        small = [source for source in sources if len(source) < _LARGE]
        large = [source for source in sources if len(source) >= _LARGE] or small
        for _ in range(_PER_KIND):
            yield _mutant(dice.choice(large if dice.random() < _LARGE_SHARE else small), dice)


def _sources() -> dict[tuple[int, int], list[bytes]]:
    """Golden batches by magic and codec, of different topics and sizes."""
    found: dict[tuple[int, int], dict[object, bytes]] = {}
    for log in sorted(_GOLDEN.glob("*/data/*/*.log")):
        data = log.read_bytes()
        batches = ks.scan_batches(data).batches
        for row, size in zip(batches, ks.batches.size_in_bytes(batches).tolist(), strict=True):
            if row["records_count"] != 0:
                start, attributes = int(row["position"]), int(row["attributes"])
                of_kind = found.setdefault((int(row["magic"]), attributes & 7), {})
                feature = log.parent.name, attributes, len(str(size))
                of_kind.setdefault(feature, data[start : start + size])
    return {kind: list(sources.values()) for kind, sources in found.items()}


def _mutant(source: bytes, dice: random.Random) -> Mutant:
    """Damage a batch in one way, rarely in two."""
    what, data = _damaged(source, dice)
    while dice.random() < 0.1:
        also, data = _damaged_outside(data, dice)
        what = f"{what}, {also}"
    return Mutant((source[16], _codec(source)), what, data)


def _damaged(source: bytes, dice: random.Random) -> tuple[str, bytes]:
    if _codec(source) and dice.random() < 0.5:
        return _damaged_inside(source, dice)
    return _damaged_outside(source, dice)


def _damaged_outside(source: bytes, dice: random.Random) -> tuple[str, bytes]:
    """Damage the header, or the bytes after it."""
    head_size = _HEAD_SIZES[source[16]]
    head, body = source[:head_size], source[head_size:]
    if dice.random() < 0.2:
        what, head = _other_header(head, dice)
    else:
        what, body = _other_bytes(body, dice)
    return what, _framed(head + body)


def _damaged_inside(source: bytes, dice: random.Random) -> tuple[str, bytes]:
    """Decompress, damage and compress the records; or only compress them differently."""
    head, compressed = _split_compressed(source)
    content = b"".join(decompress(_codec(source), source[16], compressed, 1 << 20))
    if dice.random() < 0.3:
        what, body = _compressed_otherwise(_codec(source), content, dice)
    else:
        what, content = _other_bytes(content, dice)
        what, body = f"content: {what}", _compress(_codec(source), content)
    if source[16] < 2:
        head = head[:-4] + struct.pack(">i", len(body))
    return what, _framed(head + body)


# ---- parts of a batch --------------------------------------------------------------------


def _codec(batch: bytes) -> int:
    return batch[22 if batch[16] == 2 else 17] & 7


def _split_compressed(batch: bytes) -> tuple[bytes, bytes]:
    """Split a valid batch before its compressed bytes."""
    at = _HEAD_SIZES[batch[16]]
    if batch[16] < 2:
        (key_size,) = struct.unpack_from(">i", batch, at)
        at += 4 + max(key_size, 0) + 4
    return batch[:at], batch[at:]


def _framed(batch: bytes) -> bytes:
    framed = bytearray(batch)
    framed += bytes(max(0, _SMALLEST[batch[16]] - len(framed)))
    struct.pack_into(">i", framed, 8, len(framed) - 12)
    sign(framed)
    return bytes(framed)


# ---- ways of damage ----------------------------------------------------------------------


def _other_header(head: bytes, dice: random.Random) -> tuple[str, bytes]:
    changed = bytearray(head)
    if head[16] < 2:
        name, at, code = dice.choice([("offset", 0, "q"), ("attributes", 17, "b")])
        if head[16] == 1 and dice.random() < 0.3:
            name, at, code = "timestamp", 18, "q"
    else:
        name = dice.choice(
            ["base_offset", "attributes", "last_offset_delta", "base_timestamp", "max_timestamp",
             "base_sequence", "records_count", "records_count", "records_count"]
        )  # fmt: skip
        at, code = V2_FIELDS[name]
    (old,) = struct.unpack_from(f">{code}", head, at)
    bits = 8 * struct.calcsize(f">{code}")
    largest = 2 ** (bits - 1) - 1
    new = dice.choice([0, -1, 1, old + 1, old - 1, 2 * old, largest, largest - 1, -largest - 1])
    if name == "attributes":
        new = old ^ 1 << dice.randrange(min(bits - 1, 7))
    new = (new + largest + 1) % 2**bits - largest - 1
    struct.pack_into(f">{code}", changed, at, new)
    return f"{name} is {new}", bytes(changed)


def _other_bytes(body: bytes, dice: random.Random) -> tuple[str, bytes]:
    changed = bytearray(body)
    at = dice.randrange(len(body)) if body else 0
    if dice.random() < 0.3:  # sizes and magic numbers stand at the beginning
        at = min(at, dice.randrange(16))
    some = dice.randrange(1, 9)
    way = dice.choice(["bit", "bit", "byte", "byte", "cut", "append", "insert", "delete", "double"])
    if way == "cut":
        del changed[-some:]
    elif way == "append":
        changed += dice.choice([bytes(some), dice.randbytes(some), dice.randbytes(40), body])
    elif way == "insert":
        changed[at:at] = dice.randbytes(some)
    elif way == "delete":
        del changed[at : at + some]
    elif way == "double":
        changed[at:at] = changed[at : at + some]
    elif body:
        changed[at] = changed[at] ^ 1 << dice.randrange(8) if way == "bit" else _odd_byte(dice)
    return f"{way} at {at}", bytes(changed)


def _odd_byte(dice: random.Random) -> int:
    return dice.choice([*_ODD_BYTES, dice.randrange(256)])


# ---- other ways to compress --------------------------------------------------------------


def _compress(codec: int, content: bytes) -> bytes:
    """Compress as a producer does."""
    if codec == _GZIP:
        return gzip.compress(content, mtime=0)
    if codec == _SNAPPY:
        return _xerial([content])
    if codec == _LZ4:
        return lz4.frame.compress(content, block_linked=False, store_size=False)
    return zstandard.ZstdCompressor().compress(content)


def _compressed_otherwise(codec: int, content: bytes, dice: random.Random) -> tuple[str, bytes]:
    """Compress in ways that no producer uses: several streams, options, checksums."""
    cut = dice.randrange(len(content) + 1)
    parts = [content[:cut], content[cut:]]
    tail = dice.choice(
        [b"", b"", b"\x00", bytes(4), bytes(30), dice.randbytes(3), *_odd_tails(codec)]
    )
    streams = b"".join(_compress(codec, part) for part in parts) + tail
    two = f"two streams cut at {cut}, then {tail.hex()!r}", streams
    if codec == _GZIP:
        return dice.choice([two, two, _odd_gzip(content, dice)])
    if codec == _SNAPPY:
        chunks = f"chunks cut at {cut}", _xerial(parts) + tail
        return dice.choice(
            [two, chunks, ("raw", snappy.compress(content)), _odd_xerial(content, dice)]
        )
    if codec == _LZ4:
        return dice.choice([two, _odd_lz4(content, parts, dice), _odd_lz4(content, parts, dice)])
    return dice.choice([two, _odd_zstd(content, dice), _odd_zstd(content, dice)])


def _odd_tails(codec: int) -> list[bytes]:
    """Return the start of another stream: truncated, or of an unknown version."""
    if codec == _GZIP:
        magic = b"\x1f\x8b\x08"
        return [magic, magic + bytes(30), magic + b"\x08" + bytes(5) + b"a" * 30]
    if codec == _SNAPPY:
        versions = [_xerial([b""], version) for version in (-1, 0, 2)]
        return [*versions, _xerial([])[:-1], _xerial([b""])[:-1]]
    stream = _compress(codec, b"tail")
    return [stream, stream[:-1], stream[:5]]


def _odd_gzip(content: bytes, dice: random.Random) -> tuple[str, bytes]:
    """Return a member's header with other flags and their fields."""
    member = bytearray(_compress(_GZIP, content))
    flags = dice.choice([0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80])
    fields = {0x02: dice.randbytes(2), 0x04: b"\x03\x00abc", 0x08: b"name\x00", 0x10: b"text\x00"}
    member[3] = flags
    member[10:10] = fields.get(flags, b"")
    return f"header flags 0x{flags:02x}", bytes(member)


def _xerial(chunks: list[bytes], version: int = 1, compatible: int = 1) -> bytes:
    blocks = [snappy.compress(chunk) for chunk in chunks]
    head = b"\x82SNAPPY\x00" + struct.pack(">ii", version, compatible)
    return head + b"".join(struct.pack(">i", len(block)) + block for block in blocks)


def _odd_xerial(content: bytes, dice: random.Random) -> tuple[str, bytes]:
    version, compatible = dice.choice([0, 1, 2, -1]), dice.choice([0, 1, 2, -1])
    return f"version {version}, {compatible}", _xerial([content], version, compatible)


def _odd_lz4(content: bytes, parts: list[bytes], dice: random.Random) -> tuple[str, bytes]:
    if dice.random() < 0.5:
        options = {
            "content_checksum": dice.random() < 0.5,
            "block_checksum": dice.random() < 0.5,
            "store_size": dice.random() < 0.5,
            "block_size": dice.choice([0, 4, 5, 6, 7]),
        }
        return f"options {options}", lz4.frame.compress(content, block_linked=False, **options)
    # Blocks written by hand: stored, empty, an end mark with the bit of a stored block.
    are_dependent = dice.random() < 0.2
    frame = bytes(lz4.frame.LZ4FrameCompressor(block_linked=are_dependent).begin())
    for part in (parts[0], b"", parts[1]) if dice.random() < 0.5 else parts:
        if dice.random() < 0.5 and part:
            frame += struct.pack("<I", len(part) | 1 << 31) + part
        else:
            block = lz4.block.compress(part, store_size=False)
            frame += struct.pack("<I", len(block)) + block
        if dice.random() < 0.2:
            frame += struct.pack("<I", 1 << 31)
    return "blocks by hand", frame + dice.choice(
        [bytes(4), bytes(4), struct.pack("<I", 1 << 31), b""]
    )


def _odd_zstd(content: bytes, dice: random.Random) -> tuple[str, bytes]:
    options = {
        "write_checksum": dice.random() < 0.5,
        "write_content_size": dice.random() < 0.5,
        "level": dice.choice([-5, 1, 3, 19]),
    }
    frame = zstandard.ZstdCompressor(**options).compress(content)
    skippable = struct.pack("<II", 0x184D2A50 | dice.randrange(16), 3) + b"abc"
    before, behind = dice.random() < 0.3, dice.random() < 0.3
    frame = skippable * before + frame + skippable * behind
    return f"{options}, skippable frames {before}, {behind}", frame
