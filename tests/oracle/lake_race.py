"""Two drivers fill one table from growing logs, and are killed at each of their statements.

python -m tests.oracle.lake_race --format iceberg --kills 100
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from kafkascan.spark.jobs.table_jobs import problems_name
from tests.oracle.rest_catalog import RestCatalog
from tests.oracle.spark_kafka import ROOT, install, pyspark_folder
from tests.spark.logs import plain_batch, segment_path
from tests.support.waiting import HANG_SECONDS

TABLES = {
    "iceberg": "jdb.db.{name}",
    "iceberg-hadoop": "ice.db.{name}",
    "iceberg-rest": "rest.db.{name}",
    "delta": "delta.`{folder}/delta/{name}`",
}
"""Names of tables, by format and catalog."""

PARTITIONS = 3
RECORDS = 4
"""Records of a batch."""

# Statements of a driver after which it is killed, whatever they are.
_MOST_STEPS = 100


class GrowingTopic:
    """A topic whose logs the race extends."""

    def __init__(self, folder: Path) -> None:
        self._lock = threading.Lock()
        self.folder = folder
        self.next_offset = [0] * PARTITIONS
        self.damaged: set[tuple[int, int]] = set()
        for partition in range(PARTITIONS):
            segment_path(folder, "raced", partition).touch()
            self.grow(partition)

    def grow(self, partition: int) -> None:
        with self._lock, segment_path(self.folder, "raced", partition).open("ab") as log:
            offset = self.next_offset[partition]
            if partition == 0:  # every second batch is damaged
                bad = bytearray(plain_batch(offset, RECORDS))
                bad[-1] ^= 1
                log.write(bad)
                self.damaged.add((partition, offset))
                offset += RECORDS
            log.write(plain_batch(offset, RECORDS))
            self.next_offset[partition] = offset + RECORDS

    def offsets(self) -> set[tuple[int, int]]:
        """The offsets of intact batches."""
        lost = {(one, at + n) for one, at in self.damaged for n in range(RECORDS)}
        return {(one, at) for one, end in enumerate(self.next_offset) for at in range(end)} - lost


class Driver:
    """A process with a session of Spark, see lake_driver.py; killed with its JVM."""

    def __init__(self, folder: Path, master: str = "local[1]") -> None:
        install()
        self.folder = folder
        paths = [str(pyspark_folder()), str(ROOT), os.environ.get("PYTHONPATH", "")]
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(path for path in paths if path),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        environment.pop("SPARK_HOME", None)
        module = ["-m", "tests.oracle.lake_driver"]
        self._process = subprocess.Popen(
            [sys.executable, *module, str(folder), master],
            cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True, start_new_session=True,
        )  # fmt: skip

    def tell(self, verb: str, **arguments: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([verb, arguments]) + "\n")
        self._process.stdin.flush()

    def hear(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the driver is gone")
        found: dict[str, Any] = json.loads(line)
        return found

    def ask(self, verb: str, **arguments: Any) -> Any:
        """Run a verb and return its result."""
        self.tell(verb, **arguments)
        while "result" not in (said := self.hear()):
            if "error" in said:
                raise RuntimeError(said["error"])
        return said["result"]

    def kill(self) -> None:
        """Kill the driver and its JVM, as a failure of the machine would."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(HANG_SECONDS)
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):
                stream.close()


def race(
    kind: str, kills: int, folder: Path, *, seed: int = 1, upsert: bool = False
) -> Counter[str]:
    """
    Run two drivers at once, killed at each of their statements; then a last one.

    Return how often a driver was killed during or after each statement. Raises `AssertionError`
    if the table does not contain each offset once.
    """
    topic = GrowingTopic(folder / "data")
    table = TABLES[kind].format(folder=folder, name="raced")
    arguments = {"path": str(topic.folder), "table": table, "upsert": upsert}
    arguments["table_format"] = kind.partition("-")[0]
    killed, aims = Counter[str](), Counter[str]()
    chances = [random.Random(2 * seed + number) for number in range(2)]
    catalog = RestCatalog(folder) if kind == "iceberg-rest" else contextlib.nullcontext()
    with catalog:
        with ThreadPoolExecutor() as pool:
            lives = [
                pool.submit(
                    _die_repeatedly, folder, topic, arguments, kills // 2, chance, killed, aims
                )
                for chance in chances
            ]
            for one in lives:
                one.result()
        last = Driver(folder)
        try:
            last.ask("write_table", **arguments)
            for name, expected in [
                (table, topic.offsets()),
                (problems_name(table), topic.damaged),
            ]:
                text = f"SELECT `partition`, offset, count(*) AS times FROM {name} GROUP BY ALL"
                require_each_once(last.ask("query", text=text), expected)
        finally:
            last.kill()
    return killed


def _die_repeatedly(
    folder: Path,
    topic: GrowingTopic,
    arguments: dict[str, Any],
    kills: int,
    chance: random.Random,
    killed: Counter[str],
    aims: Counter[str],
) -> None:
    """Start a driver that fills the table, kill it at one of its statements, and start again."""
    for _ in range(kills):
        # In turn, because most statements only read; some occur only in a new table.
        target = min(aims, key=aims.__getitem__, default="")
        aims[target] += 1
        occurrences = chance.randrange(1, 5)
        driver = Driver(folder)
        try:
            for _ in range(_MOST_STEPS):
                ((when, what),) = (said := driver.hear()).items()
                if "error" in said:
                    print(said["error"][:500], flush=True)
                if when not in ("before", "after"):
                    topic.grow(chance.randrange(PARTITIONS))
                    driver.tell("write_table", maxOffsetsPerTrigger=4 * RECORDS, **arguments)
                    continue
                step = f"{when} {what}"
                aims.setdefault(step, 0)
                occurrences -= step == target or not target
                if occurrences <= 0:
                    break
            if when == "before":
                time.sleep(chance.random() / 2)  # while the statement runs
            killed[step] += 1
            if killed.total() % 10 == 0:
                print(f"{killed.total()} kills", flush=True)
        finally:
            driver.kill()


def require_each_once(rows: list[dict[str, int]], expected: set[tuple[int, int]]) -> None:
    """Compare the offsets of a table with those of the logs."""
    found = {(row["partition"], row["offset"]): row["times"] for row in rows}
    twice = sorted(one for one, times in found.items() if times > 1)
    assert not twice, f"offsets that were written twice: {twice[:10]}"
    missing = sorted(expected - found.keys())
    assert not missing, f"offsets that are missing: {missing[:10]}"
    assert found.keys() == expected


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--format", default="iceberg", choices=sorted(TABLES))
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        killed = race(arguments.format, arguments.kills, Path(folder), seed=arguments.seed)
    for what, count in sorted(killed.items()):
        print(f"{count:5} {what}")


if __name__ == "__main__":
    main()
