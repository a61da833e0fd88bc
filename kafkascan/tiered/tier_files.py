"""The files of a remote segment, each as a broker has it on disk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from kafkascan.io.folders import require_side_file_size
from kafkascan.io.sources import SourceLike, borrowed_source, read_bytes
from kafkascan.io.stores.stored_objects import ObjectInfo
from kafkascan.tiered.chunk_reader import ChunkCipher, ChunkedObject
from kafkascan.tiered.segment_manifest import SegmentManifest
from kafkascan.tiered.tier_errors import CorruptObjectError
from kafkascan.tiered.tier_store import TierStore


class TierFile(Protocol):
    """A file of a segment."""

    @property
    def size(self) -> int:
        """Size in bytes, as a broker has it on disk."""

    def source(self) -> SourceLike:
        """Return the input for a `Source` of its bytes."""

    def read(self) -> bytes:
        """
        Return the bytes of a side file.

        Raises
        ------
        SideFileTooLargeError
            If it has more than 64 MiB.
        CorruptObjectError
        OSError
        """


def read_small(file: TierFile, path: str) -> bytes:
    """
    Return the bytes of a file by its source.

    Raises
    ------
    SideFileTooLargeError
        If it has more than 64 MiB; the error names the path.
    """
    require_side_file_size(file.size, path)
    with borrowed_source(file.source()) as source:
        data = read_bytes(source, 0, file.size)
        source.require_unshrunk()  # after its new end, a file that shrank contains zeros
        return data


@dataclass(frozen=True)
class PlainFile:
    """An object that is a file of the broker, byte for byte."""

    store: TierStore
    item: ObjectInfo

    @property
    def size(self) -> int:
        """Size of the object, in bytes."""
        return self.item.size

    def source(self) -> SourceLike:
        """Return the input for a `Source` of the object."""
        return self.store.open(self.item.key)

    def read(self) -> bytes:
        """Return the bytes of the object."""
        return self.store.read(self.item.key)


@dataclass(frozen=True)
class SyntheticFile:
    """A file that no object contains, such as ``partition.metadata``."""

    content: bytes

    @property
    def size(self) -> int:
        """Size of the content, in bytes."""
        return len(self.content)

    def source(self) -> SourceLike:
        """Return the content."""
        return self.content

    def read(self) -> bytes:
        """Return the content."""
        return self.content


@dataclass(frozen=True)
class ChunkedFile:
    """The log of a segment whose chunks are compressed or encrypted."""

    stored: PlainFile
    manifest: SegmentManifest
    cipher: ChunkCipher | None

    @property
    def size(self) -> int:
        """Size of the segment, in bytes."""
        return self.manifest.chunks.file_size

    def source(self) -> SourceLike:
        """Return a reader, which decrypts and decompresses chunks when they are read."""
        path = str(self.stored.store.path / self.stored.item.key)
        is_compressed = self.manifest.is_compressed
        chunks = self.manifest.chunks
        return ChunkedObject(path, self.stored.source(), chunks, is_compressed, self.cipher)

    def read(self) -> bytes:
        """Return the bytes of the segment, if it is small."""
        return read_small(self, str(self.stored.store.path / self.stored.item.key))


@dataclass(frozen=True)
class IndexPart:
    """A side file that is a part of an ``.indexes`` object."""

    stored: PlainFile
    position: int
    stored_size: int
    cipher: ChunkCipher | None

    @property
    def size(self) -> int:
        """Size of the side file, in bytes."""
        overhead = 0 if self.cipher is None else self.cipher.OVERHEAD
        return max(0, self.stored_size - overhead)

    def source(self) -> SourceLike:
        """Return its bytes."""
        return self.read()

    def read(self) -> bytes:
        """Return its bytes, decrypted."""
        if self.stored_size == 0:
            return b""  # also if the segment is encrypted
        path = str(self.stored.store.path / self.stored.item.key)
        require_side_file_size(self.stored_size, path)
        with borrowed_source(self.stored.source()) as source:
            if self.position + self.stored_size > source.size:
                reason = f"the object has {source.size} bytes; {self.stored_size} are missing here"
                raise CorruptObjectError(path, self.position, reason)
            data = read_bytes(source, self.position, self.stored_size)
            source.require_unshrunk()
        return data if self.cipher is None else self.cipher.decrypt(data, path, self.position)
