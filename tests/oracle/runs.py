"""Runs: the scenarios of each broker, and how it ends."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.oracle.brokers import (
    Broker,
    KafkaBroker,
    LegacyBroker,
    OlderBroker,
    PreviousBroker,
    TieredBroker,
)
from tests.oracle.build import ClassPaths
from tests.oracle.clients import JavaClients
from tests.oracle.dump import (
    LOG_SUFFIXES,
    describe_data_dir,
    dump_path,
    fields_path,
    partition_directories,
    records_path,
)
from tests.oracle.scenarios import (
    EARLIER_SCENARIOS,
    KILLED_SCENARIOS,
    LEGACY_GROUP_SCENARIOS,
    LEGACY_SCENARIOS,
    SCHEMA_SCENARIOS,
    STOPPED_SCENARIOS,
    TIERED_SCENARIOS,
    TYPED_SCENARIOS,
)
from tests.oracle.stage import Evidence, Scenario, Stage
from tests.support.compare_records import read_lines
from tests.support.kafka_dump import parse_index, parse_log


@dataclass(frozen=True)
class Run:
    """The scenarios of one broker."""

    name: str
    broker: type[Broker]
    scenarios: tuple[Scenario, ...]
    ending: Literal["stopped", "killed"]


RUNS = (
    Run("kafka-4.4.0", KafkaBroker, STOPPED_SCENARIOS, "stopped"),
    Run("kafka-4.4.0-killed", KafkaBroker, KILLED_SCENARIOS, "killed"),
    Run("kafka-4.4.0-schemas", KafkaBroker, SCHEMA_SCENARIOS, "stopped"),
    Run("kafka-4.4.0-typed", KafkaBroker, TYPED_SCENARIOS, "stopped"),
    Run("kafka-4.4.0-tiered", TieredBroker, TIERED_SCENARIOS, "stopped"),
    Run("kafka-4.1.1", PreviousBroker, EARLIER_SCENARIOS, "stopped"),
    Run("kafka-3.9.1", OlderBroker, EARLIER_SCENARIOS, "stopped"),
    Run("kafka-2.8.2", LegacyBroker, LEGACY_SCENARIOS, "stopped"),
    Run("kafka-2.8.2-groups", LegacyBroker, LEGACY_GROUP_SCENARIOS, "stopped"),
)


@dataclass(frozen=True)
class FinishedRun:
    """A data directory of an ended broker, and Kafka's description of it."""

    run: Run
    data_dir: Path
    description: Path

    def segments(self, scenario: Scenario | None = None) -> list[Path]:
        """Return the segments and metadata snapshots of a scenario's topics, or of all topics."""
        return [
            path
            for directory in partition_directories(self.data_dir)
            if scenario is None or directory.name.rpartition("-")[0] in scenario.topics
            for path in sorted(directory.iterdir())
            if path.suffix in LOG_SUFFIXES
        ]

    def described(self, log: Path) -> tuple[Path, str, str]:
        """Return a segment with the output of DumpLogSegments and BatchFields."""
        dump = dump_path(self.description, log).read_text(encoding="utf-8")
        return log, dump, fields_path(self.description, log).read_text(encoding="utf-8")

    def records(self, log: Path) -> tuple[Path, str]:
        """Return a segment with the output of RecordFields."""
        return log, read_lines(records_path(self.description, log))

    def evidence(self, scenario: Scenario) -> Evidence:
        """Return Kafka's description of a scenario's files."""
        evidence = Evidence()
        for log in self.segments(scenario):
            _, dump, fields = self.described(log)
            evidence.add(log, fields, parse_log(dump), self._index_entries(log))
        return evidence

    def broken_promises(self, scenario: Scenario) -> list[str]:
        """Return the expectations of a scenario that its files do not meet."""
        evidence = self.evidence(scenario)
        return [promise.text for promise in scenario.promises if not promise.holds(evidence)]

    def _index_entries(self, log: Path) -> int:
        dump = dump_path(self.description, log.with_suffix(".index"))
        return len(parse_index(dump.read_text())) if dump.exists() else 0


def perform(run: Run, directory: Path, class_paths: ClassPaths) -> FinishedRun:
    """Perform a run's scenarios on a new broker, end it, describe its files with Kafka's tools."""
    directory.mkdir(parents=True)
    with run.broker(directory, class_paths) as broker:
        _play(run, broker, class_paths)
    description = directory / "description"
    describe_data_dir(broker.data_dir, description, class_paths)
    return FinishedRun(run, broker.data_dir, description)


def _play(run: Run, broker: Broker, class_paths: ClassPaths) -> None:
    log_file = broker.directory / "clients.log"
    with JavaClients(class_paths.broker, broker.bootstrap_servers, log_file) as java:
        for scenario in run.scenarios:
            try:
                scenario.play(Stage(broker, java))
            except Exception as failure:
                failure.add_note(f"in scenario {scenario.name} of {run.name}")
                failure.add_note(f"the broker's log: {broker.log_file}")
                raise
        if run.ending == "killed":
            broker.kill()
        else:
            broker.stop()
