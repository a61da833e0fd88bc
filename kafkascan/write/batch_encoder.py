"""Encode planned batches: records and header rows become bytes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafkascan._core import encoding as _core, record_columns as _columns
from kafkascan._core.packing import Output, Packer
from kafkascan.batches.columns import BatchTable, compression_type, join_tables, size_in_bytes
from kafkascan.format.errors import STATUS, RecordInputError
from kafkascan.format.layout import BATCH_HEADER_SIZE
from kafkascan.io.concurrency import group_by_bytes
from kafkascan.records.compression import compression
from kafkascan.write.record_columns import RecordColumns

# Uncompressed bytes of the batches that are encoded together.
_RUN_SIZE = 1 << 20
# Of uncompressed batches: copying takes a bounded time before signals are handled.
_LARGEST_RUN = 1 << 26
# The first of this many runs predicts the compression ratio of the output.
_PREDICTED_RUNS = 8
_KINDS_OF_CODEC = 4


@dataclass(frozen=True, eq=False)
class BatchPlan:
    """
    Batches before they are encoded: their records and the fields of their headers.

    Attributes
    ----------
    records : RecordColumns
    rows : array of BATCH_DTYPE, shape (m,)
        The headers, with magic and codec. `position`, `batch_length` and `crc` are computed by
        the encoder. Every other field is written as it is: `last_offset_delta` may exceed the
        last record's, and `base_timestamp` may be a delete horizon. A message of magic 0 or 1
        is a batch of one record, unless it is compressed. Then `base_offset` is the offset that
        inner offsets are relative to (magic 1), and `base_offset + last_offset_delta` is the
        offset of the wrapper.
    starts : array of int64, shape (m + 1,)
        The first record of each batch, and the number of records.
    sizes : array of int64, shape (m,)
        Bytes of each batch's records before compression; see `measure_batches`.
    level : int or None
        Compression level; None for Kafka's default for the codec.
    """

    records: RecordColumns
    rows: BatchTable
    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]
    level: int | None = None

    def size(self, run: slice) -> int:
        """Return the bytes of batches before compression."""
        sizes = self.sizes[run]
        return int(sizes.sum()) + len(sizes) * BATCH_HEADER_SIZE


class EncodedBatches(NamedTuple):
    """
    Encoded batches.

    Attributes
    ----------
    data : bytes
    rows : array of BATCH_DTYPE, shape (m,)
        As a scan of `data` finds them.
    """

    data: bytes
    rows: BatchTable


def measure_batches(
    records: RecordColumns, rows: BatchTable, starts: NDArray[np.int64]
) -> NDArray[np.int64]:
    """
    Return the bytes of each batch's records before compression.

    Parameters
    ----------
    records, rows, starts
        See `BatchPlan`.

    Raises
    ------
    RecordInputError
        If a batch cannot hold its records.
    """
    sizes = np.empty(len(rows), np.int64)
    status, record = _columns.measure(records.core, np.ascontiguousarray(rows), starts, sizes)
    if status != STATUS["OK"]:
        raise RecordInputError(record, status)
    return sizes


def encode_batches(plan: BatchPlan) -> EncodedBatches:
    """
    Encode all batches of a plan.

    Raises
    ------
    RecordInputError
        If a batch exceeds 2**31 - 1 bytes.
    ValueError
        If a format does not have a codec, or a codec does not have the level.
    """
    rows = join_tables([plan.rows])
    total, is_compressed = plan.size(slice(0, len(rows))), bool(compression_type(rows).any())
    run_size = max(_RUN_SIZE, total // _PREDICTED_RUNS) if is_compressed else _LARGEST_RUN
    out = Output(min(total, run_size) if is_compressed else total)
    for run, packer in _runs(plan, run_size):
        _encode_run(plan, rows, run, packer, 0, out)
        if run.start == 0 and is_compressed:
            # Reserve a little more than the ratio of the first run predicts.
            out.expect(total * out.size // plan.size(run) * 17 // 16)
    return EncodedBatches(out.take(), rows)


def iter_encoded_batches(plan: BatchPlan) -> Iterator[memoryview]:
    """
    Encode the batches of a plan one by one, about a megabyte ahead; see `encode_batches`.

    Yields
    ------
    memoryview
        One batch.
    """
    rows = join_tables([plan.rows])
    position = 0
    for run, packer in _runs(plan, _RUN_SIZE):
        out = Output(plan.size(run))
        _encode_run(plan, rows, run, packer, position, out)
        position += out.size
        view, start = memoryview(out.take()), 0
        for size in size_in_bytes(rows[run]).tolist():
            yield view[start : start + size]
            start += size


def _runs(plan: BatchPlan, run_size: int) -> Iterator[tuple[slice, Packer | None]]:
    """Split the batches into runs of one format, codec and bounded size, with their packers."""
    kinds = compression_type(plan.rows) * np.int8(_KINDS_OF_CODEC) + plan.rows["magic"]
    packers: dict[int, Packer | None] = {}
    bounds = [0, *(np.flatnonzero(np.diff(kinds)) + 1).tolist(), len(kinds)]
    for first, last in itertools.pairwise(bounds):
        for run in group_by_bytes(plan.sizes[first:last], run_size):
            kind = int(kinds[first])
            if kind not in packers:
                packers[kind] = _packer(*divmod(kind, _KINDS_OF_CODEC), plan.level)
            yield slice(first + run.start, first + run.stop), packers[kind]


def _packer(codec: int, magic: int, level: int | None) -> Packer | None:
    how = compression(codec, level if codec else None, magic=magic)
    return how.packer(magic) if codec else None


def _encode_run(
    plan: BatchPlan,
    rows: BatchTable,
    run: slice,
    packer: Packer | None,
    position: int,
    out: Output,
) -> None:
    """Append batches to an output that starts at a position, and complete their rows."""
    records = plan.records
    batches = (
        records.core, rows, plan.starts, plan.sizes, run.start, run.stop, position, out,
    )  # fmt: skip
    if packer is None:
        status, fault = _core.write_batches(*batches)
    else:
        status, fault = _core.compress_batches(*batches, packer)
    if status == STATUS["RECORD_TOO_LARGE"]:
        raise RecordInputError(int(plan.starts[fault]), status)
    if status == STATUS["SOURCE_FAULT"]:
        assert records.buffers is not None
        records.buffers.require_done((status, fault))
    if status != STATUS["OK"]:
        raise RuntimeError("the records changed while they were written")
