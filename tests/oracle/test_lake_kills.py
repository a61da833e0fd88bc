"""`write_table` with the real jars of Iceberg and Delta: drivers and executors are killed."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path

import pytest

from tests.oracle.lake_race import TABLES, Driver, race
from tests.oracle.spark_kafka import install, pyspark_folder
from tests.spark.cluster import running_cluster
from tests.spark.java import MISSING, find_java
from tests.spark.logs import DATA, rows
from tests.support.examples import seeds

pytestmark = [pytest.mark.oracle, pytest.mark.slow]

KILLS = len(seeds(4, least=2))


@pytest.mark.parametrize("kind", ["iceberg", "delta"])
def test_a_cluster_whose_executors_are_killed(kind: str, tmp_path: Path) -> None:
    java = find_java()
    assert java is not None, MISSING
    install()
    target = {"table": TABLES[kind].format(folder=tmp_path, name="t"), "table_format": kind}
    with running_cluster(java, tmp_path, pyspark_folder() / "pyspark") as cluster:
        driver = Driver(tmp_path, cluster.url)
        try:
            driver.tell("write_table", path=str(DATA), maxBytesPerTrigger="160k", **target)
            inserts = 0
            while "result" not in (said := driver.hear()):
                assert "error" not in said, said
                if said.get("before") == "INSERT":
                    inserts += 1
                    for pid in cluster.executors(inserts % 2)[:1]:
                        os.kill(pid, signal.SIGKILL)
            assert inserts > 1
            text = f"SELECT topic, `partition`, offset FROM {target['table']}"
            found = driver.ask("query", text=text)
        finally:
            driver.kill()
    expected = [
        (row["topic"], row["partition"], row["offset"])
        for row in rows(path=str(DATA), subscribePattern=".*")
    ]
    assert Counter(tuple(row.values()) for row in found) == Counter(expected)


@pytest.mark.parametrize("kind", ["iceberg", "delta"])
def test_two_drivers_that_are_killed(kind: str, tmp_path: Path) -> None:
    killed = race(kind, KILLS, tmp_path, seed=len(kind))
    assert sum(killed.values()) == KILLS
