"""Recovery of partitions with arbitrary bytes ends, and leaves valid files."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import numpy as np
from hypothesis import given, strategies as st

import kafkascan as ks
from tests.support.examples import examples
from tests.support.logs import TRANSACTIONAL, WrittenLog
from tests.support.records import RecordV2, batch_of

NAMES = [
    f"{0:020}.index", f"{0:020}.timeindex", f"{0:020}.txnindex", f"{0:020}.log",
    f"{5:020}.snapshot", f"{20:020}.snapshot", "leader-epoch-checkpoint", f"{9:020}.log.deleted",
    f"{0:020}.log.swap", f"{0:020}.log.cleaned", f"{7:020}.index", f"{2**40:020}.log",
    "partition.metadata", f"{'9' * 30}.log", "٣.log", ".log", "x.snapshot",
]  # fmt: skip
FILES = st.dictionaries(st.sampled_from(NAMES), st.binary(max_size=200), max_size=6)


def partition(folder: Path, seed: int, segments: int) -> None:
    log = WrittenLog(random.Random(seed)).write(40, list(range(5)))
    count = len(log.batches)
    for part in range(segments):
        start, stop = count * part // segments, count * (part + 1) // segments
        base_offset, data = log.segment(start, stop)
        (folder / f"{base_offset:020}.log").write_bytes(data)


@examples(120)
@given(
    seed=st.integers(0, 20),
    segments=st.integers(1, 3),
    files=FILES,
    flips=st.lists(st.tuples(st.integers(0, 2**16), st.integers(1, 255)), max_size=4),
    recovery_point=st.sampled_from([0, 0, 10, 10**6]),
    log_start_offset=st.sampled_from([0, 0, 12, 10**6]),
    interval_bytes=st.sampled_from([0, 100, 4096]),
)
def test_any_bytes(
    seed: int,
    segments: int,
    files: dict[str, bytes],
    flips: list[tuple[int, int]],
    recovery_point: int,
    log_start_offset: int,
    interval_bytes: int,
) -> None:
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root) / "topic-0"
        folder.mkdir()
        partition(folder, seed, segments)
        logs = sorted(folder.glob("*.log"))
        for position, change in flips:
            log = logs[position % len(logs)]
            data = bytearray(log.read_bytes())
            data[position % len(data)] ^= change
            log.write_bytes(data)
        for name, data in files.items():
            (folder / name).write_bytes(data)
        options = {
            "recovery_point": recovery_point,
            "log_start_offset": log_start_offset,
            "interval_bytes": interval_bytes,
            "threads": 1,
        }
        planned = ks.recover(folder, **options)
        done = ks.recover(folder, write=True, truncate=True, **options)
        (partition_planned,), (partition_done,) = planned.partitions, done.partitions
        assert repr(partition_planned.error) == repr(partition_done.error)
        assert partition_planned.changes == partition_done.changes
        if partition_done.error is None:
            assert done.is_in_order
            _assert_valid(folder, partition_done)
        else:
            assert isinstance(partition_done.error, ks.KafkaScanError)


def _assert_valid(folder: Path, done: ks.recovery.PartitionRecovery) -> None:
    for report in done.segments:
        path = folder / report.name
        if not report.is_recovered or not path.exists():
            continue
        scan = ks.scan_batches(path)
        assert scan.end is ks.ScanEnd.CLEAN
        assert ks.verify_crcs(path, scan.batches).all()
        if (np.diff(ks.batches.last_offset(scan.batches)) <= 0).any():
            continue  # checksums do not cover offsets, and Kafka does not notice it either
        for kind in ("index", "timeindex"):
            found = ks.check_index(path.with_suffix(f".{kind}"), scan.batches)
            assert [one for one in found if one.severity is ks.Severity.ERROR] == []


@examples(150)
@given(seed=st.integers(0, 50), change=st.binary(min_size=1, max_size=30), where=st.integers(0))
def test_any_batches(seed: int, change: bytes, where: int) -> None:
    """Arbitrary headers and markers give a result, or an error with a symbol."""
    data = bytearray(WrittenLog(random.Random(seed)).write(30, list(range(4))).log)
    at = where % len(data)
    data[at : at + len(change)] = change[: len(data) - at]
    batches = ks.scan_batches(bytes(data), on_corrupt="stop").batches
    for build in (ks.broker_state.build_producer_snapshot, ks.broker_state.build_transaction_index):
        try:
            build(bytes(data), batches)
        except ks.CorruptBatchError as error:
            assert error.symbol
    ks.broker_state.build_leader_epochs(batches)
    for build_index in (ks.build_offset_index, ks.build_time_index):
        try:
            entries = build_index(batches, base_offset=0, interval_bytes=50)
        except (ks.IndexOverflowError, ks.format.BatchTableError):
            continue
        ks.check_index(entries, batches, base_offset=0)


def test_transactions_at_negative_offsets() -> None:
    log = b"".join(
        batch_of(
            [RecordV2()], base_offset=-5, last_offset_delta=1000 + number, producer_id=1,
            producer_epoch=0, base_sequence=0, attributes=TRANSACTIONAL,
        )
        for number in range(3000)
    )  # fmt: skip
    (entry,) = ks.broker_state.build_producer_snapshot(log)
    assert entry["current_txn_first_offset"] == -1
