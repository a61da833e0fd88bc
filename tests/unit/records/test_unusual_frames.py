"""Frames of LZ4 and Zstandard with headers that Kafka's writers do not produce, byte by byte."""

from __future__ import annotations

import struct

import pytest
import xxhash

import kafkascan as ks
from kafkascan.records.decompression import CodecError, decompress
from tests.support.records import RecordV2
from tests.support.segments import batch_v2

LZ4, ZSTD = 3, 4


RECORD = RecordV2(value=b"abc" * 6).encode()


def read(codec: int, data: bytes) -> bytes:
    """Return the content, by the function for one batch; reading many must agree with it."""
    batch = batch_v2(data, attributes=codec)
    try:
        content = b"".join(decompress(codec, 2, data, 1 << 20))
    except CodecError:
        with pytest.raises(ks.InvalidRecordError) as caught:
            ks.read_records(batch)
        assert caught.value.symbol == "BAD_COMPRESSED_DATA"
        raise
    if content == RECORD:
        assert ks.read_records(batch).items("value") == [b"abc" * 6]
    else:
        with pytest.raises(ks.InvalidRecordError) as caught:
            ks.read_records(batch)
        assert caught.value.symbol == "RECORDS_MISSING"
    return content


def lz4_frame(flags: int, sizes: int) -> bytes:
    """Return a frame of one stored block."""
    descriptor = bytes([flags, sizes])
    head = (
        b"\x04\x22\x4d\x18" + descriptor + bytes([xxhash.xxh32(descriptor).intdigest() >> 8 & 255])
    )
    return head + struct.pack("<I", len(RECORD) | 1 << 31) + RECORD + bytes(4)


def test_lz4_frames_of_independent_blocks_are_read() -> None:
    assert read(LZ4, lz4_frame(0x60, 0x40)) == RECORD


@pytest.mark.parametrize(
    ("flags", "sizes"), [(0x61, 0x40), (0x62, 0x40), (0x60, 0x30), (0x60, 0x41)]
)
def test_lz4_frames_with_reserved_bits_or_sizes_are_refused(flags: int, sizes: int) -> None:
    with pytest.raises(CodecError):
        read(LZ4, lz4_frame(flags, sizes))


def zstd_block(content: bytes, kind: int = 0, *, is_last: bool = True) -> bytes:
    return (len(content) << 3 | kind << 1 | is_last).to_bytes(3, "little") + content


def zstd_frame(head: bytes, *blocks: bytes) -> bytes:
    """Return a frame; `head` begins with the descriptor."""
    return b"\x28\xb5\x2f\xfd" + head + b"".join(blocks)


SINGLE_8, SINGLE_4, SINGLE_1 = 0xE0, 0xA0, 0x20  # with a content size of so many bytes
BLOCK, SIZE = zstd_block(RECORD), len(RECORD)


def test_zstd_frames_with_a_content_size_of_eight_bytes_are_read() -> None:
    head = bytes([SINGLE_8]) + struct.pack("<Q", SIZE)
    assert read(ZSTD, zstd_frame(head, BLOCK)) == RECORD


def test_zstd_frames_without_content_are_read() -> None:
    blocks = [zstd_block(b"", is_last=number == 3) for number in range(4)]
    head = bytes([SINGLE_4]) + struct.pack("<I", 0)
    assert read(ZSTD, zstd_frame(head, *blocks)) == b""


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(zstd_frame(bytes([0, 18 << 3]), BLOCK), id="a window of 256 MiB"),
        pytest.param(zstd_frame(bytes([SINGLE_1, SIZE]), zstd_block(RECORD, 3)), id="kind"),
        pytest.param(zstd_frame(bytes([SINGLE_1, 0]), BLOCK), id="a content size of 0"),
        pytest.param(zstd_frame(bytes([SINGLE_1, 99]), BLOCK), id="a larger content size"),
        pytest.param(zstd_frame(bytes([8 | SINGLE_1, SIZE]), BLOCK), id="a reserved bit"),
    ],
)
def test_zstd_frames_that_contradict_themselves_are_refused(frame: bytes) -> None:
    with pytest.raises(CodecError):
        read(ZSTD, frame)
