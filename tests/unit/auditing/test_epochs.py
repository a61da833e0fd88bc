"""Leader epochs: batches that contradict the others, files that lack epochs."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

import kafkascan as ks
from kafkascan.auditing.epoch_checks import EpochChecks, EpochFile
from kafkascan.auditing.finding_kinds import FoundInLog
from kafkascan.batches.screening import EPOCHS, screen
from kafkascan.broker_state import LeaderEpoch, write_leader_epochs
from kafkascan.logs.log_finding import partition_dir
from tests.support.audit_damage import set_field
from tests.support.audits import alarms
from tests.support.partitions import HealthyPartition

_FILE = "leader-epoch-checkpoint"


@pytest.mark.parametrize("epoch", [99, 1, 0, 2**31 - 1])
def test_a_batch_with_a_wrong_epoch_is_one_finding(epoch: int, partition: HealthyPartition) -> None:
    partition.write()
    set_field("partition_leader_epoch", epoch, is_signed=False)(partition)
    (found,) = ks.audit(partition.folder).findings
    assert (found.symbol, found.count) == ("EPOCH_BACKWARDS", 1)
    assert (found.file, found.position) == (
        partition.log(1).name, sum(map(len, partition.batches[1][:2])),
    )  # fmt: skip
    batches = ks.scan_batches(partition.log(1)).batches
    assert [one.row for one in ks.check_batches(batches)] == ([2] if epoch != 2 else [])


def test_wrong_epochs_of_several_segments(partition: HealthyPartition) -> None:
    partition.write()
    for number in (0, 1):
        data = bytearray(partition.log(number).read_bytes())
        data[12:16] = b"\0\0\0\x63"
        partition.log(number).write_bytes(data)
    found = ks.audit(partition.folder).findings
    assert [(one.symbol, one.file, one.position) for one in found] == [
        ("EPOCH_BACKWARDS", partition.log(number).name, 0) for number in (0, 1)
    ]


@pytest.mark.parametrize("content", [None, "0\n0\n", "0\n1\n1 0\n"])
def test_a_file_without_the_epochs_of_the_log(
    content: str | None, partition: HealthyPartition
) -> None:
    partition.write()
    path = partition.folder / _FILE
    path.unlink()
    if content is not None:
        path.write_text(content)
    (found,) = ks.audit(partition.folder).alarms
    assert (found.symbol, found.file) == ("EPOCHS_BEHIND", _FILE)
    # Of a log without any other side file, only the log was copied.
    for other in partition.folder.iterdir():
        if other.suffix != ".log":
            other.unlink()
    assert "EPOCHS_BEHIND" not in alarms(partition.folder)


def test_a_file_that_was_rewritten(partition: HealthyPartition) -> None:
    partition.write()
    path = partition.folder / _FILE
    known = ks.broker_state.read_leader_epochs(path)
    for wrong in (
        [known[0], known[1]._replace(start_offset=known[1].start_offset - 3), *known[2:]],
        [known[0], known[1]._replace(start_offset=known[1].start_offset + 3), *known[2:]],
        [known[0], known[2]],
        [*known[:2], LeaderEpoch(7, known[2].start_offset)],
    ):
        write_leader_epochs(path, wrong)
        assert alarms(partition.folder) == {"EPOCH_MISMATCH"}, wrong
    write_leader_epochs(path, [*known, LeaderEpoch(9, partition.offset)])
    assert alarms(partition.folder) == set()
    write_leader_epochs(path, [*known, LeaderEpoch(9, partition.offset + 1)])
    assert alarms(partition.folder) == {"ENDS_EARLY"}


def test_an_epoch_that_begins_during_an_audit(tmp_path: Path) -> None:
    folder = tmp_path / "orders-0"
    folder.mkdir()
    batches, segment = table([(1, 4), (2, 3)])
    for later, symbols in (([(1, 0)], {"EPOCHS_BEHIND"}), ([(1, 0), (2, 4)], set())):
        found = FoundInLog()
        checks = EpochChecks(EpochFile(np.array([1]), np.array([0])), found, ["0.log"])
        checks.add(batches, segment, EPOCHS)
        write_leader_epochs(folder / _FILE, [LeaderEpoch(*one) for one in later])
        checks.finish(partition_dir(folder))
        assert {symbol for _, symbol in found.tallies} == symbols


def table(epochs: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    """Return batches of one record, a count for each epoch, and their segments."""
    batches = np.zeros(sum(count for _, count in epochs), ks.BATCH_DTYPE)
    batches["magic"], batches["records_count"] = 2, 1
    batches["base_offset"] = batches["position"] = np.arange(len(batches))
    batches["partition_leader_epoch"] = np.repeat(
        [epoch for epoch, _ in epochs], [count for _, count in epochs]
    )
    return batches, np.zeros(len(batches), np.int32)


@pytest.mark.parametrize("seed", range(40))
def test_slices_of_a_log_do_not_matter(seed: int, tmp_path: Path) -> None:
    """A wrong epoch is found wherever a slice ends, also right after it."""
    dice = random.Random(seed)
    counts = [dice.randrange(4, 9) for _ in range(3)]
    batches, segment = table([(2 * n + 2, count) for n, count in enumerate(counts)])
    starts = np.append(0, np.cumsum(counts))[:-1]
    file = EpochFile(np.array([2, 4, 6]), starts)
    # The first and the last batch of an epoch may belong to the neighbouring one.
    row = dice.choice([r for r in range(len(batches)) if {r, r - 1, r + 1} & {*starts} == set()])
    if row < len(batches) - 1:
        batches["partition_leader_epoch"][row] = dice.choice((0, 99, 2**31 - 1))
    cuts = sorted(dice.sample(range(1, len(batches)), dice.randrange(5)))
    found = FoundInLog()
    checks = EpochChecks(file, found, ["0.log"])
    for first, stop in zip([0, *cuts], [*cuts, len(batches)], strict=True):
        part = batches[first:stop]
        epoch = None if first == 0 else int(batches["partition_leader_epoch"][first - 1])
        checks.add(part, segment[first:stop], screen(part, epoch=epoch))
    checks.finish(partition_dir(tmp_path))
    odd = {} if row == len(batches) - 1 else {("0.log", "EPOCH_BACKWARDS"): (row, row, 1)}
    places = {key: (one.position, one.offset, one.count) for key, one in found.tallies.items()}
    assert places == odd
