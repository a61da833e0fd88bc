"""`check_batches`: what headers alone show, batch by batch."""

from __future__ import annotations

import numpy as np
import pytest

import kafkascan as ks
from kafkascan.auditing import batch_checks
from tests.support.audit_damage import DAMAGE
from tests.support.partitions import NOW, HealthyPartition
from tests.support.paths import GOLDEN
from tests.support.segments import batch_v2

OF_HEADERS = {
    "OFFSET_OVERLAP", "OFFSET_GAP", "EPOCH_BACKWARDS", "FUTURE_TIMESTAMP", "PAST_TIMESTAMP",
    "OVERSIZED_BATCH", "BAD_COUNT", "UNKNOWN_CODEC", "OLD_FORMAT",
}  # fmt: skip


def batches_of(partition: HealthyPartition) -> np.ndarray:
    logs = sorted(partition.folder.glob("*.log"))
    return np.concatenate([ks.scan_batches(log, on_corrupt="stop").batches for log in logs])


def test_healthy_batches_have_no_findings(partition: HealthyPartition) -> None:
    partition.write()
    assert ks.check_batches(batches_of(partition)) == []
    assert ks.check_batches(batches_of(partition)[:0]) == []
    for path in GOLDEN.glob("kafka-4.4.0-killed/data/*/*.log"):
        found = ks.check_batches(ks.scan_batches(path, on_corrupt="stop").batches)
        assert {one.symbol for one in found} <= {"OFFSET_GAP", "OLD_FORMAT"}, path


@pytest.mark.parametrize("name", [name for name, one in DAMAGE.items() if one[1] in OF_HEADERS])
def test_findings_are_those_of_an_audit(name: str, partition: HealthyPartition) -> None:
    damage, symbol = DAMAGE[name]
    partition.write()
    damage(partition)
    batches = batches_of(partition)
    found = ks.check_batches(batches)
    assert symbol in {one.symbol for one in found}
    audited = [
        one for one in ks.audit(partition.folder, verify=False).findings if one.symbol in OF_HEADERS
    ]
    counts = {one.symbol: 0 for one in audited}
    for one in audited:
        counts[one.symbol] += one.count
    assert {s: sum(one.symbol == s for one in found) for s in counts} == counts
    assert [one.row for one in found] == sorted(one.row or 0 for one in found)
    for one in found:
        assert one.row is not None
        assert one.position == batches["position"][one.row]
        assert one.severity in {other.severity for other in audited if other.symbol == one.symbol}


def test_limits(partition: HealthyPartition) -> None:
    partition.write()
    batches = batches_of(partition)
    found = ks.check_batches(batches, max_message_bytes=10, now_ms=NOW - 10**9, earliest_ms=NOW * 2)
    assert len(found) == 3 * len(batches)
    assert {one.severity for one in found} == {ks.Severity.WARNING}
    first = [str(one) for one in found[:3]]
    assert "is in the future" in first[0]
    assert "before Kafka existed" in first[1]
    assert "a batch is larger than the limit of 10 bytes" in first[2]


def test_missing_offsets_are_named() -> None:
    batches = np.zeros(3, ks.BATCH_DTYPE)
    batches["magic"], batches["records_count"] = 2, 1
    batches["base_offset"], batches["max_timestamp"] = [4, 9, 3], NOW
    gap, overlap = ks.check_batches(batches)
    assert str(gap) == "warning: position 0: offsets from 5 to 8 are missing [OFFSET_GAP]"
    assert (overlap.symbol, overlap.row) == ("OFFSET_OVERLAP", 2)
    with pytest.raises(TypeError, match="BATCH_DTYPE"):
        ks.check_batches(batches["base_offset"])


@pytest.mark.parametrize("rows", [1, 2, 3, 7])
def test_batches_are_checked_in_parts(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    """Signals are handled between parts; the findings are those of the whole table."""
    batches = ks.scan_batches(b"".join(batch_v2(base_offset=one) for one in range(20))).batches
    batches["base_offset"][[3, 4, 11]] = 9, 2, 1
    batches["max_timestamp"][[5, 6, 13]] = 1 << 60
    batches["partition_leader_epoch"][[2, 8]] = 7, 5
    whole = ks.check_batches(batches)
    assert {"OFFSET_OVERLAP", "OFFSET_GAP", "FUTURE_TIMESTAMP"} <= {one.symbol for one in whole}
    monkeypatch.setattr(batch_checks, "_ROWS", rows)
    assert ks.check_batches(batches) == whole
