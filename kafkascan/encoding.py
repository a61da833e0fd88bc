"""Batches from rows that say what their headers say, and the records that go into them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from kafkascan._core import encoding as _core
from kafkascan._core.packing import Output, Packer
from kafkascan.batch_columns import BatchTable, compression_type, join_tables, size_in_bytes
from kafkascan.compression import compression
from kafkascan.errors import STATUS, RecordInputError
from kafkascan.layout import BATCH_HEADER_SIZE
from kafkascan.record_columns import RecordColumns

# Batches are written many at once, of about this size before compression: more of them take
# more memory, fewer more time.
_PIECE_SIZE = 1 << 20
# The first of so many pieces tells how all that is compressed will shrink.
_PIECES = 8
# A codec and a magic, in one number.
_KINDS_OF_CODEC = 4
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
        self.rows = join_tables([np.ascontiguousarray(rows)])
        self._records = records
        self._starts = starts
        self._codecs = compression_type(rows)
        self._kinds = self._codecs * np.int8(_KINDS_OF_CODEC) + rows["magic"]
        self._packers = {
            kind: _packer(*divmod(kind, _KINDS_OF_CODEC), level)
            for kind in np.flatnonzero(np.bincount(self._kinds)).tolist()
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
        for first, last in self._runs(_PIECE_SIZE):
            out = Output(self._room(first, last))
            self._encode(first, last, position, out)
            position += out.size
            yield from self._cut(out.take(), first, last)

    def to_bytes(self) -> bytes:
        """Encode all batches."""
        room, is_compressed = self._room(0, len(self)), bool(self._codecs.any())
        at_once = max(_PIECE_SIZE, room // _PIECES) if is_compressed else room
        out = Output(min(room, at_once))
        for first, last in self._runs(at_once):
            self._encode(first, last, 0, out)
            if first == 0 and is_compressed:
                # The others will shrink as the first ones did, or a little less.
                out.expect(room * out.size // self._room(0, last) * 17 // 16)
        return out.take()

    def _room(self, first: int, last: int) -> int:
        """Bytes that rows take at most, but for what cannot be compressed."""
        return int(self._sizes[first:last].sum()) + (last - first) * BATCH_HEADER_SIZE

    def _runs(self, at_once: int) -> Iterator[tuple[int, int]]:
        """Rows that are encoded at once: of one codec and magic, and so large before that."""
        changes = [*(np.flatnonzero(np.diff(self._kinds)) + 1).tolist(), len(self)]
        ends, first, before = np.cumsum(self._sizes), 0, 0
        for change in changes:
            while first < change:
                last = int(np.searchsorted(ends, before + at_once, side="right"))
                last = max(first + 1, min(change, last))
                yield first, last
                first, before = last, int(ends[last - 1])

    def _cut(self, piece: bytes, first: int, last: int) -> Iterator[memoryview]:
        view, start = memoryview(piece), 0
        for size in size_in_bytes(self.rows[first:last]).tolist():
            yield view[start : start + size]
            start += size

    def _encode(self, first: int, last: int, position: int, out: Output) -> None:
        """Write rows of one kind behind what there is; positions count from the output's."""
        these = (
            self._records.core, self.rows, self._starts, self._sizes, first, last, position, out,
        )  # fmt: skip
        packer = self._packers[int(self._kinds[first])]
        if packer is None:
            status, which = _core.write_batches(*these)
        else:
            status, which = _core.compress_batches(*these, packer)
        if status == STATUS["RECORD_TOO_LARGE"]:
            raise RecordInputError(int(self._starts[which]), status)
        self._require_done(status, which)

    def _require_done(self, status: int, fault: int) -> None:
        if status == STATUS["SOURCE_FAULT"]:
            assert self._records.buffers is not None
            self._records.buffers.require_done((status, fault))
        if status != STATUS["OK"]:
            raise RuntimeError(_CHANGED)


def _packer(codec: int, magic: int, level: int | None) -> Packer | None:
    how = compression(codec, level if codec else None, magic=magic)
    return how.packer(magic) if codec else None
