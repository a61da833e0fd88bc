"""Ends of leader epochs, by which diffs find truncations, are those of Kafka's cache."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from kafkascan.analysis.diff import epoch_history
from kafkascan.analysis.fingerprints import FINGERPRINT
from kafkascan.broker_state import LeaderEpoch, write_leader_epochs
from tests.oracle.build import ClassPaths
from tests.oracle.rebuild import Rebuild

pytestmark = pytest.mark.oracle

_LATEST = 30


def test_ends_are_those_of_the_cache(class_paths: ClassPaths, tmp_path: Path) -> None:
    """Kafka's leader always has the epoch in which it leads: a new one, without batches."""
    dice = random.Random(3)
    with Rebuild(class_paths.broker, tmp_path / "jvm") as rebuild:
        for number in range(40):
            folder = tmp_path / str(number) / "t-0"
            folder.mkdir(parents=True)
            epochs = sorted(dice.sample(range(_LATEST), dice.randrange(1, 8)))
            starts = sorted(dice.sample(range(1000), len(epochs)))
            rows = np.zeros(1, FINGERPRINT)
            rows["first_offset"] = rows["last_offset"] = log_end = 1000 + dice.randrange(9)
            rows["leader_epoch"] = epochs[-1]
            entries = [LeaderEpoch(*one) for one in zip(epochs, starts, strict=True)]
            history = epoch_history(rows, entries)
            leading = [*entries, LeaderEpoch(_LATEST, log_end + 1)]
            write_leader_epochs(folder / "leader-epoch-checkpoint", leading)
            theirs = rebuild.epoch_ends(folder, range(_LATEST), log_end + 1)
            assert [history.end_of(epoch) for epoch in range(_LATEST)] == theirs
