"""Batches with their records, up to the first record that cannot be read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafkascan.batches.columns import BatchTable
from kafkascan.dump_log.log_frames import Frame, read_frame
from kafkascan.format.errors import CorruptBatchError, InvalidRecordError
from kafkascan.io.sources import Source
from kafkascan.logs.reading import iter_records
from kafkascan.records.decoding import decode_up_to_damage
from kafkascan.records.read_options import ReadOptions
from kafkascan.records.record_table import RecordTable

_COLUMNS = ("offset", "timestamp", "key", "value", "headers")
_OPTIONS = ReadOptions(columns=_COLUMNS, control="include")
# So many records, and their bytes, stay in the CPU's caches.
_RECORDS_PER_TABLE = 8192


class ReadableBatches(NamedTuple):
    """
    Consecutive batches and their records.

    Attributes
    ----------
    batches : array of BATCH_DTYPE, shape (n,)
    records : RecordTable
    ends : array of int64, shape (n,)
        Records up to the end of each batch.
    source : Source
        What the records lie in, if they are not compressed.
    """

    batches: BatchTable
    records: RecordTable
    ends: NDArray[np.int64]
    source: Source

    def up_to(self, record: int) -> ReadableBatches:
        """Return the records in front of one, and their batches with the one of that record."""
        count = int(np.searchsorted(self.ends, record, "right")) + 1
        ends = np.minimum(self.ends[:count], record)
        return ReadableBatches(self.batches[:count], self.records[:record], ends, self.source)


def readable_batches(
    source: Source, batches: BatchTable, frame: Frame | None
) -> Iterator[ReadableBatches]:
    """
    Yield batches with their records, many at a time.

    Parameters
    ----------
    source : Source
    batches : array of BATCH_DTYPE
    frame : Frame or None
        See `framed_batches`.

    Yields
    ------
    ReadableBatches

    Raises
    ------
    CorruptBatchError
        If the records of a batch cannot be read. What can be read was yielded, also of this
        batch.
    BatchTableError, OSError
        If the file has changed.
    """
    try:
        readable, rows = (source, batches) if frame is None else read_frame(source, batches, frame)
    except CorruptBatchError:
        yield _without_records(source, batches)
        raise
    done = 0
    try:
        for found in _decoded(readable, batches, rows):
            yield found
            done += len(found.batches)
    except CorruptBatchError as error:
        # Batches without records before the damaged one have not been yielded.
        row = max(done, int(np.searchsorted(rows["position"], error.position, "right")) - 1)
        if row > done:
            yield _without_records(readable, batches[done:row])
        damaged = slice(row, row + 1)
        records = decode_up_to_damage(readable, rows[damaged], _OPTIONS)
        yield ReadableBatches(batches[damaged], records, np.array([len(records)]), readable)
        raise error if frame is None else _located(error, source, frame) from error


def _decoded(source: Source, batches: BatchTable, rows: BatchTable) -> Iterator[ReadableBatches]:
    """Yield batches whose records are read at rows of a source."""
    tables = iter_records(
        source, rows, columns=_COLUMNS, control="include", batch_size=_RECORDS_PER_TABLE
    )
    done = 0
    for table in tables:
        of_record = table.batches["position"][table.columns["batch"]]
        stop = done + int(np.searchsorted(rows["position"][done:], of_record[-1], "right"))
        ends = np.searchsorted(of_record, rows["position"][done:stop], "right")
        yield ReadableBatches(batches[done:stop], table, ends, source)
        done = stop
    if done < len(batches):
        yield _without_records(source, batches[done:])


def _without_records(source: Source, batches: BatchTable) -> ReadableBatches:
    records = decode_up_to_damage(source, batches[:0], _OPTIONS)
    return ReadableBatches(batches, records, np.zeros(len(batches), np.int64), source)


def _located(error: CorruptBatchError, source: Source, frame: Frame) -> CorruptBatchError:
    """Return the error of a copied batch with its place in the file."""
    return type(error)(source.path, frame.position, frame.offset, error.reason, error.symbol)


def unprintable_record(
    source: Source, readable: ReadableBatches, row: int, error: ValueError
) -> InvalidRecordError:
    """Return the error of a record that ends the dump: it can be read, but not decoded."""
    batch = readable.batches[int(np.searchsorted(readable.ends, row, "right"))]
    reason = f"the record at offset {readable.records.columns['offset'][row]}: {error}"
    position, base_offset = int(batch["position"]), int(batch["base_offset"])
    return InvalidRecordError(source.path, position, base_offset, reason, "UNDECODABLE_RECORD")
