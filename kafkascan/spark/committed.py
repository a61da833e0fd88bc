"""What a consumer with ``isolation.level=read_committed`` would see of a log.

A broker tells such a consumer which transactions were aborted, and nothing from the first
offset of an open one on (KIP-98). Both stand in the log: the marker that follows a producer's
batches says how their transaction ended.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kafkascan.batch_columns import BatchTable, is_control, is_transactional, last_offset
from kafkascan.checks import verify_rows
from kafkascan.errors import record_error
from kafkascan.producers import COMPLETED_TRANSACTION, ProducerState, RefusedBatchError
from kafkascan.sources import Source
from kafkascan.spark.files import FoundFile, open_file
from kafkascan.spark.options import Options
from kafkascan.spark.ranges import RangeWalk

_ROWS = 1 << 14
_LOGS_KEPT = 4
_NEVER = 2**63 - 1


@dataclass(frozen=True)
class CommittedView:
    """
    How the transactions of a log ended.

    Attributes
    ----------
    last_stable_offset : int
        The first offset of a transaction that is open where the log ends.
    producer_ids, first_offsets, last_offsets : ndarrays of int64, shape (n,)
        The aborted transactions, by producer and offset.
    """

    last_stable_offset: int
    producer_ids: NDArray[np.int64]
    first_offsets: NDArray[np.int64]
    last_offsets: NDArray[np.int64]

    def mask(self, batches: BatchTable) -> NDArray[np.bool_]:
        """Tell which batches the consumer gets to see."""
        seen: NDArray[np.bool_] = batches["base_offset"] < self.last_stable_offset
        rows = np.flatnonzero(is_transactional(batches) & ~is_control(batches) & seen)
        if len(rows) and len(self.producer_ids):
            seen[rows[self._are_aborted(batches[rows])]] = False
        return seen

    def _are_aborted(self, batches: BatchTable) -> NDArray[np.bool_]:
        """Those that lie in the last aborted transaction of their producer before them."""
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


def committed_view(log: Sequence[FoundFile], options: Options) -> CommittedView:
    """
    Read the transactions of a log, from its headers and markers.

    Parameters
    ----------
    log : sequence of FoundFile
        All of its segments, in order.
    options : Options

    Raises
    ------
    CorruptBatchError
        If the log is damaged: what ends there, or was open, cannot be known.
    """
    key = tuple(log)
    if key not in _views:
        _views[key] = _read(key, options)
        while len(_views) > _LOGS_KEPT:
            _views.popitem(last=False)
    return _views[key]


# A worker gets the ranges of a log one after the other.
_views: OrderedDict[tuple[FoundFile, ...], CommittedView] = OrderedDict()


def _read(log: Sequence[FoundFile], options: Options) -> CommittedView:
    followed = TransactionsFollowed()
    for file in log:
        source = open_file(file, options)
        walk = RangeWalk(source, 0, source.size)
        for table in walk.tables(_ROWS):
            followed.add(source, table)
        if walk.error is not None:
            raise walk.error
    return followed.view()
