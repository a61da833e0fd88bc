"""Salvage of one segment: intact batches stay as they are, guesses are marked."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

import kafkascan as ks
from kafkascan.recovery.salvaging.header_repair import RepairedLog
from kafkascan.recovery.salvaging.segment_salvage import salvage_segment
from tests.support.paths import GOLDEN
from tests.support.segments import T0, Rig, batch_v2


def salvaged(
    log: bytes, base_offset: int = 0, **options: object
) -> tuple[ks.recovery.SegmentSalvage, RepairedLog]:
    return salvage_segment(ks.Source(log), "0.log", base_offset, **options)  # type: ignore[arg-type]


def offsets(found: RepairedLog) -> list[int]:
    kept: list[int] = found.batches["base_offset"].tolist()
    return kept


def dense(count: int, first: int = 1000, step_ms: int = 1) -> Rig:
    rig = Rig()
    for row in range(count):
        time = T0 + step_ms * row
        rig.batch(
            bytes([row]) * 20, base_offset=first + row, base_timestamp=time, max_timestamp=time
        )
    return rig


def test_a_wrong_offset_does_not_change_its_intact_neighbour() -> None:
    """Batch 1017 has offset 1019: nothing after 1018 shows which of the two is wrong."""
    rig = dense(19).set(17, "base_offset", 1019)
    segment, found = salvaged(rig.log, 1000)
    assert segment.repairs == []
    assert offsets(found) == [*range(1000, 1017), 1018]
    assert [one.is_doubtful for one in segment.pieces] == [False, True]
    assert [one.position for one in segment.losses] == [rig.position_of(17)]


def test_a_wrong_offset_between_sure_neighbours_is_repaired() -> None:
    rig = dense(30).set(17, "base_offset", 1019)
    segment, found = salvaged(rig.log, 1000)
    assert offsets(found) == list(range(1000, 1030))
    (repair,) = segment.repairs
    assert (repair.position, repair.old, repair.new) == (rig.position_of(17), 1019, 1017)
    assert repair.is_certain
    assert not any(one.is_doubtful for one in segment.pieces)


def _equal(**fields: int) -> Rig:
    """Ten batches with the same content: only their offsets differ, which no checksum covers."""
    rig = Rig()
    for row in range(10):
        rig.batch(b"same", base_offset=1000 + row, **fields)
    return rig


@pytest.mark.parametrize("other", [1001, 1004, 1007])
def test_an_offset_that_becomes_that_of_an_equal_batch_is_repaired(other: int) -> None:
    rig = _equal().set(5, "base_offset", other)
    segment, found = salvaged(rig.log, 1000)
    assert offsets(found) == list(range(1000, 1010))
    (repair,) = segment.repairs
    assert (repair.old, repair.new, repair.is_certain) == (other, 1005, False)
    assert segment.duplicates == []


def test_a_copy_is_not_repaired() -> None:
    """No producer writes a sequence twice, and times ascend."""
    of_producer = _equal(producer_id=1, producer_epoch=0, base_sequence=7)
    segment, found = salvaged(of_producer.set(5, "base_offset", 1007).log, 1000)
    assert offsets(found) == [1000, 1001, 1002, 1003, 1004, 1006, 1007, 1008, 1009]
    assert [one.first_offset for one in segment.duplicates] == [1007]
    moved = dense(10)
    start, stop = (moved.position_of(row) for row in (7, 8))
    at = moved.position_of(5)
    log = bytearray(moved.log)
    log[at : at + stop - start] = log[start:stop]
    segment, found = salvaged(bytes(log), 1000)
    assert offsets(found) == [1000, 1001, 1002, 1003, 1004, 1006, 1007, 1008, 1009]
    assert [one.first_offset for one in segment.duplicates] == [1007]


def test_several_offsets_that_are_too_high_for_the_log_are_repaired() -> None:
    """Flipped bits give offsets that no lost end of this log had."""
    rig = dense(60)
    for row, bit in ((10, 30), (25, 21), (40, 29)):
        rig.set(row, "base_offset", (1000 + row) ^ (1 << bit))
    segment, found = salvaged(rig.log, 1000)
    assert offsets(found) == list(range(1000, 1060))
    assert [one.is_certain for one in segment.repairs] == [True] * 3
    assert segment.losses == []


def test_a_repair_is_not_certain_if_another_batch_with_its_offset_may_be_the_wrong_one() -> None:
    """Without times, the batches may have changed places, and the other one lost a bit."""
    segment, _ = salvaged(dense(30, step_ms=0).set(17, "base_offset", 1019).log, 1000)
    assert [(one.new, one.is_certain) for one in segment.repairs] == [(1017, False)]


def test_a_repair_at_the_end_is_not_certain() -> None:
    rig = dense(20).set(19, "base_offset", 1019 ^ 16)
    segment, found = salvaged(rig.log, 1000)
    assert offsets(found) == list(range(1000, 1020))
    assert [(one.new, one.is_certain) for one in segment.repairs] == [(1019, False)]


def test_a_repair_in_a_log_with_gaps_is_not_certain() -> None:
    """The neighbours may be wrong: an offset that fits into a gap contradicts nothing."""
    rig = Rig()
    for offset in (0, 1, 2, 5, 6, 7, 11, 12, 15, 16):
        rig.batch(base_offset=offset)
    segment, found = salvaged(rig.set(4, "base_offset", 6 ^ 512).log)
    assert offsets(found) == [0, 1, 2, 5, 6, 7, 11, 12, 15, 16]
    assert [one.is_certain for one in segment.repairs] == [False]


@pytest.mark.parametrize("between", [b"", bytes(512), b"\1" * 8])
def test_a_copy_is_a_duplicate(between: bytes) -> None:
    rig = dense(30)
    copy = bytes(rig.parts[5])
    segment, found = salvaged(rig.log + between + copy + bytes(4096), 1000)
    assert offsets(found) == list(range(1000, 1030))
    (one,) = segment.duplicates
    assert (one.position, one.size) == (len(rig.log) + len(between), len(copy))
    assert (one.first_offset, one.last_offset) == (1005, 1005)
    assert segment.repairs == []
    assert all(loss.position != one.position for loss in segment.losses)


def test_a_copy_in_the_place_of_another_batch() -> None:
    rig = dense(30)
    rig.parts[12] = rig.parts[5].copy()
    segment, found = salvaged(rig.log, 1000)
    assert offsets(found) == [*range(1000, 1012), *range(1013, 1030)]
    assert [one.position for one in segment.duplicates] == [rig.position_of(12)]
    assert segment.repairs == []


def test_swapped_batches_keep_their_offsets() -> None:
    rig = dense(30)
    rig.parts[8], rig.parts[20] = rig.parts[20], rig.parts[8]
    segment, found = salvaged(rig.log, 1000)
    assert segment.repairs == []
    assert offsets(found) == [1000 + row for row in range(30) if row not in (8, 20)]


def test_batches_of_another_log_in_a_tail_are_doubtful() -> None:
    """Their offsets continue the log after a gap, and nothing else shows where they belong."""
    other = b"".join(batch_v2(b"other", base_offset=1100 + row) for row in range(5))
    for tail in (b"", bytes(4096)):
        segment, _ = salvaged(dense(30).log + bytes(512) + other + tail, 1000)
        assert [one.is_doubtful for one in segment.pieces] == [False, True]
        segment, found = salvaged(dense(30).log + bytes(512) + other, 1000, doubtful="drop")
        assert offsets(found) == list(range(1000, 1030))


def test_sequences_confirm_batches_after_lost_bytes() -> None:
    rig = Rig()
    for row in range(30):
        rig.batch(b"v" * 40, base_offset=row, producer_id=7, producer_epoch=0, base_sequence=row)
    log = bytearray(rig.log)
    log[rig.position_of(10) + 30 : rig.position_of(13) + 30] = bytes(
        rig.position_of(13) - rig.position_of(10)
    )
    segment, found = salvaged(bytes(log))
    assert offsets(found) == [*range(10), *range(14, 30)]
    assert not any(one.is_doubtful for one in segment.pieces)


def test_an_epoch_that_one_batch_contradicts_stays() -> None:
    rig = Rig()
    for row, epoch in enumerate([4, 4, 4, 5, 4]):
        rig.batch(base_offset=row, partition_leader_epoch=epoch)
    segment, _ = salvaged(rig.log)
    assert segment.repairs == []
    segment, _ = salvaged(rig.log, known_epochs={4})
    assert [(one.old, one.new) for one in segment.repairs] == [(5, 4)]


def test_an_epoch_that_a_stale_checkpoint_lacks_stays() -> None:
    rig = Rig()
    for row, epoch in enumerate([4, 4, 5, 6, 6]):
        rig.batch(base_offset=row, partition_leader_epoch=epoch)
    segment, _ = salvaged(rig.log, known_epochs={4})
    assert segment.repairs == []


def test_a_last_batch_after_the_only_gap_is_doubtful() -> None:
    """One flipped bit of 1019 is 3067; a log that has gaps elsewhere shows nothing."""
    assert [one.is_doubtful for one in salvaged(last_at(3067).log, 1000)[0].pieces] == [False, True]
    assert [one.is_doubtful for one in salvaged(last_at(3068).log, 1000)[0].pieces] == [False]
    gap = last_at(3067).set(0, "base_offset", 900)
    assert [one.is_doubtful for one in salvaged(gap.log, 900)[0].pieces] == [False, True]
    near = last_at(3067).set(18, "base_offset", 1020)
    assert [one.is_doubtful for one in salvaged(near.log, 1000)[0].pieces] == [False]


def last_at(offset: int) -> Rig:
    return dense(20).set(19, "base_offset", offset)


def epochs(*values: int) -> Rig:
    rig = Rig()
    for row, epoch in enumerate(values):
        rig.batch(bytes([row]) * 20, base_offset=row, partition_leader_epoch=epoch)
    return rig


def test_an_epoch_that_its_neighbours_contradict_is_doubtful() -> None:
    segment, found = salvaged(epochs(5, 5, 5, 5, 69, 5).log)
    assert segment.repairs == []
    assert [one.is_doubtful for one in segment.pieces] == [False, True]
    assert segment.pieces[0].batches == 4
    assert found.batches["partition_leader_epoch"].tolist() == [5, 5, 5, 5, 69, 5]


def test_epochs_of_single_batches_do_not_condemn_another() -> None:
    """9 and 9 became 265 and 521: together they would outweigh the intact last epoch."""
    segment, _ = salvaged(epochs(5, 5, 5, 8, 8, 8, 265, 521, 9).log)
    assert segment.repairs == []
    assert [one.batches for one in segment.pieces if one.is_doubtful] == [2]


def test_a_copy_with_another_epoch_makes_a_batch_doubtful() -> None:
    log = epochs(0, 0, 64)
    segment, _ = salvaged(log.log + b"\1" * 8 + epochs(0, 0, 0).log)
    assert [(one.batches, one.is_doubtful) for one in segment.pieces] == [(2, False), (1, True)]
    assert len(segment.duplicates) == 3


def test_an_epoch_beside_damaged_bytes_is_not_certain() -> None:
    rig = epochs(*[4] * 10, 0, *[4] * 10)
    assert [one.is_certain for one in salvaged(rig.log)[0].repairs] == [True]
    rig.set(9, "records_count", 99)
    assert [one.is_certain for one in salvaged(rig.log)[0].repairs] == [False]


def test_a_batch_that_the_lost_end_may_have_had_keeps_its_offset() -> None:
    """Batch 23 lies where 5 was: 18 differs from 5 in more than one bit."""
    parts = [batch_v2(bytes([row]), base_offset=row) for row in range(24)]
    segment, found = salvaged(b"".join([*parts[:5], parts[23], *parts[6:20]]))
    assert segment.repairs == []
    assert offsets(found) == [*range(5), *range(6, 20)]
    assert [one.symbol for one in segment.losses] == ["OFFSETS_NOT_ASCENDING"]


def test_a_batch_whose_place_has_a_copy_keeps_its_offset() -> None:
    """Batches 26 and 30 were swapped, and 28 was written over 30."""
    parts = [batch_v2(bytes([row]), base_offset=row) for row in range(50)]
    moved = [*parts[:26], parts[28], *parts[27:30], parts[26], *parts[31:]]
    segment, found = salvaged(b"".join(moved))
    assert segment.repairs == []
    assert set(offsets(found)) == set(range(50)) - {26, 30}
    assert len(segment.duplicates) == 1


def test_an_offset_of_zero_is_not_repaired_with_certainty() -> None:
    """A batch may have been moved, and its offset zeroed: 0 is no flipped bit of 16 then."""
    for stored, is_certain in ((0, False), (17, True)):
        segment, found = salvaged(dense(30, 0).set(16, "base_offset", stored).log)
        assert offsets(found) == list(range(30))
        assert [one.is_certain for one in segment.repairs] == [is_certain]


def test_two_copies_of_a_batch_are_not_repaired() -> None:
    """The first offset is wrong, and the batch was written over another one, too."""
    rig = dense(20, 0).set(0, "base_offset", 4)
    rig.parts[5] = rig.parts[0]
    segment, found = salvaged(rig.log)
    assert segment.repairs == []
    assert offsets(found) == [1, 2, 3, 4, *range(6, 20)]


def test_a_batch_that_fits_a_gap_elsewhere_keeps_its_offset() -> None:
    """11 is 3 with one flipped bit, or a batch from between 9 and 13 that was moved."""
    rig = dense(10, 0).batch(base_offset=13).set(3, "base_offset", 11)
    segment, found = salvaged(rig.log)
    assert segment.repairs == []
    assert offsets(found) == [0, 1, 2, 4, 5, 6, 7, 8, 9, 13]
    assert [one.claimed_first_offset for one in segment.losses] == [11]


def test_a_repair_within_a_doubtful_range_is_not_certain() -> None:
    tail = dense(30, 1040).set(17, "base_offset", 1057 ^ 1 << 40)
    segment, found = salvaged(dense(5).log + b"\1" * 8 + tail.log, 1000)
    assert offsets(found) == [*range(1000, 1005), *range(1040, 1070)]
    assert [(one.new, one.is_certain) for one in segment.repairs] == [(1057, False)]
    length = dense(30, 1040).set(17, "batch_length", 2**30)
    (repair,) = salvaged(dense(5).log + b"\1" * 8 + length.log, 1000)[0].repairs
    assert (repair.field, repair.is_certain) == ("batch_length", True)


def test_few_higher_epochs_do_not_change_one_after_them() -> None:
    """Either one epoch has a flipped bit, or the others have the same one."""
    for count in (2, 3):
        segment, _ = salvaged(epochs(*[8193] * count, 1).log)
        assert segment.repairs == []
        assert [one.batches for one in segment.pieces if one.is_doubtful] == [2]
    assert [one.new for one in salvaged(epochs(5, 5, 5, 5, 4).log)[0].repairs] == [5]
    assert [one.new for one in salvaged(epochs(5, 133, 5, 5).log)[0].repairs] == [5]


def test_the_lowest_epoch_contradicts_the_one_before() -> None:
    segment, _ = salvaged(epochs(0, 512, -(2**31)).log)
    assert [one.batches for one in segment.pieces if one.is_doubtful] == [2]


def test_the_copy_of_a_batch_that_is_dropped_is_kept() -> None:
    """The stale range has more batches, and the epochs show afterwards that it is stale."""
    rig, stale, end = Rig(), Rig(), Rig()
    for row in range(8):
        rig.batch(bytes([row]) * 20, base_offset=row, partition_leader_epoch=3)
    for row in range(19, 25):
        stale.batch(bytes([row]) * 20, base_offset=row, partition_leader_epoch=0)
    for row in range(20, 25):
        end.batch(bytes([row]) * 20, base_offset=row, partition_leader_epoch=4)
    noise = b"\1" * 8
    segment, found = salvaged(rig.log + noise + stale.log + noise + end.log)
    assert offsets(found) == [*range(8), *range(20, 25)]
    assert found.batches["partition_leader_epoch"].tolist() == [3] * 8 + [4] * 5
    assert segment.duplicates == []
    assert [one.symbol for one in segment.losses] == ["BAD_LENGTH", "NESTED", "BAD_LENGTH"]


def test_sequences_of_a_lower_epoch_confirm_nothing() -> None:
    """What a leader wrote before it was fenced, in a tail: its followers truncated it."""
    log, tail = Rig(), Rig()
    for row, epoch in enumerate([0, 0, 1, 1, 2, 1, 1, 1]):
        rig = log if row < 5 else tail
        producer = {"producer_id": 7, "producer_epoch": 0, "base_sequence": row}
        rig.batch(bytes([row]), base_offset=row, partition_leader_epoch=epoch, **producer)
    segment, _ = salvaged(log.log + b"\1" * 8 + tail.log)
    assert segment.repairs == []
    doubtful = [one.batches for one in segment.pieces if one.is_doubtful]
    assert (segment.pieces[0].batches, sum(doubtful)) == (4, 4)


def test_an_epoch_that_the_next_leader_may_have_had_stays() -> None:
    """The tail may be what the previous leader wrote before it was fenced."""
    log = epochs(5, 5, 5, 6, 5, 5, 5).log
    segment, _ = salvaged(log)
    assert segment.repairs == []
    assert [one.batches for one in segment.pieces if one.is_doubtful] == [2]
    assert salvaged(log, known_epochs={5, 6})[0].repairs == []
    assert [one.new for one in salvaged(log, known_epochs={5})[0].repairs] == [5]
    assert [one.new for one in salvaged(epochs(5, 5, 5, 69, 5, 5, 5).log)[0].repairs] == [5]


@pytest.mark.parametrize("name", [None, "copy"])
def test_a_salvage_as_json(tmp_path: Path, name: str | None) -> None:
    folder, target = tmp_path / "orders-3", tmp_path / name if name else None
    folder.mkdir()
    log = Rig().batches(3).set(1, "magic", 9).log
    (folder / f"{0:020}.log").write_bytes(log)
    (folder / f"{5:020}.log.deleted").write_bytes(b"")
    result = json.loads(ks.salvage(folder, target).to_json())
    where = {"path": str(folder), "destination": str(target) if target else None}
    size = len(log) // 3
    piece = {"position": 0, "size": len(log), "first_offset": 0, "last_offset": 2}
    repair = {"position": size, "base_offset": 1, "field": "magic", "old": 9, "new": 2}
    segment = {
        "name": "00000000000000000000.log", "base_offset": 0, "size": len(log),
        "kept_bytes": len(log), "lost_bytes": 0, "batches": 3, "records": 3, "end": "CLEAN",
        "zero_tail_bytes": 0,
        "error": None, "copied_as": None, "losses": [], "duplicates": [],
        "pieces": [piece | {"batches": 3, "is_doubtful": False}],
        "repairs": [repair | {"is_certain": True}],
    }  # fmt: skip
    (partition,) = result.pop("partitions")
    complete = {"is_complete": True, "problems": []}
    counts = {"kept_batches": 3, "kept_records": 3, "lost_bytes": 0}
    assert result == where | {"is_marked_clean": False} | counts | complete
    assert partition == where | {
        "topic": "orders", "partition": 3, "lost_bytes": 0, "overlaps": [], "changed": [],
            "error": None,
        "left_out": ["00000000000000000005.log.deleted"], "segments": [segment],
    }  # fmt: skip


def test_a_copy_has_the_owner_and_the_modes_of_the_original(tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(GOLDEN / "kafka-4.4.0" / "data", data)
    (data / "transactions-0").chmod(0o750)
    data.chmod(0o710)
    is_root = os.geteuid() == 0
    if is_root:
        for path in (data, *data.rglob("*")):
            os.chown(path, 1234, 2345)
    ks.salvage(data, tmp_path / "copy")
    ks.salvage(data / "transactions-0", tmp_path / "transactions-0")
    assert (tmp_path / "copy").stat().st_mode & 0o777 == 0o710
    for folder in (tmp_path / "copy" / "transactions-0", tmp_path / "transactions-0"):
        assert folder.stat().st_mode & 0o777 == 0o750
    for path in ((tmp_path / "copy"), *(tmp_path / "copy").rglob("*")):
        owner = (path.stat().st_uid, path.stat().st_gid)
        assert owner == ((1234, 2345) if is_root else (os.geteuid(), data.stat().st_gid))


@pytest.mark.parametrize("name", sorted(one.parent.name for one in GOLDEN.glob("*/data")))
def test_the_recovery_of_a_copy_changes_nothing(name: str, tmp_path: Path) -> None:
    data = GOLDEN / name / "data"
    salvaged = ks.salvage(data, tmp_path / "copy")
    assert salvaged.lost_bytes == 0
    found = ks.recover(tmp_path / "copy")
    assert found.is_in_order
    assert {one.symbol for log in found.partitions for one in log.findings} == set()
    folder = "__cluster_metadata-0"
    if (data / folder).exists():
        epochs = [where / folder / "leader-epoch-checkpoint" for where in (data, tmp_path / "copy")]
        assert epochs[0].read_bytes() == epochs[1].read_bytes()


def test_the_copy_of_a_partition_has_the_interval_of_the_data_dir_around_it(tmp_path: Path) -> None:
    data = Path(shutil.copytree(GOLDEN / "kafka-4.4.0" / "data", tmp_path / "data"))
    shutil.rmtree(data / "small-segments-0")
    log = GOLDEN / "kafka-4.4.0" / "data" / "small-segments-0"
    for target in (data / "small-segments-0", tmp_path / "small-segments-0"):
        ks.salvage(log, target)
        assert ks.recover(target, recovery_point=0).is_in_order
    index = f"{0:020}.index"
    assert (data / "small-segments-0" / index).read_bytes() == (log / index).read_bytes()


def test_damaged_epochs_of_the_metadata_log_are_left_out(tmp_path: Path) -> None:
    data = Path(shutil.copytree(GOLDEN / "kafka-4.4.0" / "data", tmp_path / "data"))
    (data / "__cluster_metadata-0" / "leader-epoch-checkpoint").write_text("nonsense")
    ks.salvage(data, tmp_path / "copy")
    assert not (tmp_path / "copy" / "__cluster_metadata-0" / "leader-epoch-checkpoint").exists()
