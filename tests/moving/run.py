"""
Count by reader and change how many answers are true of no moment.

``python -m tests.moving.run 0 100 [READER [CHANGE]]`` tries seeds, and prints the commands that
replay those that fail. With a reader, it also prints its answer, and that of each moment.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.moving.histories import HISTORIES
from tests.moving.moments import read_moving_log
from tests.moving.readers import READERS, histories_of


@dataclass
class Tally:
    """What came of histories: how many there were, answers that say of a change, false ones."""

    count: int = 0
    changed: int = 0
    failed: int = 0

    def add(self, other: Tally) -> None:
        """Add what came of other histories."""
        self.count += other.count
        self.changed += other.changed
        self.failed += other.failed


def replay_command(reader: str, change: str, seed: int) -> str:
    """Return the command that replays a history."""
    return f"python -m tests.moving.run {seed} {seed + 1} '{reader}' '{change}'"


def try_seeds(reader: str, change: str, seeds: Sequence[int], *, is_shown: bool) -> Tally:
    """Read histories; print the command that replays each whose answer is true of no moment."""
    tally = Tally()
    for seed in seeds:
        with tempfile.TemporaryDirectory() as folder:
            answer = read_moving_log(Path(folder), reader, change, seed)
            is_true = answer.is_true()
            tally.add(Tally(1, answer.says_changed, not is_true))
            if is_true:
                continue
            print(replay_command(reader, change, seed), flush=True)
            if is_shown:
                print(f"    answered {answer.found}")
                for moment in answer.answers():
                    print(f"             {moment}")
    return tally


def main() -> int:
    """Try the seeds that are named; the exit code is 1 if one fails."""
    first, last, *names = sys.argv[1:]
    changes = names[1:2] or HISTORIES
    total = Tally()
    print(f"{'':30}", *(f"{change[-10:]:>10}" for change in changes))
    for reader in names[:1] or READERS:
        counts = []
        for change in changes:
            if not names and change not in histories_of(reader):
                counts.append(0)
                continue
            tally = try_seeds(reader, change, range(int(first), int(last)), is_shown=bool(names))
            counts.append(tally.failed)
            total.add(tally)
        print(f"{reader:30}", *(f"{count or '.':>10}" for count in counts), flush=True)
    print(f"{total.count} histories, {total.changed} changed, {total.failed} failed")
    return 1 if total.failed else 0


if __name__ == "__main__":
    sys.exit(main())
