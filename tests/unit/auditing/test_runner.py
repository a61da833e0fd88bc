"""Runs of audits: inputs, threads, progress."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import kafkascan as ks
from kafkascan.auditing.log_audit import LogAudit
from kafkascan.io import concurrency, worker_threads
from kafkascan.logs.walking.log_walk import LogSlice
from tests.support.partitions import HealthyPartition
from tests.support.paths import GOLDEN
from tests.support.waiting import HANG_SECONDS, no_new_threads


@pytest.fixture
def all_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use as many threads as requested."""
    monkeypatch.setattr(concurrency, "_SMALL_FILE", 0)


def damage(partition: HealthyPartition) -> None:
    """Break checksums of two segments, one of them in a batch of its own."""
    for number, at in ((0, 500), (2, 300)):
        data = bytearray(partition.log(number).read_bytes())
        data[at] ^= 1
        partition.log(number).write_bytes(data)


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """Logs of different sizes and one that dwarfs them; every other one is damaged."""
    folder = tmp_path / "data"
    for number, segments in enumerate((3, 12, 5, 90, 4, 3)):
        partition = HealthyPartition(folder / f"orders-{number}", segments=segments)
        partition.write()
        if number % 2:
            damage(partition)
    return folder


@pytest.mark.usefixtures("all_are_large")
def test_any_number_of_threads_finds_the_same(data_dir: Path) -> None:
    alone = ks.audit(data_dir, threads=1, deep=True)
    assert [one.partition for one in alone.findings] == [1] * 2 + [3] * 2 + [5] * 2
    assert alone.logs == 6
    for threads in (2, 3, 5, 16):
        found = ks.audit(data_dir, threads=threads, deep=True)
        assert found == alone
    one_log = data_dir / "orders-3"
    assert ks.audit(one_log, threads=4) == ks.audit(one_log, threads=1)


@pytest.mark.usefixtures("all_are_large")
@pytest.mark.parametrize("run", ["kafka-4.4.0", "kafka-4.4.0-killed", "kafka-2.8.2"])
def test_threads_find_the_same_in_golden_data_dirs(run: str) -> None:
    alone = ks.audit(GOLDEN / run / "data", threads=1, now_ms=1 << 41)
    for threads in (2, 7):
        assert ks.audit(GOLDEN / run / "data", threads=threads, now_ms=1 << 41) == alone


@pytest.mark.usefixtures("all_are_large")
def test_logs_are_audited_concurrently(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    met = threading.Barrier(2, timeout=HANG_SECONDS)
    under_way: set[int] = set()
    add = LogAudit.add

    def add_together(log: LogAudit, piece: LogSlice) -> None:
        if len(under_way) < 2:
            under_way.add(threading.get_ident())
            met.wait()
        add(log, piece)

    monkeypatch.setattr(LogAudit, "add", add_together)
    ks.audit(data_dir, threads=2)
    assert len(under_way) == 2


@pytest.mark.usefixtures("all_are_large")
@pytest.mark.parametrize("threads", [1, 4])
def test_progress(data_dir: Path, threads: int) -> None:
    seen: list[tuple[int, int]] = []
    callers: set[int] = set()

    def note(done: int, total: int) -> None:
        seen.append((done, total))
        callers.add(threading.get_ident())

    found = ks.audit(data_dir, threads=threads, on_progress=note)
    total = found.size_in_bytes
    assert seen == sorted(seen)
    assert seen[-1] == (total, total)
    assert {one for _, one in seen} == {total}
    assert callers == {threading.get_ident()}


@pytest.mark.usefixtures("all_are_large")
@pytest.mark.parametrize("threads", [1, 4])
def test_a_progress_callback_may_end_the_audit(
    data_dir: Path, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(worker_threads, "_GRACE", HANG_SECONDS)
    with no_new_threads(), pytest.raises(KeyboardInterrupt):
        ks.audit(data_dir, threads=threads, on_progress=stop)


def test_one_file_is_audited_alone(tmp_path: Path) -> None:
    partition = HealthyPartition(tmp_path / "orders-0")
    partition.write()
    assert ks.audit(partition.log(0)).findings == []
    assert ks.audit(partition.log(0).read_bytes()).findings == []
    data = bytearray(partition.log(0).read_bytes())
    data[500] ^= 1
    assert [one.symbol for one in ks.audit(bytes(data)).findings] == ["CHECKSUM_MISMATCH"]


def test_a_table_of_findings(data_dir: Path) -> None:
    found = ks.audit(data_dir)
    table = found.to_arrow().to_pylist()
    assert [row["symbol"] for row in table] == [one.symbol for one in found.findings]
    assert {"severity", "topic", "partition", "file", "advice"} <= set(table[0])
