"""`make bench-spark`: tables in Markdown of what reads on Spark cost, each with its ceiling.

A ceiling is the same plan with tasks that yield existing batches: the cost of Spark itself.
Contenders alternate in each round, and every other round in reverse order. A ratio is the median
of the ratios within a round, so that noise of the machine affects both contenders. A step that
would begin after `--minutes` is left out.

python -m benchmarks.spark_table [--master local[1]] [--rounds 5] [--minutes 20] [--small]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kafkascan as ks
from kafkascan.io.concurrency import map_ordered
from kafkascan.spark import jobs, recommended_conf
from kafkascan.spark.options.reader_options import Options
from kafkascan.spark.options.view_schemas import arrow_schema, ddl
from kafkascan.spark.planning.file_listing import list_logs
from kafkascan.spark.planning.read_plan import plan_read
from kafkascan.spark.planning.task_plan import plan
from kafkascan.spark.readers import frames
from kafkascan.spark.rows.task_scan import scan_task

from . import corpora, kafka_source
from .rounds import alternate, print_table, show
from .store_table import KEYS, log_of_records, serving, take_stats
from .table import Contenders

_SEGMENTS = 10
"""Segments of a partition, in the data dirs that are planned."""
_LATENCY, _BANDWIDTH = 0.02, 1e8


def folder_of(log: Path, copies: int) -> Path:
    """Return a data directory whose partitions are links to one log."""
    folder = corpora.FOLDER / f"spark-{log.stem}-{copies}"
    for partition in range(copies):
        link = folder / f"topic-{partition}" / f"{0:020d}.log"
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.exists():
            os.link(log, link)
    return folder


def prebuilt(task: Any, argument: tuple[bytes, int]) -> Iterator[Any]:
    """Yield one batch repeatedly: as many rows as a task of the scan has."""
    import pyarrow as pa

    stream, rows = argument
    batch = pa.ipc.open_stream(stream).read_next_batch()
    while rows > 0:
        yield batch.slice(0, min(rows, batch.num_rows))
        rows -= batch.num_rows


class Channel:
    """A view of a folder by both APIs, and their ceilings with the same number of tasks."""

    def __init__(self, spark: Any, view: str, folder: Path) -> None:
        import pyarrow as pa

        self.spark, self.view, self.folder = spark, view, str(folder)
        options = Options.parse({"path": self.folder, "view": view})
        logs = list_logs(options)
        self.tasks = plan(logs, options)
        self.columns = options.schema()
        batches = [batch for task in self.tasks for batch in scan_task(task, options)]
        self.rows = sum(batch.num_rows for batch in batches)
        self.size = sum(batch.nbytes for batch in batches)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, arrow_schema(self.columns)) as writer:
            writer.write_batch(max(batches[:50], key=lambda batch: batch.num_rows))
        self.argument = (sink.getvalue().to_pybytes(), -(-self.rows // len(self.tasks)))

    def frame(self) -> Any:
        return frames.view(self.spark, self.view, self.folder)

    def frame_ceiling(self) -> Any:
        return frames.map_tasks(self.spark, self.tasks, prebuilt, self.argument, ddl(self.columns))

    def source(self) -> Any:
        return self.spark.read.format("kafkascan").option("view", self.view).load(self.folder)

    def source_ceiling(self) -> Any:
        reader = self.spark.read.format("prebuilt").schema(ddl(self.columns))
        tasks = str(len(self.tasks))
        return reader.options(
            batch=self.argument[0].hex(), rows=self.argument[1], tasks=tasks
        ).load()


def register(spark: Any) -> None:
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    class Reader(DataSourceReader):
        def __init__(self, options: dict[str, str]) -> None:
            self._options = options

        def partitions(self) -> list[InputPartition]:
            return [InputPartition(number) for number in range(int(self._options["tasks"]))]

        def read(self, partition: InputPartition) -> Iterator[Any]:
            import pyarrow as pa

            rows = int(self._options["rows"])
            stream = bytes.fromhex(self._options["batch"])
            batch = pa.ipc.open_stream(stream).read_next_batch()
            while rows > 0:
                yield batch.slice(0, min(rows, batch.num_rows))
                rows -= batch.num_rows

    class Prebuilt(DataSource):
        @classmethod
        def name(cls) -> str:
            return "prebuilt"

        def reader(self, schema: Any) -> DataSourceReader:
            return Reader(dict(self.options))

    spark.dataSource.register(Prebuilt)
    from kafkascan.spark import register as register_ours

    register_ours(spark)


def noop(frame: Any) -> None:
    frame.write.format("noop").mode("overwrite").save()


def compare_apis(spark: Any, folder: Path, view: str, rounds: int) -> None:
    channel = Channel(spark, view, folder)
    size = f"{channel.rows:,} rows of {channel.size / channel.rows:.0f} B"
    for name, read, ceiling in (
        ("DataFrame", channel.frame, channel.frame_ceiling),
        ("data source", channel.source, channel.source_ceiling),
    ):
        contenders: Contenders = {
            "pre-built batches (ceiling)": lambda ceiling=ceiling: noop(ceiling()),
            "kafkascan": lambda read=read: noop(read()),
        }
        title = f"`{view}`, {name}, {size}"
        show(title, alternate(contenders, rounds), channel.rows / 1e6, "M rows/s")


def header_questions(spark: Any, folder: Path, rounds: int) -> None:
    def by_headers() -> None:
        frame = frames.batches(
            spark, folder, columns=["compression_type", "records_count", "max_timestamp"]
        )
        frame.groupBy("compression_type").agg(
            {"records_count": "sum", "max_timestamp": "max"}
        ).collect()

    def by_records() -> None:
        frame = frames.records(
            spark, folder, columns=["compression_type", "timestamp", "key", "value"]
        )
        frame.groupBy("compression_type").agg({"*": "count", "timestamp": "max"}).collect()

    contenders: Contenders = {"decoding records": by_records, "headers": by_headers}
    size = sum(path.stat().st_size for path in folder.rglob("*.log"))
    times = alternate(contenders, rounds)
    show("records and latest time per codec", times, size / 1e9, "GB/s")


def verifying(spark: Any, folder: Path, rounds: int) -> None:
    paths = sorted(folder.rglob("*.log"))
    slots = spark.sparkContext.defaultParallelism

    def verified(path: Path) -> list[bool]:
        with ks.Source(path) as source:
            tables = ks.iter_batches(source, rows=8192)
            return [all(ks.verify_crcs(source, table, threads=1).all() for table in tables)]

    def alone(threads: int) -> None:
        assert all(map_ordered(paths, verified, threads))

    # A slot of Spark is a JVM thread and a Python process. The process scans two files while the
    # JVM thread waits, so the library is measured with one and with two threads per slot.
    contenders: Contenders = {
        f"library, {slots} threads: one per slot": lambda: alone(slots),
        f"library, {2 * slots} threads": lambda: alone(2 * slots),
        "jobs.verify": lambda: jobs.verify(spark, folder),
    }
    size = sum(path.stat().st_size for path in paths)
    show(f"verify: {size / 1e9:.1f} GB", alternate(contenders, rounds), size / 1e9, "GB/s")


def plain_listing(folder: Path) -> int:
    """Return the size of the files of a data dir."""
    size = 0
    with os.scandir(folder) as partitions:
        for partition in partitions:
            if partition.is_dir():
                with os.scandir(partition.path) as files:
                    size += sum(file.stat().st_size for file in files)
    return size


def planning(spark: Any, segments: int, rounds: int) -> None:
    folder = corpora.sparse_data_dir(segments // _SEGMENTS, _SEGMENTS)
    options = Options.parse({"path": str(folder), "view": "records"})
    one = f"topic-{segments // _SEGMENTS // 2 // corpora.PARTITIONS_PER_TOPIC}"
    contenders: Contenders = {
        "plain listing: os.scandir, os.stat": lambda: plain_listing(folder),
        "listing of segments": lambda: list_logs(options),
        "plan of the tasks, with listing": lambda: plan_read(options),
        "kspark.records": lambda: frames.records(spark, folder),
        "kspark.records, one topic": lambda: frames.records(spark, folder, topics=one),
    }
    title = f"planning, {segments:,} segments in {segments // _SEGMENTS:,} partitions"
    show(title, alternate(contenders, rounds), segments / 1e6, "M segments/s")


_MEMORY = """
import json, sys, threading, time
from kafkascan.format.errors import KafkaScanError
from kafkascan.spark.planning.file_listing import list_logs
from kafkascan.spark.options.reader_options import Options
from kafkascan.spark.planning.task_plan import plan
from kafkascan.spark.rows.task_scan import scan_task

def anonymous():
    for line in open("/proc/self/status"):
        if line.startswith("RssAnon"):
            return int(line.split()[1])

options = Options.parse(json.loads(sys.argv[1]))
(task, *_) = plan(list_logs(options), options)
import numpy, pyarrow
before, peak, stop = anonymous(), 0, threading.Event()
def watch():
    global peak
    while not stop.wait(0.002):
        peak = max(peak, anonymous())
thread = threading.Thread(target=watch); thread.start()
end = "complete"
try:
    for batch in scan_task(task, options):
        time.sleep(0.001)
except KafkaScanError as error:
    end = type(error).__name__
stop.set(); thread.join()
print(json.dumps([max(0, peak - before) // 1024, end]))
"""


def memory(folder: Path, compressed: Path) -> None:
    large = log_of_records(1_000_000, 1 << 28).parent
    bombs = corpora.bombs().parent
    rows = []
    for name, path, options in (
        ("records", folder, {}),
        ("records, zstd", compressed, {}),
        ("batches", folder, {"view": "batches"}),
        ("segments", folder, {"view": "segments"}),
        ("records of 1 MB", large, {}),
        ("batches that decompress to 256 MB", bombs, {}),
        ("the same, maxDecompressedSize=128m", bombs, {"maxDecompressedSize": "128m"}),
    ):
        given = json.dumps({"path": str(path), "view": "records", **options})
        command = [sys.executable, "-c", _MEMORY, given]
        result = subprocess.run(command, capture_output=True, text=True, check=True)
        rows.append([name, *json.loads(result.stdout)])
    print_table(["peak additional memory of a task", "MiB", "end"], rows)


def store(spark: Any) -> None:
    """Read an object of a store with the latency and bandwidth of `make bench-store`."""
    rows = []
    for batch_size in (1_000_000, 16_000):
        log = log_of_records(batch_size, 1 << 27)
        with serving(_LATENCY, _BANDWIDTH, [log, log.with_suffix(".index")]) as address:
            settings = {**KEYS, "aws_endpoint": address, "client_options": {"allow_http": True}}
            for view in ("batches", "records"):
                take_stats(address)
                given = {"storageOptions": json.dumps(settings)}
                noop(frames.view(spark, view, "s3://logs/topic-0/", **given))
                requests, size = take_stats(address)
                share = f"{size / log.stat().st_size:.2%}"
                rows.append([f"`{view}`, batches of {batch_size:,} B", requests, share])
    print_table([f"an object of {1 << 27:,} B, with its index", "requests", "bytes"], rows)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--master", default="local[1]")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--small", action="store_true", help="use a quarter of the data")
    parser.add_argument("--only", help="run only these steps (comma-separated)")
    arguments = parser.parse_args()

    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    conf = recommended_conf() | {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.driver.memory": "4g",
        "spark.sql.shuffle.partitions": "2",
    }
    builder = SparkSession.builder.master(arguments.master)
    for name, value in conf.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    register(spark)
    size = 1 << (25 if arguments.small else 27)

    def records(codec: str, copies: int) -> Path:
        return folder_of(corpora.records(codec, size), copies)

    def headers(copies: int) -> Path:
        return folder_of(corpora.segment(1061, varied=True, size=4 * size), copies)

    rounds = arguments.rounds
    print(
        f"{arguments.master}, medians of alternating rounds, {os.cpu_count()} CPUs, load"
        f" {os.getloadavg()[0]:.1f}; recommended_conf(). x: times as fast as the first row, the"
        " median of the ratios within a round.",
        flush=True,
    )
    steps: dict[str, Any] = {
        "kafka": lambda: kafka_source.compare(corpora.records("lz4", size), 3),
        "records": lambda: compare_apis(spark, records("none", 4), "records", rounds),
        "batches": lambda: compare_apis(spark, headers(4), "batches", rounds),
        "planning": lambda: [planning(spark, count, 3) for count in (20_000, 200_000)],
        "memory": lambda: memory(records("none", 4), records("zstd", 1)),
        "store": lambda: store(spark),
        # Enough data that Spark's overhead of 0.3 s per job does not dominate.
        "headers": lambda: header_questions(spark, records("none", 48), 2),
        "verify": lambda: verifying(spark, headers(48), 3),
    }
    end = time.monotonic() + 60 * arguments.minutes
    for name in arguments.only.split(",") if arguments.only else steps:
        if time.monotonic() < end:
            steps[name]()
        else:
            print(f"\n{name}: left out after {arguments.minutes:g} minutes", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
