"""What a broker does at its start with names that others, or its own crash, left in a data dir."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import kafkascan as ks
from tests.oracle.brokers import KafkaBroker
from tests.oracle.build import ClassPaths
from tests.oracle.clients import JavaClients
from tests.oracle.jvm import wait_until
from tests.oracle.stage import Stage, messages

pytestmark = pytest.mark.oracle

_FIRST, _SECOND, _BEYOND = f"{0:020}", f"{30:020}", f"{99:020}"
_UUID = "0123456789abcdef" * 2
_CONFIG = {"log.segment.delete.delay.ms": "100", "log.initial.task.delay.ms": "100"}

# ---- names with which a broker starts ----

_IGNORED = [
    f".{_FIRST}.log.0.part", f"{_FIRST}.log.bak", f"{_FIRST}.log.bak1", f"{_FIRST}.index.bak",
    f"{_FIRST}.log.tail-100.bak", f"{_FIRST}.index.tmp", f"{_SECOND}.snapshot.tmp",
    ".partition.rewriting", f".{_FIRST}.log.rewriting", f"{_FIRST}.log.orig", f"{_FIRST}.log~",
    f"{_FIRST}.log.gz", "notes.txt",
]  # fmt: skip
_DELETED = [
    f"{_FIRST}.log.deleted", f"{_FIRST}.index.deleted", f"{_SECOND}.snapshot.deleted",
    f"{_SECOND}.log.cleaned", f"{_SECOND}.index.cleaned", f"{_BEYOND}.index",
    f"{_BEYOND}.snapshot", "x.deleted",
]  # fmt: skip
_REPLACED = ["leader-epoch-checkpoint.tmp"]
"""A broker writes the checkpoint again, and renames the file."""
_SWAPPED = [f"{_FIRST}.log.swap", f"{_FIRST}.index.swap", f"{_FIRST}.timeindex.swap"]
_IGNORED_IN_DATA_DIR = [
    "notes.txt", "x.log", "meta.properties.bak", "meta.properties.tmp",
    ".recovery-point-offset-checkpoint.0.part",
]  # fmt: skip

_OTHER_FOLDERS = ["remote-log-index-cache", "other-0", "kept-0.short-delete"]

# ---- names with which it does not start ----

# A start of a broker takes seconds: one name of each kind. Tests of audit have more.
_FOREIGN_FILES = ["backup.log", "x.snapshot", "x.cleaned", f".{_FIRST}.log"]
_FOREIGN_FOLDERS = ["lost+found", ".hidden", "kept-0.bak", f"kept-1.{_UUID}-unknown"]


@dataclass
class Stopped:
    """A broker that was stopped, and a copy of its data dir."""

    broker: KafkaBroker
    copy: Path

    def reset(self) -> Path:
        """Return the data dir, as it was when the broker stopped."""
        self.broker.kill()
        shutil.rmtree(self.broker.data_dir)
        return Path(shutil.copytree(self.copy, self.broker.data_dir))


@pytest.fixture(scope="module")
def stopped(class_paths: ClassPaths, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stopped]:
    directory = tmp_path_factory.mktemp("leftovers")
    with KafkaBroker(directory, class_paths, _CONFIG) as broker:
        log_file = directory / "clients.log"
        with JavaClients(class_paths.broker, broker.bootstrap_servers, log_file) as java:
            stage = Stage(broker, java)
            stage.create_topic("kept", partitions=2, internal_segment_bytes="1024")
            writer = stage.java_producer()
            for start in range(0, 60, 10):
                for partition in range(2):
                    writer.write(messages("kept", 10, start=start, partition=partition))
            writer.close()
        broker.stop()
        yield Stopped(broker, Path(shutil.copytree(broker.data_dir, directory / "copy")))


def test_what_survives_the_start(stopped: Stopped) -> None:
    data_dir = stopped.reset()
    kept, swapped = data_dir / "kept-0", data_dir / "kept-1"
    dropped, stray = data_dir / f"gone-0.{_UUID}-delete", data_dir / f"away-0.{_UUID}-stray"
    for target in (dropped, stray):
        shutil.copytree(kept, target)
    (kept / "folder").mkdir()
    for name in (*_IGNORED, *_DELETED, *_REPLACED):
        shutil.copy(kept / f"{_FIRST}.log", kept / name)
    for name in _SWAPPED:
        shutil.copy(swapped / name.removesuffix(".swap"), swapped / name)
    for name in _OTHER_FOLDERS:
        (data_dir / name).mkdir()
    for name in (*_IGNORED_IN_DATA_DIR, ".lock"):
        (data_dir / name).touch()
    logs = {log: log.read_bytes() for log in data_dir.glob("kept-*/*.log")}
    symbols = {one.symbol for one in ks.audit(data_dir).findings}
    assert {"LEFTOVER", "DROPPED_LOG", "STRAY_LOG", "ORPHAN"} <= symbols
    assert "FOREIGN_NAME" not in symbols
    stopped.broker.start()
    wait_until("the dropped log to be deleted", lambda: not dropped.exists())
    stopped.broker.stop()
    assert {log: log.read_bytes() for log in data_dir.glob("kept-*/*.log")} == logs
    assert [name for name in _IGNORED if not (kept / name).exists()] == []
    assert [name for name in (*_DELETED, *_REPLACED) if (kept / name).exists()] == []
    assert [name for name in _SWAPPED if (swapped / name).exists()] == []
    assert [name for name in _IGNORED_IN_DATA_DIR if not (data_dir / name).exists()] == []
    assert not (data_dir / ".lock").exists()
    assert (kept / "folder").is_dir()
    assert list(stray.glob("*.log"))


def _file(name: str) -> Callable[[Path], object]:
    return lambda data_dir: shutil.copy(
        data_dir / "kept-0" / f"{_FIRST}.log", data_dir / "kept-0" / name
    )


def _folder(name: str) -> Callable[[Path], object]:
    return lambda data_dir: (data_dir / name).mkdir()


@pytest.mark.parametrize(
    "leave",
    [
        *(pytest.param(_file(name), id=name) for name in _FOREIGN_FILES),
        *(pytest.param(_folder(name), id=f"{name}/") for name in _FOREIGN_FOLDERS),
    ],
)
def test_no_broker_starts_with_a_foreign_name(
    leave: Callable[[Path], object], stopped: Stopped
) -> None:
    data_dir = stopped.reset()
    leave(data_dir)
    assert "FOREIGN_NAME" in {one.symbol for one in ks.audit(data_dir).alarms}
    with pytest.raises(RuntimeError, match=r"NumberFormatException|is not in the form of"):
        stopped.broker.start()
