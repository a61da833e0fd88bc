"""What a reader says of a log that moves, and what it says of each of its moments."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import kafkascan as ks
from tests.moving.clock import Clock
from tests.moving.histories import CHANGES, NAME, MovingPartition, steps_of
from tests.moving.readers import CHANGED, READERS, Answer

_MOST_STEPS = 12


@dataclass(frozen=True)
class MovingAnswer:
    """
    What a reader said of a log that moved meanwhile.

    Attributes
    ----------
    reader : str
    found : tuple
    moments : list of Path
        Copies of the log as it was at the moments of which the answer may be true.
    """

    reader: str
    found: Answer
    moments: list[Path]

    def is_true(self) -> bool:
        """Return whether the answer is that of a moment, or says that the log changed."""
        if any(symbol in repr(self.found) for symbol in CHANGED):
            return True
        if self.found in self.answers() or self.found in self._answers_that_end_earlier():
            return True
        is_error = self.found[0] == "error" or "UNREADABLE" in repr(self.found)
        return is_error and not all(moment.exists() for moment in self.moments)

    def answers(self) -> Iterator[Answer]:
        """Yield what the reader says of each moment."""
        return (_answer(self.reader, moment) for moment in self.moments)

    def _answers_that_end_earlier(self) -> Iterator[Answer]:
        """
        Yield what the reader says of each moment, without what was appended since an earlier one.

        A reader that sees retention at work takes a newer listing, and still ends where it was to.
        """
        for number, moment in enumerate(self.moments):
            for earlier in self.moments[:number]:
                with tempfile.TemporaryDirectory() as folder:
                    cut = Path(folder, moment.parent.name, moment.name)
                    if _cut_at_end_of(earlier, moment, cut):
                        yield _answer(self.reader, cut)


def _cut_at_end_of(earlier: Path, moment: Path, copy: Path) -> bool:
    """Copy a moment without what was appended since an earlier one; False if there is no such."""
    last = max(earlier.glob("*.log"), default=None)
    if last is None or not (moment / last.name).exists():
        return False
    size = last.stat().st_size
    if (moment / last.name).stat().st_size < size:
        return False
    shutil.copytree(moment.parent, copy.parent)
    for path in copy.glob("*.log"):
        if path.name > last.name:
            path.unlink()
    os.truncate(copy / last.name, size)
    return True


def read_moving_log(folder: Path, reader: str, change: str, seed: int) -> MovingAnswer:
    """Read a log while a history goes on in a folder."""
    dice = random.Random(f"{reader}, {change}, {seed}")
    log = MovingPartition(folder / "now" / "data", dice)
    for _ in range(dice.randrange(2, 25)):
        for _ in log.grow():
            pass
    clock = Clock(log.data_dir, steps_of(log, CHANGES[change]), dice, _MOST_STEPS)
    clock.keep()
    with clock.running():
        found = _answer(reader, log.folder)
    return MovingAnswer(reader, found, [moment / NAME for moment in clock.moments])


def _answer(reader: str, folder: Path) -> Answer:
    try:
        return READERS[reader](folder)
    except (OSError, ks.KafkaScanError) as error:
        return "error", type(error).__name__, getattr(error, "symbol", None)
