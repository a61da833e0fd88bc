"""scan_log_dir of data directories and tars: order, damage, bounded memory."""

from __future__ import annotations

import os
import subprocess
import tarfile
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import kafkascan as ks
from kafkascan.io.archives import is_archive
from kafkascan.logs.log_chunks import threads_for
from tests.support.partitions import HealthyPartition
from tests.support.paths import GOLDEN, ROOT
from tests.support.records import RecordV2, batch_of
from tests.support.segments import Rig
from tests.support.warm_process import run_warm

DATA = GOLDEN / "kafka-4.4.0" / "data"


@pytest.fixture
def partition(tmp_path: Path) -> HealthyPartition:
    return HealthyPartition(tmp_path / "data" / "orders-0").write()


def many_segments(folder: Path, count: int, batches: int = 3) -> Path:
    folder.mkdir(parents=True)
    rig = Rig()
    for number in range(count):
        rig.parts = []
        for batch in range(batches):
            rig.batch(base_offset=number * batches + batch)
        (folder / f"{number * batches:020}.log").write_bytes(rig.log)
    return folder


# ---- one table -------------------------------------------------------------------------------


def expected_rows() -> list[tuple[object, ...]]:
    """The table equals scans of the segments one by one."""
    rows: list[tuple[object, ...]] = []
    for partition, segment in ks.open_log_dir(DATA).log_segments():
        place = partition.topic, partition.partition, segment.path.name
        batches = ks.scan_batches(segment.path).batches
        rows += [(*place, int(one["position"]), int(one["base_offset"])) for one in batches]
    return rows


@pytest.mark.parametrize("threads", [1, 2, 7])
@pytest.mark.parametrize("rows", [1, 5, 65_536])
def test_all_batches_of_a_data_dir(threads: int, rows: int) -> None:
    columns = ["topic", "partition", "segment", "position", "base_offset"]
    table = ks.scan_log_dir(DATA, columns=columns, threads=threads, rows=rows)
    found = table.to_arrow()
    assert [tuple(row.values()) for row in found.to_pylist()] == expected_rows()
    assert found.num_rows > 300
    chunks = list(table)
    assert all(len(chunk) <= rows for chunk in chunks)
    assert sum(map(len, chunks)) == found.num_rows
    assert [end.segment for end in table.ends] == list(range(len(table.segments)))
    assert sum(end.batches for end in table.ends) == found.num_rows
    assert all(end.end is ks.ScanEnd.CLEAN for end in table.ends)


def test_arrow_reads_the_table() -> None:
    import duckdb
    import polars
    import pyarrow as pa

    table = ks.scan_log_dir(DATA, rows=7)
    whole = pa.table(table)
    assert whole.schema.field("topic").type == pa.dictionary(pa.int32(), pa.string())
    assert whole["max_timestamp"].type == pa.timestamp("ms", tz="UTC")
    counted = duckdb.sql("select topic, count(*) from whole group by topic").fetchall()
    assert dict(counted)["small-segments"] == 120
    assert polars.DataFrame(table).height == whole.num_rows
    codecs = set(whole["compression_type"].to_pylist())
    assert codecs == {"none", "gzip", "snappy", "lz4", "zstd"}


def test_columns_and_options_are_checked() -> None:
    with pytest.raises(ValueError, match="did you mean 'base_offset'"):
        ks.scan_log_dir(DATA, columns=["base_ofset"])
    with pytest.raises(ValueError, match="include"):
        ks.scan_log_dir(DATA, include="some")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="rows"):
        ks.scan_log_dir(DATA, rows=0)
    with pytest.raises(ValueError, match="threads"):
        list(ks.scan_log_dir(DATA, threads=0))


def test_files_that_are_not_logs_are_ignored(partition: HealthyPartition) -> None:
    uuid = "0123456789abcdef" * 2
    root = partition.folder.parent
    for folder in (f"gone-0.{uuid}-delete", f"left-0.{uuid}-stray", f"new-0.{uuid}-future"):
        (root / folder).mkdir()
        (root / folder / f"{0:020}.log").write_bytes(Rig().batch().log)
    for suffix in (".log.deleted", ".log.swap", ".log.cleaned"):
        (partition.folder / f"{0:020}{suffix}").write_bytes(Rig().batch().log)
    log_dir = ks.open_log_dir(root)
    live = ks.scan_log_dir(log_dir)
    assert [segment.path.parent.name.partition(".")[0] for _, segment in live.segments] == [
        "orders-0", "orders-0", "orders-0",
    ]  # fmt: skip
    assert len(ks.scan_log_dir(log_dir, include="all").segments) == 9
    assert [one.is_log for one in log_dir.partitions] == [False, False, True, True]


def test_negative_offsets_are_on_disk_and_served_by_no_broker(tmp_path: Path) -> None:
    segment = tmp_path / "orders-0" / f"{7:020}.log"
    segment.parent.mkdir()
    segment.write_bytes(Rig().batch(base_offset=-1).log)
    for include, rows in (("log", 0), ("all", 1)):
        assert sum(map(len, ks.scan_log_dir(tmp_path, include=include))) == rows
    symbols = {one.symbol for one in ks.audit(tmp_path).findings if one.file == segment.name}
    assert "OFFSET_OUT_OF_SEGMENT" in symbols


def test_damage_ends_a_segment_and_not_the_table(partition: HealthyPartition) -> None:
    log = partition.log(1)
    log.write_bytes(log.read_bytes()[:-3])
    data = bytearray(partition.log(0).read_bytes())
    data[16] = 9
    partition.log(0).write_bytes(data)
    partition.log(2).unlink()
    partition.log(2).symlink_to("nowhere")
    table = ks.scan_log_dir(partition.folder)
    assert sum(map(len, table)) == 8
    assert [end.end for end in table.ends] == ["CORRUPT", "TORN_TAIL", None]
    assert isinstance(table.ends[0].error, ks.UnsupportedMagicError)
    assert isinstance(table.ends[2].error, FileNotFoundError)


def test_memory_does_not_grow_with_segments(tmp_path: Path) -> None:
    """Memory of the iteration; the listing takes about 1 KB per segment before it."""
    peaks = []
    for count in (100, 1000):
        folder = many_segments(tmp_path / f"t{count}-0", count, batches=20)
        table = ks.scan_log_dir(folder, threads=1, rows=512)
        tracemalloc.start()
        for _ in table:
            pass
        peaks.append(tracemalloc.get_traced_memory()[1] - 300 * count)
        tracemalloc.stop()
    assert peaks[1] < peaks[0] + 100_000


# ---- partitions and side files ---------------------------------------------------------------


def test_metadata_of_a_partition(partition: HealthyPartition) -> None:
    (found,) = ks.open_log_dir(partition.folder.parent).partitions
    assert found.topic_id == "Zn3Jq2xNTNuzVmYs3YqX3w"
    assert found.leader_epochs == [(1, 0), (2, 23), (3, 46)]
    assert found.find_end_offset() == partition.offset == 69
    assert found.log_start_offset == 0
    checkpoint = partition.folder.parent / "log-start-offset-checkpoint"
    ks.broker_state.write_offset_checkpoint(checkpoint, {("orders", 0): 12, ("other", 0): 5})
    assert found.log_start_offset == 12
    partition.log(0).unlink()
    assert found.log_start_offset == 23
    for path in partition.folder.glob("*.log"):
        path.write_bytes(b"")
    assert found.find_end_offset() == 46
    for path in partition.folder.iterdir():
        path.unlink()
    assert (found.topic_id, found.leader_epochs) == (None, None)
    assert (found.log_start_offset, found.find_end_offset()) == (None, None)


# ---- tars ------------------------------------------------------------------------------------


def tar_of(folder: Path, path: Path, *options: str) -> Path:
    subprocess.run(
        ["tar", *options, "-cf", path, "-C", folder.parent, folder.name], check=True
    )  # GNU tar supports holes, Python's tarfile does not
    return path


@pytest.mark.parametrize("options", [(), ("--format=posix",), ("--format=v7",), ("-S",)])
def test_a_tar_is_read_without_unpacking(tmp_path: Path, options: tuple[str, ...]) -> None:
    path = tar_of(DATA, tmp_path / "backup.tar", *options)
    columns = [*("topic", "partition", "segment"), *ks.batches.COLUMN_NAMES]
    ours = ks.scan_log_dir(path, columns=columns).to_arrow()
    assert ours.equals(ks.scan_log_dir(DATA, columns=columns).to_arrow())
    for read in (ks.read_transactions, ks.read_producers, ks.count_records):
        of_tar, of_disk = (
            [row | {"age_ms": None} for row in read(where).rows()] for where in (path, DATA)
        )
        assert of_tar == of_disk
    said = [
        [(one.symbol, one.file, one.position, one.count) for one in ks.audit(where).findings]
        for where in (path, DATA)
    ]
    assert said[0] == said[1] != []


def test_a_partition_in_a_tar(tmp_path: Path, partition: HealthyPartition) -> None:
    path = tar_of(partition.folder, tmp_path / "one.tar")
    (found,) = ks.open_log_dir(path).partitions
    assert (found.topic, found.partition) == ("orders", 0)
    assert found.topic_id == "Zn3Jq2xNTNuzVmYs3YqX3w"
    assert found.find_end_offset() == partition.offset
    segment = found.log_segments[1]
    assert segment.size == partition.log(1).stat().st_size
    with segment.open() as source, segment.open(memory_map=False) as other:
        assert not source.is_file
        assert bytes(source.window(0, 1 << 20)) == partition.log(1).read_bytes()
        assert bytes(other.window(10, 50)) == partition.log(1).read_bytes()[10:60]
        assert len(ks.scan_batches(source)) == len(ks.scan_batches(other)) == 9
        assert source.path == str(path / "orders-0" / partition.log(1).name)
        assert len(ks.read_records(source)) == 21


SPARSE_FORMATS = [
    ("--format=gnu",),
    ("--format=posix", "--sparse-version=0.0"),
    ("--format=posix", "--sparse-version=0.1"),
    ("--format=posix", "--sparse-version=1.0"),
]


@pytest.mark.parametrize("options", SPARSE_FORMATS)
def test_holes_in_a_tar(tmp_path: Path, options: tuple[str, ...]) -> None:
    folder = tmp_path / "topic-0"
    folder.mkdir()
    log, other = folder / f"{0:020}.log", folder / f"{3:020}.log"
    batches = Rig().batches(3).log
    with log.open("wb") as file:
        file.write(batches)
        file.truncate(1 << 20)
    with other.open("wb") as file:
        for row in range(30):  # more ranges than the first header has room for
            file.seek(row << 16)
            file.write(batches)
    path = tar_of(folder, tmp_path / "sparse.tar", "-S", *options)
    assert path.stat().st_size < 300_000
    (found,) = ks.open_log_dir(path).partitions
    for segment, written in zip(found.log_segments, (log, other), strict=True):
        with segment.open() as source:
            assert bytes(source.window(0, 1 << 22)) == written.read_bytes()
    with found.log_segments[0].open() as source:
        scan = ks.scan_batches(source)
    assert (len(scan), scan.end, scan.source_size) == (3, "ZERO_TAIL", 1 << 20)


def test_partitions_without_files_in_a_tar_are_partitions_as_on_disk(
    tmp_path: Path, partition: HealthyPartition
) -> None:
    path, folder = tmp_path / "dirs.tar", tarfile.TarInfo("./data/empty-3")
    folder.type = tarfile.DIRTYPE
    other = tarfile.TarInfo("./data/lost+found")
    other.type = tarfile.DIRTYPE
    with tarfile.open(path, "w") as tar:
        tar.addfile(folder)
        tar.addfile(other)
        tar.add(partition.log(0), arcname=f"data/orders-0/{0:020}.log")
        # tar --append adds the folder once more.
        folder.name = "data/orders-0"
        tar.addfile(folder)
    found = ks.open_log_dir(path).partitions
    assert [(one.topic, one.partition, len(one.segments)) for one in found] == [
        ("empty", 3, 0),
        ("orders", 0, 1),
    ]


def test_the_top_folder_of_a_tar_is_a_partition_without_a_topic(
    tmp_path: Path, partition: HealthyPartition
) -> None:
    path = tmp_path / "orders-0.tar"
    subprocess.run(["tar", "-cf", path, "-C", partition.folder, "."], check=True)
    (found,) = ks.open_log_dir(path).partitions
    assert (found.topic, found.path, len(found.segments)) == (None, path, 3)


def test_links_to_files_that_are_not_in_the_tar_are_left_out(
    tmp_path: Path, partition: HealthyPartition
) -> None:
    path = tmp_path / "linked.tar"
    with tarfile.open(path, "w") as tar:
        tar.add(partition.log(0), arcname=f"orders-0/{0:020}.log")
        for number, target in ((1, f"gone/{0:020}.log"), (2, f"orders-0/{9:020}.log")):
            info = tarfile.TarInfo(f"orders-0/{number:020}.log")
            info.type, info.linkname = tarfile.LNKTYPE, target
            tar.addfile(info)
    (found,) = ks.open_log_dir(path).partitions
    assert [one.path.name for one in found.segments] == [f"{0:020}.log"]


def test_hard_links_and_odd_names_in_a_tar(tmp_path: Path, partition: HealthyPartition) -> None:
    path = tmp_path / "linked.tar"
    with tarfile.open(path, "w") as tar:
        tar.add(partition.log(0), arcname=f"./a/{'x' * 120}/orders-0/{0:020}.log")
        info = tarfile.TarInfo(f"b/orders-1/{0:020}.log")
        info.type, info.linkname = tarfile.LNKTYPE, f"a/{'x' * 120}/orders-0/{0:020}.log"
        tar.addfile(info)
    found = ks.open_log_dir(path).partitions
    assert [(one.partition, len(one.log_segments)) for one in found] == [(0, 1), (1, 1)]
    assert found[0].find_end_offset() == found[1].find_end_offset() == 23


@pytest.mark.parametrize(
    ("option", "suffix", "tool"),
    [("-z", ".tar.gz", "gunzip"), ("-j", ".tar.bz2", "bunzip2"), ("-J", ".tar.xz", "unxz")],
)
def test_a_compressed_tar_is_refused(tmp_path: Path, option: str, suffix: str, tool: str) -> None:
    path = tmp_path / f"backup{suffix}"
    mode = {"-z": "w:gz", "-j": "w:bz2", "-J": "w:xz"}[option]
    with tarfile.open(path, mode) as tar:  # type: ignore[call-overload]
        tar.add(DATA / "consumed-0", arcname="consumed-0")
    with pytest.raises(ks.format.ArchiveError, match=f"{tool}.*BAD_ARCHIVE"):
        ks.open_log_dir(path)


def test_a_truncated_tar(tmp_path: Path) -> None:
    path = tar_of(DATA, tmp_path / "cut.tar")
    os.truncate(path, path.stat().st_size // 2 + 100)
    with pytest.raises(ks.format.ArchiveError):
        ks.open_log_dir(path)


def test_a_tar_that_shrinks_while_it_is_read(tmp_path: Path) -> None:
    path = tar_of(DATA, tmp_path / "shrinking.tar")
    log_dir = ks.open_log_dir(path)
    os.truncate(path, 20_000)
    with pytest.warns(ks.broker_state.CheckpointWarning, match="log-start-offset-checkpoint"):
        table = ks.scan_log_dir(log_dir)
    list(table)
    assert any(isinstance(end.error, ks.format.SourceReadError) for end in table.ends)


def test_a_range_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 5000 + Rig().batches(4).log + b"y" * 100)
    size = len(Rig().batches(4).log)
    for memory_map in (True, False):
        with ks.Source(
            ks.io.FileRange(str(path), 5000, size, "inside"), memory_map=memory_map
        ) as one:
            assert (one.size, one.path, one.is_file) == (size, "inside", False)
            scan = ks.scan_batches(one)
            assert (len(scan), scan.end) == (4, "CLEAN")
            assert len(ks.verify_crcs(one, scan.batches)) == 4
            one.drop_cache()
    with pytest.raises(ks.format.SourceReadError, match="inside"):
        ks.Source(ks.io.FileRange(str(path), 5000, 1 << 20, "inside"))
    with ks.Source(ks.io.FileRange(str(path), 5000, size, "inside")) as one:
        os.truncate(path, 5010)
        with pytest.raises(ks.format.SourceReadError, match=r"inside.*truncated"):
            one.require_unshrunk()


# ---- memory of chunks ------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 3])
def test_kept_chunks_do_not_change(tmp_path: Path, threads: int) -> None:
    many_segments(tmp_path / "topic-0", 4, batches=5000)
    found = ks.scan_log_dir(tmp_path, rows=700, threads=threads)
    kept = list(found)
    assert len(kept) > 20
    expected = [
        ks.scan_batches(segment.path).batches["base_offset"] for _, segment in found.segments
    ]
    joined = np.concatenate([chunk.batches["base_offset"] for chunk in kept])
    assert joined.tolist() == np.concatenate(expected).tolist()
    assert not np.shares_memory(kept[3].batches, kept[9].batches)


def peak_of(program: str, folder: Path) -> int:
    """Return the peak memory of a process that runs a program on a folder."""
    imports = "import sys, kafkascan as ks\nfrom tests.support.peak_memory import peak_memory\n"
    ended = run_warm(f"{imports}{program}\nprint(peak_memory())", folder, folder=ROOT)
    assert ended.returncode == 0, ended.stderr
    return int(ended.stdout)


def large_segments(folder: Path, count: int, batches: int = 5000) -> Path:
    """Write segments that differ in their offsets only, which no checksum covers."""
    many_segments(folder, 1, batches)
    first = folder / f"{0:020}.log"
    log = np.fromfile(first, np.uint8)
    positions = ks.scan_batches(first).batches["position"]
    for base in range(batches, count * batches, batches):
        offsets = np.arange(base, base + batches).astype(">i8").view(np.uint8).reshape(-1, 8)
        log[positions[:, None] + np.arange(8)] = offsets
        log.tofile(folder / f"{base:020}.log")
    return folder


def test_peak_memory_is_constant(tmp_path: Path) -> None:
    """Peak memory of a process that reads few segments, and of one that reads many."""
    few, many = large_segments(tmp_path / "few-0", 24), large_segments(tmp_path / "many-0", 160)
    scan = "sum(len(c) for c in ks.scan_log_dir(sys.argv[1], threads=2))"
    audit = "ks.audit(sys.argv[1], threads=2)"
    kept = "kept = list(ks.scan_log_dir(sys.argv[1], threads=2))"
    growth = {one: peak_of(one, many) - peak_of(one, few) for one in (scan, audit, kept)}
    assert max(growth[scan], growth[audit]) < 20 << 20
    # Otherwise the limit would be too high to be exceeded.
    assert growth[kept] > 30 << 20, "keeping every batch would not be noticed"


def test_a_tar_inside_a_value_does_not_make_the_log_a_tar(tmp_path: Path) -> None:
    """A tar is recognised by its header checksum, not by the magic alone."""
    log = tmp_path / f"{0:020}.log"
    value = b"\0" * 150 + b"ustar\x0000" + b"x" * 1000
    batch = batch_of([RecordV2(value=value)])
    shift = 257 - batch.index(b"ustar")
    log.write_bytes(batch_of([RecordV2(value=b"\0" * shift + value)]))
    assert log.read_bytes()[257:262] == b"ustar"
    assert not is_archive(log)
    assert len(ks.read_transactions(log)) == 0
    path = tmp_path / "a.tar"
    for tar_format in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        with tarfile.open(path, "w", format=tar_format) as tar:
            tar.add(log, log.name)
        other = path.rename(tmp_path / "any")
        assert is_archive(other)
        data = bytearray(other.read_bytes())
        data[0] ^= 1
        other.write_bytes(data)
        assert not is_archive(other)
        data[148:156] = b"99999999"  # not an octal number
        other.write_bytes(data)
        assert not is_archive(other)


def test_small_segments_are_read_by_one_thread(tmp_path: Path) -> None:
    folder = tmp_path / "topic-0"
    folder.mkdir()
    for number in range(4):
        (folder / f"{number:020d}.log").write_bytes(bytes(1 << 10))
    assert threads_for(list(ks.open_log_dir(tmp_path).log_segments()), 3) == 1
    for log in folder.iterdir():
        os.truncate(log, 1 << 20)
    assert threads_for(list(ks.open_log_dir(tmp_path).log_segments()), 3) == 3
    with pytest.raises(ValueError, match="threads"):
        threads_for([], 0)


def test_negative_times_are_refused(partition: HealthyPartition) -> None:
    for read in (ks.read_transactions, ks.audit):
        with pytest.raises(ValueError, match="timeout_ms must not be negative"):
            read(partition.folder, timeout_ms=-1)
        with pytest.raises(TypeError, match="integer"):
            read(partition.folder, timeout_ms="1")  # type: ignore[arg-type]
