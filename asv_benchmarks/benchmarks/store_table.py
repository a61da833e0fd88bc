"""Logs in a store of objects beside a plain download of them: ``make bench-store``.

A server on this machine answers after a latency, over a link of some bandwidth; see
`store_server`. Each row is the median of runs that take turns.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import obstore
from obstore.store import S3Store

import kafkascan as ks

from . import corpora

BATCH_SIZES = (1_000_000, 100_000, 16_000)
_OFFSET = np.dtype(">i8")
KEYS = {"aws_access_key_id": "key", "aws_secret_access_key": "secret", "aws_region": "us-east-1"}


class Run(NamedTuple):
    """What a run took: seconds, requests, and requested bytes."""

    seconds: float
    requests: int
    bytes: int


def log_of_records(batch_size: int, size: int) -> Path:
    """Return a log of batches of one record each, with its index; written once and kept."""
    path = corpora.FOLDER / f"records-{batch_size}-{size}" / "00000000000000000000.log"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        value = np.random.default_rng(1).bytes(batch_size - 80)
        one = ks.build_batches(value=[value], batch_size=2 * batch_size)
        count = size // len(one)
        rows = np.tile(np.frombuffer(one, np.uint8), (count, 1))
        rows[:, :8] = np.arange(count).astype(_OFFSET).view(np.uint8).reshape(count, 8)
        part = path.with_suffix(".part")
        rows.tofile(part)
        part.rename(path)
    index = path.with_suffix(".index")
    if not index.exists():
        ks.write_index(index, ks.build_offset_index(ks.scan_batches(path).batches, base_offset=0))
    return path


@contextmanager
def serving(latency: float, bandwidth: float, files: list[Path]) -> Iterator[str]:
    """Run the server; yields its address."""
    command = [sys.executable, "-m", "benchmarks.store_server", str(latency), str(bandwidth)]
    with subprocess.Popen([*command, *map(str, files)], stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(server.stdout.readline())}"
        finally:
            server.kill()


def works(path: Path, address: str) -> dict[str, Callable[[], Any]]:
    """Return what is measured, by name."""
    batches = ks.scan_batches(path).batches
    options = {**KEYS, "aws_endpoint": address, "client_options": {"allow_http": True}}
    url = f"s3://logs/topic-0/{path.name}"
    store = S3Store("logs", config={**KEYS, "aws_endpoint": address},
                    client_options={"allow_http": True})  # fmt: skip

    def download() -> None:
        assert len(obstore.get(store, f"topic-0/{path.name}").bytes()) == path.stat().st_size

    def scan() -> None:
        found = ks.scan_batches(url, storage_options=options).batches
        assert found.tobytes() == batches.tobytes()

    def verify() -> None:
        assert ks.verify_crcs(url, batches, storage_options=options).all()

    def records() -> None:
        tables = ks.iter_records(url, storage_options=options)
        assert sum(map(len, tables)) == len(batches)

    return {"download (obstore)": download, "headers": scan, "checksums": verify,
            "records": records}  # fmt: skip


def measure(work: Callable[[], Any], address: str) -> Run:
    """Run something once."""
    take_stats(address)
    start = time.perf_counter()
    work()
    seconds = time.perf_counter() - start
    return Run(seconds, *take_stats(address))


def take_stats(address: str) -> tuple[int, int]:
    """Return the requests and bytes since the last call."""
    with urllib.request.urlopen(f"{address}/stats") as answer:
        requests, size = answer.read().split()
    return int(requests), int(size)


def measure_all(path: Path, latency: float, bandwidth: float, runs: int) -> dict[str, Run]:
    """Return the medians of runs in turns."""
    with serving(latency, bandwidth, [path, path.with_suffix(".index")]) as address:
        works_here = works(path, address)
        found: dict[str, list[Run]] = {name: [] for name in works_here}
        for _ in range(runs):
            for name, work in works_here.items():
                found[name].append(measure(work, address))
    return {
        name: Run(*(statistics.median(values) for values in zip(*one, strict=True)))
        for name, one in found.items()
    }


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=512_000_000, help="bytes of a log")
    parser.add_argument("--latency", type=float, default=0.02, help="seconds of a request")
    parser.add_argument("--bandwidth", type=float, default=1e8, help="bytes per second")
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    print(f"{options.size / 1e6:.0f} MB, {options.latency * 1e3:.0f} ms per request,"
          f" {options.bandwidth / 1e6:.0f} MB/s; medians of {options.runs}")  # fmt: skip
    print(f"{'batches':>10}  {'':20}{'seconds':>9}{'requests':>10}{'bytes':>9}{'x download':>12}")
    for batch_size in BATCH_SIZES:
        path = log_of_records(batch_size, options.size)
        found = measure_all(path, options.latency, options.bandwidth, options.runs)
        download = found["download (obstore)"].seconds
        for name, run in found.items():
            share = run.bytes / path.stat().st_size
            print(f"{batch_size:>10,}  {name:20}{run.seconds:>9.2f}{run.requests:>10.0f}"
                  f"{share:>9.2%}{download / run.seconds:>12.1f}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
