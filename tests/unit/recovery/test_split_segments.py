"""Segments whose range of offsets is too large, which recovery splits."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest

import kafkascan as ks
from kafkascan.recovery import apply_changes
from tests.support.files import contents
from tests.support.records import RecordV2, batch_of
from tests.unit.recovery.damaged_partitions import (
    FIRST_PART,
    NOW,
    SECOND_PART,
)


def test_a_segment_with_a_large_range_of_offsets_is_split(overflowing: Path) -> None:
    before = contents(overflowing)
    whole = before[f"{FIRST_PART:020}.log"]
    (done,) = ks.recover(overflowing, write=True, truncate=True, now_ms=NOW).partitions
    assert done.is_in_order
    assert [one.base_offset for one in done.segments] == [
        FIRST_PART, SECOND_PART, SECOND_PART + 60,
    ]  # fmt: skip
    first, second = (overflowing / f"{base:020}.log" for base in (FIRST_PART, SECOND_PART))
    assert first.read_bytes() + second.read_bytes() == whole
    assert {first.stat().st_mtime, second.stat().st_mtime} == {1_500_000_000}
    for log in (first, second):
        batches = ks.scan_batches(log).batches
        for kind in ("index", "timeindex"):
            assert ks.check_index(log.with_suffix(f".{kind}"), batches) == []
    assert (overflowing / f"{first.name}.bak").read_bytes() == whole
    assert not list(overflowing.glob("*.cleaned")) + list(overflowing.glob("*.swap"))
    (again,) = ks.recover(overflowing, now_ms=NOW).partitions
    assert again.changes == []


@pytest.mark.parametrize("entries", [0, 1, 2])
def test_a_segment_is_split_whatever_its_index_contains(overflowing: Path, entries: int) -> None:
    """Kafka reads the end of a segment from its last index entry on, or from its start."""
    log = overflowing / f"{FIRST_PART:020}.log"
    fits = ks.scan_batches(log).batches
    fits = fits[fits["base_offset"] < SECOND_PART]
    interval = (
        next(
            size
            for size in range(0, log.stat().st_size, 16)
            if len(ks.build_offset_index(fits, base_offset=FIRST_PART, interval_bytes=size))
            == entries
        )
        if entries
        else log.stat().st_size
    )
    (planned,) = ks.recover(overflowing, interval_bytes=interval, now_ms=NOW).partitions
    assert planned.error is None
    assert [one.base_offset for one in planned.segments[:2]] == [FIRST_PART, SECOND_PART]


def test_a_segment_is_split_only_with_truncate(overflowing: Path) -> None:
    before = contents(overflowing)
    (planned,) = ks.recover(overflowing, write=True, now_ms=NOW).partitions
    assert contents(overflowing) == before
    assert planned.applied == []
    assert not planned.is_in_order
    (split,) = (change for change in planned.changes if change.action is ks.recovery.Action.SPLIT)
    assert split.shortens_log
    assert split.old_size == split.new_size == len(before[split.name])


def test_a_segment_is_split_without_backups(overflowing: Path) -> None:
    ks.recover(overflowing, write=True, truncate=True, backup=False, now_ms=NOW)
    assert not list(overflowing.glob("*.bak*"))
    assert not (overflowing / f"{FIRST_PART:020}.txnindex").exists()


# The offsets of the last batch fit, those of earlier ones do not.
WITHIN = batch_of([RecordV2()], base_offset=FIRST_PART + 999_999, max_timestamp=NOW)


@pytest.mark.parametrize(
    "tail", [bytes(100), b"torn tail", b"\xff" * 100, pytest.param(WITHIN, id="a batch")]
)
def test_a_segment_that_kafka_fails_to_split(overflowing: Path, tail: bytes) -> None:
    with open(overflowing / f"{FIRST_PART:020}.log", "ab") as log:
        log.write(tail)
    before = contents(overflowing)
    (planned,) = ks.recover(overflowing, write=True, truncate=True, now_ms=NOW).partitions
    assert isinstance(planned.error, ks.CorruptLogError)
    assert planned.error.symbol == "OFFSET_OVERFLOW"
    assert "cannot be split" in str(planned)
    assert contents(overflowing) == before


def test_a_full_disk_leaves_no_parts(overflowing: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = contents(overflowing)

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(apply_changes.os, "utime", full)
    (planned,) = ks.recover(overflowing, write=True, truncate=True, now_ms=NOW).partitions
    assert isinstance(planned.error, OSError)
    (overflowing / "leader-epoch-checkpoint").unlink()  # it is written first
    assert contents(overflowing) == before


def test_an_interrupted_split_is_finished_or_repeated(overflowing: Path) -> None:
    """``.cleaned`` files are given up; once all are ``.swap`` files, these are complete."""
    whole = overflowing / f"{FIRST_PART:020}.log"
    data = whole.read_bytes()
    size = ks.scan_batches(whole)["size_in_bytes"][:40].sum()
    ks.recover(shutil.copytree(overflowing, overflowing.parent / "other-0"), write=True,
               truncate=True, backup=False, now_ms=NOW)  # fmt: skip
    expected = contents(overflowing.parent / "other-0")
    for first, second in ((".cleaned", ".cleaned"), (".cleaned", ".swap"), (".swap", ".swap")):
        mine = shutil.copytree(overflowing, overflowing.parent / f"mine{first}{second}-0")
        for base, part, suffix in (
            (FIRST_PART, data[:size], first), (SECOND_PART, data[size:], second),
        ):  # fmt: skip
            (mine / f"{base:020}.log{suffix}").write_bytes(part)
            for kind in ("index", "timeindex"):
                stem = f"{base:020}.{kind}"
                (mine / f"{stem}{suffix}").write_bytes(expected[stem])
        ks.recover(mine, write=True, truncate=True, backup=False, now_ms=NOW)
        assert contents(mine) == expected, (first, second)
