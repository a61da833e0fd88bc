"""What a consumer with ``isolation.level=read_committed`` would see of a log.

A broker tells such a consumer which transactions were aborted, and nothing from the first
offset of an open one on (KIP-98). Both stand in the log: the marker that follows a producer's
batches says how their transaction ended.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from kafkascan.batch_columns import BatchTable, is_control, is_transactional, last_offset
from kafkascan.batches import iter_batches
from kafkascan.checks import verify_rows
from kafkascan.errors import record_error
from kafkascan.log_dir import PartitionDir, partition_dir
from kafkascan.producers import COMPLETED_TRANSACTION, ProducerState, RefusedBatchError
from kafkascan.sources import Source, SourceLike, borrowed_source

LogLike: TypeAlias = "SourceLike | PartitionDir"
"""A source, the folder of a partition, or its path."""

_NEVER = 2**63 - 1
_ROWS = 1 << 14


@dataclass(frozen=True, eq=False)
class CommittedView:
    """
    How the transactions of a log ended.

    Attributes
    ----------
    last_stable_offset : int
        The first offset of a transaction that is open where the log ends; 2**63 - 1 if there
        is none.
    producer_ids, first_offsets, last_offsets : ndarrays of int64, shape (n,)
        The aborted transactions, by producer and offset.
    """

    last_stable_offset: int
    producer_ids: NDArray[np.int64]
    first_offsets: NDArray[np.int64]
    last_offsets: NDArray[np.int64]

    def mask(self, batches: BatchTable) -> NDArray[np.bool_]:
        """Tell which batches the consumer gets to see; it skips control batches by itself."""
        seen: NDArray[np.bool_] = batches["base_offset"] < self.last_stable_offset
        rows = np.flatnonzero(is_transactional(batches) & ~is_control(batches) & seen)
        if len(rows) and len(self.producer_ids):
            seen[rows[self.are_aborted(batches[rows])]] = False
        return seen

    def are_aborted(self, batches: BatchTable) -> NDArray[np.bool_]:
        """Tell of transactional batches which lie in an aborted transaction."""
        aborted = np.zeros(len(batches), np.bool_)
        ends = last_offset(batches)
        for producer_id in np.unique(batches["producer_id"]):
            mine = np.flatnonzero(batches["producer_id"] == producer_id)
            first, last = np.searchsorted(self.producer_ids, [producer_id, producer_id + 1])
            at = first + np.searchsorted(self.first_offsets[first:last], ends[mine], "right") - 1
            is_known = at >= first
            known = mine[is_known]
            aborted[known] = batches["base_offset"][known] <= self.last_offsets[at[is_known]]
        return aborted


class TransactionsFollowed:
    """How transactions end, found by going through a log in order."""

    def __init__(self) -> None:
        self._state = ProducerState()
        self._aborted = [np.empty(0, COMPLETED_TRANSACTION)]

    def add(self, source: Source, batches: BatchTable) -> None:
        """
        Add the batches that follow.

        Raises
        ------
        ChecksumMismatchError
            If that of a marker is wrong: what it says is not to be guessed.
        CorruptBatchError
            If a marker cannot be read.
        """
        batches = batches.take(np.flatnonzero(is_transactional(batches)))
        markers = batches.take(np.flatnonzero(is_control(batches)))
        wrong = np.flatnonzero(~verify_rows(source, markers))
        if len(wrong):
            raise record_error("CHECKSUM_MISMATCH", source.path, markers[wrong[0]])
        try:
            completed = self._state.apply(source, batches)
        except RefusedBatchError as refused:
            raise refused.error from None
        self._aborted.append(completed[completed["is_aborted"] == 1])

    def view(self) -> CommittedView:
        """Return what is known so far."""
        found = np.sort(np.concatenate(self._aborted), order=("producer_id", "first_offset"))
        self._aborted = [found]
        opened = self._state.entries()["current_txn_first_offset"]
        return CommittedView(
            int(min(opened[opened >= 0], default=_NEVER)),
            found["producer_id"].copy(),
            found["first_offset"].copy(),
            found["last_offset"].copy(),
        )


def read_committed_view(log: LogLike, /) -> CommittedView:
    """
    Read how the transactions of a log ended, from its headers and markers.

    Parameters
    ----------
    log : source, path of a partition's folder, or PartitionDir
        A source is taken as all there is of its log.

    Returns
    -------
    CommittedView
        For `read_records` and `iter_records`.

    Raises
    ------
    CorruptBatchError
        If the log is damaged: what ends behind the damage cannot be known.
    As `scan_batches`.
    """
    followed = TransactionsFollowed()
    for source in log_sources(log):
        with source as owner:
            for table in iter_batches(owner, rows=_ROWS):
                followed.add(owner, table)
    return followed.view()


def log_sources(log: LogLike) -> Iterator[borrowed_source]:
    """Go through the segments of a log, or the one that a source is."""
    if isinstance(log, (str, os.PathLike)) and os.path.isdir(log):
        log = partition_dir(log)
    if isinstance(log, PartitionDir):
        for segment in log.log_segments:
            yield segment.borrow()
    else:
        yield borrowed_source(log)
