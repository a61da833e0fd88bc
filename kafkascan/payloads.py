"""The bytes that records lie in: found in the source, or decompressed from it."""

from __future__ import annotations

from collections.abc import Iterator
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

# Decompressed bytes are put into pieces of this size: large enough for large pages of the
# system, small enough for the allocator to hand out the same memory again.
_PIECE = 1 << 23
# Little is put into a piece of four times its size, for what compresses well.
_USUAL_RATIO = 4
_SMALLEST_PIECE = 1 << 12
_MOST_POOLED = 8
# Compressed bytes are copied out of the source this many at once.
_COPIED_AT_ONCE = 1 << 20
_LOOKED_AT = 1 << 12


class PiecePool:
    """
    Memory of tables that are gone, for those that come.

    Fresh memory costs the system as much as decompressing into it does.
    """

    def __init__(self) -> None:
        self._pieces: list[NDArray[np.uint8]] = []

    def take(self, size: int) -> NDArray[np.uint8]:
        """Return a piece of at least a size."""
        try:
            piece = self._pieces.pop()
        except IndexError:
            return np.empty(size, np.uint8)
        return piece if len(piece) >= size else np.empty(size, np.uint8)

    def give_back(self, pieces: list[NDArray[np.uint8]]) -> None:
        """Keep some pieces that nobody looks at any more."""
        room = _MOST_POOLED - len(self._pieces)
        self._pieces += [piece for piece in pieces if len(piece) == _PIECE][: max(0, room)]


class _Arena:
    """Room for bytes that are not in the source, of which about so many are expected."""

    def __init__(self, expected: int, pool: PiecePool) -> None:
        self._expected = expected
        self._pool = pool
        self.pieces: list[NDArray[np.uint8]] = []
        self.size = 0
        self._used = self._room = 0
        self._target = memoryview(b"")

    def put(self, parts: list[Buffer]) -> tuple[int, int, int]:
        """Copy bytes; returns the piece, the position in it, and the size."""
        start, size = self._used, sum(map(len, parts))
        if size > self._room - start or not self.pieces:
            self._add_piece(size)
            start = 0
        at = start
        for part in parts:
            self._target[at : at + len(part)] = part
            at += len(part)
        self._used = at
        self.size += size
        return len(self.pieces) - 1, start, size

    def _add_piece(self, size: int) -> None:
        usual = min(_PIECE, max(_SMALLEST_PIECE, self._expected, self.size))
        self.pieces.append(self._pool.take(max(size, usual)))
        self._target = self.pieces[-1].data
        self._room = len(self._target)


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
    arena = _Arena(_USUAL_RATIO * int(loaded.size[rows].sum()), pool or PiecePool())
    stop = len(batches)
    places = []
    magics = batches["magic"][rows].tolist()
    copies = zip(_copies(source, loaded, rows), codecs[rows].tolist(), magics, strict=True)
    for (row, data), codec, magic in copies:
        if enough is not None and arena.size >= enough:
            stop = row
            break
        parts = _decompressed(source, batches, row, magic, codec, data, max_decompressed_size)
        places.append(arena.put(parts))
    _note_places(loaded, rows[: len(places)], places)
    for row in np.flatnonzero(loaded.is_wrapper[:stop]).tolist():
        loaded.count[row] = _count_entries(source, loaded, row, arena)
    loaded = _first(loaded, stop)
    loaded.pieces = arena.pieces
    _require_possible_counts(source, loaded)
    return loaded


def _note_places(
    loaded: Payloads, rows: NDArray[np.int64], places: list[tuple[int, int, int]]
) -> None:
    """Enter where the bytes of some rows were put: piece, position and size."""
    if places:
        pieces, positions, sizes = zip(*places, strict=True)
        loaded.buffer[rows] = np.array(pieces) + 1
        loaded.position[rows] = positions
        loaded.size[rows] = sizes


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


def _copies(
    source: Source, loaded: Payloads, rows: NDArray[np.int64]
) -> Iterator[tuple[int, memoryview]]:
    """
    Yield the bytes of some rows, copied: libraries know nothing of maps whose files shrink.

    Neighbours are copied at once.
    """
    starts, sizes = loaded.position[rows], loaded.size[rows]
    stops = starts + sizes
    first = 0
    while first < len(rows):
        last = first + _count_near(starts[first:], stops[first:], sizes[first:])
        start = int(starts[first])
        data = memoryview(read_bytes(source, start, int(stops[first:last].max()) - start))
        source.require_unshrunk()  # what lies behind a new end reads as zeros, up to its page
        for row, at, size in zip(
            rows[first:last].tolist(),
            (starts[first:last] - start).tolist(),
            sizes[first:last].tolist(),
            strict=True,
        ):
            yield row, data[at : at + size]
        first = last


def _count_near(
    starts: NDArray[np.int64], stops: NDArray[np.int64], sizes: NDArray[np.int64]
) -> int:
    """Return how many of the first lie so near to each other that they are copied at once."""
    starts, stops, sizes = starts[:_LOOKED_AT], stops[:_LOOKED_AT], sizes[:_LOOKED_AT]
    covered = stops - starts[0]
    is_near = (starts >= starts[0]) & (covered <= _COPIED_AT_ONCE)
    is_near &= covered <= 2 * np.cumsum(sizes)  # most of it is wanted
    return max(1, len(is_near) if is_near.all() else int(np.argmin(is_near)))


def _decompressed(
    source: Source,
    batches: BatchTable,
    row: int,
    magic: int,
    codec: int,
    data: memoryview,
    limit: int,
) -> list[Buffer]:
    """Return the records of a batch, or the messages of a wrapper."""
    if codec == CompressionType.NONE:
        return [data]
    if magic < 2:
        data = _wrapper_value(source, batches[row], data)
    if codec > CompressionType.ZSTD or (magic < 2 and codec == CompressionType.ZSTD):
        raise record_error("UNSUPPORTED_COMPRESSION", source.path, batches[row], f"codec {codec}")
    try:
        return decompress(codec, magic, data, limit)
    except OutputTooLargeError as error:
        raise record_error("OUTPUT_TOO_LARGE", source.path, batches[row], str(error)) from error
    except CodecError as error:
        raise record_error("BAD_COMPRESSED_DATA", source.path, batches[row], str(error)) from error


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


def _count_entries(source: Source, loaded: Payloads, row: int, arena: _Arena) -> int:
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
