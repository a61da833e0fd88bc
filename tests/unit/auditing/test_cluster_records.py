"""Audits of remote storage beside what the cluster knows of it."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

import kafkascan as ks
from kafkascan.auditing import Audit
from kafkascan.internal_topics import read_remote_segments
from kafkascan.tiered import open_tiered
from tests.support.internal_topics import TopicLog
from tests.support.paths import GOLDEN
from tests.support.tiers import put_local, segment_id
from tests.unit.internal_topics.test_remote_segments import ADDED, update

DATA = GOLDEN / "kafka-4.4.0-tiered" / "data"
SEGMENTS = read_remote_segments(DATA).segments.rows()
TOPIC_ID = SEGMENTS[0]["topic_id"]
NOW = max(row["max_timestamp"] for row in SEGMENTS)
KINDS = {
    "MISSING_OBJECT", "CATALOGUE_MISMATCH", "ORPHANED_SEGMENT", "LEFTOVER_SEGMENT",
    "UNFINISHED_TRANSFER", "DELETED_TOPIC", "RETENTION_EXCEEDED",
}  # fmt: skip


@pytest.fixture
def tier(tmp_path: Path) -> Path:
    """Segments with the names and sizes that the cluster of the golden files knows."""
    folder = tmp_path / "tier" / f"tiered-0-{TOPIC_ID}"
    folder.mkdir(parents=True)
    for row in SEGMENTS:
        # One batch of the right offsets; audits do not compare sizes with those of batches.
        batch = ks.build_batches(
            offset=row["start_offset"],
            value=[b"v"] * (row["end_offset"] - row["start_offset"] + 1),
            timestamp=row["max_timestamp"],
        )
        padding = row["size"] - len(batch)
        name = f"{row['start_offset']:020}-{row['segment_id']}.log"
        (folder / name).write_bytes(batch + bytes(padding))
    return folder


def audit(tier: Path, data: Path = DATA, now_ms: int = NOW) -> Audit:
    return ks.audit(open_tiered(tier.parent), cluster=data, now_ms=now_ms)


def found(result: Audit) -> list[tuple[str, int | None, int]]:
    return [(one.symbol, one.offset, one.count) for one in result.findings if one.symbol in KINDS]


def test_nothing_is_found_where_both_agree(tier: Path) -> None:
    result = audit(tier)
    assert found(result) == []
    assert result.unchecked == []


def test_objects_and_records_that_disagree(tier: Path) -> None:
    logs = sorted(tier.glob("*.log"))
    logs[1].unlink()
    logs[2].write_bytes(logs[2].read_bytes() + bytes(10))
    (tier / f"{100:020}-{segment_id(1)}.log").write_bytes(ks.build_batches(offset=100, value=["v"]))
    assert sorted(found(audit(tier))) == [
        ("CATALOGUE_MISMATCH", SEGMENTS[2]["start_offset"], 1),
        ("MISSING_OBJECT", SEGMENTS[1]["start_offset"], 1),
        ("ORPHANED_SEGMENT", 100, 1),
    ]


@pytest.mark.parametrize(
    ("state", "symbol"),
    [(0, "UNFINISHED_TRANSFER"), (2, "UNFINISHED_TRANSFER"), (3, "LEFTOVER_SEGMENT")],
)
def test_transfers(tmp_path: Path, state: int, symbol: str) -> None:
    log = TopicLog(tmp_path / "data" / "__remote_log_metadata-2")
    log.add((None, ADDED), *([(None, update(state))] if state else []))
    folder = tmp_path / "tier" / "tiered.t-1-0-iPDKFxWdQseHKZsD7Xy0BQ"
    folder.mkdir(parents=True)
    stored = folder / f"{0:020}-hho242HdR_u6183252Hj6A.log"
    stored.write_bytes(ks.build_batches(value=[b"v"]))
    assert found(audit(folder, log.write().parent)) == [(symbol, 0, 1)]


def test_topics_that_the_cluster_does_not_have(tier: Path) -> None:
    put_local(tier.parent, GOLDEN / "kafka-4.4.0" / "data" / "small-segments-0")
    result = audit(tier)
    (deleted,) = [one for one in result.findings if one.symbol == "DELETED_TOPIC"]
    others = [one for one in tier.parent.rglob("*") if one.is_file() and one.parent != tier]
    stored = sum(one.stat().st_size for one in others)
    assert f"{stored:,} bytes" in deleted.message
    assert (deleted.topic, deleted.partition) == ("small-segments", 0)
    (tiers,) = {one.topic for one in open_tiered(tier.parent).topic_sizes()} - {"tiered"}
    assert tiers == "small-segments"


def test_data_dirs_without_the_topics(tier: Path, tmp_path: Path) -> None:
    for missing, reason in {
        "__remote_log_metadata-0": "the segments that the cluster knows: not checked: ",
        "__cluster_metadata-0": "deleted topics and retention: not checked: ",
    }.items():
        data = Path(shutil.copytree(DATA, tmp_path / missing))
        shutil.rmtree(data / missing)
        result = audit(tier, data)
        assert [one.startswith(reason) for one in result.unchecked] == [True]


def test_a_data_dir_has_no_other_cluster() -> None:
    with pytest.raises(TypeError, match="cluster is for remote storage"):
        ks.audit(DATA, cluster=DATA)


def exceeded(limits: Sequence[tuple[str, str]], now_ms: int) -> list[tuple[int | None, int]]:
    from kafkascan.auditing.finding_kinds import FoundInLog
    from kafkascan.auditing.tiers.cluster_records import _check_retention

    tally = FoundInLog()
    _check_retention(SEGMENTS, dict(limits), now_ms, tally)
    return [(one.offset, one.count) for one in tally.of_kind("RETENTION_EXCEEDED")]


HOUR = 3_600_000
SIZES = [row["size"] for row in SEGMENTS]


@pytest.mark.parametrize(
    ("limits", "now_ms", "count"),
    [
        ([("retention.ms", "-1")], NOW * 2, 0),
        ([], NOW * 2, 0),
        ([("retention.ms", "1000")], NOW + 1000 + HOUR, len(SEGMENTS) - 1),
        ([("retention.ms", "1000")], NOW + 1001 + HOUR, len(SEGMENTS)),
        ([("retention.ms", str(NOW))], NOW + HOUR, 0),
        ([("retention.bytes", str(sum(SIZES)))], NOW, 0),
        ([("retention.bytes", str(sum(SIZES) - SIZES[0] + 1))], NOW, 0),
        ([("retention.bytes", str(sum(SIZES) - SIZES[0]))], NOW, 1),
        ([("retention.bytes", str(SIZES[-1]))], NOW, len(SEGMENTS) - 1),
        ([("retention.bytes", "9" * 30)], NOW, 0),
        ([("retention.bytes", "many")], NOW, 0),
    ],
)
def test_retention(limits: list[tuple[str, str]], now_ms: int, count: int) -> None:
    expected = [(SEGMENTS[0]["start_offset"], count)] if count else []
    assert exceeded(limits, now_ms) == expected
