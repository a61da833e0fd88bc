"""A killed broker with remote storage: recovery keeps the producers whose records are remote."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import kafkascan as ks
from kafkascan.format.file_names import sibling_name
from kafkascan.logs import SegmentFile
from kafkascan.recovery import restore
from kafkascan.tiered import open_tiered
from tests.oracle.brokers import KafkaBroker, remote_storage
from tests.oracle.build import ClassPaths
from tests.oracle.jvm import wait_until
from tests.oracle.live_lookups import consume_all, list_offsets
from tests.oracle.live_recovery import SHORT_SESSIONS, Start, copy_data_dir, start_and_time
from tests.oracle.live_tools import Row, transactions_tool
from tests.oracle.rebuild import Rebuild, read_files
from tests.oracle.stage import filler
from tests.support.waiting import HANG_SECONDS

pytestmark = pytest.mark.oracle

_TOPIC = "tiered.t-1"
_TOPIC_CONFIG = {
    "remote.storage.enable": "true",
    # The smallest that brokers accept.
    "segment.bytes": "1048576",
    "local.retention.bytes": "1",
}


@dataclass(frozen=True)
class Killed:
    """The data directory of a killed broker, and its producers just before."""

    data_dir: Path
    config: dict[str, str]
    producers: list[Row]


@pytest.fixture(scope="module")
def killed(class_paths: ClassPaths, tmp_path_factory: pytest.TempPathFactory) -> Killed:
    root = tmp_path_factory.mktemp("tiered")
    config = SHORT_SESSIONS | remote_storage(root / "remote")
    with KafkaBroker(root, class_paths, config) as broker:
        servers = broker.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
        (created,) = admin.create_topics([NewTopic(_TOPIC, 1, 1, config=_TOPIC_CONFIG)]).values()
        created.result(HANG_SECONDS)
        _write_transaction(servers, "first", records=10)
        _write_transaction(servers, "second", records=4000)
        folder = broker.data_dir / f"{_TOPIC}-0"
        wait_until(
            "the first segments to be remote only",
            lambda: min(int(log.stem) for log in folder.glob("*.log")) > 1000,
            seconds=HANG_SECONDS,
        )
        producers = _producers(class_paths, servers)
        broker.kill()
    return Killed(broker.data_dir, config, producers)


def _write_transaction(servers: str, name: str, *, records: int) -> None:
    producer = Producer(
        {"bootstrap.servers": servers, "transactional.id": name, "log_level": 0, "linger.ms": 5}
    )
    producer.init_transactions(HANG_SECONDS)
    producer.begin_transaction()
    for number in range(records):
        producer.produce(_TOPIC, filler(f"{name}/{number}", 1000))
        producer.poll(0)
    producer.commit_transaction(HANG_SECONDS)


def _producers(class_paths: ClassPaths, servers: str) -> list[Row]:
    """Return the producers that a broker knows, without what only the coordinator's markers set."""
    rows = transactions_tool(
        class_paths, servers, "describe-producers", "--topic", _TOPIC, "--partition", "0"
    )
    return sorted(
        ({name: row[name] for name in _COMPARED} for row in rows), key=lambda row: row["ProducerId"]
    )


_COMPARED = ("ProducerId", "ProducerEpoch", "LastSequence", "CurrentTransactionStartOffset")


@contextmanager
def _started(
    root: Path, class_paths: ClassPaths, killed: Killed
) -> Iterator[tuple[KafkaBroker, Start]]:
    broker = KafkaBroker(root, class_paths, killed.config)
    try:
        yield broker, start_and_time(broker)
    finally:
        broker.kill()


def test_producers_of_remote_segments_survive(
    killed: Killed, class_paths: ClassPaths, tmp_path: Path
) -> None:
    assert len(killed.producers) == 2
    with _started(copy_data_dir(killed.data_dir, tmp_path / "own").parent, class_paths, killed) as (
        broker, start,
    ):  # fmt: skip
        assert start.recovered_logs == start.logs
        assert _producers(class_paths, broker.bootstrap_servers) == killed.producers
    data_dir = copy_data_dir(killed.data_dir, tmp_path / "ours")
    done = ks.recover(data_dir, write=True, truncate=True)
    assert done.is_marked_clean
    (tiered,) = (one for one in done.partitions if one.topic == _TOPIC)
    assert tiered.is_tiered
    assert tiered.log_start_offset == 0 < tiered.segments[0].base_offset
    with _started(data_dir.parent, class_paths, killed) as (broker, start):
        assert start.recovered_logs == 0
        assert _producers(class_paths, broker.bootstrap_servers) == killed.producers


@pytest.mark.parametrize("has_metadata", [True, False])
def test_files_are_those_of_kafkas_classes(
    killed: Killed, class_paths: ClassPaths, tmp_path: Path, has_metadata: bool
) -> None:
    """The metadata log is in one data directory of a broker; its others have a checkpoint."""
    data_dir = copy_data_dir(killed.data_dir, tmp_path)
    if not has_metadata:
        (data_dir / "meta.properties").unlink()
        (data_dir / "log-start-offset-checkpoint").write_text(f"0\n1\n{_TOPIC} 0 0\n")
    folder = data_dir / f"{_TOPIC}-0"
    point = data_dir / "recovery-point-offset-checkpoint"
    known = ks.broker_state.read_offset_checkpoint(point) if point.exists() else {}
    with Rebuild(class_paths.broker, tmp_path / "jvm") as rebuild:
        expected = rebuild.expected_after_load(
            folder, is_tiered=True, recovery_point=known.get((_TOPIC, 0), 0)
        )
    ks.recover(folder, write=True, truncate=True, backup=False)
    assert read_files(folder) == expected
    first = min(folder.glob("*.log"))
    assert len(ks.broker_state.read_producer_snapshot(first.with_suffix(".snapshot"))) == 2


def test_remote_segments_are_read_without_a_broker(killed: Killed, tmp_path: Path) -> None:
    """All records that were produced: those of segments that are remote only, and local ones."""
    tier = open_tiered(killed.data_dir.parent / "remote")
    assert (tier.layout, tier.problems) == ("local", [])
    (remote,) = tier.partitions
    local = ks.open_log_dir(killed.data_dir / f"{_TOPIC}-0").partitions[0]
    assert remote.topic_id == local.topic_id
    assert remote.find_end_offset() is not None
    values: dict[int, bytes] = {}
    for segment in (*remote.log_segments, *local.log_segments):
        table = ks.read_records(segment, verify=True).to_arrow()
        values |= dict(zip(table["offset"].to_pylist(), table["value"].to_pylist(), strict=True))
    written = [filler(f"first/{n}", 1000) for n in range(10)]
    written += [filler(f"second/{n}", 1000) for n in range(4000)]
    names = set(remote.folder.names())
    for segment in remote.log_segments:
        assert {sibling_name(segment.file_name, kind) for kind in ("index", "timeindex")} <= names
    assert [values[offset] for offset in sorted(values)] == written
    # Their indexes, snapshots and epochs are those of their batches.
    assert ks.audit(tier, deep=True).alarms == []


def test_what_the_cluster_knows_is_in_remote_storage(killed: Killed) -> None:
    """Sizes, offsets and ids of ``__remote_log_metadata`` are those of the objects."""
    tier = open_tiered(killed.data_dir.parent / "remote")
    found = ks.internal_topics.compare_remote_segments(killed.data_dir, tier)
    assert (found.sentences(), list(found.problems)) == ([], [])
    assert found.segments["verdict"].count("SAME") >= 2
    ids = set(ks.internal_topics.read_remote_segments(tier).segments["segment_id"])
    assert ids <= set(found.segments["segment_id"])


def test_audits_have_no_alarm(killed: Killed, tmp_path: Path) -> None:
    """The first local segment begins after epochs, transactions and producers of the log."""
    assert ks.audit(killed.data_dir, deep=True).alarms == []
    data_dir = copy_data_dir(killed.data_dir, tmp_path)
    ks.recover(data_dir, write=True, truncate=True)
    found = ks.audit(data_dir, deep=True)
    assert found.alarms == []
    folder = data_dir / f"{_TOPIC}-0"
    assert min(int(log.stem) for log in folder.glob("*.log")) > 1000


def test_local_and_remote_segments_are_one_log(
    killed: Killed, class_paths: ClassPaths, tmp_path: Path
) -> None:
    """From the first remote offset to the local end, as a consumer of the running broker."""
    copy = copy_data_dir(killed.data_dir, tmp_path / "own")
    with _started(copy.parent, class_paths, killed) as (broker, _):
        servers = broker.bootstrap_servers
        served = consume_all(servers, [(_TOPIC, 0)])[_TOPIC, 0]
        tier = open_tiered(killed.data_dir.parent / "remote")
        local = ks.open_log_dir(copy / f"{_TOPIC}-0")
        joined = tier.join(local)
        assert joined.problems == []
        (one,) = joined.partitions
        bases = [log.base_offset for log in one.log_segments]
        assert bases[0] == 0 < (local.partitions[0].log_segments[0].base_offset or 0)
        table = ks.read_records(one, isolation="read_committed").to_arrow()
        offsets = table["offset"].to_pylist()
        assert dict(zip(offsets, table["value"].to_pylist(), strict=True)) == {
            offset: value for offset, (_, value) in served.items()
        }
        assert len(offsets) == len(set(offsets)) == 4010
        times = sorted(set(table["timestamp"].cast("int64").to_pylist()))
        asked = [times[0] - 1, *times[:: max(1, len(times) // 100)], times[-1], times[-1] + 10**6]
        for time, answer in zip(
            asked, list_offsets(servers, [((_TOPIC, 0), one) for one in asked]), strict=True
        ):
            found = ks.lookup_timestamp(one, time)
            assert (-1 if found is None else found.offset) == answer.offset, time
        (end,) = list_offsets(servers, [((_TOPIC, 0), -1)])
        assert one.find_end_offset() == end.offset


def test_a_restored_partition_is_what_a_consumer_reads(
    killed: Killed, class_paths: ClassPaths, tmp_path: Path
) -> None:
    """The cluster is lost: another one, without remote storage, gets what was remote."""
    tier = open_tiered(killed.data_dir.parent / "remote")
    remote = [table_of(one) for one in tier.partitions[0].log_segments]
    expected = {offset: value for table in remote for offset, value in table.items()}
    assert min(expected) < 10 < 1000 < max(expected)
    broker = KafkaBroker(tmp_path, class_paths)
    with broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
        admin.create_topics([NewTopic(_TOPIC, 1, 1)])[_TOPIC].result(HANG_SECONDS)
        partition = broker.data_dir / f"{_TOPIC}-0"
        wait_until("the partition", partition.exists, seconds=HANG_SECONDS)
    topic_id = ks.broker_state.read_partition_metadata(partition / "partition.metadata").topic_id
    shutil.rmtree(partition)
    result = restore(tier, broker.data_dir, new_topic_id=topic_id)
    assert result.is_complete
    assert result.partitions[0].rebuilt == []
    assert ks.audit(partition, deep=True).alarms == []
    again = KafkaBroker(tmp_path, class_paths)
    try:
        start_and_time(again)
        assert consumed(again.bootstrap_servers, max(expected)) == expected
        producers = [row["ProducerId"] for row in killed.producers]
        found = _producers(class_paths, again.bootstrap_servers)
        assert [row["ProducerId"] for row in found] == producers
    finally:
        again.kill()


def table_of(segment: SegmentFile) -> dict[int, bytes]:
    table = ks.read_records(segment, verify=True).to_arrow()
    return dict(zip(table["offset"].to_pylist(), table["value"].to_pylist(), strict=True))


def consumed(servers: str, last_offset: int) -> dict[int, bytes]:
    """Read the partition from its first offset on, up to an offset."""
    # The end of the second transaction was not remote.
    settings = {"group.id": "restored", "isolation.level": "read_uncommitted", "log_level": 0}
    consumer = Consumer({"bootstrap.servers": servers, **settings})
    consumer.assign([TopicPartition(_TOPIC, 0, OFFSET_BEGINNING)])
    found: dict[int, bytes] = {}
    try:
        while last_offset not in found:
            message = consumer.poll(HANG_SECONDS)
            assert message is not None, "the broker sends nothing"
            assert message.error() is None, message.error()
            found[message.offset()] = message.value()
    finally:
        consumer.close()
    return found
