"""Segments, their names, siblings and folders."""

from __future__ import annotations

from pathlib import Path

import pytest

import kafkascan as ks
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
    ],
)
def test_names(name: str, expected: tuple[object, ...]) -> None:
    parsed = ks.parse_segment_name(name)
    assert parsed is not None
    assert (parsed.base_offset, parsed.epoch, parsed.kind, parsed.state) == expected
    assert parsed.is_live == name.endswith(".log")


@pytest.mark.parametrize(
    "name",
    [
        f"{BASE}.index", f"{BASE}.log.bak", "x.log", "bootstrap.log", f"{BASE}-0000000003.log",
        f"{BASE}.checkpoint", "leader-epoch-checkpoint", "-1.log", ".log", "",
    ],
)  # fmt: skip
def test_names_of_other_files(name: str) -> None:
    assert ks.parse_segment_name(name) is None


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
        assert (segment.name, segment.base_offset, segment.siblings) == (None, None, {})
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
    assert ks.open_log_dir(tmp_path).partitions == []
    with pytest.raises(FileNotFoundError):
        ks.open_log_dir(tmp_path / "none")
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        ks.open_log_dir(tmp_path / "file")
