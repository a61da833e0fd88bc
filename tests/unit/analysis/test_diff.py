"""Comparison of logs by their batch headers."""

from __future__ import annotations

import json
import random
import shutil
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kafkascan as ks
from kafkascan.analysis import alignment, fingerprints
from kafkascan.analysis.alignment import _same_offsets, align_by_offset
from kafkascan.analysis.diff import epoch_history, truncation_offset
from kafkascan.analysis.fingerprints import FINGERPRINT
from kafkascan.logs.opened_logs import open_logs
from tests.support.logs import WrittenLog
from tests.support.paths import GOLDEN
from tests.support.segments import batch_v2, message_v1, sign


def log(count: int = 30, seed: int = 1, **fields: int) -> list[bytes]:
    choice = random.Random(seed)
    return [
        batch_v2(choice.randbytes(20), base_offset=2 * row, last_offset_delta=1,
                 records_count=2, **fields)
        for row in range(count)
    ]  # fmt: skip


def diff(left: list[bytes], right: list[bytes], **options: object) -> ks.analysis.PartitionDiff:
    (one,) = ks.diff_logs(b"".join(left), b"".join(right), **options).partitions  # type: ignore[arg-type]
    return one


def shifted(parts: list[bytes], by: int) -> list[bytes]:
    moved = []
    for part in parts:
        (offset,) = struct.unpack_from(">q", part)
        moved.append(struct.pack(">q", offset + by) + part[8:])
    return moved


def test_the_same() -> None:
    found = diff(log(), log())
    assert found.is_same
    assert (found.same_batches, found.ranges, found.first_divergence) == (30, [], None)


def test_leader_epochs_are_not_content() -> None:
    found = diff(log(), log(partition_leader_epoch=4))
    assert found.is_same
    assert found.epoch_changes == 30


def test_retention_and_lag_are_not_divergence() -> None:
    found = diff(log()[3:], log()[:-4])
    assert found.is_same
    assert [(one.kind, one.location) for one in found.ranges] == [
        (ks.analysis.DiffKind.ONLY_RIGHT, ks.analysis.RangeLocation.START),
        (ks.analysis.DiffKind.ONLY_LEFT, ks.analysis.RangeLocation.END),
    ]  # fmt: skip
    assert [(one.right_first_offset, one.right_last_offset) for one in found.ranges[:1]] == [(0, 5)]
    assert found.ranges[1].left_records == 8


def test_missing_batches() -> None:
    parts = log()
    found = diff(parts, parts[:10] + parts[13:20] + parts[21:])
    assert not found.is_same
    assert found.first_divergence == 20
    assert [(one.left_first_offset, one.left_last_offset, one.left_batches)
            for one in found.differences] == [(20, 25, 3), (40, 41, 1)]  # fmt: skip
    assert {one.kind for one in found.ranges} == {ks.analysis.DiffKind.ONLY_LEFT}
    assert diff(parts, parts[:10] + parts[13:], compacted=True).is_same
    assert diff(parts[:10] + parts[13:], parts, compacted=True).is_same
    assert not diff(parts, [], compacted=True).is_same


def test_a_silent_change() -> None:
    parts = log()
    changed = bytearray(parts[7])
    changed[-1] ^= 1
    sign(changed)
    found = diff(parts, [*parts[:7], bytes(changed), *parts[8:]])
    (one,) = found.differences
    assert (one.kind, one.location, one.left_first_offset) == (
        ks.analysis.DiffKind.CHANGED,
        "middle",
        14,
    )
    assert found.first_divergence == 14


def test_a_compacted_copy() -> None:
    parts = log()
    smaller = [
        batch_v2(b"x", base_offset=2 * row, last_offset_delta=1, records_count=1)
        if row % 3 == 0 else part
        for row, part in enumerate(parts)
        if row % 5
    ]  # fmt: skip
    assert not diff(parts, smaller).is_same
    found = diff(parts, smaller, compacted=True)
    assert found.is_same
    assert {one.kind for one in found.ranges} == {
        ks.analysis.DiffKind.COMPACTED,
        ks.analysis.DiffKind.ONLY_LEFT,
    }
    assert diff(smaller, parts, compacted=True).is_same


def test_rebatched_records() -> None:
    parts = log()
    joined = batch_v2(b"both", base_offset=10, last_offset_delta=3, records_count=4)
    found = diff(parts, [*parts[:5], joined, *parts[7:]])
    (one,) = found.differences
    assert one.kind is ks.analysis.DiffKind.REBATCHED
    assert (one.left_batches, one.right_batches, one.left_records) == (2, 1, 4)


def test_nothing_in_common() -> None:
    found = diff(log(), log(seed=2))
    (one,) = found.differences
    assert (one.kind, one.location, found.same_batches) == (
        ks.analysis.DiffKind.CHANGED,
        ks.analysis.RangeLocation.ALL,
        0,
    )
    found = diff(log(), [])
    assert [one.kind for one in found.differences] == [ks.analysis.DiffKind.ONLY_LEFT]
    assert diff([], []).is_same


@pytest.mark.parametrize("is_repeated", [False, True])
def test_mirrors_with_other_offsets(is_repeated: bool) -> None:
    parts = log()
    if is_repeated:  # all of them have the same content
        parts = [batch_v2(b"same", base_offset=row) for row in range(30)]
    mirror = shifted(parts[:10], 1000) + shifted(parts[10:20], 2000) + shifted(parts[22:], 2500)
    found = diff(parts, mirror, offsets="shifted")
    assert found.same_batches == 28
    if not is_repeated:
        assert [one.left_first_offset for one in found.differences] == [40]
        assert [(one.shift, one.batches) for one in found.shifts] == [
            (1000, 10), (2000, 10), (2500, 8)
        ]  # fmt: skip
    assert not diff(parts, mirror).is_same
    with pytest.raises(ValueError, match="offsets"):
        diff(parts, mirror, offsets="other")


def test_alignment_by_content_against_a_reference() -> None:
    """The number of pairs is the length of the longest common subsequence of distinct contents."""
    choice = random.Random(5)
    for _ in range(60):
        parts = [batch_v2(choice.randbytes(9), base_offset=row) for row in range(25)]
        kept = [part for part in parts if choice.random() < 0.8]
        extra = [batch_v2(choice.randbytes(9), base_offset=0) for _ in range(3)]
        for one in extra:
            kept.insert(choice.randrange(len(kept) + 1), one)
        ordered = [struct.pack(">q", row) + part[8:] for row, part in enumerate(kept)]
        found = diff(parts, ordered, offsets="shifted")
        assert found.same_batches == len(kept) - 3


# ---- truncation ------------------------------------------------------------------------------


def rows(*epochs: tuple[int, int]) -> np.ndarray:
    """Return batches of one record each: a count for each epoch."""
    found = np.zeros(sum(count for _, count in epochs), FINGERPRINT)
    found["first_offset"] = found["last_offset"] = np.arange(len(found))
    found["leader_epoch"] = np.repeat([epoch for epoch, _ in epochs], [n for _, n in epochs])
    return found


@pytest.mark.parametrize(
    ("leader", "follower", "expected"),
    [
        (((0, 10),), ((0, 10),), None),
        (((0, 10),), ((0, 7),), None),
        (((0, 10),), ((0, 12),), 10),
        (((0, 10), (2, 5)), ((0, 10), (1, 5)), 10),
        (((0, 10), (2, 5)), ((0, 12), (1, 5)), 10),
        (((0, 10), (2, 5)), ((0, 8), (1, 5)), 8),
        (((0, 5), (3, 5)), ((0, 5), (1, 2), (2, 2)), 5),
        (((2, 5),), ((0, 5), (1, 2)), 0),
        (((0, 5), (1, 5)), ((3, 5),), 0),
        ((), ((0, 5),), None),
        (((0, 5),), (), None),
    ],
)
def test_truncation(
    leader: tuple[tuple[int, int], ...],
    follower: tuple[tuple[int, int], ...],
    expected: int | None,
) -> None:
    of_leader, of_follower = (epoch_history(rows(*one)) for one in (leader, follower))
    assert truncation_offset(of_leader, of_follower) == expected


# ---- data dirs and files ---------------------------------------------------------------------


def data_dir(folder: Path, cuts: list[int], names: tuple[str, ...] = ("a-0", "b-1")) -> Path:
    for seed, name in enumerate(names):
        written = WrittenLog(random.Random(seed)).write(80, list(range(3)))
        (folder / name).mkdir(parents=True)
        for start, stop in zip([0, *cuts], [*cuts, None], strict=True):
            base_offset, data = written.segment(start, stop)
            (folder / name / f"{base_offset:020}.log").write_bytes(data)
    return folder


def test_segment_boundaries_may_differ(tmp_path: Path) -> None:
    left = data_dir(tmp_path / "left", [20, 40])
    right = data_dir(tmp_path / "right", [10, 33, 50], ("a-0", "b-1", "c-2"))
    found = ks.diff_logs(left, right)
    assert [one.is_same for one in found.partitions] == [True, True, False]
    assert not found.partitions[2].is_in_left
    assert json.loads(found.to_json())["is_same"] is False
    assert found.to_arrow().num_rows == 1


def test_notes_of_a_file_are_notes(tmp_path: Path) -> None:
    log_file = data_dir(tmp_path / "ü 1", [], ("a-0",)) / "a-0" / f"{0:020}.log"
    log_file.write_bytes(log_file.read_bytes() + bytes(4096))
    read = ks.analysis.read_fingerprints(tmp_path / "ü 1")
    path = tmp_path / "saved.parquet"
    read.save(path)
    loaded = ks.analysis.read_fingerprints(path)
    assert list(loaded.problems) == list(read.problems)
    (note,) = loaded.problems
    assert note.severity is ks.Severity.NOTE
    assert ks.diff_logs(tmp_path / "ü 1", path).is_same
    moving = tmp_path / "ü 1" / f"b-0.{32 * '0'}-future"
    shutil.copytree(tmp_path / "ü 1" / "a-0", moving)
    ks.analysis.read_fingerprints(tmp_path / "ü 1").save(path)
    loaded = ks.analysis.read_fingerprints(path)
    assert all(isinstance(one.severity, ks.Severity) for one in (*loaded.notes, *loaded.problems))


def test_fingerprints_survive_a_file(tmp_path: Path) -> None:
    left = data_dir(tmp_path / "left", [20])
    (left / "empty-0").mkdir()
    (left / "empty-0" / f"{0:020}.log").write_bytes(b"")
    epochs = left / "a-0" / "leader-epoch-checkpoint"
    ks.broker_state.write_leader_epochs(epochs, [ks.broker_state.LeaderEpoch(3, 0)])
    cleaner = left / "cleaner-offset-checkpoint"
    ks.broker_state.write_offset_checkpoint(cleaner, {("a", 0): 40})
    saved = ks.analysis.read_fingerprints(left)
    path = tmp_path / "saved.parquet"
    saved.save(path)
    loaded = ks.analysis.read_fingerprints(path)
    for one, other in zip(saved.logs, loaded.logs, strict=True):
        assert (one.topic, one.partition) == (other.topic, other.partition)
        assert (one.epochs, one.cleaned_up_to) == (other.epochs, other.cleaned_up_to)
        assert np.array_equal(one.rows, other.rows)
    assert (loaded.logs[0].epochs, loaded.logs[0].cleaned_up_to) == ([(3, 0)], 40)
    assert ks.diff_logs(left, path).is_same
    right = data_dir(tmp_path / "right", [20])
    log_file = next((right / "a-0").glob("*.log"))
    data = bytearray(log_file.read_bytes())
    data[18] ^= 1  # a stored checksum
    log_file.write_bytes(data)
    assert not ks.diff_logs(path, right).is_same


@pytest.mark.parametrize(
    "data",
    [b"", b"{}", b"[]", b"\xff", b'{"format": "kafkascan fingerprints", "version": 3}',
     b'{"format": "kafkascan fingerprints", "version": 2, "columns": [], "logs": 5}'],
)  # fmt: skip
def test_files_without_fingerprints(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "x.parquet"
    path.write_bytes(data)
    with pytest.raises(ks.analysis.FingerprintFileError):
        ks.analysis.read_fingerprints(path)


def test_files_of_other_kinds(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="parquet"):
        ks.analysis.read_fingerprints(b"").save(tmp_path / "x.csv")
    with pytest.raises(FileNotFoundError):
        ks.analysis.read_fingerprints(tmp_path / "x.parquet")


def test_damage_does_not_end_a_comparison() -> None:
    parts = log()
    broken = [*parts[:5], b"\xff" * 80, *parts[6:]]
    found = diff(parts, broken)
    assert not found.is_same
    assert found.same_batches == 29
    gap, doubtful = found.problems
    assert gap.message.startswith("80 bytes are skipped")
    assert (gap.rows_missing, doubtful.rows_missing) == (True, False)
    assert "24 batches may not belong to the log" in doubtful.message


def test_old_messages() -> None:
    parts = [message_v1(b"k", b"v%d" % row, offset=row) for row in range(9)]
    assert diff(parts, parts).is_same
    found = diff(parts, [*parts[:4], message_v1(b"k", b"w4", offset=4), *parts[5:]])
    assert [one.kind for one in found.differences] == [ks.analysis.DiffKind.CHANGED]


def test_golden_logs_equal_themselves() -> None:
    data = GOLDEN / "kafka-4.4.0" / "data"
    found = ks.diff_logs(data, data)
    assert found.is_same
    assert sum(one.same_batches for one in found.partitions) > 200


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("is_ascending", [True, False])
def test_alignment_by_offset_against_a_reference(seed: int, is_ascending: bool) -> None:
    """Many short runs of same batches, gaps on both sides, other epochs."""
    dice = np.random.default_rng(seed)
    whole = np.zeros(3000, FINGERPRINT)
    whole["first_offset"] = whole["last_offset"] = np.arange(3000) * 2
    whole["crc"], whole["size"], whole["magic"] = dice.integers(0, 2**32, 3000), 100, 2
    left, right = (whole[dice.random(3000) < 0.8] for _ in range(2))
    for name in ("crc", "size", "magic", "first_offset", "leader_epoch"):
        right[name][dice.random(len(right)) < 0.1] += 1
    if not is_ascending:
        left["last_offset"][5] = left["last_offset"][9]
        right["last_offset"][700] = 10**6
    found = align_by_offset(left, right)
    pairs = _same_offsets(left["last_offset"], right["last_offset"])
    wanted = [
        (row, other)
        for row, other in zip(*pairs, strict=True)
        if all(left[name][row] == right[name][other]
               for name in ("crc", "size", "magic", "first_offset"))
    ]  # fmt: skip
    assert list(zip(found.left.tolist(), found.right.tolist(), strict=True)) == wanted
    assert len(found) == len(wanted) > 1000
    epochs = [left["leader_epoch"][row] != right["leader_epoch"][other] for row, other in wanted]
    assert found.epoch_changes == sum(epochs) > 0
    # Runs and blocks together cover both logs.
    for side, rows in (("left", left), ("right", right)):
        parts = [getattr(block, side) for block in found.blocks]
        covered = sum((part.stop - part.start for part in parts), len(found))
        assert covered == len(rows)
        assert not set(getattr(found, side).tolist()) & {
            row for part in parts for row in range(part.start, part.stop)
        }
    if is_ascending:
        offsets = {int(row["last_offset"]): at for at, row in enumerate(right)}
        assert {(a, b) for a, b in wanted} <= {
            (at, offsets.get(int(row["last_offset"]), -1)) for at, row in enumerate(left)
        }


# ---- logs that are read side by side ----------------------------------------------------------


def test_memory_does_not_grow_with_the_number_of_batches(tmp_path: Path) -> None:
    peaks = []
    for count in (140_000, 420_000):
        path = tmp_path / str(count) / "t-0" / f"{0:020}.log"
        path.parent.mkdir(parents=True)
        with path.open("wb") as file:
            for first in range(0, count, 20_000):
                offsets = np.arange(first, first + 20_000)
                file.write(ks.build_batches(offset=offsets, value=[b"v"] * 20_000, batch_size=1))
        tracemalloc.start()
        try:
            found = ks.diff_logs(path.parent, path.parent)
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
        assert found.partitions[0].same_batches == found.partitions[0].right_batches == count
    assert peaks[1] < 1.1 * peaks[0]


def _folder(path: Path, *segments: list[bytes]) -> Path:
    path.mkdir()
    for parts in segments:
        (offset,) = struct.unpack_from(">q", parts[0])
        (path / f"{offset:020}.log").write_bytes(b"".join(parts))
    return path


def _with_epochs(parts: list[bytes], starts: dict[int, int]) -> list[bytes]:
    """Return batches with the leader epochs that start at rows; no checksum covers them."""
    epochs = [max((epoch for row, epoch in starts.items() if row <= at), default=0)
              for at in range(len(parts))]  # fmt: skip
    return [
        part[:12] + struct.pack(">i", epoch) + part[16:]
        for part, epoch in zip(parts, epochs, strict=True)
    ]


_PARTS = log(300)
_DAMAGED = b"".join(_PARTS[100:200])[:-5000] + bytes(500) + b"".join(_PARTS[100:200])[-4500:]
_OTHER_LOGS = {
    "the same": [_PARTS[:120], _PARTS[120:]],
    "one batch is missing": [_PARTS[:120], _PARTS[120:151] + _PARTS[152:]],
    "ends earlier": [_PARTS[:120], _PARTS[120:250]],
    "starts later": [_PARTS[40:100], _PARTS[100:]],
    "another end": [_PARTS[:200], shifted(log(40, 2), 400)],
    "other epochs": [_with_epochs(_PARTS, {30: 2, 31: 3, 200: 9})],
    "older epochs at the end": [_with_epochs(_PARTS[:280], {50: 1, 150: 2, 270: 1})],
    "a damaged segment": [_PARTS[:100], [_DAMAGED], _PARTS[200:]],
    "damage at the end": [_PARTS[:100], [*_PARTS[100:], b"torn"]],
    "offsets go back": [_PARTS[:100] + _PARTS[50:60] + _PARTS[100:]],
    "nothing in common": [shifted(log(90, 3), 5000)],
}


@pytest.mark.parametrize("name", _OTHER_LOGS)
@pytest.mark.parametrize("rows", [7, 64])
def test_logs_are_compared_in_pieces_as_they_are_whole(
    name: str, rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = _folder(tmp_path / "t-0", _with_epochs(_PARTS, {50: 1, 150: 2, 290: 4}))
    right = _folder(tmp_path / "t-1", *_OTHER_LOGS[name])
    mine, theirs = (ks.analysis.read_fingerprints(one) for one in (left, right))
    pairs: list[tuple[Any, Any]] = [(left, right), (right, left), (left, theirs), (mine, right)]
    monkeypatch.setattr(alignment, "_FEW", 1 << 40)  # all rows are kept
    whole = [ks.diff_logs(*pair).to_json() for pair in pairs]
    for module in (alignment, fingerprints):
        monkeypatch.setattr(module, "ROWS", rows)
    monkeypatch.setattr(alignment, "_FEW", 0)
    assert [ks.diff_logs(*pair).to_json() for pair in pairs] == whole


@pytest.mark.parametrize("name", ["a damaged segment", "damage at the end"])
def test_rows_by_segment_stay(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fingerprints, "ROWS", 7)
    (found,) = open_logs(_folder(tmp_path / "t-0", *_OTHER_LOGS[name]))
    still = [count for count, _ in fingerprints.LogTables.of(found)]
    assert still != list(range(len(still)))  # some rows are withdrawn
    still = [count for count, _ in fingerprints.LogTables.of(found, by_segment=True)]
    assert still == list(range(len(still)))
