"""Decode the records of batches, of every format and codec, into columns.

`kafkascan.read_records` and `kafkascan.iter_records` are the public functions over this module.
Code that needs batch headers only does not import it.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kafkascan._core import plain_batches as _plain, records as _core
from kafkascan.batches.columns import BatchTable, require_batch_table, size_in_bytes
from kafkascan.batches.scattered_reads import request_rows, requested_parts
from kafkascan.batches.verify import verify_crcs
from kafkascan.format.errors import STATUS, CorruptBatchError, record_error
from kafkascan.format.layout import BATCH_DTYPE, BATCH_HEADER_SIZE, COMPRESSION_MASK
from kafkascan.io import result_memory
from kafkascan.io.concurrency import map_parts, require_threads, split_by_bytes
from kafkascan.io.sources import Source, SourceLike, borrowed_source, read_bytes
from kafkascan.io.worker_threads import ChunkSizer
from kafkascan.records.buffers import Buffers
from kafkascan.records.payloads import Payloads, join_payloads, load_payloads
from kafkascan.records.read_options import ReadOptions
from kafkascan.records.record_table import RecordTable

_MAGIC_V2 = 2
_NARROW_COLUMNS = ("batch", "key_size", "value_size", "headers_count")

# Bytes of batches that justify one more thread.
_BYTES_PER_THREAD = 1 << 22
# A table of iter_records ends after the batch that reaches one of these sizes, in bytes.
MAX_DECOMPRESSED_PER_TABLE = 1 << 25
_MAX_READ_PER_TABLE = 1 << 24
# Batches that are decoded at first before signals are handled.
_FIRST_BATCHES = 64


def decode_records(source: SourceLike, batches: BatchTable, options: ReadOptions) -> RecordTable:
    """Decode the records of batches into one table, on several threads; see `read_records`."""
    # An opened source is not closed: it lives as long as the table that views it.
    with borrowed_source(source, close=False) as owner:
        return _decode_all(owner, require_batch_table(batches), options)


def no_records(options: ReadOptions) -> RecordTable:
    """Return a table of no records, with the columns of others."""
    return decode_records(b"", np.empty(0, BATCH_DTYPE), options)


def _decode_all(source: Source, batches: BatchTable, options: ReadOptions) -> RecordTable:
    rows = options.select(batches)
    request_rows(source, rows)
    if options.verify:
        _require_checksums(source, rows, options.threads)

    def load(part: slice) -> Payloads:
        limit = options.max_decompressed_size
        return load_payloads(source, rows[part], limit, first_row=part.start)

    threads = require_threads(options.threads)
    parts = split_by_bytes(size_in_bytes(rows), threads, _BYTES_PER_THREAD)
    records = _decode_plain(source, rows, parts, options)
    if records is None:
        records = _decode(source, map_parts(parts, load), options)
    return options.select_records(records)


def decode_first(source: Source, batches: BatchTable, options: ReadOptions) -> RecordTable:
    """
    Decode the first batches, as many as decompress to a bounded size.

    Parameters
    ----------
    source : Source
    batches : array of BATCH_DTYPE
        All of them are decoded, whatever `options.control` and `options.visible` are.
    options : ReadOptions

    Returns
    -------
    RecordTable
        Its `batches` are the decoded ones: at least one, unless there is none.
    """
    records = _decode_plain(source, batches, [slice(0, len(batches))], options)
    if records is not None:
        return records
    loaded = load_payloads(
        source, batches, options.max_decompressed_size, enough=MAX_DECOMPRESSED_PER_TABLE
    )
    return _decode(source, [loaded], options)


def decode_up_to_damage(source: Source, batch: BatchTable, options: ReadOptions) -> RecordTable:
    """
    Decode the records of a damaged batch in front of the first that cannot be read.

    As in Kafka, an uncompressed batch of magic 2 is read record by record; of another one, no
    record is returned.

    Parameters
    ----------
    source : Source
    batch : array of BATCH_DTYPE, shape (1,) or (0,)
    options : ReadOptions

    Returns
    -------
    RecordTable
        Its bytes are a copy of the batch's.
    """
    start, size = batch["position"] + BATCH_HEADER_SIZE, size_in_bytes(batch) - BATCH_HEADER_SIZE
    is_read = (batch["magic"] == _MAGIC_V2) & (batch["attributes"] & COMPRESSION_MASK == 0)
    rows = batch[is_read & (size > 0)].copy()
    if not len(rows):
        return RecordTable(rows, options.names, _empty_columns(0, options), _copied(b""))
    # A damaged count may be any number.
    most = int(size[0]) // _core.min_record_size + 1
    rows["records_count"] = np.clip(rows["records_count"], 0, most)
    buffers = _copied(read_bytes(source, int(start[0]), int(size[0])))
    columns = _empty_columns(int(rows["records_count"][0]), options)
    status, _, count, _ = _core.decode_into(
        buffers.addresses, buffers.sizes, rows,
        buffers.of_batch, np.zeros(1, np.int64), buffers.sizes[1:], np.zeros(1, np.uint8),
        np.array([0, rows["records_count"][0]], np.int64), columns, 0, 1,
    )  # fmt: skip
    if status == STATUS["RECORDS_LEFT"]:
        count -= 1  # Kafka does not return the last record then
    return RecordTable(rows, options.names, columns, buffers)[:count]


def _copied(data: bytes) -> Buffers:
    """Return a copy of bytes of one batch as its buffer."""
    return Buffers(Source(b""), [np.frombuffer(data, np.uint8)], np.ones(1, np.int32))


def iter_decoded(
    source: Source, batches: BatchTable, options: ReadOptions
) -> Iterator[RecordTable]:
    """Decode the records of batches into tables of bounded size; see `iter_records`."""
    return iter_decoded_tables(source, [require_batch_table(batches)], options)


def iter_decoded_tables(
    source: Source, headers: Iterable[BatchTable], options: ReadOptions
) -> Iterator[RecordTable]:
    """Decode the records of tables of batches, each when it is needed."""
    for table in headers:
        for group in _groups(source, options.select(table), options.batch_size):
            for decoded in _decode_group(source, group, options):
                records = options.select_records(decoded)
                if len(records):
                    yield records


def _decode_group(
    source: Source, batches: BatchTable, options: ReadOptions
) -> Iterator[RecordTable]:
    """Decode a group of batches together or, if one of them is damaged, one by one."""
    first, count = 0, len(batches)
    while first < len(batches):
        rows = batches[first : first + count]
        try:
            if options.verify:
                _require_checksums(source, rows, options.threads or 1)
            records = decode_first(source, rows, options)
        except CorruptBatchError as error:
            if count > 1:
                count = 1
            elif options.on_damage is None:
                raise
            else:
                options.on_damage(error)
                first += 1
        else:
            yield records
            first += len(records.batches)


def _groups(source: Source, batches: BatchTable, batch_size: int) -> Iterator[BatchTable]:
    """Split a table into groups of about `batch_size` records."""
    most = min(batch_size, sys.maxsize)
    for part in requested_parts(source, batches):
        rows, first = batches[part], 0
        while first < len(rows):
            last = _core.end_of_group(rows, first, _MAX_READ_PER_TABLE, most)
            yield rows[first:last]
            first = last


def _require_checksums(source: Source, batches: BatchTable, threads: int | None) -> None:
    wrong = np.flatnonzero(~verify_crcs(source, batches, threads=threads))
    if len(wrong):
        raise record_error("CHECKSUM_MISMATCH", source.path, batches[wrong[0]])


def _decode_plain(
    source: Source, batches: BatchTable, parts: list[slice], options: ReadOptions
) -> RecordTable | None:
    """Decode plain batches, each part in a thread; None if `_decode` must do it, or judge."""
    if not source.is_in_memory:
        return None
    counts = [_plain.count_plain_records(batches[part], source.size) for part in parts]
    if min(counts) < 0:
        return None
    columns = _empty_columns(sum(counts), options)
    first_records = itertools.accumulate(counts, initial=0)

    def decode(job: tuple[slice, int]) -> bool:
        part, record = job
        row, is_plain, pace = part.start, True, ChunkSizer(_FIRST_BATCHES)
        with source.window(0, source.size) as window:
            while is_plain and row < part.stop:
                most = pace.next_size()
                row, record, is_plain = _plain.decode_plain(
                    window, batches, columns, row, min(part.stop, row + most), record, most
                )
        return is_plain

    if not all(map_parts(list(zip(parts, first_records, strict=False)), decode)):
        return None
    source.require_unshrunk()
    buffer_index = result_memory.empty(len(batches), np.int32)
    buffer_index.fill(0)
    return RecordTable(batches, options.names, columns, Buffers(source, [], buffer_index))


def _empty_columns(count: int, options: ReadOptions) -> dict[str, NDArray[Any]]:
    return result_memory.empty_columns(
        count,
        {name: np.int32 if name in _NARROW_COLUMNS else np.int64 for name in options.stored},
    )


def _decode(source: Source, parts: list[Payloads], options: ReadOptions) -> RecordTable:
    """Decode the records of loaded payloads, each part in a thread of its own."""
    loaded = join_payloads(parts)
    first_record = np.zeros(len(loaded.batches) + 1, np.int64)
    np.cumsum(loaded.count, out=first_record[1:])
    total = int(first_record[-1])
    columns = _empty_columns(total, options)
    buffers = Buffers(source, loaded.buffers, loaded.buffer_index)

    def decode(part: slice) -> None:
        first, pace = part.start, ChunkSizer(_FIRST_BATCHES)
        while first < part.stop:
            most = pace.next_size()  # batches, and records unless it is one batch
            full = int(np.searchsorted(first_record, first_record[first] + most, "right")) - 1
            stop = min(part.stop, first + most, max(first + 1, full))
            decode_piece(first, stop)
            first = stop

    def decode_piece(first: int, stop: int) -> None:
        status, batch, record, fault = _core.decode_into(
            buffers.addresses, buffers.sizes, loaded.batches,
            loaded.buffer_index, loaded.position, loaded.size, loaded.is_wrapper,
            first_record, columns, first, stop,
        )  # fmt: skip
        if status == STATUS["SOURCE_FAULT"]:
            raise source.fault_error(fault)
        if status != STATUS["OK"]:
            source.require_unshrunk()
            raise record_error(status, source.path, loaded.batches[batch], f"record {record}")

    bounds = np.cumsum([0, *(len(part.batches) for part in parts)]).tolist()
    map_parts([slice(first, last) for first, last in itertools.pairwise(bounds)], decode)
    source.require_unshrunk()
    return RecordTable(loaded.batches, options.names, columns, buffers)
