"""Compression as by Kafka's writers: levels and framing."""

from __future__ import annotations

import gzip
import random
import struct
import zlib
from pathlib import Path

import pytest
import zstandard

import kafkascan as ks
from kafkascan._core.packing import Lz4Packer, Output, SnappyPacker
from kafkascan.format.layout import CompressionType
from kafkascan.records.compression import LEVELS, compression
from kafkascan.records.decompression import decompress
from tests.support.work import count_calls

_CODECS = ("gzip", "snappy", "lz4", "zstd")
_NOISE = random.Random(1).randbytes(200_000)


def _compressed(codec: str, data: bytes, *, magic: int = 2, level: int | None = None) -> bytes:
    return b"".join(compression(codec, level, magic=magic).compress(memoryview(data), magic))


@pytest.mark.parametrize("codec", _CODECS)
@pytest.mark.parametrize("data", [b"a", b"text" * 50_000, _NOISE, _NOISE[:65_536], bytes(65_537)])
def test_compressed_data_round_trips(codec: str, data: bytes) -> None:
    number = CompressionType[codec.upper()]
    for magic in (0, 1, 2) if codec != "zstd" else (2,):
        packed = _compressed(codec, data, magic=magic)
        assert b"".join(decompress(number, magic, packed, 1 << 20)) == data


def test_gzip_header_has_no_time_and_no_system() -> None:
    assert _compressed("gzip", b"x")[:10].hex() == "1f8b08000000000000ff"


def test_a_large_gzip_batch_is_compressed_in_pieces_of_one_stream() -> None:
    """Signals are handled between them; the stream is that of one call."""
    data = _NOISE * 25
    _compressed("gzip", data)
    assert count_calls(lambda: _compressed("gzip", data)) > count_calls(
        lambda: _compressed("gzip", data[:100])
    )
    whole = zlib.compressobj(-1, zlib.DEFLATED, -15, 8)
    assert _compressed("gzip", data)[10:-8] == whole.compress(data) + whole.flush()
    assert gzip.decompress(_compressed("gzip", data)) == data


def test_snappy_comes_in_blocks_of_32_kib() -> None:
    packed = _compressed("snappy", _NOISE[:70_000])
    assert packed[:16] == b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
    at, sizes = 16, []
    while at < len(packed):
        (size,) = struct.unpack_from(">i", packed, at)
        sizes.append(b"".join(decompress(2, 2, packed[at + 4 : at + 4 + size], 1 << 20)))
        at += 4 + size
    assert [len(block) for block in sizes] == [32_768, 32_768, 4_464]


def test_lz4_frames_are_kafkas() -> None:
    packed = _compressed("lz4", _NOISE[:65_536] + bytes(100))
    assert packed[:7].hex() == "04224d18604082"
    assert struct.unpack_from("<I", packed, 7) == (65_536 | 1 << 31,)
    assert packed[11 : 11 + 65_536] == _NOISE[:65_536]
    assert packed.endswith(bytes(4))


def test_lz4_frames_of_magic_0_have_the_wrong_checksum_that_kafka_writes() -> None:
    assert _compressed("lz4", b"x", magic=0)[6] == 0x1A
    assert _compressed("lz4", b"x", magic=1)[6] == 0x82


def test_zstd_frames_have_no_content_size_and_an_empty_last_block() -> None:
    packed = _compressed("zstd", b"hello")
    assert packed.endswith(b"\x01\x00\x00")
    frame = zstandard.get_frame_parameters(packed)
    assert frame.content_size == zstandard.CONTENTSIZE_UNKNOWN
    assert not frame.has_checksum


@pytest.mark.parametrize("sizes", [(20_000, 131_072, 20_000), (99_999, 100_000, 100_001)])
def test_zstd_blocks_of_all_sizes_after_each_other(tmp_path: Path, sizes: tuple[int, ...]) -> None:
    """Small blocks are decompressed into small memory, until there is a larger one."""
    values = [bytes([number]) * (size - 20) for number, size in enumerate(sizes)]
    batches = [
        ks.build_batches(timestamp=[0], value=[value], offset=number, compression_type="zstd")
        for number, value in enumerate(values)
    ]
    path = tmp_path / f"{0:020}.log"
    path.write_bytes(b"".join(map(bytes, batches)))
    assert ks.read_records(path).to_arrow()["value"].to_pylist() == values


def test_levels_are_those_of_kafka() -> None:
    assert {codec: LEVELS[codec].default for codec in LEVELS} == {
        CompressionType.GZIP: -1,
        CompressionType.LZ4: 9,
        CompressionType.ZSTD: 3,
    }
    for codec, levels in (
        ("gzip", (-1, 1, 9)),
        ("lz4", (1, 9, 17)),
        ("zstd", (-131072, 0, 22)),
    ):
        for level in levels:
            assert compression(codec, level).level == level


@pytest.mark.parametrize(
    ("codec", "level"),
    [
        *(("gzip", 0), ("gzip", 10), ("gzip", -2), ("lz4", 0), ("lz4", 18)),
        *(("zstd", -131073), ("zstd", 23)),
    ],
)
def test_other_levels_are_refused(codec: str, level: int) -> None:
    with pytest.raises(ValueError, match=f"{codec} has no compression level {level}"):
        compression(codec, level)


def test_codecs_without_levels_refuse_a_level() -> None:
    with pytest.raises(ValueError, match="snappy has no compression levels"):
        compression("snappy", 1)


def test_a_level_changes_the_output() -> None:
    text = b"".join(random.Random(7).choices([b"abc", b"def", b"ghi", b"x"], k=20_000))
    for codec in ("gzip", "lz4", "zstd"):
        levels = {len(_compressed(codec, text, level=level)) for level in (1, 9)}
        assert len(levels) == 2, codec


def test_unknown_codecs_and_zstd_below_magic_2_are_refused() -> None:
    with pytest.raises(ValueError, match="there is no codec 'brotli'"):
        compression("brotli")
    with pytest.raises(ValueError, match="5 is not a valid"):
        compression(5)
    with pytest.raises(ValueError, match="magic 1 does not support zstd"):
        compression("zstd", magic=1)


def test_codec_functions_that_return_a_wrong_size() -> None:
    for size in (-1, 0, 1 << 40):
        packer = SnappyPacker(lambda _block, _room, size=size: size, b"header", 1 << 15)
        with pytest.raises(ValueError, match="size"):
            packer.compress(b"data")
    with pytest.raises(ValueError, match="block_size"):
        Lz4Packer(len, b"header", 0)


def test_output_is_taken_once() -> None:
    output = Output(10)
    output.expect(100)
    assert output.take() == b""
    for use in (output.take, lambda: output.expect(1)):
        with pytest.raises(ValueError, match="taken"):
            use()
