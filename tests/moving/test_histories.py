"""Histories have the changes that they are there for."""

from __future__ import annotations

import random
import re
from itertools import islice
from pathlib import Path

import pytest

import kafkascan as ks
from tests.moving.histories import CHANGES, NAME, begin
from tests.moving.recorded import NAMES, RECORDED, read_changes

_PARTS = {
    "grow": ".index .timeindex .txnindex .snapshot",
    "retention": ".log.deleted .index.deleted .snapshot.deleted log-start-offset-checkpoint.tmp",
    "delete_records": "log-start-offset-checkpoint .log.deleted",
    "clean": ".log.cleaned .txnindex.cleaned .log.swap .index.swap .log.deleted"
    " cleaner-offset-checkpoint",
    "truncate": "leader-epoch-checkpoint.tmp .log.deleted",
    "move_between_disks": "-future/ -delete/",
    "create_again": "-delete/ partition.metadata.tmp",
    "copy_again": ".Xq9Zrt",
}
_RECORDED = (
    ".log.cleaned .log.swap .txnindex.swap .log.deleted .snapshot.deleted -future/ -delete/"
    " leader-epoch-checkpoint.tmp log-start-offset-checkpoint.tmp __consumer_offsets-0/"
)


@pytest.mark.parametrize("history", CHANGES)
def test_a_generated_history_has_the_files_of_its_change(tmp_path: Path, history: str) -> None:
    seen = set()
    for seed in range(2):
        data_dir = tmp_path / str(seed) / "data"
        for _ in islice(begin(data_dir, history, random.Random(seed)), 150):
            seen.update(str(path.relative_to(data_dir)) for path in data_dir.rglob("*"))
    assert _missing(_PARTS[history], seen) == []


@pytest.mark.parametrize("history", NAMES)
def test_a_recorded_history_has_the_files_of_all_changes(history: str) -> None:
    changes = read_changes(NAMES[history])
    seen = {name for change in changes for name in change if isinstance(name, str)}
    assert _missing(_RECORDED, seen) == []


def _missing(parts: str, names: set[str]) -> list[str]:
    plain = [re.sub(r"[0-9a-f]{20,32}", "N", name) for name in names]
    return [part for part in parts.split() if not any(part in name for name in plain)]


def test_histories_of_two_brokers_are_recorded() -> None:
    assert set(NAMES) == {"recorded kafka-3.9.1", "recorded kafka-4.4.0"}
    assert sum(path.stat().st_size for path in RECORDED.iterdir()) < 300_000


def test_a_batch_is_written_in_parts(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    torn = 0
    for _ in islice(begin(data_dir, "grow", random.Random(1)), 60):
        last = max((data_dir / NAME).glob("*.log"))
        torn += ks.scan_batches(last, on_corrupt="stop").end is ks.ScanEnd.TORN_TAIL
    assert torn > 0
