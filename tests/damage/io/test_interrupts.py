"""Ctrl-C ends long work soon, on one thread and on several."""

from __future__ import annotations

import gzip
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas
import pytest
import zstandard

import kafkascan as ks
from kafkascan._core.unpacking import Arena
from kafkascan.io.worker_threads import ChunkSizer
from kafkascan.records.decoding import decode_records
from kafkascan.records.decompression import unpacker
from kafkascan.records.read_options import ReadOptions
from kafkascan.tables import table as tables
from kafkascan.write import batch_encoder
from kafkascan.write.batch_encoder import BatchPlan
from tests.support.partitions import HealthyPartition
from tests.support.records import RecordV2, batch_of
from tests.support.waiting import HANG_SECONDS, cpu_seconds, wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads the CPU clock of a process")

GZIP, ZSTD = 1, 4
CPU_SECONDS = 20
"""CPU time of a process that repeats short work, after which it hangs."""

# Work of many seconds on a small file: rows may be given many times.
PREPARE = """
import signal, sys, time
import numpy as np
import kafkascan as ks

source = ks.Source(sys.argv[1])
batches = np.tile(ks.scan_batches(source).batches, int(sys.argv[3]))
threads = int(sys.argv[2])
"""
# A shell that runs the tests in the background makes its processes ignore SIGINT.
PROGRAM = """
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    print("ready", flush=True)
    {work}
except KeyboardInterrupt:
    print("interrupted", time.process_time(), flush=True)
"""
VERIFY = "ks.verify_crcs(source, batches, threads=threads)"
READ = "ks.read_records(source, batches, columns=['offset'], threads=threads)"
ITEMS = "table.items('value')"


def run_interrupted(path: Path, threads: int, times: int, prepare: str, work: str) -> float:
    """Interrupt work that has begun; return the CPU time that each thread still took."""
    for _ in range(5):  # on a busy machine, the work may end before this process sees it begin
        seconds = interrupt_once(path, threads, times, prepare, work)
        if seconds is not None:
            return seconds
    raise AssertionError("the work was too short")


def interrupt_once(path: Path, threads: int, times: int, prepare: str, work: str) -> float | None:
    program = PREPARE + prepare + PROGRAM.format(work=work)
    with subprocess.Popen(
        [sys.executable, "-c", program, str(path), str(threads), str(times)],
        env=os.environ | {"KAFKASCAN_CRC32C": "portable"},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        begun = cpu_seconds(process.pid)
        wait_until(lambda: cpu_seconds(process.pid) > begun + 0.1 or process.poll() is not None)
        process.send_signal(signal.SIGINT)
        # Not before: this process may not run for a while between the two.
        sent = cpu_seconds(process.pid) if process.returncode is None else 0.0
        said = process.communicate(timeout=HANG_SECONDS)[0].split()
    return (float(said[1]) - sent) / threads if said[:1] == ["interrupted"] else None


def log_of(path: Path, codec: str, records: int, size: int) -> Path:
    columns = {"value": [random.randbytes(size // 2).hex().encode() for _ in range(records)]}
    path.write_bytes(ks.build_batches(columns, compression_type=codec))  # type: ignore[arg-type]
    return path


@pytest.mark.parametrize("threads", [1, 2])
def test_verification(tmp_path: Path, threads: int) -> None:
    path = log_of(tmp_path / "0.log", "none", 10_000, 1000)
    assert run_interrupted(path, threads, 1000, "", VERIFY) < 0.7


@pytest.mark.parametrize("threads", [1, 2])
def test_decompression(tmp_path: Path, threads: int) -> None:
    path = log_of(tmp_path / "0.log", "gzip", 2000, 1000)
    assert run_interrupted(path, threads, 500, "", READ) < 0.7


def test_items(tmp_path: Path) -> None:
    path = log_of(tmp_path / "0.log", "none", 1000, 100_000)
    prepare = "table = ks.read_records(source, batches)"
    assert run_interrupted(path, 1, 8, prepare, ITEMS) < 0.7


# ---- numbers of a file -------------------------------------------------------------------------

CHECKS = {
    "check_index": "ks.check_index(index, batches)",
    "audit": "ks.audit(index.parent, verify=False, threads=1)",
    "read_transactions": "ks.read_transactions(index.parent)",
    "count": "ks.count_records(index.parent, deep=True)",
    "recover": "ks.recover(index.parent)",
    "salvage": "ks.salvage(index.parent)",
    "records": "list(ks.iter_records(index.parent, isolation='read_committed', on_corrupt='stop'))",
}


@pytest.mark.parametrize("check", CHECKS)
def test_work_on_extreme_offsets(check: str, tmp_path: Path) -> None:
    """A loop that a number of a file kept running would not notice the signal."""
    partition = HealthyPartition(tmp_path / "t-0", segments=1).write()
    path = partition.log(0)
    with path.open("ab") as log:
        log.write(batch_of([RecordV2()], base_offset=2**63 - 1, producer_id=9))
    prepare = f"""
import pathlib, resource
resource.setrlimit(resource.RLIMIT_CPU, ({CPU_SECONDS}, {CPU_SECONDS}))
index = pathlib.Path(sys.argv[1]).with_suffix(".index")
"""
    work = f"while True: {CHECKS[check]}"
    assert run_interrupted(path, 1, 1, prepare, work) < 0.7


# ---- pieces of loops --------------------------------------------------------------------------

SIZE = 100


def piece_count(monkeypatch: pytest.MonkeyPatch, action: Callable[[], object]) -> int:
    """Count how often signals are handled if a piece is 100 units of work."""
    begun = []
    monkeypatch.setattr(ChunkSizer, "next_size", lambda _: begun.append(1) or SIZE)
    action()
    return len(begun)


def growing_log() -> bytes:
    """Small batches, after which a piece is many batches, then large ones."""
    small = ks.build_batches({"value": [b"x"] * 1000}, batch_size=1)
    return small + ks.build_batches(
        {"value": [b"x" * 10] * 10_000, "offset": range(1000, 11_000)}, batch_size=16_000
    )


def test_large_batches_after_small_ones_are_pieces_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = growing_log()
    batches = ks.scan_batches(log).batches
    large = int((batches["records_count"] > SIZE).sum())
    assert large > 5
    verified = piece_count(monkeypatch, lambda: ks.verify_crcs(log, batches, threads=1))
    assert verified >= len(log) // 2 // ks.batches.size_in_bytes(batches).max()
    assert verified >= large
    options = ReadOptions(columns=["offset"], threads=1)
    assert piece_count(monkeypatch, lambda: decode_records(log, batches, options)) >= 10 + large


def test_encoding_in_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = {"value": [b"%d" % number for number in range(1000)]}
    whole = ks.build_batches(columns, batch_size=100)
    sizes = []
    encode = batch_encoder._encode_run

    def encode_counted(plan: BatchPlan, rows: object, run: slice, *others: object) -> None:
        sizes.append(plan.size(run))
        encode(plan, rows, run, *others)  # type: ignore[arg-type]

    monkeypatch.setattr(batch_encoder, "_encode_run", encode_counted)
    monkeypatch.setattr(batch_encoder, "_LARGEST_RUN", 1000)
    assert ks.build_batches(columns, batch_size=100) == whole
    assert len(sizes) > 5
    assert max(sizes) < len(whole) // 5


def test_conversions_to_pandas_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    log = growing_log()
    table = ks.read_records(log, columns=["offset", "timestamp", "key", "value", "headers"])[:100]
    scan = ks.scan_batches(log)
    expected = table.to_pandas(), scan.to_pandas()
    monkeypatch.setattr(tables, "_PANDAS_ROWS", 7)
    for one, other in zip(expected, (table.to_pandas(), scan.to_pandas()), strict=True):
        pandas.testing.assert_frame_equal(one, other)


@pytest.mark.parametrize("codec", [GZIP, ZSTD])
def test_a_signal_between_compressed_batches(codec: int) -> None:
    """The loop over batches calls libraries, but no Python code that would handle signals."""
    payload = random.randbytes(1 << 10) * (1 << 10)
    data = {GZIP: gzip.compress, ZSTD: zstandard.compress}[codec](payload)
    rows, arena = 10_000, Arena(0, lambda size: np.empty(size, np.uint8))
    columns = np.empty(rows, np.int32), np.empty(rows, np.int64), np.empty(rows, np.int64)
    was = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        with pytest.raises(KeyboardInterrupt):
            unpacker().unpack(
                data, np.zeros(rows, np.int64), np.full(rows, len(data)),
                np.full(rows, codec, np.uint8), arena, 1 << 30, 1 << 30, *columns,
            )  # fmt: skip
    finally:
        signal.signal(signal.SIGALRM, was)
    assert arena.size < 1 << 30, "the work was done before the signal was handled"
