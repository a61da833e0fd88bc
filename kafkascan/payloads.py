"""The bytes that records lie in: found in the source, or decompressed from it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kafkascan._core import records as _core
from kafkascan.batch_columns import BatchTable, compression_type, size_in_bytes
from kafkascan.codecs import Buffer, CodecError, OutputTooLargeError, decompress
from kafkascan.errors import STATUS, BatchTableError, record_error
from kafkascan.layout import (
    BATCH_HEADER_SIZE,
    MESSAGE_KEY_STARTS,
    CompressionType,
)
from kafkascan.sources import Source
from kafkascan.walks import read_bytes

# Decompressed bytes are put into pieces of this size: large enough for the system to
# hand out large pages.
_PIECE = 1 << 25
_FIRST_PIECE = 1 << 16


class _Arena:
    """Room for bytes that are not in the source."""

    def __init__(self) -> None:
        self.pieces: list[NDArray[np.uint8]] = []
        self.size = 0
        self._used = 0

    def put(self, parts: list[Buffer]) -> tuple[int, int, int]:
        """Copy bytes; returns the piece, the position in it, and the size."""
        size = sum(map(len, parts))
        if not self.pieces or size > len(self.pieces[-1]) - self._used:
            # The first pieces are small: most calls read little.
            room = max(size, min(_PIECE, max(_FIRST_PIECE, 4 * self.size)))
            self.pieces.append(np.empty(room, np.uint8))
            self._used = 0
        start = at = self._used
        target = self.pieces[-1].data
        for part in parts:
            target[at : at + len(part)] = part
            at += len(part)
        self._used = at
        self.size += size
        return len(self.pieces) - 1, start, size


@dataclass
class Payloads:
    """
    Where the records of batches lie.

    Attributes
    ----------
    batches : ndarray of BATCH_DTYPE, shape (n,)
    pieces : list of ndarray of uint8
        Buffers 1, 2, …; buffer 0 is the source.
    buffer, position, size : ndarrays, shape (n,)
        Of the records of magic 2, of a plain message, or of a wrapper's messages.
    is_wrapper : ndarray of uint8, shape (n,)
        Whether the batch is a compressed message of magic 0 or 1.
    count : ndarray of int64, shape (n,)
        Records of each batch.
    """

    batches: BatchTable
    pieces: list[NDArray[np.uint8]]
    buffer: NDArray[np.int32]
    position: NDArray[np.int64]
    size: NDArray[np.int64]
    is_wrapper: NDArray[np.uint8]
    count: NDArray[np.int64]


def load_payloads(
    source: Source,
    batches: BatchTable,
    max_decompressed_size: int,
    *,
    first_row: int = 0,
    enough: int | None = None,
) -> Payloads:
    """
    Find or decompress the records of batches.

    Parameters
    ----------
    source : Source
    batches : contiguous array of BATCH_DTYPE, shape (n,)
    max_decompressed_size : int
        Bytes that one batch may decompress to.
    first_row : int
        Number of the first of them in the caller's table, for errors.
    enough : int, optional
        Stop early, behind a batch, once this many bytes were decompressed.

    Returns
    -------
    Payloads
        Of the first batches, as far as they were loaded; at least one of them.

    Raises
    ------
    BatchTableError
        If a row does not describe the batch at its position.
    InvalidRecordError, UnsupportedCompressionError
        If records cannot be decompressed, or there cannot be as many as the batch says.
    """
    _check_rows(source, batches, first_row)
    loaded = _in_place(batches)
    arena = _Arena()
    elsewhere = loaded.is_wrapper.astype(bool) | (compression_type(batches) != 0)
    if not source.is_in_memory:
        elsewhere[:] = True
    stop = len(batches)
    for row in np.flatnonzero(elsewhere).tolist():
        if enough is not None and arena.size >= enough:
            stop = row
            break
        parts = _load(source, loaded, row, max_decompressed_size)
        piece, loaded.position[row], loaded.size[row] = arena.put(parts)
        loaded.buffer[row] = piece + 1
        if loaded.is_wrapper[row]:
            loaded.count[row] = _count_entries(source, loaded, row, arena)
    loaded = _first(loaded, stop)
    loaded.pieces = arena.pieces
    _require_possible_counts(source, loaded)
    return loaded


def _check_rows(source: Source, batches: BatchTable, first_row: int) -> None:
    if not source.is_in_memory:
        for number, row in enumerate(batches):
            _check_row_read(source, row, first_row + number)
        return
    with source.window(0, source.size) as window:
        status, row, fault = _core.check_rows(window, batches)
    if status == STATUS["SOURCE_FAULT"]:
        raise source.fault_error(fault)
    if status != STATUS["OK"]:
        source.require_unshrunk()
        raise BatchTableError(source.path, first_row + row, status)


def _check_row_read(source: Source, row: np.void, number: int) -> None:
    position = int(row["position"])
    if not 0 <= position <= source.size:
        raise BatchTableError(source.path, number, STATUS["ROW_OUT_OF_BOUNDS"])
    size = int(row["batch_length"]) + BATCH_HEADER_SIZE
    moved = np.array([row])
    moved["position"] = 0
    with source.window(position, max(0, size)) as window:
        status, _, _ = _core.check_rows(window, moved)
    if status != STATUS["OK"]:
        raise BatchTableError(source.path, number, status)


def _in_place(batches: BatchTable) -> Payloads:
    """Describe every batch as if it were not compressed."""
    is_legacy = batches["magic"] < 2
    codecs = compression_type(batches)
    header = np.where(is_legacy, 0, BATCH_HEADER_SIZE)
    return Payloads(
        batches=batches,
        pieces=[],
        buffer=np.zeros(len(batches), np.int32),
        position=batches["position"] + header,
        size=size_in_bytes(batches) - header,
        is_wrapper=(is_legacy & (codecs != CompressionType.NONE)).astype(np.uint8),
        count=np.where(is_legacy, 1, batches["records_count"]).astype(np.int64),
    )


def _first(loaded: Payloads, stop: int) -> Payloads:
    return Payloads(
        batches=loaded.batches[:stop],
        pieces=loaded.pieces,
        buffer=loaded.buffer[:stop],
        position=loaded.position[:stop],
        size=loaded.size[:stop],
        is_wrapper=loaded.is_wrapper[:stop],
        count=loaded.count[:stop],
    )


def _load(source: Source, loaded: Payloads, row: int, limit: int) -> list[Buffer]:
    """Return the bytes of a batch that lie in the source compressed, or not in memory."""
    batch = loaded.batches[row]
    # A copy: libraries know nothing of maps whose files shrink.
    data = read_bytes(source, int(loaded.position[row]), int(loaded.size[row]))
    codec = int(batch["attributes"]) & 7
    if codec == CompressionType.NONE:
        return [data]
    magic = int(batch["magic"])
    if magic < 2:
        data = _wrapper_value(source, batch, data)
    elif batch["records_count"] == 0:
        return []  # Kafka looks at no byte of it
    if codec > CompressionType.ZSTD or (magic < 2 and codec == CompressionType.ZSTD):
        raise record_error("UNSUPPORTED_COMPRESSION", source.path, batch, f"codec {codec}")
    try:
        return decompress(codec, magic, data, limit)
    except OutputTooLargeError as error:
        raise record_error("OUTPUT_TOO_LARGE", source.path, batch, str(error)) from error
    except CodecError as error:
        raise record_error("BAD_COMPRESSED_DATA", source.path, batch, str(error)) from error


def _wrapper_value(source: Source, batch: np.void, message: bytes) -> bytes:
    """Return the value of a compressed message; its key is of no meaning."""
    at = MESSAGE_KEY_STARTS[int(batch["magic"])]
    for _ in ("key", "value"):
        size = int.from_bytes(message[at : at + 4], "big", signed=True)
        if len(message) - at < 4 or size > len(message) - at - 4:
            raise record_error("BAD_RECORD", source.path, batch, "its key or value does not fit")
        value_at, at = at + 4, at + 4 + max(size, 0)
    if size < 0:
        raise record_error("NULL_WRAPPER", source.path, batch)
    return message[value_at:at]


def _count_entries(source: Source, loaded: Payloads, row: int, arena: _Arena) -> int:
    start, size = int(loaded.position[row]), int(loaded.size[row])
    status, count = _core.count_entries(arena.pieces[-1][start : start + size])
    if status != STATUS["OK"]:
        raise record_error(status, source.path, loaded.batches[row])
    return count


def _require_possible_counts(source: Source, loaded: Payloads) -> None:
    """Nothing is allocated for records that there is no room for."""
    negative = np.flatnonzero(loaded.count < 0)
    if len(negative):
        batch = loaded.batches[negative[0]]
        count = int(batch["records_count"])
        raise record_error("BAD_RECORD_COUNT", source.path, batch, f"records_count is {count}")
    is_v2 = loaded.batches["magic"] == 2
    smallest = loaded.count * _core.min_record_size
    too_many = np.flatnonzero(is_v2 & (smallest > loaded.size))
    if len(too_many):
        batch, size = loaded.batches[too_many[0]], int(loaded.size[too_many[0]])
        count = int(batch["records_count"])
        reason = f"{size} bytes cannot hold {count} records"
        raise record_error("RECORDS_MISSING", source.path, batch, reason)
