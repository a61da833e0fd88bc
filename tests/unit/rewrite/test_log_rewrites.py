from __future__ import annotations

import os
import pickle
import shutil
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import kafkascan as ks
from kafkascan.io.sources import Source
from kafkascan.rewrite.filtering import FilterReport, iter_filtered
from tests.support.broker_lock import broker_in
from tests.support.files import contents
from tests.support.log_corpus import marker
from tests.support.paths import GOLDEN
from tests.support.segments import T0
from tests.support.warm_process import run_warm

DATA = GOLDEN / "kafka-4.4.0/data"


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    return Path(shutil.copytree(DATA / "transactions-0", tmp_path / "data" / "transactions-0"))


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


def test_a_folder_is_converted_to_a_target(partition: Path, tmp_path: Path) -> None:
    before = contents(partition)
    result = ks.convert_log(partition, tmp_path / "out-0", compression_type="gzip")
    assert contents(partition) == before
    assert records(tmp_path / "out-0") == records(partition)
    assert [one.target.parent for one in result.segments] == [tmp_path / "out-0"] * 2
    assert_in_order(tmp_path / "out-0")
    assert (tmp_path / "out-0" / "partition.metadata").exists()
    with pytest.raises(FileExistsError):
        ks.convert_log(partition, tmp_path / "out-0", compression_type="gzip")
    assert sorted(os.listdir(tmp_path)) == ["data", "out-0"], "nothing half-made is left"


def test_a_folder_is_converted_in_place(partition: Path) -> None:
    before = records(partition)
    secret = before[3][0]
    result = ks.scrub_log(partition, keep=ks.rewrite.without_offsets(secret, secret), in_place=True)
    assert records(partition) == [one for one in before if one[0] != secret]
    assert [one.is_changed for one in result.segments].count(True) == 1
    assert result.findings == []
    assert_in_order(partition)


def test_a_filter_may_be_used_again(partition: Path, tmp_path: Path) -> None:
    keep = ks.without_keys(["key-3", "nobody's"])
    for target in ("one-0", "two-0"):
        (finding,) = ks.scrub_log(partition, tmp_path / target, keep=keep).findings
        assert finding.symbol == "KEY_NOT_FOUND"
        assert 'b"nobody\'s"' in finding.message
    (finding,) = ks.scrub_log(tmp_path / "one-0", tmp_path / "three-0", keep=keep).findings
    assert finding.symbol == "NOTHING_REMOVED"


def test_a_finding_names_some_of_many_missing_keys(partition: Path, tmp_path: Path) -> None:
    keep = ks.without_keys([str(number) for number in range(1000)])
    (finding,) = ks.scrub_log(partition, tmp_path / "out-0", keep=keep).findings
    assert finding.message.endswith("and 990 more; none was removed")


def test_an_unchanged_log_is_not_replaced(partition: Path) -> None:
    before = {path: path.stat().st_ino for path in partition.iterdir()}
    ks.scrub_log(partition, keep=ks.without_keys([b"nobody's"]), in_place=True)
    assert {path: path.stat().st_ino for path in partition.iterdir()} == before


def test_damage_in_one_log_keeps_all_logs_unchanged(partition: Path) -> None:
    last = max(partition.glob("*.log"))
    data = bytearray(last.read_bytes())
    data[-1] ^= 1
    last.write_bytes(data)
    before = contents(partition)
    with pytest.raises(ks.ChecksumMismatchError):
        ks.convert_log(partition, in_place=True, compression_type="zstd")
    with pytest.raises(ks.ChecksumMismatchError):
        ks.convert_log(partition, partition.parent / "new-0", compression_type="zstd")
    assert contents(partition) == before
    assert os.listdir(partition.parent) == [partition.name]


def test_the_lock_of_a_broker_is_respected(partition: Path) -> None:
    (partition.parent / "meta.properties").write_text("")
    before = contents(partition)
    with broker_in(partition.parent):
        with pytest.raises(ks.format.LogDirInUseError):
            ks.convert_log(partition, in_place=True, compression_type="gzip")
        keep = ks.rewrite.without_offsets(0)
        with pytest.raises(ks.format.LogDirInUseError):
            ks.scrub_log(min(partition.glob("*.log")), keep=keep, in_place=True)
    assert contents(partition) == before


def test_a_link_does_not_bypass_the_lock(partition: Path, tmp_path: Path) -> None:
    (partition.parent / "meta.properties").write_text("")
    link = tmp_path / "link-0"
    link.symlink_to(partition)
    ks.convert_log(link, in_place=True, compression_type="gzip")
    assert (partition.parent / ".lock").exists(), "it was taken"
    assert_in_order(partition)


def test_a_single_log_gets_its_indexes(partition: Path, tmp_path: Path) -> None:
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


def test_an_offset_shift_renames_files(partition: Path, tmp_path: Path) -> None:
    before = records(partition)
    moved = tmp_path / "moved-0"
    done = ks.restamp_log(partition, moved, offset_shift=1000, partition_leader_epoch=4)
    # No checksum covers the offset and the leader epoch.
    assert {one.report.signed for one in done.segments} == {0}
    assert [offset - 1000 for offset, _, _ in records(moved)] == [one[0] for one in before]
    assert min(moved.glob("*.log")).name == f"{1000:020}.log"
    assert [
        one.epoch for one in ks.broker_state.read_leader_epochs(moved / "leader-epoch-checkpoint")
    ] == [4]
    assert_in_order(moved)
    with pytest.raises(ValueError, match="changes file names"):
        ks.restamp_log(partition, in_place=True, offset_shift=1)
    with pytest.raises(ValueError, match="base offset -1 is negative"):
        ks.restamp_log(partition, tmp_path / "x-0", offset_shift=-1)


def test_old_formats_lose_what_belongs_to_producers(partition: Path) -> None:
    result = ks.convert_log(partition, in_place=True, to_magic=1)
    assert sum(one.report.lost.get("control_batches", 0) for one in result.segments) > 0
    assert not list(partition.glob("*.txnindex"))
    assert_in_order(partition)


def test_producers_without_batches_are_kept(partition: Path, tmp_path: Path) -> None:
    known = {path.name: path.read_bytes() for path in partition.glob("*.snapshot")}
    first = min(partition.glob("*.log"))
    ks.convert_log(partition, tmp_path / "out-0", compression_type="gzip")
    ks.convert_log(partition, in_place=True, compression_type="gzip")
    assert known.keys() == {path.name for path in partition.glob("*.snapshot")}
    assert known.keys() == {path.name for path in (tmp_path / "out-0").glob("*.snapshot")}
    assert first.with_suffix(".index").exists()


def test_an_index_error_keeps_the_log_unchanged(tmp_path: Path) -> None:
    log = tmp_path / f"{100:020}.log"
    log.write_bytes(ks.build_batches(offset=5, timestamp=[T0], value=[b"v"]))
    before = contents(tmp_path)
    with pytest.raises(ks.IndexOverflowError):
        ks.convert_log(log, in_place=True, compression_type="gzip")
    assert contents(tmp_path) == before


def test_leftovers_are_reported(partition: Path) -> None:
    (partition / f"{0:020}.log.bak").write_bytes(b"")
    result = ks.scrub_log(partition, keep=ks.rewrite.without_offsets(0, 0), in_place=True)
    assert [one.symbol for one in result.findings] == ["LEFTOVER"]
    (partition / f"{0:020}.log.swap").write_bytes(b"")
    with pytest.raises(ValueError, match="recover the log first"):
        ks.scrub_log(partition, keep=ks.rewrite.without_offsets(0, 0), in_place=True)


def test_a_record_that_was_not_dropped_is_found(
    partition: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A filter that drops nothing leaves the old log unchanged."""

    def copied(
        source: Source, tables: object, options: object, report: FilterReport, *rules: object
    ) -> Iterator[bytes]:
        for _ in iter_filtered(source, tables, options, report, *rules):
            pass
        report.dropped_offsets = np.array([0])
        report.kept_records = report.records
        yield bytes(source.window(0, source.size))

    monkeypatch.setattr("kafkascan.rewrite.log_rewrites.iter_filtered", copied)
    before = contents(partition)
    with pytest.raises(RuntimeError, match=r"failed verification: .*; the original is"):
        ks.scrub_log(partition, keep=ks.rewrite.without_offsets(0, 0), in_place=True)
    assert contents(partition) == before


def test_the_repr_of_a_result_is_short(partition: Path, tmp_path: Path) -> None:
    result = ks.convert_log(partition, tmp_path / "new", compression_type="lz4")
    count, changed = len(result.segments), sum(one.is_changed for one in result.segments)
    expected = (
        f"<LogRewrite of {tmp_path / 'new'}: {count} segments, {changed} changed, 0 findings>"
    )
    assert repr(result) == expected
    assert all(len(repr(segment)) < 1000 for segment in result.segments)


def test_torn_tails_are_left_out_and_reported(tmp_path: Path) -> None:
    log = tmp_path / f"{0:020}.log"
    whole = ks.build_batches(timestamp=[T0], value=[b"v"])
    log.write_bytes(whole + whole[:30])
    result = ks.convert_log(log, in_place=True, compression_type="none")
    assert [one.symbol for one in result.findings] == ["TORN_TAIL", "STALE_SIBLINGS"]
    assert log.read_bytes() == whole


@pytest.mark.parametrize("in_place", [False, True])
def test_a_missing_segment_is_reported(in_place: bool, tmp_path: Path) -> None:
    folder = tmp_path / "small-segments-0"
    shutil.copytree(GOLDEN / "kafka-4.4.0" / "data" / folder.name, folder)
    gone = sorted(folder.glob("*.log"))[2]
    gone.unlink()
    target = None if in_place else tmp_path / "new"
    found = ks.convert_log(folder, target, in_place=in_place, compression_type="gzip")
    (gap,) = (one for one in found.problems if one.symbol == "OFFSET_GAP")
    assert f"offsets from {int(gone.stem)} " in gap.message
    assert gap.path == str(sorted(folder.glob("*.log"))[2])


def test_a_file_with_any_name_is_rewritten_in_place(tmp_path: Path) -> None:
    """No log is beside it, and it is no segment of one."""
    path = tmp_path / "copied.bin"
    shutil.copy(GOLDEN / "kafka-4.4.0" / "data" / "codecs-java-0" / f"{0:020}.log", path)
    found = ks.convert_log(path, in_place=True, compression_type="lz4")
    assert [one.symbol for one in found.problems] == ["STALE_SIBLINGS"]
    assert [one.is_changed for one in found.segments] == [True]


def test_a_lower_log_end_is_reported(tmp_path: Path) -> None:
    log = tmp_path / f"{0:020}.log"
    log.write_bytes(ks.build_batches(timestamp=[T0], value=[b"v"]) + marker(1, "COMMIT", 5))
    result = ks.convert_log(log, in_place=True, to_magic=1)
    assert [one.symbol for one in result.findings] == ["LOG_END_MOVED", "STALE_SIBLINGS"]
    assert "the log end offset was 2, and is 1 now" in result.findings[0].message


def test_one_of_target_and_in_place(partition: Path, tmp_path: Path) -> None:
    for target, in_place in ((None, False), (tmp_path / "x", True)):
        with pytest.raises(ValueError, match="target"):
            ks.convert_log(partition, target, in_place=in_place, to_magic=2)
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError):
        ks.convert_log(tmp_path / "empty", in_place=True, to_magic=2)
    for target in ("out.log", "out"):
        with pytest.raises(FileNotFoundError, match=r"none\.log"):
            ks.convert_log(tmp_path / "none.log", tmp_path / target, to_magic=2)


def test_a_damaged_length_is_not_the_end_of_the_log(tmp_path: Path) -> None:
    log = tmp_path / f"{0:020}.log"
    data = bytearray(ks.build_batches(value=[bytes(50)] * 20, max_records=1))
    data[8] |= 0x40
    log.write_bytes(data)
    for target in (None, tmp_path / "out.log"):
        with pytest.raises(ks.CorruptBatchError):
            ks.scrub_log(
                log, target, in_place=target is None, keep=ks.rewrite.without_offsets(3, 3)
            )
    assert contents(tmp_path) == {log.name: bytes(data)}


def test_records_in_a_swap_file_prevent_a_rewrite(partition: Path, tmp_path: Path) -> None:
    last = sorted(partition.glob("*.log"))[-1]
    last.rename(f"{last}.swap")
    with pytest.raises(ValueError, match="recover the log first"):
        ks.convert_log(partition, tmp_path / "out-0", compression_type="gzip")
    assert sorted(os.listdir(tmp_path)) == ["data"]


@pytest.mark.parametrize("name", ["log.deleted", "log.bak2", "log.tail-7.bak", "log.tail-7.bak3"])
def test_leftovers_are_reported_if_nothing_changes(partition: Path, name: str) -> None:
    (partition / f"{0:020}.{name}").write_bytes(b"once")
    result = ks.scrub_log(partition, in_place=True, keep=ks.without_keys([b"nobody"]))
    assert not any(one.is_changed for one in result.segments)
    assert [one.symbol for one in result.findings] == ["LEFTOVER", "NOTHING_REMOVED"]


def test_hard_links_are_reported(partition: Path, tmp_path: Path) -> None:
    log = sorted(partition.glob("*.log"))[0]
    os.link(log, tmp_path / "copy.log")
    before = log.read_bytes()
    result = ks.scrub_log(partition, in_place=True, keep=ks.rewrite.without_offsets(0, 3))
    assert (tmp_path / "copy.log").read_bytes() == before != log.read_bytes()
    (finding,) = result.findings
    assert finding.symbol == "LEFTOVER"
    assert finding.message.startswith(f"{log}: 1 other hard link")


def test_more_segments_than_open_files(tmp_path: Path) -> None:
    folder = tmp_path / "orders-0"
    with ks.SegmentWriter(folder, segment_bytes=200) as writer:
        writer.append(ks.build_batches(value=[bytes(100)] * 100, max_records=1))
    code = (
        "import resource, sys, kafkascan as ks;"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (80, 80));"
        "ks.convert_log(sys.argv[1], in_place=True, compression_type='gzip');"
        "ks.convert_log(sys.argv[1], sys.argv[2], compression_type='none')"
    )
    done = run_warm(code, folder, tmp_path / "out-0")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(list((tmp_path / "out-0").glob("*.log"))) == 100
    assert [offset for offset, _, _ in records(tmp_path / "out-0")] == list(range(100))


def test_offset_shifts_beyond_64_bits(partition: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="64 bits"):
        ks.restamp_log(partition, tmp_path / "out-0", offset_shift=2**70)


@pytest.mark.parametrize("state", ["future", "delete", "stray"])
def test_other_folders_of_the_partition_are_reported(partition: Path, state: str) -> None:
    other = partition.with_name(f"{partition.name}.{32 * 'a'}-{state}")
    other.mkdir()
    partition.with_name("other-0").mkdir()
    result = ks.scrub_log(partition, keep=ks.rewrite.without_offsets(1, 1), in_place=True)
    assert [one.symbol for one in result.findings] == ["LEFTOVER"]
    assert str(other) in result.findings[0].message


@pytest.mark.parametrize("content", [b"no log", b"\0" * 4096], ids=["text", "zeros"])
def test_a_file_without_batches_is_not_replaced(content: bytes, tmp_path: Path) -> None:
    log = tmp_path / f"{0:020}.log"
    log.write_bytes(content)
    for rewrite in (
        lambda: ks.convert_log(log, in_place=True, compression_type="zstd"),
        lambda: ks.restamp_log(log, in_place=True, partition_leader_epoch=1),
        lambda: ks.scrub_log(log, in_place=True, keep=ks.rewrite.without_offsets(0, 0)),
    ):
        with pytest.raises(ks.format.RewriteError, match=rf"{log}: position 0: .*\[NO_BATCHES\]"):
            rewrite()
        assert contents(tmp_path) == {log.name: content}
    ks.convert_log(log, tmp_path / "out.log", compression_type="zstd")
    log.write_bytes(b"")
    ks.convert_log(log, in_place=True, compression_type="zstd")
    assert log.read_bytes() == b""


def test_one_file_without_batches_keeps_the_folder_unchanged(partition: Path) -> None:
    max(partition.glob("*.log")).write_bytes(b"no log")
    before = contents(partition)
    with pytest.raises(ks.format.RewriteError, match="NO_BATCHES"):
        ks.convert_log(partition, in_place=True, compression_type="zstd")
    assert contents(partition) == before


def test_a_target_inside_the_source_is_refused(partition: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(partition)
    before = contents(partition)
    for target in (partition / "new", link / "new", partition, partition / ".." / partition.name):
        with pytest.raises(ValueError, match="inside"):
            ks.convert_log(partition, target, compression_type="zstd")
    assert contents(partition) == before
    ks.convert_log(partition, partition.with_name("transactions-00"), compression_type="zstd")


def test_offsets_beyond_the_index_are_reported_with_their_position(tmp_path: Path) -> None:
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
    with pytest.raises(ks.format.BatchTableError) as order:
        ks.restamp_log(log, in_place=True, partition_leader_epoch=1, interval_bytes=0)
    assert str(order.value).startswith(f"{log}: position {2 * len(late)}: batches[2]: ")
    for error in (overflow.value, order.value):
        assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert log.read_bytes() == unordered


@pytest.mark.parametrize("interval_bytes", [-1, 2**63, 2**100])
def test_index_intervals_out_of_range(interval_bytes: int, partition: Path, tmp_path: Path) -> None:
    before = contents(partition)
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
    assert contents(partition) == before
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_a_scrub_reports_that_it_converts(magic: int, tmp_path: Path) -> None:
    log = tmp_path / f"{0:020}.log"
    log.write_bytes(ks.build_batches(key=[b"a", b"b"], magic=magic, max_records=1))
    result = ks.scrub_log(log, in_place=True, keep=ks.without_keys([b"a"]))
    assert set(ks.scan_batches(log).batches["magic"].tolist()) == {2}
    converted = [one for one in result.findings if one.symbol == "CONVERTED"]
    assert len(converted) == (magic < 2)
    assert magic == 2 or "2 messages of magic 0 or 1 are converted" in converted[0].message


@pytest.mark.parametrize("verb", ["restamp", "convert", "scrub"])
@pytest.mark.parametrize(("milliseconds", "count"), [(None, 1), (7_200_000, 1), (60_000, 0)])
def test_producers_expire_after_the_given_time(
    verb: str, milliseconds: int | None, count: int, tmp_path: Path
) -> None:
    """A loaded snapshot drops producers that have been idle for longer, as a broker does."""
    folder, now = tmp_path / "orders-0", time.time_ns() // 1_000_000
    idle = ks.build_batches(
        value=[b"a"], timestamp=[now - 3_600_000], producer_id=7, producer_epoch=0, base_sequence=0
    )
    with ks.SegmentWriter(folder, segment_bytes=len(idle)) as writer:
        writer.append(idle)
        writer.append(ks.build_batches(value=[b"b"], timestamp=[now], offset=1))
    for path in folder.glob(f"{0:020}.*"):  # the producer is known from the snapshot only
        path.unlink()
    options = {"in_place": True, "producer_expiration_ms": milliseconds}
    if verb == "restamp":
        ks.restamp_log(folder, partition_leader_epoch=3, **options)
    elif verb == "convert":
        ks.convert_log(folder, compression_type="gzip", **options)
    else:
        ks.scrub_log(folder, keep=ks.rewrite.without_offsets(1, 1), **options)
    snapshot = ks.broker_state.read_producer_snapshot(folder / f"{2:020}.snapshot")
    assert len(snapshot) == count


def test_offsets_that_no_log_can_contain(tmp_path: Path) -> None:
    log = tmp_path / f"{0:020}.log"
    log.write_bytes(ks.build_batches(value=[b"a", b"b"]))
    for shift in ((1 << 63) - 2, (1 << 63) - 1):
        with pytest.raises(ValueError, match=f"the last offset would be {shift + 1}; it must be"):
            ks.restamp_log(log, tmp_path / "moved.log", offset_shift=shift)
        assert not (tmp_path / "moved.log").exists()


_OTHER_BYTES: dict[str, Callable[[Path, Path], object]] = {
    "restamp": lambda log, target: ks.restamp_log(log, target, partition_leader_epoch=3),
    "convert": lambda log, target: ks.convert_log(log, target, compression_type="none"),
    "scrub": lambda log, target: ks.scrub_log(
        log, target, keep=ks.rewrite.without_offsets(5, 50), threads=1
    ),
}


@pytest.mark.parametrize("verb", _OTHER_BYTES)
def test_memory_does_not_grow_with_the_number_of_batches(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafkascan.rewrite.batch_stream._GROUP_SIZE", 1 << 20)
    peaks = []
    for count in (140_000, 420_000):
        folder = tmp_path / str(count)
        folder.mkdir()
        log = folder / f"{0:020}.log"
        with log.open("wb") as file:
            for first in range(0, count, 20_000):
                offsets = np.arange(first, first + 20_000)
                values = [b"v"] * len(offsets)
                file.write(ks.build_batches(offset=offsets, value=values, batch_size=1))
        tracemalloc.start()
        try:
            _OTHER_BYTES[verb](log, tmp_path / f"{verb}-{count}.log")
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    assert peaks[1] < 1.3 * peaks[0]
