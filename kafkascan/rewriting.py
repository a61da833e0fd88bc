"""Batches of which some are copied and some are encoded, in their order."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from kafkascan.batch_columns import BatchTable, size_in_bytes
from kafkascan.checks import verify_crcs
from kafkascan.encoding import BatchEncoder
from kafkascan.errors import record_error
from kafkascan.layout import (
    BATCH_DTYPE,
    CONTROL_BIT,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
)
from kafkascan.record_columns import columns_of_table
from kafkascan.record_table import RecordTable
from kafkascan.sources import Source
from kafkascan.walks import read_bytes

Buffer = bytes | memoryview

# Bytes of batches that are read, decoded and written at once.
_BYTES_AT_ONCE = 1 << 23

FLAGS = TIMESTAMP_TYPE_BIT | TRANSACTIONAL_BIT | CONTROL_BIT
"""Bits of the attributes that a batch keeps, whatever becomes of its codec."""


def sound_groups(source: Source, batches: BatchTable, threads: int | None) -> Iterator[slice]:
    """
    Cut a table into rows that are worked on at once; their checksums are right.

    What is damaged must not be given a checksum that says otherwise.

    Raises
    ------
    ChecksumMismatchError
    BatchTableError
        If a row does not describe the batch at its position.
    """
    bytes_up_to = np.cumsum(np.maximum(size_in_bytes(batches), 0))
    first = 0
    while first < len(batches):
        before = int(bytes_up_to[first - 1]) if first else 0
        last = 1 + int(np.searchsorted(bytes_up_to, before + _BYTES_AT_ONCE))
        rows = batches[first:last]
        wrong = np.flatnonzero(~verify_crcs(source, rows, threads=threads))
        if len(wrong):
            raise record_error("CHECKSUM_MISMATCH", source.path, rows[wrong[0]])
        yield slice(first, min(last, len(batches)))
        first = last


def blank_rows(count: int) -> BatchTable:
    """Return rows of magic 2 that know no producer and no leader."""
    rows = np.zeros(count, BATCH_DTYPE)
    rows["magic"] = 2
    rows["partition_leader_epoch"] = NO_PARTITION_LEADER_EPOCH
    rows["producer_id"] = NO_PRODUCER_ID
    rows["producer_epoch"] = NO_PRODUCER_EPOCH
    rows["base_sequence"] = NO_SEQUENCE
    return rows


def encoded(
    records: RecordTable, rows: BatchTable, counts: NDArray[np.int64], level: int | None = None
) -> BatchEncoder:
    """
    Return batches of the records of a table, in its order.

    Parameters
    ----------
    records : RecordTable
    rows : array of BATCH_DTYPE, shape (m,)
        What the headers say.
    counts : ndarray of int64, shape (m,)
        Records of each batch.
    level : int, optional
    """
    starts = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(counts, out=starts[1:])
    return BatchEncoder(columns_of_table(records), rows, starts, level=level)


def in_order(
    source: Source,
    batches: BatchTable,
    is_copied: NDArray[np.bool_],
    pieces: NDArray[np.int64],
    written: Iterator[Buffer],
) -> Iterator[Buffer]:
    """
    Yield what becomes of batches, in their order.

    Parameters
    ----------
    source : Source
    batches : array of BATCH_DTYPE, shape (n,)
    is_copied : ndarray of bool, shape (n,)
        Which of them stay as they are.
    pieces : ndarray of int64, shape (n,)
        How many of what is written stand in the place of each of the others.
    written : iterator of bytes-like
    """
    positions, sizes = batches["position"], size_in_bytes(batches)
    changes = np.flatnonzero(np.diff(is_copied)) + 1
    bounds = [0, *changes.tolist(), len(batches)]
    for first, last in itertools.pairwise(bounds):
        if first == last:
            continue
        if is_copied[first]:
            yield from _copied(source, positions[first:last], sizes[first:last])
        else:
            for _ in range(int(pieces[first:last].sum())):
                yield next(written)


def _copied(
    source: Source, positions: NDArray[np.int64], sizes: NDArray[np.int64]
) -> Iterator[bytes]:
    """Yield the bytes of some batches; of those that follow each other, at once."""
    stops = positions + sizes
    ends = np.append(np.flatnonzero(positions[1:] != stops[:-1]), len(positions) - 1)
    first = 0
    for last in ends.tolist():
        position, stop = int(positions[first]), int(stops[last])
        while position < stop:
            size = min(stop - position, _BYTES_AT_ONCE)
            yield read_bytes(source, position, size)
            position += size
        first = last + 1
    source.require_unshrunk()
