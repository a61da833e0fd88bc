"""Audit checks on leader epochs: their order, and ``leader-epoch-checkpoint``."""

from __future__ import annotations

import itertools
from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kafkascan.auditing.finding_kinds import FoundInLog
from kafkascan.batches.columns import BatchTable
from kafkascan.batches.resyncing.offset_chains import heaviest_ascending
from kafkascan.batches.screening import EPOCHS, FORMATS, OFFSETS
from kafkascan.broker_state.checkpoints import LEADER_EPOCH_CHECKPOINT, LeaderEpoch
from kafkascan.format.errors import CorruptCheckpointError
from kafkascan.logs.log_dir import PartitionDir

OUT_OF_ORDER = "leader epoch {partition_leader_epoch} contradicts the epochs of the batches around"
_SIDE_FILES = ("index", "timeindex", "snapshot", "metadata")


def rows_out_of_order(batches: BatchTable) -> NDArray[np.intp]:
    """Return the fewest rows whose leader epochs contradict those of the other rows."""
    rows, heads, counts = _runs(batches)
    kept = _in_order(batches["partition_leader_epoch"][rows[heads]], counts, -1)
    odd: NDArray[np.intp] = rows[np.repeat(~kept, counts)]
    return odd


def _runs(batches: BatchTable) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.int64]]:
    """Return the rows that have leader epochs, and the starts and sizes of runs of one epoch."""
    rows = np.flatnonzero((batches["magic"] >= 2) & (batches["partition_leader_epoch"] >= 0))
    epochs = batches["partition_leader_epoch"][rows]
    heads = np.flatnonzero(np.append(len(rows) > 0, epochs[1:] != epochs[:-1]))
    return rows, heads, np.diff(np.append(heads, len(rows)))


def _in_order(
    epochs: NDArray[np.int32], counts: NDArray[np.int64], before: int
) -> NDArray[np.bool_]:
    """
    Select runs whose epochs do not descend, with the greatest number of batches.

    If two selections have as many, epochs that occur in several runs are preferred.
    """
    if (epochs[1:] >= epochs[:-1]).all():
        return np.ones(len(epochs), np.bool_)
    keys = epochs.astype(np.int64) * len(epochs) + np.arange(len(epochs))
    _, number, times = np.unique(epochs, return_inverse=True, return_counts=True)
    is_resumed = (times[number] > 1) | (epochs == before)
    return heaviest_ascending(keys, keys, 2 * counts + is_resumed)


@dataclass(eq=False)
class EpochFile:
    """
    The entries of a ``leader-epoch-checkpoint``.

    Attributes
    ----------
    epochs, starts : ndarray of int64
        Ascending.
    is_missing : bool
        Whether there is no such file.
    """

    epochs: NDArray[np.int64]
    starts: NDArray[np.int64]
    is_missing: bool = False

    @property
    def latest(self) -> int:
        """The last epoch; -1 without entries."""
        return self.latest_entry.epoch

    @property
    def latest_entry(self) -> LeaderEpoch:
        """The last entry; epoch -1 at offset 0 without entries."""
        if not len(self.epochs):
            return LeaderEpoch(-1, 0)
        return LeaderEpoch(int(self.epochs[-1]), int(self.starts[-1]))

    def has_epoch_of(self, first_offset: int, last_offset: int, epoch: int) -> bool:
        """Return whether all offsets of a range have an epoch, or are before the first entry."""
        at, end = np.searchsorted(self.starts, (first_offset, last_offset), "right").tolist()
        known = self.epochs[at - 1] if at else epoch
        return bool(at == end and known == epoch <= self.latest)


def read_epoch_file(
    partition: PartitionDir, names: Collection[str], found: FoundInLog
) -> EpochFile | None:
    """
    Read ``leader-epoch-checkpoint``; return None if it cannot be used.

    Parameters
    ----------
    partition : PartitionDir
    names : collection of str
        Names of the files in its folder: a copy of ``.log`` files alone lacks nothing.
    found : FoundInLog
    """
    with found.reading(LEADER_EPOCH_CHECKPOINT, "BAD_CHECKPOINT"):
        entries = partition.leader_epochs
        if entries is None and not any(name.endswith(_SIDE_FILES) for name in names):
            return None
        pairs = itertools.pairwise(entries or ())
        if all(a.epoch < b.epoch and a.start_offset < b.start_offset for a, b in pairs):
            epochs = np.array([one.epoch for one in entries or ()], np.int64)
            starts = np.array([one.start_offset for one in entries or ()], np.int64)
            return EpochFile(epochs, starts, is_missing=entries is None)
        message = "epochs and their start offsets do not ascend"
        found.add("EPOCH_MISMATCH", LEADER_EPOCH_CHECKPOINT, message)
    return None


@dataclass
class _Tally:
    """Differences between batches and the file: their number, and the message of the first."""

    count: int = 0
    offset: int = -1
    message: str = ""

    def add(self, count: int, offset: int, message: str) -> None:
        if not self.count:
            self.offset, self.message = offset, message
        self.count += count


@dataclass
class _Run:
    """The last batches of a log, which have one epoch; those that follow may contradict it."""

    epoch: int
    segment: int
    position: int
    offset: int
    batches: int = 0
    is_behind: _Tally = field(default_factory=_Tally)
    is_wrong: _Tally = field(default_factory=_Tally)


class EpochChecks:
    """
    Checks the order of leader epochs, and compares them with ``leader-epoch-checkpoint``.

    Batches that contradict more batches around them are one finding each, and are not compared.

    Parameters
    ----------
    file : EpochFile or None
        None if there is nothing to compare.
    found : FoundInLog
    names : list of str
        Names of the segments' files.
    """

    def __init__(self, file: EpochFile | None, found: FoundInLog, names: list[str]) -> None:
        self._file = file
        self._found = found
        self._names = names
        self._settled = -1
        self._last: _Run | None = None

    def add(self, batches: BatchTable, segment: NDArray[np.int32], flags: int) -> None:
        """
        Check the next batches.

        Parameters
        ----------
        batches : array of BATCH_DTYPE, shape (n,)
        segment : array of int32, shape (n,)
            Index of each batch's segment.
        flags : int
            Properties of the batches; see `screen`.
        """
        if not len(batches):
            return
        if flags & (EPOCHS | OFFSETS | FORMATS) or not self._continues(batches):
            self._check(batches, segment)
            return
        if self._last is None and batches["partition_leader_epoch"][0] >= 0:
            self._last = _run_at(batches, segment, 0)
        if self._last is not None:
            self._last.batches += len(batches)

    def _continues(self, batches: BatchTable) -> bool:
        """Return whether consecutive batches of one epoch have the last one, as in the file."""
        first, last = batches[0], batches[len(batches) - 1]
        epoch = int(first["partition_leader_epoch"])
        if epoch < 0:
            return True
        if epoch < self._settled or (self._last is not None and epoch != self._last.epoch):
            return False
        offsets = int(first["base_offset"]), int(last["base_offset"])
        return self._file is None or self._file.has_epoch_of(*offsets, epoch)

    def _check(self, batches: BatchTable, segment: NDArray[np.int32]) -> None:
        rows, heads, counts = _runs(batches)
        if not len(rows):
            return
        epochs = batches["partition_leader_epoch"][rows[heads]]
        last = self._last
        if last is None:
            kept = _in_order(epochs, counts, self._settled)
        else:
            all_epochs = np.append(np.int32(last.epoch), epochs)
            kept = _in_order(all_epochs, np.append(last.batches, counts), self._settled)
            if not kept[0]:
                self._note_odd(last)
                self._last = last = None
            kept = kept[1:]
        kept &= epochs >= self._settled
        odd = rows[np.repeat(~kept, counts)]
        for at in odd[np.unique(segment[odd], return_index=True)[1]].tolist():
            count = int((segment[odd] == segment[at]).sum())
            self._note_odd(_run_at(batches, segment, at), count)
        if kept.any():
            is_kept = np.repeat(kept, counts)
            self._extend(batches, segment, rows[is_kept])

    def _extend(
        self, batches: BatchTable, segment: NDArray[np.int32], rows: NDArray[np.intp]
    ) -> None:
        """Settle all epochs up to the last one, and begin or extend its run."""
        epochs = batches["partition_leader_epoch"][rows]
        is_last = epochs == epochs[-1]
        if self._last is not None and self._last.epoch != int(epochs[-1]):
            self._settle(self._last)
            self._last = None
        if not is_last.all():
            before = _run_at(batches, segment, int(rows[0]))
            before.epoch = int(epochs[~is_last][-1])
            self._compare(before, batches, rows[~is_last])
            self._settle(before)
        current = self._last or _run_at(batches, segment, int(rows[is_last][0]))
        current.batches += int(is_last.sum())
        self._compare(current, batches, rows[is_last])
        self._last = current

    def _compare(self, run: _Run, batches: BatchTable, rows: NDArray[np.intp]) -> None:
        """Count the batches of a run that differ from the file."""
        if self._file is None:
            return
        epochs = batches["partition_leader_epoch"][rows].astype(np.int64)
        bases = batches["base_offset"][rows]
        is_new = epochs > self._file.latest
        if is_new.any():
            one = int(np.argmax(is_new))
            what = "the file is missing, and with it " if self._file.is_missing else ""
            message = f"{what}epoch {epochs[one]} of offset {bases[one]}"
            message += "" if self._file.is_missing else " is missing"
            run.is_behind.add(int(is_new.sum()), int(bases[one]), message)
        at = np.searchsorted(self._file.starts, bases, "right") - 1
        # Batches before the first entry were deleted, though they may still be stored.
        is_wrong = ~is_new & (at >= 0)
        is_wrong[is_wrong] = self._file.epochs[at[is_wrong]] != epochs[is_wrong]
        if is_wrong.any():
            one = int(np.argmax(is_wrong))
            message = (
                f"offset {bases[one]} has epoch {self._file.epochs[at[one]]} in the file, but"
                f" epoch {epochs[one]} in its batch"
            )
            run.is_wrong.add(int(is_wrong.sum()), int(bases[one]), message)

    def _settle(self, run: _Run) -> None:
        """Add the findings about batches whose order is known to be right."""
        self._settled = run.epoch
        for symbol, tally in (("EPOCHS_BEHIND", run.is_behind), ("EPOCH_MISMATCH", run.is_wrong)):
            if tally.count:
                self._found.add(symbol, LEADER_EPOCH_CHECKPOINT, tally.message,
                                offset=tally.offset, count=tally.count)  # fmt: skip

    def _note_odd(self, run: _Run, count: int = 0) -> None:
        message = OUT_OF_ORDER.format(partition_leader_epoch=run.epoch)
        self._found.add(
            "EPOCH_BACKWARDS", self._names[run.segment], message,
            position=run.position, offset=run.offset, count=count or run.batches,
        )  # fmt: skip

    def finish(self, partition: PartitionDir) -> None:
        """Add the findings about the last batches; a broker may have begun an epoch meanwhile."""
        last = self._last
        if last is None:
            return
        if last.is_behind.count and last.epoch in _epochs_now(partition):
            last.is_behind = _Tally()
        self._settle(last)


def _run_at(batches: BatchTable, segment: NDArray[np.int32], row: int) -> _Run:
    """Return an empty run that begins with a batch."""
    batch = batches[row]
    return _Run(
        epoch=int(batch["partition_leader_epoch"]),
        segment=int(segment[row]),
        position=int(batch["position"]),
        offset=int(batch["base_offset"]),
    )


def _epochs_now(partition: PartitionDir) -> set[int]:
    try:
        return {one.epoch for one in partition.leader_epochs or ()}
    except (OSError, CorruptCheckpointError):
        return set()
