"""`make bench`: one readable table, everything side by side in one run.

Contenders of a job take turns, round by round, so that a noisy machine is noisy for all
of them; figures are medians. Kafka's own classes run in a JVM of their own, warmed up, if
`make oracle` has built them.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import statistics
import tempfile
import time
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import crc32c as crc32c_package
import numpy as np

import kafkascan as ks
from kafkascan._core import checksums
from kafkascan.batches.resyncing.resync import scan_with_resync
from kafkascan.broker_state.indexes import build_indexes
from kafkascan.broker_state.producer_state import ProducerState
from kafkascan.recovery.loading.segment_recovery import recover_segment

from . import (
    building,
    cold,
    compiled_peers,
    corpora,
    dump_log,
    growth,
    logs,
    peers,
    records,
    salvage,
    sweep,
    typed_json,
    typed_values,
    usage,
    yardsticks,
)
from .restamping import Restamp
from .start_up import PROGRAMS, start

Contenders = dict[str, Callable[[], object]]

WALK = "plain walk in C (yardstick)"
READS = "a read for each header, in C (yardstick)"
KNOWN = "headers at known positions, in C (bound)"
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
        print(f"  {name:42}{figure:10.2f} {unit:9}{value / seconds[yardstick]:8.2f} x the time")


def start_up() -> None:
    """Whole processes, from their start to their exit."""
    seconds = medians({name: lambda name=name: start(name) for name in PROGRAMS})
    print("\nstart-up")
    for name, value in seconds.items():
        ratio = value / seconds["import numpy"]
        print(f"  {name:42}{value * 1e3:10.0f} ms{ratio:15.2f} x import numpy")


def scan(batch_size: int, varied: bool) -> None:
    """Header scans over a map whose pages are there."""
    path = corpora.segment(batch_size, varied=varied)
    source, read = ks.Source(path), ks.Source(path, memory_map=False)
    data = source.as_array()
    yardsticks.touch(data)
    positions = ks.scan_batches(source).batches["position"].copy()
    count = len(positions)
    rows = np.ones((count + 1, yardsticks.ROW_SIZE), np.uint8)
    seconds = medians(
        {
            WALK: lambda: yardsticks.plain_walk(data, rows),
            KNOWN: lambda: yardsticks.read_headers(data, positions, rows),
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


def first_touch(batch_size: int, pages: str) -> None:
    """Header scans over a cached file that is opened for them."""
    path = corpora.segment(batch_size, varied=True)
    cold.cache_in_pages(path, pages)
    positions = ks.scan_batches(path).batches["position"].copy()
    count = len(positions)
    rows = np.ones((count + 1, yardsticks.ROW_SIZE), np.uint8)

    def plain_walk() -> None:
        with ks.Source(path) as source:
            yardsticks.plain_walk(source.as_array(), rows)

    def known_positions() -> None:
        with ks.Source(path) as source:
            yardsticks.read_headers(source.as_array(), positions, rows)

    seconds = medians(
        {
            READS: lambda: yardsticks.read_walk(path, rows),
            WALK: plain_walk,
            KNOWN: known_positions,
            "scan_batches": lambda: ks.scan_batches(path, threads=1),
        }
    )
    title = f"scan headers, opened for each scan, cached in {pages} pages: {count:,} batches"
    show(f"{title}, {_sizes(batch_size, True)}", seconds, "ns/batch", count, READS)


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


def rewrite_headers(batch_size: int) -> None:
    """Header fields rewritten in memory."""
    job = Restamp()
    job.setup(batch_size)
    seconds = medians(
        {
            TOUCH: lambda: yardsticks.touch(job.data),
            "verify_crcs, one thread": lambda: ks.verify_crcs(job.data, job.batches, threads=1),
            "restamp_in_place, times": job.sign,
            "restamp_in_place, offsets and epochs": job.move,
        }
    )
    title = f"rewrite headers: {_sizes(batch_size, True)}, {job.data.size:,} bytes in all, warm"
    show(title, seconds, "GB/s", job.data.size, TOUCH)


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
    if codec == "none":
        seconds |= compiled_peers.franz_go(path) | compiled_peers.kafka_protocol(path)
    title = f"decode records: {count:,} of about 170 bytes, {codec}, warm"
    show(title, seconds, "ns/record", count, bound)


def dump(codec: str) -> None:
    """The dump of a segment as text; start-up included."""
    path = dump_log.segment(codec, corpora.SIZE)
    alone = "cat | wc -l (yardstick)"
    contenders: Contenders = {
        alone: lambda: dump_log.copy(path),
        "kafkascan dump-log": lambda: dump_log.dump(path),
    }
    seconds = medians(contenders, rounds=3)
    if peers.dump_log_is_there():
        kafka: Contenders = {"kafka-dump-log": lambda: peers.dump_log(path, *dump_log.ARGUMENTS)}
        seconds |= medians(kafka, rounds=1)
    title = f"dump-log --deep-iteration --print-data-log: batches of 16 KB, {codec}"
    show(title, seconds, "GB/s", path.stat().st_size, alone)


def build(codec: str, given: building.Input) -> None:
    """Batches from columns in memory."""
    copy, alone = "copy into fresh memory", f"{codec} alone"
    contenders: Contenders = {
        "build_batches, of a RecordTable": given.build("table", codec),
        "build_batches, of Arrow's columns": given.build("arrow", codec),
        "iter_built_batches": given.iterate(codec),
    }
    if codec == "none":
        contenders["build_batches, of lists"] = given.build("lists")
        contenders[copy] = lambda: bytearray(given.log)
        contenders["aiokafka"] = given.aiokafka()
    else:
        contenders[alone] = given.codec_alone(codec)
    title = f"build batches of 100: {given.count:,} records of about 170 bytes, {codec}"
    bound = copy if codec == "none" else alone
    show(title, medians(contenders), "ns/record", given.count, bound)


def rebuild(batch_size: int, java: peers.JavaRecovery) -> None:
    """The indexes of a segment, built again; its pages are in the cache."""
    path = corpora.segment(batch_size, varied=True)
    source = ks.Source(path)
    yardsticks.touch(source.as_array())

    def both_indexes(*, verify: bool) -> None:
        batches = ks.scan_batches(source, threads=1).batches
        if verify:
            ks.verify_crcs(source, batches, threads=1)
        build_indexes(batches, 0, 4096)

    seconds = medians(
        {
            TOUCH: lambda: yardsticks.touch(source.as_array()),
            "both indexes, from headers": lambda: both_indexes(verify=False),
            "both indexes, and checksums": lambda: both_indexes(verify=True),
            "all that recovery builds": lambda: recover_segment(
                source, 0, ProducerState(), [], interval_bytes=4096
            ),
        }
    )
    if java.is_there:
        seconds["Kafka's LogSegment.recover"] = java.segment(corpora.partition(path), 8)
    title = f"rebuild: {_sizes(batch_size, True)}, {source.size:,} bytes in all, warm"
    show(title, seconds, "GB/s", source.size, TOUCH)


def recover_data_dir(java: peers.JavaRecovery, *, partitions: int, segments: int) -> None:
    """A whole data dir of small segments, where each file costs."""
    corpora.FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=corpora.FOLDER) as folder:
        lost, killed = Path(folder) / "lost", Path(folder) / "killed"
        corpora.data_dir(lost, partitions=partitions, segments=segments, segment_size=1 << 16)
        shutil.copytree(lost, killed, copy_function=corpora.copy_sparsely)
        ks.recover(killed, write=True, backup=False, recovery_point=0)
        corpora.as_if_killed(killed)
        for original, state in ((killed, "as a killed broker leaves it"), (lost, "indexes lost")):
            seconds = {
                f"recover, threads={threads}": _seconds_to_recover(original, threads)
                for threads in (1, 2)
            }
            if java.is_there:
                found = [java.load(one, 2) for one in sorted(original.iterdir())]
                seconds["Kafka's UnifiedLog.create, summed"] = sum(found)
            title = f"recover {partitions} partitions of {segments} segments of 64 KiB, {state}"
            count = partitions * segments
            show(title, seconds, "ns/segment", count, "recover, threads=1")


def data_dirs() -> None:
    """Whole data dirs, beside each file for itself, as many at once."""
    for data_dir, what in (
        (logs.large(), "4 segments of 512 MiB, batches varying around 1,061 bytes"),
        (logs.idempotent(), "the same sizes, by 100 idempotent producers"),
        (logs.transactional(), "the same sizes, by 100 producers in transactions of 10 batches"),
        (logs.indexed(), "the first 4 segments with their indexes"),
        (logs.small(10_000), "10,000 segments of 10 KiB"),
    ):
        count = logs.scan_each(data_dir)
        # Small segments are read in turn, however many threads are asked for.
        for threads in (1,) if "10 KiB" in what else (1, None):
            seconds = medians(_ways_through(data_dir, threads), rounds=3)
            how = "one thread" if threads == 1 else "all CPUs"
            title = f"data dir, {how}: {what}"
            show(title, seconds, "ns/batch", count, "scan_batches, file by file")


def _ways_through(data_dir: Path, threads: int | None) -> Contenders:
    return {
        "scan_batches, file by file": lambda: logs.each(data_dir, logs.scan_one, threads),
        "scan_log_dir": lambda: logs.scan_all(data_dir, threads),
        "audit of headers": lambda: ks.audit(data_dir, verify=False, threads=threads),
        "verify_crcs, file by file": lambda: logs.each(data_dir, logs.verify_one, threads),
        "audit": lambda: ks.audit(data_dir, threads=threads),
        "read_transactions": lambda: ks.read_transactions(data_dir, threads=threads),
    }


def _seconds_to_recover(original: Path, threads: int) -> float:
    times = []
    for turn in range(3):
        # Copies stay: file systems are slow at making files where some were just deleted.
        copy = original.with_name(f"{original.name}.{threads}.{turn}")
        shutil.copytree(original, copy, copy_function=corpora.copy_sparsely)
        os.sync()
        start = time.perf_counter()
        done = ks.recover(copy, write=True, recovery_point=0, threads=threads)
        times.append(time.perf_counter() - start)
        assert done.is_in_order
        assert len(done.partitions) > 1
    return statistics.median(times)


def resync(batch_size: int) -> None:
    """Scans that go on behind damage, beside plain ones; comparison of two logs."""
    path = corpora.segment(batch_size, varied=True)
    intact, damaged = ks.Source(path), ks.Source(salvage.damaged(batch_size))
    for source in (intact, damaged):
        yardsticks.touch(source.as_array())
    count = len(ks.scan_batches(intact))
    seconds = medians(
        {
            "scan_batches": lambda: ks.scan_batches(intact),
            "… on_corrupt=resync": lambda: ks.scan_batches(intact, on_corrupt="resync"),
            f"… {salvage.DAMAGED_BATCHES} lengths broken": lambda: ks.scan_batches(
                damaged, on_corrupt="resync"
            ),
            "… all checksums looked at": lambda: scan_with_resync(
                damaged, 0, damaged.size, verify=True
            ),
            "diff_logs of two such logs": lambda: ks.diff_logs(intact, damaged),
        }
    )
    title = f"resync: batches {_sizes(batch_size, varied=True)}"
    show(title, seconds, "ns/batch", count, "scan_batches")


def search() -> None:
    """The search for a batch where there is none."""
    noise = b"\xff" * 20 + np.random.default_rng(1).bytes(1 << 26)
    zeros, lies = b"\xff" * 20 + bytes(1 << 26) + b"\xff", salvage.hostile()
    contenders: Contenders = {
        name: lambda data=data: ks.scan_batches(data, on_corrupt="resync")
        for name, data in (("noise", noise), ("zeros", zeros), ("headers that lie", lies))
    }
    show("search in damage of 64 MiB", medians(contenders, 3), "GB/s", 1 << 26, "noise")


def kernels(size: int) -> None:
    """Checksums of bytes in the cache."""
    data = np.random.default_rng(3720).bytes(size)
    calls = max(1, (1 << 25) // size)

    def times(function: Callable[[bytes], object]) -> Callable[[], object]:
        return lambda: [function(data) for _ in range(calls)]

    contenders: Contenders = {
        f"CRC-32C {name}": times(lambda data, name=name: checksums.crc32c(data, 0, name))
        for name in ks.format.crc32c_implementations()[:-1]
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


def json_values() -> None:
    """JSON values of eight fields into typed columns."""
    given = typed_json.values()
    seconds = medians(typed_json.contenders(given))
    title = f"JSON values of 8 fields: {len(given):,}, {len(given[0])} bytes"
    show(title, seconds, "ns/record", len(given), typed_json.KAFKASCAN)


def _sizes(batch_size: int, varied: bool) -> str:
    return f"{'varying around' if varied else 'all of'} {batch_size:,} bytes"


def main() -> None:
    """Print the table."""
    print(f"{platform.machine()}, Python {platform.python_version()}, kafkascan {ks.__version__}")
    print(f"CRC-32C by {ks.crc32c_implementation()}; segments of {corpora.SIZE:,} bytes")
    start_up()
    for batch_size in corpora.BATCH_SIZES:
        for varied in (False, True):
            scan(batch_size, varied)
    for pages in ("small", "large"):
        for batch_size in (160, *cold.SIZES):
            first_touch(batch_size, pages)
    cold.main()
    for batch_size in corpora.BATCH_SIZES:
        for varied in (False, True):
            verify(batch_size, varied)
    for batch_size in corpora.BATCH_SIZES:
        rewrite_headers(batch_size)
    for codec in corpora.RECORD_CODECS:
        decode(codec)
    for codec in ("none", "lz4"):
        dump(codec)
    json_values()
    typed_values.main()
    given = building.Input()
    for codec in corpora.RECORD_CODECS:
        build(codec, given)
    java = peers.JavaRecovery()
    for batch_size in corpora.BATCH_SIZES[1:]:
        rebuild(batch_size, java)
    recover_data_dir(java, partitions=200, segments=20)
    data_dirs()
    java.close()
    for batch_size in corpora.BATCH_SIZES[1:]:
        resync(batch_size)
    search()
    for size in (1_024, 16_384, 1 << 20):
        kernels(size)
    usage.main([])
    sweep.show(sweep.sweep())
    # 100 GB and 100,000 segments take hours: python -m benchmarks.growth
    growth.main(["--gigabytes", "1", "10", "--segments", "100", "10000"])


if __name__ == "__main__":
    main()
