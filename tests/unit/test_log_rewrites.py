from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import kafkascan as ks
from kafkascan import log_rewriting
from kafkascan.filtering import RecordFilter
from tests.support.log_corpus import marker
from tests.support.segments import T0

GOLDEN = Path(__file__).parents[1] / "golden/kafka-4.4.0/data"


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    return Path(shutil.copytree(GOLDEN / "transactions-0", tmp_path / "data" / "transactions-0"))


def files(folder: Path) -> dict[str, bytes]:
    return {str(one.relative_to(folder)): one.read_bytes() for one in folder.rglob("*.*")}


def records(folder: Path) -> list[tuple[int, bytes | None, bytes | None]]:
    return [
        (record.offset or 0, record.key, record.value)
        for log in sorted(folder.glob("*.log"))
        for record in ks.read_records(log, verify=True)
    ]


def assert_in_order(folder: Path) -> None:
    (outcome,) = ks.recover(folder, recovery_point=0).partitions
    assert outcome.error is None
    assert outcome.changes == []


def test_a_folder_is_converted_into_another(partition: Path, tmp_path: Path) -> None:
    before = files(partition)
    result = ks.convert_log(partition, tmp_path / "out-0", compression_type="gzip")
    assert files(partition) == before
    assert records(tmp_path / "out-0") == records(partition)
    assert [one.target.parent for one in result.segments] == [tmp_path / "out-0"] * 2
    assert_in_order(tmp_path / "out-0")
    assert (tmp_path / "out-0" / "partition.metadata").exists()
    with pytest.raises(FileExistsError):
        ks.convert_log(partition, tmp_path / "out-0", compression_type="gzip")
    assert sorted(os.listdir(tmp_path)) == ["data", "out-0"], "nothing half-made is left"


def test_a_folder_is_replaced_where_that_is_asked_for(partition: Path) -> None:
    before = records(partition)
    secret = before[3][0]
    result = ks.scrub_log(partition, keep=ks.without_offsets(secret, secret), in_place=True)
    assert records(partition) == [one for one in before if one[0] != secret]
    assert [one.is_changed for one in result.segments].count(True) == 1
    assert result.findings == []
    assert_in_order(partition)


def test_what_changes_nothing_touches_nothing(partition: Path) -> None:
    before = {path: path.stat().st_ino for path in partition.iterdir()}
    ks.scrub_log(partition, keep=ks.without_keys([b"nobody's"]), in_place=True)
    assert {path: path.stat().st_ino for path in partition.iterdir()} == before


def test_damage_in_one_log_leaves_all_as_they_are(partition: Path) -> None:
    last = max(partition.glob("*.log"))
    data = bytearray(last.read_bytes())
    data[-1] ^= 1
    last.write_bytes(data)
    before = files(partition)
    with pytest.raises(ks.ChecksumMismatchError):
        ks.convert_log(partition, in_place=True, compression_type="zstd")
    with pytest.raises(ks.ChecksumMismatchError):
        ks.convert_log(partition, partition.parent / "new-0", compression_type="zstd")
    assert files(partition) == before
    assert os.listdir(partition.parent) == [partition.name]


# A lock of our own process would not keep us out.
_HOLD = """
import fcntl, sys, time
lock = open(sys.argv[1], "wb")
fcntl.lockf(lock, fcntl.LOCK_EX)
print("held", flush=True)
time.sleep(60)
"""


def test_a_broker_keeps_us_out(partition: Path) -> None:
    (partition.parent / "meta.properties").write_text("")
    command = [sys.executable, "-c", _HOLD, str(partition.parent / ".lock")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"held\n"
            before = files(partition)
            with pytest.raises(ks.LogDirInUseError):
                ks.convert_log(partition, in_place=True, compression_type="gzip")
            keep = ks.without_offsets(0)
            with pytest.raises(ks.LogDirInUseError):
                ks.scrub_log(min(partition.glob("*.log")), keep=keep, in_place=True)
            assert files(partition) == before
        finally:
            holder.kill()


def test_a_link_does_not_lead_past_the_lock(partition: Path, tmp_path: Path) -> None:
    (partition.parent / "meta.properties").write_text("")
    link = tmp_path / "link-0"
    link.symlink_to(partition)
    ks.convert_log(link, in_place=True, compression_type="gzip")
    assert (partition.parent / ".lock").exists(), "it was taken"
    assert_in_order(partition)


def test_one_log_gets_its_indexes(partition: Path, tmp_path: Path) -> None:
    log = min(partition.glob("*.log"))
    (tmp_path / "here").mkdir()
    result = ks.convert_log(log, tmp_path / "here", compression_type="lz4")
    assert result.target == tmp_path / "here" / log.name
    batches = ks.scan_batches(result.target).batches
    for kind in ("index", "timeindex"):
        assert ks.check_index(result.target.with_suffix(f".{kind}"), batches) == []
    assert [one.symbol for one in result.findings] == ["STALE_SIBLINGS"]
    ks.convert_log(log, in_place=True, compression_type="lz4")
    assert log.read_bytes() == result.target.read_bytes()


def test_offsets_move_with_the_names(partition: Path, tmp_path: Path) -> None:
    before = records(partition)
    ks.restamp_log(partition, tmp_path / "moved-0", offset_shift=1000, partition_leader_epoch=4)
    moved = tmp_path / "moved-0"
    assert [offset - 1000 for offset, _, _ in records(moved)] == [one[0] for one in before]
    assert min(moved.glob("*.log")).name == f"{1000:020}.log"
    assert [one.epoch for one in ks.read_leader_epochs(moved / "leader-epoch-checkpoint")] == [4]
    assert_in_order(moved)
    with pytest.raises(ValueError, match="names of files"):
        ks.restamp_log(partition, in_place=True, offset_shift=1)
    with pytest.raises(ValueError, match="base offset would be -1"):
        ks.restamp_log(partition, tmp_path / "x-0", offset_shift=-1)


def test_old_formats_lose_what_belongs_to_producers(partition: Path) -> None:
    result = ks.convert_log(partition, in_place=True, to_magic=1)
    assert sum(one.report.lost.get("control_batches", 0) for one in result.segments) > 0
    assert not list(partition.glob("*.txnindex"))
    assert_in_order(partition)


def test_producers_that_the_log_says_nothing_of_are_carried_over(
    partition: Path, tmp_path: Path
) -> None:
    known = {path.name: path.read_bytes() for path in partition.glob("*.snapshot")}
    first = min(partition.glob("*.log"))
    ks.convert_log(partition, tmp_path / "out-0", compression_type="gzip")
    ks.convert_log(partition, in_place=True, compression_type="gzip")
    assert known.keys() == {path.name for path in partition.glob("*.snapshot")}
    assert known.keys() == {path.name for path in (tmp_path / "out-0").glob("*.snapshot")}
    assert first.with_suffix(".index").exists()


def test_an_index_that_cannot_be_built_stops_it_before(tmp_path: Path) -> None:
    log = tmp_path / f"{100:020}.log"
    log.write_bytes(ks.build_batches(offset=5, timestamp=[T0], value=[b"v"]))
    before = files(tmp_path)
    with pytest.raises(ks.IndexOverflowError):
        ks.convert_log(log, in_place=True, compression_type="gzip")
    assert files(tmp_path) == before


def test_leftovers_are_told(partition: Path) -> None:
    (partition / f"{0:020}.log.bak").write_bytes(b"")
    result = ks.scrub_log(partition, keep=ks.without_offsets(0, 0), in_place=True)
    assert [one.symbol for one in result.findings] == ["LEFTOVER"]
    (partition / f"{0:020}.log.swap").write_bytes(b"")
    with pytest.raises(ValueError, match="recover it first"):
        ks.scrub_log(partition, keep=ks.without_offsets(0, 0), in_place=True)


def test_what_was_to_go_is_looked_for(partition: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A filter that drops nothing is found out, and the log stays."""

    class Forgetful(RecordFilter):
        def __iter__(self) -> Iterator[bytes | memoryview]:
            pieces = list(super().__iter__())
            self.report.dropped_offsets = np.array([0])
            self.report.kept_records = self.report.records
            del pieces
            yield bytes(self._source.window(0, self._source.size))

    monkeypatch.setattr("kafkascan.log_rewrites.RecordFilter", Forgetful)
    before = files(partition)
    with pytest.raises(RuntimeError, match="still there"):
        ks.scrub_log(partition, keep=ks.without_offsets(0, 0), in_place=True)
    assert files(partition) == before


def test_torn_tails_are_left_out_and_told(tmp_path: Path) -> None:
    log = tmp_path / f"{0:020}.log"
    whole = ks.build_batches(timestamp=[T0], value=[b"v"])
    log.write_bytes(whole + whole[:30])
    result = ks.convert_log(log, in_place=True, compression_type="none")
    assert [one.symbol for one in result.findings] == ["TORN_TAIL", "STALE_SIBLINGS"]
    assert log.read_bytes() == whole


def test_an_end_that_moves_is_told(tmp_path: Path) -> None:
    log = tmp_path / f"{0:020}.log"
    log.write_bytes(ks.build_batches(timestamp=[T0], value=[b"v"]) + marker(1, "COMMIT", 5))
    result = ks.convert_log(log, in_place=True, to_magic=1)
    assert [one.symbol for one in result.findings] == ["LOG_END_MOVED", "STALE_SIBLINGS"]
    assert "up to offset 1, and ends before 1 now" in result.findings[0].message


def test_one_of_target_and_in_place(partition: Path, tmp_path: Path) -> None:
    for target, in_place in ((None, False), (tmp_path / "x", True)):
        with pytest.raises(ValueError, match="target"):
            ks.convert_log(partition, target, in_place=in_place, to_magic=2)
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError):
        ks.convert_log(tmp_path / "empty", in_place=True, to_magic=2)


def test_killed_in_the_middle_no_index_is_of_another_log(
    partition: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class KilledError(Exception):
        pass

    def killed(self: object) -> None:
        raise KilledError

    before = records(partition)
    monkeypatch.setattr(log_rewriting.AtomicFile, "put_in_place", killed)
    with pytest.raises(KilledError):
        ks.convert_log(partition, in_place=True, compression_type="zstd")
    assert records(partition) == before
    assert not list(partition.glob("*.index"))
    assert not list(partition.glob("*.timeindex"))
    assert not list(partition.glob(".*.part"))


def test_a_damaged_length_is_not_taken_for_the_end(tmp_path: Path) -> None:
    log = tmp_path / f"{0:020}.log"
    data = bytearray(ks.build_batches(value=[bytes(50)] * 20, max_records=1))
    data[8] |= 0x40
    log.write_bytes(data)
    for target in (None, tmp_path / "out.log"):
        with pytest.raises(ks.CorruptBatchError):
            ks.scrub_log(log, target, in_place=target is None, keep=ks.without_offsets(3, 3))
    assert files(tmp_path) == {log.name: bytes(data)}


def test_records_that_are_in_a_swap_alone_are_missed(partition: Path, tmp_path: Path) -> None:
    last = sorted(partition.glob("*.log"))[-1]
    last.rename(f"{last}.swap")
    with pytest.raises(ValueError, match="recover it first"):
        ks.convert_log(partition, tmp_path / "out-0", compression_type="gzip")
    assert sorted(os.listdir(tmp_path)) == ["data"]


@pytest.mark.parametrize("name", ["log.deleted", "log.bak2", "log.tail-7.bak", "log.tail-7.bak3"])
def test_leftovers_are_told_where_nothing_changes(partition: Path, name: str) -> None:
    (partition / f"{0:020}.{name}").write_bytes(b"once")
    result = ks.scrub_log(partition, in_place=True, keep=ks.without_keys([b"nobody"]))
    assert not any(one.is_changed for one in result.segments)
    assert [one.symbol for one in result.findings] == ["LEFTOVER"]


def test_other_names_of_a_log_are_told(partition: Path, tmp_path: Path) -> None:
    log = sorted(partition.glob("*.log"))[0]
    os.link(log, tmp_path / "copy.log")
    before = log.read_bytes()
    result = ks.scrub_log(partition, in_place=True, keep=ks.without_offsets(0, 3))
    assert (tmp_path / "copy.log").read_bytes() == before != log.read_bytes()
    (finding,) = result.findings
    assert finding.symbol == "LEFTOVER"
    assert finding.message.startswith(f"{log}: 1 other hard link")


def test_more_segments_than_files_that_may_be_open(tmp_path: Path) -> None:
    folder = tmp_path / "orders-0"
    with ks.SegmentWriter(folder, segment_bytes=200) as writer:
        writer.append(ks.build_batches(value=[bytes(100)] * 100, max_records=1))
    code = (
        "import resource, sys, kafkascan as ks;"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (80, 80));"
        "ks.convert_log(sys.argv[1], in_place=True, compression_type='gzip');"
        "ks.convert_log(sys.argv[1], sys.argv[2], compression_type='none')"
    )
    subprocess.run([sys.executable, "-c", code, folder, tmp_path / "out-0"], check=True)
    assert len(list((tmp_path / "out-0").glob("*.log"))) == 100
    assert [offset for offset, _, _ in records(tmp_path / "out-0")] == list(range(100))


def test_offsets_that_have_no_64_bits(partition: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="64 bits"):
        ks.restamp_log(partition, tmp_path / "out-0", offset_shift=2**70)


@pytest.mark.parametrize("state", ["future", "delete", "stray"])
def test_other_folders_of_the_partition_are_told(partition: Path, state: str) -> None:
    other = partition.with_name(f"{partition.name}.{32 * 'a'}-{state}")
    other.mkdir()
    partition.with_name("other-0").mkdir()
    result = ks.scrub_log(partition, keep=ks.without_offsets([1]), in_place=True)
    assert [one.symbol for one in result.findings] == ["LEFTOVER"]
    assert str(other) in result.findings[0].message


@pytest.mark.parametrize("content", [b"no log", b"\0" * 4096], ids=["text", "zeros"])
def test_what_holds_no_batch_is_not_replaced(content: bytes, tmp_path: Path) -> None:
    log = tmp_path / f"{0:020}.log"
    log.write_bytes(content)
    for rewrite in (
        lambda: ks.convert_log(log, in_place=True, compression_type="zstd"),
        lambda: ks.restamp_log(log, in_place=True, partition_leader_epoch=1),
        lambda: ks.scrub_log(log, in_place=True, keep=ks.without_offsets(0, 0)),
    ):
        with pytest.raises(ks.RewriteError, match=rf"{log}: position 0: .*\[NO_BATCHES\]"):
            rewrite()
        assert files(tmp_path) == {log.name: content}
    ks.convert_log(log, tmp_path / "out.log", compression_type="zstd")
    log.write_bytes(b"")
    ks.convert_log(log, in_place=True, compression_type="zstd")
    assert log.read_bytes() == b""


def test_one_file_without_a_batch_keeps_the_folder_as_it_is(partition: Path) -> None:
    max(partition.glob("*.log")).write_bytes(b"no log")
    before = files(partition)
    with pytest.raises(ks.RewriteError, match="NO_BATCHES"):
        ks.convert_log(partition, in_place=True, compression_type="zstd")
    assert files(partition) == before


def test_a_target_inside_of_the_source_is_refused(partition: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(partition)
    before = files(partition)
    for target in (partition / "new", link / "new", partition, partition / ".." / partition.name):
        with pytest.raises(ValueError, match="inside"):
            ks.convert_log(partition, target, compression_type="zstd")
    assert files(partition) == before
    ks.convert_log(partition, partition.with_name("transactions-00"), compression_type="zstd")


def test_offsets_that_no_index_holds_are_told_with_their_place(tmp_path: Path) -> None:
    log = tmp_path / f"{0:020}.log"
    near = ks.build_batches(timestamp=[T0], value=[b"v"])
    far = ks.build_batches(offset=2**31, timestamp=[T0], value=[b"v"])
    log.write_bytes(near + far)
    with pytest.raises(ks.IndexOverflowError) as overflow:
        ks.restamp_log(log, in_place=True, partition_leader_epoch=1)
    assert (overflow.value.path, overflow.value.position) == (str(log), len(near))
    assert str(overflow.value).startswith(f"{log}: position {len(near)}: batches[1]: ")
    late = ks.build_batches(offset=5, timestamp=[T0], value=[b"v"])
    log.write_bytes(unordered := late * 2 + near)
    with pytest.raises(ks.BatchTableError) as order:
        ks.restamp_log(log, in_place=True, partition_leader_epoch=1, interval_bytes=0)
    assert str(order.value).startswith(f"{log}: position {2 * len(late)}: batches[2]: ")
    for error in (overflow.value, order.value):
        assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert log.read_bytes() == unordered


@pytest.mark.parametrize("interval_bytes", [-1, 2**63, 2**100])
def test_intervals_that_cannot_be(interval_bytes: int, partition: Path, tmp_path: Path) -> None:
    before = files(partition)
    batches = ks.scan_batches(min(partition.glob("*.log"))).batches
    for take in (
        lambda: ks.build_offset_index(batches, base_offset=0, interval_bytes=interval_bytes),
        lambda: ks.build_time_index(batches, base_offset=0, interval_bytes=interval_bytes),
        lambda: ks.recover(partition, write=True, interval_bytes=interval_bytes),
        lambda: ks.salvage(partition, tmp_path / "new", interval_bytes=interval_bytes),
        lambda: ks.SegmentWriter(tmp_path / "new", interval_bytes=interval_bytes),
        lambda: ks.convert_log(partition, in_place=True, to_magic=2, interval_bytes=interval_bytes),
    ):
        with pytest.raises(ValueError, match="interval_bytes"):
            take()
    assert files(partition) == before
    assert not (tmp_path / "new").exists()
