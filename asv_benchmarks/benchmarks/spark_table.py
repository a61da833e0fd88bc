"""`make bench-spark`: compare each API on Spark with its ceiling, in the same run.

A ceiling is the same plan with tasks that yield existing batches: the cost of Spark itself.
Contenders alternate in each round, and every other round in reverse order. A ratio is the median
of the ratios within a round, so that noise of the machine affects both contenders.

python -m benchmarks.spark_table [--master local[1]] [--rounds 5] [--small]
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kafkascan as ks
from kafkascan.io.concurrency import map_ordered
from kafkascan.spark import jobs, recommended_conf
from kafkascan.spark.options.reader_options import Options
from kafkascan.spark.options.view_schemas import arrow_schema, ddl
from kafkascan.spark.planning.file_listing import ListedSegment, list_files
from kafkascan.spark.planning.task_plan import plan
from kafkascan.spark.readers import frames
from kafkascan.spark.rows.task_scan import scan_task

from . import corpora, kafka_source
from .table import Contenders

MIB = 1 << 20
Times = dict[str, list[float]]
"""Seconds of each contender, per round."""


def alternate(contenders: Contenders, rounds: int) -> Times:
    """Run all contenders once to warm up the JVM, then measure them in alternation."""
    times: Times = {name: [] for name in contenders}
    names = list(contenders)
    for number in range(rounds + 1):
        for name in names:
            start = time.perf_counter()
            contenders[name]()
            if number:
                times[name].append(time.perf_counter() - start)
        names.reverse()
    return times


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
        files = list_files(options)
        self.tasks = plan(files, options)
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


def show(title: str, times: Times, amount: float, unit: str) -> None:
    """Print the median times, and the median ratios of the first contender's time to each."""
    print(f"\n{title}", flush=True)
    first = next(iter(times.values()))
    for name, taken in times.items():
        seconds = statistics.median(taken)
        ratio = statistics.median(a / b for a, b in zip(first, taken, strict=True))
        figure = amount / seconds
        print(f"  {name:42}{seconds:9.3f} s{figure:12.2f} {unit:10}{ratio:7.2f} x", flush=True)


def compare_apis(spark: Any, folder: Path, view: str, rounds: int) -> None:
    for name in ("frame", "source"):
        channel = Channel(spark, view, folder)
        make, ceiling = getattr(channel, name), getattr(channel, f"{name}_ceiling")
        contenders: Contenders = {
            f"{name}: pre-built batches (ceiling)": lambda ceiling=ceiling: noop(ceiling()),
            f"{name}: kafkascan": lambda make=make: noop(make()),
        }
        title = f"{view}: {channel.rows:,} rows, {channel.size / channel.rows:.0f} bytes each"
        show(title, alternate(contenders, rounds), channel.rows / 1e6, "M rows/s")


def against_parquet(spark: Any, folder: Path, rounds: int) -> None:
    with tempfile.TemporaryDirectory(dir=corpora.FOLDER) as scratch:
        contenders: Contenders = {}
        frame = frames.records(spark, folder)
        columns = frame.columns
        for codec in ("none", "snappy"):
            target = f"{scratch}/{codec}"
            frame.write.option("compression", codec).parquet(target)
            contenders[f"spark.read.parquet, {codec}"] = lambda target=target: noop(
                spark.read.parquet(target).select(*columns)
            )
        contenders["kafkascan, frame"] = lambda: noop(frames.records(spark, folder))
        channel = Channel(spark, "records", folder)
        contenders["pre-built batches, frame (ceiling)"] = lambda: noop(channel.frame_ceiling())
        amount = channel.rows / 1e6
        show("compared with Parquet of the same rows", alternate(contenders, rounds), amount,
             "M rows/s")  # fmt: skip


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


def exporting(spark: Any, folder: Path, codec: str, rounds: int) -> None:
    with tempfile.TemporaryDirectory(dir=corpora.FOLDER) as scratch:

        def by_spark() -> None:
            frame = frames.records(spark, folder)
            frame.write.option("compression", codec).mode("overwrite").parquet(f"{scratch}/a")

        def by_job() -> None:
            shutil.rmtree(f"{scratch}/b", ignore_errors=True)
            jobs.export(spark, folder, f"{scratch}/b", compression=codec)

        contenders: Contenders = {"df.write.parquet": by_spark, "jobs.export": by_job}
        size = sum(path.stat().st_size for path in folder.rglob("*.log"))
        show(f"export, {codec}", alternate(contenders, rounds), size / 1e6, "MB/s")
        sizes = [sum(file.stat().st_size for file in Path(scratch, name).rglob("*.parquet"))
                 for name in "ab"]  # fmt: skip
        print(f"  sizes {sizes[0] / 1e6:.0f} and {sizes[1] / 1e6:.0f} MB", flush=True)


def planning() -> None:
    import tracemalloc

    files = [
        ListedSegment(f"/data/topic-{n % 300}/{n * 1000:020d}.log", "topic", n % 300, n, 1 << 30, 0)
        for n in range(100_000)
    ]
    options = Options.parse({"path": "/data", "view": "batches"})
    start = time.perf_counter()
    tasks = plan(files, options)
    seconds = time.perf_counter() - start
    tracemalloc.start()
    kept = plan(files, options)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    print(f"\nplanning 100,000 segments after listing: {seconds:.2f} s, {len(tasks):,} tasks,"
          f" {peak / MIB:.0f} MiB for {len(kept):,} tasks", flush=True)  # fmt: skip


_MEMORY = """
import sys, threading, time
from kafkascan.spark.planning.file_listing import list_files
from kafkascan.spark.options.reader_options import Options
from kafkascan.spark.planning.task_plan import plan
from kafkascan.spark.rows.task_scan import scan_task

def anonymous():
    for line in open("/proc/self/status"):
        if line.startswith("RssAnon"):
            return int(line.split()[1])

options = Options.parse({"path": sys.argv[1], "view": sys.argv[2]})
(task, *_) = plan(list_files(options), options)
import numpy, pyarrow
before, peak, stop = anonymous(), 0, threading.Event()
def watch():
    global peak
    while not stop.wait(0.002):
        peak = max(peak, anonymous())
thread = threading.Thread(target=watch); thread.start()
for batch in scan_task(task, options):
    time.sleep(0.001)
stop.set(); thread.join()
print((peak - before) // 1024)
"""


def memory(folder: Path, compressed: Path) -> None:
    print("\npeak additional anonymous memory of a task, MiB", flush=True)
    for name, path, view in (
        ("records", folder, "records"),
        ("records, zstd", compressed, "records"),
        ("batches", folder, "batches"),
        ("segments", folder, "segments"),
    ):
        command = [sys.executable, "-c", _MEMORY, str(path), view]
        result = subprocess.run(command, capture_output=True, text=True, check=True)
        print(f"  {name:20}{int(result.stdout):6}", flush=True)


def _count(log: Path) -> int:
    return int(ks.scan_batches(log).batches["records_count"].sum())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--master", default="local[1]")
    parser.add_argument("--rounds", type=int, default=5)
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
    records_log = corpora.records("none", size)
    records = folder_of(records_log, 4)
    compressed = folder_of(corpora.records("zstd", size), 1)
    headers_log = corpora.segment(1061, varied=True, size=4 * size)
    headers = folder_of(headers_log, 4)
    rounds = arguments.rounds
    print(f"{arguments.master}, medians of {rounds} alternating rounds, {os.cpu_count()} CPUs, load"
          f" {os.getloadavg()[0]:.1f}; recommended_conf()", flush=True)  # fmt: skip
    steps: dict[str, Any] = {
        "records": lambda: compare_apis(spark, records, "records", rounds),
        "batches": lambda: compare_apis(spark, headers, "batches", rounds),
        "parquet": lambda: against_parquet(spark, folder_of(records_log, 8), rounds),
        # Enough data that Spark's overhead of 0.3 s per job does not dominate.
        "headers": lambda: header_questions(spark, folder_of(records_log, 96), 2),
        "verify": lambda: verifying(spark, folder_of(headers_log, 192), 3),
        "export": lambda: [
            exporting(spark, folder_of(records_log, 8), codec, 3) for codec in ("snappy", "zstd")
        ],
        "kafka": lambda: kafka_source.compare(
            records_log, _count(records_log), arguments.master, rounds
        ),
        "planning": planning,
        "memory": lambda: memory(records, compressed),
    }
    for name in arguments.only.split(",") if arguments.only else steps:
        steps[name]()
    spark.stop()


if __name__ == "__main__":
    main()
