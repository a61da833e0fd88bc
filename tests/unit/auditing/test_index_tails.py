"""Entries that a truncation left in preallocated indexes; `tests/oracle` shows that Kafka does."""

from __future__ import annotations

import numpy as np
import pytest

import kafkascan as ks
from tests.support.audits import alarms, symbols
from tests.support.partitions import HealthyPartition


def truncate_last_segment(partition: HealthyPartition, batches: int, *, padding: int) -> None:
    """Truncate the log; the indexes keep their entries, and zeros."""
    log = partition.log(2)
    partition.write()
    for kind in ("index", "timeindex"):
        path = log.with_suffix(f".{kind}")
        path.write_bytes(path.read_bytes() + bytes(padding))
    log.write_bytes(b"".join(partition.batches[2][:batches]))
    if batches < len(partition.batches[2]):
        (partition.folder / f"{partition.offset:020}.snapshot").unlink()
        log.with_suffix(".txnindex").unlink()


def test_stale_entries_of_a_preallocated_index(partition: HealthyPartition) -> None:
    truncate_last_segment(partition, 4, padding=240)
    assert alarms(partition.folder) == set()
    assert "STALE" in symbols(partition.folder)
    index = partition.log(2).with_suffix(".index")
    batches = ks.scan_batches(partition.log(2)).batches
    found = {one.symbol: one for one in ks.check_index(index, batches)}
    assert set(found) == {"PADDED", "STALE"}
    right = int((ks.read_index(index)["position"] < partition.log(2).stat().st_size).sum())
    assert (found["STALE"].row, found["STALE"].position) == (right, 8 * right)


def test_entries_after_the_end_of_a_closed_index_are_errors(partition: HealthyPartition) -> None:
    truncate_last_segment(partition, 4, padding=0)
    assert "TOO_LARGE" in alarms(partition.folder)


@pytest.mark.parametrize("row", [0, 2])
def test_wrong_entries_before_right_ones_are_errors(row: int, partition: HealthyPartition) -> None:
    truncate_last_segment(partition, 9, padding=240)
    index = partition.log(2).with_suffix(".index")
    entries = np.frombuffer(index.read_bytes(), ks.format.OFFSET_INDEX_ENTRY).copy()
    entries["position"][row] += 1
    index.write_bytes(entries.tobytes())
    assert "WRONG_POSITION" in alarms(partition.folder)
