"""The read_committed view of a log: aborted and undecided transactions removed.

A broker sends a consumer with ``isolation.level=read_committed`` the list of aborted
transactions, and no records from the first offset of an open transaction on (KIP-98). A log
contains both: the marker after a producer's batches ends their transaction.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from kafkascan.batches.columns import BatchTable, is_control, is_transactional, last_offset
from kafkascan.batches.scan import iter_batches
from kafkascan.batches.verify import verify_rows
from kafkascan.broker_state.producer_state import COMPLETED_TRANSACTION, ProducerState
from kafkascan.format.errors import CorruptBatchError, record_error
from kafkascan.io.sources import READ_AT_ONCE, Source, borrowed_source
from kafkascan.io.stores.urls import ObjectUrl
from kafkascan.logs.log_finding import find_partition
from kafkascan.logs.log_problems import LogProblems
from kafkascan.logs.opened_logs import LogLike, LogView, at_one_moment
from kafkascan.logs.walking.log_reader import LogReader
from kafkascan.records.read_options import OnCorruptLog
from kafkascan.tables.table import NO_PROBLEMS, Problems

_ROWS = 1 << 14
_HIGHEST_EPOCH = 2**31 - 1


@dataclass(frozen=True, eq=False)
class CommittedView:
    """
    The aborted transactions of a log, and its last stable offset.

    A log may change after its transactions were read. What was appended since is not visible, nor
    what a new leader wrote in place of batches that were read.

    Attributes
    ----------
    last_stable_offset : int
        The first offset of the earliest open transaction; without one, the end of the log that was
        read.
    producer_ids, first_offsets, last_offsets : ndarrays of int64, shape (n,)
        The aborted transactions, by producer and offset.
    problems : Problems
        Because of which transactions are not known.
    leader_epoch : int
        The highest leader epoch of the batches that were read. By default any.
    """

    last_stable_offset: int
    producer_ids: NDArray[np.int64]
    first_offsets: NDArray[np.int64]
    last_offsets: NDArray[np.int64]
    problems: Problems = NO_PROBLEMS
    leader_epoch: int = _HIGHEST_EPOCH

    @classmethod
    def of_aborted(
        cls, aborted: NDArray[np.void], last_stable_offset: int, *, marker_column: str
    ) -> CommittedView:
        """
        Return the view of a log with these aborted transactions.

        Parameters
        ----------
        aborted : structured ndarray, shape (n,)
            With columns ``producer_id``, ``first_offset`` and `marker_column`.
        last_stable_offset : int
            The offset before which all transactions are decided, and the aborted ones given.
        marker_column : str
            Column with the offset of the marker.
        """
        found = aborted[np.lexsort((aborted["first_offset"], aborted["producer_id"]))]
        return cls(
            last_stable_offset,
            found["producer_id"].copy(),
            found["first_offset"].copy(),
            found[marker_column].copy(),
        )

    def mask(self, batches: BatchTable) -> NDArray[np.bool_]:
        """Return which batches are visible; consumers skip control batches themselves."""
        seen = self.are_stable(batches)
        if len(self.producer_ids):
            rows = np.flatnonzero(is_transactional(batches) & ~is_control(batches) & seen)
            seen[rows[self.are_aborted(batches[rows])]] = False
        return seen

    def are_stable(self, batches: BatchTable) -> NDArray[np.bool_]:
        """Return which batches end before the last stable offset, and were not written later."""
        # The offset after the greatest one exceeds 64 bits.
        are_before: NDArray[np.bool_] = last_offset(batches) <= self.last_stable_offset - 1
        return are_before & (batches["partition_leader_epoch"] <= self.leader_epoch)

    def are_aborted(self, batches: BatchTable) -> NDArray[np.bool_]:
        """Return which of the given transactional batches belong to an aborted transaction."""
        aborted = np.zeros(len(batches), np.bool_)
        ends = last_offset(batches)
        for producer_id in np.unique(batches["producer_id"]):
            mine = np.flatnonzero(batches["producer_id"] == producer_id)
            first = np.searchsorted(self.producer_ids, producer_id, "left")
            last = np.searchsorted(self.producer_ids, producer_id, "right")
            at = first + np.searchsorted(self.first_offsets[first:last], ends[mine], "right") - 1
            is_known = at >= first
            known = mine[is_known]
            aborted[known] = batches["base_offset"][known] <= self.last_offsets[at[is_known]]
        return aborted


class CommittedViewBuilder:
    """Builds the `CommittedView` of a log from its batches, which are added in log order."""

    def __init__(self) -> None:
        self._state = ProducerState()
        self._aborted = [np.empty(0, COMPLETED_TRANSACTION)]
        self._end_offset, self._leader_epoch = 0, -1

    def add(self, source: Source, batches: BatchTable) -> None:
        """
        Add the next batches.

        Raises
        ------
        ChecksumMismatchError
            If the checksum of a marker is wrong.
        CorruptBatchError
            If a marker cannot be read.
        """
        if len(batches):
            latest = batches["base_offset"].argmax()
            end_offset = int(last_offset(batches[latest : latest + 1])[0]) + 1
            self._end_offset = max(self._end_offset, end_offset)
            epoch = int(batches["partition_leader_epoch"].max())
            self._leader_epoch = max(self._leader_epoch, epoch)
        batches = batches.take(np.flatnonzero(is_transactional(batches)))
        markers = batches.take(np.flatnonzero(is_control(batches)))
        wrong = np.flatnonzero(~verify_rows(source, markers))
        if len(wrong):
            raise record_error("CHECKSUM_MISMATCH", source.path, markers[wrong[0]])
        completed = self._state.apply(source, batches).require_accepted()
        self._aborted.append(completed[completed["is_aborted"] == 1])

    def view(self, base_offset: int = 0) -> CommittedView:
        """
        Return the view of the batches that were added.

        Parameters
        ----------
        base_offset : int, default 0
            Of the log's last segment: if that is empty, the log ends there.
        """
        aborted = np.concatenate(self._aborted)
        self._aborted = [aborted]
        first_open = self._state.first_open_offset()
        stable = max(self._end_offset, base_offset) if first_open is None else first_open
        view = CommittedView.of_aborted(aborted, stable, marker_column="last_offset")
        return replace(view, leader_epoch=self._leader_epoch)


def read_committed_view(log: LogLike, /, *, on_corrupt: OnCorruptLog = "raise") -> CommittedView:
    """
    Read the transactions of a log from its batch headers and markers.

    Parameters
    ----------
    log : source, path of a partition directory, PartitionDir or LogView
        A source counts as the whole log.
    on_corrupt : {"raise", "stop"}
        What to do at damage: raise, or go on with the next segment and fill in
        `CommittedView.problems`. Nothing is stable from a marker on that cannot be read.

    Returns
    -------
    CommittedView
        For `read_records` and `iter_records`.

    Raises
    ------
    CorruptBatchError, IncompleteLogError
        If the log is damaged: transactions that end after the damage are not known.
    As `scan_batches`.
    """
    if isinstance(log, (str, os.PathLike, ObjectUrl)):
        log = find_partition(log) or log

    def read(views: Sequence[LogView]) -> CommittedView:
        view = views[0]
        return committed_view_of(view, on_corrupt=on_corrupt, is_selection=view.is_single_file)

    return at_one_moment(log, read)


def committed_view_of(
    log: LogView, *, on_corrupt: OnCorruptLog, is_selection: bool = False
) -> CommittedView:
    """
    Read the transactions of a log, from the segments that were listed; see `read_committed_view`.

    Who reads records of a listing that is older than that of its transactions may miss records that
    the transactions make visible.

    Parameters
    ----------
    log : LogView
    on_corrupt : {"raise", "stop"}
    is_selection : bool, default False
        See `LogReader`.
    """
    builder, problems = CommittedViewBuilder(), LogProblems()
    goes_on = on_corrupt == "stop"
    reader = LogReader(
        log, problems, goes_on=goes_on, segments=log.segments, is_selection=is_selection
    )
    unreadable: list[int] = []  # offsets of markers
    for reading in reader:
        with (
            reading,
            borrowed_source(reading.segment.listed(), read_below=READ_AT_ONCE) as source,
        ):
            headers = iter_batches(source, rows=_ROWS, on_corrupt=on_corrupt)
            for table in headers:
                builder.add(source, reading.offsets.take(table))
            reading.end = headers
        if isinstance(reading.error, CorruptBatchError):  # a marker
            unreadable.append(reading.error.base_offset or 0)
    view = builder.view(log.segments[-1].base_offset or 0)
    stable = min([view.last_stable_offset, *unreadable])
    return replace(view, last_stable_offset=stable, problems=problems.found)
