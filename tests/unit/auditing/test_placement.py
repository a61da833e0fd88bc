"""Logs in several data dirs of a broker, logs that are moved or stray, indexes in use."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import kafkascan as ks
from kafkascan.broker_state import write_meta_properties
from tests.support.audits import symbols
from tests.support.command_line import run
from tests.support.partitions import HealthyPartition

_UUID = "0123456789abcdef" * 2


def data_dir(folder: Path, *names: str, node: str = "1") -> Path:
    for name in names:
        HealthyPartition(folder / name).write()
    write_meta_properties(
        folder / "meta.properties",
        {"version": "1", "cluster.id": "c", "node.id": node, "directory.id": folder.name},
    )
    return folder


def test_a_log_in_two_data_dirs_of_a_broker(tmp_path: Path) -> None:
    one = data_dir(tmp_path / "1", "orders-0", "orders-1")
    other = data_dir(tmp_path / "2", "orders-1", "orders-2")
    replica = data_dir(tmp_path / "3", "orders-0", "orders-1", node="2")
    (found,) = ks.auditing.find_duplicate_logs(one, other, replica)
    assert (found.symbol, found.topic, found.partition) == ("DUPLICATE_LOG", "orders", 1)
    assert (found.path, found.severity) == (str(other / "orders-1"), ks.Severity.ERROR)
    assert str(one / "orders-1") in found.message
    assert ks.auditing.find_duplicate_logs(one, replica, one) == []
    result = run("audit", one, other, replica, "--format", "csv")
    assert result.returncode == 1
    assert result.stdout.count("DUPLICATE_LOG") == 1
    assert run("audit", one, replica).returncode == 0
    archive = shutil.make_archive(str(tmp_path / "all"), "tar", tmp_path)
    assert [one.symbol for one in ks.audit(archive).alarms] == ["DUPLICATE_LOG"]


def test_a_future_replica_is_no_duplicate(tmp_path: Path) -> None:
    one = data_dir(tmp_path / "1", "orders-0")
    other = data_dir(tmp_path / "2", "orders-1")
    shutil.copytree(one / "orders-0", other / f"orders-0.{_UUID}-future")
    assert ks.auditing.find_duplicate_logs(one, other) == []
    (found,) = ks.audit(other).findings
    assert (found.symbol, found.topic, found.partition) == ("FUTURE_LOG", "orders", 0)
    shutil.copytree(one / "orders-0", one / f"orders-0.{_UUID[::-1]}-future")
    (found,) = ks.auditing.find_duplicate_logs(one, other)
    assert found.symbol == "DUPLICATE_LOG"


def test_a_damaged_future_replica_is_audited(tmp_path: Path) -> None:
    folder = data_dir(tmp_path / "1", "orders-0")
    future = folder / f"orders-0.{_UUID}-future"
    (folder / "orders-0").rename(future)
    log = future / f"{0:020}.log"
    data = bytearray(log.read_bytes())
    data[500] ^= 1
    log.write_bytes(data)
    assert symbols(folder) == {"FUTURE_LOG", "CHECKSUM_MISMATCH"}


def test_stray_logs(tmp_path: Path) -> None:
    folder = data_dir(tmp_path / "1", "orders-0", "gone-0")
    (folder / "gone-0").rename(folder / f"gone-0.{_UUID}-stray")
    size = sum(path.stat().st_size for path in (folder / f"gone-0.{_UUID}-stray").iterdir())
    for path in (folder, folder / f"gone-0.{_UUID}-stray"):
        (found,) = ks.audit(path).findings
        assert (found.symbol, found.severity) == ("STRAY_LOG", ks.Severity.WARNING)
        assert f"{size:,} bytes" in found.message


def test_preallocated_indexes_of_many_logs_are_one_finding(tmp_path: Path) -> None:
    for number in range(20):
        folder = tmp_path / f"empty-{number}"
        folder.mkdir()
        (folder / f"{0:020}.log").touch()
        for kind, size in (("index", 4096), ("timeindex", 4092)):
            (folder / f"{0:020}.{kind}").write_bytes(bytes(size))
        (folder / "leader-epoch-checkpoint").write_text("0\n0\n")
    (found,) = ks.audit(tmp_path).findings
    assert (found.symbol, found.count, found.path) == ("PADDED", 40, str(tmp_path))
    assert found.message == "40 index files of 20 logs are preallocated"
    of_one = ks.audit(tmp_path / "empty-0").findings
    assert [(one.symbol, one.file) for one in of_one] == [
        ("PADDED", f"{0:020}.index"), ("PADDED", f"{0:020}.timeindex"),
    ]  # fmt: skip


def test_the_advice_about_an_index_names_copies_that_miss_it(partition: HealthyPartition) -> None:
    partition.write()
    index = partition.log(1).with_suffix(".index")
    data = bytearray(index.read_bytes())
    data[7] ^= 1
    index.write_bytes(data)
    (found,) = ks.audit(partition.folder).alarms
    assert found.symbol == "WRONG_POSITION"
    assert "rsync --checksum" in found.advice


def test_folders_with_which_no_broker_starts(tmp_path: Path) -> None:
    """tests/oracle/test_leftovers.py starts brokers with such names."""
    folder = data_dir(tmp_path / "1", "orders-0")
    loaded = ("orders-1", f"orders-2.{_UUID}-delete", "orders-3.short-delete")
    for name in (*loaded, "remote-log-index-cache", "lost+found", ".hidden", "orders-0.bak", "-0"):
        (folder / name).mkdir()
    (folder / "notes.txt").touch()
    found = [one for one in ks.audit(folder).findings if one.symbol == "FOREIGN_NAME"]
    assert {Path(one.path).name for one in found} == {"lost+found", ".hidden", "orders-0.bak", "-0"}
    assert {one.severity for one in found} == {ks.Severity.ERROR}
    (folder / "meta.properties").unlink()  # a folder of a user, which may contain anything
    assert "FOREIGN_NAME" not in symbols(folder)


def test_a_topic_of_a_later_version_is_named(tmp_path: Path) -> None:
    folder = data_dir(tmp_path / "1", "__mirror_state-0", "orders-0")
    (found,) = ks.audit(folder).findings
    assert (found.symbol, found.severity, found.topic) == (
        "UNKNOWN_TOPIC", ks.Severity.NOTE, "__mirror_state",
    )  # fmt: skip
    done = run("records", folder, "--format", "jsonl")
    assert (done.returncode, done.stderr.count("UNKNOWN_TOPIC")) == (0, 1)
    assert "UNKNOWN_TOPIC" not in run("records", folder, "--decode", "none").stderr


def test_an_index_of_a_later_layout_is_named(tmp_path: Path) -> None:
    folder = data_dir(tmp_path / "1", "orders-0")
    index = min((folder / "orders-0").glob("*.index"))
    index.write_bytes(struct.pack(">iqiqiq", 3, 300, 6, 600, 9, 900))
    (found,) = ks.audit(folder).findings
    assert (found.symbol, found.severity, found.file) == (
        "UNKNOWN_INDEX_LAYOUT", ks.Severity.WARNING, index.name,
    )  # fmt: skip
