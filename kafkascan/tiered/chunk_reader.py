"""Read a segment whose chunks are compressed, encrypted, or both."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import ClassVar

import zstandard

from kafkascan._core.unpacking import zstd_bounds
from kafkascan.io.sources import SourceLike, borrowed_source
from kafkascan.tiered.chunk_index import ChunkIndex
from kafkascan.tiered.tier_errors import CorruptObjectError

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
            return bytes(source.window(start, stop - start))

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
