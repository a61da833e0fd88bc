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
        self.folder = folder
        install()
        package(_PROJECT)
        others = [
            *jar_folder().glob("sqlite-jdbc-*.jar"),
            *(pyspark_folder() / "pyspark" / "jars").glob("hadoop-client-*.jar"),
        ]
        class_path = ":".join([f"{_PROJECT}/target/lib/*", *map(str, others)])
        database = f"jdbc:sqlite:{folder / 'rest.db'}?busy_timeout=30000"
        arguments = [database, str(folder / "rest")]
        command = java_command(class_path, str(_PROJECT / "RestCatalog.java"), arguments)
        self._log_file = folder / "rest.log"
        with self._log_file.open("wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        (folder / REST_URI).write_text(f"http://127.0.0.1:{self._hear()}")

    def lose_answers(self, *, every: int) -> None:
        """Lose the answer to each of so many commits; 0: to none."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{every}\n")
        self._process.stdin.flush()
        self._hear()

    def _hear(self) -> str:
        assert self._process.stdout is not None
        if not (line := self._process.stdout.readline()):
            raise RuntimeError(f"the REST catalog is gone:\n{self._log_file.read_text()[-4000:]}")
        return line.strip()

    def close(self) -> None:
        """End the input of the process, at which it ends; require that it did not end before."""
        try:
            assert self._process.poll() is None, self._log_file.read_text()[-4000:]
        finally:
            self._process.communicate(timeout=HANG_SECONDS)
