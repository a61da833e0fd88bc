"""Inputs for the fuzz targets, cut out of the golden files of real brokers."""

from __future__ import annotations

import itertools
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import kafkascan as ks
from kafkascan.batches import size_in_bytes
from kafkascan.records.decompression import decompress
from tests.support.paths import GOLDEN

TARGETS = ("record", "compressed", "chains", "search", "json")
LARGEST = 16 << 10

HEADER_SIZE = 61
KEY_SIZE_AT = {0: 18, 1: 26}

# Flags of fuzz_record.c and fuzz_search.c.
WRAPPER, PLAIN, ALL_COLUMNS = 1, 2, 4
ANY_OFFSET = 4

Inputs = dict[str, set[bytes]]


def write_corpora(folder: Path) -> None:
    """Write the inputs of each target into a folder with its name."""
    found: Inputs = {name: set() for name in TARGETS}
    for log in sorted(GOLDEN.glob("kafka-*/data/*/*.log")):
        _add_log(log, found)
    found["compressed"].update(_small_inputs())
    found["json"].update(_json_inputs())
    for name, inputs in found.items():
        assert inputs, f"{name} has no inputs"
        (folder / name).mkdir(parents=True)
        for number, data in enumerate(sorted(inputs)):
            (folder / name / f"golden-{number}").write_bytes(data)


def _small_inputs() -> Iterator[bytes]:
    """
    Yield what golden files do not contain.

    Gzip members with each kind of block, as theirs are all dynamic, and Zstandard frames without
    content and with too large a block.
    """
    contents = (b"x" * 300, bytes(range(200)), b"key-1 value-1 key-2 value-2 " * 9)
    for content, level, strategy in itertools.product(
        contents, (0, 9), (zlib.Z_DEFAULT_STRATEGY, zlib.Z_FIXED)
    ):
        deflate = zlib.compressobj(level, zlib.DEFLATED, 31, 8, strategy)
        yield b"\0" + 2 * (deflate.compress(content) + deflate.flush())
    frame, empty = struct.pack("<BIH", 3, 0xFD2FB528, 0), bytes(3)
    yield frame + 4 * empty + b"\1\0\0"
    yield frame + 5 * empty + b"\x33\x18\xfb\0"  # a byte, 2,057,990 times


def _json_inputs() -> Iterator[bytes]:
    """Yield values with the members of fuzz_json.c, which brokers do not write."""
    members = {
        "i": ("0", "-9223372036854775808", "1e2"), "n": ("0.1", "1.7976931348623157e308"),
        "s": ('"\\ud83d\\ude00\\n"', '"\u00fc text of more than 16 bytes"'), "b": ("true", "false"),
        "t": ('[{"a": [null]}, 1]', '"x"'), "l": ("[]", "[1, null, 3]"),
        "m": ("{}", '{"k": 1, "k": 2.5}'), "o": ('{"s": "x"}', '{"s": "x", "s": null, "u": []}'),
    }  # fmt: skip
    singles = [f'"{name}": {text}' for name, texts in members.items() for text in texts]
    for room in (b"\x02\x02", b"\xff\xff"):
        for text in (*singles, ", ".join(singles), ",".join(singles[::-1])):
            yield room + f" {{{text}}}\n".encode()


def _add_log(log: Path, found: Inputs) -> None:
    content = log.read_bytes()
    batches = ks.scan_batches(log, on_corrupt="stop").batches
    for batch, size in zip(batches, size_in_bytes(batches).tolist(), strict=True):
        start = int(batch["position"])
        if size <= LARGEST:
            _add_batch(batch, content[start : start + size], found)
    if len(batches):
        stop = int(batches["position"][0] + size_in_bytes(batches)[0])
        for piece in (content[: stop + 1024], content[:LARGEST]):
            found["chains"].add(struct.pack("<BH8H", 7, 500, *[len(piece) // 8] * 8) + piece)
            found["search"].add(struct.pack("<BBHHHBBH", ANY_OFFSET, 1, 1, 0, 0, 0, 0, 0) + piece)


def _add_batch(batch: ks.BatchTable, raw: bytes, found: Inputs) -> None:
    magic, codec = int(batch["magic"]), int(batch["attributes"]) & 7
    if magic == 2:
        flags, count, records = 0, int(batch["records_count"]), raw[HEADER_SIZE:]
    elif codec:
        flags, count, records = WRAPPER, 0, _value(raw, magic)
    else:
        flags, count, records = PLAIN, 1, raw
    if codec:
        found["compressed"].add(bytes([codec - 1]) + records)
        records = b"".join(decompress(codec, magic, records, 1 << 20))
    header = raw[:HEADER_SIZE].ljust(HEADER_SIZE, b"\0")
    found["record"].add(struct.pack("<BI", flags | ALL_COLUMNS, count) + header + records[:LARGEST])


def _value(message: bytes, magic: int) -> bytes:
    """Return the value of a message: the compressed messages of a wrapper."""
    at = KEY_SIZE_AT[magic]
    (key_size,) = struct.unpack_from(">i", message, at)
    return message[at + 8 + max(key_size, 0) :]
