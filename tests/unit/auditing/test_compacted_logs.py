"""A log from which the cleaner removed batches is healthy; damage in it is still found."""

from __future__ import annotations

import numpy as np
import pytest

import kafkascan as ks
from kafkascan.broker_state import write_offset_checkpoint
from tests.support.audits import alarms
from tests.support.partitions import HealthyPartition

BATCH_BEFORE, ABORTED_BATCH, LAST_MARKER = 3, 6, 8
"""In each segment: the last batch of producer 7, that of the second transaction, its marker."""


def clean(partition: HealthyPartition, removed: dict[int, list[int]]) -> None:
    """Remove batches from the files of segments, as the cleaner does: snapshots stay."""
    for number, rows in removed.items():
        path = partition.log(number)
        kept = [one for row, one in enumerate(partition.batches[number]) if row not in rows]
        path.write_bytes(b"".join(kept))
        batches = ks.scan_batches(path).batches
        base_offset = int(path.stem)
        for kind, build in (("index", ks.build_offset_index), ("timeindex", ks.build_time_index)):
            entries = build(batches, base_offset=base_offset, interval_bytes=200)
            ks.write_index(path.with_suffix(f".{kind}"), entries)
        aborted = path.with_suffix(".txnindex")
        if aborted.exists():
            known = ks.read_index(aborted)
            is_kept = np.isin(known["last_offset"], batches["base_offset"])
            ks.write_index(aborted, known[is_kept])
    write_offset_checkpoint(
        partition.folder.parent / "cleaner-offset-checkpoint",
        {("orders", 0): int(partition.log(2).stem)},
    )


def test_an_aborted_batch_that_was_removed_before_its_marker(partition: HealthyPartition) -> None:
    partition.write()
    clean(partition, {0: [ABORTED_BATCH]})
    assert alarms(partition.folder.parent) == set()


def test_sequences_that_skip_without_a_removed_batch(partition: HealthyPartition) -> None:
    partition.data(8, transactional=True, base_sequence=partition.sequences[8] + 5)
    partition.write()
    clean(partition, {0: [ABORTED_BATCH]})
    assert "SEQUENCE_GAP" in alarms(partition.folder.parent)


@pytest.mark.parametrize(
    "removed",
    [
        {0: [BATCH_BEFORE]},
        {0: [0, 1, 2, BATCH_BEFORE]},
        {0: [ABORTED_BATCH], 1: [ABORTED_BATCH, BATCH_BEFORE]},
        {0: [4, 5, ABORTED_BATCH, 8]},
        {0: [0, 1, 2, 3, 4, 5, 6, 8]},
    ],
)
def test_batches_that_were_removed_after_a_snapshot(
    removed: dict[int, list[int]], partition: HealthyPartition
) -> None:
    """The snapshot at the next segment has the producer's last batch, which is gone."""
    partition.write()
    clean(partition, removed)
    assert alarms(partition.folder.parent) == set()


@pytest.mark.parametrize(
    ("field", "change"),
    [("last_offset", -3), ("last_sequence", 1), ("producer_epoch", -1)],
)
def test_a_snapshot_that_lacks_a_batch_of_the_log(
    field: str, change: int, partition: HealthyPartition
) -> None:
    partition.write()
    clean(partition, {0: [1]})
    path = partition.log(1).with_suffix(".snapshot")
    entries = ks.broker_state.read_producer_snapshot(path)
    row = int(np.flatnonzero(entries["producer_id"] == 7)[0])
    entries[field][row] += change
    ks.broker_state.write_producer_snapshot(path, entries)
    found = ks.audit(partition.folder.parent).alarms
    assert [(one.symbol, one.file) for one in found] == [("SNAPSHOT_MISMATCH", path.name)]


def test_a_snapshot_without_a_transaction_that_is_open_in_the_log(
    partition: HealthyPartition,
) -> None:
    """The cleaner does not remove a marker before the batches of its transaction."""
    partition.write()
    clean(partition, {1: [LAST_MARKER]})
    found = ks.audit(partition.folder.parent).alarms
    snapshot = partition.log(2).with_suffix(".snapshot").name
    assert [(one.symbol, one.file) for one in found] == [("SNAPSHOT_MISMATCH", snapshot)]
