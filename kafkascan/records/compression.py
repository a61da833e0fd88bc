"""Compress records as Kafka's writers do.

Libraries implement the codecs (cramjam, lz4, xxhash, zlib, zstandard). This module adds Kafka's
framing and parameters (``org.apache.kafka.common.compress``): deflate after a gzip header with
an unknown operating system, snappy in blocks of 32 KiB after a snappy-java header, LZ4 frames of
independent 64 KiB blocks, with the wrong header checksum of magic 0 (KAFKA-3160), and Zstandard
frames without content size.
"""

from __future__ import annotations

import struct
import threading
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import cramjam
import lz4.block
import xxhash
import zstandard

from kafkascan._core.packing import Lz4Packer, Packer, PiecePacker, SnappyPacker
from kafkascan.format.layout import CompressionType

Buffer = bytes | memoryview


@dataclass(frozen=True)
class Levels:
    """
    Compression levels of a codec (KIP-390).

    Attributes
    ----------
    default, lowest, highest : int
    others : tuple of int
        Further levels outside of that range.
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
"""Values of Kafka's ``compression.gzip.level``, ``.lz4.level`` and ``.zstd.level``."""


@dataclass(frozen=True)
class Compression:
    """
    A codec and its level.

    Attributes
    ----------
    codec : CompressionType
    level : int
        0 for codecs without levels.
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
            Of the batch: LZ4 frames of magic 0 have a different header checksum.

        Returns
        -------
        list of bytes-like
            The output in parts.
        """
        if self.codec == CompressionType.NONE:
            return [data]
        return [self.packer(magic).compress(data)]

    def packer(self, magic: int) -> Packer:
        """
        Return a compressor that writes into a preallocated output.

        Parameters
        ----------
        magic : int
            See `compress`.
        """
        return _PACKERS[self.codec](self.level, magic)


def compression(
    codec: CompressionType | str | int, level: int | None = None, *, magic: int = 2
) -> Compression:
    """
    Return a codec with a level.

    Parameters
    ----------
    codec : CompressionType or str or int
        A str is Kafka's name, such as ``"zstd"``.
    level : int, optional
        By default Kafka's default for the codec.
    magic : int, default 2
        Format of the batches.

    Raises
    ------
    ValueError
        If the codec does not exist, does not have the level, or is not supported by the format:
        Zstandard needs magic 2 (KIP-110).
    """
    kind = _codec(codec)
    if kind is CompressionType.ZSTD and magic < 2:
        raise ValueError(f"magic {magic} does not support zstd")
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
            f"{kind.display_name} has no compression level {level};"
            f" its levels are {levels.lowest} to {levels.highest}{also}"
        )
    return Compression(kind, level)


def _codec(codec: CompressionType | str | int) -> CompressionType:
    if isinstance(codec, str):
        for kind in CompressionType:
            if kind.display_name == codec:
                return kind
        names = ", ".join(kind.display_name for kind in CompressionType)
        raise ValueError(f"there is no codec {codec!r}; the codecs are {names}")
    return CompressionType(codec)


# ---- gzip --------------------------------------------------------------------------------

# No flags, no time, no level, unknown operating system: as JDK 16 and later write it.
_GZIP_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
_RAW_DEFLATE = -15
_DEFLATE_MEMORY = 8
_DEFLATED_AT_ONCE = 1 << 21


def _gzip(level: int, _magic: int) -> Packer:
    return PiecePacker(partial(_deflated, level))


def _deflated(level: int, data: memoryview) -> list[Buffer]:
    deflate = zlib.compressobj(level, zlib.DEFLATED, _RAW_DEFLATE, _DEFLATE_MEMORY)
    pieces: list[Buffer] = [_GZIP_HEADER]
    crc = 0
    # In pieces, so that Ctrl-C has an effect; deflate's output does not depend on them.
    for start in range(0, len(data), _DEFLATED_AT_ONCE):
        piece = data[start : start + _DEFLATED_AT_ONCE]
        pieces.append(deflate.compress(piece))
        crc = zlib.crc32(piece, crc)
    return [*pieces, deflate.flush(), struct.pack("<II", crc, len(data) & 0xFFFFFFFF)]


# ---- snappy ------------------------------------------------------------------------------

_XERIAL_HEADER = b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
_SNAPPY_BLOCK = 1 << 15


def _snappy(_level: int, _magic: int) -> Packer:
    return SnappyPacker(cramjam.snappy.compress_raw_into, _XERIAL_HEADER, _SNAPPY_BLOCK)


# ---- LZ4 ---------------------------------------------------------------------------------

_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_DESCRIPTOR = b"\x60\x40"  # independent blocks of 64 KiB; no checksums
_LZ4_BLOCK = 1 << 16
# Kafka's default level selects the fast compressor.
_LZ4_FAST = 9


def _lz4_header(covered: bytes) -> bytes:
    checksum = xxhash.xxh32_intdigest(covered) >> 8 & 0xFF
    return _LZ4_MAGIC + _LZ4_DESCRIPTOR + bytes([checksum])


_LZ4_HEADER = _lz4_header(_LZ4_DESCRIPTOR)
_LZ4_HEADER_MAGIC_0 = _lz4_header(_LZ4_MAGIC + _LZ4_DESCRIPTOR)


def _lz4(level: int, magic: int) -> Packer:
    # For each, the library whose output equals that of Kafka's library.
    if level == _LZ4_FAST:
        compress_into = partial(cramjam.lz4.compress_block_into, store_size=False)
    else:
        compress_into = partial(_lz4_high_into, level)
    header = _LZ4_HEADER if magic > 0 else _LZ4_HEADER_MAGIC_0
    return Lz4Packer(compress_into, header, _LZ4_BLOCK)


def _lz4_high_into(level: int, block: memoryview, room: memoryview) -> int:
    packed = lz4.block.compress(block, mode="high_compression", compression=level, store_size=False)
    room[: len(packed)] = packed
    return len(packed)


# ---- Zstandard ---------------------------------------------------------------------------


class _PerThread(threading.local):
    """Contexts by level; threads must not share them."""

    def __init__(self) -> None:
        self.zstd: dict[int, zstandard.ZstdCompressor] = {}


_per_thread = _PerThread()


def _zstd(level: int, _magic: int) -> Packer:
    return PiecePacker(partial(_zstd_frame, level))


def _zstd_frame(level: int, data: memoryview) -> list[Buffer]:
    context = _per_thread.zstd.get(level)
    if context is None:
        context = zstandard.ZstdCompressor(level=level, write_content_size=False)
        _per_thread.zstd[level] = context
    # Kafka flushes the stream before it closes it, which adds an empty last block.
    frame = context.compressobj()
    return [
        frame.compress(data),
        frame.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK),
        frame.flush(zstandard.COMPRESSOBJ_FLUSH_FINISH),
    ]


_PACKERS: dict[CompressionType, Callable[[int, int], Packer]] = {
    CompressionType.GZIP: _gzip,
    CompressionType.SNAPPY: _snappy,
    CompressionType.LZ4: _lz4,
    CompressionType.ZSTD: _zstd,
}
