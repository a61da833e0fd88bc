"""Comparison of logs that retention and the cleaner of a broker change between two reads."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import kafkascan as ks
from kafkascan.analysis import diff, fingerprints
from tests.support.command_line import run
from tests.support.segments import batch_v2

SEGMENTS, BATCHES = 4, 5
_OFFSETS = 2 * BATCHES
CLEANED_UP_TO = (SEGMENTS - 1) * _OFFSETS

Step = Callable[[], object]


def _segment(folder: Path, number: int) -> Path:
    return folder / f"{number * _OFFSETS:020}.log"


def _batch(offset: int, count: int = 2) -> bytes:
    """Return a batch of two offsets."""
    fields = {"base_offset": offset, "last_offset_delta": 1, "records_count": count}
    return batch_v2(b"%d of %d" % (count, offset), **fields)


def _batches(number: int) -> list[bytes]:
    first = number * _OFFSETS
    return [_batch(offset) for offset in range(first, first + _OFFSETS, 2)]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    folder = tmp_path / "ü b" / "orders-0"
    folder.mkdir(parents=True)
    for number in range(SEGMENTS):
        _segment(folder, number).write_bytes(b"".join(_batches(number)))
    return folder


def _swap(folder: Path, first: int, last: int, batches: list[bytes]) -> None:
    """Replace segments by one, as ``LocalLog.replaceSegments`` does."""
    old = [_segment(folder, number) for number in range(first, last + 1)]
    new = old[0].with_suffix(".log.swap")
    new.write_bytes(b"".join(batches))
    for path in filter(Path.exists, old):
        path.rename(path.with_suffix(".log.deleted"))
    new.rename(old[0])


def _clean(folder: Path, *more: int) -> None:
    """
    Keep one record of the first batch, and some other ones, of all segments but the last.

    The old files are gone at once: as long as they are there, both sides are read as of one moment.
    """
    _swap(folder, 0, SEGMENTS - 2, [_batch(0, 1), *map(_batch, more)])
    for path in folder.glob("*.deleted"):
        path.unlink()


def _write_checkpoint(folder: Path) -> None:
    ks.broker_state.write_offset_checkpoint(
        folder.parent / "cleaner-offset-checkpoint", {("orders", 0): CLEANED_UP_TO}
    )


def _roll_and_delete(folder: Path) -> None:
    """Roll the log, append, and delete all older segments: no offset is left."""
    for path in folder.glob("*.log"):
        path.unlink()
    _segment(folder, SEGMENTS).write_bytes(b"".join(_batches(SEGMENTS)))


def _after_logs(monkeypatch: pytest.MonkeyPatch, steps: dict[int, Step]) -> None:
    """Take steps after the batches of a log were read: odd numbers are the left log."""
    read, count = fingerprints.LogTables.__iter__, 0

    def read_and_step(
        log: fingerprints.LogTables,
    ) -> Iterator[tuple[int, fingerprints.FingerprintRows]]:
        nonlocal count
        yield from read(log)
        count += 1
        steps.get(count, lambda: None)()

    monkeypatch.setattr(fingerprints.LogTables, "__iter__", read_and_step)


def _after_pairs(monkeypatch: pytest.MonkeyPatch, steps: dict[int, Step]) -> None:
    """Take steps after both logs were read, with the checkpoints of the cleaner."""
    read, count = diff._Comparison.read, 0

    def read_and_step(*given: Any, **options: Any) -> list[diff._Pair]:
        nonlocal count
        found = read(*given, **options)
        count += 1
        steps.get(count, lambda: None)()
        return found

    monkeypatch.setattr(diff._Comparison, "read", read_and_step)


def _at_pauses(monkeypatch: pytest.MonkeyPatch, step: Step) -> list[float]:
    """Take a step whenever the comparison pauses; return the list that gets the pauses."""
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        step()

    # Only here: threads of other libraries sleep, too.
    monkeypatch.setattr(diff, "time", SimpleNamespace(sleep=pause))
    return pauses


def test_the_cleaner_replaces_segments_between_the_sides(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its checkpoint, which says how far it came, is written later."""
    _after_logs(monkeypatch, {1: lambda: _clean(log)})
    found = ks.diff_logs(log, log)
    assert found.is_same, found
    assert len(found) == 0


def test_the_cleaner_writes_its_checkpoint_after_a_log_was_read(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backup = tmp_path / "backup" / "orders-0"
    backup.mkdir(parents=True)
    for path in log.glob("*.log"):
        (backup / path.name).write_bytes(path.read_bytes())
    _clean(log)
    assert not ks.diff_logs(log, backup).is_same
    _after_pairs(monkeypatch, {1: lambda: _write_checkpoint(log)})
    found = ks.diff_logs(log, backup)
    assert found.is_same, found
    assert found.partitions[0].left_cleaned_up_to == CLEANED_UP_TO


def test_retention_deletes_everything_between_the_sides(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _after_logs(monkeypatch, {1: lambda: _roll_and_delete(log)})
    found = ks.diff_logs(log, log)
    assert found.is_same, found
    assert len(found) == 0


def test_the_cleaner_goes_on_while_logs_are_read_again(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses = _at_pauses(monkeypatch, lambda: None)
    _after_logs(
        monkeypatch,
        {1: lambda: _clean(log, 4, 8), 3: lambda: _clean(log, 4), 5: lambda: _clean(log)},
    )
    assert ks.diff_logs(log, log).is_same
    assert len(pauses) == 3


def test_a_difference_of_logs_at_rest_is_read_once(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other" / "orders-0"
    other.mkdir(parents=True)
    _segment(other, 0).write_bytes(b"".join(_batches(0)[:2] + _batches(0)[3:]))
    read: list[str] = []
    _after_logs(monkeypatch, {1: lambda: read.append("left"), 2: lambda: read.append("right")})
    pauses = _at_pauses(monkeypatch, lambda: None)
    found = ks.diff_logs(log, other)
    assert found.partitions[0].first_divergence == 4
    assert not any(one.symbol == "LOG_CHANGED" for one in found.problems)
    assert (read, pauses) == (["left", "right"], [])


def test_a_difference_of_a_log_that_changes_all_the_time(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is reported, with a note: what changes may have caused it."""
    other = tmp_path / "other" / "orders-0"
    other.mkdir(parents=True)
    _segment(other, 0).write_bytes(batch_v2(b"another one", base_offset=0))
    pauses = _at_pauses(monkeypatch, lambda: None)
    _after_pairs(monkeypatch, {number: lambda: _replace_first(log) for number in range(1, 6)})
    done = run("diff", log, other, "--format", "jsonl")
    assert done.returncode == 1
    assert "orders-0: differs from offset 0 on" in done.stderr
    assert f"{log}: the log changed each of the 5 times that it was read" in done.stderr
    assert any(json.loads(line)["is_difference"] for line in done.stdout.splitlines())
    assert len(pauses) == 4


def _replace_first(folder: Path) -> None:
    path = _segment(folder, 0)
    copy = path.with_suffix(".copy")
    copy.write_bytes(path.read_bytes())
    copy.replace(path)


def test_a_log_that_is_deleted_between_the_sides(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read of it is compared."""
    _at_pauses(monkeypatch, lambda: None)
    deleted = log.with_name("orders-0.0123456789abcdef0123456789abcdef-delete")
    _after_logs(monkeypatch, {1: lambda: _clean(log), 2: lambda: log.rename(deleted)})
    found = ks.diff_logs(log, log)
    assert not found.is_same
    assert "LOG_CHANGED" in [one.symbol for one in found.problems]
