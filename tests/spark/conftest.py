"""One session of Spark for all tests that need one."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.java import MISSING, find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    # Plans of a few rows are not made better by what was learnt of their first half.
    "spark.sql.adaptive.enabled": "false",
    "spark.log.level": "ERROR",
}


@pytest.fixture(scope="session")
def java_home() -> str:
    """A Java; without one, what needs it is skipped."""
    pytest.importorskip("pyspark", reason="pyspark is not installed: make .venv/.dev")
    home = find_java()
    if home is None:
        pytest.skip(MISSING)
    os.environ["JAVA_HOME"] = home
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    # None of the JVMs lives long enough for the better compiler to pay.
    os.environ["JDK_JAVA_OPTIONS"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    return home


@pytest.fixture(scope="session")
def spark(java_home: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    from pyspark.sql import SparkSession

    from kafkascan import spark as kafkascan_spark

    folder: Path = tmp_path_factory.mktemp("spark")
    builder = SparkSession.builder.master("local[2]").appName("kafkascan tests")
    conf = LOCAL | kafkascan_spark.recommended_conf()
    conf["spark.sql.warehouse.dir"] = str(folder / "warehouse")
    for name, value in conf.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    kafkascan_spark.register(session)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """An S3 server of its own, with the golden logs in a bucket."""
    from tests.spark.logs import DATA

    server = pytest.importorskip("moto.server", reason="moto is not installed: make .venv/.dev")
    s3fs = pytest.importorskip("s3fs")
    running = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    running.start()
    host, port = running.get_host_and_port()
    options = {"key": "k", "secret": "s", "endpoint_url": f"http://{host}:{port}"}
    fs = s3fs.S3FileSystem(**options)
    fs.mkdir("logs")
    fs.put(str(DATA), "logs/data", recursive=True)
    try:
        yield options
    finally:
        running.stop()
