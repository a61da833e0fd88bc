"""The unpacker returns what the codecs return, and leaves unusual batches to them."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable

import lz4.frame
import numpy as np
import pytest
import snappy
import zstandard
from hypothesis import example, given, strategies as st

from kafkascan._core.unpacking import Arena
from kafkascan.format.layout import CompressionType
from kafkascan.records.decompression import CodecError, decompress, unpacker

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
CODECS = (GZIP, SNAPPY, LZ4, ZSTD)
LIMIT = 1 << 26


def unpacked(codec: int, *data: bytes, limit: int = LIMIT) -> list[bytes]:
    """Return the batches that the unpacker takes, up to the first that it leaves."""
    arena = Arena(0, lambda size: np.empty(size, np.uint8))
    sizes = np.array([len(one) for one in data], np.int64)
    starts = np.cumsum(sizes) - sizes
    piece, (position, size) = np.empty(len(data), np.int32), np.empty((2, len(data)), np.int64)
    codecs = np.full(len(data), codec, np.uint8)
    done = unpacker().unpack(
        b"".join(data), starts, sizes, codecs, arena, limit, 1 << 40, piece, position, size
    )
    assert arena.size == size[:done].sum()
    places = zip(piece[:done], position[:done], size[:done], strict=True)
    return [bytes(arena.pieces[p][at : at + n]) for p, at, n in places]


def xerial(content: bytes, chunk_size: int) -> bytes:
    chunks = [content[at : at + chunk_size] for at in range(0, len(content), chunk_size)]
    blocks = [snappy.compress(chunk) for chunk in chunks]
    header = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    return header + b"".join(struct.pack(">i", len(block)) + block for block in blocks)


def lz4_frame(content: bytes, **options: object) -> bytes:
    return lz4.frame.compress(content, block_linked=False, **options)


USUAL: dict[str, tuple[int, Callable[[bytes], bytes]]] = {
    "gzip": (GZIP, gzip.compress),
    "snappy, raw": (SNAPPY, snappy.compress),
    "snappy, one chunk": (SNAPPY, lambda content: xerial(content, 1 << 15)),
    "snappy, chunks": (SNAPPY, lambda content: xerial(content, 100)),
    "lz4": (LZ4, lambda content: lz4_frame(content, store_size=False)),
    "lz4, content size": (LZ4, lambda content: lz4_frame(content, store_size=True)),
    "lz4, checksums": (
        LZ4,
        lambda content: lz4_frame(content, block_checksum=True, content_checksum=True),
    ),
    "zstd": (ZSTD, zstandard.compress),
    "zstd, size unknown": (
        ZSTD,
        lambda content: zstandard.ZstdCompressor(
            write_content_size=False, write_checksum=True
        ).compress(content),
    ),
}
CONTENTS = (b"of one record", b"record " * 10_000, bytes(range(256)) * 700, bytes(200_000))


@pytest.mark.parametrize("content", CONTENTS, ids=len)
@pytest.mark.parametrize("kind", USUAL)
def test_usual_batches_are_unpacked(kind: str, content: bytes) -> None:
    codec, compress = USUAL[kind]
    data = compress(content)
    assert unpacked(codec, data, data, data) == [content] * 3


@pytest.mark.parametrize("content", CONTENTS[1:], ids=len)
@pytest.mark.parametrize("kind", USUAL)
def test_the_limit_holds(kind: str, content: bytes) -> None:
    codec, compress = USUAL[kind]
    assert unpacked(codec, compress(content), limit=len(content) - 1) == []


UNUSUAL = {
    "gzip, members": (GZIP, gzip.compress(b"one") + gzip.compress(b"one"), b"oneone"),
    "snappy, streams": (SNAPPY, xerial(b"one", 9) * 2, b"oneone"),
    "lz4, dependent": (
        LZ4,
        lz4.frame.compress(bytes(200_000), block_size=4, block_linked=True),
        bytes(200_000),
    ),
    "zstd, frames": (ZSTD, zstandard.compress(b"one") * 2, b"oneone"),
    "zstd, nothing": (ZSTD, zstandard.compress(b""), b""),
}


@pytest.mark.parametrize("kind", UNUSUAL)
def test_unusual_batches_are_not_unpacked(kind: str) -> None:
    codec, data, content = UNUSUAL[kind]
    assert unpacked(codec, data) == []
    assert b"".join(decompress(codec, 2, data, LIMIT)) == content


def test_unpacking_stops_before_an_unusual_batch() -> None:
    good, bad = gzip.compress(b"one"), gzip.compress(b"two")[:-1]
    assert unpacked(GZIP, good, good, bad, good) == [b"one", b"one"]
    assert unpacked(77, good) == []


def damaged(data: bytes, edits: list[tuple[int, int]], cut: int, tail: bytes) -> bytes:
    buffer = bytearray(data)
    for at, value in edits:
        # Mutations of the first and last bytes matter most.
        buffer[at % len(buffer)] = value
    return bytes(buffer[: len(buffer) - cut]) + tail


WORDS = st.lists(st.sampled_from([b"key-1", b"value", b" ", b"\x00" * 40, b"\x1f\x8b\x08"]))
EDITS = st.lists(st.tuples(st.integers(-12, 40), st.integers(0, 255)), max_size=3)


@given(
    kind=st.sampled_from(sorted(USUAL)),
    words=WORDS,
    edits=EDITS,
    cut=st.integers(0, 9),
    tail=st.binary(max_size=24),
    limit=st.sampled_from([1, 20, LIMIT]),
)
@example(kind="gzip", words=[b"key-1"], edits=[], cut=0, tail=b"\x1f\x8b\x08", limit=LIMIT)
def test_damaged_data_gives_the_error_of_the_codecs(
    kind: str, words: list[bytes], edits: list[tuple[int, int]], cut: int, tail: bytes, limit: int
) -> None:
    codec, compress = USUAL[kind]
    data = damaged(compress(b"".join(words)), edits, cut, tail)
    found = unpacked(codec, data, limit=limit)
    if found:
        assert found == [b"".join(decompress(codec, 2, data, limit))]
    else:
        # Other tests cover what the codecs do with it.
        with_error_or_not(codec, data, limit)


def with_error_or_not(codec: int, data: bytes, limit: int) -> None:
    try:
        decompress(codec, 2, data, limit)
    except CodecError as error:
        assert CompressionType.name_of(codec) in str(error) or "exceeds" in str(error)
