"""A standalone cluster of two worker processes, and Spark Connect: what `local` cannot show."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

pyspark = pytest.importorskip("pyspark", reason="pyspark is not installed: make .venv/.dev")

from tests.spark.cluster import Cluster, running_cluster  # noqa: E402 - they need pyspark
from tests.spark.driver import _VIEWS  # noqa: E402
from tests.spark.logs import (  # noqa: E402
    DATA,
    multiset,
    plain_batch,
    rows,
    segment_path,
)

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


@dataclass(frozen=True)
class Shipping:
    """How executors get kafkascan: settings of Spark, and the driver's environment."""

    conf: dict[str, str]
    environment: dict[str, str]


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
def shipping(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Shipping:
    """The executors' Python has the dependencies, but no kafkascan: an archive brings that."""
    archive = tmp_path_factory.mktemp("shipping") / "kafkascan.zip"
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
    }
    return Shipping(conf, environment)


@pytest.fixture(scope="module")
def driver(
    cluster: Cluster, shipping: Shipping, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Driver]:
    environment = shipping.environment | {"SPARK_TEST_CONF": json.dumps(shipping.conf)}
    with running_driver(cluster.url, tmp_path_factory.mktemp("driver"), **environment) as running:
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


def eight_logs(folder: Path) -> Path:
    for partition in range(8):
        parts = [plain_batch(n, 1, 2000) for n in range(600)]
        segment_path(folder, "topic", partition).write_bytes(b"".join(parts))
    return folder


def require_export(folder: Path, report: dict[str, Any]) -> None:
    """Each record once, and no file that is half written or left over."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    names = [str(path.relative_to(folder)) for path in files]
    assert names == sorted([*report["outputs"], "_SUCCESS"])
    offsets: dict[int, list[int]] = {}
    for path in files[1:]:
        partition = int(path.parent.name.removeprefix("partition="))
        table = pyarrow.parquet.ParquetFile(path).read()
        offsets.setdefault(partition, []).extend(table["offset"].to_pylist())
    assert set(offsets) == set(range(8))
    assert all(sorted(found) == list(range(600)) for found in offsets.values())
    assert report["summary"]["rows"] == 8 * 600


def test_two_attempts_of_one_task(cluster: Cluster, driver: Driver, tmp_path: Path) -> None:
    """Speculation: rows come once, and what both attempts write is there once."""
    if len(set(cluster.hosts)) < 2:
        pytest.skip("Spark speculates on another host only, and 127.0.0.2 is not up here")
    path, marks = eight_logs(tmp_path / "in"), tmp_path / "marks"
    marks.mkdir()
    found = driver.ask("speculated", path, tmp_path / "out", marks)
    for name in ("rows", "export"):
        attempts = {mark.name for mark in marks.glob(f"{name}-0-*")}
        assert {f"{name}-0-0", f"{name}-0-1"} <= attempts, "both did all of the work"
    assert found["rows"] == dict(multiset(rows(path=str(path))))
    assert set(found["rows"].values()) == {1}
    require_export(tmp_path / "out", found)


def test_spark_submit(cluster: Cluster, shipping: Shipping, tmp_path: Path) -> None:
    """A script with --archives and --py-files, and a job, as docs/spark.md has it."""
    extra = tmp_path / "extra.zip"
    with zipfile.ZipFile(extra, "w") as out:
        out.writestr("shouting.py", "def loud(text):\n    return text.upper()\n")
    script = ROOT / "tests" / "spark" / "submitted.py"
    job = ROOT / "kafkascan" / "spark" / "__main__.py"
    conf = {
        "spark.executorEnv.PYTHONPATH": shipping.conf["spark.executorEnv.PYTHONPATH"],
        "spark.executor.memory": "500m",
        "spark.executor.cores": "1",
        "spark.cores.max": "2",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
    }
    submit = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", cluster.url]
    submit += ["--archives", shipping.conf["spark.archives"], "--py-files", str(extra)]
    submit += [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
    result = subprocess.run(
        [*submit, str(script), str(DATA / "headers-0"), str(job)],
        cwd=tmp_path,
        env=os.environ | shipping.environment | {"PYSPARK_DRIVER_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-4000:]
    # spark-submit puts what scripts say on stderr into stdout.
    said = [line for line in result.stdout.splitlines() if line.startswith("{")]
    counts, verified = map(json.loads, said)
    assert counts == {"HEADERS": len(rows(path=str(DATA / "headers-0")))}
    assert (verified["topic"], verified["status"]) == ("headers", "OK")
    assert "verify: files 1, " in result.stdout


def export_and_kill(driver: Driver, folder: Path, kill: Callable[[], None]) -> None:
    """Export, and kill something when the first file is there."""
    driver.tell("export", eight_logs(folder / "in"), folder / "out")
    deadline = time.monotonic() + 120
    while not list((folder / "out").rglob("*.parquet")):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    kill()
    assert not (folder / "out" / "_SUCCESS").exists(), "it was killed while the job ran"
    require_export(folder / "out", driver.hear())


def test_a_killed_executor(cluster: Cluster, driver: Driver, tmp_path: Path) -> None:
    def kill() -> None:
        (executor,) = cluster.executors(0)
        os.kill(executor, signal.SIGKILL)

    export_and_kill(driver, tmp_path, kill)


def test_a_killed_worker(cluster: Cluster, driver: Driver, tmp_path: Path) -> None:
    """The process that holds executors; the last test, because one worker is left."""
    export_and_kill(driver, tmp_path, lambda: cluster.kill_worker(1))
    assert cluster.workers[1].returncode == -signal.SIGKILL
