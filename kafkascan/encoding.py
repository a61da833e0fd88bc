"""Batches from rows that say what their headers say, and the records that go into them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from kafkascan._core import encoding as _core
from kafkascan.batch_columns import BatchTable, compression_type, size_in_bytes
from kafkascan.compression import compression
from kafkascan.errors import STATUS, RecordInputError
from kafkascan.layout import BATCH_HEADER_SIZE, CompressionType
from kafkascan.record_columns import RecordColumns

# Batches that are not compressed are written many at once, into pieces of about this size:
# more of them take more memory, fewer more time.
_PIECE_SIZE = 1 << 20
_LARGEST_BATCH = 2**31 - 1


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

    def __iter__(self) -> Iterator[memoryview]:
        """
        Encode batch by batch.

        Yields
        ------
        memoryview of bytes
            One whole batch. A megabyte of them is encoded at once, or a single larger one.
        """
        position = 0
        for first, last in self._runs():
            piece = memoryview(self._encoded(first, last, position))
            ends = np.cumsum(size_in_bytes(self.rows[first:last])).tolist()
            start = 0
            for end in ends:
                yield piece[start:end]
                start = end
            position += start

    def to_bytes(self) -> bytes:
        """Encode all batches."""
        if not self._codecs.any():
            return self._written(0, len(self), 0)
        return b"".join(self)

    def _runs(self) -> Iterator[tuple[int, int]]:
        """Rows that are encoded at once: a compressed one by itself."""
        compressed, ends = np.flatnonzero(self._codecs), np.cumsum(self._sizes)
        first = 0
        while first < len(self):
            last = first + 1
            if not self._is_compressed(first):
                next_one = int(np.searchsorted(compressed, first))
                most = int(compressed[next_one]) if next_one < len(compressed) else len(self)
                before = int(ends[first - 1]) if first else 0
                last = max(last, min(most, int(np.searchsorted(ends, before + _PIECE_SIZE))))
            yield first, last
            first = last

    def _is_compressed(self, row: int) -> bool:
        return bool(self._codecs[row] != CompressionType.NONE)

    def _encoded(self, first: int, last: int, position: int) -> bytes | bytearray:
        if self._is_compressed(first):
            return self._compressed(first, position)
        return self._written(first, last, position)

    def _written(self, first: int, last: int, position: int) -> bytes:
        new = int(np.count_nonzero(self.rows["magic"][first:last] == 2))
        total = int(self._sizes[first:last].sum()) + new * BATCH_HEADER_SIZE
        data, room = _core.new_bytes(total)
        with room:
            outcome = _core.write_batches(
                self._records.core, self.rows, self._starts, first, last, position, room
            )
        self._require_written(outcome, total)
        return data

    def _compressed(self, row: int, position: int) -> bytearray:
        payload = np.empty(int(self._sizes[row]), np.uint8)
        outcome = _core.write_records(self._records.core, self.rows, self._starts, row, payload)
        self._require_written(outcome, len(payload))
        magic = int(self.rows["magic"][row])
        how = self._compressions[int(self._codecs[row]), magic]
        before = bytes(_core.size_before_records(magic, True))
        batch = bytearray(b"").join([before, *how.compress(payload.data, magic)])
        if len(batch) > _LARGEST_BATCH:
            raise RecordInputError(int(self._starts[row]), STATUS["RECORD_TOO_LARGE"])
        _core.seal(self.rows, row, position, batch)
        return batch

    def _require_written(self, outcome: tuple[int, int], size: int) -> None:
        status, written = outcome
        if status == STATUS["SOURCE_FAULT"]:
            assert self._records.buffers is not None
            self._records.buffers.require_done(outcome)
        if status != STATUS["OK"] or written != size:
            raise RuntimeError("the records changed while they were written")
