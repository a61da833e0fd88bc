"""
Count by reader and change how many answers are true of no moment.

``python -m tests.moving.run 0 100 [READER [CHANGE]]`` tries seeds, and prints those that fail.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.moving.histories import CHANGES
from tests.moving.moments import read_moving_log
from tests.moving.readers import READERS


def _is_true(reader: str, change: str, seed: int, *, is_shown: bool) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        answer = read_moving_log(Path(folder), reader, change, seed)
        is_true = answer.is_true()
        if is_shown and not is_true:
            print(f"{reader}, {change}, seed {seed}\n  found {answer.found}")
            for one in answer.answers():
                print(f"        {one}")
    return is_true


def main() -> int:
    """Try the seeds that are named; the exit code is 1 if one fails."""
    first, last, *names = sys.argv[1:]
    readers = [names[0]] if names else list(READERS)
    changes = names[1:2] or list(CHANGES)
    failed = 0
    print(f"{'':24}", *(f"{change[:10]:>10}" for change in changes))
    for reader in readers:
        counts = [
            sum(
                not _is_true(reader, change, seed, is_shown=bool(names))
                for seed in range(int(first), int(last))
            )
            for change in changes
        ]
        failed += sum(counts)
        print(f"{reader:24}", *(f"{count or '.':>10}" for count in counts), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
