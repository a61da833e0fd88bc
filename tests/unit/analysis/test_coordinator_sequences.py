"""
Sequence numbers in logs to which coordinators append: a leader checks those of clients only.

The batches are those of brokers; copies of them have other offsets, which no checksum covers.
"""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

import kafkascan as ks
from kafkascan.format.file_names import BROKERS_TOPICS
from tests.support.paths import GOLDEN

# Of transactions of version 1, whose markers leave the producer's epoch as it is.
OF_VERSION_1 = ("kafka-2.8.2-groups", "kafka-3.9.1")
COMMITS = 3
SEQUENCE_ALARMS = {"DUPLICATE_SEQUENCE", "SEQUENCE_GAP"}


def _transaction(run: str) -> list[bytes]:
    """Return the batches of offset commits in a transaction, and its marker, as a broker wrote."""
    log = GOLDEN / run / "data" / "__consumer_offsets-0" / f"{0:020}.log"
    batches, data = ks.scan_batches(log).batches, log.read_bytes()
    own = batches[batches["producer_id"] >= 0]
    assert own["base_sequence"].tolist() == [0, -1]
    ends = own["position"] + ks.batches.size_in_bytes(own)
    return [data[start:end] for start, end in zip(own["position"], ends, strict=True)]


def _write(folder: Path, run: str) -> Path:
    """Write a log of several such transactions of one producer."""
    folder.mkdir(parents=True)
    batches = _transaction(run) * COMMITS
    log = (struct.pack(">q", offset) + batch[8:] for offset, batch in enumerate(batches))
    (folder / f"{0:020}.log").write_bytes(b"".join(log))
    return folder


def _alarms(folder: Path) -> set[str]:
    return {one.symbol for one in ks.audit(folder, deep=True).alarms}


@pytest.mark.parametrize("run", OF_VERSION_1)
def test_offset_commits_of_transactions_are_no_duplicates(run: str, tmp_path: Path) -> None:
    folder = _write(tmp_path / "__consumer_offsets-0", run)
    assert not _alarms(folder) & SEQUENCE_ALARMS
    (counts,) = ks.read_producers(folder).counts
    assert (counts["batches"], counts["markers"]) == (COMMITS, COMMITS)
    for name in ("duplicates", "sequence_gaps", "missing_records", "wraps", "forgotten"):
        assert counts[name] == 0, name
    for name in ("first_duplicate", "first_gap"):
        assert counts[name] == -1, name


@pytest.mark.parametrize("run", OF_VERSION_1)
def test_the_same_batches_of_a_client_are(run: str, tmp_path: Path) -> None:
    folder = _write(tmp_path / "orders-0", run)
    assert "DUPLICATE_SEQUENCE" in _alarms(folder)
    assert ks.read_producers(folder).counts["duplicates"].tolist() == [COMMITS - 1]


def test_an_old_epoch_is_refused_in_every_log(tmp_path: Path) -> None:
    """``ProducerAppendInfo.checkProducerEpoch`` is not limited to clients."""
    run = "kafka-4.1.1"  # transactions of version 2: each marker raises the epoch
    epochs = [int.from_bytes(batch[51:53], "big", signed=True) for batch in _transaction(run)]
    assert epochs == [0, 1]
    folder = _write(tmp_path / "__consumer_offsets-0", run)
    assert "FENCED_PRODUCER" in _alarms(folder)
    assert ks.read_producers(folder).counts["fenced"].tolist() == [COMMITS - 1]


@pytest.mark.parametrize("topic", sorted(BROKERS_TOPICS))
def test_topics_to_which_brokers_append(topic: str, tmp_path: Path) -> None:
    folder = _write(tmp_path / f"{topic}-0", OF_VERSION_1[0])
    assert not np.any(ks.read_producers(folder).counts["duplicates"])
