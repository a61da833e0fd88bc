"""Segments, their names, siblings and folders."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

import kafkascan as ks
from kafkascan.format.file_names import live_base_offset
from kafkascan.io import result_memory
from kafkascan.io.sources import READ_AT_ONCE
from kafkascan.logs import SegmentKinds, select_segments
from kafkascan.logs.log_finding import partition_dir
from kafkascan.logs.segment import segment_at
from tests.support.segments import Rig

BASE = "00000000000000000170"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (f"{BASE}.log", (170, None, "log", None)),
        (f"{BASE}.log.deleted", (170, None, "log", "deleted")),
        (f"{BASE}.log.cleaned", (170, None, "log", "cleaned")),
        (f"{BASE}.log.swap", (170, None, "log", "swap")),
        (f"{BASE}-0000000003.checkpoint", (170, 3, "checkpoint", None)),
        (f"{BASE}-0000000003.checkpoint.deleted", (170, 3, "checkpoint", "deleted")),
        ("bootstrap.checkpoint", (None, None, "checkpoint", None)),
        ("7.log", (7, None, "log", None)),
        ("\u0667.log", (7, None, "log", None)),
    ],
)
def test_names(name: str, expected: tuple[object, ...]) -> None:
    parsed = ks.format.parse_segment_name(name)
    assert parsed is not None
    assert (parsed.base_offset, parsed.epoch, parsed.kind, parsed.state) == expected
    assert parsed.is_live == name.endswith(".log")
    assert live_base_offset(name) == (parsed.base_offset if parsed.is_live else None)


@pytest.mark.parametrize(
    "name",
    [
        f"{BASE}.index", f"{BASE}.log.bak", "x.log", "bootstrap.log", f"{BASE}-0000000003.log",
        f"{BASE}.checkpoint", "leader-epoch-checkpoint", "-1.log", ".log", "",
    ],
)  # fmt: skip
def test_names_of_other_files(name: str) -> None:
    assert ks.format.parse_segment_name(name) is None
    assert live_base_offset(name) is None


@pytest.mark.parametrize("suffix", ["", ".deleted", ".cleaned", ".swap"])
def test_siblings_change_their_names_together(tmp_path: Path, suffix: str) -> None:
    log = tmp_path / f"{BASE}.log{suffix}"
    log.write_bytes(Rig().batches(2).log)
    for kind in ("index", "txnindex"):
        (tmp_path / f"{BASE}.{kind}{suffix}").touch()
    (tmp_path / f"{BASE}.timeindex.other").touch()
    with ks.open_segment(log) as segment:
        assert segment.base_offset == 170
        assert {kind: path.name for kind, path in segment.siblings.items()} == {
            "index": f"{BASE}.index{suffix}",
            "txnindex": f"{BASE}.txnindex{suffix}",
        }
        assert segment.sibling("timeindex") is None
        assert len(ks.scan_batches(segment)) == 2
        assert ks.verify_crcs(segment, ks.scan_batches(segment).batches).all()
        with pytest.raises(ValueError, match="kind must be one of"):
            segment.sibling("log")
    assert segment.source.closed


def test_a_file_of_any_name_is_a_segment(tmp_path: Path) -> None:
    path = tmp_path / "copy-of-something"
    path.write_bytes(Rig().batch().log)
    with ks.open_segment(path, memory_map=False) as segment:
        assert (segment.name.kind, segment.base_offset, segment.siblings) == ("log", None, {})
        assert len(ks.scan_batches(segment)) == 1
        assert str(path) in repr(segment)


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    uuid = "0123456789abcdef" * 2
    files = [
        f"my-topic-10/{BASE}.log", "my-topic-10/00000000000000000000.log",
        f"my-topic-10/{BASE}.log.deleted", "my-topic-2/00000000000000000000.log",
        f"gone-0.{uuid}-delete/00000000000000000000.log",
        f"moved-1.{uuid}-future/00000000000000000000.log",
        "__cluster_metadata-0/00000000000000000000.log",
        "__cluster_metadata-0/00000000000000000042-0000000001.checkpoint",
        "meta.properties", "empty-0/leader-epoch-checkpoint", "lost+found/x",
    ]  # fmt: skip
    for file in files:
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_bytes(b"")
    return tmp_path


def test_a_broker_data_dir(data_dir: Path) -> None:
    log_dir = ks.open_log_dir(data_dir)
    assert [(p.topic, p.partition, p.state) for p in log_dir.partitions] == [
        ("__cluster_metadata", 0, None), ("empty", 0, None), ("gone", 0, "delete"),
        ("moved", 1, "future"), ("my-topic", 2, None), ("my-topic", 10, None),
    ]  # fmt: skip
    names = [segment.path.name for _, segment in log_dir.segments()]
    assert names == [
        "00000000000000000000.log", "00000000000000000042-0000000001.checkpoint",
        "00000000000000000000.log", "00000000000000000000.log", "00000000000000000000.log",
        "00000000000000000000.log", f"{BASE}.log", f"{BASE}.log.deleted",
    ]  # fmt: skip


def test_listed_segments_are_sources(tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / f"{BASE}.log").write_bytes(Rig().batches(2).log)
    (tmp_path / "t-0" / f"{BASE}.index").touch()
    (segment,) = ks.open_log_dir(tmp_path / "t-0").partitions[0].segments
    assert ks.verify_crcs(segment, ks.scan_batches(segment).batches).tolist() == [True, True]
    assert segment.opened is None
    with pytest.raises(ValueError, match="the segment is not open"):
        segment.source.closed  # noqa: B018 - the access raises
    for _ in range(2):
        with segment as opened:
            assert opened is segment
            assert len(ks.scan_batches(segment)) == 2
            assert not segment.source.closed
        assert segment.source.closed
    assert segment.sibling("index") == tmp_path / "t-0" / f"{BASE}.index"
    again = ks.open_segment(tmp_path / "t-0" / f"{BASE}.log")
    assert again == segment
    assert hash(again) == hash(segment)
    again.close()


def selected(data_dir: Path, include: SegmentKinds) -> list[str]:
    return [
        f"{partition.path.name[:8]}/{segment.path.name.removeprefix('0' * 17)}"
        for partition in ks.open_log_dir(data_dir).partitions
        for segment in select_segments(partition, include)
    ]


def test_kinds_of_segments_are_selected(data_dir: Path) -> None:
    (data_dir / "my-topic-2" / f"{1 << 63}.log").touch()
    (data_dir / "__cluster_metadata-0" / f"0{1 << 63}-0000000001.checkpoint").touch()
    logs = ["__cluste/000.log", "moved-1./000.log", "my-topic/000.log", "my-topic/000.log",
            "my-topic/170.log"]  # fmt: skip
    assert selected(data_dir, SegmentKinds.LOG) == logs
    assert selected(data_dir, SegmentKinds.LOG | SegmentKinds.DROPPED_LOGS) == [
        "__cluste/000.log", "gone-0.0/000.log", *logs[1:],
    ]  # fmt: skip
    assert selected(data_dir, SegmentKinds.KRAFT_SNAPSHOTS) == [
        "__cluste/042-0000000001.checkpoint"
    ]
    assert selected(data_dir, SegmentKinds.LEFTOVERS) == [
        f"__cluste/0{1 << 63}-0000000001.checkpoint",
        f"my-topic/{1 << 63}.log", "my-topic/170.log.deleted",
    ]  # fmt: skip
    assert len(selected(data_dir, SegmentKinds.ALL)) == len(logs) + 5


def test_a_partition_dir(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (partition,) = ks.open_log_dir(data_dir / "my-topic-10").partitions
    assert (partition.topic, partition.partition, len(partition.segments)) == ("my-topic", 10, 3)
    assert partition.segments[0].size == 0
    monkeypatch.chdir(data_dir / "my-topic-10")
    (here,) = ks.open_log_dir(".").partitions
    assert (here.topic, here.partition) == ("my-topic", 10)


def test_a_partition_dir_of_any_name(tmp_path: Path) -> None:
    (tmp_path / "backup").mkdir()
    (tmp_path / "backup" / "0.log").touch()
    (partition,) = ks.open_log_dir(tmp_path / "backup").partitions
    assert (partition.topic, partition.partition, len(partition.segments)) == (None, None, 1)
    assert ks.open_log_dir(tmp_path).partitions == [partition]


def test_no_log_dir(tmp_path: Path) -> None:
    with pytest.raises(ks.format.NoLogsError, match="no logs here"):
        ks.open_log_dir(tmp_path)
    with pytest.raises(FileNotFoundError):
        ks.open_log_dir(tmp_path / "none")
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        ks.open_log_dir(tmp_path / "file")


def test_folders_without_logs_name_subfolders_with_logs(tmp_path: Path) -> None:
    for number in range(7):
        partition = tmp_path / f"broker-{number}" / "data" / "orders-0"
        partition.mkdir(parents=True)
        (partition / f"{BASE}.log").touch()
    # Neither is a log that a broker reads.
    (tmp_path / "broker-0" / "bootstrap.checkpoint").touch()
    (tmp_path / "broker-1" / "dump" / "orders-0").mkdir(parents=True)
    (tmp_path / "broker-1" / "dump" / "orders-0" / f"{BASE}.log.deleted").touch()
    with pytest.raises(ks.format.NoLogsError, match=r"'broker-4/data', 2 more") as e:
        ks.count_records(tmp_path)
    assert e.value.elsewhere == tuple(f"broker-{number}/data" for number in range(7))
    with pytest.raises(
        ks.format.NoLogsError, match=r"only 1 file that .*; there are logs in 'data'"
    ):
        ks.count_records(tmp_path / "broker-0")
    with pytest.raises(ks.format.NoLogsError, match="does not read as logs"):
        ks.count_records(tmp_path / "broker-1" / "dump")


def test_functions_of_one_partition_name_those_of_a_data_dir(data_dir: Path) -> None:
    for read in (ks.read_records, ks.iter_records):
        with pytest.raises(IsADirectoryError) as caught:
            read(data_dir)
        message = str(caught.value)
        assert "partitions: give one of open_log_dir(…).partitions" in message
        assert "kafkascan.polars.scan_records" in message


def test_many_segments_are_few_objects(tmp_path: Path) -> None:
    """The garbage collector visits each again and again in a data dir with 100 000 of them."""
    for number in range(500):
        (tmp_path / f"{number:020}.log").touch()
    partition = partition_dir(tmp_path)
    gc.collect()
    before = len(gc.get_objects())
    segments = partition.log_segments
    assert len(segments) == 500
    assert len(gc.get_objects()) - before <= 2 * 500 + 20


@pytest.mark.parametrize(("size", "is_read"), [(READ_AT_ONCE - 1, True), (READ_AT_ONCE, False)])
def test_a_small_segment_is_read_instead_of_mapped(
    tmp_path: Path, size: int, is_read: bool
) -> None:
    path = tmp_path / f"{BASE}.log"
    path.write_bytes(bytes(size))
    with segment_at(path).borrow() as source:
        assert (source.size, source.is_in_memory, not source.has_file) == (size, True, is_read)


def test_small_segments_are_read_at_once_also_beside_large_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = [b"a", bytes(READ_AT_ONCE), b"c", None]
    for offset, value in enumerate(values):
        batch = ks.build_batches(value=[value], offset=offset)
        (tmp_path / f"{offset:020}.log").write_bytes(batch)
    parts = list[int]()
    read_file = result_memory.read_file

    def count(descriptor: int, position: int, size: int) -> bytes | memoryview:
        parts.append(size)
        return read_file(descriptor, position, size)

    monkeypatch.setattr(result_memory, "read_file", count)
    table = ks.read_records(partition_dir(tmp_path))
    assert list(table["value"]) == values
    assert [one.offset for one in table] == [0, 1, 2, 3]
    assert sum(parts) > READ_AT_ONCE
    assert len(parts) <= 4  # of the large segment
