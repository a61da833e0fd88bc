"""The settings with which a broker recovers its logs: of topics, its file, or set while it ran."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

import kafkascan as ks
from tests.oracle.brokers import KafkaBroker, PreviousBroker
from tests.oracle.build import ClassPaths
from tests.oracle.clients import JavaClients
from tests.oracle.live_recovery import SHORT_SESSIONS, copy_data_dir
from tests.oracle.rebuild import read_files
from tests.oracle.stage import filler
from tests.support.waiting import HANG_SECONDS

pytestmark = pytest.mark.oracle

_OWN, _STATIC, _DYNAMIC = 700, 1500, 300
_TOPICS = {"own": {"index.interval.bytes": str(_OWN)}, "default": {}}
_BATCHES = 60


def _set_default_of_brokers(class_paths: ClassPaths, servers: str, log_file: Path) -> None:
    """Set the default of all brokers while they run; librdkafka cannot."""
    with JavaClients(class_paths.broker, servers, log_file) as clients:
        clients.call("alterBrokers", config={"log.index.interval.bytes": str(_DYNAMIC)})


def _write(servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    topics = [NewTopic(name, 1, 1, config=config) for name, config in _TOPICS.items()]
    for created in admin.create_topics(topics).values():
        created.result(HANG_SECONDS)
    producer = Producer({"bootstrap.servers": servers, "log_level": 0, "linger.ms": 0})
    for number in range(_BATCHES):
        for name in _TOPICS:
            producer.produce(name, filler(f"{name}/{number}", 100))
        producer.flush(HANG_SECONDS)


@pytest.mark.parametrize("kind", [KafkaBroker, PreviousBroker])
def test_a_default_that_was_set_while_the_broker_ran_is_applied_after_loading(
    kind: type[KafkaBroker], class_paths: ClassPaths, tmp_path: Path
) -> None:
    config = {**SHORT_SESSIONS, "log.index.interval.bytes": str(_STATIC)}
    with kind(tmp_path / "killed", class_paths, config) as broker:
        servers = broker.bootstrap_servers
        _set_default_of_brokers(class_paths, servers, tmp_path / "clients.log")
        _write(servers)
        broker.kill()
    properties = tmp_path / "killed" / "server.properties"
    ours = copy_data_dir(broker.data_dir, tmp_path / "ours")
    done = ks.recover(ours, write=True, truncate=True, server_properties=properties)
    assert done.is_marked_clean
    copy_data_dir(broker.data_dir, tmp_path / "kafka")
    with kind(tmp_path / "kafka", class_paths, config) as restarted:
        restarted.stop()
    sizes = set()
    for name in _TOPICS:
        found, expected = (read_files(root / f"{name}-0") for root in (ours, restarted.data_dir))
        index = f"{0:020}.index"
        assert found[index] == expected[index]
        sizes.add(len(found[index]))
        batches = ks.scan_batches(ours / f"{name}-0" / f"{0:020}.log").batches
        dynamic = ks.build_offset_index(batches, base_offset=0, interval_bytes=_DYNAMIC)
        assert found[index] != dynamic.tobytes()
    assert len(sizes) == 2
