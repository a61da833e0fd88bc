"""Batches from rows that say what their headers say, and the records that go into them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from kafkascan._core import encoding as _core
from kafkascan.batch_columns import BatchTable, compression_type, size_in_bytes
from kafkascan.compression import compression
from kafkascan.errors import STATUS, RecordInputError
from kafkascan.layout import BATCH_HEADER_SIZE, LOG_OVERHEAD, CompressionType
from kafkascan.record_columns import RecordColumns

# Batches that are not compressed are written many at once, into pieces of about this size:
# more of them take more memory, fewer more time.
_PIECE_SIZE = 1 << 20
_CHANGED = "the records changed while they were written"


class BatchEncoder:
    """
    Batches that are known but for their bytes.

    Parameters
    ----------
    records : RecordColumns
    rows : array of BATCH_DTYPE, shape (m,)
        What the headers are to say, magic and codec included. `position`, `batch_length` and
        `crc` are found; all else is written as it is, so `last_offset_delta` may reach behind
        the last record, and `base_timestamp` may be a delete horizon. A message of magic 0 or 1
        is a batch of one record, unless it is compressed; then `base_offset` is what the
        offsets in it count from (magic 1), and `last_offset_delta` above it is the message's.
    starts : array of int64, shape (m + 1,)
        The first record of each batch, and of none behind the last one.
    level : int, optional
        Of compression; Kafka's default for the codec if it is not given.
    sizes : array of int64, shape (m,), optional
        Bytes of each batch's records before compression, if they are known.

    Attributes
    ----------
    rows : array of BATCH_DTYPE, shape (m,)
        A copy. Once a batch is written, what a scan finds of it; positions count from the
        first one.

    Raises
    ------
    RecordInputError
        If a batch cannot hold its records.
    ValueError
        If a codec is not one of the format, or does not have the level.
    """

    def __init__(
        self,
        records: RecordColumns,
        rows: BatchTable,
        starts: NDArray[np.int64],
        *,
        level: int | None = None,
        sizes: NDArray[np.int64] | None = None,
    ) -> None:
        self.rows = rows.copy()
        self._records = records
        self._starts = starts
        self._codecs = compression_type(rows)
        kinds = set(zip(self._codecs.tolist(), rows["magic"].tolist(), strict=True))
        self._compressions = {
            (codec, magic): compression(codec, level if codec else None, magic=magic)
            for codec, magic in kinds
        }
        self._sizes = self._measured() if sizes is None else sizes

    def _measured(self) -> NDArray[np.int64]:
        sizes = np.empty(len(self.rows), np.int64)
        status, record = _core.measure(self._records.core, self.rows, self._starts, sizes)
        if status != STATUS["OK"]:
            raise RecordInputError(record, status)
        return sizes

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[bytes | memoryview]:
        """
        Encode batch by batch.

        Yields
        ------
        bytes-like
            One whole batch. About a megabyte of them, before compression, is encoded at once,
            or a single larger one.
        """
        position = 0
        for first, last in self._runs():
            if self._codecs[first] == CompressionType.NONE:
                yield from self._cut(self._written(first, last, position), first, last)
            else:
                yield from self._compressed(first, last, position)
            position = _end_of(self.rows[last - 1])

    def to_bytes(self) -> bytes:
        """Encode all batches."""
        if not self._codecs.any():
            return self._written(0, len(self), 0)
        return b"".join(self)

    def _runs(self) -> Iterator[tuple[int, int]]:
        """Rows that are encoded at once: of one codec and magic, and not too large together."""
        kinds = self._codecs.astype(np.int16) * 4 + self.rows["magic"]
        changes = [*(np.flatnonzero(np.diff(kinds)) + 1).tolist(), len(self)]
        ends, first, before = np.cumsum(self._sizes), 0, 0
        for change in changes:
            while first < change:
                last = int(np.searchsorted(ends, before + _PIECE_SIZE))
                last = max(first + 1, min(change, last))
                yield first, last
                first, before = last, int(ends[last - 1])

    def _cut(self, piece: bytes, first: int, last: int) -> Iterator[memoryview]:
        view, start = memoryview(piece), 0
        for size in size_in_bytes(self.rows[first:last]).tolist():
            yield view[start : start + size]
            start += size

    def _written(self, first: int, last: int, position: int) -> bytes:
        new = int(np.count_nonzero(self.rows["magic"][first:last] == 2))
        total = int(self._sizes[first:last].sum()) + new * BATCH_HEADER_SIZE
        data, room = _core.new_bytes(total)
        with room:
            status, written = _core.write_batches(
                self._records.core, self.rows, self._starts, first, last, position, room
            )
        self._require_done(status, written)
        if written != total:
            raise RuntimeError(_CHANGED)
        return data

    def _compressed(self, first: int, last: int, position: int) -> list[bytes]:
        how = self._compressions[int(self._codecs[first]), int(self.rows["magic"][first])]
        status, fault, batches = _core.compress_batches(
            self._records.core, self.rows, self._starts, self._sizes,
            first, last, position, how.compress,
        )  # fmt: skip
        if status == STATUS["RECORD_TOO_LARGE"]:
            raise RecordInputError(int(self._starts[first + len(batches)]), status)
        self._require_done(status, fault)
        return batches

    def _require_done(self, status: int, fault: int) -> None:
        if status == STATUS["SOURCE_FAULT"]:
            assert self._records.buffers is not None
            self._records.buffers.require_done((status, fault))
        if status != STATUS["OK"]:
            raise RuntimeError(_CHANGED)


def _end_of(row: np.void) -> int:
    return int(row["position"]) + int(row["batch_length"]) + LOG_OVERHEAD
