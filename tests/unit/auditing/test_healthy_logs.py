"""Healthy logs have no alarms: compacted ones, growing ones, those that brokers wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

import kafkascan as ks
from tests.support.audits import TRUE_ALARMS, alarms
from tests.support.partitions import NOW, HealthyPartition
from tests.support.paths import GOLDEN


def test_a_healthy_partition(partition: HealthyPartition) -> None:
    partition.write()
    found = ks.audit(partition.folder, deep=True)
    assert found.findings == []
    assert found.is_healthy
    assert (found.logs, found.segments, found.batches) == (1, 3, 27)
    assert found.size_in_bytes == sum(one.stat().st_size for one in partition.folder.glob("*.log"))
    assert ks.audit(partition.folder.parent).findings == []


@pytest.mark.parametrize("run", TRUE_ALARMS)
@pytest.mark.parametrize("deep", [False, True])
def test_no_false_alarms_in_golden_data_dirs(run: str, deep: bool) -> None:
    found = ks.audit(GOLDEN / run / "data", deep=deep, now_ms=NOW)
    assert {(one.topic, one.symbol) for one in found.alarms} == TRUE_ALARMS[run]


def test_compaction_is_no_damage(partition: HealthyPartition) -> None:
    partition.write()
    partition.batches[0][1] = b""
    partition.log(0).write_bytes(b"".join(partition.batches[0]))
    for kind in ("index", "timeindex"):
        partition.log(0).with_suffix(f".{kind}").unlink()
    assert "OFFSET_GAP" in alarms(partition.folder)
    ks.broker_state.write_offset_checkpoint(
        partition.folder.parent / "cleaner-offset-checkpoint", {("orders", 0): partition.offset}
    )
    found = ks.audit(partition.folder.parent, deep=True)
    assert found.is_healthy
    advice = {one.symbol: one.advice for one in found.findings}
    assert advice.keys() >= {"COMPACTION", "OFFSET_GAP"}
    assert advice["OFFSET_GAP"].startswith("No action needed")


def test_gaps_of_kafkas_compacted_topics_are_notes(tmp_path: Path) -> None:
    log = [ks.build_batches(key=["a"], value=[b"1"], offset=[offset]) for offset in (0, 5)]
    severities = {}
    for topic in ("__consumer_offsets", "orders"):
        with ks.SegmentWriter(tmp_path / f"{topic}-0") as writer:
            for batches in log:
                writer.append(batches)
        (gap,) = ks.audit(tmp_path / f"{topic}-0").findings
        severities[topic] = gap.symbol, str(gap.severity)
    assert severities == {
        "__consumer_offsets": ("OFFSET_GAP", "note"),
        "orders": ("OFFSET_GAP", "warning"),
    }


def test_a_torn_tail_of_a_growing_log_is_a_note(
    partition: HealthyPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest of the last batch was written during the audit."""
    partition.write()
    partition.batches[2].append(partition.batches[2][-2])
    with partition.log(2).open("ab") as file:
        file.write(partition.batches[2][-1][:80])
    assert alarms(partition.folder) == {"TORN_TAIL"}
    monkeypatch.setattr("kafkascan.logs.segment.SegmentFile.size", property(lambda self: 1 << 30))
    found = ks.audit(partition.folder)
    assert [(one.symbol, one.severity) for one in found.findings if one.symbol == "TORN_TAIL"] == [
        ("TORN_TAIL", ks.Severity.NOTE)
    ]
