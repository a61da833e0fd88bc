"""Compare Spark's own Kafka source, kafkascan and Parquet: a topic of a live broker, into sinks.

All of them run in one Spark, of the Kafka source's version: on two threads, and on a standalone
cluster of two workers with a core each. CPU time is that of Spark's processes; the broker's is not
included.
"""

from __future__ import annotations

import itertools
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import kafkascan as ks
from tests.oracle.brokers import KafkaBroker
from tests.oracle.build import ClassPaths, build
from tests.oracle.clients import JavaClients
from tests.oracle.spark_kafka import SparkBeside, lake_conf, pyspark_folder, spark_version
from tests.spark.cluster import running_cluster
from tests.spark.java import find_java

from .rounds import alternate, show
from .table import Contenders

TOPIC, PARTITIONS = "topic", 2
KAFKA, FRAME, SOURCE = "Spark's Kafka source", "kafkascan, DataFrame", "kafkascan, data source"
PARQUET, PLAIN_PARQUET = "spark.read.parquet, snappy", "spark.read.parquet, uncompressed"

# As few partitions as slots; the default of Delta is 50 for each state of a table.
_SMALL = {"spark.databricks.delta.snapshotPartitions": "2"}


def compare(log: Path, rounds: int) -> None:
    """Read a topic whose partitions are copies of a log."""
    try:
        if sys.platform != "linux":
            raise RuntimeError("CPU time is read from /proc")
        class_paths = build()
    except (RuntimeError, OSError) as error:
        print(f"\nSpark's Kafka source: not measured, {str(error).splitlines()[0]}", flush=True)
        return
    with tempfile.TemporaryDirectory(dir=log.parent) as scratch, ExitStack() as stack:
        folder = Path(scratch)
        indexes = {"log.index.size.max.bytes": "10485760"}
        broker = KafkaBroker(folder / "broker", class_paths, indexes)
        _fill(broker, class_paths, log)
        stack.enter_context(broker)
        amount = PARTITIONS * int(ks.scan_batches(log).batches["records_count"].sum())
        size = PARTITIONS * log.stat().st_size / 1e6
        print(f"\nSpark {spark_version()}: a topic of {amount:,} records, {size:.0f} MB in"
              f" {PARTITIONS} partitions", flush=True)  # fmt: skip
        _measure("local[2]", [], broker, folder / "local", amount, rounds)
        (folder / "cluster").mkdir()
        cluster = stack.enter_context(
            running_cluster(find_java() or "", folder / "cluster", pyspark_folder() / "pyspark")
        )
        workers = [one.pid for one in cluster.workers]
        _measure(cluster.url, workers, broker, folder / "tables", amount, rounds)


def _measure(
    master: str,
    workers: Sequence[int],
    broker: KafkaBroker,
    folder: Path,
    records: int,
    rounds: int,
) -> None:
    """Measure each sink."""
    folder.mkdir()
    conf = lake_conf(folder) | _SMALL
    if workers:
        one_core = {"spark.executor.cores": "1", "spark.cores.max": str(len(workers))}
        conf |= one_core | {"spark.executorEnv.PYTHONPATH": str(pyspark_folder())}
    with SparkBeside(master, folder / "spark.log", **conf) as spark:
        processes = [spark.pid, *workers]
        for sink, contenders in _sinks(spark, broker, folder).items():
            title = f"{sink}, {'cluster' if workers else master}"
            show(title, alternate(contenders, rounds, processes), records / 1e6, "M rows/s")


def _sinks(spark: SparkBeside, broker: KafkaBroker, folder: Path) -> dict[str, Contenders]:
    """Return the contenders of each sink."""
    kafka = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": TOPIC}
    files = {"path": str(broker.data_dir), "topics": TOPIC}
    headers = {**files, "view": "batches", "columns": "records_count", "where": "not is_control"}
    numbers = itertools.count()

    def run(sink: str, source: str, **options: Any) -> Callable[[], object]:
        def work() -> object:
            target = f"{folder}/rows" if sink == "parquet" else f"jdb.db.t{next(numbers)}"
            return spark.ask("run", sink=sink, source=source, options=options, target=target)

        return work

    def fill(table_format: str) -> Callable[[], object]:
        def work() -> object:
            catalog = "spark_catalog.default" if table_format == "delta" else "jdb.db"
            arguments = {**files, "table": f"{catalog}.t{next(numbers)}"}
            return spark.ask("write_table", table_format=table_format, **arguments)

        return work

    def export() -> None:
        shutil.rmtree(folder / "exported", ignore_errors=True)
        spark.ask("export", output=str(folder / "exported"), compression="snappy", **files)

    copies = {PARQUET: "snappy", PLAIN_PARQUET: "none"}
    for codec in copies.values():
        copy = {"sink": "parquet", "source": "frame", "target": f"{folder}/{codec}"}
        spark.ask("run", options={**files, "includeHeaders": "true"}, codec=codec, **copy)
    given = {"includeHeaders": "true"}

    def sources(sink: str) -> Contenders:
        return {
            KAFKA: run(sink, "kafka", **kafka, **given),
            FRAME: run(sink, "frame", **files, **given),
            SOURCE: run(sink, "kafkascan", **files, **given),
            PARQUET: run(sink, "parquet", path=f"{folder}/snappy"),
        }

    plain = run("noop", "parquet", path=f"{folder}/none")
    counted = run("sum", "frame", **headers)
    return {
        "all columns": {**sources("noop"), PLAIN_PARQUET: plain},
        "count": {**sources("count"), "kafkascan, headers": counted},
        "to Parquet": {**sources("parquet"), "kafkascan, jobs.export": export},
        "to Iceberg": {
            **sources("iceberg"),
            "kafkascan, jobs.write_table": fill("iceberg"),
            "the same to Delta": fill("delta"),
        },
    }


def _fill(broker: KafkaBroker, class_paths: ClassPaths, log: Path) -> None:
    """Create a topic whose partitions are the log; the broker recovers them as after a crash."""
    with broker:
        clients_log = broker.directory / "clients.log"
        with JavaClients(class_paths.broker, broker.bootstrap_servers, clients_log) as java:
            java.call("createTopic", topic=TOPIC, partitions=PARTITIONS, config={})
        broker.stop()
    for partition in range(PARTITIONS):
        folder = broker.data_dir / f"{TOPIC}-{partition}"
        for index in folder.glob(f"{0:020d}.*"):
            index.unlink()
        shutil.copyfile(log, folder / f"{0:020d}.log")
    (broker.data_dir / ".kafka_cleanshutdown").unlink(missing_ok=True)
