"""How many records logs hold, exactly: from batch headers, where those tell it."""

from __future__ import annotations

import bisect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kafkascan import arrow
from kafkascan.batch_columns import BatchTable, is_control, is_transactional
from kafkascan.batches import iter_batches
from kafkascan.committed import CommittedView
from kafkascan.decoding import iter_decoded
from kafkascan.logs import ControlLook, ControlLooks, Log, LogsLike, LogWalk, Piece, open_logs
from kafkascan.screening import CONTROL, FORMATS, TRANSACTIONS
from kafkascan.transaction_follower import follower_of
from kafkascan.transactions import TRANSACTION, TransactionState

if TYPE_CHECKING:
    import pyarrow as pa

COUNTS = np.dtype(
    [
        ("segments", "=i8"),
        ("batches", "=i8"),
        ("start_offset", "=i8"),
        ("end_offset", "=i8"),
        ("last_stable_offset", "=i8"),
        ("records", "=i8"),
        ("uncounted_batches", "=i8"),
        ("transactional_records", "=i8"),
        ("aborted_records", "=i8"),
        ("open_records", "=i8"),
        ("committed_records", "=i8"),
        ("control_records", "=i8"),
        ("missing_offsets", "=i8"),
        ("size_in_bytes", "=i8"),
    ]
)
"""What a log holds. ``records`` are those that a consumer gets that reads all of it, as they are
there: what compaction has removed is not among them. Of these, ``transactional_records`` belong
to transactions, ``aborted_records`` to aborted ones, ``open_records`` to those that nothing has
ended (those of them that the log still has: a transaction may have begun before the first
segment); ``committed_records`` are those that a read_committed consumer gets, which stops at the
``last_stable_offset``. ``control_records`` are markers and KRaft's own. ``uncounted_batches`` are
compressed messages of magic 0 and 1 whose records only decompression counts; where there are
any, and they were not decompressed, ``records`` and ``committed_records`` lack theirs.
``missing_offsets`` is how many offsets from the first batch to the end no record has."""


@dataclass(frozen=True, eq=False)
class RecordCounts:
    """
    How many records some logs hold; what `count_records` returns.

    Attributes
    ----------
    logs : list of Log
    counts : ndarray of COUNTS, shape (logs,)
    errors : dict of int to Exception
        By log: what ends what was counted.
    """

    logs: list[Log]
    counts: NDArray[np.void]
    errors: dict[int, Exception]

    @property
    def is_exact(self) -> NDArray[np.bool_]:
        """Of which logs all records were counted."""
        exact: NDArray[np.bool_] = self.counts["uncounted_batches"] == 0
        exact = exact.copy()
        exact[list(self.errors)] = False
        return exact

    def to_columns(self) -> dict[str, list[Any]]:
        """Return the table as lists."""
        columns: dict[str, list[Any]] = {
            "topic": [log.partition.topic for log in self.logs],
            "partition": [log.partition.partition for log in self.logs],
        }
        columns |= {name: self.counts[name].tolist() for name in COUNTS.names or ()}
        columns["is_exact"] = self.is_exact.tolist()
        return columns

    def to_arrow(self) -> pa.Table:
        """Return the table as Arrow's."""
        pa = arrow.require_pyarrow()
        types = {"topic": pa.string(), "partition": pa.int32()}
        columns = self.to_columns()
        return pa.table({name: pa.array(of, types.get(name)) for name, of in columns.items()})

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Arrow's PyCapsule stream of `to_arrow`."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        said = "" if self.is_exact.all() else ", and some that were not counted"
        return f"<RecordCounts: {self.counts['records'].sum():,} records{said}>"


def count_records(
    logs: LogsLike, /, *, deep: bool = False, threads: int | None = None
) -> RecordCounts:
    """
    Count records, those that are there, from batch headers and markers.

    Parameters
    ----------
    logs : path, LogDir, PartitionDir, bytes-like, Source or Segment
        As of `read_transactions`.
    deep : bool, default False
        Decompress compressed messages of magic 0 and 1, too, whose headers do not tell how
        many records they hold.
    threads : int, optional
        Segments that are read at once; by default one per CPU. Small ones are read in turn.

    Returns
    -------
    RecordCounts

    Raises
    ------
    As `open_log_dir`.

    Notes
    -----
    The header of a batch of magic 2 says how many records it holds, also after compaction
    (``MemoryRecords.filterTo``). Which transactions were aborted is told by their markers.
    """
    opened = open_logs(logs)
    counts = np.zeros(len(opened), COUNTS)
    for name in ("start_offset", "end_offset", "last_stable_offset"):
        counts[name] = -1
    counters: dict[int, _Counter] = {}
    errors: dict[int, Exception] = {}
    for piece in LogWalk(opened, threads, DeepLooks if deep else ControlLooks):
        number = piece.log
        counter = counters.setdefault(number, _Counter(opened[number], number, counts[number]))
        counter.add(piece)
        if piece.is_last:
            counter.finish()
            if counter.follower.error is not None:
                errors[number] = counter.follower.error
            del counters[number]
    return RecordCounts(opened, counts, errors)


class _Counter:
    """Counts the records of one log into a row."""

    def __init__(self, log: Log, number: int, row: np.void) -> None:
        self.follower = follower_of(log, number)
        self._log = log
        self._row = row
        # What may lie behind the last stable offset; only then are they asked for again.
        self._aborted = np.empty(0, TRANSACTION)

    def add(self, piece: Piece) -> None:
        """Add the batches that follow."""
        row, batches = self._row, piece.batches
        ended = self.follower.add(piece)
        if self.follower.error is not None and not len(batches):
            return
        is_aborted = ended["state"] == TransactionState.ABORTED
        aborted = ended[is_aborted & (ended["batches"] > 0)]
        row["aborted_records"] += aborted["records"].sum()
        stable = self.follower.last_stable_offset
        known = np.concatenate([self._aborted, aborted])
        self._aborted = known[known["marker_offset"] >= stable]
        row["segments"] += len(piece.chunk.ends)
        row["size_in_bytes"] += sum(end.valid_bytes for end in piece.chunk.ends)
        row["batches"] += len(batches)
        if row["start_offset"] < 0:
            row["start_offset"] = self._start_offset(batches)
        inner = sum(getattr(look, "inner_records", 0) for _, look in piece.chunk.looks)
        is_counted = any(isinstance(look, DeepLook) for _, look in piece.chunk.looks)
        if piece.flags & FORMATS and not is_counted:
            row["uncounted_batches"] += is_uncounted(batches).sum()
        # Each look at all rows costs much of what reading them does.
        control = is_control(batches) if piece.flags & CONTROL else np.False_
        of_control = records_in(batches, control) if piece.flags & CONTROL else 0
        row["records"] += records_in(batches, np.True_) - of_control + inner
        row["control_records"] += of_control
        if piece.flags & TRANSACTIONS:
            row["transactional_records"] += records_in(
                batches, is_transactional(batches) & ~control
            )

    def _start_offset(self, batches: BatchTable) -> int:
        named = self._log.segments[0].name.base_offset
        if named is not None:
            return named
        return int(batches["base_offset"][0]) if len(batches) else -1

    def finish(self) -> None:
        """Count what is known when all of the log was seen."""
        row, follower = self._row, self.follower
        row["end_offset"] = follower.end_offset
        row["last_stable_offset"] = follower.last_stable_offset
        row["open_records"] = follower.open_ones()["records"].sum()
        row["committed_records"] = row["records"] - row["aborted_records"]
        # What is open may have begun before the log does, and have no records in it.
        if follower.last_stable_offset < follower.end_offset:
            row["committed_records"] -= self._count_beyond(follower.last_stable_offset)
        there = int(row["records"]) + int(row["control_records"])
        is_known = row["uncounted_batches"] == 0 and row["start_offset"] >= 0
        missing = int(row["end_offset"]) - int(row["start_offset"]) - there
        row["missing_offsets"] = missing if is_known and missing >= 0 else -1

    def _count_beyond(self, stable: int) -> int:
        """Return how many records from an offset on are not of aborted transactions."""
        by_producer = np.sort(self._aborted, order=("producer_id", "first_offset"))
        view = CommittedView(
            2**63 - 1,
            by_producer["producer_id"].copy(),
            by_producer["first_offset"].copy(),
            by_producer["marker_offset"].copy(),
        )
        total = 0
        bases = [one.name.base_offset or 0 for one in self._log.segments]
        first = max(0, bisect.bisect_right(bases, stable) - 1)
        for segment in self._log.segments[first:]:
            with segment.borrow() as source:
                for table in iter_batches(source, on_corrupt="stop"):
                    is_beyond = (table["base_offset"] >= stable) & ~is_control(table)
                    total += records_in(table, is_beyond & view.mask(table))
        return total


def records_in(batches: BatchTable, mask: NDArray[np.bool_] | np.bool) -> int:
    """Return how many records the headers of some batches promise."""
    counts = batches["records_count"]
    return int(counts.sum(dtype=np.int64, where=mask & (counts > 0)))


def is_uncounted(batches: BatchTable) -> NDArray[np.bool_]:
    """Tell which are compressed messages of magic 0 and 1."""
    result: NDArray[np.bool_] = (batches["records_count"] < 0) & (batches["magic"] < 2)
    return result


@dataclass(frozen=True, eq=False)
class DeepLook(ControlLook):
    """What is found of each table: also the records in compressed messages."""

    inner_records: int


class DeepLooks(ControlLooks):
    """Counts also what compressed messages of magic 0 and 1 hold; a `SegmentLook`."""

    def table(self, batches: BatchTable) -> DeepLook:
        """Read the control batches among some, and decompress the wrappers."""
        wrappers = batches.take(np.flatnonzero(is_uncounted(batches)))
        found = iter_decoded(self._source, wrappers, columns=("offset",))
        inner = sum(map(len, found)) if len(wrappers) else 0
        look = super().table(batches)
        return DeepLook(look.flags, look.control, inner)
