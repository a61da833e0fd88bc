"""Batches of one format and codec turned into batches of another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kafkascan.batch_columns import BatchTable, require_batch_table, size_in_bytes
from kafkascan.batches import scan_batches
from kafkascan.checksums import crc32c
from kafkascan.codecs import DEFAULT_MAX_DECOMPRESSED_SIZE
from kafkascan.compression import Compression, compression
from kafkascan.conversion_plan import ConversionPlan, losses
from kafkascan.decoding import ENOUGH_DECOMPRESSED, decode_first
from kafkascan.encoding import BatchEncoder
from kafkascan.errors import record_error
from kafkascan.layout import (
    BATCH_DTYPE,
    BATCH_HEADER_SIZE,
    COMPRESSION_MASK,
    CRC_STARTS,
    LOG_OVERHEAD,
    CompressionType,
)
from kafkascan.payloads import Payloads, load_payloads
from kafkascan.record_table import RecordTable
from kafkascan.rewriting import Buffer, encoded, in_order, sound_groups
from kafkascan.sources import Source, SourceLike, borrowed_source
from kafkascan.walks import read_bytes

DEFAULT_GATHERED_SIZE = 16384
"""Bytes of messages that become one batch; Kafka's ``batch.size`` of producers."""


_WIRE_HEADER = np.dtype(
    [(name, BATCH_DTYPE[name].newbyteorder(">")) for name in (BATCH_DTYPE.names or ())[1:]]
)


@dataclass
class ConversionReport:
    """
    What became of batches.

    Attributes
    ----------
    batches, copied, recompressed, converted, dropped : int
        Batches that were read; those of them that stayed as they were, whose records were only
        compressed in another way, that are of another format now, and that have no place there.
    size, new_size : int
        Bytes of the batches before and after.
    lost : dict of str to int
        What the new format has no room for: ``headers``, ``timestamps`` (of records);
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
    A log in another format.

    Attributes
    ----------
    data : bytes
    report : ConversionReport
    """

    data: bytes
    report: ConversionReport


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
    Turn batches into those of another message format, or compress them in another way.

    Offsets stay. Batches that have the format and the codec already are copied as they are.

    Parameters
    ----------
    source : path, bytes-like, Source or Segment
    batches : array of BATCH_DTYPE, optional
        Rows of the source, in offset order; all of it by default.
    to_magic : {0, 1, 2}, optional
        Of all batches; by default each keeps its own.
    compression_type : CompressionType or str or int, optional
        Of all batches, but for control batches that are not compressed; by default each keeps
        its own.
    compression_level : int, optional
        Kafka's default for the codec, if it is not given.
    batch_size : int, default 16384
        Messages of magic 0 and 1 that are not compressed are gathered up to about this many
        bytes, where what they become can hold several; 1 makes a batch of each.
    threads : int, optional
        As of `read_records`.
    max_decompressed_size : int, default 256 MiB
        As of `read_records`.

    Returns
    -------
    ConvertedRecords
        Its report tells what was lost: old formats have no headers, producers, transactions,
        control batches and leader epochs, magic 0 no timestamps. Records of aborted
        transactions stay, and nothing says any more that they were aborted.

    Raises
    ------
    UnsupportedCompressionError
        If a batch is compressed with Zstandard, its new format does not have that, and no other
        codec is asked for.
    ChecksumMismatchError
        If a checksum is wrong: what is damaged is not signed anew.
    ValueError
        If there is no such format, codec or level.
    As `read_records`.

    Notes
    -----
    From magic 2 down, the bytes of ``RecordsUtil.downConvert`` of Kafka 3.9; up to magic 2, those
    of ``LogValidator`` (``batch_size`` beyond all there is: one append becomes one batch) and of
    the cleaner of Kafka 4.4 (``batch_size=1``), where nothing is compressed. Magic 2 that is
    compressed in another way keeps its records byte for byte.
    """
    with borrowed_source(source, close=False) as owner:
        if batches is None:
            batches = scan_batches(owner).batches
        job = RecordConverter(
            owner, batches, to_magic=to_magic, compression_type=compression_type,
            compression_level=compression_level, batch_size=batch_size, threads=threads,
            max_decompressed_size=max_decompressed_size,
        )  # fmt: skip
        data = b"".join(job)
    return ConvertedRecords(data, job.report)


class RecordConverter:
    """
    Converted batches, piece by piece.

    Parameters
    ----------
    As of `convert_records`.

    Attributes
    ----------
    report : ConversionReport
        Of what was yielded so far.
    """

    def __init__(
        self,
        source: Source,
        batches: BatchTable,
        *,
        to_magic: int | None = None,
        compression_type: CompressionType | str | int | None = None,
        compression_level: int | None = None,
        batch_size: int = DEFAULT_GATHERED_SIZE,
        threads: int | None = None,
        max_decompressed_size: int = DEFAULT_MAX_DECOMPRESSED_SIZE,
    ) -> None:
        if to_magic not in (None, 0, 1, 2):
            raise ValueError(f"there is no magic {to_magic}, but 0, 1 and 2")
        if batch_size < 1:
            raise ValueError("batch_size must be at least 1")
        if compression_type is None and compression_level is not None:
            raise ValueError("compression_level needs a compression_type")
        self._source, self._batches = source, require_batch_table(batches)
        self._magic, self._batch_size, self._level = to_magic, batch_size, compression_level
        self._codec: CompressionType | None = None
        if compression_type is not None:
            magic = 2 if to_magic is None else to_magic
            self._codec = compression(compression_type, compression_level, magic=magic).codec
        self._threads, self._max_size = threads, max_decompressed_size
        self.report = ConversionReport()

    def __iter__(self) -> Iterator[Buffer]:
        self.report.batches = len(self._batches)
        self.report.size = int(size_in_bytes(self._batches).sum())
        for part in sound_groups(self._source, self._batches, self._threads):
            rows = self._batches[part]
            while len(rows):
                plan, records = self._first(rows)
                self._count(plan)
                pieces, written = self._written(plan, records)
                for piece in in_order(self._source, plan.rows, plan.is_copied, pieces, written):
                    self.report.new_size += len(piece)
                    yield piece
                rows = rows[len(plan.rows) :]

    def _first(self, rows: BatchTable) -> tuple[ConversionPlan, RecordTable | None]:
        """Plan for as many first rows as memory is meant for; with their records, if needed."""
        plan = ConversionPlan(rows, self._magic, self._codec, self._batch_size)
        self._require_known(plan)
        chosen = np.flatnonzero(plan.is_encoded)
        if not len(chosen):
            return plan, None
        records = decode_first(
            self._source, rows.take(chosen), max_decompressed_size=self._max_size
        )
        done = len(records.batches)
        if done < len(chosen):
            plan = ConversionPlan(rows[: chosen[done]], self._magic, self._codec, self._batch_size)
        return plan, records

    def _require_known(self, plan: ConversionPlan) -> None:
        unknown = np.flatnonzero(plan.is_impossible)
        if len(unknown):
            batch = plan.rows[unknown[0]]
            codec = CompressionType.name_of(int(batch["attributes"]) & COMPRESSION_MASK)
            raise record_error("UNSUPPORTED_COMPRESSION", self._source.path, batch, codec)

    def _count(self, plan: ConversionPlan) -> None:
        report = self.report
        report.copied += int(np.count_nonzero(plan.is_copied))
        report.recompressed += int(np.count_nonzero(plan.is_recompressed))
        report.converted += int(np.count_nonzero(plan.is_encoded))
        report.dropped += int(np.count_nonzero(plan.is_dropped))
        self._lose(losses(plan))

    def _lose(self, lost: dict[str, int]) -> None:
        for name, count in lost.items():
            if count:
                self.report.lost[name] = self.report.lost.get(name, 0) + count

    def _written(
        self, plan: ConversionPlan, records: RecordTable | None
    ) -> tuple[NDArray[np.int64], Iterator[Buffer]]:
        """Return how many new batches stand in the place of each old one, and those."""
        pieces = plan.is_recompressed.astype(np.int64)
        recompressed = self._recompressed(plan)
        if records is None:
            return pieces, recompressed
        chosen = np.flatnonzero(plan.is_encoded)
        rows, counts, owners = plan.new_rows(records)
        self._lose(plan.lost_of_records(records))
        is_old = bool((rows["magic"] < 2).all())
        encoder = encoded(_bare(records) if is_old else records, rows, counts, self._level)
        if not (rows["attributes"] & COMPRESSION_MASK).any():
            pieces[chosen[np.unique(owners)]] = 1
            new = _of_each_owner(encoder, owners)
        else:
            np.add.at(pieces, chosen[owners], 1)
            new = iter(encoder)
        return pieces, _merged(plan.is_recompressed, pieces, recompressed, new)

    def _recompressed(self, plan: ConversionPlan) -> Iterator[Buffer]:
        """Yield batches of magic 2 whose records are the same, but for their codec."""
        chosen = np.flatnonzero(plan.is_recompressed)
        while len(chosen):
            loaded = load_payloads(
                self._source, plan.rows.take(chosen), self._max_size, enough=ENOUGH_DECOMPRESSED
            )
            count = len(loaded.batches)
            yield from self._compressed_anew(loaded, plan.codec[chosen[:count]])
            chosen = chosen[count:]

    def _compressed_anew(self, loaded: Payloads, codecs: NDArray[np.int8]) -> Iterator[Buffer]:
        rows = loaded.batches
        attributes = (rows["attributes"] & ~COMPRESSION_MASK) | codecs
        headers = np.empty(len(rows), _WIRE_HEADER)
        for name in _WIRE_HEADER.names or ():
            headers[name] = rows[name]
        headers["attributes"] = attributes
        for row, codec in enumerate(codecs.tolist()):
            how: Compression = compression(codec, self._level if codec else None)
            start, size = int(loaded.position[row]), int(loaded.size[row])
            if loaded.buffer[row]:
                piece = loaded.pieces[int(loaded.buffer[row]) - 1]
                payload = piece[start : start + size].data
            else:
                payload = memoryview(read_bytes(self._source, start, size))
            yield _signed(headers[row : row + 1], how.compress(payload, 2))


def _signed(header: NDArray[np.void], payload: Sequence[Buffer]) -> bytes:
    """Return a batch of magic 2, its length and checksum found."""
    header["batch_length"] = BATCH_HEADER_SIZE - LOG_OVERHEAD + sum(map(len, payload))
    crc = crc32c(header.tobytes()[CRC_STARTS[2] :])
    for piece in payload:
        crc = crc32c(piece, crc)
    header["crc"] = crc
    return b"".join([header.tobytes(), *payload])


def _of_each_owner(encoder: BatchEncoder, owners: NDArray[np.intp]) -> Iterator[Buffer]:
    """Yield the new batches that stand in the place of one old one, at once."""
    data = memoryview(encoder.to_bytes())
    ends = np.cumsum(size_in_bytes(encoder.rows))
    start = 0
    for end in ends[np.append(np.flatnonzero(np.diff(owners)), len(owners) - 1)].tolist():
        yield data[start:end]
        start = end


def _bare(records: RecordTable) -> RecordTable:
    """Return the records without their headers."""
    columns = {
        name: values
        for name, values in records.columns.items()
        if name not in ("headers_position", "headers_count")
    }
    names = tuple(name for name in records.names if name != "headers")
    return RecordTable(records.batches, names, columns, records.buffers)


def _merged(
    is_recompressed: NDArray[np.bool_],
    pieces: NDArray[np.int64],
    recompressed: Iterator[Buffer],
    encoded_ones: Iterator[Buffer],
) -> Iterator[Buffer]:
    """Yield both in the order of the batches that they stand for."""
    for is_one, count in zip(is_recompressed.tolist(), pieces.tolist(), strict=True):
        for _ in range(count):
            yield next(recompressed if is_one else encoded_ones)
