"""Try a seed, or a range: ``python -m tests.simulation.run 0 100000``."""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from collections import Counter

from tests.simulation.simulator import ViolationError, simulate


def try_seed(seed: int) -> tuple[str, str | None]:
    """Return what a seed is, and what does not hold."""
    try:
        return simulate(seed), None
    except ViolationError as error:
        return "", f"python -m tests.simulation.run {seed}  # {error}"


def main() -> int:
    """Try the seeds that are named; the exit code is 1 if one fails."""
    first, *more = map(int, sys.argv[1:])
    seeds = range(first, more[0] if more else first + 1)
    start, failed, tried = time.monotonic(), 0, Counter[str]()
    with multiprocessing.Pool(min(len(seeds), os.cpu_count() or 1)) as pool:
        for what, violation in pool.imap_unordered(try_seed, seeds, chunksize=20):
            tried[what.partition(" on log")[0]] += 1
            if violation is not None:
                failed += 1
                print(violation, flush=True)
    seconds = time.monotonic() - start
    print(f"{len(seeds)} seeds, {failed} violations, {seconds:.0f} s")
    for name, count in sorted(tried.items()):
        print(f"{count:8} {name or 'violations'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
