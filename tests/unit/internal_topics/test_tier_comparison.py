"""Segments that the cluster knows beside objects in remote storage."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import kafkascan as ks
from kafkascan.internal_topics import (
    TierComparison,
    compare_remote_segments,
    read_remote_segments,
)
from kafkascan.tiered import open_tiered
from tests.support.internal_topics import TopicLog
from tests.support.paths import GOLDEN
from tests.support.tiers import AivenTier, segment_id
from tests.unit.internal_topics.test_remote_segments import ADDED, FINISHED, update

DATA = GOLDEN / "kafka-4.4.0-tiered" / "data"
SEGMENTS = read_remote_segments(DATA).segments.rows()
TOPIC_ID = SEGMENTS[0]["topic_id"]


@pytest.fixture
def tier(tmp_path: Path) -> Path:
    """Objects with the names and sizes that the cluster of the golden files knows."""
    folder = tmp_path / "tier" / f"tiered-0-{TOPIC_ID}"
    folder.mkdir(parents=True)
    for row in SEGMENTS:
        (folder / f"{row['start_offset']:020}-{row['segment_id']}.log").write_bytes(
            bytes(row["size"])
        )
    return folder


def logs_of(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.log"))


def compare(folder: Path, data: Path = DATA) -> TierComparison:
    return compare_remote_segments(data, open_tiered(folder.parent))


def verdicts(found: TierComparison) -> dict[tuple[int, str], str]:
    rows = found.findings.rows()
    return {(row["start_offset"], row["segment_id"]): row["verdict"] for row in rows}


def place(row: dict[str, object]) -> tuple[object, object]:
    return row["start_offset"], row["segment_id"]


def test_what_the_cluster_knows_is_there(tier: Path) -> None:
    found = compare(tier)
    assert found.segments["verdict"] == ["SAME"] * len(SEGMENTS)
    assert found.segments["stored_size"] == [row["size"] for row in SEGMENTS]
    assert (found.sentences(), list(found.problems)) == ([], [])
    assert found.is_exact


def test_objects_that_are_gone_and_cut(tier: Path) -> None:
    logs = logs_of(tier)
    logs[1].unlink()
    logs[2].write_bytes(bytes(100))
    (tier / f"{logs[3].stem}.index").write_bytes(b"")
    logs[3].unlink()
    found = compare(tier)
    assert verdicts(found) == {
        place(SEGMENTS[1]): "MISSING_OBJECT",
        place(SEGMENTS[2]): "DIFFERENT",
        place(SEGMENTS[3]): "MISSING_OBJECT",
    }
    details = [row["detail"] for row in found.findings.rows()]
    assert details[:2] == ["no objects", f"size {SEGMENTS[2]['size']} is 100 in remote storage"]
    assert "is there, not the log" in details[2]
    assert "[MISSING_OBJECT]" in found.sentences()[0]


def test_objects_that_no_record_knows(tier: Path) -> None:
    again = tier / f"{8:020}-{segment_id(1)}.log"  # the same offsets, uploaded again
    again.write_bytes(bytes(50))
    other = tier.parent / f"gone-3-{segment_id(2)}"
    other.mkdir()
    (other / f"{0:020}-{segment_id(3)}.log").write_bytes(bytes(70))
    found = compare(tier)
    assert verdicts(found) == {(8, segment_id(1)): "ORPHAN", (0, segment_id(3)): "ORPHAN"}
    assert sorted(found.findings["stored_size"]) == [50, 70]


def test_without_all_records_an_orphan_is_not_certain(tier: Path, tmp_path: Path) -> None:
    data = Path(shutil.copytree(DATA, tmp_path / "data"))
    shutil.rmtree(data / "__cluster_metadata-0")  # the number of the topic's partitions
    (tier / f"{8:020}-{segment_id(1)}.log").write_bytes(bytes(50))
    other = tier.parent / f"gone-3-{segment_id(2)}"
    other.mkdir()
    (other / f"{0:020}-{segment_id(3)}.log").write_bytes(bytes(70))
    # The records of the first one's partition are those that were read.
    expected = {(8, segment_id(1)): "ORPHAN", (0, segment_id(3)): "UNDECIDED"}
    assert verdicts(compare(tier, data)) == expected


@pytest.mark.parametrize(
    ("records", "verdict"),
    [
        ([ADDED], "UPLOADING"),
        ([ADDED, FINISHED], "SAME"),
        ([ADDED, FINISHED, update(2)], "DELETING"),
        ([ADDED, FINISHED, update(2), update(3)], "DELETED"),
    ],
)
def test_states(tmp_path: Path, records: list[bytes], verdict: str) -> None:
    log = TopicLog(tmp_path / "data" / "__remote_log_metadata-2")
    log.add(*[(None, value) for value in records])
    folder = tmp_path / "tier" / "tiered.t-1-0-iPDKFxWdQseHKZsD7Xy0BQ"
    folder.mkdir(parents=True)
    (folder / f"{0:020}-hho242HdR_u6183252Hj6A.log").write_bytes(bytes(1_040_083))
    found = compare(folder, log.write().parent)
    assert found.segments["verdict"] == [verdict]
    assert len(found.findings) == (verdict == "DELETED")


def test_what_a_manifest_says_differently(tmp_path: Path) -> None:
    log = TopicLog(tmp_path / "data" / "__remote_log_metadata-2")
    log.add((None, ADDED), (None, FINISHED))
    source = tmp_path / "tiered.t-1-0"
    source.mkdir()
    part = ks.build_batches(value=[b"v"])
    (source / f"{0:020}.log").write_bytes(part)
    tier = AivenTier(tmp_path / "tier")
    name = tier.put_segment(source / f"{0:020}.log", 1, 0)
    ids = {"topic": ("iPDKFxWdQseHKZsD7Xy0BQ", "tiered.t-1")}
    found = compare_remote_segments(log.write().parent, open_tiered(tmp_path / "tier"))
    by_id = {row["segment_id"]: row["verdict"] for row in found.segments.rows()}
    assert by_id == {"hho242HdR_u6183252Hj6A": "MISSING_OBJECT", segment_id(0): "UNDECIDED"}
    assert found["segments"] is found.segments
    assert repr(found).startswith("<TierComparison: 2 segments")
    renamed = tmp_path / "renamed" / f"tiered.t-1-{ids['topic'][0]}" / "0"
    renamed.mkdir(parents=True)
    stem = f"{0:020}-hho242HdR_u6183252Hj6A"
    for suffix in ("log", "indexes"):
        shutil.copy(tmp_path / "tier" / f"{name}.{suffix}", renamed / f"{stem}.{suffix}")
    manifest = json.loads((tmp_path / "tier" / f"{name}.rsm-manifest").read_text())
    text = json.dumps(manifest).replace(segment_id(0), "hho242HdR_u6183252Hj6A")
    own_id = manifest["remoteLogSegmentMetadata"]["remoteLogSegmentId"]["topicIdPartition"]
    text = text.replace(own_id["topicId"], ids["topic"][0])
    (renamed / f"{stem}.rsm-manifest").write_text(text)
    found = compare_remote_segments(tmp_path / "data", open_tiered(tmp_path / "renamed"))
    (row,) = found.segments.rows()
    assert row["verdict"] == "DIFFERENT"
    assert "end_offset 1276 is 0 in remote storage" in row["detail"]
    assert f"size 1040083 is {len(part)} in remote storage" in row["detail"]


def test_the_catalogue_of_a_listing(tmp_path: Path) -> None:
    log_folder = GOLDEN / "kafka-4.4.0" / "data" / "small-segments-0"
    AivenTier(tmp_path / "tier").put_partition(log_folder)
    found = read_remote_segments(open_tiered(tmp_path / "tier"))
    bases = sorted(int(log.stem) for log in log_folder.glob("*.log"))
    assert found.segments["start_offset"] == bases
    assert found.segments["end_offset"][:-1] == [base - 1 for base in bases[1:]]
    assert found.segments["size"] == [
        (log_folder / f"{base:020}.log").stat().st_size for base in bases
    ]
    assert set(found.segments["state"]) == {None}
    assert found.segments.to_arrow().num_rows == len(bases)
    assert found.is_exact
    with pytest.raises(ValueError, match="as_of is for records"):
        read_remote_segments(open_tiered(tmp_path / "tier"), as_of=3)


def test_a_listing_names_objects_that_it_does_not_read(tier: Path) -> None:
    (tier / "notes.txt").write_text("hello")
    logs_of(tier)[0].rename(tier / f"{logs_of(tier)[0].stem}.index")
    found = read_remote_segments(open_tiered(tier.parent))
    assert len(found.segments) == len(SEGMENTS) - 1
    assert len(found.problems) == 2
    assert not found.is_exact
