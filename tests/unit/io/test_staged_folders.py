"""Folders that are built next to their target: names, leftovers of killed runs, owners."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkascan.io.staged_folders import StagedFolder, remove_abandoned_folders, stage_folder
from kafkascan.logs.log_finding import partition_dir

_BUILD = """
import os, signal, sys
from pathlib import Path
from kafkascan.io.staged_folders import stage_folder
staged = stage_folder(Path(sys.argv[1]))
(staged.path / "file").write_text("half")
print(staged.path, flush=True)
sys.stdin.read()
"""


def _start(target: Path) -> tuple[subprocess.Popen[str], Path]:
    """Start to build a folder in another process."""
    process = subprocess.Popen(
        [sys.executable, "-c", _BUILD, str(target)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    return process, Path(process.stdout.readline().rstrip())


def _end(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate()


def test_a_folder_is_published(tmp_path: Path) -> None:
    staged = stage_folder(tmp_path / "orders-0")
    (staged.path / "file").write_text("complete")
    assert not (tmp_path / "orders-0").exists()
    staged.publish()
    assert [str(path.relative_to(tmp_path)) for path in sorted(tmp_path.rglob("*"))] == [
        "orders-0", "orders-0/file"
    ]  # fmt: skip


def test_a_folder_is_discarded(tmp_path: Path) -> None:
    staged = stage_folder(tmp_path / "orders-0")
    (staged.path / "file").write_text("half")
    staged.discard()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["orders-0", "t" * 249 + "-12345", "no partition"])
def test_brokers_take_the_name_for_a_partition_that_is_being_deleted(
    name: str, tmp_path: Path
) -> None:
    staged = stage_folder(tmp_path / name)
    (entry,) = tmp_path.iterdir()
    assert partition_dir(entry).state == "delete"
    staged.discard()


def test_the_next_run_removes_what_a_killed_one_left(tmp_path: Path) -> None:
    killed, left = _start(tmp_path / "orders-0")
    _end(killed)
    assert (left / "file").read_text() == "half"
    staged = stage_folder(tmp_path / "payments-3")
    assert not left.parent.exists()
    assert [path.parent for path in tmp_path.iterdir()] == [tmp_path]
    staged.discard()


def test_the_folder_of_a_running_process_is_kept(tmp_path: Path) -> None:
    running, path = _start(tmp_path / "orders-0")
    mine = stage_folder(tmp_path / "orders-0")
    remove_abandoned_folders(tmp_path)
    assert (path / "file").exists()
    assert mine.path.exists()
    mine.discard()
    _end(running)
    remove_abandoned_folders(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_another_process_removes_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one has locked the new folder before this one could, and removes it next."""
    others: list[int] = []
    lock = StagedFolder.lock

    def lock_after_another(staged: StagedFolder) -> None:
        if not others:
            others.append(os.open(staged.path, os.O_RDONLY))
            fcntl.flock(others[0], fcntl.LOCK_EX)
        lock(staged)

    monkeypatch.setattr(StagedFolder, "lock", lock_after_another)
    staged = stage_folder(tmp_path / "orders-0")
    assert not os.path.samestat(staged.path.stat(), os.fstat(others[0]))
    os.close(others[0])
    staged.publish()
    assert [path.name for path in tmp_path.iterdir()] == ["orders-0"]


def test_a_folder_that_is_created_while_another_is_removed_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    staging = tmp_path / f"kafkascan-0.{b'kafkascan'.hex()}{'0' * 14}-delete"
    staging.mkdir()
    list_before = Path.iterdir

    def list_and_create(folder: Path) -> Iterator[Path]:
        found = list(list_before(folder))
        (staging / "orders-0").mkdir(exist_ok=True)
        return iter(found)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "iterdir", list_and_create)
        remove_abandoned_folders(tmp_path)
    assert (staging / "orders-0").exists()
    remove_abandoned_folders(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_folders_that_a_broker_deletes_are_kept(tmp_path: Path) -> None:
    """The name of Kafka's own folders has a UUID, which never begins with these digits."""
    for name in (
        "orders-0.0123456789abcdef0123456789abcdef-delete",
        "kafkascan-0.0123456789abcdef0123456789abcdef-delete",
    ):
        (tmp_path / name).mkdir()
    (tmp_path / f"kafkascan-0.{b'kafkascan'.hex()}{'0' * 14}-delete").write_text("a file")
    stage_folder(tmp_path / "orders-0").discard()
    assert len(list(tmp_path.iterdir())) == 3


def test_a_link_is_resolved(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "orders-0").mkdir()
    (tmp_path / "orders-0").symlink_to(tmp_path / "far" / "orders-0")
    staged = stage_folder(tmp_path / "orders-0")
    (staged.path / "file").write_text("complete")
    staged.publish()
    assert (tmp_path / "orders-0").is_symlink()
    assert (tmp_path / "far" / "orders-0" / "file").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give folders away")
def test_a_broker_may_delete_the_folder(tmp_path: Path) -> None:
    """A broker that runs as another user than root creates and deletes files in it."""
    os.chown(tmp_path, 1234, 4321)
    tmp_path.chmod(0o750)
    staged = stage_folder(tmp_path / "orders-0")
    for path in (staged.path, staged.path.parent):
        status = path.stat()
        assert (status.st_uid, status.st_gid, status.st_mode & 0o777) == (1234, 4321, 0o750)
    staged.discard()


def test_a_folder_that_others_keep_removing_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = []

    def lock(staged: StagedFolder) -> None:
        attempts.append(staged.path)
        raise FileNotFoundError(staged.path)

    monkeypatch.setattr(StagedFolder, "lock", lock)
    with pytest.raises(FileNotFoundError, match="another process removes the folder"):
        stage_folder(tmp_path / "copy")
    assert len(set(attempts)) == len(attempts) > 1
