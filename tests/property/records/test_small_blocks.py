"""Small blocks of snappy, decoded as the library decodes them."""

from __future__ import annotations

import gzip
import struct

import cramjam
import lz4.frame
import numpy as np
import pytest
import snappy
from hypothesis import example, given, strategies as st

import kafkascan as ks
from kafkascan._core.unpacking import Arena, Unpacker
from kafkascan.records import decompression
from tests.support.segments import message_v0, message_v1

LIMIT = 1 << 26

# Repetitions, long and short, near and far, and bytes that do not repeat.
CONTENT = st.lists(
    st.one_of(
        st.binary(max_size=20),
        st.builds(lambda part, n: part * n, st.binary(min_size=1, max_size=9), st.integers(1, 90)),
    ),
    max_size=5,
).map(b"".join)
EDITS = st.lists(st.tuples(st.integers(0, 80), st.integers(0, 255)), max_size=3)


def damaged(data: bytes, edits: list[tuple[int, int]]) -> bytes:
    buffer = bytearray(data)
    for at, value in edits if data else []:
        buffer[at % len(buffer)] = value
    return bytes(buffer)


# ---- snappy ------------------------------------------------------------------------------------


def unpacked(blocks: list[bytes]) -> tuple[list[bytes], int]:
    """Return the contents up to a damaged block, and how many the library decompressed."""
    calls = 0

    def library(block: bytes, output: bytearray) -> int:
        nonlocal calls
        calls += 1
        return cramjam.snappy.decompress_raw_into(block, output)

    one = Unpacker(gunzip=bytes, snappy_into=library, lz4_into=len, unzstd=bytes, xxh32=len)
    arena = Arena(0, lambda size: np.empty(size, np.uint8))
    sizes = np.array([len(block) for block in blocks], np.int64)
    piece = np.empty(len(blocks), np.int32)
    position, size = np.empty((2, len(blocks)), np.int64)
    count = one.unpack(
        b"".join(blocks), np.cumsum(sizes) - sizes, sizes, np.full(len(blocks), 2, np.uint8),
        arena, LIMIT, LIMIT, piece, position, size,
    )  # fmt: skip
    places = list(zip(piece.tolist(), position.tolist(), size.tolist(), strict=True))[:count]
    return [arena.pieces[n][at : at + size].tobytes() for n, at, size in places], calls


@given(contents=st.lists(CONTENT.filter(len), min_size=1, max_size=5))
@example(contents=[bytes(range(59)), bytes(range(60)), bytes(range(61))])
def test_blocks_are_decoded(contents: list[bytes]) -> None:
    blocks = [snappy.compress(content) for content in contents]
    found, calls = unpacked(blocks)
    assert found == contents
    small = [len(b) <= 64 and len(c) <= 512 for b, c in zip(blocks, contents, strict=True)]
    assert calls == small.count(False)


@given(content=CONTENT, edits=EDITS, cut=st.integers(0, 3))
@example(content=b"", edits=[(0, 0x40)], cut=0)
def test_damaged_blocks_are_decoded_only_if_the_library_does(
    content: bytes, edits: list[tuple[int, int]], cut: int
) -> None:
    block = damaged(snappy.compress(content), edits)
    block = block[: len(block) - cut]
    found, _ = unpacked([block] if block else [b"\0"])
    assert found in ([], [snappy.uncompress(block)] if found else [])


@given(block=st.binary(min_size=1, max_size=64))
def test_any_bytes_are_decoded_only_if_the_library_does(block: bytes) -> None:
    found, _ = unpacked([block])
    assert found in ([], [snappy.uncompress(block)] if found else [])


# ---- compressed messages of magic 0 and 1 ------------------------------------------------------

COMPRESSORS = {1: gzip.compress, 2: snappy.compress, 3: lz4.frame.compress, 4: bytes, 7: bytes}


@st.composite
def wrappers(draw: st.DrawFn) -> bytes:
    message = message_v1 if draw(st.booleans()) else message_v0
    codec = draw(st.sampled_from([0, *COMPRESSORS]))
    inner = b"".join(message(key, b"v") for key in draw(st.lists(KEYS, max_size=3)))
    value: bytes | None = damaged(COMPRESSORS.get(codec, bytes)(inner), draw(EDITS))
    value = None if draw(st.sampled_from(range(9))) == 0 else value
    wrapper = bytearray(message(draw(KEYS), value, attributes=codec))
    size = draw(st.sampled_from([*[None] * 8, -2, -1, 1 << 20]))
    if size is not None:  # of the key
        struct.pack_into(">i", wrapper, 26 if message is message_v1 else 18, size)
    return bytes(wrapper)


KEYS = st.one_of(st.none(), st.binary(max_size=3))


class Store:
    """Bytes that are neither a file nor memory."""

    path = "<bytes>"

    def __init__(self, data: bytes) -> None:
        self.data, self.size = data, len(data)

    def read_at(self, position: int, size: int) -> bytes:
        return self.data[position : position + size]


def read(data: bytes, *, is_in_memory: bool) -> object:
    try:
        with ks.Source(data if is_in_memory else Store(data)) as source:
            return ks.read_records(source, threads=1).to_arrow()
    except ks.KafkaScanError as error:
        return str(error)


@given(st.lists(wrappers(), min_size=1, max_size=5).map(b"".join), st.booleans())
def test_wrappers_as_one_by_one(data: bytes, is_in_memory: bool) -> None:
    found = read(data, is_in_memory=is_in_memory)

    class UnpacksNothing:
        def unpack(self, *_: object) -> int:
            return 0

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decompression, "unpacker", UnpacksNothing)
        assert read(data, is_in_memory=is_in_memory) == found
