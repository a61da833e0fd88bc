"""Run jobs: ``python -m kafkascan.spark verify PATHS``, or this file with spark-submit."""

from __future__ import annotations

import sys


def main() -> int:
    """Run ``kafkascan spark`` with the arguments of the process."""
    from kafkascan.cli import main as run

    return run(["spark", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
