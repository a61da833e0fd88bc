"""A standalone cluster of two worker processes, and an application that spark-submit starts.

One application runs all tests: its executors get kafkascan from an archive.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

pyspark = pytest.importorskip("pyspark", reason="pyspark is not installed: make .venv/.dev")

from kafkascan.spark import recommended_conf  # noqa: E402 - they need pyspark
from kafkascan.spark.jobs.output_folders import LocalFolder  # noqa: E402
from kafkascan.spark.jobs.planned_outputs import is_record  # noqa: E402
from kafkascan.spark.readers.state_frames import (  # noqa: E402
    STATE_VIEWS,
    StateQuery,
    find_data_dirs,
    state_task,
)
from tests.spark.cluster import Cluster, running_cluster  # noqa: E402
from tests.spark.conftest import LOCAL  # noqa: E402
from tests.spark.logs import (  # noqa: E402
    DATA,
    fleet_of,
    multiset,
    plain_batch,
    require_views,
    rows,
    segment_path,
)
from tests.spark.remote_driver import DRIVER, ROOT, RemoteDriver, running_driver  # noqa: E402
from tests.support.waiting import wait_until  # noqa: E402

pytestmark = pytest.mark.slow

CONF = LOCAL | {
    "spark.executor.memory": "500m",
    "spark.executor.cores": "1",
    "spark.cores.max": "2",
    # A task that takes longer than others is started again, on the other worker.
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "1s",
    "spark.executor.extraJavaOptions": "-Dkafkascan.user=kept",
}


@pytest.fixture(scope="module")
def cluster(java_home: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(java_home, tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(scope="module")
def driver(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RemoteDriver]:
    with submitted(cluster, tmp_path_factory.mktemp("driver")) as running:
        yield running


@contextmanager
def submitted(cluster: Cluster, folder: Path) -> Iterator[RemoteDriver]:
    """As in docs/spark/deploy.md: the executors' Python has only the dependencies."""
    with zipfile.ZipFile(folder / "kafkascan.zip", "w") as out:
        for path in (ROOT / "kafkascan").rglob("*"):
            if path.suffix in (".py", ".so", ".messages"):
                out.write(path, path.relative_to(ROOT))
    with zipfile.ZipFile(folder / "extra.zip", "w") as out:
        out.writestr("shouting.py", "def loud(text):\n    return text.upper()\n")
    packages = str(Path(pyarrow.__file__).parents[1])
    conf = CONF | recommended_conf()
    conf |= {"spark.executorEnv.PYTHONPATH": f"{packages}:kafkascan-lib"}
    submit = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", cluster.url]
    submit += ["--archives", f"{(folder / 'kafkascan.zip').as_uri()}#kafkascan-lib"]
    submit += ["--py-files", str(folder / "extra.zip")]
    submit += [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
    environment = {
        "PYSPARK_PYTHON": f"{sys.base_prefix}/bin/python3.{sys.version_info.minor}",
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join([packages, str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }
    with running_driver([*submit, str(DRIVER)], folder, environment) as running:
        yield running


def test_two_workers(driver: RemoteDriver) -> None:
    require_views(driver.ask("views", DATA))


@pytest.mark.parametrize(
    ("view", "table"),
    [
        ("groups", "offsets"),
        ("groups", "groups"),
        ("transaction_state", "transactions"),
        ("metadata", "partitions"),
        ("metadata", "problems"),
    ],
)
def test_state_of_a_fleet(driver: RemoteDriver, tmp_path: Path, view: str, table: str) -> None:
    """The rows of each data dir, as without Spark."""
    fleet = fleet_of(tmp_path)
    query = StateQuery(view, table, None)
    expected = [
        row
        for data_dir in find_data_dirs([str(fleet)], STATE_VIEWS[view].topic)
        for batch in state_task(data_dir, query)
        for row in batch.to_pylist()
    ]
    assert table == "problems" or len(expected) > 1
    assert driver.ask("state", view, fleet, table) == multiset(expected)


def test_settings_of_the_user_are_kept(cluster: Cluster, driver: RemoteDriver) -> None:
    """The JVMs of executors have the user's options besides the recommended ones."""
    for worker in (0, 1):
        (executor,) = cluster.executors(worker)
        command = cluster.command(executor)
        assert "-Dkafkascan.user=kept" in command
        assert "-Darrow.enable_unsafe_memory_access=true" in command


def test_an_archive_brings_the_extensions(driver: RemoteDriver) -> None:
    found = driver.ask("shipped", DATA / "headers-0")
    assert found["file"].endswith("kafkascan-lib/kafkascan/__init__.py")
    assert found["rows"] == len(rows(path=str(DATA / "headers-0")))


def eight_logs(folder: Path) -> Path:
    for partition in range(8):
        parts = [plain_batch(n, 1, 2000) for n in range(600)]
        segment_path(folder, "topic", partition).write_bytes(b"".join(parts))
    return folder


def require_export(folder: Path, report: dict[str, Any]) -> None:
    """Each record is there once, and there are no partial files or leftovers."""
    names = sorted(name for name in LocalFolder(str(folder)).sizes() if not is_record(name))
    assert names == sorted([*report["outputs"], "_SUCCESS"])
    offsets: dict[int, list[int]] = {}
    for path in (folder / name for name in report["outputs"]):
        partition = int(path.parent.name.removeprefix("partition="))
        table = pyarrow.parquet.ParquetFile(path).read()
        offsets.setdefault(partition, []).extend(table["offset"].to_pylist())
    assert set(offsets) == set(range(8))
    assert all(sorted(found) == list(range(600)) for found in offsets.values())
    assert report["summary"]["rows"] == 8 * 600


def test_py_files(driver: RemoteDriver) -> None:
    counts = driver.ask("from_py_files", DATA / "headers-0")
    assert counts == {"HEADERS": len(rows(path=str(DATA / "headers-0")))}


def test_two_attempts_of_one_task(cluster: Cluster, driver: RemoteDriver, tmp_path: Path) -> None:
    """Speculation: rows are returned once, and the files of both attempts exist once."""
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


def start_export(driver: RemoteDriver, folder: Path) -> None:
    """Start an export, and wait until the first file appears."""
    driver.send("export", eight_logs(folder / "in"), folder / "out")
    wait_until(lambda: list((folder / "out").rglob("*.parquet")))


def export_and_kill(driver: RemoteDriver, folder: Path, kill: Callable[[], None]) -> None:
    """Export, and kill a process after the first file appears."""
    start_export(driver, folder)
    kill()
    assert not (folder / "out" / "_SUCCESS").exists(), "it was killed while the job ran"
    require_export(folder / "out", driver.receive())


def test_a_killed_driver(cluster: Cluster, driver: RemoteDriver, tmp_path: Path) -> None:
    """Another driver resumes: it keeps what is finished, and the output is the same."""
    out = tmp_path / "out"
    running = {one for worker in (0, 1) for one in cluster.executors(worker)}
    with submitted(cluster, tmp_path) as other:
        start_export(other, tmp_path)
        other.kill()
        assert not (out / "_SUCCESS").exists(), "it was killed while the job ran"
        # An executor without a driver ends, and a task that ran in it.
        wait_until(
            lambda: {one for worker in (0, 1) for one in cluster.executors(worker)} <= running
        )
    records = [name for name in LocalFolder(str(out)).sizes() if is_record(name)]
    assert records
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*.parquet")}
    found = driver.ask("resumed", tmp_path / "in", out)
    require_export(out, found)
    assert found["summary"]["kept"] == len(records) < len(found["outputs"])
    kept = [path for path, time in before.items() if path.stat().st_mtime_ns == time]
    assert len(kept) == len(records)
    driver.ask("export", tmp_path / "in", tmp_path / "whole")
    for name in found["outputs"]:
        assert (out / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_a_killed_executor(cluster: Cluster, driver: RemoteDriver, tmp_path: Path) -> None:
    def kill() -> None:
        (executor,) = cluster.executors(0)
        os.kill(executor, signal.SIGKILL)

    export_and_kill(driver, tmp_path, kill)


def test_a_killed_worker(cluster: Cluster, driver: RemoteDriver, tmp_path: Path) -> None:
    """The process that starts executors. Later tests have one worker."""
    export_and_kill(driver, tmp_path, lambda: cluster.kill_worker(1))
    assert cluster.workers[1].returncode == -signal.SIGKILL


def test_a_submitted_job(driver: RemoteDriver) -> None:
    """The file that spark-submit takes. It ends the application, so this is the last test."""
    job = ROOT / "kafkascan" / "spark" / "__main__.py"
    driver.send("job", job, DATA / "headers-0")
    printed = driver.end()
    (verified,) = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    assert (verified["topic"], verified["status"]) == ("headers", "OK")
    assert "verify: files 1, " in printed
