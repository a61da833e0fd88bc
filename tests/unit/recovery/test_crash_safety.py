"""Crash recovery that is killed, fails, or meets a broker: files, backups and locks."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import kafkascan as ks
from kafkascan.logs.data_dir_lock import locked
from tests.support.broker_lock import broker_in
from tests.support.files import contents
from tests.unit.recovery.damaged_partitions import (
    KILLED,
    NOW,
    planned_changes,
    without_backups,
)

DYING = """
    import os, signal, sys
    from kafkascan.recovery.crash_recovery import recover
    def dies(call):
        def counted(*arguments, **options):
            global left
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*arguments, **options)
        return counted
    for line in sys.stdin:
        left, now_ms, folder = line.rstrip().split(" ", 2)
        child = os.fork()
        if child:
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
            continue
        left = int(left)
        for name in ("replace", "link", "fsync", "unlink", "truncate", "fchmod"):
            setattr(os, name, dies(getattr(os, name)))
        recover(folder, write=True, truncate=True, now_ms=int(now_ms))
        os._exit(0)
"""


@pytest.fixture
def dying() -> Iterator[Callable[[Path, int], int]]:
    """Recover in a process that is killed at its n-th step: its exit code."""
    program = [sys.executable, "-c", textwrap.dedent(DYING)]
    with subprocess.Popen(
        program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        asked, planned = process.stdin, process.stdout

        def recover(folder: Path, step: int) -> int:
            asked.write(f"{step} {NOW} {folder}\n")
            return int(planned.readline())

        yield recover


@pytest.fixture
def bare(overflowing: Path) -> Path:
    """The same, without anything but logs: recovery begins where loading sees that."""
    for path in overflowing.glob("*index"):
        path.unlink()
    return overflowing


@pytest.mark.parametrize("folder", ["damaged", "overflowing", "bare"])
def test_a_kill_at_any_write_leaves_each_file_old_or_new(
    folder: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    dying: Callable[[Path, int], int],
) -> None:
    damaged: Path = request.getfixturevalue(folder)
    before = contents(damaged)
    whole = tmp_path / "whole" / damaged.name
    shutil.copytree(damaged, whole)
    ks.recover(whole, write=True, truncate=True, now_ms=NOW)
    expected = without_backups(contents(whole))
    steps = 0
    while True:
        steps += 1
        mine = tmp_path / f"step-{steps}" / damaged.name
        shutil.copytree(damaged, mine)
        exit_code = dying(mine, steps)
        for name, data in without_backups(contents(mine)).items():
            if not name.endswith((".part", ".cleaned", ".swap")):
                assert data in (before.get(name), expected.get(name)), (steps, name)
        ks.recover(mine, write=True, truncate=True, now_ms=NOW)
        assert without_backups(contents(mine)) == expected, steps
        assert planned_changes(mine) == [], steps
        shutil.rmtree(mine.parent)
        if exit_code == 0:
            break
        assert exit_code == -signal.SIGKILL
    assert steps > 20


def test_a_partition_that_cannot_be_written_does_not_affect_others(
    damaged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = damaged.parent
    for number in (1, 2):
        shutil.copytree(damaged, data / f"orders-{number}")
    expected = ks.recover(damaged, now_ms=NOW).partitions[0]
    replace = os.replace

    def fail_for_one(old: str, new: os.PathLike[str]) -> None:
        if "orders-1" in str(new) and str(new).endswith(".timeindex"):
            raise OSError(28, "no space")
        replace(old, new)

    monkeypatch.setattr(os, "replace", fail_for_one)
    done = ks.recover(data, write=True, truncate=True, now_ms=NOW, threads=1)
    assert not done.is_marked_clean
    assert [one.error is None for one in done.partitions] == [True, False, True]
    for one in done.partitions:
        assert one.is_in_order == (one.partition != 1)
        assert one.log_end_offset == expected.log_end_offset
    monkeypatch.undo()
    again = ks.recover(data, write=True, truncate=True, now_ms=NOW)
    assert again.is_in_order
    files = [without_backups(contents(data / f"orders-{number}")) for number in range(3)]
    assert files[0] == files[1] == files[2]
    assert not list(data.glob("orders-[02]/*.bak2"))


# ---- backups -------------------------------------------------------------------------------------


def test_without_backups(damaged: Path) -> None:
    ks.recover(damaged, write=True, truncate=True, backup=False, now_ms=NOW)
    assert without_backups(contents(damaged)) == contents(damaged)


def test_backups_do_not_replace_each_other(damaged: Path) -> None:
    index = damaged / f"{0:020}.index"
    for junk in (b"first junk", b"other junk"):
        index.write_bytes(junk)
        ks.recover(damaged, write=True, now_ms=NOW)
    assert (damaged / f"{index.name}.bak").read_bytes() == b"first junk"
    assert (damaged / f"{index.name}.bak2").read_bytes() == b"other junk"


def test_every_truncated_tail_is_kept(tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(KILLED, data)
    partition = data / "preallocated-0"
    for tail in (b"one" * 100, b"two" * 100):
        with open(partition / f"{0:020}.log", "ab") as log:
            log.write(tail)
        ks.recover(partition, write=True, truncate=True)
    kept = sorted(path.read_bytes() for path in partition.glob("*.tail-*"))
    assert [data[-3:] for data in kept] == [b"one", b"two"]


def test_a_backup_is_not_written_behind_a_link(damaged: Path, tmp_path: Path) -> None:
    (damaged / f"{0:020}.index.bak").symlink_to(tmp_path / "elsewhere")
    assert ks.recover(damaged, write=True, truncate=True, now_ms=NOW).is_in_order
    assert not os.path.lexists(tmp_path / "elsewhere")
    assert (damaged / f"{0:020}.index.bak2").read_bytes() == b"junk" * 6


def test_the_target_of_a_link_is_backed_up(damaged: Path, tmp_path: Path) -> None:
    index = damaged / f"{0:020}.index"
    (tmp_path / "far").write_bytes(b"old index")
    index.unlink()
    index.symlink_to(tmp_path / "far")
    ks.recover(damaged, write=True, now_ms=NOW)
    assert (damaged / f"{index.name}.bak").read_bytes() == b"old index"
    assert index.is_symlink()


# ---- owners and modes ----------------------------------------------------------------------------


def test_a_replaced_file_keeps_its_owner_and_mode(damaged: Path) -> None:
    index = damaged / f"{0:020}.index"
    os.chmod(index, 0o640)
    ks.recover(damaged, write=True, now_ms=NOW)
    assert index.stat().st_mode & 0o777 == 0o640
    owner = damaged.stat().st_uid
    assert {path.stat().st_uid for path in damaged.iterdir()} == {owner}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_files_written_by_root_have_the_owner_of_the_log(damaged: Path) -> None:
    for path in (damaged.parent, *damaged.parent.rglob("*")):
        os.chown(path, 1234, 1234)
    ks.recover(damaged, write=True, truncate=True, now_ms=NOW)
    ours = [path for path in damaged.parent.rglob("*") if path.stat().st_uid != 1234]
    assert ours == []


def test_new_files_have_the_mode_of_logs(damaged: Path) -> None:
    for log in damaged.glob("*.log"):
        log.chmod(0o660)
    ks.recover(damaged, write=True, truncate=True, backup=False, now_ms=NOW)
    new = {path.stat().st_mode & 0o777 for path in damaged.glob("*.txnindex")}
    assert new == {0o660}


# ---- locks and links -----------------------------------------------------------------------------


def test_the_data_dir_of_a_running_broker_is_not_written(damaged: Path) -> None:
    before = contents(damaged)
    with broker_in(damaged.parent):
        with pytest.raises(ks.format.LogDirInUseError, match="LOG_DIR_IN_USE"):
            ks.recover(damaged, write=True)
        ks.recover(damaged)  # looking is allowed
    assert contents(damaged) == before
    assert not ks.recover(damaged, write=True).is_in_order


def test_the_lock_is_released(damaged: Path) -> None:
    ks.recover(damaged, write=True, now_ms=NOW)
    with open(damaged.parent / ".lock", "ab") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_concurrent_recoveries_exclude_each_other(damaged: Path) -> None:
    """A process is not kept out by its own locks, and loses them with any file it closes."""

    def another() -> object:
        return ks.recover(damaged, write=True, now_ms=NOW)

    def try_another(*_: object) -> None:
        with ThreadPoolExecutor(1) as pool, pytest.raises(ks.format.LogDirInUseError):
            pool.submit(another).result()

    assert ks.recover(damaged, write=True, truncate=True, on_progress=try_another).is_in_order


def test_the_lock_is_reentrant(damaged: Path) -> None:
    lock, code = damaged.parent / ".lock", (
        "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'ab'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    )  # fmt: skip
    with locked(damaged.parent):
        ks.recover(damaged, write=True, now_ms=NOW)
        held = subprocess.run([sys.executable, "-c", code, lock], capture_output=True, check=False)
        assert b"BlockingIOError" in held.stderr


def test_a_partition_behind_a_link(tmp_path: Path) -> None:
    data, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
    shutil.copytree(KILLED, data)
    elsewhere.mkdir()
    shutil.move(data / "preallocated-0", elsewhere / "p")
    (data / "preallocated-0").symlink_to(elsewhere / "p")
    done = ks.recover(data, write=True, truncate=True)
    assert {one.topic for one in done.partitions} == {"being-written", "preallocated"}
    assert done.is_marked_clean
    assert done.broker_epoch == 11
    (log,) = (elsewhere / "p").glob("*.log")
    assert ks.scan_batches(log).end is ks.ScanEnd.CLEAN


def test_the_lock_of_a_partition_behind_a_link(damaged: Path, tmp_path: Path) -> None:
    linked = tmp_path / "other" / "orders-0"
    linked.parent.mkdir()
    shutil.move(damaged.parent / "meta.properties", linked.parent)
    linked.symlink_to(damaged)
    ks.recover(linked, write=True, now_ms=NOW)
    assert (linked.parent / ".lock").exists()


@pytest.mark.parametrize("is_in_data_dir", [False, True])
def test_the_partition_of_a_running_broker_behind_a_link_is_not_written(
    damaged: Path, tmp_path: Path, is_in_data_dir: bool
) -> None:
    """The folder is given by a link from anywhere, or from the data dir of another broker."""
    home = tmp_path / "home"
    home.mkdir()
    link = home / ("orders-0" if is_in_data_dir else "what is broken")
    link.symlink_to(damaged)
    if is_in_data_dir:
        shutil.copy(damaged.parent / "meta.properties", home)
    before = contents(damaged)
    with broker_in(damaged.parent):
        for path in {link, home if is_in_data_dir else link}:
            with pytest.raises(ks.format.LogDirInUseError):
                ks.recover(path, write=True, now_ms=NOW)
    assert contents(damaged) == before
    (done,) = ks.recover(link, write=True, now_ms=NOW).partitions
    assert (done.topic, done.partition) == ("orders", 0)
