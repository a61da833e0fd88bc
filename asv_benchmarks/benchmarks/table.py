"""`make bench`: one readable table, everything side by side in one run.

Contenders of a job take turns, round by round, so that a noisy machine is noisy for all
of them; figures are medians. Kafka's own classes run in a JVM of their own, warmed up, if
`make oracle` has built them.
"""

from __future__ import annotations

import importlib.util
import platform
import statistics
import time
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import crc32c as crc32c_package
import numpy as np

import kafkascan as ks
from kafkascan._core import checksums

from . import corpora, peers, records, yardsticks

Contenders = dict[str, Callable[[], object]]

WALK = "plain walk in C (yardstick)"
TOUCH = "touch every line (yardstick)"


def medians(contenders: Contenders, rounds: int = 7) -> dict[str, float]:
    """Return the median seconds of each contender."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, function in contenders.items():
            start = time.perf_counter()
            function()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def show(title: str, seconds: dict[str, float], unit: str, amount: float, yardstick: str) -> None:
    """Print a job's figures, and each as a ratio to the yardstick's time."""
    print(f"\n{title}")
    for name, value in seconds.items():
        figure = value / amount * 1e9 if unit.startswith("ns") else amount / value / 1e9
        print(f"  {name:36}{figure:10.2f} {unit:9}{value / seconds[yardstick]:8.2f} x the time")


def scan(batch_size: int, varied: bool) -> None:
    """Header scans over a map whose pages are there."""
    path = corpora.segment(batch_size, varied=varied)
    source, read = ks.Source(path), ks.Source(path, memory_map=False)
    data = source.as_array()
    yardsticks.touch(data)
    count = len(ks.scan_batches(source))
    rows = np.ones((count + 1, yardsticks.ROW_SIZE), np.uint8)
    seconds = medians(
        {
            WALK: lambda: yardsticks.plain_walk(data, rows),
            "scan_batches": lambda: ks.scan_batches(source, threads=1),
            "iter_batches": lambda: [None for _ in ks.iter_batches(source)],
            "scan_batches, not mapped": lambda: ks.scan_batches(read, threads=1),
        }
    )
    with ThreadPoolExecutor(2) as pool:
        pair = [source, ks.Source(path)]
        yardsticks.touch(pair[1].as_array())
        two = medians(
            {"two files, two threads, each": lambda: list(pool.map(ks.scan_batches, pair))}
        )
    seconds |= {name: value / 2 for name, value in two.items()}
    log = data.tobytes()
    seconds |= medians({"aiokafka": lambda: peers.aiokafka_walk(log)}, rounds=3)
    seconds |= medians({"kafka-python": lambda: peers.kafka_python_walk(log)}, rounds=1)
    seconds |= peers.java(path)[0]
    title = f"scan headers: {count:,} batches, {_sizes(batch_size, varied)}, warm"
    show(title, seconds, "ns/batch", count, WALK)


def first_touch(batch_size: int) -> None:
    """Header scans over a map that is made for them."""
    path = corpora.segment(batch_size, varied=True)
    count = len(ks.scan_batches(path))
    rows = np.ones((count + 1, yardsticks.ROW_SIZE), np.uint8)

    def plain_walk() -> None:
        with ks.Source(path) as source:
            yardsticks.plain_walk(source.as_array(), rows)

    seconds = medians({WALK: plain_walk, "scan_batches": lambda: ks.scan_batches(path)})
    title = f"scan headers, fresh map: {count:,} batches, {_sizes(batch_size, True)}"
    show(title, seconds, "ns/batch", count, WALK)


def verify(batch_size: int, varied: bool) -> None:
    """Checksums over a map whose pages are there."""
    path = corpora.segment(batch_size, varied=varied)
    source = ks.Source(path)
    data = source.as_array()
    yardsticks.touch(data)
    batches = ks.scan_batches(source).batches
    seconds = medians(
        {
            TOUCH: lambda: yardsticks.touch(data),
            "verify_crcs, one thread": lambda: ks.verify_crcs(source, batches, threads=1),
            "verify_crcs": lambda: ks.verify_crcs(source, batches),
        }
    )
    log = data.tobytes()
    slow: Contenders = {
        "crc32c package, given the rows": lambda: peers.crc32c_package_verify(log, batches),
        "aiokafka": lambda: peers.aiokafka_verify(log),
    }
    seconds |= medians(slow, rounds=1)
    seconds |= peers.java(path)[1]
    title = f"verify checksums: {_sizes(batch_size, varied)}, {source.size:,} bytes in all, warm"
    show(title, seconds, "GB/s", source.size, TOUCH)


def decode(codec: str) -> None:
    """Records, over a map whose pages are there."""
    path = corpora.records(codec)
    source = ks.Source(path)
    data = source.as_array()
    yardsticks.touch(data)
    batches = ks.scan_batches(source).batches
    count = int(batches["records_count"].sum())
    bound = TOUCH if codec == "none" else f"{codec} alone"

    def arrow(**options: bool) -> None:
        for table in ks.iter_records(source, batches):
            table.to_arrow(**options)

    contenders: Contenders = {
        TOUCH: lambda: yardsticks.touch(data),
        "iter_records": lambda: [None for _ in ks.iter_records(source, batches)],
        "read_records, one thread": lambda: ks.read_records(source, batches, threads=1),
        "read_records, two threads": lambda: ks.read_records(source, batches, threads=2),
        "iter_records, to_arrow": arrow,
        "iter_records, to_arrow(views=True)": lambda: arrow(views=True),
    }
    if codec == "none":
        contenders["copy into fresh memory"] = data.copy
    else:
        contenders[bound] = records.codec_alone(codec, source)
    seconds = medians(contenders, rounds=5)
    log = data.tobytes()
    seconds |= medians({"aiokafka": lambda: peers.aiokafka_records(log)}, rounds=1)
    seconds |= peers.java_records(path)
    title = f"decode records: {count:,} of about 170 bytes, {codec}, warm"
    show(title, seconds, "ns/record", count, bound)


def kernels(size: int) -> None:
    """Checksums of bytes in the cache."""
    data = np.random.default_rng(3720).bytes(size)
    calls = max(1, (1 << 25) // size)

    def times(function: Callable[[bytes], object]) -> Callable[[], object]:
        return lambda: [function(data) for _ in range(calls)]

    contenders: Contenders = {
        f"CRC-32C {name}": times(lambda data, name=name: checksums.crc32c(data, 0, name))
        for name in ks.crc32c_implementations()[:-1]
    }
    fastest = f"CRC-32C {ks.crc32c_implementation()}, ks.crc32c"
    contenders[fastest] = times(ks.crc32c)
    contenders["crc32c package"] = times(crc32c_package.crc32c)
    if importlib.util.find_spec("awscrt"):
        import awscrt.checksums

        contenders["awscrt"] = times(awscrt.checksums.crc32c)
    for name in checksums.crc32_implementations():
        contenders[f"CRC-32 {name}"] = times(lambda data, name=name: checksums.crc32(data, 0, name))
    contenders["zlib"] = times(zlib.crc32)
    show(f"kernels: {size:,} bytes in cache", medians(contenders), "GB/s", calls * size, fastest)


def _sizes(batch_size: int, varied: bool) -> str:
    return f"{'varying around' if varied else 'all of'} {batch_size:,} bytes"


def main() -> None:
    """Print the table."""
    print(f"{platform.machine()}, Python {platform.python_version()}, kafkascan {ks.__version__}")
    print(f"CRC-32C by {ks.crc32c_implementation()}; segments of {corpora.SIZE:,} bytes")
    for batch_size in corpora.BATCH_SIZES:
        for varied in (False, True):
            scan(batch_size, varied)
    for batch_size in corpora.BATCH_SIZES:
        first_touch(batch_size)
    for batch_size in corpora.BATCH_SIZES:
        for varied in (False, True):
            verify(batch_size, varied)
    for codec in corpora.RECORD_CODECS:
        decode(codec)
    for size in (1_024, 16_384, 1 << 20):
        kernels(size)


if __name__ == "__main__":
    main()
