"""What an audit tells from the files beside a log: what is missing, left over, or disagrees."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from kafkascan.audit_findings import FoundInLog
from kafkascan.batch_columns import BatchTable
from kafkascan.checkpoints import LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA
from kafkascan.errors import CorruptCheckpointError, CorruptSnapshotError
from kafkascan.index_checks import parse_index_file
from kafkascan.log_dir import PartitionDir, SegmentFile
from kafkascan.logs import Log
from kafkascan.producers import ProducerState, parse_producer_snapshot
from kafkascan.screening import EPOCHS, FORMATS, OFFSETS
from kafkascan.transaction_follower import Pause

_BESIDE_LOG = re.compile(r"(\d+)\.(index|timeindex|txnindex)")
_SNAPSHOT = re.compile(r"(\d+)\.snapshot")
_LEFTOVER = re.compile(r".+\.(deleted|cleaned|swap)|.+\.part|.+\.tmp|.+\.bak")
_COMPARED = ("producer_epoch", "last_sequence", "last_offset", "current_txn_first_offset")


def check_folder(log: Log, names: Collection[str], found: FoundInLog) -> None:
    """Look at the names of the files of a partition."""
    partition = log.partition
    logs = {name.removesuffix(".log") for name in names if name.endswith(".log")}
    for name in names:
        match = _BESIDE_LOG.fullmatch(name)
        if match is not None and match[1] not in logs:
            found.add("ORPHAN", name, f"there is no {match[1]}.log")
        elif _LEFTOVER.fullmatch(name):
            found.add("LEFTOVER", name, _leftover(name))
    for base in sorted(logs):
        for kind in ("index", "timeindex"):
            if f"{base}.{kind}" not in names:
                found.add("MISSING_INDEX", f"{base}.log", f"there is no {base}.{kind}")
    try:
        partition.topic_id  # noqa: B018 - it is read
    except CorruptCheckpointError as error:
        found.add("BAD_CHECKPOINT", PARTITION_METADATA, error.reason, position=error.position)
    except OSError as error:
        found.add("UNREADABLE", PARTITION_METADATA, str(error))


def _leftover(name: str) -> str:
    if name.endswith(".swap"):
        return "what replaces segments, not yet put in their place"
    if name.endswith(".cleaned"):
        return "what was to replace segments, not complete"
    return "about to be deleted" if name.endswith(".deleted") else "not part of the log"


def check_state(partition: PartitionDir, found: FoundInLog) -> None:
    """Say of a log that no broker would load why that is so."""
    found.add("DROPPED_LOG", None, f"the folder is named as one to be {_STATES[partition.state]}")


_STATES = {"delete": "deleted", "stray": "left out", "future": "moved here", None: "loaded"}


class EpochCheck:
    """
    Holds leader epochs of batches against ``leader-epoch-checkpoint``.

    Parameters
    ----------
    partition : PartitionDir
    found : FoundInLog
    """

    def __init__(self, partition: PartitionDir, found: FoundInLog) -> None:
        self._found = found
        self._starts: NDArray[np.int64] | None = None
        try:
            entries = partition.leader_epochs
        except CorruptCheckpointError as error:
            found.add("BAD_CHECKPOINT", LEADER_EPOCH_CHECKPOINT, error.reason,
                      position=error.position)  # fmt: skip
            return
        except OSError as error:
            found.add("UNREADABLE", LEADER_EPOCH_CHECKPOINT, str(error))
            return
        if entries is not None:
            self._epochs = np.array([one.epoch for one in entries], np.int64)
            self._starts = np.array([one.start_offset for one in entries], np.int64)
            is_ascending = (np.diff(self._epochs) > 0).all() and (np.diff(self._starts) > 0).all()
            if not is_ascending:
                message = "epochs and their offsets do not ascend"
                found.add("EPOCH_MISMATCH", LEADER_EPOCH_CHECKPOINT, message)
                self._starts = None

    def add(self, batches: BatchTable, flags: int) -> None:
        """
        Check the batches that follow.

        Parameters
        ----------
        batches : array of BATCH_DTYPE, shape (n,)
        flags : int
            What there is among them: see `screen`.
        """
        if self._starts is None:
            return
        if not len(batches):
            return
        if flags & (EPOCHS | OFFSETS | FORMATS) or not self._is_of_one_epoch(batches):
            self._check(batches)

    def _is_of_one_epoch(self, batches: BatchTable) -> bool:
        """Tell of batches of one leader epoch, offset by offset, whether the file says so, too."""
        assert self._starts is not None
        first, last = batches[0], batches[len(batches) - 1]
        epoch = first["partition_leader_epoch"]
        at, end = np.searchsorted(
            self._starts, (first["base_offset"], last["base_offset"]), "right"
        ).tolist()
        known = self._epochs[at - 1] if at else epoch
        latest = self._epochs[-1] if len(self._epochs) else -1
        return bool(epoch < 0 or (at == end and known == epoch <= latest))

    def _check(self, batches: BatchTable) -> None:
        assert self._starts is not None
        rows = np.flatnonzero((batches["magic"] >= 2) & (batches["partition_leader_epoch"] >= 0))
        epochs = batches["partition_leader_epoch"][rows].astype(np.int64)
        bases = batches["base_offset"][rows]
        last = self._epochs[-1] if len(self._epochs) else -1
        is_new = epochs > last
        if is_new.any():
            first = int(np.argmax(is_new))
            self._found.add("EPOCHS_BEHIND", LEADER_EPOCH_CHECKPOINT,
                            f"epoch {epochs[first]} of offset {bases[first]} is missing",
                            offset=int(bases[first]), count=int(is_new.sum()))  # fmt: skip
        at = np.searchsorted(self._starts, bases, "right") - 1
        # Before the first entry lies what was deleted, though it may be there still.
        is_wrong = ~is_new & (at >= 0)
        is_wrong[is_wrong] = self._epochs[at[is_wrong]] != epochs[is_wrong]
        if is_wrong.any():
            row = int(np.argmax(is_wrong))
            message = (
                f"offset {bases[row]} is of epoch {self._epochs[at[row]]} by the file, and of"
                f" epoch {epochs[row]} by its batch"
            )
            self._found.add("EPOCH_MISMATCH", LEADER_EPOCH_CHECKPOINT, message,
                            offset=int(bases[row]), count=int(is_wrong.sum()))  # fmt: skip


class SnapshotCheck:
    """
    Holds snapshots of producers against the batches before them.

    What a snapshot at the log's first offset says is believed: it tells of what is gone.

    Parameters
    ----------
    log : Log
    names : collection of str
        Of the files in its folder.
    found : FoundInLog

    Attributes
    ----------
    known : array of PRODUCER_ENTRY or None
        What the snapshot at the log's first offset says.
    """

    def __init__(self, log: Log, names: Collection[str], found: FoundInLog) -> None:
        self._found = found
        self._folder = log.partition.folder
        self._path = log.partition.path
        matches = (_SNAPSHOT.fullmatch(name) for name in names)
        named = {int(match[1]): match[0] for match in matches if match is not None}
        self._left = sorted(named.items(), reverse=True)
        first = (log.segments[0].name.base_offset or 0) if log.segments else 0
        self._first = first
        self._knows_before = first == 0
        self.known: NDArray[np.void] | None = None
        self._last: str | None = None
        while self._left and self._left[-1][0] <= first:
            offset, name = self._left.pop()
            entries = self._read(name)
            if offset == first and entries is not None:
                self.known, self._knows_before = entries, True

    def _read(self, name: str) -> NDArray[np.void] | None:
        try:
            data = self._folder.read(name)
            if data is None:  # a broker may have deleted it meanwhile
                return None
            return parse_producer_snapshot(data, str(self._path / name))
        except OSError as error:
            self._found.add("UNREADABLE", name, str(error))
            return None
        except CorruptSnapshotError as error:
            self._found.add("BAD_SNAPSHOT", name, error.reason, position=error.position)
            return None

    def pauses(self, batches: BatchTable) -> list[Pause]:
        """Return the rows before which there are snapshots, and what compares them."""
        pauses: list[Pause] = []
        bases, row = batches["base_offset"], 0
        while self._left and len(batches) and self._left[-1][0] <= int(bases[-1]):
            offset, name = self._left.pop()
            row = max(row, int(np.argmax(bases >= offset)))
            pauses.append((row, functools.partial(self._compare, offset, name)))
        return pauses

    def finish(self, end_offset: int, state: ProducerState | None, *, is_compacted: bool) -> None:
        """Look at the snapshots that remain; of a compacted log, only those at its end count."""
        for offset, name in reversed(self._left):
            if offset == end_offset:
                self._compare(offset, name, state)
            else:
                self._read(name)
        if is_compacted:
            for file, symbol in list(self._found.spots):
                if symbol == "SNAPSHOT_MISMATCH" and file != self._last:
                    del self._found.spots[file, symbol]

    def _compare(self, offset: int, name: str, state: ProducerState | None) -> None:
        said = self._read(name)
        self._last = name
        if said is None or state is None:
            return
        known = np.sort(state.entries(), order="producer_id")
        said = np.sort(said, order="producer_id")
        row = np.searchsorted(known["producer_id"], said["producer_id"])
        is_known = row < len(known)
        is_known[is_known] = known["producer_id"][row[is_known]] == said["producer_id"][is_known]
        both, mine = said[is_known], known[row[is_known]]
        fields: tuple[str, ...] = _COMPARED
        if not self._knows_before:  # nor where a transaction began, nor what a marker ended
            fields, is_there = _COMPARED[:3], mine["last_offset"] >= 0
            both, mine = both[is_there], mine[is_there]
        for field in fields:
            differs = np.flatnonzero(both[field] != mine[field])
            if len(differs):
                self._note_difference(name, field, both[differs[0]], mine[differs[0]], len(differs))
                return
        strangers = said[~is_known]
        strangers = strangers[strangers["last_offset"] >= self._first]
        if len(strangers) and self._knows_before:
            one = strangers[0]
            message = f"producer {one['producer_id']} has written nothing up to offset {offset}"
            self._found.add("SNAPSHOT_MISMATCH", name, message, count=len(strangers))

    def _note_difference(
        self, name: str, field: str, said: np.void, known: np.void, count: int
    ) -> None:
        message = (
            f"{field} of producer {said['producer_id']} is {known[field]} by the log,"
            f" and {said[field]} by the snapshot"
        )
        self._found.add("SNAPSHOT_MISMATCH", name, message, count=count)


class AbortedCheck:
    """
    Holds the aborted transactions of a log against its ``.txnindex`` files.

    What such a file says too much is found by `check_index`; here is found what it lacks.

    Parameters
    ----------
    found : FoundInLog
    """

    def __init__(self, found: FoundInLog) -> None:
        self._found = found
        self._wanted = np.empty(0, np.int64)
        self._firsts = np.empty(0, np.int64)

    def add(self, aborted: NDArray[np.void]) -> None:
        """Add aborted transactions, in the order of their markers."""
        self._wanted = np.concatenate([self._wanted, aborted["marker_offset"]])
        self._firsts = np.concatenate([self._firsts, aborted["first_offset"]])

    def end_segment(
        self,
        segment: SegmentFile,
        end_offset: int,
        said: NDArray[np.void] | None,
    ) -> None:
        """Compare those that ended in a segment with what its file says."""
        if not len(self._wanted):
            return
        count = int(np.searchsorted(self._wanted, end_offset))
        wanted, firsts = self._wanted[:count], self._firsts[:count]
        self._wanted, self._firsts = self._wanted[count:], self._firsts[count:]
        if said is None or not count:
            return
        wrong = _missing(wanted, firsts, said)
        if wrong:  # a broker may have written both meanwhile, first the log
            again = segment.read_sibling("txnindex")
            said = said if again is None else parse_index_file(again[1], again[0])[0]
            wrong = _missing(wanted, firsts, said)
        if wrong:
            marker, first = wrong[0]
            message = f"the transaction from {first} on that was aborted at {marker} is missing"
            name = segment.path.name.removesuffix(".log") + ".txnindex"
            self._found.add("TXN_INDEX_MISMATCH", name, message, offset=marker, count=len(wrong))


def _missing(
    wanted: NDArray[np.int64], firsts: NDArray[np.int64], said: NDArray[np.void]
) -> list[tuple[int, int]]:
    """Return markers and first offsets of the transactions that an index does not know of."""
    there = dict(zip(said["last_offset"].tolist(), said["first_offset"].tolist(), strict=True))
    return [
        (marker, first)
        for marker, first in zip(wanted.tolist(), firsts.tolist(), strict=True)
        # It may have begun before the log does, or the cleaner took its beginning away.
        if there.get(marker, first + 1) > first
    ]
