"""The manifest of a segment in the layout of Aiven's plugin (``SegmentManifestV1``)."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from kafkascan.tiered.chunk_reader import (
    ChunkIndex,
    ChunkIndexError,
    decode_chunk_sizes,
    fixed_chunks,
    variable_chunks,
)
from kafkascan.tiered.tier_errors import CorruptObjectError

Value = TypeVar("Value")
Json = object

INDEX_FIELDS = {
    "index": "offset",
    "timeindex": "timestamp",
    "snapshot": "producerSnapshot",
    "leader-epoch-checkpoint": "leaderEpoch",
    "txnindex": "transaction",
}
"""The name of each side file in ``segmentIndexes``."""
_OPTIONAL = "txnindex"


@dataclass(frozen=True)
class Encryption:
    """
    How the parts of a segment are encrypted: AES-256-GCM.

    Attributes
    ----------
    data_key : str
        The id of a key pair, a colon, and the key of the segment, encrypted with its public key.
    aad : bytes
        Additional data that each part authenticates.
    """

    data_key: str
    aad: bytes


@dataclass(frozen=True)
class RemoteSegmentId:
    """
    What the manifest says of the segment itself, ``remoteLogSegmentMetadata``.

    Attributes
    ----------
    start_offset, end_offset : int
        The first and the last offset.
    max_timestamp : int
        In milliseconds.
    broker_id : int
    event_timestamp : int
        When the upload began, in milliseconds.
    leader_epochs : tuple of (int, int)
        Epochs, and the first offset of each.
    """

    start_offset: int
    end_offset: int
    max_timestamp: int
    broker_id: int
    event_timestamp: int
    leader_epochs: tuple[tuple[int, int], ...]


@dataclass(frozen=True, eq=False)
class SegmentManifest:
    """
    The manifest of a segment.

    Attributes
    ----------
    chunks : ChunkIndex
    indexes : dict of str to (int, int)
        Position and size of each side file in the ``.indexes`` object, by its kind.
    is_compressed : bool
    encryption : Encryption or None
    segment : RemoteSegmentId or None
        None if the manifest does not have it; the plugin never reads it.
    """

    chunks: ChunkIndex
    indexes: dict[str, tuple[int, int]]
    is_compressed: bool
    encryption: Encryption | None
    segment: RemoteSegmentId | None

    @property
    def is_plain(self) -> bool:
        """Whether the object is the segment, byte for byte."""
        return not self.is_compressed and self.encryption is None


def parse_manifest(data: bytes, path: str) -> SegmentManifest:
    """
    Parse a manifest.

    Parameters
    ----------
    data : bytes
    path : str
        Its name in error messages.

    Raises
    ------
    CorruptObjectError
        If a field is missing, is of another type, or contradicts the others.
    """
    try:
        top = _object(json.loads(data), "the manifest")
        version = top.get("version")
        if version != "1":
            raise _FieldError(f"version is {version!r}, not '1'")
        return SegmentManifest(
            chunks=_chunks(_field(top, "chunkIndex", _object)),
            indexes=_indexes(_field(top, "segmentIndexes", _object)),
            is_compressed=_field(top, "compression", _boolean),
            encryption=_encryption(top.get("encryption")),
            segment=_segment(top.get("remoteLogSegmentMetadata")),
        )
    except json.JSONDecodeError as error:
        raise CorruptObjectError(path, error.pos, f"not JSON: {error.msg}") from None
    except UnicodeDecodeError as error:
        raise CorruptObjectError(path, error.start, "not UTF-8") from None
    except (RecursionError, ValueError) as error:
        # ValueError: a field, or a number with thousands of digits.
        raise CorruptObjectError(path, 0, str(error)) from None


class _FieldError(ValueError):
    pass


def _field(values: Mapping[str, Json], name: str, read: Callable[[Json, str], Value]) -> Value:
    if name not in values:
        raise _FieldError(f"{name} is missing")
    return read(values[name], name)


def _object(value: Json, name: str) -> dict[str, Json]:
    if not isinstance(value, dict):
        raise _FieldError(f"{name} is not an object")
    return value


def _number(value: Json, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not -(1 << 63) <= value < 1 << 63:
        raise _FieldError(f"{name} is not a 64-bit number")
    return value


def _boolean(value: Json, name: str) -> bool:
    if not isinstance(value, bool):
        raise _FieldError(f"{name} is neither true nor false")
    return value


def _text(value: Json, name: str) -> str:
    if not isinstance(value, str):
        raise _FieldError(f"{name} is not a string")
    return value


def _bytes(value: Json, name: str) -> bytes:
    try:
        return base64.b64decode(_text(value, name), validate=True)
    except binascii.Error as error:
        raise _FieldError(f"{name} is not base64: {error}") from None


def _chunks(values: Mapping[str, Json]) -> ChunkIndex:
    kind = _field(values, "type", _text)
    chunk_size = _field(values, "originalChunkSize", _number)
    file_size = _field(values, "originalFileSize", _number)
    if kind == "fixed":
        stored = _field(values, "transformedChunkSize", _number)
        last_stored = _field(values, "finalTransformedChunkSize", _number)
        return fixed_chunks(chunk_size, file_size, stored, last_stored)
    if kind == "variable":
        sizes = decode_chunk_sizes(_field(values, "transformedChunks", _bytes))
        return variable_chunks(chunk_size, file_size, sizes)
    raise ChunkIndexError(f"the type of chunkIndex is {kind!r}")


def _indexes(values: Mapping[str, Json]) -> dict[str, tuple[int, int]]:
    found = {}
    for kind, name in INDEX_FIELDS.items():
        if kind == _OPTIONAL and values.get(name) is None:
            continue
        entry = _field(values, name, _object)
        position, size = _field(entry, "position", _number), _field(entry, "size", _number)
        if not (0 <= position < 1 << 31 and 0 <= size < 1 << 31):
            raise _FieldError(f"{name} has position {position} and size {size}")
        found[kind] = position, size
    return found


def _encryption(value: Json) -> Encryption | None:
    if value is None:
        return None
    values = _object(value, "encryption")
    return Encryption(_field(values, "dataKey", _text), _field(values, "aad", _bytes))


def _segment(value: Json) -> RemoteSegmentId | None:
    if value is None:
        return None
    values = _object(value, "remoteLogSegmentMetadata")
    epochs = _field(values, "segmentLeaderEpochs", _object)
    return RemoteSegmentId(
        start_offset=_field(values, "startOffset", _number),
        end_offset=_field(values, "endOffset", _number),
        max_timestamp=_field(values, "maxTimestampMs", _number),
        broker_id=_field(values, "brokerId", _number),
        event_timestamp=_field(values, "eventTimestampMs", _number),
        leader_epochs=tuple(sorted((_epoch(one), _number(at, one)) for one, at in epochs.items())),
    )


def _epoch(key: str) -> int:
    return _number(int(key), "a key of segmentLeaderEpochs")
