"""Segments in remote storage and on a broker's disk, read as one log."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path

import pytest

import kafkascan as ks
from kafkascan.broker_state.checkpoints import LeaderEpoch
from kafkascan.logs.log_dir import LogDir, PartitionDir
from kafkascan.tiered import JoinedLogs, TieredLogs, open_tiered
from kafkascan.tiered.joined_logs import contradiction
from kafkascan.tiered.tier_files import SyntheticFile
from kafkascan.tiered.tier_segments import TierSegment
from tests.support.paths import GOLDEN
from tests.support.tiers import TOPIC_ID, AivenTier, put_local

WHOLE = GOLDEN / "kafka-4.4.0" / "data" / "small-segments-0"
BASES = sorted(int(log.stem) for log in WHOLE.glob("*.log"))


@pytest.fixture
def local(tmp_path: Path) -> Path:
    """The partition without its first ten segments, in a data directory."""
    folder = Path(shutil.copytree(WHOLE, tmp_path / "data" / WHOLE.name))
    (folder / "partition.metadata").write_text(f"version: 0\ntopic_id: {TOPIC_ID}\n")
    for base in BASES[:10]:
        for path in folder.glob(f"{base:020}.*"):
            path.unlink()
    return folder


@pytest.fixture(params=["local", "aiven"])
def tier(request: pytest.FixtureRequest, tmp_path: Path) -> TieredLogs:
    if request.param == "local":
        put_local(tmp_path / "tier", WHOLE)
    else:
        AivenTier(tmp_path / "tier", is_compressed=True).put_partition(WHOLE)
    return open_tiered(tmp_path / "tier")


def require_the_whole_log(one: PartitionDir) -> None:
    """Compare what every kind of reader gets with the log before its segments were moved."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # overlaps are warnings
        assert ks.read_records(one).to_arrow().equals(ks.read_records(WHOLE).to_arrow())
    counted, expected = ks.count_records(one), ks.count_records(WHOLE)
    assert counted.counts["records"].tolist() == expected.counts["records"].tolist()
    assert not counted.problems
    tables = [ks.scan_log_dir(log_dir) for log_dir in (LogDir(one.path, [one]), WHOLE)]
    offsets = [table.to_arrow()["base_offset"].to_pylist() for table in tables]
    assert offsets[0] == offsets[1]
    for offset in range(0, 480, 37):
        mine, whole = ks.lookup_offset(one, offset), ks.lookup_offset(WHOLE, offset)
        assert (mine is None) == (whole is None)
        if mine is not None and whole is not None:
            assert mine.position == whole.position
            # The object, for a remote one.
            assert Path(mine.path).name[:20] == Path(whole.path).name[:20]
            assert Path(mine.path).exists()
    times = ks.read_records(WHOLE).to_arrow()["timestamp"].cast("int64").to_pylist()
    for time in times[::41]:
        mine_at, whole_at = ks.lookup_timestamp(one, time), ks.lookup_timestamp(WHOLE, time)
        assert mine_at is not None
        assert whole_at is not None
        assert (mine_at.offset, mine_at.timestamp) == (whole_at.offset, whole_at.timestamp)


def test_each_offset_once(tier: TieredLogs, local: Path) -> None:
    joined = ks.open_log_dir(local.parent, tier=tier)
    assert isinstance(joined, JoinedLogs)
    assert joined.problems == []
    (one,) = joined.partitions
    assert one.path == local
    assert [log.base_offset for log in one.log_segments] == BASES
    require_the_whole_log(one)
    (folder,) = ks.open_log_dir(local, tier=tier).partitions
    assert [log.base_offset for log in folder.log_segments] == BASES


def test_a_remote_segment_that_reaches_over_the_local_start(
    tier: TieredLogs, local: Path, tmp_path: Path
) -> None:
    """The local replica began a segment elsewhere: within one that another replica uploaded."""
    batches = ks.scan_batches(WHOLE / f"{BASES[9]:020}.log").batches
    middle = batches[len(batches) // 2]
    data = (WHOLE / f"{BASES[9]:020}.log").read_bytes()[int(middle["position"]) :]
    (local / f"{int(middle['base_offset']):020}.log").write_bytes(data)
    joined = ks.open_log_dir(local, tier=tier)
    assert isinstance(joined, JoinedLogs)
    assert joined.problems == []
    (one,) = joined.partitions
    records = ks.read_records(one).to_arrow()
    assert records.equals(ks.read_records(WHOLE).to_arrow())
    counted = ks.count_records(one)
    assert (len(counted.problems), counted.counts["records"].tolist()) == (0, [records.num_rows])
    assert ks.lookup_offset(one, int(middle["base_offset"]) - 1) is not None


def test_a_missing_segment_is_a_problem(local: Path, tmp_path: Path) -> None:
    put_local(tmp_path / "tier", WHOLE)
    for path in (tmp_path / "tier").rglob(f"{BASES[9]:020}-*"):
        path.unlink()
    joined = ks.open_log_dir(local, tier=open_tiered(tmp_path / "tier"))
    assert isinstance(joined, JoinedLogs)
    (problem,) = joined.problems
    assert problem.symbol == "MISSING_RANGE"
    assert f"the offsets {BASES[9]} to {BASES[10] - 1}" in problem.reason


def test_the_place_of_a_tier_is_enough(tmp_path: Path, local: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    put_local(tmp_path / "tier", WHOLE)
    fsspec.filesystem("memory").put(str(tmp_path / "tier"), "/place-of-a-tier", recursive=True)
    places = [tmp_path / "tier", str(tmp_path / "tier"), "memory://place-of-a-tier"]
    for place in places:
        joined = ks.open_log_dir(local, tier=place)
        assert [log.base_offset for log in joined.partitions[0].log_segments] == BASES
    url, options = places[2], {"skip_instance_cache": False}
    assert len(ks.open_log_dir(local, tier=url, storage_options=options).partitions) == 1
    with pytest.raises(TypeError, match="storage_options are for URLs"):
        ks.open_log_dir(local, tier=places[0], storage_options=options)


def test_a_segment_of_another_lineage_is_not_read(tier: TieredLogs, local: Path) -> None:
    (local / "leader-epoch-checkpoint").write_text(f"0\n2\n0 0\n3 {BASES[5]}\n")
    joined = ks.open_log_dir(local, tier=tier)
    assert isinstance(joined, JoinedLogs)
    bases = [log.base_offset for log in joined.partitions[0].log_segments]
    assert bases == [*BASES[:5], *BASES[10:]]
    assert [one.symbol for one in joined.problems] == ["OTHER_LINEAGE"] * 5 + ["MISSING_RANGE"]


def test_topics_of_other_ids_are_not_joined(tier: TieredLogs, local: Path) -> None:
    (local / "partition.metadata").write_text(f"version: 0\ntopic_id: {TOPIC_ID[::-1][:21]}A\n")
    joined = ks.open_log_dir(local, tier=tier)
    assert [log.base_offset for log in joined.partitions[0].log_segments] == BASES[10:]


def segment(base: int, *epochs: tuple[int, int]) -> TierSegment:
    return TierSegment("t", None, 0, base, None, SyntheticFile(b""), {}, 0, leader_epochs=epochs)


NEXT_IS_2 = "in the log epoch 2 begins at offset 10"


@pytest.mark.parametrize(
    ("one", "end", "reason"),
    [
        (segment(0, (1, 0)), 10, None),
        (segment(0, (1, 0), (2, 10)), 15, None),
        (segment(5, (1, 5), (2, 10)), 20, None),
        # Records after the point at which epoch 2 went on.
        (segment(5, (1, 5)), 11, f"it has offsets up to 10 of epoch 1, {NEXT_IS_2}"),
        (segment(5, (1, 5), (2, 9)), 12, f"epoch 2 begins at offset 9, {NEXT_IS_2}"),
        (segment(5, (1, 5), (2, 11)), 15, f"epoch 2 begins at offset 11, {NEXT_IS_2}"),
        (segment(5, (1, 5), (3, 10)), 15, f"epoch 3 begins at offset 10, {NEXT_IS_2}"),
        (segment(10, (3, 10)), 15, "the log has no leader epoch 3"),
        (segment(9, (2, 9)), 15, "its leader epoch 2 begins at offset 9, the log's at 10"),
        (segment(10, (2, 10)), 15, None),
        (segment(12, (2, 12)), 20, None),
        (segment(20, (4, 20)), 10**6, None),
        (segment(20, (5, 20)), 30, "its last leader epoch is 5, the log has 1 to 4"),
        (segment(20, (4, 20), (5, 22)), 30, "its last leader epoch is 5, the log has 1 to 4"),
        # The log begins after epoch 0.
        (segment(0, (0, 0), (1, 4)), 8, None),
        (segment(0, (0, 0)), 4, "its last leader epoch is 0, the log has 1 to 4"),
        (segment(5, (1, 5), (2, 10), (4, 20)), 25, None),
        # Epoch 2 is missing.
        (segment(5, (1, 5), (4, 20)), 25, f"epoch 4 begins at offset 20, {NEXT_IS_2}"),
        # No record was written in epoch 3.
        (segment(12, (2, 12), (3, 20), (4, 20)), 25, None),
        # Nothing is known about the epochs of the segment.
        (segment(5), 25, None),
    ],
)
def test_the_reason_why_a_segment_is_of_another_lineage(
    one: TierSegment, end: int, reason: str | None
) -> None:
    lineage = [LeaderEpoch(1, 2), LeaderEpoch(2, 10), LeaderEpoch(4, 20)]
    assert contradiction(one, end, lineage) == reason
    assert contradiction(one, end, []) is None
