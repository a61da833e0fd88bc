"""Findings of a recovery: what a broker does not notice when it loads a log."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import kafkascan as ks
from kafkascan.format.findings import Severity
from tests.support.partitions import HealthyPartition
from tests.support.records import RecordV2, batch_of
from tests.unit.recovery.damaged_partitions import NOW


@pytest.fixture
def healthy(tmp_path: Path) -> Path:
    """A data dir with a partition of three segments, flushed up to its end."""
    one = HealthyPartition(tmp_path / "data" / "orders-0").write()
    data = one.folder.parent
    (data / "meta.properties").write_text("version=1\nnode.id=1\n")
    flushed_up_to(data, one.offset)
    return one.folder


def flushed_up_to(data: Path, offset: int) -> None:
    path = data / "recovery-point-offset-checkpoint"
    ks.broker_state.write_offset_checkpoint(path, {("orders", 0): offset})


def found(folder: Path, **options: bool) -> list[tuple[str, str | None]]:
    (planned,) = ks.recover(folder, now_ms=NOW, **options).partitions
    assert planned.error is None
    return [(one.symbol, one.file) for one in planned.findings]


def test_a_healthy_log_has_none(healthy: Path) -> None:
    (planned,) = ks.recover(healthy, now_ms=NOW).partitions
    assert planned.findings == []
    assert [one.is_verified for one in planned.segments] == [False, False, True]
    (planned,) = ks.recover(healthy, now_ms=NOW, verify=True).partitions
    assert planned.findings == planned.unverified == []
    assert planned.segments[0].is_verified > planned.segments[0].is_recovered


def test_a_log_that_ends_before_its_recovery_point(healthy: Path) -> None:
    ends = ks.recover(healthy, now_ms=NOW).partitions[0].log_end_offset
    assert ends is not None
    flushed_up_to(healthy.parent, ends + 1)
    assert found(healthy) == [("ENDS_EARLY", None)]
    done = ks.recover(healthy.parent, write=True, truncate=True)
    assert done.is_in_order
    assert done.has_alarms
    assert not done.is_marked_clean
    assert "ENDS_EARLY" in repr(done)
    max(healthy.glob("*.log")).write_bytes(b"")
    flushed_up_to(healthy.parent, ends)
    assert found(healthy) == [("ENDS_EARLY", None)]


def test_a_wrong_checksum_below_the_recovery_point(healthy: Path) -> None:
    first = min(healthy.glob("*.log"))
    data = bytearray(first.read_bytes())
    data[-1] ^= 1
    first.write_bytes(data)
    assert found(healthy) == []
    assert found(healthy, verify=True) == [("CHECKSUM_MISMATCH", first.name)]
    (planned,) = ks.recover(healthy, verify=True).partitions
    batches = ks.scan_batches(first).batches
    assert planned.findings[0].position == batches["position"][-1]
    assert planned.findings[0].severity is Severity.ERROR
    (problem,) = ks.recover(healthy, verify=True).problems
    assert (problem.symbol, problem.path, problem.position) == (
        "CHECKSUM_MISMATCH", str(first), planned.findings[0].position
    )  # fmt: skip
    assert (problem.topic, problem.partition, problem.rows_missing) == ("orders", 0, False)
    assert not ks.recover(healthy.parent, write=True, truncate=True, verify=True).is_marked_clean
    assert ks.recover(healthy.parent, write=True, truncate=True).is_marked_clean


@pytest.mark.parametrize(
    ("tail", "symbol"),
    [(b"\0" * 100, "ZERO_TAIL"), (b"\1" * 10, "TORN_TAIL"), (b"\xff" * 100, "CORRUPT")],
)
def test_damaged_headers_below_the_recovery_point_need_no_checksums(
    healthy: Path, tail: bytes, symbol: str
) -> None:
    first = min(healthy.glob("*.log"))
    size = first.stat().st_size
    with first.open("ab") as log:
        log.write(tail)
    assert found(healthy) == found(healthy, verify=True) == [(symbol, first.name)]
    (planned,) = ks.recover(healthy).partitions
    assert planned.findings[0].position == size


def test_a_stale_segment_beside_the_one_that_replaced_it(tmp_path: Path) -> None:
    folder = tmp_path / "orders-0"
    folder.mkdir()

    def segment(base: int, *offsets: int) -> None:
        batches = [batch_of([RecordV2(value=b"v")], base_offset=offset) for offset in offsets]
        (folder / f"{base:020}.log").write_bytes(b"".join(batches))

    segment(0, 2, 7, 9)
    segment(5, 5, 6, 7)
    segment(8, 8, 9)
    segment(10, 10)
    (planned,) = ks.recover(folder).partitions
    stale = [one for one in planned.findings if one.symbol == "OFFSET_OVERLAP"]
    assert [one.file for one in stale] == [f"{0:020}.log"] * 2
    assert [one.message.partition(":")[0] for one in stale] == [
        f"offsets {base} to {last} are also in {base:020}.log" for base, last in ((5, 7), (8, 9))
    ]
    # As a broker, recovery keeps them.
    assert [one.name for one in planned.segments] == [
        path.name for path in sorted(folder.glob("*.log"))
    ]


def test_a_missing_segment(healthy: Path) -> None:
    """A broker does not notice it, and nothing is left to repair: the log is marked as clean."""
    _, lost, after = sorted(healthy.glob("*.log"))[:3]
    for path in healthy.glob(f"{lost.stem}.*"):
        path.unlink()
    done = ks.recover(healthy.parent, write=True)
    (one,) = done.partitions[0].findings
    assert (one.symbol, one.severity, one.file) == ("OFFSET_GAP", Severity.WARNING, after.name)
    assert f"offsets from {int(lost.stem)} to {int(after.stem) - 1} are missing" in one.message
    assert done.marked_clean == [healthy.parent]
    assert done.problems["rows_missing"] == [True]


def test_a_rewrite_that_did_not_end(healthy: Path) -> None:
    (healthy / ".partition.rewriting").touch()
    assert found(healthy) == [("INTERRUPTED_REWRITE", ".partition.rewriting")]


def test_a_guess_about_remote_storage_is_a_note(healthy: Path) -> None:
    for path in healthy.glob(f"{min(healthy.glob('*.log')).stem}.*"):
        path.unlink()
    checkpoint = healthy.parent / "log-start-offset-checkpoint"
    ks.broker_state.write_offset_checkpoint(checkpoint, {("orders", 0): 0})
    assert found(healthy) == [("TIERING_GUESSED", None)]
    assert ks.recover(healthy.parent, write=True, truncate=True).is_marked_clean


def test_the_reason_of_a_snapshot_at_the_start_of_an_empty_log(tmp_path: Path) -> None:
    folder = tmp_path / "orders-0"
    folder.mkdir()
    (folder / f"{7:020}.log").touch()
    ks.broker_state.write_producer_snapshot(
        folder / f"{7:020}.snapshot",
        ks.broker_state.build_producer_snapshot(b"", ks.scan_batches(b"").batches),
    )
    (planned,) = ks.recover(folder).partitions
    (deleted,) = (one for one in planned.changes if one.name.endswith(".snapshot"))
    assert deleted.reason == "it is not after the log start offset 7"


def test_a_data_dir_that_was_shut_down_cleanly(healthy: Path) -> None:
    data = healthy.parent
    assert ks.recover(data).had_clean_shutdown == []
    assert ks.recover(data, write=True).is_marked_clean
    assert ks.recover(data).had_clean_shutdown == [data]
    assert ks.recover(healthy).had_clean_shutdown == [data]
    shutil.copytree(data, data.with_name("copy"))
    assert ks.recover(data.with_name("copy"), write=True).had_clean_shutdown


@pytest.mark.parametrize(("cleaned", "kept"), [(None, True), (0, False), (23, False), (24, True)])
def test_audit_and_recovery_agree_on_replacements(
    healthy: Path, cleaned: int | None, kept: bool
) -> None:
    """A broker deletes a replacement if output of the cleaner begins at or before it."""
    second = sorted(healthy.glob("*.log"))[1]
    assert int(second.stem) == 23
    swap = second.with_name(f"{second.name}.swap")
    shutil.copy(second, swap)
    if cleaned is not None:
        (healthy / f"{cleaned:020}.log.cleaned").touch()
    (planned,) = ks.recover(healthy).partitions
    actions = {one.old_name or one.name: one.action for one in planned.changes}
    assert actions[swap.name] == ("rename" if kept else "delete")
    (leftover,) = (one for one in ks.audit(healthy).findings if one.symbol == "LEFTOVER")
    assert ("puts in their place" in leftover.message) == kept
