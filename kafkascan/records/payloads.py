"""Locate or decompress the record bytes of batches."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from kafkascan._core import legacy_message_sets as _sets, records as _core
from kafkascan._core.unpacking import Arena
from kafkascan.batches.columns import BatchTable, join_tables
from kafkascan.format.errors import STATUS, BatchTableError, record_error
from kafkascan.format.layout import (
    BATCH_HEADER_SIZE,
    LOG_OVERHEAD,
    MESSAGE_KEY_STARTS,
    CompressionType,
)
from kafkascan.io import result_memory
from kafkascan.io.sources import Source, read_into
from kafkascan.io.worker_threads import ChunkSizer
from kafkascan.records.buffers import Buffers

if TYPE_CHECKING:  # it loads the libraries of all codecs
    from kafkascan.records.decompression import Buffer

# Bytes that are copied out of the source together, and rows that are considered for it.
_MAX_COPY_SIZE = 1 << 20
_MAX_COPY_ROWS = 1 << 12
# Bytes of a gap between rows that take less time to copy than a copy of its own: the header of the
# next batch, or other small batches.
_CHEAP_GAP = 1 << 10


def copy_rows(
    source: Source, starts: NDArray[np.int64], sizes: NDArray[np.int64]
) -> Iterator[tuple[int, int, NDArray[np.uint8]]]:
    """
    Copy the bytes of rows out of a source, neighbouring rows together.

    Codec libraries get copies because they would crash on a mapped file that is truncated.

    Yields
    ------
    stop : int
        Number of rows that have been copied so far.
    start : int
        Position of the bytes in the source.
    data : ndarray of uint8
        Valid until the next ones are requested.
    """
    stops = starts + sizes
    first, room = 0, np.empty(0, np.uint8)
    while first < len(starts):
        last = first + _count_near(starts[first:], stops[first:], sizes[first:])
        start = int(starts[first])
        size = int(stops[first:last].max()) - start
        if size > len(room):
            room = result_memory.empty(max(size, _MAX_COPY_SIZE), np.uint8)
        data = room[:size]
        read_into(source, start, data)
        source.require_unshrunk()  # Past a new end of file, its last page reads as zeros.
        yield last, start, data
        first = last


def _count_near(
    starts: NDArray[np.int64], stops: NDArray[np.int64], sizes: NDArray[np.int64]
) -> int:
    """Return how many of the first rows are close enough to be copied together."""
    starts, stops, sizes = (rows[:_MAX_COPY_ROWS] for rows in (starts, stops, sizes))
    covered = stops - starts[0]
    is_near = (starts >= starts[0]) & (covered <= _MAX_COPY_SIZE)
    # At least half of the copy is needed, except for small gaps.
    is_near &= covered <= np.cumsum(2 * sizes + _CHEAP_GAP)
    return max(1, len(is_near) if is_near.all() else int(np.argmin(is_near)))


# Estimated ratio of decompressed to compressed size, for the first allocation of an arena.
_ESTIMATED_RATIO = 4
# A codec that the unpacker does not know: it leaves the row to `_decompressed`.
_NOT_UNPACKED = 255
_LOCATION_DTYPES: dict[str, type[np.generic]] = {
    "buffer_index": np.int32,
    "position": np.int64,
    "size": np.int64,
    "is_wrapper": np.uint8,
    "count": np.int64,
    "codec": np.int8,
}
# Batches that are checked or decompressed at first before signals are handled.
_FIRST_ROWS = 64


@dataclass
class Payloads:
    """
    Locations of the record bytes of batches.

    Attributes
    ----------
    batches : ndarray of BATCH_DTYPE, shape (n,)
    buffers : list of ndarray of uint8
        Buffers 1, 2, …; buffer 0 is the source.
    buffer_index : ndarray of int32, shape (n,)
        The buffer that holds the records of a batch of magic 2, a plain message, or the
        messages of a wrapper.
    position, size : ndarrays of int64, shape (n,)
        Their position in that buffer, and their size in bytes.
    is_wrapper : ndarray of uint8, shape (n,)
        Whether the batch is a compressed message of magic 0 or 1.
    count : ndarray of int64, shape (n,)
        Records of each batch.
    """

    batches: BatchTable
    buffers: list[NDArray[np.uint8]]
    buffer_index: NDArray[np.int32]
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
    Locate the record bytes of batches; decompress them where necessary.

    Parameters
    ----------
    source : Source
    batches : contiguous array of BATCH_DTYPE, shape (n,)
    max_decompressed_size : int
        Bytes that one batch may decompress to.
    first_row : int
        Row of the first batch in the caller's table, for error messages.
    enough : int, optional
        Stop after the batch with which this many bytes have been decompressed.

    Returns
    -------
    Payloads
        Of the first batches, up to the one that reached `enough`; at least one.

    Raises
    ------
    BatchTableError
        If a row does not describe the batch at its position.
    InvalidRecordError, UnsupportedCompressionError
        If records cannot be decompressed, or records_count is more than the bytes can hold.
    """
    _check_rows(source, batches, first_row)
    loaded, codecs = _in_place(batches)
    is_copied = (
        codecs != CompressionType.NONE if source.is_in_memory else np.ones_like(codecs, bool)
    )
    # Kafka does not read the bytes of a batch whose records_count is 0.
    rows = np.flatnonzero(is_copied & (loaded.count != 0))
    if not source.is_in_memory:
        # Buffer 0 has no bytes then, so no other position is valid.
        empty = loaded.count == 0
        loaded.position[empty] = loaded.size[empty] = 0
    arena = Arena(_ESTIMATED_RATIO * int(loaded.size[rows].sum()), _take_piece)
    copies = copy_rows(source, loaded.position[rows], loaded.size[rows])
    done = _unpack(source, loaded, rows, codecs[rows], copies, arena, max_decompressed_size, enough)
    stop = len(batches) if done == len(rows) else int(rows[done])
    loaded = _first(loaded, stop, arena.pieces)
    if loaded.is_wrapper.any():
        _count_wrapped(source, loaded)
    _require_possible_counts(source, loaded)
    return loaded


def join_payloads(parts: Sequence[Payloads]) -> Payloads:
    """Concatenate the payloads of consecutive batches."""
    if len(parts) == 1:
        return parts[0]
    shifts = itertools.accumulate((len(part.buffers) for part in parts), initial=0)
    buffer_index: list[NDArray[np.int32]] = [
        np.where(part.buffer_index > 0, part.buffer_index + shift, 0).astype(np.int32)
        for part, shift in zip(parts, shifts, strict=False)
    ]
    return Payloads(
        batches=join_tables([part.batches for part in parts]),
        buffers=[buffer for part in parts for buffer in part.buffers],
        buffer_index=np.concatenate(buffer_index),
        position=np.concatenate([part.position for part in parts]),
        size=np.concatenate([part.size for part in parts]),
        is_wrapper=np.concatenate([part.is_wrapper for part in parts]),
        count=np.concatenate([part.count for part in parts]),
    )


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
    Decompress rows into an arena, set their locations in `loaded`, return how many are done.

    The unpacker takes runs of rows in the form that Kafka's writers produce, and the values of
    compressed messages; `_decompressed` takes every other row.
    """
    from kafkascan.records.decompression import unpacker

    unpack = unpacker().unpack
    is_wrapper = loaded.is_wrapper[rows].view(np.bool_)
    is_unknown = is_wrapper & (codecs > CompressionType.LZ4)
    usual = codecs.astype(np.uint8)
    usual[is_unknown] = _NOT_UNPACKED
    magic = np.where(is_wrapper, loaded.batches["magic"][rows], 2).astype(np.uint8)
    enough = sys.maxsize if enough is None else enough
    starts, sizes = loaded.position[rows], loaded.size[rows]
    piece = np.empty(len(rows), np.int32)
    position, size = np.empty((2, len(rows)), np.int64)
    row, pace = 0, ChunkSizer(_FIRST_ROWS)
    for last, start, data in copies:
        copied, first = slice(row, last), row
        at, length = starts[copied] - start, sizes[copied].copy()
        _sets.locate_wrapped(data, magic[copied], at, length)
        while row < last and arena.size < enough:
            these = slice(row, min(last, row + pace.next_size()))
            of_data = slice(these.start - first, these.stop - first)
            count = unpack(
                data, at[of_data], length[of_data], usual[these], arena, limit, enough,
                piece[these], position[these], size[these],
            )  # fmt: skip
            row += count
            if count == 0:
                begin = int(starts[row]) - start
                compressed = data.data[begin : begin + int(sizes[row])]
                batch, codec = loaded.batches[rows[row]], int(codecs[row])
                parts = _decompressed(source, batch, codec, compressed, limit)
                piece[row], position[row], size[row] = arena.put(parts)
                row += 1
        if arena.size >= enough:
            break
    rows = rows[:row]
    loaded.buffer_index[rows] = piece[:row] + 1
    loaded.position[rows] = position[:row]
    loaded.size[rows] = size[:row]
    return row


def _take_piece(size: int) -> NDArray[np.uint8]:
    return result_memory.empty(size, np.uint8)


def _check_rows(source: Source, batches: BatchTable, first_row: int) -> None:
    if not source.is_in_memory:
        for number, row in enumerate(batches):
            _check_row_read(source, row, first_row + number)
        return
    first, pace = 0, ChunkSizer(_FIRST_ROWS)
    while first < len(batches):
        stop = first + pace.next_size()
        with source.window(0, source.size) as window:
            status, row, fault = _core.check_rows(window, batches[first:stop])
        if status == STATUS["SOURCE_FAULT"]:
            raise source.fault_error(fault)
        if status != STATUS["OK"]:
            source.require_unshrunk()
            raise BatchTableError(source.path, first_row + first + row, status)
        first = stop


def _check_row_read(source: Source, row: np.void, number: int) -> None:
    position = int(row["position"])
    if not 0 <= position <= source.size:
        raise BatchTableError(source.path, number, STATUS["ROW_OUT_OF_BOUNDS"])
    # No bytes after the batch: a store would fetch them.
    size = max(int(row["batch_length"]) + LOG_OVERHEAD, BATCH_HEADER_SIZE)
    moved = np.array([row])
    moved["position"] = 0
    with source.window(position, size) as window:
        status, _, _ = _core.check_rows(window, moved)
    if status != STATUS["OK"]:
        raise BatchTableError(source.path, number, status)


def _in_place(batches: BatchTable) -> tuple[Payloads, NDArray[np.int8]]:
    """Return the locations of all payloads in the source, compressed ones included, and codecs."""
    columns = result_memory.empty_columns(len(batches), _LOCATION_DTYPES)
    codecs = columns.pop("codec")
    loaded = Payloads(batches=batches, buffers=[], **columns)
    loaded.buffer_index.fill(0)
    _core.locate_payloads(
        batches, loaded.position, loaded.size, loaded.count, loaded.is_wrapper, codecs
    )
    return loaded, codecs


def _first(loaded: Payloads, stop: int, buffers: list[NDArray[np.uint8]]) -> Payloads:
    return Payloads(
        batches=loaded.batches[:stop],
        buffers=buffers,
        buffer_index=loaded.buffer_index[:stop],
        position=loaded.position[:stop],
        size=loaded.size[:stop],
        is_wrapper=loaded.is_wrapper[:stop],
        count=loaded.count[:stop],
    )


def _decompressed(
    source: Source, batch: np.void, codec: int, data: memoryview, limit: int
) -> list[Buffer]:
    """Return the records of a batch, or the messages of a wrapper, decompressed."""
    from kafkascan.records.decompression import CodecError, OutputTooLargeError, decompress

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
    """Return the value of a compressed message; its key has no meaning."""
    at = MESSAGE_KEY_STARTS[int(batch["magic"])]
    for _ in ("key", "value"):
        size = int.from_bytes(message[at : at + 4], "big", signed=True)
        if len(message) - at < 4 or size > len(message) - at - 4:
            raise record_error("BAD_RECORD", source.path, batch, "its key or value does not fit")
        value_at, at = at + 4, at + 4 + max(size, 0)
    if size < 0:
        raise record_error("NULL_WRAPPER", source.path, batch)
    return message[value_at:at]


def _count_wrapped(source: Source, loaded: Payloads) -> None:
    """Count the messages of wrappers."""
    buffers = Buffers(Source(b""), loaded.buffers, loaded.buffer_index)
    status, row = _sets.count_wrapped(
        buffers.addresses, buffers.sizes, loaded.buffer_index, loaded.position, loaded.size,
        loaded.is_wrapper, loaded.count,
    )  # fmt: skip
    if status != STATUS["OK"]:
        raise record_error(status, source.path, loaded.batches[row])


def _require_possible_counts(source: Source, loaded: Payloads) -> None:
    """Refuse counts that the bytes cannot hold, before anything is allocated for the records."""
    negative = np.flatnonzero(loaded.count < 0)
    if len(negative):
        batch = loaded.batches[negative[0]]
        count = int(batch["records_count"])
        raise record_error("BAD_RECORD_COUNT", source.path, batch, f"records_count is {count}")
    smallest = loaded.count * _core.min_record_size
    too_many = np.flatnonzero(smallest > loaded.size)
    too_many = too_many[loaded.batches["magic"][too_many] == 2]
    if len(too_many):
        batch, size = loaded.batches[too_many[0]], int(loaded.size[too_many[0]])
        count = int(batch["records_count"])
        reason = f"{size} bytes cannot hold {count} records"
        raise record_error("RECORDS_MISSING", source.path, batch, reason)
