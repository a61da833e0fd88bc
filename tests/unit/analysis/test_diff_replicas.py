"""Comparison of replicas with the checkpoints beside them: leader epochs, the cleaner."""

from __future__ import annotations

from pathlib import Path

import pytest

import kafkascan as ks
from kafkascan.broker_state import LeaderEpoch
from tests.support.segments import batch_v2

_HORIZON = 0x40


def batches(count: int, **fields: int) -> list[bytes]:
    """Return batches of two records each."""
    return [
        batch_v2(b"%d" % row, base_offset=2 * row, last_offset_delta=1, records_count=2, **fields)
        for row in range(count)
    ]


def cleaned(row: int, count: int, **fields: int) -> bytes:
    """Return a batch of two offsets that the cleaner rewrote."""
    content = b"kept by %d" % sum(fields.values())
    return batch_v2(
        content, base_offset=2 * row, last_offset_delta=1, records_count=count, **fields
    )


def replica(
    folder: Path,
    parts: list[bytes],
    epochs: list[tuple[int, int]] | None = None,
    cleaned_up_to: int | None = None,
) -> Path:
    """Write a data dir with one partition."""
    partition = folder / "orders-0"
    partition.mkdir(parents=True)
    (partition / f"{0:020}.log").write_bytes(b"".join(parts))
    if epochs is not None:
        ks.broker_state.write_leader_epochs(
            partition / "leader-epoch-checkpoint", [LeaderEpoch(*one) for one in epochs]
        )
    if cleaned_up_to is not None:
        ks.broker_state.write_offset_checkpoint(
            folder / "cleaner-offset-checkpoint", {("orders", 0): cleaned_up_to}
        )
    return folder


def diff(left: Path, right: Path, **options: bool) -> ks.analysis.PartitionDiff:
    (one,) = ks.diff_logs(left, right, **options).partitions
    return one


# ---- leader epochs ---------------------------------------------------------------------------


def test_an_epoch_without_batches_is_a_divergence(tmp_path: Path) -> None:
    """An unclean election: the right log leads since offset 40, the left one went on to 60."""
    parts = batches(30, partition_leader_epoch=4)
    left = replica(tmp_path / "left", parts, [(4, 0)])
    right = replica(tmp_path / "right", parts[:20], [(4, 0), (5, 40)])
    found = diff(left, right)
    assert not found.is_same
    assert (found.left_diverging_offset, found.right_diverging_offset) == (40, None)
    assert (found.first_divergence, found.differences[0].left_records) == (40, 20)
    mirrored = diff(right, left)
    assert not mirrored.is_same
    assert (mirrored.left_diverging_offset, mirrored.right_diverging_offset) == (None, 40)
    assert (mirrored.truncation_offset, mirrored.first_divergence) == (40, 40)


@pytest.mark.parametrize(
    ("left_epochs", "right_epochs"),
    [
        ([(4, 0)], [(4, 0)]),
        ([(4, 0)], None),
        (None, None),
        ([(4, 0), (5, 60)], [(4, 0)]),
        # A checkpoint that is newer than the copy of its log.
        ([(4, 0)], [(4, 0), (5, 60)]),
        ([(4, 0)], []),
    ],
)
def test_lag_is_no_divergence(
    tmp_path: Path,
    left_epochs: list[tuple[int, int]] | None,
    right_epochs: list[tuple[int, int]] | None,
) -> None:
    parts = batches(30, partition_leader_epoch=4)
    left = replica(tmp_path / "left", parts, left_epochs)
    right = replica(tmp_path / "right", parts[:20], right_epochs)
    assert diff(left, right).is_same
    assert diff(right, left).is_same


def test_a_checkpoint_that_cannot_be_read_is_damage(tmp_path: Path) -> None:
    left = replica(tmp_path / "left", batches(3), [(0, 0)])
    right = replica(tmp_path / "right", batches(3), [(0, 0)])
    assert diff(left, right).is_same
    (right / "orders-0" / "leader-epoch-checkpoint").write_text("nonsense\n")
    (problem,) = diff(left, right).problems
    assert "leader-epoch-checkpoint" in problem.path


# ---- the cleaner -----------------------------------------------------------------------------


def test_replicas_that_were_cleaned_at_different_times(tmp_path: Path) -> None:
    """Each has removed records that the other one still has, also as many of the same batch."""
    parts = batches(12)
    control = parts.copy()
    control[5] = cleaned(5, 2, attributes=_HORIZON, base_timestamp=77)
    left = [control[0], cleaned(2, 1), cleaned(3, 1), *control[4:]]
    right = [control[0], control[1], control[2], cleaned(3, 1, max_timestamp=9), control[4],
             cleaned(5, 2, attributes=_HORIZON, base_timestamp=99), *control[8:]]  # fmt: skip
    one = replica(tmp_path / "one", left, cleaned_up_to=12)
    other = replica(tmp_path / "other", right, cleaned_up_to=16)
    for found in (diff(one, other), diff(other, one)):
        assert found.is_same, found
        assert found.ranges
    # A loss above the cleaner's offset is none of its doing.
    lost = replica(tmp_path / "lost", [*right[:-2], right[-1]], cleaned_up_to=16)
    assert diff(one, lost).first_divergence == 20
    assert diff(lost, one).first_divergence == 20


@pytest.mark.parametrize("cleaned_up_to", [None, 0, 7])
def test_records_missing_above_the_cleaners_offset_differ(
    tmp_path: Path, cleaned_up_to: int | None
) -> None:
    parts = batches(12)
    left = replica(tmp_path / "left", parts, cleaned_up_to=24)
    for name, damaged in (
        ("missing", parts[:3] + parts[4:]),
        ("fewer", [*parts[:3], cleaned(3, 1), *parts[4:]]),
    ):
        right = replica(tmp_path / name, damaged, cleaned_up_to=cleaned_up_to)
        assert diff(left, right).first_divergence == 6
        assert not diff(right, left).is_same
        assert diff(left, right, compacted=True).is_same
        assert diff(right, left, compacted=True).is_same


def test_other_content_of_a_compacted_batch_differs(tmp_path: Path) -> None:
    parts = batches(12)
    changed = [*parts[:3], cleaned(3, 2), *parts[4:]]
    left = replica(tmp_path / "left", parts, cleaned_up_to=24)
    right = replica(tmp_path / "right", changed, cleaned_up_to=24)
    (one,) = diff(left, right, compacted=True).differences
    assert one.kind is ks.analysis.DiffKind.CHANGED


def test_replicas_without_a_batch_that_is_the_same(tmp_path: Path) -> None:
    """A log that was rewritten as a whole, and goes on; the other one was not cleaned yet."""
    parts = batches(12)
    before = replica(tmp_path / "before", parts[:4], cleaned_up_to=2)
    now = [cleaned(0, 1), cleaned(2, 1), *parts[5:]]
    after = replica(tmp_path / "after", now, cleaned_up_to=12)
    for found in (diff(before, after), diff(after, before)):
        assert found.same_batches == 0
        assert found.is_same, found
    later = replica(tmp_path / "later", parts[4:], cleaned_up_to=10)
    assert diff(before, later).is_same
    assert diff(later, before).is_same
    unknown = replica(tmp_path / "unknown", parts[4:])
    old = replica(tmp_path / "old", parts[:4])
    assert not diff(old, unknown).is_same
    lost = replica(tmp_path / "lost", [cleaned(0, 1), *parts[5:]], cleaned_up_to=3)
    assert not diff(before, lost).is_same
