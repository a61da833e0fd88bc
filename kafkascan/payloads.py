"""The bytes that records lie in: found in the source, or decompressed from it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kafkascan._core import records as _core
from kafkascan._core.unpacking import Arena
from kafkascan.batch_columns import BatchTable, compression_type, size_in_bytes
from kafkascan.codecs import Buffer, CodecError, OutputTooLargeError, decompress, unpacker
from kafkascan.copies import PiecePool, copy_rows
from kafkascan.errors import STATUS, BatchTableError, record_error
from kafkascan.layout import (
    BATCH_HEADER_SIZE,
    MESSAGE_KEY_STARTS,
    CompressionType,
)
from kafkascan.sources import Source

# An arena is expected to hold this many times the bytes that are compressed.
_USUAL_RATIO = 4
# What is never unpacked many at once: messages of magic 0 and 1, and unknown codecs.
_UNUSUAL = 255


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
    pool: PiecePool | None = None,
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
    pool : PiecePool, optional
        Where memory is taken from.

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
    codecs = compression_type(batches)
    elsewhere = (
        codecs != CompressionType.NONE if source.is_in_memory else np.ones_like(codecs, bool)
    )
    # Of a batch that says it has no records, Kafka looks at no byte.
    rows = np.flatnonzero(elsewhere & (loaded.count != 0))
    if not source.is_in_memory:
        # Nor are there any bytes at hand that its place could be one of.
        empty = loaded.count == 0
        loaded.position[empty] = loaded.size[empty] = 0
    pool = pool or PiecePool()
    arena = Arena(_USUAL_RATIO * int(loaded.size[rows].sum()), pool.take)
    copies = copy_rows(source, loaded.position[rows], loaded.size[rows], pool)
    done = _unpack(source, loaded, rows, codecs[rows], copies, arena, max_decompressed_size, enough)
    stop = len(batches) if done == len(rows) else int(rows[done])
    for row in np.flatnonzero(loaded.is_wrapper[:stop]).tolist():
        loaded.count[row] = _count_entries(source, loaded, row, arena)
    loaded = _first(loaded, stop)
    loaded.pieces = arena.pieces
    _require_possible_counts(source, loaded)
    return loaded


def _unpack(
    source: Source,
    loaded: Payloads,
    rows: NDArray[np.int64],
    codecs: NDArray[np.int8],
    copies: Iterator[tuple[int, int, NDArray[np.uint8]]],
    arena: Arena,
    limit: int,
    enough: int | None,
) -> int:
    """
    Put the bytes of some rows into an arena, decompressed, and enter where they are.

    Those that look as Kafka's writers leave them are taken many at once; `_decompressed` takes
    the others. Returns how many of them it were before there was enough.
    """
    unpack = unpacker().unpack
    usual = np.where(loaded.batches["magic"][rows] == 2, codecs, _UNUSUAL).astype(np.uint8)
    enough = sys.maxsize if enough is None else enough
    starts, sizes = loaded.position[rows], loaded.size[rows]
    buffer = np.empty(len(rows), np.int32)
    position, size = np.empty((2, len(rows)), np.int64)
    row = 0
    for last, start, data in copies:
        while row < last and arena.size < enough:
            these = slice(row, last)
            count = unpack(
                data, starts[these] - start, sizes[these], usual[these], arena, limit, enough,
                buffer[these], position[these], size[these],
            )  # fmt: skip
            row += count
            if count == 0:
                at = int(starts[row]) - start
                one = data.data[at : at + int(sizes[row])]
                batch, codec = loaded.batches[rows[row]], int(codecs[row])
                parts = _decompressed(source, batch, codec, one, limit)
                buffer[row], position[row], size[row] = arena.put(parts)
                row += 1
        if arena.size >= enough:
            break
    rows = rows[:row]
    loaded.buffer[rows] = buffer[:row] + 1
    loaded.position[rows] = position[:row]
    loaded.size[rows] = size[:row]
    return row


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


def _decompressed(
    source: Source, batch: np.void, codec: int, data: memoryview, limit: int
) -> list[Buffer]:
    """Return the records of a batch, or the messages of a wrapper."""
    magic = int(batch["magic"])
    if codec == CompressionType.NONE:
        return [data]
    if magic < 2:
        data = _wrapper_value(source, batch, data)
    if codec > CompressionType.ZSTD or (magic < 2 and codec == CompressionType.ZSTD):
        raise record_error("UNSUPPORTED_COMPRESSION", source.path, batch, f"codec {codec}")
    try:
        return decompress(codec, magic, data, limit)
    except OutputTooLargeError as error:
        raise record_error("OUTPUT_TOO_LARGE", source.path, batch, str(error)) from error
    except CodecError as error:
        raise record_error("BAD_COMPRESSED_DATA", source.path, batch, str(error)) from error


def _wrapper_value(source: Source, batch: np.void, message: memoryview) -> memoryview:
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


def _count_entries(source: Source, loaded: Payloads, row: int, arena: Arena) -> int:
    start, size = int(loaded.position[row]), int(loaded.size[row])
    piece = arena.pieces[int(loaded.buffer[row]) - 1]
    status, count = _core.count_entries(piece[start : start + size])
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
