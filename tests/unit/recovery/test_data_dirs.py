"""Recovery of several data directories, and with the configuration of their broker."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import kafkascan as ks
from tests.support.files import contents
from tests.support.metadata_logs import BROKER, TOPIC, write_configs
from tests.support.partitions import HealthyPartition
from tests.support.paths import in_properties
from tests.unit.recovery.damaged_partitions import KILLED, NOW


@pytest.fixture
def jbod(tmp_path: Path) -> list[Path]:
    """The data directories of a killed broker; only the first one has the metadata log."""
    first, second, third = (tmp_path / name for name in ("a", "b", "c"))
    shutil.copytree(KILLED, first)
    for folder in (second, third):
        folder.mkdir()
        shutil.copy(first / "meta.properties", folder)
    shutil.move(first / "being-written-0", second)
    return [first, second, third]


def test_all_data_dirs_of_a_broker(jbod: list[Path]) -> None:
    alone = ks.recover(KILLED, now_ms=NOW)
    before = [contents(folder) for folder in jbod]
    planned = ks.recover(jbod, now_ms=NOW)
    assert [contents(folder) for folder in jbod] == before
    assert planned.paths == jbod
    changes = {one.topic: one.changes for one in planned.partitions}
    # The index interval of the topic is in the metadata log, which is in the other directory.
    assert changes == {one.topic: one.changes for one in alone.partitions}
    done = ks.recover(jbod, write=True, truncate=True)
    assert done.is_marked_clean
    assert done.marked_clean == jbod
    for folder in jbod:  # a broker compares the epochs in all of its directories
        mark = ks.broker_state.read_clean_shutdown(folder / ".kafka_cleanshutdown")
        assert mark.broker_epoch == done.broker_epoch == 11


def test_data_dirs_are_marked_separately(jbod: list[Path]) -> None:
    (jbod[1] / "being-written-0" / "leader-epoch-checkpoint").write_bytes(b"nonsense")
    done = ks.recover(jbod, write=True, truncate=True)
    assert done.marked_clean == [jbod[0], jbod[2]]
    assert not done.is_marked_clean


def test_each_data_dir_has_its_checkpoints(jbod: list[Path]) -> None:
    for folder, offset in zip(jbod, (1, 2, 3), strict=True):
        offsets = {("being-written", 0): offset, ("preallocated", 0): offset}
        ks.broker_state.write_offset_checkpoint(folder / "log-start-offset-checkpoint", offsets)
    starts = {one.topic: one.log_start_offset for one in ks.recover(jbod).partitions}
    assert starts == {"preallocated": 1, "being-written": 2}


def test_the_same_log_in_two_data_dirs(jbod: list[Path]) -> None:
    shutil.copytree(jbod[0] / "preallocated-0", jbod[2] / "preallocated-0")
    before = contents(jbod[0]), contents(jbod[2])
    done = ks.recover(jbod, write=True, truncate=True)
    twice = [one for one in done.partitions if one.topic == "preallocated"]
    assert len(twice) == 2
    for one, other in zip(twice, twice[::-1], strict=True):
        assert isinstance(one.error, ks.format.DuplicateLogError)
        assert (one.error.path, one.error.other) == (str(one.path), str(other.path))
    assert done.marked_clean == [jbod[1]]
    after = contents(jbod[0]), contents(jbod[2])
    assert [{**one, ".lock": b""} for one in before] == [{**one, ".lock": b""} for one in after]
    # The log that moves between directories has another name.
    name = "preallocated-0.0123456789abcdef0123456789abcdef-future"
    (jbod[2] / "preallocated-0").rename(jbod[2] / name)
    assert ks.recover(jbod, write=True, truncate=True).is_marked_clean


def test_paths(jbod: list[Path], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="named 2 times"):
        ks.recover([jbod[0], jbod[0]])
    with pytest.raises(ValueError, match="named 2 times"):
        ks.recover([jbod[1], jbod[1] / "being-written-0"])
    with pytest.raises(ValueError, match="empty"):
        ks.recover([])
    with pytest.raises(ValueError, match="must be given"):
        ks.recover()
    with pytest.raises(ks.format.NoLogsError):
        ks.recover([jbod[2], jbod[2]])
    (tmp_path / "typo").mkdir()
    with pytest.raises(ks.format.NoLogsError, match="typo"):
        ks.recover([*jbod, tmp_path / "typo"])


# ---- the configuration of the broker -------------------------------------------------------------


@pytest.fixture
def properties(jbod: list[Path], tmp_path: Path) -> Path:
    path = tmp_path / "server.properties"
    path.write_text(f"log.dirs={in_properties(*jbod)}\nlog.index.interval.bytes=300\n")
    return path


def index_sizes(done: ks.recovery.Recovery) -> dict[str | None, int | None]:
    return {
        one.topic: sum(
            change.new_size or 0 for change in one.changes if change.name.endswith(".index")
        )
        for one in done.partitions
    }


def test_server_properties(jbod: list[Path], properties: Path) -> None:
    by_file = ks.recover(server_properties=properties, now_ms=NOW)
    assert by_file.paths == jbod
    assert index_sizes(by_file) == index_sizes(
        ks.recover(jbod, broker_interval_bytes=300, now_ms=NOW)
    )
    default = ks.recover(jbod, now_ms=NOW)
    # One topic has an interval of its own.
    assert index_sizes(by_file)["being-written"] == index_sizes(default)["being-written"]
    assert index_sizes(by_file)["preallocated"] != index_sizes(default)["preallocated"]
    both = ks.recover(server_properties=properties, broker_interval_bytes=4096, now_ms=NOW)
    assert index_sizes(both) == index_sizes(default)
    all_of_them = ks.recover(server_properties=properties, interval_bytes=0, now_ms=NOW)
    assert index_sizes(all_of_them)["being-written"] > index_sizes(default)["being-written"]
    (alone,) = ks.recover(jbod[1] / "being-written-0", server_properties=properties).partitions
    assert alone.changes == by_file.partitions[1].changes


def test_a_dynamic_default_of_brokers_is_applied_after_loading(tmp_path: Path) -> None:
    folder = HealthyPartition(tmp_path / "data" / "orders-0").write().folder
    for index in folder.glob("*.index"):
        index.unlink()
    (folder.parent / "meta.properties").write_text("version=1\nnode.id=1\n")
    before = index_sizes(ks.recover(folder, now_ms=NOW))
    interval = (BROKER, "", "log.index.interval.bytes", "10")
    write_configs(folder.parent, interval, topics=["orders"])
    assert index_sizes(ks.recover(folder, now_ms=NOW)) == before
    write_configs(folder.parent, (TOPIC, "orders", "index.interval.bytes", "10"), topics=["orders"])
    assert index_sizes(ks.recover(folder, now_ms=NOW)) != before


@pytest.mark.parametrize(
    ("lines", "is_tiered"),
    [
        ("remote.log.storage.system.enable=true", True),
        ("remote.log.storage.system.enable=false", False),
        ("", False),
        ("remote.log.storage.system.enable=true\nlog.cleanup.policy=compact", False),
    ],
)
def test_remote_storage_of_the_broker(tmp_path: Path, lines: str, is_tiered: bool) -> None:
    folder = HealthyPartition(tmp_path / "data" / "orders-0").write().folder
    (folder.parent / "meta.properties").write_text("version=1\nnode.id=1\n")
    setting = (TOPIC, "orders", "remote.storage.enable", "true")
    write_configs(folder.parent, setting, topics=["orders"])
    properties = tmp_path / "server.properties"
    properties.write_text(f"log.dirs={in_properties(folder.parent)}\n{lines}\n")
    (planned,) = ks.recover(server_properties=properties).partitions
    assert planned.is_tiered == is_tiered
