"""What tests of recovery share: a data directory of a killed broker, offsets, comparisons."""

from __future__ import annotations

from pathlib import Path

import kafkascan as ks
from tests.support.paths import GOLDEN

KILLED = GOLDEN / "kafka-4.4.0-killed" / "data"
NOW = 1_714_000_100_000
FIRST_PART, SECOND_PART = 100, 100 + 2**31 + 40
"""Base offsets of the parts of the `overflowing` segment."""


def planned_changes(folder: Path) -> list[ks.recovery.Change]:
    """The changes that a recovery would make."""
    (planned,) = ks.recover(folder, now_ms=NOW).partitions
    return planned.changes


def without_backups(files: dict[str, bytes]) -> dict[str, bytes]:
    return {name: data for name, data in files.items() if ".bak" not in name}
