"""Files that commands write: never one of a broker's, and no pipe."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from kafkascan.format.file_names import is_name_of_brokers
from tests.support.command_line import DATA, run

LOG = f"{0:020}.log"
WRITERS = [
    "audit LOGS --format jsonl --output FILE",
    "records LOGS --format csv --output FILE",
    "count LOGS --format jsonl --output FILE",
    "diff LOGS LOGS --report FILE",
    "diff LOGS --save FILE",
    "report LOGS -o FILE",
    "salvage LOGS --report FILE",
]
OF_BROKERS = [
    LOG, f"{0:020}.index", f"{0:020}.timeindex", f"{9:020}.snapshot", f"{9:020}.log.deleted",
    f"{9:020}-{3:010}.checkpoint", "leader-epoch-checkpoint", "partition.metadata",
    "meta.properties", ".kafka_cleanshutdown", "recovery-point-offset-checkpoint",
]  # fmt: skip


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """A copy of a partition."""
    return Path(shutil.copytree(DATA / "idempotent-0", tmp_path / "idempotent-0"))


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("command", WRITERS)
def test_a_segment_in_a_folder_that_is_read_is_not_replaced(command: str, partition: Path) -> None:
    before = contents(partition)
    link = partition.parent / "page.html"
    link.symlink_to(partition / LOG)
    for target in (partition / LOG, partition / f"{7:020}.log", link):
        words = {"LOGS": partition, "FILE": target}
        done = run(*(words.get(word, word) for word in command.split()))
        assert done.returncode == 2
        assert f"{target}: a broker's file has such a name" in done.stderr
    assert contents(partition) == before


@pytest.mark.parametrize("command", WRITERS)
def test_a_pipe_is_not_replaced(command: str, partition: Path) -> None:
    pipe = partition.parent / "out.json"
    os.mkfifo(pipe)
    done = run(*({"LOGS": partition, "FILE": pipe}.get(word, word) for word in command.split()))
    assert done.returncode == 2
    assert f"{pipe}: not a regular file" in done.stderr
    assert pipe.is_fifo()


@pytest.mark.parametrize("name", OF_BROKERS)
def test_names_of_brokers(name: str) -> None:
    assert is_name_of_brokers(name)


@pytest.mark.parametrize("name", ["page.html", "audit.log", "0.json", "1.csv", "index", "x.index"])
def test_names_of_others(name: str) -> None:
    assert not is_name_of_brokers(name)
