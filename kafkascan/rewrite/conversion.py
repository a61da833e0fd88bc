"""Convert batches to another message format or codec."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kafkascan.batches.columns import BatchTable, require_batch_table, size_in_bytes
from kafkascan.batches.scan import scan_batches
from kafkascan.format.checksums import crc32c
from kafkascan.format.errors import record_error
from kafkascan.format.layout import (
    BATCH_DTYPE,
    BATCH_HEADER_SIZE,
    COMPRESSION_MASK,
    CRC_STARTS,
    LOG_OVERHEAD,
    CompressionType,
)
from kafkascan.io.sources import Source, SourceLike, borrowed_source, read_bytes
from kafkascan.records.compression import compression
from kafkascan.records.decoding import MAX_DECOMPRESSED_PER_TABLE, decode_first
from kafkascan.records.payloads import Payloads, load_payloads
from kafkascan.records.read_options import DEFAULT_MAX_DECOMPRESSED_SIZE, ReadOptions
from kafkascan.records.record_table import RecordTable
from kafkascan.rewrite.batch_stream import Buffer, merge_in_order, plan_records, verified_groups
from kafkascan.rewrite.conversion_plan import (
    DEFAULT_GATHERED_SIZE,
    ConversionOptions,
    ConversionPlan,
    plan_conversion,
)
from kafkascan.write.batch_encoder import BatchPlan, encode_batches, iter_encoded_batches

_WIRE_HEADER = np.dtype(
    [(name, BATCH_DTYPE[name].newbyteorder(">")) for name in (BATCH_DTYPE.names or ())[1:]]
)


@dataclass
class ConversionReport:
    """
    Counts of a conversion.

    Attributes
    ----------
    batches : int
        Batches that were read.
    copied, recompressed, converted, dropped : int
        Batches that were copied, that got another codec only, that got another format, and that
        were dropped because the new format has no such batches.
    size, new_size : int
        Bytes of the batches before and after.
    lost : dict of str to int
        Counts of what the new format cannot express: ``headers``, ``timestamps`` (of records);
        ``control_batches``, ``empty_batches``, ``transactional_batches``,
        ``idempotent_batches``, ``leader_epochs``, ``delete_horizons`` (of batches).
    """

    batches: int = 0
    copied: int = 0
    recompressed: int = 0
    converted: int = 0
    dropped: int = 0
    size: int = 0
    new_size: int = 0
    lost: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class ConvertedRecords:
    """
    Converted batches; returned by `convert_records`.

    Attributes
    ----------
    data : bytes
        The new batches.
    report : ConversionReport
    """

    data: bytes
    report: ConversionReport

    def __repr__(self) -> str:
        return f"<ConvertedRecords: {len(self.data):,} bytes, {self.report}>"


def convert_records(
    source: SourceLike,
    batches: BatchTable | None = None,
    /,
    *,
    to_magic: int | None = None,
    compression_type: CompressionType | str | int | None = None,
    compression_level: int | None = None,
    batch_size: int = DEFAULT_GATHERED_SIZE,
    threads: int | None = None,
    max_decompressed_size: int = DEFAULT_MAX_DECOMPRESSED_SIZE,
) -> ConvertedRecords:
    """
    Convert batches to another message format or codec.

    Offsets do not change. Batches that already have the format and the codec are copied.

    Parameters
    ----------
    source : path, bytes-like, Source or SegmentFile
    batches : array of BATCH_DTYPE, optional
        Rows of the source, in offset order; all of it by default.
    to_magic : {0, 1, 2}, optional
        New format of all batches; by default each keeps its own.
    compression_type : CompressionType or str or int, optional
        New codec of all batches except uncompressed control batches; by default each keeps its
        own.
    compression_level : int, optional
        By default Kafka's default for the codec.
    batch_size : int, default 16384
        Uncompressed messages of magic 0 and 1 are gathered into batches of about this many
        bytes, where the new batches can hold several records; with 1, each becomes a batch.
    threads : int, optional
        See `read_records`.
    max_decompressed_size : int, default 256 MiB
        See `read_records`.

    Returns
    -------
    ConvertedRecords
        Its report counts what was lost: magic 0 and 1 have no headers, producers, transactions,
        control batches and leader epochs, magic 0 has no timestamps. Records of aborted
        transactions are kept, and the new log does not mark them as aborted.

    Raises
    ------
    UnsupportedCompressionError
        If a batch is compressed with Zstandard, its new format does not support that, and
        `compression_type` is not given.
    ChecksumMismatchError
        If a checksum is wrong: damaged batches do not get a new checksum.
    ValueError
        If the format, the codec or the level does not exist.
    As `read_records`.

    Notes
    -----
    From magic 2 down, the result is byte for byte that of ``RecordsUtil.downConvert`` of Kafka
    3.9. Up to magic 2, where nothing is compressed, it is that of ``LogValidator`` (a
    `batch_size` larger than the log: one append becomes one batch) and of the cleaner of Kafka
    4.4 (``batch_size=1``). Batches of magic 2 that get another codec keep their records byte for
    byte.
    """
    options = ConversionOptions(
        to_magic=to_magic,
        compression_type=compression_type,
        compression_level=compression_level,
        batch_size=batch_size,
        threads=threads,
        max_decompressed_size=max_decompressed_size,
    )
    report = ConversionReport()
    with borrowed_source(source, close=False) as owner:
        if batches is None:
            batches = scan_batches(owner).batches
        tables = [require_batch_table(batches)]
        data = b"".join(iter_converted(owner, tables, options, report))
    return ConvertedRecords(data, report)


def iter_converted(
    source: Source,
    tables: Iterable[BatchTable],
    options: ConversionOptions,
    report: ConversionReport,
) -> Iterator[Buffer]:
    """
    Convert batches in bounded memory.

    Parameters
    ----------
    source : Source
    tables : iterable of arrays of BATCH_DTYPE
        Its batches, in order.
    options : ConversionOptions
    report : ConversionReport
        Counts what has been yielded so far.

    Yields
    ------
    bytes-like
        The new log, in order.
    """
    for rows in verified_groups(source, tables, options.threads):
        report.batches += len(rows)
        report.size += int(size_in_bytes(rows).sum())
        while len(rows):
            plan, records = _plan_first(source, rows, options)
            _count(plan, records, report)
            counts, encoded = _encode(source, plan, records, options)
            for data in merge_in_order(source, plan.rows, plan.is_copied, counts, encoded):
                report.new_size += len(data)
                yield data
            rows = rows[len(plan.rows) :]


def _plan_first(
    source: Source, rows: BatchTable, options: ConversionOptions
) -> tuple[ConversionPlan, RecordTable | None]:
    """Plan the first rows, as many as decompress to a bounded size; decode those to encode."""
    plan = plan_conversion(rows, options)
    _require_possible(source, plan)
    chosen = np.flatnonzero(plan.is_encoded)
    if not len(chosen):
        return plan, None
    how = ReadOptions(max_decompressed_size=options.max_decompressed_size)
    records = decode_first(source, rows.take(chosen), how)
    done = len(records.batches)
    if done < len(chosen):
        plan = plan_conversion(rows[: chosen[done]], options)
    return plan, records


def _require_possible(source: Source, plan: ConversionPlan) -> None:
    impossible = np.flatnonzero(plan.is_impossible)
    if len(impossible):
        batch = plan.rows[impossible[0]]
        codec = CompressionType.name_of(int(batch["attributes"]) & COMPRESSION_MASK)
        raise record_error("UNSUPPORTED_COMPRESSION", source.path, batch, codec)


def _count(plan: ConversionPlan, records: RecordTable | None, report: ConversionReport) -> None:
    report.copied += int(np.count_nonzero(plan.is_copied))
    report.recompressed += int(np.count_nonzero(plan.is_recompressed))
    report.converted += int(np.count_nonzero(plan.is_encoded))
    report.dropped += int(np.count_nonzero(plan.is_dropped))
    lost = plan.lost_of_batches()
    if records is not None:
        lost |= plan.lost_of_records(records)
    for name, count in lost.items():
        if count:
            report.lost[name] = report.lost.get(name, 0) + count


def _encode(
    source: Source, plan: ConversionPlan, records: RecordTable | None, options: ConversionOptions
) -> tuple[NDArray[np.int64], Iterator[Buffer]]:
    """Return the number of items that replace each old batch, and an iterator over the items."""
    counts = plan.is_recompressed.astype(np.int64)
    recompressed = _iter_recompressed(source, plan, options)
    if records is None:
        return counts, recompressed
    chosen = np.flatnonzero(plan.is_encoded)
    headers = plan.encoded_headers(records)
    if bool((headers.rows["magic"] < 2).all()):
        records = _without_headers(records)
    new = plan_records(records, headers.rows, headers.counts, options.compression_level)
    encoded: Iterator[Buffer]
    if not (headers.rows["attributes"] & COMPRESSION_MASK).any():
        counts[chosen[np.unique(headers.owners)]] = 1
        encoded = _iter_by_owner(new, headers.owners)
    else:
        np.add.at(counts, chosen[headers.owners], 1)
        encoded = iter_encoded_batches(new)
    return counts, _interleave(plan.is_recompressed, counts, recompressed, encoded)


def _iter_recompressed(
    source: Source, plan: ConversionPlan, options: ConversionOptions
) -> Iterator[Buffer]:
    """Yield batches of magic 2 with the same records and another codec."""
    chosen = np.flatnonzero(plan.is_recompressed)
    while len(chosen):
        loaded = load_payloads(
            source,
            plan.rows.take(chosen),
            options.max_decompressed_size,
            enough=MAX_DECOMPRESSED_PER_TABLE,
        )
        count = len(loaded.batches)
        yield from _recompress(source, loaded, plan.codec[chosen[:count]], options)
        chosen = chosen[count:]


def _recompress(
    source: Source, loaded: Payloads, codecs: NDArray[np.int8], options: ConversionOptions
) -> Iterator[Buffer]:
    rows = loaded.batches
    headers = np.empty(len(rows), _WIRE_HEADER)
    for name in _WIRE_HEADER.names or ():
        headers[name] = rows[name]
    headers["attributes"] = (rows["attributes"] & ~COMPRESSION_MASK) | codecs
    for row, codec in enumerate(codecs.tolist()):
        how = compression(codec, options.compression_level if codec else None)
        start, size = int(loaded.position[row]), int(loaded.size[row])
        if loaded.buffer_index[row]:
            buffer = loaded.buffers[int(loaded.buffer_index[row]) - 1]
            payload = buffer[start : start + size].data
        else:
            payload = memoryview(read_bytes(source, start, size))
        yield _sealed(headers[row : row + 1], how.compress(payload, 2))


def _sealed(header: NDArray[np.void], payload: Sequence[Buffer]) -> bytes:
    """Return a batch of magic 2; its batch_length and crc are computed."""
    header["batch_length"] = BATCH_HEADER_SIZE - LOG_OVERHEAD + sum(map(len, payload))
    crc = crc32c(header.tobytes()[CRC_STARTS[2] :])
    for data in payload:
        crc = crc32c(data, crc)
    header["crc"] = crc
    return b"".join([header.tobytes(), *payload])


def _iter_by_owner(plan: BatchPlan, owners: NDArray[np.intp]) -> Iterator[Buffer]:
    """Yield the new batches that replace one old batch as one item."""
    data, rows = encode_batches(plan)
    view = memoryview(data)
    ends = np.cumsum(size_in_bytes(rows))
    start = 0
    for end in ends[np.append(np.flatnonzero(np.diff(owners)), len(owners) - 1)].tolist():
        yield view[start:end]
        start = end


def _without_headers(records: RecordTable) -> RecordTable:
    """Return the records without their record headers."""
    columns = {
        name: values
        for name, values in records.columns.items()
        if name not in ("headers_position", "headers_count")
    }
    names = tuple(name for name in records.names if name != "headers")
    return RecordTable(records.batches, names, columns, records.buffers)


def _interleave(
    is_recompressed: NDArray[np.bool_],
    counts: NDArray[np.int64],
    recompressed: Iterator[Buffer],
    encoded: Iterator[Buffer],
) -> Iterator[Buffer]:
    """Yield the items of both iterators in the order of the old batches."""
    for is_one, count in zip(is_recompressed.tolist(), counts.tolist(), strict=True):
        for _ in range(count):
            yield next(recompressed if is_one else encoded)
