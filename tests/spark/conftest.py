"""Fixtures: Java, one shared session of Spark, and an S3 server."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest
from _pytest.runner import runtestprotocol

from tests.spark.java import MISSING, find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    # Adaptive plans do not pay off for a few rows.
    "spark.sql.adaptive.enabled": "false",
    "spark.log.level": "ERROR",
    "spark.driver.extraJavaOptions": "-Dkafkascan.user=kept",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let one process of pytest-xdist run all tests that share a JVM or a store."""
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        if "cluster" in fixtures:
            item.add_marker(pytest.mark.xdist_group("spark-cluster"))
        elif "spark" in fixtures or "store" in fixtures:
            item.add_marker(pytest.mark.xdist_group("spark"))


# Spark gives the worker of a stream 10 seconds to import PySpark and connect, which no setting
# changes (`PythonWorkerFactory.createSimpleWorker`). That takes a quarter of a second of CPU, see
# `_home_without_zip`: too long on a machine with dozens of processes per CPU.
_NO_WORKER = "Python worker failed to connect back"
_MOST_RUNS = 3


def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Run a test again, with new fixtures, if Spark did not wait for a worker of Python."""
    if not {"spark", "driver", "connect_port"} & set(getattr(item, "fixturenames", ())):
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for _ in range(_MOST_RUNS):
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        if not any(report.failed and _NO_WORKER in report.longreprtext for report in reports):
            break
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def _home_without_zip(pyspark: ModuleType, folder: Path) -> str:
    """
    Fill a home of Spark from which workers of Python start with a third of the work.

    Spark lets workers import PySpark from the home's `pyspark.zip`: Python keeps no compiled files
    of an archive, and compiles 0.5 s each time. Without it, they import the installed package.
    """
    for name in ("bin", "jars"):
        (folder / name).symlink_to(Path(str(pyspark.__file__)).parent / name)
    return str(folder)


@pytest.fixture(scope="session")
def java_home(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The home of a Java; tests that need it are skipped without one."""
    pyspark = pytest.importorskip("pyspark", reason="pyspark is not installed: make .venv/.dev")
    home = find_java()
    if home is None:
        pytest.skip(MISSING)
    os.environ["JAVA_HOME"] = home
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["SPARK_HOME"] = _home_without_zip(pyspark, tmp_path_factory.mktemp("spark-home"))
    # Workers import what others have compiled, also if nothing may be left beside the sources.
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
        os.environ["PYTHONPYCACHEPREFIX"] = str(tmp_path_factory.mktemp("pycache"))
    # No JVM runs long enough for the optimizing compiler to pay off.
    quick_start = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    os.environ["JDK_JAVA_OPTIONS"] = f'{quick_start} "-Djava.io.tmpdir={tempfile.gettempdir()}"'
    return home


@pytest.fixture(scope="session")
def spark(java_home: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A classic session; all tests of a process share its JVM."""
    from pyspark.sql import SparkSession

    from kafkascan import spark as kafkascan_spark

    folder: Path = tmp_path_factory.mktemp("spark")
    builder = SparkSession.builder.master("local[2]").appName("kafkascan tests")
    conf = LOCAL | kafkascan_spark.recommended_conf()
    conf["spark.sql.warehouse.dir"] = str(folder / "warehouse")
    conf |= {"spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin"}
    conf |= {"spark.connect.grpc.binding.port": "0"}
    for name, value in conf.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    kafkascan_spark.register(session)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def connect_port(spark: SparkSession) -> int:
    """The port of the Spark Connect server, which runs in the session's JVM."""
    services = spark._jvm.org.apache.spark.sql.connect.service
    # An object of Scala.
    port: int = getattr(getattr(services, "SparkConnectService$"), "MODULE$").localPort()
    return port


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """The options of a local S3 server, with the golden logs in a bucket."""
    from tests.spark.logs import DATA

    server = pytest.importorskip("moto.server", reason="moto is not installed: make .venv/.dev")
    s3fs = pytest.importorskip("s3fs")
    running = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    running.start()
    host, port = running.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    fs = s3fs.S3FileSystem(key="k", secret="s", endpoint_url=endpoint)
    fs.mkdir("logs")
    fs.put(str(DATA), "logs/data", recursive=True)
    try:
        yield {
            "aws_access_key_id": "k",
            "aws_secret_access_key": "s",
            "endpoint": endpoint,
            "region": "us-east-1",
            "client_options": {"allow_http": True},
        }
    finally:
        running.stop()
