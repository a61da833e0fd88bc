"""A real broker serves all kept records of a salvaged data directory."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

import kafkascan as ks
from tests.oracle.brokers import KafkaBroker, OlderBroker
from tests.oracle.build import ClassPaths
from tests.oracle.live_lookups import consume_all
from tests.oracle.live_recovery import (
    SHORT_SESSIONS,
    Load,
    Records,
    Written,
    copy_data_dir,
    fill_and_kill,
    start_and_time,
)
from tests.support.records import log_without_its_marker

pytestmark = pytest.mark.oracle

_LOAD = Load(partitions=2, rounds=30, records_per_round=40)


@pytest.fixture(scope="module")
def written(class_paths: ClassPaths, tmp_path_factory: pytest.TempPathFactory) -> Written:
    return fill_and_kill(tmp_path_factory.mktemp("written"), class_paths, _LOAD)


def _damage(log: Path, choice: random.Random) -> set[int]:
    """Damage batches in all ways; return the offsets of the lost records."""
    batches = ks.scan_batches(log, on_corrupt="stop").batches
    data = bytearray(log.read_bytes())
    # Neither the last batch nor adjacent ones: headers are repaired from their neighbours.
    data_rows = np.flatnonzero(~ks.batches.is_control(batches))[:-1:2]
    lost: set[int] = set()
    for number, row in enumerate(sorted(choice.sample(data_rows.tolist(), min(5, len(data_rows))))):
        start, size = int(batches["position"][row]), int(ks.batches.size_in_bytes(batches)[row])
        if number == 0:  # a field that no checksum covers, but for the leader epoch
            data[start + choice.choice([3, 9, 16])] ^= 1 << choice.randrange(5)
            continue
        if number == 1:
            data[start + choice.randrange(21, size)] ^= 1 << choice.randrange(8)
        elif number == 2:
            data[start : start + size] = bytes(size)
        elif number == 3:
            data[start : start + size // 2] = choice.randbytes(size // 2)
        else:
            data[start + 8 : start + 12] = choice.randbytes(4)
            data[start + size - 1] ^= 1
        first, last = int(batches["base_offset"][row]), int(ks.batches.last_offset(batches)[row])
        lost.update(range(first, last + 1))
    log.write_bytes(data)
    return lost


def test_all_that_is_kept_is_served(
    written: Written, class_paths: ClassPaths, tmp_path: Path
) -> None:
    damaged = copy_data_dir(written.data_dir, tmp_path / "damaged")
    choice = random.Random(8)
    expected: Records = {}
    hurt = 0
    for partition, records in written.acknowledged.items():
        folder = damaged / f"{partition[0]}-{partition[1]}"
        lost = _damage(min(folder.glob("*.log")), choice)
        hurt += bool(lost)
        expected[partition] = {one: of for one, of in records.items() if one not in lost}
    assert hurt >= 10
    (tmp_path / "broker").mkdir()
    done = ks.salvage(damaged, tmp_path / "broker" / "data")
    assert [one.error for one in done.partitions if one.error is not None] == []
    assert done.is_marked_clean
    assert done.lost_bytes > 0
    broker = KafkaBroker(tmp_path / "broker", class_paths, SHORT_SESSIONS)
    try:
        start = start_and_time(broker)
        assert start.recovered_logs == start.recovered_segments == start.unclean_elections == 0
        served = consume_all(broker.bootstrap_servers, expected)
    finally:
        broker.kill()
    for partition, records in expected.items():
        missing = [one for one in records if served[partition].get(one) != records[one]]
        assert missing == [], partition


def test_kafka_itself_gives_up_what_salvage_keeps(
    written: Written, class_paths: ClassPaths, tmp_path: Path
) -> None:
    """Without salvage, the broker fails on one flipped bit."""
    data_dir = copy_data_dir(written.data_dir, tmp_path / "broker")
    partition = ("idempotent-lz4", 0)
    records = written.acknowledged[partition]
    log = min((data_dir / f"{partition[0]}-{partition[1]}").glob("*.log"))
    batches = ks.scan_batches(log, on_corrupt="stop").batches
    data = bytearray(log.read_bytes())
    data[int(batches["position"][1]) + 70] ^= 1
    log.write_bytes(data)
    (segment,) = ks.salvage(log).partitions[0].segments
    assert segment.batches == len(batches) - 1
    broker = KafkaBroker(tmp_path / "broker", class_paths, SHORT_SESSIONS)
    try:
        start_and_time(broker)
        served = consume_all(broker.bootstrap_servers, {partition: records})[partition]
    finally:
        broker.kill()
    assert max(served, default=-1) < int(batches["base_offset"][1])


@pytest.mark.parametrize("kind", [KafkaBroker, OlderBroker])
def test_a_broker_starts_on_a_copy_with_errors(
    kind: type[KafkaBroker], class_paths: ClassPaths, tmp_path: Path
) -> None:
    """A log that no broker loads is not in the copied data directory."""
    with kind(tmp_path / "broker", class_paths) as broker:
        broker.stop()
        (broker.data_dir / "bad-0").mkdir()
        (broker.data_dir / "bad-0" / f"{0:020}.log").write_bytes(log_without_its_marker())
        broker.data_dir.rename(tmp_path / "damaged")
        done = ks.salvage(tmp_path / "damaged", broker.data_dir)
        (bad,) = (one for one in done.partitions if one.error is not None)
        assert bad.destination is not None
        broker.restart()
        broker.stop()
        bad.destination.rename(broker.data_dir / "bad-0")
        (broker.data_dir / ".kafka_cleanshutdown").unlink()
        with pytest.raises(RuntimeError, match="exit"):
            broker.start()
