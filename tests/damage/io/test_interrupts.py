"""Ctrl-C ends long work soon, on one thread and on several."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import kafkascan as ks
from tests.support.waiting import HANG_SECONDS, cpu_seconds, wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads the CPU clock of a process")

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
        sent = cpu_seconds(process.pid) if process.poll() is None else 0.0
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=HANG_SECONDS)[0].split()
    assert said[:1] == ["interrupted"], "the work was too short"
    return (float(said[1]) - sent) / threads


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
