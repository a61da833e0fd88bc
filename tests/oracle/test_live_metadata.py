"""The metadata of running brokers equals Kafka's own image of it, and what brokers report."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

import kafkascan as ks
from tests.oracle.brokers import KafkaBroker, OlderBroker, PreviousBroker
from tests.oracle.build import ClassPaths
from tests.oracle.clients import JavaClients
from tests.oracle.cluster_changes import (
    Facts,
    change_settings,
    change_topics,
    facts_of,
    reported_facts,
)
from tests.oracle.jvm import wait_until
from tests.oracle.metadata_replay import comparable_tables, images_of_kafka
from tests.support.command_line import run

pytestmark = pytest.mark.oracle

_CONFIG = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
_VERSIONS: dict[str, tuple[type[KafkaBroker], ...]] = {
    "4.4": (KafkaBroker,),
    "4.1": (PreviousBroker,),
    "3.9": (OlderBroker,),
    "upgraded": (OlderBroker, PreviousBroker, KafkaBroker),
}
# The records that bootstrap a cluster are a transaction: before its end there is no image.
_BOOTSTRAPPED = 25


@dataclass
class Moment:
    """The end of the metadata, the time, and what brokers reported then."""

    end_offset: int
    time: np.datetime64
    reported: Facts


@dataclass
class Live:
    """A data directory of running brokers, and what they reported in between."""

    data_dir: Path
    moments: list[Moment] = field(default_factory=list)

    def note(self, admin: AdminClient, java: JavaClients) -> None:
        """Note what brokers report, when they have applied the end of the log."""
        reported: Facts = {}

        def is_applied() -> bool:
            nonlocal reported
            before = ks.read_metadata(self.data_dir)
            try:
                reported = reported_facts(admin, java)
            except KafkaException:  # a topic that the broker does not know yet
                return False
            return facts_of(before) == reported

        try:
            wait_until("brokers to report what the log says", is_applied, seconds=20, pause=0.5)
        except TimeoutError:
            assert facts_of(ks.read_metadata(self.data_dir)) == reported
        end = ks.read_metadata(self.data_dir).end_offset
        self.moments.append(Moment(end, np.datetime64(time.time_ns() // 10**6, "ms"), reported))
        # So that no record has the time of the moment.
        time.sleep(0.01)


@pytest.fixture(scope="module", params=_VERSIONS)
def live(
    request: pytest.FixtureRequest,
    class_paths: ClassPaths,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Live]:
    directory = tmp_path_factory.mktemp("metadata")
    found = Live(directory / "data")
    *earlier, last = _VERSIONS[request.param]
    for kind in earlier:
        with _played(kind, directory, class_paths, found) as broker:
            broker.stop()
    with _played(last, directory, class_paths, found):
        yield found


@contextmanager
def _played(
    kind: type[KafkaBroker], directory: Path, class_paths: ClassPaths, live: Live
) -> Iterator[KafkaBroker]:
    """Start a broker on the directory and change its metadata in many ways."""
    with kind(directory, class_paths, _CONFIG) as broker:
        servers, log_file = broker.bootstrap_servers, directory / "clients.log"
        admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
        prefix = f"v{kind.version.replace('.', '-')}-"
        with JavaClients(class_paths.broker, servers, log_file) as java:
            if live.moments:
                live.note(admin, java)
                java.call("upgradeFeatures")
            change_topics(admin, prefix)
            live.note(admin, java)
            change_settings(admin, java, prefix)
            live.note(admin, java)
            yield broker


def test_images_at_several_offsets(live: Live, class_paths: ClassPaths) -> None:
    folder = live.data_dir / "__cluster_metadata-0"
    records = ks.read_records(folder, columns=("offset", "value"), control="skip")
    offsets = records["offset"].tolist()
    values = [value or b"" for value in records.items("value")]
    # A delta with all records of a topic, from its creation to its removal, keeps its settings: the
    # result would depend on the deltas. Here each has a record.
    bounds = [offset + 1 for offset in offsets if offset >= _BOOTSTRAPPED]
    first = len(values) - len(bounds)
    parts = [values[: first + 1], *([value] for value in values[first + 1 :])]
    expected = images_of_kafka(class_paths, parts)
    for bound, theirs in zip(bounds, expected, strict=True):
        found = ks.read_metadata(folder, as_of=bound, secrets=True)
        assert found.is_exact
        ours = comparable_tables(found.image)
        for name, rows in theirs.items():
            assert ours[name] == rows, (bound, name)


def test_what_brokers_reported(live: Live) -> None:
    assert all(live.moments[-1].reported.values())
    for moment in live.moments:
        for as_of in (moment.end_offset, moment.time):
            found = ks.read_metadata(live.data_dir, as_of=as_of)
            assert found.is_exact
            assert found.unknown.rows() == []
            facts = facts_of(found)
            assert {name: facts[name] for name in moment.reported} == moment.reported
            assert all(row["stored_key"] is row["salt"] is None for row in found["scram"].rows())


def test_changes_between_what_brokers_reported(live: Live) -> None:
    first, last = live.moments[0], live.moments[-1]
    for left, right in ((first.end_offset, last.end_offset), (first.time, last.time)):
        printed = run("metadata", live.data_dir, "--diff", left, right, "--format", "json")
        assert printed.returncode == 0
        rows = json.loads(printed.stdout)
        for table, facts in (("acls", "acls"), ("quotas", "quotas"), ("scram", "users")):
            added = [one for one in rows if (one["table"], one["change"]) == (table, "added")]
            assert len(added) == len(last.reported[facts] - first.reported[facts])
        levels = {
            one["key"]: int(one["right"])
            for one in rows
            if one["table"] == "features" and one["column"] == "level"
        }
        before, after = first.reported["features"], last.reported["features"]
        assert levels == {name: after[name] for name in before if before[name] != after[name]}


def test_audits_have_no_alarms(live: Live) -> None:
    found = ks.audit(live.data_dir)
    assert found.alarms == []
    assert not any("assignment" in one for one in found.unchecked)
