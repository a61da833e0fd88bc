"""Small blocks of snappy, decoded as the library decodes them, and blocks of LZ4 beside them."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable

import cramjam
import lz4.block
import lz4.frame
import pytest
import snappy
from hypothesis import example, given, strategies as st

import kafkascan as ks
from kafkascan._core.unpacking import Unpacker
from kafkascan.records import payloads
from tests.support.segments import message_v0, message_v1

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
    sizes = [(len(b), len(c)) for b, c in zip(blocks, contents, strict=True)]
    small = [kind == "snappy" and block <= 64 and content <= 512 for block, content in sizes]
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
