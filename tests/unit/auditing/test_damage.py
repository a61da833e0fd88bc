"""Every kind of damage is found, at its place."""

from __future__ import annotations

from pathlib import Path

import pytest

import kafkascan as ks
from kafkascan.auditing.finding_kinds import FINDING_KINDS, INDEX_KINDS, TIER_KINDS
from tests.support.audit_damage import DAMAGE, set_field
from tests.support.audits import alarms, symbols
from tests.support.partitions import HealthyPartition


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_found(name: str, partition: HealthyPartition) -> None:
    damage, symbol = DAMAGE[name]
    partition.write()
    damage(partition)
    found = ks.audit(partition.folder, deep=True)
    symbols = {one.symbol for one in found.findings}
    assert symbol in symbols, found
    for one in found.findings:
        assert one.topic == "orders"
        assert one.advice
        assert one.message in str(one)
        assert one.count >= 1


def test_a_finding_has_the_place_of_the_damage(partition: HealthyPartition) -> None:
    partition.write()
    set_field("crc", 7, is_signed=False)(partition)
    (found,) = ks.audit(partition.folder).findings
    before = sum(map(len, partition.batches[1][:2]))
    assert (found.file, found.position) == (partition.log(1).name, before)
    assert found.offset == int.from_bytes(partition.batches[1][2][:8], "big")
    assert found.severity is ks.Severity.ERROR


def test_every_finding_kind_is_tested() -> None:
    tested = {symbol for _, symbol in DAMAGE.values()}
    elsewhere = {
        "UNREADABLE", "DROPPED_LOG", "PADDED", "INCOMPLETE", "EMPTY_TRANSACTIONS",
        "MANY_PRODUCERS", "COMPACTION", "STALE", "OPEN_TRANSACTION", "FUTURE_LOG", "STRAY_LOG",
        "DUPLICATE_LOG", "UNASSIGNED_LOG", "MISSING_LOG", "COMMITTED_BEYOND_END",
        "FORGOTTEN_TRANSACTION", "UNKNOWN_TOPIC", "UNKNOWN_INDEX_LAYOUT", "CHANGED_WHILE_READ",
    }  # fmt: skip
    of_tiers = set(TIER_KINDS)  # tests/unit/auditing/test_tier_audits.py
    of_indexes = set(INDEX_KINDS)  # tests of `check_index`
    assert set(FINDING_KINDS) <= tested | elsewhere | of_tiers | of_indexes


def test_the_other_finding_kinds(tmp_path: Path, partition: HealthyPartition) -> None:
    partition.write()
    uuid = "0123456789abcdef" * 2
    (tmp_path / f"gone-0.{uuid}-delete").mkdir()
    (tmp_path / f"gone-0.{uuid}-delete" / "0.log").touch()
    assert symbols(tmp_path) == {"DROPPED_LOG"}
    assert "MANY_PRODUCERS" in alarms(partition.folder, many_producers=1)
    partition.log(1).unlink()
    partition.log(1).symlink_to(tmp_path / "nowhere")
    assert "UNREADABLE" in alarms(partition.folder)
