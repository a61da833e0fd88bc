"""Trailing bytes and truncated streams, as Kafka's readers treat them."""

from __future__ import annotations

import gzip
import random
import struct
from concurrent.futures import ThreadPoolExecutor

import lz4.frame
import pytest
import snappy
import zstandard

import kafkascan as ks
from kafkascan.format.texts import java_string
from kafkascan.records.decompression import CodecError, decompress
from tests.support.records import zstd_of_repeated_value
from tests.support.segments import batch_v2, message_v1

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
LARGEST_BLOCK = 1 << 17
END_MARK = bytes(4)


def read(codec: int, data: bytes, magic: int = 2) -> bytes:
    return b"".join(decompress(codec, magic, data, 1 << 20))


def xerial(*contents: bytes, version: int = 1) -> bytes:
    blocks = [snappy.compress(content) for content in contents]
    chunks = b"".join(struct.pack(">i", len(block)) + block for block in blocks)
    return b"\x82SNAPPY\x00" + struct.pack(">ii", version, 1) + chunks


def lz4_blocks(*blocks: bytes) -> bytes:
    """Return a frame of stored blocks, with the bit that marks them."""
    head = lz4.frame.compress(b"", block_linked=False, store_size=False)[:7]
    return head + b"".join(struct.pack("<I", len(block) | 1 << 31) + block for block in blocks)


@pytest.mark.parametrize("tail", [b"\x1f\x8b\x08", b"\x1f\x8b\x08" + bytes(16), b"\x1f", bytes(30)])
def test_gzip_ignores_trailing_bytes_shorter_than_a_member(tail: bytes) -> None:
    members = gzip.compress(b"one") + gzip.compress(b"two")
    assert read(GZIP, members + tail) == b"onetwo"


def test_gzip_refuses_a_truncated_member() -> None:
    with pytest.raises(CodecError, match="truncated"):
        read(GZIP, gzip.compress(b"one") + gzip.compress(b"two" * 20)[:-1])
    for damaged in (gzip.compress(b"one")[:19], b"\x1f\x8b", b"\x1f\x8b\x07" + bytes(30)):
        with pytest.raises(CodecError, match="gzip"):
            read(GZIP, damaged)


@pytest.mark.parametrize("tail", [b"\x00", bytes(3), b"\x82SN"])
def test_snappy_ends_at_a_truncated_chunk_size(tail: bytes) -> None:
    assert read(SNAPPY, xerial(b"one", b"two") + tail) == b"onetwo"


def test_snappy_checks_the_version_of_later_streams_only() -> None:
    assert read(SNAPPY, xerial(b"one", version=0) + xerial(b"two", version=2)) == b"onetwo"
    for version in (0, -1):
        with pytest.raises(CodecError, match=f"version {version}"):
            read(SNAPPY, xerial(b"one") + xerial(b"two", version=version))


def test_lz4_ends_at_an_empty_block() -> None:
    """Also a stored one, and without trailing bytes."""
    stored_nothing, compressed_nothing = struct.pack("<I", 1 << 31), b"\x01\x00\x00\x00\x00"
    for end in (END_MARK, stored_nothing, compressed_nothing):
        assert read(LZ4, lz4_blocks(b"one") + end) == b"one"
        assert read(LZ4, lz4_blocks(b"one") + end + b"no block") == b"one"
    with pytest.raises(CodecError, match="without an end mark"):
        read(LZ4, lz4_blocks(b"one"))


def test_zstd_reads_the_largest_block() -> None:
    batch = batch_v2(zstd_of_repeated_value(LARGEST_BLOCK), attributes=ZSTD)
    assert ks.read_records(batch)[0].value == b"v" * LARGEST_BLOCK


def test_zstd_refuses_larger_blocks() -> None:
    """Block_Maximum_Size of RFC 8878. Four bytes can announce 2 MiB of a repeated byte."""
    frame = zstd_of_repeated_value(LARGEST_BLOCK + 1)
    with pytest.raises(CodecError, match="size of a block is out of range"):
        read(ZSTD, frame)
    with pytest.raises(ks.InvalidRecordError, match="size of a block is out of range"):
        ks.read_records(batch_v2(frame, attributes=ZSTD))


def test_zstd_reports_damage_regardless_of_earlier_frames() -> None:
    damaged = bytes.fromhex(
        "28b52ffd00006401004402d24e00000001904e78060261010024e282ace282acc3bc000a5c610a005cc3bc00026100"
        "010084d38323010000"
    )

    def error() -> str:
        with pytest.raises(CodecError) as raised:
            read(ZSTD, damaged)
        return str(raised.value)

    def errors() -> list[str]:
        first = error()
        large = random.Random(0).randbytes(200_000)
        assert read(ZSTD, zstandard.compress(large)) == large
        return [first, error()]

    # Each thread has a context of its own.
    with ThreadPoolExecutor(1) as pool:
        first, second = pool.submit(errors).result()
    assert first == second


def test_utf_8_is_decoded_like_java() -> None:
    """Each surrogate is replaced once; other bytes are replaced as Python does."""
    assert java_string(b"a\xed\xa0\x80b\xed\xbf\xbf") == "a\ufffdb\ufffd"
    assert java_string(b"\xed\xa0") == "\ufffd"
    assert java_string(b"\xff\xfe\xe2\x82") == "\ufffd\ufffd\ufffd"
    assert java_string("é€😀".encode()) == "é€😀"


@pytest.mark.parametrize("more", [-1, 1, 20])
def test_a_wrapper_whose_value_does_not_fit(more: int) -> None:
    log = bytearray(message_v1(None, gzip.compress(message_v1(b"k", b"v")), attributes=GZIP))
    (size,) = struct.unpack_from(">i", log, 30)
    struct.pack_into(">i", log, 30, size + more)
    expected = "does not fit" if more > 0 else "BAD_COMPRESSED_DATA"
    with pytest.raises(ks.CorruptBatchError, match=expected):
        ks.read_records(bytes(log))
