"""A standalone cluster of two worker processes, and Spark Connect: what `local` cannot show."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from tests.spark.cluster import Cluster, running_cluster
from tests.spark.driver import _VIEWS
from tests.spark.logs import DATA, multiset, plain_batch, rows, segment_path

ROOT = Path(__file__).parents[2]


class Driver:
    """A driver in a process of its own, which is told what to do."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process, self._log = process, log

    def tell(self, *command: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([str(word) for word in command]) + "\n")
        self._process.stdin.flush()

    def hear(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, self._log.read_text()[-4000:]
        return json.loads(line)

    def ask(self, *command: object) -> Any:
        self.tell(*command)
        return self.hear()


@contextmanager
def running_driver(master: str, folder: Path, **environment: str) -> Iterator[Driver]:
    log = folder / "driver.log"
    command = [sys.executable, "-m", "tests.spark.driver", master]
    pipe = subprocess.PIPE
    with (
        log.open("w") as err,
        subprocess.Popen(
            command,
            cwd=ROOT,
            env=os.environ | environment,
            stdin=pipe,
            stdout=pipe,
            stderr=err,
            text=True,
        ) as process,
    ):
        try:
            yield Driver(process, log)
        finally:
            process.kill()


@pytest.fixture(scope="module")
def cluster(java_home: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(java_home, tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(scope="module")
def driver(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """Its executors' Python has the dependencies, but no kafkascan: an archive brings that."""
    folder = tmp_path_factory.mktemp("driver")
    archive = folder / "kafkascan.zip"
    with zipfile.ZipFile(archive, "w") as out:
        for path in (ROOT / "kafkascan").rglob("*"):
            if path.suffix in (".py", ".so"):
                out.write(path, path.relative_to(ROOT))
    packages = str(Path(pyarrow.__file__).parents[1])
    conf = {
        "spark.archives": f"{archive}#kafkascan-lib",
        "spark.executorEnv.PYTHONPATH": f"{packages}:kafkascan-lib",
    }
    environment = {
        "PYSPARK_PYTHON": f"{sys.base_prefix}/bin/python3.{sys.version_info.minor}",
        "PYTHONPATH": os.pathsep.join([packages, str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "SPARK_TEST_CONF": json.dumps(conf),
    }
    with running_driver(cluster.url, folder, **environment) as running:
        yield running


def require_views(found: dict[str, Any]) -> None:
    for view, options in _VIEWS.items():
        expected = dict(multiset(rows(path=str(DATA), view=view, **options)))
        assert found[f"{view} by source"] == expected
        assert found[f"{view} by frame"] == expected
        assert len(expected) > 300
    assert found["verify"]["files"] == 42
    assert found["verify"]["badChecksums"] == 0


def test_two_workers(driver: Driver) -> None:
    require_views(driver.ask("views", DATA))


def test_an_archive_brings_the_extensions(driver: Driver) -> None:
    """As docs/spark.md has it."""
    found = driver.ask("shipped", DATA / "headers-0")
    assert found["file"].endswith("kafkascan-lib/kafkascan/__init__.py")
    assert found["rows"] == len(rows(path=str(DATA / "headers-0")))


def test_connect(java_home: str, tmp_path: Path) -> None:
    with running_driver("connect:local[2]", tmp_path) as connected:
        require_views(connected.ask("views", DATA))


def test_a_killed_executor(cluster: Cluster, driver: Driver, tmp_path: Path) -> None:
    """The job ends right, and no file is half written or missing."""
    for partition in range(8):
        parts = [plain_batch(n, 1, 2000) for n in range(600)]
        segment_path(tmp_path / "in", "topic", partition).write_bytes(b"".join(parts))
    driver.tell("export", tmp_path / "in", tmp_path / "out")
    deadline = time.monotonic() + 120
    while not list((tmp_path / "out").rglob("*.parquet")):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    (executor,) = cluster.executors(0)
    os.kill(executor, signal.SIGKILL)
    assert not (tmp_path / "out" / "_SUCCESS").exists(), "it was killed while the job ran"
    report = driver.hear()
    files = sorted(path for path in (tmp_path / "out").rglob("*") if path.is_file())
    names = [str(path.relative_to(tmp_path / "out")) for path in files]
    assert names == sorted([*report["outputs"], "_SUCCESS"])
    offsets: dict[int, list[int]] = {}
    for path in files[1:]:
        partition = int(path.parent.name.removeprefix("partition="))
        table = pyarrow.parquet.ParquetFile(path).read()
        offsets.setdefault(partition, []).extend(table["offset"].to_pylist())
    assert set(offsets) == set(range(8))
    assert all(sorted(found) == list(range(600)) for found in offsets.values())
    assert report["summary"]["rows"] == 8 * 600
