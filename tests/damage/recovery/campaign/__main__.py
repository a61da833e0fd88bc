"""Salvage many damaged logs and count what the oracle says.

``python -m tests.damage.recovery.campaign --logs 100000 --seed 1``
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from pathlib import Path

from tests.damage.recovery.campaign.runs import Campaign


def main() -> int:
    parser = argparse.ArgumentParser(prog="campaign", description=__doc__.splitlines()[0])
    parser.add_argument("--logs", type=int, default=1000, help="Number of damaged logs.")
    parser.add_argument("--seed", type=int, default=1, help="Seed of the first log.")
    parser.add_argument("--show", type=int, default=10, help="Print at most N violations.")
    parser.add_argument("--folder", default=None, help="Directory for files, as /dev/shm.")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        campaign = Campaign(Path(folder))
        with contextlib.suppress(KeyboardInterrupt):
            for number in range(options.seed, options.seed + options.logs):
                campaign.run(number)
    print(campaign.summary(options.show))
    return 1 if campaign.violations else 0


if __name__ == "__main__":
    sys.exit(main())
