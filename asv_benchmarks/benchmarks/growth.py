"""Growth: the same work over more bytes, and over more segments, with planning.

Time per batch should not depend on the size of a log or the number of its segments, and memory
should stay below its documented bound. Each measurement runs in a process of its own. Times are
CPU time of all threads, beside ("+") that of a first call, which imports modules. Memory is the
peak of anonymous pages above that of the imported package.

Logs are sparse: a batch of 100 000 bytes has one record, whose value is zeros, and only the page
with its headers is allocated. Small segments have ten batches of about 1 KB, and are real.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import kafkascan as ks

from . import corpora

GIGABYTES = (1, 10, 100)
SEGMENTS = (100, 10_000, 100_000)
# Verbs that read all bytes stop there: each of them zeroes as many pages of memory.
MOST_CONTENT = 10
_SEGMENT_SIZE = 1 << 30
_LARGE, _SMALL = 100_000, 1_000
_BATCHES_PER_SMALL, _SEGMENTS_PER_PARTITION = 10, 10
_TIME = 1_714_000_000_000
_ALLOCATED_PER_BATCH = 1 << 13

HEADERS = ("scan", "audit of headers", "count", "diff")
CONTENT = ("verify", "records", "audit", "recover", "report")

MEASURE = """
import json, sys, threading, time
import kafkascan as ks
tiny, large, verb, threads = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
path = tiny
def anonymous():
    lines = open("/proc/self/status").read().splitlines()
    return int(next(line for line in lines if line.startswith("RssAnon")).split()[1]) * 1024
def scan():
    return sum(map(len, ks.scan_log_dir(path, threads=threads)))
def verify():
    for _, segment in ks.open_log_dir(path).segments():
        with segment:
            for table in ks.iter_batches(segment):
                assert ks.verify_crcs(segment, table, threads=threads).all()
def records():
    for _, segment in ks.open_log_dir(path).segments():
        for table in ks.iter_records(segment.path):
            pass
def recover():
    found = ks.recover([path], recovery_point=0, threads=threads)
    assert not any(one.error for one in found.partitions)
work = {
    "scan": scan,
    "verify": verify,
    "records": records,
    "audit of headers": lambda: ks.audit(path, verify=False, threads=threads),
    "audit": lambda: ks.audit(path, threads=threads),
    "count": lambda: ks.count_records(path, threads=threads),
    "recover": recover,
    "diff": lambda: ks.diff_logs(path, path, threads=threads),
    "report": lambda: len(str(ks.build_report(path, threads=threads).html)),
}[verb]
start = time.process_time()
work()
start_up = time.process_time() - start
path = large
before, peak, is_done = anonymous(), 0, threading.Event()
def watch():
    global peak
    while not is_done.wait(0.02):
        peak = max(peak, anonymous())
watcher = threading.Thread(target=watch, daemon=True)
watcher.start()
start, cpu = time.perf_counter(), time.process_time()
result = work()
seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
peak = max(peak, anonymous())
is_done.set()
watcher.join()
size = result if verb == "report" else 0
figures = {"seconds": seconds, "cpu": cpu, "grown": peak - before, "page": size}
figures["start_up"] = start_up
print(json.dumps(figures))
"""


def measure(tiny: Path, path: Path, verb: str, threads: int) -> dict[str, float]:
    """Return the figures of one process, which imports what it needs over a tiny data dir."""
    command = [sys.executable, "-c", MEASURE, str(tiny), str(path), verb, str(threads)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise RuntimeError(result.stderr)
    return json.loads(result.stdout)


def _batch(size: int) -> bytes:
    """Return a batch of one record whose value is zeros."""
    return bytes(ks.build_batches(timestamp=[_TIME], value=[bytes(size - 80)]))


def _write_sparse(folder: Path, first: int, count: int) -> None:
    """Write batches that differ in their offsets, which checksums do not cover."""
    batch = _batch(_LARGE)
    head = batch[8:].rstrip(b"\0")
    with open(folder / f"{first:020}.log", "wb", buffering=0) as file:
        for number in range(count):
            offset = (first + number).to_bytes(8, "big")
            os.pwrite(file.fileno(), offset + head, number * len(batch))
        file.truncate(count * len(batch))


@contextmanager
def large_log(gigabytes: int) -> Iterator[tuple[Path, int]]:
    """Provide a data dir of one partition with segments of 1 GiB, and its number of batches."""
    per_segment = _SEGMENT_SIZE // len(_batch(_LARGE))
    total = gigabytes * 10**9 // len(_batch(_LARGE))
    with _folder(total * _ALLOCATED_PER_BATCH) as data_dir:
        partition = data_dir / "growth-0"
        partition.mkdir()
        for first in range(0, total, per_segment):
            _write_sparse(partition, first, min(per_segment, total - first))
        yield data_dir, total


@contextmanager
def small_segments(count: int) -> Iterator[tuple[Path, int]]:
    """Provide a data dir of partitions with ten small segments, and its number of batches."""
    batch = _batch(_SMALL)
    contents = {}
    for first in range(0, _SEGMENTS_PER_PARTITION * _BATCHES_PER_SMALL, _BATCHES_PER_SMALL):
        offsets = range(first, first + _BATCHES_PER_SMALL)
        contents[f"{first:020}.log"] = b"".join(
            offset.to_bytes(8, "big") + batch[8:] for offset in offsets
        )
    with _folder(count * 4 * _ALLOCATED_PER_BATCH) as data_dir:
        for number in range(count // _SEGMENTS_PER_PARTITION):
            partition = data_dir / f"growth-{number}"
            partition.mkdir()
            for name, content in contents.items():
                (partition / name).write_bytes(content)
        yield data_dir, count * _BATCHES_PER_SMALL


@contextmanager
def _folder(allocated: int) -> Iterator[Path]:
    corpora.FOLDER.mkdir(exist_ok=True)
    if shutil.disk_usage(corpora.FOLDER).free < 2 * allocated:
        raise NotImplementedError("no room for the logs")
    with tempfile.TemporaryDirectory(dir=corpora.FOLDER) as folder:
        yield Path(folder)


def show(
    title: str, data_dir: Path, batches: int, calls: list[tuple[str, int]], rounds: int
) -> None:
    """Print what verbs take over a data dir, each with a number of threads."""
    print(f"\ngrowth: {title}, {batches:,} batches")
    for verb, threads in calls:
        with small_segments(_SEGMENTS_PER_PARTITION) as (tiny, _):
            found = [measure(tiny, data_dir, verb, threads) for _ in range(rounds)]
        best = {name: min(one[name] for one in found) for name in found[0]}
        page = f", page of {best['page'] / 1e6:.1f} MB" if best["page"] else ""
        print(
            f"  {verb:18}{threads} threads{best['cpu'] / batches * 1e9:12,.0f} ns of CPU a batch"
            f" + {best['start_up'] * 1e3:,.0f} ms{best['seconds']:10.2f} s"
            f"{best['grown'] / 2**20:10,.0f} MiB{page}",
            flush=True,
        )


def main(arguments: list[str] | None = None) -> None:
    """Print the tables of all sizes."""
    parser = argparse.ArgumentParser(description="The same work over more bytes and segments.")
    parser.add_argument("--gigabytes", type=int, nargs="*", default=GIGABYTES)
    parser.add_argument("--segments", type=int, nargs="*", default=SEGMENTS)
    parser.add_argument("--verbs", nargs="*", default=(*HEADERS, *CONTENT))
    parser.add_argument("--threads", type=int, nargs="*", default=(1, 2))
    parser.add_argument("--rounds", type=int, default=2, help="the first fills the page cache")
    options = parser.parse_args(arguments)
    calls = list(itertools.product(options.verbs, options.threads))
    for gigabytes in options.gigabytes:
        possible = [one for one in calls if one[0] in HEADERS or gigabytes <= MOST_CONTENT]
        with large_log(gigabytes) as (data_dir, batches):
            show(f"{gigabytes} GB", data_dir, batches, possible, options.rounds)
    for count in options.segments:
        with small_segments(count) as (data_dir, batches):
            show(f"{count:,} segments", data_dir, batches, calls, options.rounds)


if __name__ == "__main__":
    main()
