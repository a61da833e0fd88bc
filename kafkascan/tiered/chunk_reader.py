"""Read a segment whose chunks are compressed, encrypted, or both."""

from __future__ import annotations

import struct
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import zstandard
from numpy.typing import NDArray

from kafkascan._core.unpacking import zstd_bounds
from kafkascan.io.sources import SourceLike, borrowed_source, read_bytes
from kafkascan.tiered.tier_errors import CorruptObjectError

LARGEST_CHUNK = (1 << 30) - 1
_LARGEST_SIZES = 10 << 20


class ChunkIndexError(ValueError):
    """The description of the chunks contradicts itself."""


@dataclass(frozen=True, eq=False)
class ChunkIndex:
    """
    Where the chunks of a segment are.

    Attributes
    ----------
    chunk_size : int
        Bytes of the segment in each chunk but the last.
    file_size : int
        Bytes of the segment.
    count : int
        Number of chunks; an empty segment has one, which is empty.
    stored_size : int
        Bytes of the object.
    starts : ndarray of int64, shape (count,), or int
        Where each chunk begins in the object, or the stored size of each but the last.
    """

    chunk_size: int
    file_size: int
    count: int
    stored_size: int
    starts: NDArray[np.int64] | int

    def stored_range(self, chunk: int) -> tuple[int, int]:
        """Return where a chunk begins and ends in the object."""
        is_last = chunk == self.count - 1
        return self._start(chunk), self.stored_size if is_last else self._start(chunk + 1)

    def _start(self, chunk: int) -> int:
        known = self.starts
        return chunk * known if isinstance(known, int) else int(known[chunk])

    def plain_size(self, chunk: int) -> int:
        """Return how many bytes of the segment a chunk contains."""
        return min(self.chunk_size, self.file_size - chunk * self.chunk_size)


def fixed_chunks(chunk_size: int, file_size: int, stored: int, last_stored: int) -> ChunkIndex:
    """
    Return the index of chunks that are all stored with the same size, except the last.

    Raises
    ------
    ChunkIndexError
    """
    count = _count(chunk_size, file_size)
    _require_size(stored, "transformedChunkSize")
    _require_size(last_stored, "finalTransformedChunkSize")
    stored_size = (count - 1) * stored + last_stored
    return ChunkIndex(chunk_size, file_size, count, stored_size, stored)


def variable_chunks(chunk_size: int, file_size: int, sizes: NDArray[np.int64]) -> ChunkIndex:
    """
    Return the index of chunks of the given stored sizes.

    Raises
    ------
    ChunkIndexError
    """
    count = _count(chunk_size, file_size)
    if len(sizes) == 0 == file_size:
        return ChunkIndex(chunk_size, 0, count, 0, 0)
    if len(sizes) != count:
        reason = f"transformedChunks has {len(sizes)} sizes; {file_size} bytes have {count} chunks"
        raise ChunkIndexError(reason)
    if int(sizes.min()) < 0:
        raise ChunkIndexError(f"transformedChunks has a size of {int(sizes.min())}")
    ends = np.cumsum(sizes)
    return ChunkIndex(chunk_size, file_size, count, int(ends[-1]), ends - sizes)


def _count(chunk_size: int, file_size: int) -> int:
    if not 1 <= chunk_size <= LARGEST_CHUNK:
        raise ChunkIndexError(f"originalChunkSize is {chunk_size}")
    _require_size(file_size, "originalFileSize")
    return max(1, -(-file_size // chunk_size))


def _require_size(size: int, name: str) -> None:
    if not 0 <= size < 1 << 31:
        raise ChunkIndexError(f"{name} is {size}")


def decode_chunk_sizes(data: bytes) -> NDArray[np.int64]:
    """
    Decode ``transformedChunks`` of a manifest, without its base64.

    Parameters
    ----------
    data : bytes
        One Zstandard frame.

    Returns
    -------
    ndarray of int64

    Raises
    ------
    ChunkIndexError
    """
    try:
        size = zstandard.frame_content_size(data)
        if not 0 <= size <= _LARGEST_SIZES:
            raise ChunkIndexError(f"transformedChunks has a content size of {size}")
        content = zstandard.ZstdDecompressor().decompress(data)
    except zstandard.ZstdError as error:
        raise ChunkIndexError(f"transformedChunks is not a Zstandard frame: {error}") from error
    return _decode_sizes(content)


def _decode_sizes(content: bytes) -> NDArray[np.int64]:
    count = _int_at(content, 0)
    if count == 0 and len(content) == 4:
        return np.zeros(0, np.int64)
    if count == 1 and len(content) == 8:
        return np.array([_int_at(content, 4)], np.int64)
    if count < 2 or len(content) < 13:
        raise ChunkIndexError(f"transformedChunks has {len(content)} bytes for {count} sizes")
    base, width, last = _int_at(content, 4), content[8], _int_at(content, len(content) - 4)
    if not 1 <= width <= 4 or len(content) != 13 + (count - 1) * width:
        reason = f"transformedChunks has {len(content)} bytes for {count} sizes of {width} bytes"
        raise ChunkIndexError(reason)
    differences = _unsigned(content[9:-4], width)
    return np.concatenate([base + differences, [last]])


def _int_at(content: bytes, position: int) -> int:
    if len(content) < position + 4:
        raise ChunkIndexError(f"transformedChunks has only {len(content)} bytes")
    value: int = struct.unpack_from(">i", content, position)[0]
    return value


def _unsigned(data: bytes, width: int) -> NDArray[np.int64]:
    digits = np.frombuffer(data, np.uint8).reshape(-1, width).astype(np.int64)
    return digits @ (1 << 8 * np.arange(width - 1, -1, -1, dtype=np.int64))


_NONCE, _TAG = 12, 16
# Chunks that stay in memory: a table of batches is walked, verified and decoded from them.
_KEPT_BYTES = 1 << 25


@dataclass(frozen=True, repr=False)
class ChunkCipher:
    """
    Decrypts parts of one segment.

    Attributes
    ----------
    key : bytes
    aad : bytes
    """

    OVERHEAD: ClassVar[int] = _NONCE + _TAG

    key: bytes
    aad: bytes

    def decrypt(self, data: bytes, path: str, position: int) -> bytes:
        """
        Return the content of one part: nonce, ciphertext and tag.

        Raises
        ------
        CorruptObjectError
            If the part was changed.
        """
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        if len(data) < self.OVERHEAD:
            raise CorruptObjectError(path, position, f"{len(data)} bytes cannot be decrypted")
        try:
            return AESGCM(self.key).decrypt(data[:_NONCE], data[_NONCE:], self.aad)
        except InvalidTag:
            reason = f"{len(data)} encrypted bytes were changed, or the key is another one"
            raise CorruptObjectError(path, position, reason) from None


class ChunkedObject:
    """
    The bytes of a segment whose chunks are compressed or encrypted; a `ReadsAt`.

    Parameters
    ----------
    path : str
        The object.
    stored : SourceLike
        Its bytes.
    chunks : ChunkIndex
    is_compressed : bool
    cipher : ChunkCipher or None
    """

    def __init__(
        self,
        path: str,
        stored: SourceLike,
        chunks: ChunkIndex,
        is_compressed: bool,
        cipher: ChunkCipher | None,
    ) -> None:
        self.path = path
        self.size = chunks.file_size
        self._stored = stored
        self._chunks = chunks
        self._is_compressed = is_compressed
        self._cipher = cipher
        self._kept: OrderedDict[int, bytes] = OrderedDict()
        self._lock = threading.Lock()

    def read_at(self, position: int, size: int) -> bytes:
        """
        Return bytes of one chunk; see `ReadsAt.read_at`.

        Raises
        ------
        CorruptObjectError
            If the chunk cannot be decrypted or decompressed, or has another size.
        """
        if position >= self.size:
            return b""
        chunk = position // self._chunks.chunk_size
        start = position - chunk * self._chunks.chunk_size
        return self._chunk(chunk)[start : start + size]

    def _chunk(self, chunk: int) -> bytes:
        with self._lock:
            if chunk in self._kept:
                self._kept.move_to_end(chunk)
                return self._kept[chunk]
        data = self._undo(chunk)
        with self._lock:
            self._kept[chunk] = data
            while len(self._kept) > 1 and len(self._kept) * len(data) > _KEPT_BYTES:
                self._kept.popitem(last=False)
        return data

    def _undo(self, chunk: int) -> bytes:
        start, stop = self._chunks.stored_range(chunk)
        expected = self._chunks.plain_size(chunk)
        data = self._stored_bytes(start, stop)
        if self._cipher is not None:
            data = self._cipher.decrypt(data, self.path, start)
        if self._is_compressed:
            data = self._decompress(data, expected, start)
        if len(data) != expected:
            reason = f"chunk {chunk} has {len(data)} bytes, not {expected}"
            raise CorruptObjectError(self.path, start, reason)
        return data

    def _stored_bytes(self, start: int, stop: int) -> bytes:
        with borrowed_source(self._stored, read_below=0) as source:
            if stop > source.size:
                reason = f"the object ends at {source.size}; a chunk ends at {stop}"
                raise CorruptObjectError(self.path, start, reason)
            data = read_bytes(source, start, stop - start)
            source.require_unshrunk()  # after its new end, a file that shrank contains zeros
            return data

    def _decompress(self, data: bytes, expected: int, position: int) -> bytes:
        status, _, most = zstd_bounds(data)
        if status or most < expected:  # before memory is allocated for it
            reason = f"a chunk of {expected} bytes is not one Zstandard frame of that size"
            raise CorruptObjectError(self.path, position, reason)
        try:
            return zstandard.ZstdDecompressor().decompress(data, max_output_size=expected)
        except zstandard.ZstdError as error:
            reason = f"a chunk cannot be decompressed: {error}"
            raise CorruptObjectError(self.path, position, reason) from None
