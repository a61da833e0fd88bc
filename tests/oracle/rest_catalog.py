"""A REST catalog of Iceberg, by Iceberg's own servlet, with SQLite behind it."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.oracle.build import package
from tests.oracle.jvm import Closing, java_command
from tests.oracle.spark_kafka import REST_URI, install, jar_folder, pyspark_folder
from tests.support.waiting import HANG_SECONDS

_PROJECT = Path(__file__).resolve().parent / "java-iceberg-rest"


class RestCatalog(Closing):
    """The running catalog `rest` of all drivers whose catalogs are in the same folder."""

    def __init__(self, folder: Path) -> None:
        install()
        package(_PROJECT)
        others = [
            *jar_folder().glob("sqlite-jdbc-*.jar"),
            *(pyspark_folder() / "pyspark" / "jars").glob("hadoop-client-*.jar"),
        ]
        class_path = ":".join([f"{_PROJECT}/target/lib/*", *map(str, others)])
        database = f"jdbc:sqlite:{folder / 'rest.db'}?busy_timeout=30000"
        command = java_command(
            class_path, str(_PROJECT / "RestCatalog.java"), [database, str(folder / "rest")]
        )
        self._log_file = folder / "rest.log"
        with self._log_file.open("wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        assert self._process.stdout is not None
        port = self._process.stdout.readline().strip()
        if not port:
            raise RuntimeError(f"the REST catalog is gone:\n{self._log_file.read_text()[-4000:]}")
        (folder / REST_URI).write_text(f"http://127.0.0.1:{port}")

    def close(self) -> None:
        """End the input of the process, at which it ends; require that it did not end before."""
        try:
            assert self._process.poll() is None, self._log_file.read_text()[-4000:]
        finally:
            self._process.communicate(timeout=HANG_SECONDS)
