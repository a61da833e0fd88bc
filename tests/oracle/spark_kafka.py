"""Spark with its own Kafka source, Iceberg and Delta, in a process that runs commands.

The newest version that all of them have in common is not always that of the Spark that the tests
run on; a folder of its own keeps the two apart.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.oracle.build import package
from tests.support.waiting import HANG_SECONDS

ROOT = Path(__file__).resolve().parents[2]
_PROJECT = Path(__file__).resolve().parent / "java-spark"
_TARGET = _PROJECT / "target"

REST_URI = "rest-uri"
"""The file with the address of a folder's REST catalog."""


def spark_version() -> str:
    """The version of Spark and of its Kafka source."""
    (version,) = re.findall(
        r"<spark.version>(.*)</spark.version>", (_PROJECT / "pom.xml").read_text()
    )
    return str(version)


def lake_conf(warehouse: Path) -> dict[str, str]:
    """
    Return settings with Delta and catalogs of Iceberg: `ice` (folders), `jdb` (SQLite), and `rest`
    if it was started for the folder, see rest_catalog.py.
    """
    iceberg, delta = "org.apache.iceberg.spark", "org.apache.spark.sql.delta.catalog.DeltaCatalog"
    extensions = (
        f"{iceberg}.extensions.IcebergSparkSessionExtensions",
        "io.delta.sql.DeltaSparkSessionExtension",
    )
    catalogs: dict[str, dict[str, object]] = {
        "ice": {"type": "hadoop", "warehouse": warehouse / "ice"},
        "jdb": {
            "type": "jdbc",
            "uri": f"jdbc:sqlite:{warehouse / 'catalog.db'}?busy_timeout=30000",
            "jdbc.schema-version": "V1",
            "warehouse": warehouse / "jdb",
        },
    }
    if (rest_uri := warehouse / REST_URI).exists():
        catalogs["rest"] = {"type": "rest", "uri": rest_uri.read_text()}
    conf = {
        "spark.sql.extensions": ",".join(extensions),
        "spark.sql.catalog.spark_catalog": delta,
        "spark.sql.warehouse.dir": str(warehouse / "tables"),
        # No JVM runs long enough for the optimizing compiler to pay off.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        # By default, Delta reads its log of a table in 50 tasks.
        "spark.databricks.delta.snapshotPartitions": "2",
    }
    for name, properties in catalogs.items():
        catalog = f"spark.sql.catalog.{name}"
        conf[catalog] = f"{iceberg}.SparkCatalog"
        conf |= {f"{catalog}.{key}": str(value) for key, value in properties.items()}
    return conf


def install() -> None:
    """Fetch the jars from Maven, and the Spark that it belongs to from PyPI."""
    package(_PROJECT)
    folder = pyspark_folder()
    if folder.exists():
        return
    part = folder.with_suffix(".part")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(part)]
    subprocess.run([*pip, "--upgrade", f"pyspark=={spark_version()}"], check=True)
    # Workers would import PySpark from it, of which Python keeps no compiled files.
    (part / "pyspark/python/lib/pyspark.zip").unlink()
    part.rename(folder)


def jar_folder() -> Path:
    """The folder of the jars that Spark itself does not have."""
    return _TARGET / f"lib-{spark_version()}"


def pyspark_folder() -> Path:
    """The folder of PySpark."""
    return _TARGET / f"pyspark-{spark_version()}"


class SparkBeside:
    """A running Spark with both sources, see spark_driver.py."""

    def __init__(self, master: str, log_file: Path, **conf: str) -> None:
        install()
        jars = ",".join(sorted(str(path) for path in jar_folder().glob("*.jar")))
        paths = [str(pyspark_folder()), str(ROOT), os.environ.get("PYTHONPATH", "")]
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(path for path in paths if path),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        environment.pop("SPARK_HOME", None)
        self._log_file = log_file
        module = ["-m", "tests.oracle.spark_driver"]
        with log_file.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, *module, master, jars, json.dumps(conf)],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The process of this driver, whose JVM is below it."""
        return self._process.pid

    def kill(self) -> None:
        """Kill this driver with its JVM (SIGKILL)."""
        os.killpg(self._process.pid, signal.SIGKILL)

    def ask(self, verb: str, **arguments: Any) -> Any:
        """Run one command; raise the error that it reports."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([verb, arguments]) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"Spark is gone:\n{self._log_file.read_text()[-4000:]}")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer["result"]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is not None:  # it may be writing an answer that nobody reads
            self.kill()
        # At the end of its input it stops Spark, which ends the JVM.
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(HANG_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
