"""A killed broker's data directory, recovered in different ways, loses no confirmed record.

First by kafkascan. Then by Kafka itself, in the broker or by its classes outside of it: those
tests are of the harness, that it tells a recovered directory from a damaged one.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import kafkascan as ks
from tests.oracle.brokers import KafkaBroker
from tests.oracle.build import ClassPaths
from tests.oracle.dump import partition_directories
from tests.oracle.live_lookups import consume_all, first_offsets_of_fetches, list_offsets
from tests.oracle.live_recovery import (
    SHORT_SESSIONS,
    Load,
    Records,
    Start,
    Written,
    copy_data_dir,
    fill_and_kill,
    start_and_time,
)
from tests.oracle.rebuild import Rebuild, read_files
from tests.oracle.stage import T0

pytestmark = pytest.mark.oracle

_LOAD = Load(partitions=2)
_PARTITION = ("idempotent-lz4", 0)


@pytest.fixture(scope="module")
def killed(class_paths: ClassPaths, tmp_path_factory: pytest.TempPathFactory) -> Written:
    return fill_and_kill(tmp_path_factory.mktemp("killed"), class_paths, _LOAD)


@contextmanager
def _started(directory: Path, class_paths: ClassPaths) -> Iterator[tuple[KafkaBroker, Start]]:
    broker = KafkaBroker(directory, class_paths, SHORT_SESSIONS)
    try:
        yield broker, start_and_time(broker)
    finally:
        broker.kill()


def _assert_nothing_is_lost(broker: KafkaBroker, written: Written) -> None:
    found = consume_all(broker.bootstrap_servers, written.acknowledged)
    assert _missing(found, written.acknowledged) == {}
    committed = {one: of for one, of in written.committed().items() if one[0] == "transactional"}
    read = consume_all(broker.bootstrap_servers, committed, committed_only=True)
    assert read == committed


def _missing(found: Records, written: Records) -> dict[object, list[int]]:
    """Return the offsets of confirmed records that are missing or differ."""
    missing = {
        partition: [
            offset for offset, one in records.items() if found[partition].get(offset) != one
        ]
        for partition, records in written.items()
    }
    return {partition: offsets for partition, offsets in missing.items() if offsets}


def _lose_indexes(directory: Path) -> None:
    """Delete, falsify or truncate all files that a broker could rely on."""
    for number, path in enumerate(sorted(directory.iterdir())):
        if path.suffix in (".index", ".timeindex", ".txnindex", ".snapshot"):
            if number % 3 == 0:
                path.write_bytes(b"\x00\x00\x00\x07" * 99)
            else:
                path.unlink()


def test_what_kafkascan_recovers_is_served_as_it_is(
    killed: Written, class_paths: ClassPaths, tmp_path: Path
) -> None:
    data_dir = copy_data_dir(killed.data_dir, tmp_path / "broker")
    partitions = [
        one for one in partition_directories(data_dir) if not one.name.startswith("__cluster")
    ]
    for directory in partitions:
        _lose_indexes(directory)
    done = ks.recover(data_dir, write=True, truncate=True, recovery_point=0)
    assert [one.error for one in done.partitions] == [None] * len(partitions)
    assert done.is_in_order
    assert done.is_marked_clean
    marked = ks.broker_state.read_clean_shutdown(data_dir / ".kafka_cleanshutdown")
    assert marked.broker_epoch == killed.broker_epoch
    with _started(tmp_path / "broker", class_paths) as (broker, start):
        assert start.logs >= len(partitions)
        assert start.recovered_logs == start.recovered_segments == start.unclean_elections == 0
        with pytest.raises(ks.format.LogDirInUseError):
            ks.recover(data_dir, write=True)
        _assert_nothing_is_lost(broker, killed)


def test_the_broker_finds_what_kafkascan_finds(
    killed: Written, class_paths: ClassPaths, tmp_path: Path
) -> None:
    """Thousands of lookups with and without the indexes of our recovery."""
    data_dir = copy_data_dir(killed.data_dir, tmp_path / "broker")
    ks.recover(data_dir, write=True, truncate=True, interval_bytes=100, recovery_point=0)
    choice = random.Random(7)
    count = _LOAD.rounds * _LOAD.records_per_round
    questions = [
        (partition, T0 + choice.randrange(-100, 10 * count + 100))
        for partition in sorted(killed.acknowledged)
        for _ in range(2400 // len(killed.acknowledged))
    ]
    questions += [(partition, T0 + 10**12) for partition in killed.acknowledged]
    directories = {one: data_dir / f"{one[0]}-{one[1]}" for one in killed.acknowledged}
    ours = {
        trust_index: [
            ks.lookup_timestamp(directories[one], time, trust_index=trust_index)
            for one, time in questions
        ]
        for trust_index in (False, True)
    }
    with _started(tmp_path / "broker", class_paths) as (broker, _):
        answers = list(list_offsets(broker.bootstrap_servers, questions))
    expected = [None if one.offset < 0 else (one.offset, one.timestamp) for one in answers]
    for found in ours.values():
        assert [one and (one.offset, one.timestamp) for one in found] == expected
    assert len(questions) >= 2000
    assert None in expected


def test_the_broker_recovers_what_it_wrote(
    killed: Written, class_paths: ClassPaths, tmp_path: Path
) -> None:
    copy_data_dir(killed.data_dir, tmp_path)
    with _started(tmp_path, class_paths) as (broker, start):
        assert start.recovered_logs == start.logs > len(killed.acknowledged)
        assert start.recovered_segments >= start.logs
        _assert_nothing_is_lost(broker, killed)


def test_the_classes_outside_do_what_the_broker_does(
    killed: Written, class_paths: ClassPaths, tmp_path: Path
) -> None:
    """Files are equal, except that a broker that serves again starts a leader epoch."""
    data_dir = copy_data_dir(killed.data_dir, tmp_path / "broker")
    names = [f"{topic}-{partition}" for topic, partition in killed.acknowledged]
    for name in names[::2]:
        _cut_tail(data_dir / name)
    with Rebuild(class_paths.broker, tmp_path / "jvm") as rebuild:
        expected = {name: rebuild.expected_after_load(data_dir / name) for name in names}
    with _started(tmp_path / "broker", class_paths) as (broker, _):
        broker.stop()
    for name in names:
        found = read_files(data_dir / name)
        del found["leader-epoch-checkpoint"], expected[name]["leader-epoch-checkpoint"]
        assert found == expected[name]


def _cut_tail(directory: Path) -> None:
    log = sorted(directory.glob("*.log"))[-1]
    log.write_bytes(log.read_bytes()[:-7])


@pytest.fixture
def recovered_outside(
    killed: Written, class_paths: ClassPaths, tmp_path: Path
) -> Callable[[Callable[[Path], None]], Path]:
    """Return a data directory that Kafka's classes recovered, marked as clean.

    Each partition's directory is passed to a function before.
    """

    def recover(damage: Callable[[Path], None]) -> Path:
        root = tmp_path / "broker"
        data_dir = copy_data_dir(killed.data_dir, root, clean_epoch=killed.broker_epoch)
        with Rebuild(class_paths.broker, tmp_path / "jvm") as rebuild:
            for directory in partition_directories(data_dir):
                if not directory.name.startswith("__cluster"):
                    damage(directory)
                    assert "exception" not in rebuild.load(directory)
                    shutil.rmtree(directory.with_name(f"{directory.name}.loaded"))
        return root

    return recover


def test_a_directory_recovered_outside_is_served_as_it_is(
    killed: Written,
    recovered_outside: Callable[[Callable[[Path], None]], Path],
    class_paths: ClassPaths,
) -> None:
    root = recovered_outside(lambda directory: None)
    with _started(root, class_paths) as (broker, start):
        assert start.recovered_logs == start.recovered_segments == start.unclean_elections == 0
        _assert_nothing_is_lost(broker, killed)


def test_what_is_cut_off_is_missed(
    killed: Written,
    recovered_outside: Callable[[Callable[[Path], None]], Path],
    class_paths: ClassPaths,
) -> None:
    def cut_one(directory: Path) -> None:
        if directory.name == "idempotent-none-1":
            (log,) = directory.glob("*.log")
            log.write_bytes(log.read_bytes()[: log.stat().st_size // 2])

    with _started(recovered_outside(cut_one), class_paths) as (broker, _):
        found = consume_all(broker.bootstrap_servers, killed.acknowledged)
    assert set(_missing(found, killed.acknowledged)) == {("idempotent-none", 1)}


def test_lookups_find_what_was_written(
    killed: Written, class_paths: ClassPaths, tmp_path: Path
) -> None:
    copy_data_dir(killed.data_dir, tmp_path)
    # Timestamps increase by 10 with each offset.
    count = _LOAD.rounds * _LOAD.records_per_round
    times = range(T0, T0 + 10 * count, 7)
    with _started(tmp_path, class_paths) as (broker, _):
        servers = broker.bootstrap_servers
        found = list(list_offsets(servers, [(_PARTITION, time) for time in times]))
        fetched = first_offsets_of_fetches(servers, _PARTITION, range(0, count, 9))
        (end,) = list_offsets(servers, [(_PARTITION, -1)])
    assert [one.offset for one in found] == [-(-(time - T0) // 10) for time in times]
    assert [one.timestamp for one in found] == [T0 + 10 * one.offset for one in found]
    assert fetched == list(range(0, count, 9))
    assert end.offset >= count
