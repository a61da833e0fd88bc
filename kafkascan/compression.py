"""Compression, as Kafka's writers do it.

The codecs themselves are libraries' (cramjam, lz4, xxhash, zlib, zstandard); here is what Kafka
puts around them, and how it feeds them: deflate behind a gzip header that names no system,
snappy in blocks of 32 KiB behind a header of snappy-java's, LZ4 frames of 64 KiB blocks that do
not depend on each other, with the broken header checksum of magic 0 (KAFKA-3160), and
Zstandard frames that tell no size (``org.apache.kafka.common.compress``).
"""

from __future__ import annotations

import struct
import threading
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cramjam
import lz4.block
import xxhash
import zstandard

from kafkascan.layout import CompressionType

Buffer = bytes | memoryview


@dataclass(frozen=True)
class Levels:
    """
    Compression levels of a codec (KIP-390).

    Attributes
    ----------
    default, lowest, highest : int
    others : tuple of int
        Levels beside those from the lowest to the highest.
    """

    default: int
    lowest: int
    highest: int
    others: tuple[int, ...] = ()

    def __contains__(self, level: int) -> bool:
        return self.lowest <= level <= self.highest or level in self.others


LEVELS = {
    CompressionType.GZIP: Levels(default=-1, lowest=1, highest=9, others=(-1,)),
    CompressionType.LZ4: Levels(default=9, lowest=1, highest=17),
    CompressionType.ZSTD: Levels(default=3, lowest=-131072, highest=22),
}
"""By codec: what Kafka's ``compression.gzip.level`` and its siblings take."""


@dataclass(frozen=True)
class Compression:
    """
    A codec and its level.

    Attributes
    ----------
    codec : CompressionType
    level : int
        Of no meaning where the codec has no levels.
    """

    codec: CompressionType
    level: int

    def compress(self, data: memoryview, magic: int) -> list[Buffer]:
        """
        Compress the records of a batch, or the messages of a wrapper.

        Parameters
        ----------
        data : memoryview of bytes
        magic : int
            Of the batch: an LZ4 frame of magic 0 has a header checksum of its own.

        Returns
        -------
        list of bytes-like
            The output in pieces.
        """
        return _COMPRESSORS[self.codec](data, self.level, magic)


def compression(
    codec: CompressionType | str | int, level: int | None = None, *, magic: int = 2
) -> Compression:
    """
    Name a codec and its level.

    Parameters
    ----------
    codec : CompressionType or str or int
        A str is Kafka's name, such as ``"zstd"``.
    level : int, optional
        By default Kafka's default for the codec.
    magic : int, default 2
        Of the batches that it is for.

    Raises
    ------
    ValueError
        If there is no such codec, it does not have this level, or the format does not have
        the codec: Zstandard came with magic 2 (KIP-110).
    """
    kind = _codec(codec)
    if kind is CompressionType.ZSTD and magic < 2:
        raise ValueError(f"magic {magic} knows of no zstd")
    levels = LEVELS.get(kind)
    if levels is None:
        if level is not None:
            raise ValueError(f"{kind.display_name} has no compression levels")
        return Compression(kind, 0)
    if level is None:
        return Compression(kind, levels.default)
    if level not in levels:
        also = "".join(f", or {other}" for other in levels.others)
        raise ValueError(
            f"{kind.display_name} has no compression level {level}, but {levels.lowest} to"
            f" {levels.highest}{also}"
        )
    return Compression(kind, level)


def _codec(codec: CompressionType | str | int) -> CompressionType:
    if isinstance(codec, str):
        for kind in CompressionType:
            if kind.display_name == codec:
                return kind
        names = ", ".join(kind.display_name for kind in CompressionType)
        raise ValueError(f"there is no codec {codec!r}, but {names}")
    return CompressionType(codec)


def _none(data: memoryview, _level: int, _magic: int) -> list[Buffer]:
    return [data]


# ---- gzip --------------------------------------------------------------------------------

# No flags, no time, no hint at the level, and a system that is not known: as since JDK 16.
_GZIP_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
_RAW_DEFLATE = -15
_DEFLATE_MEMORY = 8


def _gzip(data: memoryview, level: int, _magic: int) -> list[Buffer]:
    deflate = zlib.compressobj(level, zlib.DEFLATED, _RAW_DEFLATE, _DEFLATE_MEMORY)
    body, rest = deflate.compress(data), deflate.flush()
    trailer = struct.pack("<II", zlib.crc32(data), len(data) & 0xFFFFFFFF)
    return [_GZIP_HEADER, body, rest, trailer]


# ---- snappy ------------------------------------------------------------------------------

_XERIAL_HEADER = b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
_SNAPPY_BLOCK = 1 << 15


def _snappy(data: memoryview, _level: int, _magic: int) -> list[Buffer]:
    pieces: list[Buffer] = [_XERIAL_HEADER]
    for at in range(0, len(data), _SNAPPY_BLOCK):
        block = memoryview(cramjam.snappy.compress_raw(data[at : at + _SNAPPY_BLOCK]))
        pieces += (len(block).to_bytes(4, "big"), block)
    return pieces


# ---- LZ4 ---------------------------------------------------------------------------------

_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_DESCRIPTOR = b"\x60\x40"  # blocks that do not depend on each other, of 64 KiB; no checksums
_LZ4_BLOCK = 1 << 16
_LZ4_STORED = 1 << 31
_LZ4_END = bytes(4)
# Kafka's own default level is the number that stands for the fast compressor.
_LZ4_FAST = 9


def _lz4_header(covered: bytes) -> bytes:
    checksum = xxhash.xxh32_intdigest(covered) >> 8 & 0xFF
    return _LZ4_MAGIC + _LZ4_DESCRIPTOR + bytes([checksum])


_LZ4_HEADER = _lz4_header(_LZ4_DESCRIPTOR)
_LZ4_HEADER_MAGIC_0 = _lz4_header(_LZ4_MAGIC + _LZ4_DESCRIPTOR)


def _lz4(data: memoryview, level: int, magic: int) -> list[Buffer]:
    pieces: list[Buffer] = [_LZ4_HEADER if magic > 0 else _LZ4_HEADER_MAGIC_0]
    for at in range(0, len(data), _LZ4_BLOCK):
        block = data[at : at + _LZ4_BLOCK]
        packed = memoryview(_lz4_block(block, level))
        if len(packed) < len(block):
            pieces += (len(packed).to_bytes(4, "little"), packed)
        else:
            pieces += ((len(block) | _LZ4_STORED).to_bytes(4, "little"), block)
    pieces.append(_LZ4_END)
    return pieces


def _lz4_block(block: memoryview, level: int) -> Any:
    # Each as the library that writes what Kafka's does.
    if level == _LZ4_FAST:
        return cramjam.lz4.compress_block(block, store_size=False)
    return lz4.block.compress(block, mode="high_compression", compression=level, store_size=False)


# ---- Zstandard ---------------------------------------------------------------------------


class _PerThread(threading.local):
    """Contexts by level; none can be shared by threads."""

    def __init__(self) -> None:
        self.zstd: dict[int, zstandard.ZstdCompressor] = {}


_per_thread = _PerThread()


def _zstd(data: memoryview, level: int, _magic: int) -> list[Buffer]:
    context = _per_thread.zstd.get(level)
    if context is None:
        context = zstandard.ZstdCompressor(level=level, write_content_size=False)
        _per_thread.zstd[level] = context
    # As a stream that is flushed before it is closed: its last block is an empty one.
    frame = context.compressobj()
    return [
        frame.compress(data),
        frame.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK),
        frame.flush(zstandard.COMPRESSOBJ_FLUSH_FINISH),
    ]


_COMPRESSORS: dict[CompressionType, Callable[[memoryview, int, int], list[Buffer]]] = {
    CompressionType.NONE: _none,
    CompressionType.GZIP: _gzip,
    CompressionType.SNAPPY: _snappy,
    CompressionType.LZ4: _lz4,
    CompressionType.ZSTD: _zstd,
}
