"""Crash recovery that is killed, fails, or meets a broker: files, backups and locks."""

from __future__ import annotations

import fcntl
import itertools
import os
import shutil
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import kafkascan as ks
from kafkascan.logs.data_dir_lock import locked
from kafkascan.recovery import log_jobs
from kafkascan.recovery.loading.log_loader import LoadedLog, LoadSettings
from tests.support.broker_lock import broker_in
from tests.support.dying import run_dying
from tests.support.files import contents
from tests.support.warm_process import run_warm
from tests.unit.recovery.damaged_partitions import (
    KILLED,
    NOW,
    without_backups,
)

_RECOVER = f"ks.recover(folder, write=True, truncate=True, now_ms={NOW})"


def _recover(folder: Path) -> None:
    ks.recover(folder, write=True, truncate=True, now_ms=NOW)


def _recovered(folder: Path, data_dir: Path) -> dict[str, bytes]:
    """Files of a partition after a recovery of a copy, which is not killed."""
    copy = Path(shutil.copytree(folder, data_dir / folder.name))
    _recover(copy)
    return without_backups(contents(copy))


def _require_whole_files(
    folder: Path, before: dict[str, bytes], expected: dict[str, bytes]
) -> None:
    for name, data in without_backups(contents(folder)).items():
        if not name.endswith((".part", ".cleaned", ".swap")):
            assert data in (before.get(name), expected.get(name)), name


@pytest.mark.parametrize(
    ("folder", "stride"),
    [
        ("damaged", 11),
        *(pytest.param(one, 1, marks=pytest.mark.slow) for one in ("damaged", "overflowing")),
    ],
)
def test_a_real_kill_leaves_each_file_old_or_new(
    folder: str, stride: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    damaged: Path = request.getfixturevalue(folder)
    before = contents(damaged)
    expected = _recovered(damaged, tmp_path / "whole")
    for step in itertools.count(2, stride):
        mine = Path(shutil.copytree(damaged, tmp_path / f"step-{step}" / damaged.name))
        exit_code = run_dying(_RECOVER, mine, step)
        _require_whole_files(mine, before, expected)
        _recover(mine)
        assert without_backups(contents(mine)) == expected, step
        if exit_code == 0:
            break
        assert exit_code == -signal.SIGKILL
    assert step > 20


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


@pytest.mark.parametrize("kind", ["index", "log"])
def test_the_target_of_a_link_is_changed_only_if_permitted(
    damaged: Path, tmp_path: Path, kind: str
) -> None:
    far = tmp_path / "far"
    link = sorted(damaged.glob("*.log"))[1].with_suffix(f".{kind}")
    if kind == "log":
        shutil.move(link, far)
    else:
        far.write_bytes(b"old index")
    link.symlink_to(far)
    before = contents(damaged), far.read_bytes()
    for write in (False, True):
        (refused,) = ks.recover(damaged, write=write, truncate=write, now_ms=NOW).partitions
        assert isinstance(refused.error, ks.format.LinkedFileError)
        assert str(refused.error).startswith(f"{link}: ")
        assert (contents(damaged), far.read_bytes()) == before
    done = ks.recover(damaged, write=True, truncate=True, now_ms=NOW, follow_links=True)
    assert done.is_in_order
    assert link.is_symlink()
    assert far.read_bytes() != before[1]
    (kept,) = damaged.glob(f"{link.name}*.bak")
    assert kept.read_bytes() in before[1]


def test_links_to_files_that_stay_are_no_error(damaged: Path, tmp_path: Path) -> None:
    ks.recover(damaged, write=True, truncate=True, now_ms=NOW)
    for number, path in enumerate([*damaged.glob("*.index"), *damaged.glob("*.log")]):
        shutil.move(path, tmp_path / str(number))
        path.symlink_to(tmp_path / str(number))
    (checked,) = ks.recover(damaged, now_ms=NOW).partitions
    assert checked.is_in_order


def test_a_linked_lock_file_or_mark_is_refused(tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(KILLED, data)
    for name in (".lock", ".kafka_cleanshutdown"):
        (data / name).symlink_to(tmp_path / "elsewhere")
        with pytest.raises(ks.format.LinkedFileError, match=name):
            ks.recover(data, write=True, truncate=True)
        assert not (tmp_path / "elsewhere").exists()
        (data / name).unlink()


_OTHER_FILES = (
    "meta.properties",
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    ".kafka_cleanshutdown",
    ".lock",
    "orders-0/leader-epoch-checkpoint",
    "orders-0/partition.metadata",
    *(f"orders-0/{0:020}.{kind}" for kind in ("index", "timeindex", "txnindex", "snapshot")),
    "__cluster_metadata-0/" + f"{0:020}.log",
)


@pytest.mark.parametrize("name", _OTHER_FILES)
@pytest.mark.parametrize("write", [False, True])
def test_fifos_are_not_waited_for(damaged: Path, name: str, write: bool) -> None:
    path = damaged.parent / name
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    code = (
        "import sys, kafkascan as ks\n"
        "try: print(ks.recover(sys.argv[1], write=sys.argv[2] == 'True'))\n"
        "except OSError as error: print(error)"
    )
    done = run_warm(code, damaged.parent, write)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout


# ---- logs that vanish or appear ------------------------------------------------------------------


@pytest.mark.parametrize("what", ["log", "folder"])
def test_logs_that_vanish_after_their_recovery(tmp_path: Path, what: str) -> None:
    data = tmp_path / "data"
    shutil.copytree(KILLED, data)
    gone = data / "being-written-0"

    def vanish(result: ks.recovery.PartitionRecovery, done: int, total: int) -> None:
        if what == "folder":
            shutil.rmtree(gone, ignore_errors=True)
        for log in gone.glob("*.log"):
            log.unlink()

    done = ks.recover(data, write=True, truncate=True, on_progress=vanish)
    (one,) = (one for one in done.partitions if one.path == gone)
    assert isinstance(one.error, ks.format.SourceReadError)
    assert "vanished" in str(one.error)
    assert not done.is_marked_clean


def test_logs_that_vanish_before_they_are_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data"
    shutil.copytree(KILLED, data)
    load = log_jobs.load_log

    def load_late(folder: Path, settings: LoadSettings) -> LoadedLog:
        for log in folder.glob("*.log"):
            log.unlink()
        return load(folder, settings)

    monkeypatch.setattr(log_jobs, "load_log", load_late)
    done = ks.recover(data, write=True, truncate=True)
    assert {str(one.error).rpartition(": ")[2] for one in done.partitions} == {
        "the log vanished during the recovery [SOURCE_FAULT]"
    }
    assert not list(data.glob("being-written-0/*.log"))  # no empty log takes their place
    assert not done.is_marked_clean


def test_logs_that_appear_during_a_recovery(tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(KILLED, data)

    def add(result: ks.recovery.PartitionRecovery, done: int, total: int) -> None:
        shutil.copytree(KILLED / "preallocated-0", data / "new-0", dirs_exist_ok=True)

    done = ks.recover(data, write=True, truncate=True, on_progress=add)
    assert not done.is_in_order
    assert not done.is_marked_clean
    assert "appeared" in str(done.partitions[-1].error)
    assert ks.recover(data, write=True, truncate=True).is_marked_clean


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
        assert "BlockingIOError" in run_warm(code, lock).stderr


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


# ---- locks of folders without a broker's files ---------------------------------------------------


@pytest.mark.parametrize("is_partition", [True, False])
def test_two_runs_on_a_copy_exclude_each_other(damaged: Path, is_partition: bool) -> None:
    (damaged.parent / "meta.properties").unlink()
    before = contents(damaged.parent)
    code = (
        "import sys, kafkascan as ks\n"
        "try: ks.recover(sys.argv[1], write=True)\n"
        "except ks.format.LogDirInUseError as error: print(error)"
    )
    path = damaged if is_partition else damaged.parent
    with locked(damaged.parent):
        assert str(damaged.parent) in run_warm(code, path).stdout
    assert contents(damaged.parent) == before  # no lock file either
    ks.recover(path, write=True, now_ms=NOW)
    assert not (damaged.parent / ".lock").exists()
