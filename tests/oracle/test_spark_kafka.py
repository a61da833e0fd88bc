"""A query returns the same rows from Spark's Kafka source and from the broker's files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.oracle.brokers import KafkaBroker
from tests.oracle.build import ClassPaths
from tests.oracle.clients import JavaClients
from tests.oracle.scenarios import STOPPED_SCENARIOS
from tests.oracle.spark_kafka import SparkBeside
from tests.oracle.stage import T0, Stage, messages

pytestmark = pytest.mark.oracle

# Without internal topics, and without scenarios that restart the broker.
_PLAYED = [
    scenario
    for scenario in STOPPED_SCENARIOS
    if scenario.name != "leader-epochs" and not any(t.startswith("__") for t in scenario.topics)
]
TOPICS = ",".join(topic for scenario in _PLAYED for topic in scenario.topics)
KAFKA_ROWS = (
    "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
    "timestamp:timestamp,timestampType:int"
)


@pytest.fixture(scope="module")
def stage(class_paths: ClassPaths, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A broker that keeps running."""
    directory = tmp_path_factory.mktemp("live") / "broker"
    with KafkaBroker(directory, class_paths) as broker:
        log_file = directory / "clients.log"
        with JavaClients(class_paths.broker, broker.bootstrap_servers, log_file) as java:
            stage = Stage(broker, java)
            for scenario in _PLAYED:
                scenario.play(stage)
            yield stage


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkBeside]:
    log_file = tmp_path_factory.mktemp("spark") / "spark.log"
    with SparkBeside("local[2]", log_file) as running:
        yield running


class Both:
    """The two sources of one broker's records."""

    def __init__(self, stage: Stage, spark: SparkBeside) -> None:
        self._stage, self._spark = stage, spark

    def kafka(self, topics: str, **options: object) -> dict[str, Any]:
        servers = self._stage.broker.bootstrap_servers
        return {"kafka.bootstrap.servers": servers, "subscribe": topics} | _texts(options)

    def files(self, topics: str, **options: object) -> dict[str, Any]:
        return {"path": str(self._stage.broker.data_dir), "topics": topics} | _texts(options)

    def same_rows(self, **options: object) -> list[str]:
        """Return the rows of all sources for the same options, which must agree."""
        given = _texts(options)
        servers = {"kafka.bootstrap.servers": self._stage.broker.bootstrap_servers}
        theirs = self._spark.ask("rows", source="kafka", options=servers | given)
        path = {"path": str(self._stage.broker.data_dir)}
        for door in ("kafkascan", "frame"):
            assert self._spark.ask("rows", source=door, options=path | given) == theirs, door
        return list(theirs["rows"])

    def rows(self, topics: str, **options: object) -> tuple[str, list[str]]:
        """Return the result of all sources, which must agree."""
        ours = self.files(topics, **options)
        if "kafka.isolation.level" in ours:
            ours["isolationLevel"] = ours.pop("kafka.isolation.level")
        theirs = self._spark.ask("rows", source="kafka", options=self.kafka(topics, **options))
        for door in ("kafkascan", "frame"):
            found = self._spark.ask("rows", source=door, options=ours)
            assert found["schema"] == theirs["schema"], door
            assert found["rows"] == theirs["rows"], door
        return theirs["schema"], theirs["rows"]


@pytest.fixture
def both(stage: Stage, spark: SparkBeside) -> Both:
    return Both(stage, spark)


def _texts(options: dict[str, object]) -> dict[str, str]:
    return {
        name.replace("kafka_", "kafka.").replace("_", "."): value
        if isinstance(value, str)
        else json.dumps(value)
        for name, value in options.items()
    }


def test_everything(both: Both) -> None:
    schema, rows = both.rows(TOPICS)
    assert schema == f"{KAFKA_ROWS}>"
    assert len(rows) > 400
    assert any("('timestampType', 1)" in row for row in rows), "LogAppendTime"


def test_headers(both: Both) -> None:
    schema, rows = both.rows(TOPICS, includeHeaders=True)
    assert schema == f"{KAFKA_ROWS},headers:array<struct<key:string,value:binary>>>"
    assert any("('headers', None)" in row for row in rows)
    assert any("('headers', [('" in row for row in rows)


def test_offsets(both: Both) -> None:
    topics = "headers,partitions,small-segments"
    everything = both.rows(topics)[1]
    starting = {"headers": {"0": 2}, "partitions": {"0": -2, "1": -2, "2": 3}}
    starting["small-segments"] = {"0": 20}
    ending = {"headers": {"0": -1}, "partitions": {"0": 2, "1": -1, "2": 9}}
    ending["small-segments"] = {"0": 333}
    some = both.rows(topics, startingOffsets=starting, endingOffsets=ending)[1]
    assert 300 < len(some) < len(everything)
    assert set(some) < set(everything)


def test_times(both: Both) -> None:
    topics = "small-segments,partitions"
    everything = both.rows(topics)[1]
    # One partition is empty: none of its records is late enough.
    latest = {"startingOffsetsByTimestampStrategy": "latest"}
    late = both.rows(topics, startingTimestamp=T0 + 4, **latest)[1]
    assert 400 < len(late) < len(everything)
    middle = both.rows(topics, startingTimestamp=T0 + 2, endingTimestamp=T0 + 4, **latest)[1]
    assert 0 < len(middle) < 10
    far = {"startingTimestamp": T0 + 10**9}
    assert both.rows(topics, **far, **latest)[1] == []
    for source, options in (("kafka", both.kafka), ("kafkascan", both.files)):
        with pytest.raises(RuntimeError, match=r"No offset matched|at or after startingTimestamp"):
            both._spark.ask("rows", source=source, options=options(topics, **far))


def test_subscriptions(both: Both) -> None:
    """The options of Spark's Kafka source, by their names there."""
    assert len(both.same_rows(subscribe="headers, partitions,")) > 10
    assigned = both.same_rows(assign={"partitions": [0], "headers": [0]})
    assert 0 < len(assigned) < len(both.same_rows(subscribe="headers,partitions"))
    part = both.same_rows(subscribePattern="artition")
    assert part == both.same_rows(subscribe="partitions")
    names = "|".join(TOPICS.split(","))
    assert len(both.same_rows(subscribePattern=f"^({names})$")) > 400


def test_times_by_partition(both: Both) -> None:
    topics = {"subscribe": "small-segments,partitions"}
    latest = {"startingOffsetsByTimestampStrategy": "latest"}

    def times(first: int, *others: int) -> dict[str, dict[str, int]]:
        partitions = {str(number): time for number, time in enumerate(others)}
        return {"small-segments": {"0": first}, "partitions": partitions}

    everything = both.same_rows(**topics)
    for start in (times(T0 + 4, T0, T0 + 2, T0 + 3), times(-2, -1, -2, T0), times(-1, -1, -1, -1)):
        late = both.same_rows(**topics, **latest, startingOffsetsByTimestamp=start)
        assert len(late) < len(everything)
    for end in (times(T0 + 4, T0 + 1, T0 + 2, T0 + 3), times(-1, -2, -1, T0 + 1)):
        assert len(both.same_rows(**topics, endingOffsetsByTimestamp=end)) < len(everything)
    # Precedence: one timestamp, timestamps by partition, offsets.
    given = {"startingOffsetsByTimestamp": times(-1, -1, -1, -1), "startingOffsets": "earliest"}
    assert both.same_rows(**topics, **given) == []
    assert len(both.same_rows(**topics, **latest, **given, startingTimestamp=T0 + 4)) > 400


def test_committed(both: Both) -> None:
    """Commits, aborts, and an open transaction."""
    everything = both.rows("transactions,headers")[1]
    committed = both.rows("transactions,headers", kafka_isolation_level="read_committed")[1]
    assert 15 < len(committed) < len(everything)


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_streams(stage: Stage, both: Both, tmp_path: Path, isolation: str) -> None:
    """After each trigger: the same rows, and the same offsets in the checkpoint."""
    topic = f"followed-{isolation.replace('_', '-')}"
    stage.create_topic(topic, partitions=2, internal_segment_bytes="600")
    first, second = (
        stage.java_producer(transactional_id=f"{topic}-{number}") for number in range(2)
    )

    def follow() -> int:
        found = []
        for source, options in (
            ("kafka", both.kafka(topic, kafka_isolation_level=isolation)),
            ("kafkascan", both.files(topic, isolationLevel=isolation)),
        ):
            options["startingOffsets"] = "earliest"
            places = {"out": f"{tmp_path}/{source}", "checkpoint": f"{tmp_path}/{source}-at"}
            found.append(both._spark.ask("follow", source=source, options=options, **places))
        assert found[1] == found[0]
        return len(found[0]["rows"])

    first.begin()
    first.write(messages(topic, 4))
    second.begin()
    second.write(messages(topic, 3, partition=1))
    counts = [follow()]
    second.write(messages(topic, 3, start=3))
    second.abort()
    counts.append(follow())
    for number in range(10):  # over several segments
        first.write(messages(topic, 3, start=10 + 3 * number, size=40))
    first.commit()
    first.begin()
    first.write(messages(topic, 2, partition=1))
    counts.append(follow())
    first.commit()
    counts.append(follow())
    if isolation == "read_committed":
        assert counts == [0, 0, 34, 36]
    else:
        assert counts == [7, 10, 42, 42]
    first.close()
    second.close()
