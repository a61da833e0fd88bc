"""Functions and commands that need batch headers only read little more of files on a disk."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import kafkascan as ks
from tests.support.cold_files import bytes_read, evict
from tests.support.command_line import run
from tests.support.segments import T0

VALUE, COUNT = 100_000, 240
MOST = 0.25


@pytest.fixture(scope="module")
def data_dirs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two data dirs with the same log of two segments, with indexes."""
    rng = np.random.default_rng(11)
    values = [rng.bytes(int(size)) for size in rng.integers(VALUE // 2, 3 * VALUE // 2, COUNT)]
    folder = tmp_path_factory.mktemp("cold")
    partition = folder / "one" / "topic-0"
    partition.mkdir(parents=True)
    half = COUNT // 2
    for first in (0, half):
        times = [T0 + first + number for number in range(half)]
        log = partition / f"{first:020}.log"
        offsets = range(first, first + half)
        log.write_bytes(
            ks.build_batches(timestamp=times, value=values[first:][:half], offset=offsets)
        )
        batches = ks.scan_batches(log).batches
        assert len(batches) == half
        entries = ks.build_offset_index(batches, base_offset=first)
        log.with_suffix(".index").write_bytes(entries.tobytes())
    shutil.copytree(folder / "one", folder / "two")
    return folder / "one", folder / "two"


def share_read(data_dirs: tuple[Path, Path], job: Callable[[], object]) -> float:
    """
    Return the bytes that a job reads from the disk, as a share of one of the data dirs.

    The least of three: modules may have to be read again, too.
    """
    logs = [log for folder in data_dirs for log in folder.rglob("*.log")]
    shares = []
    for _ in range(3):
        for log in logs:
            evict(log)
        before = bytes_read()
        job()
        shares.append((bytes_read() - before) / (sum(log.stat().st_size for log in logs) / 2))
        if shares[-1] <= MOST:
            break
    return min(shares)


def test_functions(data_dirs: tuple[Path, Path]) -> None:
    one, two = data_dirs
    partition = one / "topic-0"
    log = partition / f"{0:020}.log"
    jobs: dict[str, Callable[[], object]] = {
        "iter_batches": lambda: list(ks.iter_batches(log)),
        "scan_batches": lambda: ks.scan_batches(log, on_corrupt="resync"),
        "scan_log_dir": lambda: list(ks.scan_log_dir(one)),
        "audit": lambda: ks.audit(one, verify=False),
        "count_records": lambda: ks.count_records(one),
        "diff_logs": lambda: ks.diff_logs(one, one),
        "diff_logs of a copy": lambda: ks.diff_logs(one, two),
        "lookup_offset": lambda: ks.lookup_offset(partition, COUNT - 2),
        "lookup_timestamp": lambda: ks.lookup_timestamp(partition, T0 + COUNT - 2),
        "find_end_offset": lambda: ks.open_log_dir(one).partitions[0].find_end_offset(),
        "read_transactions": lambda: ks.read_transactions(one),
        "read_producers": lambda: ks.read_producers(one),
    }
    found = {name: share_read(data_dirs, job) for name, job in jobs.items()}
    assert {name: share for name, share in found.items() if share > MOST} == {}


def test_commands(data_dirs: tuple[Path, Path], tmp_path: Path) -> None:
    one, two = data_dirs
    partition = one / "topic-0"
    commands: list[tuple[object, ...]] = [
        ("info", one),
        ("batches", one),
        ("count", one),
        ("txns", one),
        ("producers", one),
        ("audit", "--no-verify", one),
        ("report", "--no-verify", one, "--output", tmp_path / "report.html"),
        ("diff", one, two),
        ("index", "check", one),
        ("index", "build", partition / f"{0:020}.log", "--output", tmp_path / "built.index"),
        ("index", "lookup", partition, "--offset", COUNT - 2),
        ("records", partition, "--from-offset", COUNT - 2),
    ]
    found = {}
    for command in commands:
        done = []
        share = share_read(data_dirs, lambda: done.append(run(*command)))  # noqa: B023
        assert done[0].returncode in (0, 1), done[0].stderr
        found[" ".join(map(str, command[:2]))] = share
    assert {name: share for name, share in found.items() if share > MOST} == {}
