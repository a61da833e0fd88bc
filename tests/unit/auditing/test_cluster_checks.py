"""Logs that contradict Kafka's own topics in the same data dir, and logs that do not."""

from __future__ import annotations

import tarfile
import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import kafkascan as ks
from kafkascan.auditing import cluster_checks
from tests.support.command_line import run
from tests.support.internal_topics import KeyValue, TopicLog, commit, transaction
from tests.support.metadata_logs import metadata_record
from tests.support.paths import GOLDEN
from tests.support.segments import T0

_DIRECTORY = uuid.UUID(int=77)
_ORDERS, _STATES = uuid.UUID(int=5), uuid.UUID(int=6)


def cluster_alarms(path: Path, **options: Any) -> list[ks.auditing.LogFinding]:
    symbols = {"UNASSIGNED_LOG", "MISSING_LOG", "COMMITTED_BEYOND_END", "FORGOTTEN_TRANSACTION"}
    return [one for one in ks.audit(path, **options).alarms if one.symbol in symbols]


def partition(
    topic_id: uuid.UUID, number: int, replicas: tuple[int, ...] = (1,), **fields: object
) -> KeyValue:
    directories = fields.pop("directories", [_DIRECTORY for _ in replicas])
    return None, metadata_record(
        "Partition", 1, partition_id=number, topic_id=topic_id, replicas=list(replicas),
        isr=list(replicas), removing_replicas=[], adding_replicas=[], leader=replicas[0],
        leader_recovery_state=0, leader_epoch=0, partition_epoch=0, directories=directories,
    )  # fmt: skip


def topic_record(name: str, topic_id: uuid.UUID) -> KeyValue:
    return None, metadata_record("Topic", name=name, topic_id=topic_id)


def registration(*log_dirs: uuid.UUID, broker_id: int = 1) -> KeyValue:
    return None, metadata_record(
        "RegisterBroker", 3, broker_id=broker_id, is_migrating_zk_broker=False,
        incarnation_id=uuid.UUID(int=3), broker_epoch=1, end_points=[], features=[], rack=None,
        fenced=False, in_controlled_shutdown=False, log_dirs=list(log_dirs),
    )  # fmt: skip


@pytest.fixture
def metadata(tmp_path: Path) -> TopicLog:
    (tmp_path / "meta.properties").write_text(
        "version=1\nnode.id=1\ncluster.id=c\ndirectory.id=AAAAAAAAAAAAAAAAAAAATQ\n"
    )
    (tmp_path / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":3}')
    log = TopicLog(tmp_path / "__cluster_metadata-0")
    return log.add(topic_record("orders", _ORDERS), partition(_ORDERS, 0))


def write_orders(data_dir: Path, count: int = 2, number: int = 0) -> Path:
    log = TopicLog(data_dir / f"orders-{number}")
    return log.add(*((b"k", b"v") for _ in range(count))).write()


def test_healthy_data_dirs_have_no_finding(tmp_path: Path, metadata: TopicLog) -> None:
    write_orders(tmp_path)
    metadata.write()
    TopicLog(tmp_path / "__consumer_offsets-0").add(commit("g", 0, 2)).write()
    metadata.add(topic_record("__consumer_offsets", _STATES), partition(_STATES, 0)).write()
    found = ks.audit(tmp_path)
    assert found.alarms == []
    (line,) = found.unchecked
    assert "__transaction_state" in line
    for golden in ("kafka-4.4.0", "kafka-4.4.0-killed"):
        assert cluster_alarms(GOLDEN / golden / "data") == []
    assert ks.audit(GOLDEN / "kafka-4.4.0" / "data").unchecked == []
    assert len(ks.audit(GOLDEN / "kafka-2.8.2" / "data").unchecked) >= 1
    assert ks.audit(tmp_path / "orders-0").unchecked == []


def test_offsets_beyond_the_end(tmp_path: Path, metadata: TopicLog) -> None:
    write_orders(tmp_path)
    metadata.write()
    commits = [commit("a", 0, 2), commit("b", 0, 3), commit("c", 0, 9), commit("d", 4, 9)]
    TopicLog(tmp_path / "__consumer_offsets-0").add(*commits).write()
    (found,) = (one for one in cluster_alarms(tmp_path) if one.symbol != "UNASSIGNED_LOG")
    assert (found.symbol, found.topic, found.partition) == ("COMMITTED_BEYOND_END", "orders", 0)
    assert (found.count, found.offset) == (2, 2)
    assert "'c' has committed offset 9" in found.message
    done = run("audit", tmp_path)
    assert done.returncode == 1
    assert "there is no partition of __transaction_state" in done.stderr


@pytest.mark.parametrize(
    ("status", "partitions", "is_found"),
    [
        ("Ongoing", (("orders", 0),), False),
        ("PrepareAbort", (("orders", 0),), False),
        ("CompleteCommit", (), True),
        ("Ongoing", (("orders", 1),), True),
        (None, (), True),
    ],
)
def test_forgotten_transactions(
    tmp_path: Path,
    metadata: TopicLog,
    status: str | None,
    partitions: tuple[tuple[str, int], ...],
    is_found: bool,
) -> None:
    metadata.add(topic_record("__transaction_state", _STATES), partition(_STATES, 0)).write()
    TopicLog(tmp_path / "orders-0").add((b"k", b"v"), producer_id=8).write()
    states = TopicLog(tmp_path / "__transaction_state-0").add(transaction("t", 3, "Empty"))
    if status is not None:
        states.add(transaction("u", 8, status, *partitions))
    states.write()
    found = cluster_alarms(tmp_path, now_ms=T0 + 10**9)
    assert [one.symbol for one in found] == ["FORGOTTEN_TRANSACTION"] * is_found
    # A copy may contain the files as of different moments.
    assert cluster_alarms(tmp_path) == []
    notes = {one.symbol for one in ks.audit(tmp_path).findings}
    assert ("FORGOTTEN_TRANSACTION" in notes) == is_found


def test_producers_of_coordinators_elsewhere_are_no_findings(
    tmp_path: Path, metadata: TopicLog
) -> None:
    states = [partition(_STATES, number, (1, 2)[number:]) for number in range(2)]
    metadata.add(topic_record("__transaction_state", _STATES), *states).write()
    TopicLog(tmp_path / "orders-0").add((b"k", b"v"), producer_id=8).write()
    TopicLog(tmp_path / "__transaction_state-0").add(transaction("t", 3, "Empty")).write()
    assert cluster_alarms(tmp_path, now_ms=T0 + 10**9) == []


def test_logs_that_the_metadata_does_not_assign(tmp_path: Path, metadata: TopicLog) -> None:
    write_orders(tmp_path)
    unknown = TopicLog(tmp_path / "gone-0").add((b"k", b"v")).write()
    elsewhere = write_orders(tmp_path, number=1)
    again = write_orders(tmp_path, number=2)
    (again / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAACQ\n")
    metadata.add(partition(_ORDERS, 1, (2, 3)), partition(_ORDERS, 2)).write()
    found = {one.path: one.message for one in cluster_alarms(tmp_path)}
    assert found.keys() == {str(unknown), str(elsewhere), str(again)}
    assert "does not know the topic gone" in found[str(unknown)]
    assert "to broker 1" in found[str(elsewhere)]
    assert "created again" in found[str(again)]


def test_logs_that_are_missing(tmp_path: Path, metadata: TopicLog) -> None:
    write_orders(tmp_path)
    elsewhere = uuid.UUID(int=78)
    metadata.add(partition(_ORDERS, 1), partition(_ORDERS, 2, (2,)))
    unplaced = partition(_ORDERS, 4, directories=[uuid.UUID(int=1)])
    metadata.add(partition(_ORDERS, 3, directories=[elsewhere]), unplaced).write()
    # Where partition 4 belongs is not known: the metadata does not list the broker's directories.
    (found,) = cluster_alarms(tmp_path)
    assert (found.symbol, found.topic, found.partition) == ("MISSING_LOG", "orders", 1)
    assert found.severity is ks.Severity.ERROR
    (tmp_path / f"orders-1.{'a' * 32}-future").mkdir()
    assert cluster_alarms(tmp_path) == []
    metadata.add(registration(_DIRECTORY)).write()
    assert [one.partition for one in cluster_alarms(tmp_path)] == [4]


def test_a_data_dir_with_a_bootstrap_checkpoint(tmp_path: Path, metadata: TopicLog) -> None:
    """``kafka-storage format`` writes it into the data dir itself."""
    metadata.write()
    write_orders(tmp_path, number=1)
    found = cluster_alarms(tmp_path)
    bootstrap = GOLDEN / "kafka-4.1.1" / "data" / "bootstrap.checkpoint"
    (tmp_path / bootstrap.name).write_bytes(bootstrap.read_bytes())
    assert cluster_alarms(tmp_path) == found
    assert {one.symbol for one in found} == {"MISSING_LOG", "UNASSIGNED_LOG"}
    for golden in ("kafka-3.9.1", "kafka-4.1.1"):
        assert cluster_alarms(GOLDEN / golden / "data") == []


def test_changes_of_the_last_minute_are_no_findings(tmp_path: Path, metadata: TopicLog) -> None:
    write_orders(tmp_path)
    metadata.write()
    (tmp_path / ".kafka_cleanshutdown").unlink()
    metadata.add(partition(_ORDERS, 1)).write()
    assert cluster_alarms(tmp_path) == []
    metadata.later_ms = 61_000
    metadata.add(topic_record("later", _STATES)).write()
    assert {one.symbol for one in cluster_alarms(tmp_path)} == {"MISSING_LOG"}


def test_damaged_topics_are_not_compared(tmp_path: Path, metadata: TopicLog) -> None:
    TopicLog(tmp_path / "gone-0").add((b"k", b"v")).write()
    metadata.batches[0] = metadata.batches[0][:-1] + b"\xff"
    metadata.write()
    found = ks.audit(tmp_path)
    assert {one.symbol for one in found.alarms} == {"CHECKSUM_MISMATCH"}
    assert any("assignment of partitions: not checked" in one for one in found.unchecked)
    metadata.batches.clear()
    metadata.offset = 0
    (tmp_path / "meta.properties").unlink()
    metadata.add(topic_record("orders", _ORDERS)).write()
    assert any("meta.properties" in one for one in ks.audit(tmp_path).unchecked)


@pytest.mark.parametrize(
    ("status", "partition", "age", "is_hanging", "state"),
    [
        ("Ongoing", 0, 50_000, False, "Ongoing for 50 s (timeout 1 min)"),
        ("Ongoing", 0, 70_000, True, "Ongoing for 1 min (timeout 1 min)"),
        ("Ongoing", 1, 50_000, True, "Ongoing for 50 s (timeout 1 min)"),
        ("CompleteAbort", 0, 50_000, True, "CompleteAbort (timeout 1 min)"),
    ],
)
def test_a_transaction_does_not_hang_while_its_coordinator_will_end_it(
    tmp_path: Path, status: str, partition: int, age: int, is_hanging: bool, state: str
) -> None:
    states = TopicLog(tmp_path / "__transaction_state-7")
    states.add(transaction("billing", 8, status, ("orders", partition))).write()
    orders = TopicLog(tmp_path / "orders-0").add((b"k", b"v"), producer_id=8).write()
    options = {"now_ms": T0 + age, "timeout_ms": 1000}
    for path in (tmp_path, orders):
        found = {one.symbol: one for one in ks.audit(path, **options).findings}
        symbol = "HANGING_TRANSACTION" if is_hanging else "OPEN_TRANSACTION"
        assert found.keys() & {"HANGING_TRANSACTION", "OPEN_TRANSACTION"} == {symbol}
        assert f"; its coordinator has 'billing' as {state}" in found[symbol].message
        assert (found[symbol].command is not None) == is_hanging
        (row,) = ks.read_transactions(path, **options).rows()
        assert (row["is_hanging"], row["transactional_id"]) == (is_hanging, "billing")
        assert (row["coordinator_state"], row["coordinator_timeout_ms"]) == (status, 60_000)
        assert row["coordinator_age_ms"] == (age + 1 if status == "Ongoing" else None)
        assert (row["command"] is not None) == is_hanging
    page = ks.build_report(tmp_path)
    assert f"{status} (" in page.html


def test_coordinators_in_a_tar(tmp_path: Path) -> None:
    states = TopicLog(tmp_path / "data" / "__transaction_state-7")
    states.add(transaction("billing", 8, "Ongoing", ("orders", 0))).write()
    TopicLog(tmp_path / "data" / "orders-0").add((b"k", b"v"), producer_id=8).write()
    with tarfile.open(tmp_path / "data.tar", "w") as archive:
        archive.add(tmp_path / "data", "data")
    found = ks.read_transactions(tmp_path / "data.tar", now_ms=T0 + 50_000, timeout_ms=1000)
    assert found["coordinator_state"] == ["Ongoing"]
    assert not found.is_hanging.any()


def test_a_damaged_coordinator_is_a_problem_and_hides_nothing(tmp_path: Path) -> None:
    states = TopicLog(tmp_path / "__transaction_state-7")
    folder = states.add(transaction("billing", 8, "Ongoing", ("orders", 0))).write()
    orders = TopicLog(tmp_path / "orders-0").add((b"k", b"v"), producer_id=8).write()
    (segment,) = folder.glob("*.log")
    segment.write_bytes(segment.read_bytes()[:-1] + b"\xff")
    found = ks.read_transactions(orders, now_ms=T0 + 50_000, timeout_ms=1000)
    assert found.is_hanging.all()
    assert len(found.problems)


def other_dirs(data_dir: Path, others: Sequence[ks.logs.LogDirLike] = ()) -> list[str]:
    found = ks.audit(data_dir, other_dirs=others)
    return [one for one in found.unchecked if "other data director" in one]


def test_another_data_dir_of_the_broker_is_named(tmp_path: Path, metadata: TopicLog) -> None:
    write_orders(tmp_path)
    metadata.write()
    assert other_dirs(tmp_path) == []
    metadata.add(registration(_DIRECTORY), registration(uuid.UUID(int=4), broker_id=2)).write()
    assert other_dirs(tmp_path) == []
    metadata.add(registration(_DIRECTORY, uuid.UUID(int=78))).write()
    (said,) = other_dirs(tmp_path)
    assert said == (
        "the other data directories of broker 1: not checked here: the metadata has the directory"
        " AAAAAAAAAAAAAAAAAAAATg (directory.id of this one: AAAAAAAAAAAAAAAAAAAATQ)"
    )
    for options in ([], ["--alarms"]):
        done = run("audit", tmp_path, *options)
        assert said in done.stderr
    changed = metadata_record(
        "BrokerRegistrationChange", 2, broker_id=1, broker_epoch=1, fenced=0,
        in_controlled_shutdown=0, log_dirs=[_DIRECTORY, uuid.UUID(int=79), uuid.UUID(int=80)],
    )  # fmt: skip
    metadata.add((None, changed)).write()
    (said,) = other_dirs(tmp_path)
    assert "the directories AAAAAAAAAAAAAAAAAAAATw, AAAAAAAAAAAAAAAAAAAAUA" in said


def test_a_data_dir_without_the_metadata_log_of_its_broker(
    tmp_path: Path, metadata: TopicLog
) -> None:
    """Every node of a KRaft cluster has the log, in one of its data directories."""
    write_orders(tmp_path)
    (said,) = other_dirs(tmp_path)
    assert "the metadata log is in one of them, or it was not copied" in said
    (tmp_path / "meta.properties").write_text("version=0\nbroker.id=1\ncluster.id=c\n")
    assert other_dirs(tmp_path) == []


def test_data_dirs_that_are_audited_together(tmp_path: Path, metadata: TopicLog) -> None:
    """Those of the broker that are not among them are named, once."""
    second = tmp_path / "ü 2"
    write_orders(second, number=1)
    properties = (tmp_path / "meta.properties").read_text()
    (second / "meta.properties").write_text(properties.replace("AATQ", "AATg"))
    metadata.folder = tmp_path / "1" / metadata.folder.name
    disks = [tmp_path / "1", second]
    metadata.add(registration(_DIRECTORY, uuid.UUID(int=78))).write()
    write_orders(disks[0])
    (tmp_path / "meta.properties").rename(disks[0] / "meta.properties")
    for disk in disks:
        assert "other data directories of broker 1" in run("audit", disk).stderr
    assert "other data director" not in run("audit", *disks).stderr
    found = [ks.audit(one, other_dirs=[disks[1 - at]]) for at, one in enumerate(disks)]
    assert not any("other data director" in text for one in found for text in one.unchecked)
    metadata.add(registration(_DIRECTORY, uuid.UUID(int=78), uuid.UUID(int=79))).write()
    stderr = run("audit", *disks, tmp_path / "missing").stderr
    assert stderr.count("other data director") == 1
    assert "the metadata has the directory AAAAAAAAAAAAAAAAAAAATw" in stderr
    (second / "meta.properties").write_text("version=1\nnode.id=2\ndirectory.id=AAAA\n")
    assert run("audit", *disks).stderr.count("other data director") == 2


def test_brokers_of_two_clusters_may_have_the_same_number(
    tmp_path: Path, metadata: TopicLog
) -> None:
    metadata.add(registration(_DIRECTORY, uuid.UUID(int=78))).write()
    write_orders(tmp_path)
    second = tmp_path / "ü 2"
    write_orders(second, number=1)
    properties = (tmp_path / "meta.properties").read_text().replace("AATQ", "AATg")
    for cluster_id, count in (("c", 0), ("d", 2)):
        named = properties.replace("cluster.id=c", f"cluster.id={cluster_id}")
        (second / "meta.properties").write_text(named)
        done = run("audit", tmp_path, second)
        assert done.stderr.count("other data director") == count


def test_paths_that_are_audited_together_are_looked_at_once(
    tmp_path: Path, metadata: TopicLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata.add(registration(_DIRECTORY, uuid.UUID(int=78))).write()
    paths = [tmp_path, *(write_orders(tmp_path, number=number) for number in range(4))]
    looked = list[Path]()

    def look_at(path: Path) -> object:
        looked.append(path)
        return look(path)

    look = cluster_checks._look_at
    monkeypatch.setattr(cluster_checks, "_look_at", look_at)
    run("audit", *paths[1:])
    assert looked == []
    done = run("audit", *paths, *paths)
    assert done.stderr.count("other data director") >= 1
    assert looked == [*paths, *paths]


def test_what_is_wrong_with_other_paths_ends_no_audit(tmp_path: Path, metadata: TopicLog) -> None:
    metadata.add(registration(_DIRECTORY, uuid.UUID(int=78))).write()
    write_orders(tmp_path)
    with tarfile.open(tmp_path / "ü.tar", "w") as archive:
        archive.add(tmp_path / "orders-0", "orders-0")
    stored = ks.open_log_dir(tmp_path / "ü.tar")

    class Broken:
        path = tmp_path

        @property
        def parent(self) -> Broken:
            raise RuntimeError("the store's own error")

    (one,) = stored.partitions
    broken = ks.logs.LogDir(tmp_path / "x", [replace(one, folder=Broken())] * 2)  # type: ignore[arg-type]
    others = [broken, stored, tmp_path / "ü.tar", tmp_path / "missing", "nostore://bucket/logs"]
    (said,) = other_dirs(tmp_path, others)
    assert "AAAAAAAAAAAAAAAAAAAATg" in said


def test_a_field_of_another_vendor_turns_no_check_off(tmp_path: Path, metadata: TopicLog) -> None:
    _, value = partition(_ORDERS, 1, directories=[])
    assert value is not None
    assert value[-1] == 0  # the number of tagged fields
    metadata.add((None, value[:-1] + bytes([1, 100, 0])), partition(_ORDERS, 2)).write()
    write_orders(tmp_path)
    assert {one.partition for one in cluster_alarms(tmp_path)} == {2}
