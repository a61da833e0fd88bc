"""Small blocks and gzip members, decoded without a library as libraries decode them."""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Callable

import cramjam
import lz4.block
import lz4.frame
import pytest
import snappy
from hypothesis import example, given, strategies as st
from isal import isal_zlib

import kafkascan as ks
from kafkascan._core.gzip_members import decompress_small_members
from kafkascan._core.unpacking import Unpacker
from kafkascan.records import decompression, payloads
from tests.support.segments import message_v0, message_v1
from tests.support.work import count_calls

RUN = 1 << 20
LIMIT = 1 << 26
LZ4_BLOCK = 1 << 16

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


# ---- LZ4 and snappy ----------------------------------------------------------------------------


class Libraries:
    """The libraries that decode blocks; `calls` counts the blocks that they decoded."""

    def __init__(self) -> None:
        self.calls = 0

    def counted(self, function: Callable[..., int]) -> Callable[..., int]:
        def call(*arguments: object) -> int:
            self.calls += 1
            return function(*arguments)

        return call

    def unpacker(self) -> Unpacker:
        return Unpacker(
            gunzip=bytes,
            snappy_into=self.counted(cramjam.snappy.decompress_raw_into),
            lz4_into=self.counted(cramjam.lz4.decompress_block_into),
            unzstd=bytes,
            xxh32=len,
        )


def lz4_content(block: bytes) -> bytes:
    return lz4.block.decompress(block, uncompressed_size=min(LZ4_BLOCK, 255 * len(block)))


# By format: size of the header of a block, compress, decompress, and the largest block.
BLOCKS: dict[str, tuple[str, Callable[..., bytes], Callable[..., bytes], int]] = {
    "lz4": ("<I", lambda data: lz4.block.compress(data, store_size=False), lz4_content, LZ4_BLOCK),
    "snappy": (">i", snappy.compress, snappy.uncompress, 0),
}


def run_of(kind: str, blocks: list[bytes]) -> tuple[bytes, int, int]:
    """Return the output of a run, the rest of its bytes, and how many blocks a library decoded."""
    header, _, _, largest = BLOCKS[kind]
    data = b"".join(struct.pack(header, len(block)) + block for block in blocks)
    libraries = Libraries()
    output, at = libraries.unpacker().unpack_run(data, 0, largest, 0, LIMIT)
    return bytes(output), len(data) - at, libraries.calls


@pytest.mark.parametrize("kind", BLOCKS)
@given(contents=st.lists(CONTENT.filter(len), max_size=5))
def test_blocks_are_decoded(kind: str, contents: list[bytes]) -> None:
    _, compress, _, _ = BLOCKS[kind]
    blocks = [compress(content) for content in contents]
    output, left, calls = run_of(kind, blocks)
    assert (output, left) == (b"".join(contents), 0)
    small = [len(b) <= 64 and len(c) <= 512 for b, c in zip(blocks, contents, strict=True)]
    assert calls == small.count(False)


@pytest.mark.parametrize("kind", BLOCKS)
@given(content=CONTENT, edits=EDITS, cut=st.integers(0, 3))
@example(content=b"", edits=[(0, 0x40)], cut=0)
def test_damaged_blocks_are_decoded_only_if_a_library_does(
    kind: str, content: bytes, edits: list[tuple[int, int]], cut: int
) -> None:
    _, compress, decompress, _ = BLOCKS[kind]
    block = damaged(compress(content), edits)
    block = block[: len(block) - cut]
    output, left, _ = run_of(kind, [block])
    if block and left == 0:
        assert output == decompress(block)


@pytest.mark.parametrize("kind", BLOCKS)
@given(block=st.binary(min_size=1, max_size=64))
def test_any_bytes_are_decoded_only_if_a_library_does(kind: str, block: bytes) -> None:
    output, left, _ = run_of(kind, [block])
    if left == 0:
        assert output == BLOCKS[kind][2](block)


# ---- gzip ----------------------------------------------------------------------------------------

STRATEGIES = (zlib.Z_DEFAULT_STRATEGY, zlib.Z_FIXED, zlib.Z_HUFFMAN_ONLY, zlib.Z_RLE)
FLAGS = {"crc": 2, "extra": 4, "name": 8, "comment": 16}


def member(content: bytes, level: int, strategy: int, flags: int) -> bytes:
    head = b"\x1f\x8b\x08" + bytes([flags]) + b"\1\2\3\4\0\xff"
    head += struct.pack("<H", 3) + b"\0ab" if flags & FLAGS["extra"] else b""
    head += b"name\0" if flags & FLAGS["name"] else b""
    head += b"\0" if flags & FLAGS["comment"] else b""
    head += struct.pack("<H", zlib.crc32(head) & 0xFFFF) if flags & FLAGS["crc"] else b""
    deflate = zlib.compressobj(level, zlib.DEFLATED, -15, 8, strategy)
    body = deflate.compress(content) + deflate.flush(zlib.Z_FULL_FLUSH) + deflate.flush()
    return head + body + struct.pack("<II", zlib.crc32(content), len(content))


MEMBER = st.builds(
    member,
    CONTENT,
    st.integers(0, 9),
    st.sampled_from(STRATEGIES),
    st.integers(0, 15).map(lambda bits: bits << 1),
)


def gunzip(data: bytes) -> tuple[bytes, int]:
    """Return the content of the first member, and its compressed size."""
    reader = zlib.decompressobj(31)
    content = reader.decompress(data) + reader.flush()
    assert reader.eof
    return content, len(data) - len(reader.unused_data)


@given(members=st.lists(MEMBER, min_size=1))
def test_members_are_decompressed(members: list[bytes]) -> None:
    data = b"".join(members)
    output, at = decompress_small_members(data, 0)
    assert bytes(output) == b"".join(gunzip(one)[0] for one in members)
    assert at == len(data)


@given(one=MEMBER, edits=EDITS, cut=st.integers(0, 9), tail=st.binary(max_size=9))
def test_damaged_members_are_decompressed_only_if_zlib_does(
    one: bytes, edits: list[tuple[int, int]], cut: int, tail: bytes
) -> None:
    data = damaged(one, edits)
    data = data[: len(data) - cut] + tail
    output, at = decompress_small_members(data, 0)
    if at > 0:
        assert (bytes(output), at) == gunzip(data)
    else:
        assert output == b""


@given(body=st.binary(min_size=1, max_size=60))
@example(body=b"\x04\x80\0\0\0\0\0\0\0\0\0\0\0\0\0\0")
def test_any_blocks_are_decompressed_only_if_zlib_does(body: bytes) -> None:
    """The checksum and the size fit, so that only the blocks decide."""
    deflate = zlib.decompressobj(-15)
    try:
        content = deflate.decompress(body, RUN)
    except zlib.error:
        content = b""
    used = body[: len(body) - len(deflate.unused_data)]
    end = struct.pack("<II", zlib.crc32(content), len(content))
    data = b"\x1f\x8b\x08" + bytes(7) + used + end
    output, at = decompress_small_members(data, 0)
    assert (at == len(data)) == deflate.eof
    assert bytes(output) == (content if deflate.eof else b"")


def test_a_run_ends_before_a_large_member() -> None:
    small, large = member(b"x", 6, 0, 0), member(bytes(range(256)) * 20, 0, 0, 0)
    output, at = decompress_small_members(small + large + small, 0)
    assert (bytes(output), at) == (b"x", len(small))
    assert b"".join(decompression.decompress(1, 2, small + large + small, LIMIT)) == (
        b"x" + bytes(range(256)) * 20 + b"x"
    )


def test_the_output_of_a_run_is_limited() -> None:
    one = member(bytes(1 << 19), 9, 0, 0)
    assert len(one) < 2048
    output, at = decompress_small_members(one * 5, 0)
    assert (len(output), at) == (RUN, 2 * len(one))


def test_members_cost_no_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    created = 0

    def count(window_bits: int) -> object:
        nonlocal created
        created += 1
        return isal_zlib.decompressobj(window_bits)

    class Library:
        decompressobj = staticmethod(count)

    monkeypatch.setattr(decompression, "isal_zlib", Library)
    data = member(b"x", 6, 0, FLAGS["name"]) * 50_000
    calls = count_calls(lambda: decompression.decompress(1, 2, data, LIMIT))
    assert created == 1
    assert calls < 200


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
        patch.setattr(payloads, "unpacker", UnpacksNothing)
        assert read(data, is_in_memory=is_in_memory) == found
