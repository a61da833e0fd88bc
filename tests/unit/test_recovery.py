"""Logs put in order: what is told, what is written, what is kept, whatever interrupts it."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import gzip
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import kafkascan as ks
from kafkascan import file_changes
from kafkascan.data_dir_lock import locked
from kafkascan.metadata_log import read_cluster_metadata
from tests.support.logs import COMMIT, TRANSACTIONAL, WrittenLog, marker
from tests.support.records import RecordV2, batch_of
from tests.support.segments import message_v1

GOLDEN = Path(__file__).parents[1] / "golden"
KILLED = GOLDEN / "kafka-4.4.0-killed" / "data"
NOW = 1_714_000_100_000


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def told_of(folder: Path) -> list[ks.Change]:
    """What there would be to do once more."""
    (told,) = ks.recover(folder, now_ms=NOW).partitions
    return told.changes


def without_backups(files: dict[str, bytes]) -> dict[str, bytes]:
    return {name: data for name, data in files.items() if ".bak" not in name}


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A partition of three segments, the second one torn, with files that lie or are missing."""
    folder = tmp_path / "data" / "orders-0"
    folder.mkdir(parents=True)
    log = WrittenLog(random.Random(3)).write(200, list(range(20)))
    count = len(log.batches)
    parts = [log.segment(0, count // 2), log.segment(count // 2, -1), log.segment(-1)]
    for number, (base_offset, data) in enumerate(parts):
        torn = data[:-20] if number == 1 else data
        (folder / f"{base_offset:020}.log").write_bytes(torn)
    (folder / f"{0:020}.index").write_bytes(b"lies" * 6)
    (folder / f"{parts[1][0]:020}.timeindex").write_bytes(bytes(120))
    (folder / "leader-epoch-checkpoint").write_bytes(b"0\n1\n77 1\n")
    (folder / f"{5:020}.snapshot").write_bytes(b"no snapshot")
    (folder.parent / "meta.properties").write_text("version=1\nnode.id=1\n")
    return folder


def test_nothing_is_touched_without_write(damaged: Path) -> None:
    before = contents(damaged.parent)
    told = ks.recover(damaged, now_ms=NOW)
    assert contents(damaged.parent) == before
    assert not told.is_in_order
    assert repr(ks.recover(damaged, dry_run=True, now_ms=NOW)) == repr(told)
    (partition,) = told.partitions
    assert partition.error is None
    assert [segment.is_recovered for segment in partition.segments] == [True, True, True]
    assert partition.truncated_bytes == sum(one.truncated_bytes for one in partition.segments) > 0
    assert "torn" not in repr(told)
    assert "the last batch is incomplete" in repr(told)


def test_a_segment_that_repeats_its_first_offset_is_cut_where_the_index_finds_it(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "orders-0"
    folder.mkdir()
    batch = batch_of([RecordV2(value=b"one")], base_offset=27, max_timestamp=NOW)
    (folder / f"{27:020}.log").write_bytes(6 * batch)
    (folder / f"{27:020}.index").touch()
    for interval, kept in ((0, 1), (len(batch), 2), (4096, 6)):
        (partition,) = ks.recover(folder, now_ms=NOW, interval_bytes=interval).partitions
        (segment,) = partition.segments
        assert segment.valid_bytes == kept * len(batch)
        assert segment.next_offset == partition.log_end_offset == 28


def test_logs_are_not_cut_off_unless_asked(damaged: Path) -> None:
    logs = {name: data for name, data in contents(damaged).items() if name.endswith(".log")}
    done = ks.recover(damaged, write=True, now_ms=NOW)
    assert {name: data for name, data in contents(damaged).items() if name in logs} == logs
    assert not done.is_in_order
    (partition,) = done.partitions
    left = [change for change in partition.changes if change not in partition.applied]
    assert all(change.shortens_log for change in left)
    assert {change.action for change in left} == {ks.Action.TRUNCATE}


def test_what_is_written_is_in_order(damaged: Path) -> None:
    before = contents(damaged)
    done = ks.recover(damaged, write=True, truncate=True, now_ms=NOW)
    assert done.is_in_order
    assert ks.recover(damaged, now_ms=NOW).partitions[0].changes == []
    after = contents(damaged)
    for path in damaged.glob("*.log"):
        scan = ks.scan_batches(path)
        assert scan.end is ks.ScanEnd.CLEAN
        place = {"base_offset": int(path.stem)}
        assert after[f"{path.stem}.index"] == ks.build_offset_index(scan.batches, **place).tobytes()
        for kind in ("index", "timeindex"):
            assert ks.check_index(path.with_suffix(f".{kind}"), scan.batches) == []
    # Nothing is lost: what was there is there still, or beside it.
    for name, data in before.items():
        kept = [after.get(name), *(after[other] for other in after if other.startswith(name))]
        cut = [whole for whole in kept if whole is not None]
        assert data in cut or cut[0] + cut[-1] == data


def test_without_backups(damaged: Path) -> None:
    ks.recover(damaged, write=True, truncate=True, backup=False, now_ms=NOW)
    assert without_backups(contents(damaged)) == contents(damaged)


def test_backups_do_not_replace_each_other(damaged: Path) -> None:
    index = damaged / f"{0:020}.index"
    for lie in (b"first lie", b"other lie"):
        index.write_bytes(lie)
        ks.recover(damaged, write=True, now_ms=NOW)
    assert (damaged / f"{index.name}.bak").read_bytes() == b"first lie"
    assert (damaged / f"{index.name}.bak2").read_bytes() == b"other lie"


@contextlib.contextmanager
def broker_in(data_dir: Path) -> Iterator[None]:
    """Let another process hold the lock of a data dir."""
    holder = """
        import fcntl, sys
        lock = open(sys.argv[1], "ab")
        fcntl.lockf(lock, fcntl.LOCK_EX)
        print("held", flush=True)
        sys.stdin.read()
    """
    command = [sys.executable, "-c", textwrap.dedent(holder), str(data_dir / ".lock")]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield
        process.communicate("")


def test_a_broker_that_runs_is_left_alone(damaged: Path) -> None:
    before = contents(damaged)
    with broker_in(damaged.parent):
        with pytest.raises(ks.LogDirInUseError, match="LOG_DIR_IN_USE"):
            ks.recover(damaged, write=True)
        ks.recover(damaged)  # looking is allowed
    assert contents(damaged) == before
    assert not ks.recover(damaged, write=True).is_in_order


def test_the_lock_is_given_back(damaged: Path) -> None:
    ks.recover(damaged, write=True, now_ms=NOW)
    with open(damaged.parent / ".lock", "ab") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_data_dir_is_marked_clean_once_it_is(tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(KILLED, data)
    assert not ks.recover(data, write=True).is_marked_clean  # a log has a tail still
    assert not (data / ".kafka_cleanshutdown").exists()
    assert not ks.recover(data, write=True, truncate=True, mark_clean=False).is_marked_clean
    assert ks.recover(data, write=True, truncate=True).is_marked_clean
    mark = ks.read_clean_shutdown(data / ".kafka_cleanshutdown")
    assert mark == ks.CleanShutdown(0, read_cluster_metadata(KILLED).broker_epoch or -1)
    assert mark.broker_epoch > 0
    shapes = {partition.topic for partition in ks.recover(data).partitions}
    assert shapes == {"being-written", "preallocated"}  # brokers load the metadata themselves


def test_the_epoch_of_a_broker_is_what_it_wrote_when_it_stopped() -> None:
    data = GOLDEN / "kafka-4.4.0" / "data"
    written = ks.read_clean_shutdown(data / ".kafka_cleanshutdown")
    assert read_cluster_metadata(data).broker_epoch == written.broker_epoch
    assert read_cluster_metadata(GOLDEN).broker_epoch is None


def test_a_topic_keeps_the_index_interval_that_it_was_given() -> None:
    assert read_cluster_metadata(KILLED).interval_bytes == {"being-written": 200}
    told = {one.topic: one for one in ks.recover(KILLED).partitions}
    changed = {change.name: change.new_size for change in told["being-written"].changes}
    partition = KILLED / "being-written-0"
    log = max(partition.glob("*.log"))
    entries = ks.build_offset_index(
        ks.scan_batches(log).batches, base_offset=int(log.stem), interval_bytes=200
    )
    assert changed[f"{log.stem}.index"] == entries.nbytes > 0
    (alone,) = ks.recover(partition).partitions
    assert {change.name: change.new_size for change in alone.changes} == changed
    (finer,) = ks.recover(partition, interval_bytes=0).partitions
    assert {change.name: change.new_size for change in finer.changes} != changed


def test_one_partition_that_cannot_be_written_does_not_keep_others_back(
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


def test_one_bad_partition_does_not_keep_others_back(tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(KILLED, data)
    (data / "being-written-0" / "leader-epoch-checkpoint").write_bytes(b"nonsense")
    done = ks.recover(data, write=True, truncate=True)
    first, second = done.partitions
    assert isinstance(first.error, ks.CorruptCheckpointError)
    assert second.is_in_order
    assert not done.is_in_order
    assert not done.is_marked_clean


def test_the_recovery_point_of_the_checkpoint(damaged: Path) -> None:
    second = sorted(damaged.glob("*.log"))[1]
    checkpoint = damaged.parent / "recovery-point-offset-checkpoint"
    ks.write_offset_checkpoint(checkpoint, {("orders", 0): int(second.stem) + 1, ("other", 0): 3})
    for log in damaged.glob("*.log"):
        log.with_suffix(".index").write_bytes(b"")
    (partition,) = ks.recover(damaged).partitions
    assert [segment.is_recovered for segment in partition.segments] == [False, True, False]
    (partition,) = ks.recover(damaged, recovery_point=0).partitions
    assert [segment.is_recovered for segment in partition.segments] == [True, True, False]


def test_arguments(damaged: Path) -> None:
    with pytest.raises(ValueError, match="opposite"):
        ks.recover(damaged, dry_run=True, write=True)
    with pytest.raises(ValueError, match="needs write"):
        ks.recover(damaged, truncate=True)
    with pytest.raises(ValueError, match="threads"):
        ks.recover(damaged, threads=0)


# ---- logs that no broker loads -----------------------------------------------------------------


def test_an_index_that_leads_brokers_astray(tmp_path: Path) -> None:
    """Nothing is wrong with the log, and the index is below the recovery point."""
    folder = tmp_path / "orders-0"
    folder.mkdir()
    begun = {"attributes": 0x10, "producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    open_one = batch_of([RecordV2(value=bytes(99))], base_offset=0) + batch_of(
        [RecordV2(value=bytes(99))], base_offset=1, **begun
    )
    (folder / f"{0:020}.log").write_bytes(open_one)
    (folder / f"{0:020}.index").write_bytes(struct.pack(">ii", 1, 70))
    (folder / f"{2:020}.log").write_bytes(batch_of([RecordV2()], base_offset=2))
    before = contents(folder)
    (told,) = ks.recover(folder, write=True, truncate=True, recovery_point=2, now_ms=NOW).partitions
    assert isinstance(told.error, ks.CorruptIndexError)
    assert told.error.path == str(folder / f"{0:020}.index")
    assert "delete it" in str(told)
    assert contents(folder) == before
    (folder / f"{0:020}.index").unlink()
    (done,) = ks.recover(folder, write=True, truncate=True, recovery_point=2, now_ms=NOW).partitions
    assert done.is_in_order
    assert not ks.recover(folder, recovery_point=2, now_ms=NOW).partitions[0].changes


def test_a_last_message_that_brokers_cannot_decompress(tmp_path: Path) -> None:
    """Its checksum is right, and that is all that recovery asks of it; loading asks for more."""
    packed = bytearray(gzip.compress(message_v1(value=b"inner")))
    packed[-1] ^= 1
    wrapper = message_v1(attributes=1, value=bytes(packed))
    folder = tmp_path / "orders-0"
    folder.mkdir()
    (folder / f"{0:020}.log").write_bytes(wrapper)
    (told,) = ks.recover(folder, write=True, truncate=True, now_ms=NOW).partitions
    assert isinstance(told.error, ks.InvalidRecordError)
    assert told.error.position == 0
    assert contents(folder) == {f"{0:020}.log": wrapper}


@pytest.mark.parametrize(
    ("order", "is_loaded"),
    [
        ("b1 b2 e1", True),
        ("b1 b2 e1 e2", False),
        ("b1 e1 b2 e2", True),
        ("b1 b2 e1 b3 e2", True),
        ("b1 b2 e2 e1 b3 e3", False),
    ],
)
@pytest.mark.parametrize("is_recovered", [True, False])
def test_transactions_that_begin_at_one_offset(
    tmp_path: Path, order: str, is_loaded: bool, is_recovered: bool
) -> None:
    """Kafka knows them by it; segments that are not recovered are read at once for producers."""
    folder = tmp_path / "orders-0"
    folder.mkdir()
    log = b""
    for number, (what, producer) in enumerate(order.split()):
        known = {"producer_id": int(producer), "producer_epoch": 0, "timestamp_delta": 0}
        if what == "e":
            log += marker(COMMIT, base_offset=10 + number, **known)
        else:
            del known["timestamp_delta"]
            log += batch_of([RecordV2()], base_offset=0, attributes=TRANSACTIONAL,
                            base_sequence=0, **known)  # fmt: skip
    (folder / f"{0:020}.log").write_bytes(log)
    (folder / f"{0:020}.index").touch()
    (folder / f"{50:020}.log").touch()
    (folder / f"{50:020}.index").touch()
    point = 0 if is_recovered else 50
    (told,) = ks.recover(folder, recovery_point=point, interval_bytes=10**6).partitions
    if is_loaded and (is_recovered or order.count("e") == 1):
        assert told.error is None
    else:
        assert isinstance(told.error, ks.InvalidRecordError)
        assert told.error.symbol == "BAD_CONTROL_RECORD"


# ---- segments whose offsets lie too far apart ---------------------------------------------------

TOO_FAR = 2**31
FIRST_PART, SECOND_PART = 100, 100 + TOO_FAR + 40


@pytest.fixture
def overflowing(tmp_path: Path) -> Path:
    """A partition as a broker before 1.1 left it (KAFKA-6264), and a segment behind that."""
    folder = tmp_path / "data" / "old-0"
    folder.mkdir(parents=True)

    def batches(first: int, count: int) -> bytes:
        return b"".join(
            batch_of([RecordV2(value=bytes(200))], base_offset=first + number)
            for number in range(count)
        )

    log = folder / f"{FIRST_PART:020}.log"
    log.write_bytes(batches(FIRST_PART, 40) + batches(SECOND_PART, 60))
    os.utime(log, (1_500_000_000, 1_500_000_000))
    (folder / f"{SECOND_PART + 60:020}.log").write_bytes(batches(SECOND_PART + 60, 3))
    for path in list(folder.glob("*.log")):
        path.with_suffix(".index").touch()
    (folder / f"{FIRST_PART:020}.txnindex").write_bytes(
        struct.pack(">hqqqq", 0, 1, FIRST_PART, FIRST_PART + 1, FIRST_PART)
    )
    (folder.parent / "meta.properties").write_text("version=1\nnode.id=1\n")
    return folder


def test_a_segment_with_offsets_too_far_apart_is_split(overflowing: Path) -> None:
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


def test_a_segment_is_not_split_unless_asked(overflowing: Path) -> None:
    before = contents(overflowing)
    (told,) = ks.recover(overflowing, write=True, now_ms=NOW).partitions
    assert contents(overflowing) == before
    assert told.applied == []
    assert not told.is_in_order
    (split,) = (change for change in told.changes if change.action is ks.Action.SPLIT)
    assert split.shortens_log
    assert split.old_size == split.new_size == len(before[split.name])


def test_a_segment_is_split_without_backups(overflowing: Path) -> None:
    ks.recover(overflowing, write=True, truncate=True, backup=False, now_ms=NOW)
    assert not list(overflowing.glob("*.bak*"))
    assert not (overflowing / f"{FIRST_PART:020}.txnindex").exists()


@pytest.mark.parametrize("tail", [bytes(100), b"torn tail", b"\xff" * 100])
def test_a_segment_that_kafka_fails_to_split(overflowing: Path, tail: bytes) -> None:
    with open(overflowing / f"{FIRST_PART:020}.log", "ab") as log:
        log.write(tail)
    before = contents(overflowing)
    (told,) = ks.recover(overflowing, write=True, truncate=True, now_ms=NOW).partitions
    assert isinstance(told.error, ks.CorruptLogError)
    assert told.error.symbol == "OFFSET_OVERFLOW"
    assert "cannot be split" in str(told)
    assert contents(overflowing) == before


def test_a_full_disk_leaves_no_parts(overflowing: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = contents(overflowing)

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(file_changes.os, "utime", full)
    (told,) = ks.recover(overflowing, write=True, truncate=True, now_ms=NOW).partitions
    assert isinstance(told.error, OSError)
    (overflowing / "leader-epoch-checkpoint").unlink()  # it is written first
    assert contents(overflowing) == before


def test_what_kafka_left_of_a_split_is_finished_or_done_again(overflowing: Path) -> None:
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


# ---- deaths ------------------------------------------------------------------------------------

# Each death is one of a child's, which need not import everything anew.
DYING = """
    import os, signal, sys
    from kafkascan import recover
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
        asked, told = process.stdin, process.stdout

        def recover(folder: Path, step: int) -> int:
            asked.write(f"{step} {NOW} {folder}\n")
            return int(told.readline())

        yield recover


@pytest.fixture
def bare(overflowing: Path) -> Path:
    """The same, without anything but logs: recovery begins where loading sees that."""
    for path in overflowing.glob("*index"):
        path.unlink()
    return overflowing


@pytest.mark.parametrize("folder", ["damaged", "overflowing", "bare"])
def test_a_death_at_any_write_leaves_each_file_old_or_new(
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
        assert told_of(mine) == [], steps
        shutil.rmtree(mine.parent)
        if exit_code == 0:
            break
        assert exit_code == -signal.SIGKILL
    assert steps > 20


def test_owner_and_mode_are_those_of_what_is_replaced(damaged: Path) -> None:
    index = damaged / f"{0:020}.index"
    os.chmod(index, 0o640)
    ks.recover(damaged, write=True, now_ms=NOW)
    assert index.stat().st_mode & 0o777 == 0o640
    owner = damaged.stat().st_uid
    assert {path.stat().st_uid for path in damaged.iterdir()} == {owner}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_root_leaves_files_to_their_owner(damaged: Path) -> None:
    for path in (damaged.parent, *damaged.parent.rglob("*")):
        os.chown(path, 1234, 1234)
    ks.recover(damaged, write=True, truncate=True, now_ms=NOW)
    ours = [path for path in damaged.parent.rglob("*") if path.stat().st_uid != 1234]
    assert ours == []


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
def test_a_broker_behind_a_link_is_left_alone(
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
            with pytest.raises(ks.LogDirInUseError):
                ks.recover(path, write=True, now_ms=NOW)
    assert contents(damaged) == before
    (done,) = ks.recover(link, write=True, now_ms=NOW).partitions
    assert (done.topic, done.partition) == ("orders", 0)


def test_one_recovery_at_a_time(damaged: Path) -> None:
    """A process is not kept out by its own locks, and loses them with any file it closes."""

    def another() -> object:
        return ks.recover(damaged, write=True, now_ms=NOW)

    def try_another(*_: object) -> None:
        with ThreadPoolExecutor(1) as pool, pytest.raises(ks.LogDirInUseError):
            pool.submit(another).result()

    assert ks.recover(damaged, write=True, truncate=True, on_progress=try_another).is_in_order


def test_who_holds_the_lock_may_ask_again(damaged: Path) -> None:
    lock, code = damaged.parent / ".lock", (
        "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'ab'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    )  # fmt: skip
    with locked(damaged.parent):
        ks.recover(damaged, write=True, now_ms=NOW)
        held = subprocess.run([sys.executable, "-c", code, lock], capture_output=True, check=False)
        assert b"BlockingIOError" in held.stderr


def test_new_files_have_the_mode_of_logs(damaged: Path) -> None:
    for log in damaged.glob("*.log"):
        log.chmod(0o660)
    ks.recover(damaged, write=True, truncate=True, backup=False, now_ms=NOW)
    new = {path.stat().st_mode & 0o777 for path in damaged.glob("*.txnindex")}
    assert new == {0o660}


def test_a_backup_is_not_written_behind_a_link(damaged: Path, tmp_path: Path) -> None:
    (damaged / f"{0:020}.index.bak").symlink_to(tmp_path / "elsewhere")
    assert ks.recover(damaged, write=True, truncate=True, now_ms=NOW).is_in_order
    assert not os.path.lexists(tmp_path / "elsewhere")
    assert (damaged / f"{0:020}.index.bak2").read_bytes() == b"lies" * 6


def test_logs_under_other_names_keep_a_data_dir_from_being_clean(tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(KILLED, data)
    (data / "being-written-0").rename(data / "put aside")
    done = ks.recover(data, write=True, truncate=True)
    assert done.is_in_order
    assert not done.is_marked_clean


def test_a_data_dir_without_logs_gets_none(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=1\nnode.id=1\n")
    shutil.copy(KILLED / "__cluster_metadata-0" / f"{0:020}-{0:010}.checkpoint", tmp_path)
    (tmp_path / f"{0:020}-{0:010}.checkpoint").rename(tmp_path / "bootstrap.checkpoint")
    assert ks.recover(tmp_path, write=True).partitions == []
    assert not list(tmp_path.glob("*.log"))


def test_an_empty_partition_gets_a_segment(tmp_path: Path) -> None:
    (tmp_path / "orders-0").mkdir()
    (alone,) = ks.recover(tmp_path / "orders-0").partitions
    assert len(alone.changes) == 4


def test_tails_are_all_kept(tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(KILLED, data)
    partition = data / "preallocated-0"
    for tail in (b"one" * 100, b"two" * 100):
        with open(partition / f"{0:020}.log", "ab") as log:
            log.write(tail)
        ks.recover(partition, write=True, truncate=True)
    kept = sorted(path.read_bytes() for path in partition.glob("*.tail-*"))
    assert [data[-3:] for data in kept] == [b"one", b"two"]


def test_what_a_link_leads_to_is_kept(damaged: Path, tmp_path: Path) -> None:
    index = damaged / f"{0:020}.index"
    (tmp_path / "far").write_bytes(b"old index")
    index.unlink()
    index.symlink_to(tmp_path / "far")
    ks.recover(damaged, write=True, now_ms=NOW)
    assert (damaged / f"{index.name}.bak").read_bytes() == b"old index"
    assert index.is_symlink()


@pytest.mark.parametrize(
    "name",
    [
        "5.log", "9223372036854775807.log", "0000000000000000005.log.swap",
        "09223372036854775808.snapshot", "9223372036854775808.snapshot",
        "99999999999999999999999.log", "10000000000000000000.log", "-5.log", "x.index",
    ],
)  # fmt: skip
def test_odd_names_are_left_alone(damaged: Path, name: str) -> None:
    (damaged / name).write_bytes(b"odd")
    done = ks.recover(damaged, write=True, truncate=True, now_ms=NOW)
    assert done.is_in_order
