"""Compare Spark's own Kafka source with kafkascan: a topic from a live broker and from its files.

Both run in one Spark, of the Kafka source's version. CPU time is that of Spark's JVM and Python
workers; the broker's CPU time is not included.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
from pathlib import Path

from tests.oracle.brokers import KafkaBroker
from tests.oracle.build import ClassPaths, build
from tests.oracle.clients import JavaClients
from tests.oracle.spark_kafka import SparkBeside, spark_version

TOPIC, PARTITIONS = "topic", 2


def compare(log: Path, records: int, master: str, rounds: int) -> None:
    """Read a topic whose partitions are copies of a log; print rows per second and CPU second."""
    try:
        if sys.platform != "linux":
            raise RuntimeError("CPU time is read from /proc")
        class_paths = build()
    except (RuntimeError, OSError) as error:
        print(f"\nSpark's Kafka source: not measured, {str(error).splitlines()[0]}", flush=True)
        return
    with tempfile.TemporaryDirectory(dir=log.parent) as scratch:
        indexes = {"log.index.size.max.bytes": "10485760"}
        broker = KafkaBroker(Path(scratch), class_paths, indexes)
        _fill(broker, class_paths, log)
        with broker, SparkBeside(master, Path(scratch) / "spark.log") as spark:
            kafka = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": TOPIC}
            files = {"path": str(broker.data_dir), "topics": TOPIC}
            names = {
                "Spark's Kafka source": ("kafka", kafka),
                "kafkascan, data source": ("kafkascan", files),
                "kafkascan, frame": ("frame", files),
            }
            found = spark.ask("measure", specs=list(names.values()), rounds=rounds)
    print(f"\na topic from a live broker, and its files: {PARTITIONS * records:,} rows, Spark"
          f" {spark_version()}, median ratios", flush=True)  # fmt: skip
    first = found[0]
    for name, times in zip(names, found, strict=True):
        seconds, cpu = (statistics.median(column) for column in zip(*times, strict=True))
        ratios = [
            statistics.median(a[kind] / b[kind] for a, b in zip(first, times, strict=True))
            for kind in (0, 1)
        ]
        amount = PARTITIONS * records / 1e6
        print(
            f"  {name:28}{seconds:8.3f} s{amount / seconds:8.2f} M rows/s{ratios[0]:7.2f} x"
            f"{amount / cpu:10.2f} M rows per CPU second{ratios[1]:7.2f} x",
            flush=True,
        )


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
