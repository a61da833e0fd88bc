"""What a follower yields of a log that moves, and what of it has to be true."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import kafkascan as ks
from tests.moving.answers import CHANGED
from tests.moving.clock import Clock
from tests.moving.histories import NAME, begin
from tests.moving.snapshots import Snapshot

_MOST_STEPS, _POLLS = 60, 8
Record = tuple[int, bytes | None, int]


@dataclass
class Followed:
    """
    What a follower yielded of a log that moved meanwhile.

    Attributes
    ----------
    runs : list of list
        Records in the order in which they were yielded. A message begins the next list.
    messages : list of str
    error : Exception or None
        What ended the last poll.
    moments : list of Snapshot
        The data dir at each moment, the last one at rest.
    """

    runs: list[list[Record]] = field(default_factory=lambda: [[]])
    messages: list[str] = field(default_factory=list)
    error: Exception | None = None
    moments: list[Snapshot] = field(default_factory=list)

    def complaint(self) -> str | None:
        """Return what is not true; None if all is."""
        known = {record for moment in self.moments for record in _records(moment)}
        for run in self.runs:
            offsets = [offset for offset, *_ in run]
            if any(later <= earlier for earlier, later in itertools.pairwise(offsets)):
                return f"offsets are not in order: {offsets}"
            if not known.issuperset(run):
                return f"no moment had {[one for one in run if one not in known]}"
        if self.error is not None:
            return None if self._may_fail() else f"error {self.error!r}"
        missing = set(_records(self.moments[-1])) - set(itertools.chain(*self.runs))
        return f"the follower missed {sorted(missing)}" if missing and not self.messages else None

    def _may_fail(self) -> bool:
        is_gone = not all(NAME in moment.folders for moment in self.moments)
        return is_gone or getattr(self.error, "symbol", None) in CHANGED


def _records(moment: Snapshot) -> Iterable[Record]:
    """Return the records in the segments that a broker reads."""
    for name, file in moment.files.items():
        if name.startswith(f"{NAME}/") and name.endswith(".log") and "/." not in name:
            yield from _decoded(ks.read_records(file.content, on_corrupt="stop"))


def _decoded(table: ks.RecordTable) -> Iterable[Record]:
    times = table["timestamp"].tolist()
    return zip(table["offset"].tolist(), table.items("key"), times, strict=True)


def follow_moving_log(folder: Path, history: str, seed: int) -> Followed:
    """Follow a log while a history goes on in a folder, and until it is at rest."""
    dice = random.Random(f"follow, {history}, {seed}")
    data_dir = folder / "now" / "data"
    clock = Clock(data_dir, begin(data_dir, history, dice), dice, _MOST_STEPS)
    clock.keep()
    followed = Followed(moments=clock.moments)
    try:
        follower = ks.logs.LogFollower(data_dir / NAME)
        with clock.running():
            for _ in range(_POLLS):
                _poll(follower, followed)
        for _ in range(3):
            _poll(follower, followed)
    except (OSError, ks.KafkaScanError) as error:
        followed.error = error
    return followed


def _poll(follower: ks.logs.LogFollower, followed: Followed) -> None:
    for polled in follower.poll():
        _note_messages(follower, followed)
        followed.runs[-1] += _decoded(ks.read_records(polled.source, polled.batches))
    _note_messages(follower, followed)


def _note_messages(follower: ks.logs.LogFollower, followed: Followed) -> None:
    if follower.messages:
        followed.messages += follower.messages
        followed.runs.append([])
        follower.messages.clear()
