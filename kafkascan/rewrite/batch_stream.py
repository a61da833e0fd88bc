"""Stream of rewritten batches: copied where unchanged, encoded where changed."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from kafkascan.batches.columns import BatchTable, join_tables, size_in_bytes
from kafkascan.batches.verify import verify_crcs
from kafkascan.format.errors import record_error
from kafkascan.format.layout import (
    BATCH_DTYPE,
    CONTROL_BIT,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
)
from kafkascan.io.concurrency import group_by_bytes
from kafkascan.io.sources import Source, read_bytes
from kafkascan.records.record_table import RecordTable
from kafkascan.write.batch_encoder import BatchPlan, measure_batches
from kafkascan.write.record_columns import columns_of_table

Buffer = bytes | memoryview

# Bytes of batches that are verified and rewritten together.
_GROUP_SIZE = 1 << 23

FLAGS = TIMESTAMP_TYPE_BIT | TRANSACTIONAL_BIT | CONTROL_BIT
"""Bits of `attributes` that a batch keeps when its codec changes."""


def verified_groups(
    source: Source, tables: Iterable[BatchTable], threads: int | None
) -> Iterator[BatchTable]:
    """
    Split the batches of tables into groups of bounded size, and verify the checksums of each.

    A damaged batch that is encoded again would get a correct checksum. The groups do not depend on
    the tables.

    Raises
    ------
    ChecksumMismatchError
    BatchTableError
        If a row does not describe the batch at its position.
    """
    for rows in _groups(tables):
        wrong = np.flatnonzero(~verify_crcs(source, rows, threads=threads))
        if len(wrong):
            raise record_error("CHECKSUM_MISMATCH", source.path, rows[wrong[0]])
        yield rows


def _groups(tables: Iterable[BatchTable]) -> Iterator[BatchTable]:
    last = np.empty(0, BATCH_DTYPE)
    for table in tables:
        rows = join_tables([last, table]) if len(last) else table
        last = rows[:0]
        for group in group_by_bytes(size_in_bytes(rows), _GROUP_SIZE, exceed=True):
            if len(last):
                yield last
            last = rows[group]
    if len(last):  # which the next table would have continued
        yield last


def blank_rows(count: int) -> BatchTable:
    """Return rows of magic 2 without producer and leader epoch."""
    rows = np.zeros(count, BATCH_DTYPE)
    rows["magic"] = 2
    rows["partition_leader_epoch"] = NO_PARTITION_LEADER_EPOCH
    rows["producer_id"] = NO_PRODUCER_ID
    rows["producer_epoch"] = NO_PRODUCER_EPOCH
    rows["base_sequence"] = NO_SEQUENCE
    return rows


def plan_records(
    records: RecordTable, rows: BatchTable, counts: NDArray[np.int64], level: int | None = None
) -> BatchPlan:
    """
    Plan batches of the records of a table, in its order.

    Parameters
    ----------
    records : RecordTable
    rows : array of BATCH_DTYPE, shape (m,)
        The headers.
    counts : ndarray of int64, shape (m,)
        Number of records in each batch.
    level : int, optional
        See `BatchPlan`.
    """
    starts = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(counts, out=starts[1:])
    columns = columns_of_table(records)
    return BatchPlan(columns, rows, starts, measure_batches(columns, rows, starts), level)


def merge_in_order(
    source: Source,
    batches: BatchTable,
    is_copied: NDArray[np.bool_],
    counts: NDArray[np.int64],
    encoded: Iterator[Buffer],
) -> Iterator[Buffer]:
    """
    Yield copied and encoded batches in the order of the old ones.

    Parameters
    ----------
    source : Source
    batches : array of BATCH_DTYPE, shape (n,)
        The old batches.
    is_copied : ndarray of bool, shape (n,)
        Which of them are copied.
    counts : ndarray of int64, shape (n,)
        How many items of `encoded` replace each of the others.
    encoded : iterator of bytes-like
    """
    positions, sizes = batches["position"], size_in_bytes(batches)
    changes = np.flatnonzero(np.diff(is_copied)) + 1
    bounds = [0, *changes.tolist(), len(batches)]
    for first, last in itertools.pairwise(bounds):
        if first == last:
            continue
        if is_copied[first]:
            yield from _copy_ranges(source, positions[first:last], sizes[first:last])
        else:
            for _ in range(int(counts[first:last].sum())):
                yield next(encoded)


def _copy_ranges(
    source: Source, positions: NDArray[np.int64], sizes: NDArray[np.int64]
) -> Iterator[bytes]:
    """Yield the bytes of batches, adjacent batches together."""
    stops = positions + sizes
    ends = np.append(np.flatnonzero(positions[1:] != stops[:-1]), len(positions) - 1)
    first = 0
    for last in ends.tolist():
        position, stop = int(positions[first]), int(stops[last])
        while position < stop:
            size = min(stop - position, _GROUP_SIZE)
            yield read_bytes(source, position, size)
            position += size
        first = last + 1
    source.require_unshrunk()
