"""Logs that another process changes between the plan of a recovery and its steps."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import kafkascan as ks
from kafkascan.recovery import apply_changes, log_jobs
from kafkascan.recovery.loading.log_loader import LoadedLog, LoadSettings
from tests.support.command_line import run
from tests.support.files import contents
from tests.support.segments import T0, batch_v2
from tests.unit.recovery.damaged_partitions import NOW, without_backups

_WHOLE = b"".join(
    ks.build_batches(offset=number, timestamp=[T0], value=[b"value %d" % number])
    for number in range(3)
)


@pytest.fixture
def torn(tmp_path: Path) -> Path:
    """A log of which a copy program has not written the end yet."""
    log = tmp_path / "data" / "orders-0" / f"{0:020}.log"
    log.parent.mkdir(parents=True)
    log.write_bytes(_WHOLE[:-5])
    return log


def _complete(log: Path) -> None:
    log.write_bytes(_WHOLE)


def _replace(log: Path) -> None:
    """As rsync does, with the size and the times of the old file."""
    status, new = log.stat(), log.with_suffix(".new")
    new.write_bytes(log.read_bytes()[:-1] + b"!")
    os.utime(new, ns=(status.st_atime_ns, status.st_mtime_ns))
    new.rename(log)


def _write_at_the_cut(log: Path) -> None:
    """Within a tick of the file system's clock, as into a preallocated file."""
    status = log.stat()
    with log.open("r+b") as file:
        file.seek(-30, os.SEEK_END)
        file.write(b"1")
    os.utime(log, ns=(status.st_atime_ns, status.st_mtime_ns))


def _roll(log: Path) -> None:
    log.with_name(f"{3:020}.log").write_bytes(b"")


_CHANGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "complete": (_complete, "grew from"),
    "replace": (_replace, "another file replaced it"),
    "write at the cut": (_write_at_the_cut, "its bytes were written"),
    "delete": (Path.unlink, "it vanished"),
    "roll": (_roll, "it appeared"),
}


def _after_planning(
    change: Callable[[Path], None], log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = log_jobs.load_log

    def load_and_change(folder: Path, settings: LoadSettings) -> LoadedLog:
        loaded = load(folder, settings)
        change(log)
        return loaded

    monkeypatch.setattr(log_jobs, "load_log", load_and_change)


def _before_the_cut(
    change: Callable[[Path], None], log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = apply_changes._copy_tail

    def copy_and_change(path: Path, size: int) -> Path:
        tail = copy(path, size)
        change(log)
        return tail

    monkeypatch.setattr(apply_changes, "_copy_tail", copy_and_change)


@pytest.mark.parametrize("backup", [True, False])
@pytest.mark.parametrize("name", ["complete", "replace", "roll"])
def test_no_file_of_a_log_that_changed_is_changed(
    name: str, backup: bool, torn: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change, reason = _CHANGES[name]
    _after_planning(change, torn, monkeypatch)
    result = run(
        "recover", torn.parent, "--write", "--truncate", *([] if backup else ["--no-backup"])
    )
    assert result.returncode == 3
    assert reason in result.stderr
    assert str(torn.parent) in result.stderr
    assert "truncated" not in result.stderr
    monkeypatch.undo()
    before = contents(torn.parent)
    assert [name for name in before if not name.endswith(".log")] == []
    if name == "complete":
        assert before[torn.name] == _WHOLE
        assert ks.recover(torn.parent, write=True, truncate=True, now_ms=NOW).truncated_bytes == 0


@pytest.mark.parametrize("name", ["complete", "replace", "write at the cut"])
def test_a_log_is_compared_right_before_it_is_truncated(
    name: str, torn: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change, reason = _CHANGES[name]
    _before_the_cut(change, torn, monkeypatch)
    (done,) = ks.recover(torn.parent, write=True, truncate=True, now_ms=NOW).partitions
    assert isinstance(done.error, ks.format.FileChangedError)
    assert done.error.path == str(torn)
    assert reason in str(done.error)
    assert len(torn.read_bytes()) >= len(_WHOLE) - 5
    assert without_backups(contents(torn.parent)) == contents(torn.parent), "no tail is left"


def test_a_log_that_is_split_is_compared(
    overflowing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, copy = min(overflowing.glob("*.log")), apply_changes._copy_part
    data = log.read_bytes()

    def copy_and_change(*given: object) -> None:
        copy(*given)  # type: ignore[arg-type]
        log.write_bytes(data + b"more")

    monkeypatch.setattr(apply_changes, "_copy_part", copy_and_change)
    (done,) = ks.recover(overflowing, write=True, truncate=True, now_ms=NOW).partitions
    assert isinstance(done.error, ks.format.FileChangedError)
    assert log.read_bytes() == data + b"more"
    assert not list(overflowing.glob("*.cleaned"))


def test_a_split_is_no_change_of_another_process(overflowing: Path) -> None:
    assert ks.recover(overflowing, write=True, truncate=True, now_ms=NOW).is_in_order


def test_a_replacement_that_is_split_is_no_change_of_another_process(tmp_path: Path) -> None:
    """The recovery deletes the log whose name the replacement gets, and then splits it."""
    folder = tmp_path / "t-0"
    folder.mkdir()
    name = f"{0:020}.log"
    (folder / name).write_bytes(b"".join(batch_v2(base_offset=offset) for offset in (0, 2, 4)))
    replacement = (1, 3, 2**31 + 20)
    (folder / f"{name}.swap").write_bytes(
        b"".join(batch_v2(base_offset=offset) for offset in replacement)
    )
    (done,) = ks.recover(folder, write=True, truncate=True, now_ms=NOW).partitions
    assert done.error is None
    offsets = [
        int(one)
        for log in sorted(folder.glob("*.log"))
        for one in ks.scan_batches(log).batches["base_offset"]
    ]
    assert offsets == [*replacement]


def test_a_directory_with_a_log_that_changed_is_not_marked_clean(
    torn: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the log changes after its new indexes were written, and needs no truncation."""
    (torn.parent.parent / "meta.properties").write_text("version=1\nnode.id=1\n")
    torn.write_bytes(_WHOLE)
    write = apply_changes.replace_files

    def write_and_change(*given: object, **options: object) -> None:
        write(*given, **options)  # type: ignore[arg-type]
        with torn.open("ab") as file:
            file.write(b"more")

    monkeypatch.setattr(apply_changes, "replace_files", write_and_change)
    done = ks.recover(torn.parent.parent, write=True, now_ms=NOW)
    assert isinstance(done.partitions[0].error, ks.format.FileChangedError)
    assert not done.is_marked_clean
