"""Jobs as users run them: a function of a path or a command, once, beside its best peer or bound.

`python -m benchmarks.usage` prints each job with a ratio to the first figure of its group. Times
are CPU time, of commands without their start where the unit is one of bytes, rows or partitions,
because a shared machine changes wall time.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow.parquet

import kafkascan as ks

from . import cold, corpora, dump_log, peers, records, start_up

Job = Callable[[], object]

_ROUNDS = 5
_NAME = f"{0:020}.log"
_SUMMED = 1 << 21
_LONGEST_ARGUMENT = 1 << 17  # of Linux
VERBS = ("info", "audit", "recover", "index check", "report", "advise")
DAMAGE = ("records", "length", "magic", "zeros")


def show(title: str, seconds: dict[str, float], unit: str, amount: float) -> None:
    """Print the figures of a group, and each as a ratio to the first one."""
    print(f"\n{title}", flush=True)
    first = next(iter(seconds.values()))
    for name, value in seconds.items():
        if unit == "GB/s":
            figure = amount / value / 1e9
        else:
            figure = value / amount * {"ns": 1e9, "us": 1e6, "ms": 1e3}[unit[:2]]
        print(f"  {name:44}{figure:12.2f} {unit:15}{value / first:8.2f} x")


def cpu_medians(jobs: dict[str, Job], rounds: int = _ROUNDS) -> dict[str, float]:
    """Return the median CPU seconds of jobs that take turns, those of child processes included."""
    found: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(rounds):
        for name, job in jobs.items():
            start = _cpu_seconds()
            job()
            found[name].append(_cpu_seconds() - start)
    return {name: statistics.median(values) for name, values in found.items()}


def _cpu_seconds() -> float:
    used = [resource.getrusage(of) for of in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def command(*arguments: str | Path, codes: Iterable[int] = (0, 1)) -> Job:
    """Return what runs kafkascan in a process."""
    line = [sys.executable, "-m", "kafkascan", *map(str, arguments)]

    def run() -> None:
        done = subprocess.run(
            line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False, text=True,
            env=start_up.ENVIRONMENT,
        )  # fmt: skip
        if done.returncode not in codes:
            raise RuntimeError(f"{line}: {done.returncode}: {done.stderr}")

    return run


def _touch(table: Iterable[ks.records.Record]) -> int:
    seen = 0
    for one in table:  # as of `peers.aiokafka_records`: a generator would cost more
        seen += one.offset + one.timestamp + len(one.key) + len(one.value)
    return seen


def _segment(name: str, count: int, per_batch: int, value_size: int) -> Path:
    """Return a segment of records with a key and a value of noise; it is written once and kept."""
    path = corpora.FOLDER / f"{name}-{count}-0" / _NAME
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        noise = np.random.default_rng(7).bytes(value_size)
        with open(path.with_suffix(".part"), "wb") as file:
            for first in range(0, count, per_batch):
                numbers = range(first, min(first + per_batch, count))
                file.write(
                    ks.build_batches(
                        key=[b"key-%06d" % number for number in numbers],
                        value=[noise] * len(numbers),
                        offset=first,
                        timestamp=1_714_000_000_000,
                    )
                )
        path.with_suffix(".part").rename(path)
    return path


def rows() -> None:
    """Iteration over records as objects."""
    for count, per_batch in ((1_000, 1), (10_000, 1), (100_000, 1), (100_000, 100)):
        path = _segment(f"rows-{per_batch}", count, per_batch, 100)
        log, table = path.read_bytes(), ks.read_records(path)
        jobs: dict[str, Job] = {
            "aiokafka": lambda log=log: peers.aiokafka_records(log),
            "for r in table": lambda table=table: _touch(table),
            "for r in read_records(path)": lambda path=path: _touch(ks.read_records(path)),
        }
        title = f"records as objects, four fields read: {count:,}, {per_batch} in a batch"
        show(title, cpu_medians(jobs), "ns/record", count)


def frames() -> None:
    """Tables for Arrow, pandas and Polars."""
    table = ks.read_records(corpora.records("none", 1 << 26))
    jobs: dict[str, Job] = {
        "to_arrow": table.to_arrow,
        'to_pandas(dtype_backend="pyarrow")': lambda: table.to_pandas(dtype_backend="pyarrow"),
        "to_pandas": table.to_pandas,
        "to_polars": table.to_polars,
    }
    show("frames of records of 170 bytes", cpu_medians(jobs, 3), "ns/record", len(table))
    path = _segment("large", 200, 1, 1_000_000)
    large, data = ks.read_records(path), ks.Source(path).as_array()
    jobs = {
        "a copy into fresh memory (bound)": data.copy,
        "to_arrow": large.to_arrow,
        "to_arrow(views=True)": lambda: large.to_arrow(views=True),
        "read_records": lambda: ks.read_records(path),
    }
    show("records of 1 MB", cpu_medians(jobs), "us/record", len(large))


def text() -> None:
    """Records as text and Parquet files; the time of a tiny file is subtracted."""
    tiny = _segment("tiny", 10, 1, 100)
    for what, path in {
        "text of 100 to 1000 bytes": dump_log.segment("none", 1 << 28),
        "records of 170 bytes": corpora.partition(corpora.records("none", 1 << 27)) / _NAME,
    }.items():
        with tempfile.TemporaryDirectory(dir=corpora.FOLDER) as folder:
            target = Path(folder) / "records.parquet"
            commands = {
                "dump-log --print-data-log": ("dump-log", "--print-data-log", "--files"),
                "records --format jsonl": ("records", "--format", "jsonl"),
                "records --format csv": ("records", "--format", "csv"),
                "records": ("records",),
                "records --output FILE.parquet": ("records", "--output", target),
            }
            whole = {name: command(*line, path) for name, line in commands.items()}
            start = {f"{name}, start": command(*line, tiny) for name, line in commands.items()}
            seconds = cpu_medians(start | whole, 3)
            table = pyarrow.parquet.read_table(target)
            write = partial(pyarrow.parquet.write_table, table, target, compression="zstd")
            alone = cpu_medians({"pyarrow.parquet.write_table of it alone": write}, 3)
        found = {name: seconds[name] - seconds[f"{name}, start"] for name in commands}
        title = f"text and Parquet: {what}"
        show(title, found | alone, "ms/MB of log", path.stat().st_size / 1e6)


def partitions(count: int) -> Path:
    """Return a data directory of partitions of 31 KB with their side files; it is kept."""
    folder = corpora.FOLDER / f"partitions-{count}"
    if not folder.exists():
        part = folder.with_suffix(".part")
        log = b"".join(
            ks.build_batches(
                key=[b"key-%d" % one for one in range(6)],
                value=[bytes(160)] * 6,
                offset=6 * number,
                timestamp=1_714_000_000_000,
            )
            for number in range(28)
        )
        for number in range(count):
            one = part / f"topic-{number % 50}-{number // 50}"
            one.mkdir(parents=True)
            (one / _NAME).write_bytes(log)
        ks.recover(part, write=True, backup=False, recovery_point=0)
        part.rename(folder)
    return folder


def verbs(count: int) -> None:
    """Commands over thousands of partitions; the time of a small folder is subtracted."""
    folder, few = partitions(count), partitions(50)

    def read_all() -> None:
        for one in folder.rglob("*.log"):
            one.read_bytes()

    with tempfile.TemporaryDirectory(dir=corpora.FOLDER) as output:
        page = ("--output", Path(output) / "page.html")
        jobs: dict[str, Job] = {"read the files": read_all}
        for verb in VERBS:
            more = page if verb == "report" else ()
            for place in (folder, few):
                jobs[f"{verb} {place}"] = command(*verb.split(), place, *more)
        seconds = cpu_medians(jobs, 3)
    per_verb = {verb: seconds[f"{verb} {folder}"] - seconds[f"{verb} {few}"] for verb in VERBS}
    found = {"read the files": seconds["read the files"]} | per_verb
    show(f"{count:,} partitions of 31 KB", found, "us/partition", count - 50)
    for partitions_count in (1_000, 4_000, 16_000):
        _list_segments(partitions_count)


def _list_segments(count: int) -> None:
    """Listing of a data directory, whose partitions may be empty."""
    with tempfile.TemporaryDirectory(dir=corpora.FOLDER) as folder:
        for number in range(count):
            one = Path(folder) / f"topic-{number}"
            one.mkdir()
            (one / _NAME).touch()
        jobs: dict[str, Job] = {"log_segments": lambda: ks.open_log_dir(folder).log_segments()}
        title = f"LogDir.log_segments of {count:,} partitions"
        show(title, cpu_medians(jobs, 3), "us/partition", count)


def damaged(kind: str, size: int) -> bytes:
    """Return batches of 150 bytes of which every second one is damaged."""
    log = np.fromfile(_segment("small", size // 150, 1, 72), np.uint8)
    batches = ks.scan_batches(log).batches[1::2]
    first = batches["position"].astype(np.int64)
    if kind == "zeros":
        sizes = batches["batch_length"].astype(np.int64) + 12
        for position, length in zip(first.tolist(), sizes.tolist(), strict=True):
            log[position : position + length] = 0
    else:
        log[first + {"records": 90, "length": 8, "magic": 16}[kind]] ^= 0x40
    return log.tobytes()


def salvage(megabytes: int) -> None:
    """Salvage of a log whose every second batch is damaged, and of an intact one."""
    seconds = {}
    with tempfile.TemporaryDirectory(dir=corpora.FOLDER) as folder:
        for kind in ("none", *DAMAGE):
            source, target = Path(folder) / kind / "topic-0", Path(folder) / f"{kind}-salvaged"
            source.mkdir(parents=True)
            size = megabytes * 1_000_000
            intact = _segment("small", size // 150, 1, 72).read_bytes()
            (source / _NAME).write_bytes(intact if kind == "none" else damaged(kind, size))
            times = []
            for number in range(3):
                start = _cpu_seconds()
                ks.salvage(source, target / f"topic-{number}")
                times.append(_cpu_seconds() - start)
            seconds[f"damage: {kind}"] = statistics.median(times)
    show("salvage, every second batch of 150 bytes damaged", seconds, "ms/MB of log", megabytes)


def starts() -> None:
    """Whole processes on a tiny file."""
    tiny = _segment("tiny", 10, 1, 100)
    with tempfile.TemporaryDirectory(dir=corpora.FOLDER) as output:
        jobs: dict[str, Job] = {
            "import numpy": lambda: start_up.start("import numpy"),
            "import numpy, with the threads of its BLAS": lambda: subprocess.run(
                [sys.executable, *start_up.PROGRAMS["import numpy"]], check=True
            ),
            "kafkascan --help": command("--help"),
            "kafkascan info --help": command("info", "--help"),
            "import matplotlib.figure": lambda: subprocess.run(
                [sys.executable, "-c", "import matplotlib.figure"], check=True
            ),
            "kafkascan report": command("report", tiny, "--output", Path(output) / "page.html"),
        }
        for verb in ("info", "records", "verify", "audit", "count", "index check"):
            jobs[f"kafkascan {verb}"] = command(*verb.split(), tiny)
        show("processes on a tiny file", cpu_medians(jobs), "ms", 1)


def many_files(count: int) -> None:
    """Headers of many files by dump-log, and records of a folder of segments of one record."""
    logs = sorted(map(str, partitions(count).rglob("*.log")))
    count = min(count, _LONGEST_ARGUMENT // (len(max(logs, key=len)) + 1))
    listed = ",".join(logs[:count])
    jobs: dict[str, Job] = {"dump-log": command("dump-log", "--files", listed)}
    if peers.dump_log_is_there():
        jobs = {"kafka-dump-log": lambda: peers.dump_log(Path(listed))} | jobs
    wall: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(3):
        for name, job in jobs.items():
            start = time.perf_counter()
            job()
            wall[name].append(time.perf_counter() - start)
    medians = {name: statistics.median(values) for name, values in wall.items()}
    show(f"dump-log of headers of {count:,} files, wall time", medians, "ms", 1)
    with tempfile.TemporaryDirectory(dir=corpora.FOLDER) as place:
        log = Path(place) / "topic-0"
        log.mkdir()
        for number in range(1_000):
            batch = bytearray(ks.build_batches(value=[b"v"], offset=number))
            (log / f"{number:020}.log").write_bytes(batch)
        jobs = {
            "scan_log_dir": lambda: ks.scan_log_dir(place, threads=1),
            "read_records": lambda: ks.read_records(log),
        }
        show("a folder of segments of one record", cpu_medians(jobs), "us/segment", 1_000)


def _sum_once(path: Path) -> None:
    """Compute the checksum of a file, read piece by piece into a buffer."""
    block = bytearray(_SUMMED)
    with open(path, "rb", buffering=0) as file:
        while count := file.readinto(block):
            ks.crc32c(memoryview(block)[:count])


def first_sums() -> None:
    """Checksums of a cached file that is opened for them."""
    path = corpora.segment(16_061, varied=True)
    for pages in ("small", "large"):
        cold.cache_in_pages(path, pages)
        batches = ks.scan_batches(path).batches
        jobs: dict[str, Job] = {
            "read the file once": lambda: cold.read_once(path),
            "read and sum 2 MiB at a time": lambda: _sum_once(path),
            "verify_crcs(path)": lambda batches=batches: ks.verify_crcs(path, batches, threads=1),
        }
        title = f"checksums of a file in {pages} pages, opened for them"
        show(title, cpu_medians(jobs), "GB/s", path.stat().st_size)


def cold_records() -> None:
    """Records of a file that is not in the page cache."""
    for codec in ("none", "lz4", "zstd"):
        path = corpora.partition(corpora.records(codec)) / _NAME
        jobs: dict[str, Job] = {
            "read the file once": lambda path=path: cold.read_once(path),
            "iter_records": lambda path=path: [None for _ in ks.iter_records(path)],
        }
        walls: dict[str, list[float]] = {name: [] for name in jobs}
        for _ in range(_ROUNDS):
            for name, job in jobs.items():
                cold.ColdSegment(path, path).evict()
                start = time.perf_counter()
                job()
                walls[name].append(time.perf_counter() - start)
        seconds = {name: statistics.median(values) for name, values in walls.items()}
        if codec != "none":
            alone = records.codec_alone(codec, ks.Source(path))
            start = time.perf_counter()
            alone()
            seconds["the codec alone"] = time.perf_counter() - start
        count = int(ks.scan_batches(path).batches["records_count"].sum())
        show(f"records of a cold file, {codec}, wall time", seconds, "ns/record", count)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the figures of all jobs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=3_000)
    parser.add_argument("--megabytes", type=int, default=16, help="of damaged logs")
    given = parser.parse_args(arguments)
    corpora.FOLDER.mkdir(exist_ok=True)
    rows()
    frames()
    text()
    verbs(given.partitions)
    many_files(given.partitions)
    salvage(given.megabytes)
    starts()
    first_sums()
    cold_records()


if __name__ == "__main__":
    main()
