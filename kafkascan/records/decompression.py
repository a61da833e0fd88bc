"""Decompress records as Kafka's readers do, up to a size limit.

Libraries implement the codecs (cramjam, isal, lz4, python-snappy, xxhash, zstandard). This module
implements Kafka's framing: several gzip members, snappy raw or in chunks after a header (the
"xerial" format of snappy-java), LZ4 frames read block by block, with the wrong header checksum of
magic 0 (KAFKA-3160), and Zstandard frames without content size. `_core.unpacking` decompresses
the usual forms faster; tests compare it with this module.

Memory: the output of a batch is limited, and exists twice while it is copied to its table. Time is
linear in the size of input and output, also for tiny blocks and empty frames.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any

import cramjam
import lz4.block
import lz4.frame
import snappy
import xxhash
import zstandard
from isal import igzip_lib, isal_zlib

from kafkascan._core.unpacking import Unpacker, zstd_bounds
from kafkascan.format.layout import CompressionType

Buffer = bytes | bytearray | memoryview

# Output of one call of a library, and size of parts that are worth an object of their own.
_PART, _SMALL_PART = 1 << 20, 1 << 12


class CodecError(Exception):
    """The bytes are not valid output of the codec."""


class OutputTooLargeError(CodecError):
    """The output exceeds the limit."""


def decompress(codec: int, magic: int, data: Buffer, limit: int) -> list[Buffer]:
    """
    Decompress the records of a batch, or the messages of a wrapper.

    Parameters
    ----------
    codec : int
        A value of `CompressionType` other than NONE that the format supports.
    magic : int
        Of the batch: in magic 0, the checksum of an LZ4 frame's header is ignored.
    data : bytes-like
    limit : int
        Maximum size of the output in bytes.

    Returns
    -------
    list of bytes-like
        The output in parts.

    Raises
    ------
    OutputTooLargeError
    CodecError
        If the bytes cannot be decompressed.
    """
    try:
        return list(_limited(_DECOMPRESSORS[codec](data, magic, limit), limit))
    except _LIBRARY_ERRORS as error:
        raise CodecError(f"{CompressionType.name_of(codec)}: {error}") from error


def unpacker() -> Unpacker:
    """Return this thread's `Unpacker`, which decompresses runs of batches in their usual form."""
    return _per_thread.unpacker


def _limited(parts: Iterator[Buffer], limit: int) -> Iterator[Buffer]:
    """Yield the parts up to a total size, small ones together."""
    size, small = 0, bytearray()
    for part in parts:
        size += len(part)
        if size > limit:
            raise OutputTooLargeError(f"the output exceeds {limit} bytes")
        if len(part) < _SMALL_PART:
            small += part
            continue
        if small:
            yield memoryview(small)
            small = bytearray()
        yield part
    yield memoryview(small)


# ---- gzip --------------------------------------------------------------------------------

_GZIP_MAGIC = b"\x1f\x8b\x08"
_GZIP_WINDOW_BITS = 31
_SMALLEST_GZIP_MEMBER = 20
# Producers write one member. Kafka reads any number, each of which costs an object here.
_MOST_GZIP_MEMBERS = 1000
# The library copies unused input, and many members may be small.
_FED_FIRST, _FED = 1 << 12, 1 << 16


def _gzip(data: Buffer, _magic: int, _limit: int) -> Iterator[Buffer]:
    """Decompress consecutive members; trailing bytes are ignored, as by Java's reader."""
    view, at = memoryview(data), 0
    if data[:2] != _GZIP_MAGIC[:2]:
        raise CodecError("gzip: the data does not begin with a gzip header")
    for _ in range(_MOST_GZIP_MEMBERS):
        member, fed = isal_zlib.decompressobj(_GZIP_WINDOW_BITS), _FED_FIRST
        while not member.eof:
            if at == len(view):
                raise CodecError("gzip: the data is truncated")
            part, fed = view[at : at + fed], _FED
            at += len(part)
            yield from _gzip_output(member, part)
        at -= len(member.unused_data)
        if not _is_gzip_member(view, at):
            return
    raise CodecError(f"gzip: the data has more than {_MOST_GZIP_MEMBERS} members")


def _is_gzip_member(data: memoryview, at: int) -> bool:
    return len(data) - at >= _SMALLEST_GZIP_MEMBER and data[at : at + 3] == _GZIP_MAGIC


def _gzip_output(member: Any, data: Buffer) -> Iterator[bytes]:
    """Yield the output of some input, in parts of bounded size."""
    is_full = True
    while is_full or data:
        output = member.decompress(data, _PART)
        yield output
        data, is_full = member.unconsumed_tail, len(output) == _PART


# ---- snappy ------------------------------------------------------------------------------

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER_SIZE = 16
_LARGEST_SNAPPY_RATIO = 64


def _snappy(data: Buffer, _magic: int, limit: int) -> Iterator[Buffer]:
    if data[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        yield _snappy_block(data, limit)
        return
    view, at = memoryview(data), 0
    while at < len(data):
        if data[at : at + 4] == _XERIAL_MAGIC[:4]:  # also of a second stream
            _require_xerial_header(data, at)
            at += _XERIAL_HEADER_SIZE
            continue
        if at + 4 > len(data):
            break  # Kafka, too, ends at a truncated chunk size.
        (size,) = struct.unpack_from(">i", data, at)
        at += 4
        if not 0 < size <= len(data) - at:
            raise CodecError(f"snappy: a chunk size of {size} bytes is out of range")
        yield _snappy_block(view[at : at + size], limit)
        at += size


def _require_xerial_header(data: Buffer, at: int) -> None:
    if len(data) - at < _XERIAL_HEADER_SIZE:
        raise CodecError("snappy: a stream header is truncated")
    magic, version, _ = struct.unpack_from(">8sii", data, at)
    # snappy-java does not check the version of the first stream.
    if at > 0 and magic == _XERIAL_MAGIC and version < 1:
        raise CodecError(f"snappy: version {version} of a stream is not supported")


def _snappy_block(block: Buffer, limit: int) -> bytes:
    size = _snappy_size(block)
    if size > limit:
        raise OutputTooLargeError(f"the output exceeds {limit} bytes")
    # Refuse impossible sizes before anything is allocated for them.
    if size > _LARGEST_SNAPPY_RATIO * len(block):
        raise CodecError(f"snappy: {len(block)} bytes cannot hold {size}")
    result: bytes = snappy.uncompress(block)
    return result


def _snappy_size(block: Buffer) -> int:
    """Return the decompressed size in the header of a block: an unsigned varint."""
    size = 0
    for shift, byte in zip(range(0, 35, 7), block[:5], strict=False):
        size |= (byte & 0x7F) << shift
        if byte < 0x80:
            return size
    raise CodecError("snappy: the size of a block is not a varint")


# ---- LZ4 ---------------------------------------------------------------------------------

_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_DESCRIPTOR_AT = 4
_LZ4_INDEPENDENT = 0x20
_LZ4_BLOCK_CHECKSUM = 0x10
_LZ4_CONTENT_SIZE = 0x08
_LZ4_CONTENT_CHECKSUM = 0x04
_LZ4_RESERVED = 0x03
_LZ4_STORED = 0x80000000
_LARGEST_LZ4_RATIO = 255


def _lz4(data: Buffer, magic: int, limit: int) -> Iterator[Buffer]:
    """Decompress the first frame; trailing bytes are ignored, as by ``Lz4BlockInputStream``."""
    blocks_at, flags, block_size = _lz4_header(data, check=magic > 0)
    if not flags & _LZ4_INDEPENDENT:
        yield from _lz4_frame(data, limit)
        return
    view, at = memoryview(data), blocks_at
    while True:
        if at + 4 > len(data):
            raise CodecError("lz4: the frame ends without an end mark")
        (size,) = struct.unpack_from("<I", data, at)
        at += 4
        is_stored, size = bool(size & _LZ4_STORED), size & ~_LZ4_STORED
        if size == 0:
            break
        if size > block_size:
            raise CodecError(f"lz4: a block of {size} bytes exceeds {block_size}")
        if size > len(data) - at:
            raise CodecError("lz4: a block is truncated")
        stored = view[at : at + size]
        at += size
        if flags & _LZ4_BLOCK_CHECKSUM:
            _require_lz4_checksum(data, at, stored)
            at += 4
        room = min(block_size, _LARGEST_LZ4_RATIO * size)
        block = stored if is_stored else lz4.block.decompress(stored, uncompressed_size=room)
        if not block:
            return  # An empty block is the end for Kafka (ChunkedBytesStream).
        yield block
    # Kafka reads the checksum of the content, but does not verify it.
    if flags & _LZ4_CONTENT_CHECKSUM and at + 4 > len(data):
        raise CodecError("lz4: the checksum of the content is truncated")


def _require_lz4_checksum(data: Buffer, at: int, block: memoryview) -> None:
    if at + 4 > len(data):
        raise CodecError("lz4: the checksum of a block is truncated")
    if struct.unpack_from("<I", data, at)[0] != xxhash.xxh32_intdigest(block):
        raise CodecError("lz4: the checksum of a block is wrong")


def _lz4_header(data: Buffer, *, check: bool) -> tuple[int, int, int]:
    """Return the position of the first block, the flags, and the maximum block size."""
    if len(data) < 7:
        raise CodecError("lz4: the frame header is truncated")
    if data[:4] != _LZ4_MAGIC:
        raise CodecError("lz4: the data does not begin with a frame")
    flags, sizes = data[4], data[5]
    if flags >> 6 != 1 or flags & _LZ4_RESERVED:
        raise CodecError(f"lz4: frame flags 0x{flags:02x} are not supported")
    if sizes & 0x8F or sizes >> 4 < 4:
        raise CodecError(f"lz4: block size 0x{sizes:02x} is not supported")
    end = _LZ4_DESCRIPTOR_AT + (10 if flags & _LZ4_CONTENT_SIZE else 2) + 1
    if len(data) < end:
        raise CodecError("lz4: the frame header is truncated")
    descriptor = data[_LZ4_DESCRIPTOR_AT : end - 1]
    if check and data[end - 1] != xxhash.xxh32_intdigest(descriptor) >> 8 & 0xFF:
        raise CodecError("lz4: the checksum of the frame header is wrong")
    return end, flags, 1 << (8 + 2 * (sizes >> 4))


def _lz4_frame(data: Buffer, limit: int) -> Iterator[Buffer]:
    """Decompress a frame of dependent blocks, which Kafka's reader refuses."""
    frame = lz4.frame.LZ4FrameDecompressor()
    # The library allocates max_length bytes.
    most = min(limit + 1, _PART)
    size = 0
    output = frame.decompress(data, max_length=most)
    while len(output) and size <= limit:
        yield output
        size += len(output)
        output = b"" if frame.eof else frame.decompress(b"", max_length=most)
    if not frame.eof:
        raise CodecError("lz4: the frame is truncated")


# ---- Zstandard ---------------------------------------------------------------------------

# By the status of `zstd_bounds`.
_ZSTD_DAMAGE = (
    "",
    "a frame is truncated",
    "trailing bytes after the last frame",
    "invalid frame magic",
    "a frame header is damaged",
    "the type or size of a block is out of range",
)


class _PerThread(threading.local):
    """A Zstandard context and an unpacker; threads must not share them."""

    def __init__(self) -> None:
        self.zstd = zstandard.ZstdDecompressor()
        self.unpacker = Unpacker(
            gunzip=igzip_lib.decompress,
            snappy_into=cramjam.snappy.decompress_raw_into,
            lz4_into=cramjam.lz4.decompress_block_into,
            unzstd=self.zstd.decompress,
            xxh32=xxhash.xxh32_intdigest,
        )


_per_thread = _PerThread()


def _zstd(data: Buffer, _magic: int, limit: int) -> Iterator[Buffer]:
    # The library does not report truncated frames.
    status, least, most = zstd_bounds(data)
    if status:
        raise CodecError(f"zstd: {_ZSTD_DAMAGE[status]}")
    if least > limit:
        raise OutputTooLargeError(f"the output exceeds {limit} bytes")
    if most <= limit:
        try:
            output = _per_thread.zstd.decompressobj(read_across_frames=True).decompress(data)
        except zstandard.ZstdError:
            # The error that is reported depends on the sizes of frames that a context has read.
            fresh = zstandard.ZstdDecompressor()
            output = fresh.decompressobj(read_across_frames=True).decompress(data)
        yield output
        return
    reader = _per_thread.zstd.stream_reader(data, read_across_frames=True)
    while part := reader.read(_PART):
        yield part


_DECOMPRESSORS: dict[int, Callable[[Buffer, int, int], Iterator[Buffer]]] = {
    CompressionType.GZIP: _gzip,
    CompressionType.SNAPPY: _snappy,
    CompressionType.LZ4: _lz4,
    CompressionType.ZSTD: _zstd,
}

# lz4 and isal raise MemoryError for huge sizes in damaged data.
_LIBRARY_ERRORS: tuple[type[Exception], ...] = (  # type: ignore[assignment]
    igzip_lib.IsalError,
    lz4.block.LZ4BlockError,
    RuntimeError,
    snappy.UncompressError,
    zstandard.ZstdError,
    MemoryError,
)
