"""Files that are not in the page cache: time, and bytes that are fetched from the disk.

Bounds: reading the file once, from its first byte to its last, and reading a page for each header
from the disk, 64 at a time. Files are evicted before each round (`posix_fadvise`), with their
indexes. Disks of virtual machines are noisy: contenders take turns, and figures are medians.
"""

from __future__ import annotations

import gc
import mmap
import os
import resource
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import kafkascan as ks

from . import corpora, peers, yardsticks

SIZES = {1_061: 1 << 29, 16_061: 1 << 29, 100_000: 1 << 30, 1_000_000: 1 << 30}
"""Bytes of the segment for each size of batches."""
READ_ONCE = "read the file once (yardstick)"
PAGE_PER_HEADER = "a page per header, 64 in flight (yardstick)"
_BLOCK = 1 << 22
_NAME = f"{0:020}"


class Cost(NamedTuple):
    """What one call takes."""

    seconds: float
    bytes_read: float


@dataclass(frozen=True)
class ColdSegment:
    """A segment beside its index, and the same segment alone."""

    indexed: Path
    alone: Path

    def evict(self) -> None:
        """Drop the files from the page cache."""
        for path in (self.indexed, self.indexed.with_suffix(".index")):
            with open(path, "rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@contextmanager
def cold_segment(batch_size: int) -> Iterator[ColdSegment]:
    """Provide a segment of batches that vary around a size; it is deleted at the end."""
    size = SIZES[batch_size]
    corpora.FOLDER.mkdir(exist_ok=True)
    if shutil.disk_usage(corpora.FOLDER).free < 2 * size:
        raise NotImplementedError("no room for the segment")
    with tempfile.TemporaryDirectory(dir=corpora.FOLDER) as folder:
        found = ColdSegment(Path(folder) / "topic-0", Path(folder) / "alone-0")
        original = corpora.segment(batch_size, varied=True, size=size)
        for one in (found.indexed, found.alone):
            one.mkdir()
            os.link(original, one / f"{_NAME}.log")
        original.unlink()
        found = ColdSegment(*(one / f"{_NAME}.log" for one in (found.indexed, found.alone)))
        entries = ks.build_offset_index(ks.scan_batches(found.indexed).batches, base_offset=0)
        found.indexed.with_suffix(".index").write_bytes(entries.tobytes())
        yield found


def read_once(path: Path) -> None:
    """Read a file from its first byte to its last."""
    block = bytearray(_BLOCK)
    with open(path, "rb", buffering=0) as file:
        while file.readinto(block):
            pass


def cache_in_pages(path: Path, pages: str) -> None:
    """Bring a file into the page cache in pages of 4 KiB, or in larger ones if the system can."""
    content, copy = path.read_bytes(), path.with_suffix(".part")
    with open(copy, "wb") as file:  # what is written at once lies in large pages
        file.write(content)
        os.fsync(file.fileno())
    copy.replace(path)
    if pages == "small":
        with open(path, "rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
            for position in range(0, len(content), mmap.PAGESIZE):
                os.pread(file.fileno(), 1, position)


def cost_of(segment: ColdSegment, function: Callable[[], object]) -> Cost:
    """Call a function with a cold segment."""
    gc.collect()
    segment.evict()
    before, start = _bytes_read(), time.perf_counter()
    function()
    return Cost(time.perf_counter() - start, _bytes_read() - before)


def _bytes_read() -> int:
    """Bytes that this process and its ended children fetched from disks."""
    with open("/proc/self/io") as file:
        own = next(line for line in file if line.startswith("read_bytes"))
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_inblock * 512
    return int(own.split()[1]) + children


def contenders(segment: ColdSegment) -> dict[str, Callable[[], object]]:
    """Our ways to read a cold segment, beside reading the file once."""
    batches = ks.scan_batches(segment.indexed).batches

    def scan_read() -> None:
        with ks.Source(segment.indexed, memory_map=False) as source:
            ks.scan_batches(source)

    bounds: dict[str, Callable[[], object]] = {READ_ONCE: lambda: read_once(segment.indexed)}
    # Smaller batches share pages: a read for each header would slow the disk down for the next one.
    if segment.indexed.stat().st_size > len(batches) * mmap.PAGESIZE:
        bounds[PAGE_PER_HEADER] = lambda: yardsticks.read_pages(
            segment.indexed, batches["position"], 64
        )
    return bounds | {
        "scan_batches": lambda: ks.scan_batches(segment.indexed),
        "scan_batches, no index": lambda: ks.scan_batches(segment.alone),
        "scan_batches, not mapped": scan_read,
        "iter_batches": lambda: [None for _ in ks.iter_batches(segment.indexed)],
        "audit of headers": lambda: ks.audit(segment.indexed.parent, verify=False),
        "verify_crcs": lambda: ks.verify_crcs(segment.indexed, batches),
        "aiokafka, of the file's bytes": lambda: peers.aiokafka_walk(segment.indexed.read_bytes()),
    }


def measure(segment: ColdSegment, rounds: int) -> dict[str, Cost]:
    """Return the medians of each contender; Kafka's tool is called once."""
    jobs = contenders(segment)
    costs: dict[str, list[Cost]] = {name: [] for name in jobs}
    for _ in range(rounds):
        for name, function in jobs.items():
            costs[name].append(cost_of(segment, function))
    if peers.dump_log_is_there():
        name = "kafka-dump-log (FileRecords), with its start"
        costs[name] = [cost_of(segment, lambda: peers.dump_log(segment.indexed))]
    return {
        name: Cost(*(statistics.median(values) for values in zip(*found, strict=True)))
        for name, found in costs.items()
    }


class ColdScan:
    params = (tuple(SIZES),)
    param_names = ("batch_size",)
    timeout = 900

    def track_share_of_bytes(self, batch_size: int) -> float:
        return self._ratio(batch_size).bytes_read

    def track_share_of_time(self, batch_size: int) -> float:
        return self._ratio(batch_size).seconds

    def _ratio(self, batch_size: int) -> Cost:
        with cold_segment(batch_size) as segment:
            once = cost_of(segment, lambda: read_once(segment.indexed))
            scan = cost_of(segment, lambda: ks.scan_batches(segment.indexed))
        return Cost(scan.seconds / once.seconds, scan.bytes_read / once.bytes_read)


def show(batch_size: int, rounds: int = 5) -> None:
    """Print time and bytes of each contender, and both as ratios to reading the file once."""
    with cold_segment(batch_size) as segment:
        costs = measure(segment, rounds)
        size = segment.indexed.stat().st_size
    once = costs[READ_ONCE]
    print(f"\ncold: batches varying around {batch_size:,} bytes, {size:,} bytes in all")
    for name, cost in costs.items():
        print(
            f"  {name:46}{cost.seconds * 1e3:9.1f} ms{cost.seconds / once.seconds:8.3f} x the time"
            f"{cost.bytes_read / 1e6:9.1f} MB{cost.bytes_read / once.bytes_read:8.4f} x the bytes",
            flush=True,
        )


def main() -> None:
    """Print the tables of all batch sizes."""
    for batch_size in SIZES:
        show(batch_size)


if __name__ == "__main__":
    main()
