"""Each finding is counted once for each occurrence."""

from __future__ import annotations

from pathlib import Path

import kafkascan as ks
from tests.support.audit_damage import write_from_another_producer_in_transaction
from tests.support.logs import TRANSACTIONAL
from tests.support.partitions import HealthyPartition
from tests.support.records import RecordV2, batch_of


def test_a_refused_log_is_one_finding(partition: HealthyPartition) -> None:
    partition.write()
    write_from_another_producer_in_transaction(partition)
    found = {one.symbol: one.count for one in ks.audit(partition.folder).findings}
    assert found["BAD_MARKER"] == 1


def test_sequences_are_checked_after_a_refused_batch() -> None:
    def batch(offset: int, sequence: int, attributes: int = 0) -> bytes:
        return batch_of([RecordV2()], base_offset=offset, base_sequence=sequence, producer_id=3,
                        producer_epoch=0, attributes=attributes)  # fmt: skip

    log = batch(0, 0, TRANSACTIONAL) + batch(1, 1) + batch(2, 5) + batch(3, 6) + batch(4, 3)
    found = {one.symbol: (one.offset, one.count) for one in ks.audit(log).findings}
    assert found["BAD_MARKER"] == (1, 1)
    assert found["SEQUENCE_GAP"] == (2, 1)
    assert found["DUPLICATE_SEQUENCE"] == (4, 1)


def test_findings_are_counted_by_batch(tmp_path: Path) -> None:
    """Also where a table of batches has several of them."""
    partition = HealthyPartition(tmp_path / "orders-0", segments=1)
    for _ in range(6000):
        partition.data(-1)
    partition.write()
    (log,) = partition.folder.glob("*.log")
    batches = ks.scan_batches(log).batches
    ks.broker_state.write_leader_epochs(
        partition.folder / "leader-epoch-checkpoint",
        [
            ks.broker_state.LeaderEpoch(0, 0),
            ks.broker_state.LeaderEpoch(1, int(batches["base_offset"][5000])),
        ],
    )
    (found,) = ks.audit(partition.folder).findings
    assert (found.symbol, found.count, found.offset) == ("EPOCH_MISMATCH", 5000, 0)
    (partition.folder / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    (found,) = ks.audit(partition.folder).findings
    assert (found.symbol, found.count, found.offset) == ("EPOCHS_BEHIND", len(batches), 0)
