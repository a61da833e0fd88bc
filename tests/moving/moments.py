"""What a reader says of a log that moves, and what it says of each of its moments."""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import kafkascan as ks
from tests.moving.answers import CHANGED, Answer
from tests.moving.clock import Clock
from tests.moving.histories import NAME, begin
from tests.moving.readers import READERS, ROW_READERS
from tests.moving.snapshots import Files, Snapshot

_MOST_STEPS = 40


@dataclass(frozen=True)
class MovingAnswer:
    """
    What a reader said of a log that moved meanwhile.

    Attributes
    ----------
    reader : str
    found : tuple
    moments : list of Snapshot
        The data dir as it was at the moments of which the answer may be true.
    """

    reader: str
    found: Answer
    moments: list[Snapshot]

    @property
    def says_changed(self) -> bool:
        """Whether the answer says that the log changed."""
        return any(symbol in repr(self.found) for symbol in CHANGED)

    def is_true(self) -> bool:
        """
        Return whether the answer is that of a moment, or says that the log changed.

        Of some answers, each row is that of a moment: see `ROW_READERS`.
        """
        if self.says_changed:
            return True
        is_error = self.found[:1] == ("error",) or "UNREADABLE" in repr(self.found)
        if is_error and not all(NAME in moment.folders for moment in self.moments):
            return True
        if self.reader in ROW_READERS:
            moments = [set(answer[0]) for answer in self.answers()]
            return set.intersection(*moments) <= set(self.found[0]) <= set.union(*moments)
        return self.found in self.answers() or self.found in self._answers_that_end_earlier()

    def answers(self) -> Iterator[Answer]:
        """Yield what the reader says of each moment."""
        return self._answers_of(self.moments)

    def _answers_that_end_earlier(self) -> Iterator[Answer]:
        """
        Yield what the reader says of each moment, without what was appended since an earlier one.

        A reader that sees retention at work takes a newer listing, and still ends where it was to.
        """
        cut: list[Snapshot] = []
        for number, moment in enumerate(self.moments):
            for earlier in self.moments[:number]:
                snapshot = _cut_at_end_of(earlier, moment)
                if snapshot is not None and snapshot not in cut and snapshot not in self.moments:
                    cut.append(snapshot)
        return self._answers_of(cut)

    def _answers_of(self, snapshots: Iterable[Snapshot]) -> Iterator[Answer]:
        for snapshot in snapshots:
            with tempfile.TemporaryDirectory() as folder:
                data_dir = Path(folder, "moment", "data")
                snapshot.write(data_dir)
                yield _answer(self.reader, data_dir / NAME)


def _cut_at_end_of(earlier: Snapshot, moment: Snapshot) -> Snapshot | None:
    """Return a moment without what was appended since an earlier one; None if there is no such."""
    last = max(_logs(earlier.files), default=None)
    if last is None or last not in moment.files:
        return None
    size = len(earlier.files[last].content)
    if len(moment.files[last].content) < size:
        return None
    later = {name for name in _logs(moment.files) if name > last}
    kept = {name: file for name, file in moment.files.items() if name not in later}
    kept[last] = kept[last]._replace(content=kept[last].content[:size])
    return Snapshot(moment.folders, kept)


def _logs(files: Files) -> Iterator[str]:
    return (name for name in files if os.path.dirname(name) == NAME and name.endswith(".log"))


def read_moving_log(folder: Path, reader: str, change: str, seed: int) -> MovingAnswer:
    """Read a log while a history goes on in a folder."""
    dice = random.Random(f"{reader}, {change}, {seed}")
    data_dir = folder / "now" / "data"
    clock = Clock(data_dir, begin(data_dir, change, dice), dice, _MOST_STEPS)
    clock.keep()
    with clock.running():
        found = _answer(reader, data_dir / NAME)
    return MovingAnswer(reader, found, clock.moments)


def _answer(reader: str, folder: Path) -> Answer:
    try:
        return READERS[reader](folder)
    except (OSError, ks.KafkaScanError) as error:
        return "error", type(error).__name__, getattr(error, "symbol", None)
