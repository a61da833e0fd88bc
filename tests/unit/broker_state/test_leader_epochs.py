"""Leader epochs as a broker keeps them when it loads a log."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

import kafkascan as ks
from kafkascan.broker_state import LeaderEpoch, read_leader_epochs, write_leader_epochs
from kafkascan.broker_state.leader_epochs import assign_epoch, loaded_epochs

NAME = "leader-epoch-checkpoint"


@pytest.mark.parametrize("seed", range(20))
def test_loading_equals_assigning_one_after_the_other(seed: int) -> None:
    choice = random.Random(seed)
    for _ in range(100):
        numbers = [choice.randrange(-1, 6) for _ in range(2 * choice.randrange(8))]
        entries = [LeaderEpoch(*pair) for pair in zip(numbers[::2], numbers[1::2], strict=True)]
        assigned: list[LeaderEpoch] = []
        for entry in entries:
            assign_epoch(assigned, entry)
        assert loaded_epochs(entries) == assigned


def test_recovery_drops_entries_that_later_ones_contradict(tmp_path: Path) -> None:
    folder = tmp_path / "orders-0"
    folder.mkdir()
    log = folder / f"{0:020}.log"
    log.write_bytes(ks.build_batches({"value": [b"x"] * 10}, partition_leader_epoch=7))
    # As LeaderEpochFileCache does: epoch 5 at offset 4 removes epoch 6 at offset 4.
    entries = [LeaderEpoch(3, 0), LeaderEpoch(6, 4), LeaderEpoch(5, 4), LeaderEpoch(7, 99)]
    write_leader_epochs(folder / NAME, entries)
    shutil.copy(folder / NAME, tmp_path / NAME)
    ks.recover(folder, write=True)
    assert read_leader_epochs(folder / NAME) == [LeaderEpoch(3, 0), LeaderEpoch(5, 4)]
