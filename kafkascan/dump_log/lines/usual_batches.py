"""Lines of batches of magic 2 and their records, by one compiled loop."""

from __future__ import annotations

from collections.abc import Generator

import numpy as np
from numpy.typing import NDArray

from kafkascan._core.dumped_batches import BatchPrinter
from kafkascan.batches.columns import BatchTable, compression_type, size_in_bytes
from kafkascan.batches.verify import verify_rows
from kafkascan.dump_log.dump_options import DumpOptions
from kafkascan.dump_log.lines.item_decoders import PRINT_TEXT
from kafkascan.dump_log.lines.line_output import PIECE_SIZE, Offsets, Piece, PieceMemory
from kafkascan.format.errors import STATUS, BatchTableError, CorruptBatchError
from kafkascan.format.layout import BATCH_HEADER_SIZE, CompressionType
from kafkascan.io.sources import Source
from kafkascan.records.buffers import Buffers

_MAGIC_V2 = 2
# Compressed bytes of batches that are decompressed, and printed while they are in the CPU's caches.
_COMPRESSED_AT_ONCE, _DECOMPRESSED_AT_ONCE = 1 << 20, 1 << 22


def are_usual(batches: BatchTable, options: DumpOptions) -> NDArray[np.bool_]:
    """Return which batches the loop may print; it leaves some of them to others all the same."""
    is_text = options.decode is None and options.key == options.value == PRINT_TEXT
    if options.prints_data and not is_text:
        return np.zeros(len(batches), np.bool_)
    is_usual: NDArray[np.bool_] = batches["magic"] == _MAGIC_V2
    return is_usual


def usual_pieces(
    source: Source, batches: BatchTable, options: DumpOptions, memory: PieceMemory
) -> Generator[Piece, None, int]:
    """
    Yield the lines of the first batches.

    Parameters
    ----------
    source : Source
    batches : contiguous array of BATCH_DTYPE
        Such as `are_usual` accepts.
    options : DumpOptions
    memory : PieceMemory

    Yields
    ------
    Piece

    Returns
    -------
    int
        Batches that are printed; the next one is left to others.

    Raises
    ------
    CorruptBatchError
        If a record cannot be read. The lines before it were yielded.
    """
    done = 0
    while done < len(batches):
        rows, printer = _begin(source, batches[done:], options)
        if printer is None:
            return done
        status = yield from _filled(source, printer, memory)
        if status != STATUS["OK"]:
            raise _error_of(source, rows[printer.row :][:1])
        done += printer.row
        if printer.row < len(rows):
            return done
    return done


def _begin(
    source: Source, batches: BatchTable, options: DumpOptions
) -> tuple[BatchTable, BatchPrinter | None]:
    """Return a printer of the first batches, and these; None if the first one is damaged."""
    is_compressed = compression_type(batches) != CompressionType.NONE
    if source.is_in_memory and not is_compressed[0]:
        rows = batches[: int(np.argmax(is_compressed)) or len(batches)]
        start = rows["position"] + BATCH_HEADER_SIZE
        size = size_in_bytes(rows).astype(np.int64) - BATCH_HEADER_SIZE
        buffers = Buffers(source, [], np.zeros(len(rows), np.int32))
        return rows, _printer(source, rows, buffers, start, size, options)
    from kafkascan.records.decompression import DEFAULT_MAX_DECOMPRESSED_SIZE
    from kafkascan.records.payloads import load_payloads  # with all codecs

    if source.is_in_memory and not is_compressed.all():
        batches = batches[: int(np.argmin(is_compressed))]
    stop = int(np.searchsorted(np.cumsum(size_in_bytes(batches)), _COMPRESSED_AT_ONCE)) + 1
    for some in (batches[:stop], batches[:1]):
        try:
            loaded = load_payloads(
                source, some, DEFAULT_MAX_DECOMPRESSED_SIZE, enough=_DECOMPRESSED_AT_ONCE
            )
        except CorruptBatchError:
            continue
        rows = loaded.batches
        buffers = Buffers(source, loaded.buffers, loaded.buffer_index)
        return rows, _printer(source, rows, buffers, loaded.position, loaded.size, options)
    return batches[:1], None


def _printer(
    source: Source,
    rows: BatchTable,
    buffers: Buffers,
    position: NDArray[np.int64],
    size: NDArray[np.int64],
    options: DumpOptions,
) -> BatchPrinter:
    source.require_unshrunk()
    valid = verify_rows(source, rows).view(np.uint8)
    return BatchPrinter(
        rows, valid, buffers.addresses, buffers.sizes, buffers.of_batch, position, size, buffers,
        prints_metadata=not options.skips_metadata, prints_data=options.prints_data,
    )  # fmt: skip


def _filled(
    source: Source, printer: BatchPrinter, memory: PieceMemory
) -> Generator[Piece, None, int]:
    """Yield what a printer writes; return its last status."""
    size = PIECE_SIZE
    while True:
        out = memory.take(size)
        status, fault = printer.fill(out)
        if status == STATUS["SOURCE_FAULT"]:
            raise source.fault_error(fault)
        if printer.end:
            found = printer.offsets()
            yield Piece(out[: printer.end], None if found is None else Offsets(*found))
        if status != STATUS["OUTPUT_FULL"]:
            return int(status)
        size = PIECE_SIZE if printer.end else max(PIECE_SIZE, printer.needed)


def _error_of(source: Source, batch: BatchTable) -> Exception:
    """Return the error of a batch whose records cannot be read."""
    from kafkascan.logs.reading import iter_records

    try:
        for _ in iter_records(source, batch, control="include"):
            pass
    except CorruptBatchError as error:
        return error
    # The file has changed since.
    return BatchTableError(source.path, 0, STATUS["ROW_MISMATCH"])
