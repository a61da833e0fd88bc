"""Views of Kafka's own topics: the rows of the library's tables, for each data dir of a fleet."""

from __future__ import annotations

import datetime
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import kafkascan as ks
from kafkascan.spark.options.view_schemas import arrow_schema
from kafkascan.spark.readers.state_frames import (
    STATE_VIEWS,
    StateQuery,
    find_data_dirs,
    state_columns,
    state_task,
)
from tests.spark.logs import DATA, fleet_of, plain_batch, segment_path
from tests.support.internal_topics import TopicLog, commit
from tests.support.state_dirs import write_state
from tests.unit.internal_topics.test_remote_segments import ADDED, FINISHED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

READERS: dict[str, Callable[..., Any]] = {
    "groups": ks.read_groups,
    "transaction_state": ks.read_transaction_state,
    "metadata": ks.read_metadata,
    "remote_segments": ks.internal_topics.read_remote_segments,
    "share_state": ks.internal_topics.read_share_state,
}
TABLES = [(view, table) for view, known in STATE_VIEWS.items() for table in known.schemas]


def state_rows(data_dir: Path, view: str, table: str, as_of: Any = None) -> list[dict[str, Any]]:
    query = StateQuery(view, table, as_of)
    return [row for batch in state_task(str(data_dir), query) for row in batch.to_pylist()]


def library_rows(answer: Any, table: str) -> list[dict[str, Any]]:
    """The rows of a table of the library, by its own conversion to Arrow."""
    found = answer.problems if table == "problems" else answer[table]
    rows: list[dict[str, Any]] = found.arrow_table().to_pylist()
    return rows


@pytest.mark.parametrize(("view", "table"), TABLES)
def test_columns_have_types_in_spark(view: str, table: str) -> None:
    columns = state_columns(view, table)
    assert tuple(arrow_schema(columns).names) == columns.names
    assert columns.names[:2] == ("data_dir", "cluster_id")


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data dir in which all tables have rows."""
    folder = write_state(tmp_path_factory.mktemp("state"))
    shutil.copy(DATA / "meta.properties", folder)
    return folder


def expected_rows(data_dir: Path, view: str, table: str) -> list[dict[str, Any]]:
    cluster = ks.broker_state.read_meta_properties(DATA / "meta.properties")["cluster.id"]
    place = {"data_dir": str(data_dir), "cluster_id": cluster}
    found = [place | row for row in library_rows(READERS[view](data_dir), table)]
    assert found
    return found


@pytest.mark.parametrize(("view", "table"), TABLES)
def test_rows_are_those_of_the_library(view: str, table: str, data_dir: Path) -> None:
    assert state_rows(data_dir, view, table) == expected_rows(data_dir, view, table)


def test_as_of(tmp_path: Path) -> None:
    topic = TopicLog(tmp_path / "__consumer_offsets-3")
    topic.add(commit("a", 0, 5))
    topic.add(commit("a", 0, 7))
    topic.write()
    for as_of in (None, 1, {3: 1}, datetime.datetime(2100, 1, 1, tzinfo=datetime.UTC)):
        expected = ks.read_groups(tmp_path, as_of=as_of).offsets["offset"]
        found = state_rows(tmp_path, "groups", "offsets", as_of)
        assert [row["offset"] for row in found] == expected
        assert found[0]["cluster_id"] is None, "no meta.properties"


def test_remote_segments(tmp_path: Path) -> None:
    log = TopicLog(tmp_path / "__remote_log_metadata-2")
    log.add((None, ADDED), (None, FINISHED))
    log.write()
    expected = library_rows(READERS["remote_segments"](tmp_path), "segments")
    (found,) = state_rows(tmp_path, "remote_segments", "segments")
    assert [found] == [{"data_dir": str(tmp_path), "cluster_id": None} | row for row in expected]
    assert found["leader_epochs"] == ["0:0"]


def test_what_is_incomplete_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """By a table, and in the log of the executor if the table has no rows."""
    topic = TopicLog(tmp_path / "__consumer_offsets-3")
    topic.add(commit("a", 0, 5))
    path = next(topic.write().glob("*.log"))
    path.write_bytes(path.read_bytes()[:-1] + b"\x00")
    path.with_name(f"{1:020d}.log").write_bytes(b"\x07" * 200)
    expected = ks.read_groups(tmp_path).problems
    assert len(expected)
    with caplog.at_level(logging.WARNING, "kafkascan.spark"):
        found = state_rows(tmp_path, "groups", "problems")
    assert [row["message"] for row in found] == expected["message"]
    assert [f"{tmp_path}: {one}" for one in expected] == caplog.messages


def test_a_damaged_meta_properties(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    shutil.copytree(DATA / "__consumer_offsets-0", tmp_path / "__consumer_offsets-0")
    (tmp_path / "meta.properties").write_bytes(bytes(100_000))
    with caplog.at_level(logging.WARNING, "kafkascan.spark"):
        found = state_rows(tmp_path, "groups", "offsets")
    assert {row["cluster_id"] for row in found} == {None}
    assert any("the id of the cluster is not known" in one for one in caplog.messages)


def test_data_dirs_of_a_fleet(tmp_path: Path) -> None:
    fleet = fleet_of(tmp_path)
    brokers = [str(fleet / "east" / f"broker-{number}") for number in (1, 2)]
    segment_path(fleet / "west", "other").write_bytes(plain_batch(0))
    topic = "__consumer_offsets"
    assert find_data_dirs([str(fleet)], topic) == brokers
    assert find_data_dirs([f"{fleet}/east/broker-*"], topic) == brokers
    assert find_data_dirs([brokers[1], str(fleet)], topic) == brokers[::-1], "each once"
    assert find_data_dirs([f"{DATA}/__consumer_offsets-0"], topic) == [f"{DATA}/{topic}-0"]
    for path in (fleet / "west", fleet / "notes", fleet / "nothing-*"):
        with pytest.raises(ks.format.NoLogsError, match=f"no data dir with partitions of {topic}"):
            find_data_dirs([str(fleet), str(path)], topic)
    with pytest.raises(FileNotFoundError):
        find_data_dirs([str(fleet / "typo")], topic)
    with pytest.raises(ValueError, match="local folders, not from object stores"):
        find_data_dirs(["s3://bucket/data"], topic)


def test_data_dirs_are_found_three_levels_below(tmp_path: Path) -> None:
    brokers = fleet_of(tmp_path) / "east"
    above = tmp_path / "a" / "b" / "c"
    above.mkdir(parents=True)
    brokers.rename(above / "east")
    topic = "__consumer_offsets"
    found = [str(above / "east" / f"broker-{number}") for number in (1, 2)]
    assert find_data_dirs([str(tmp_path / "a" / "b")], topic) == found
    with pytest.raises(ks.format.NoLogsError):
        find_data_dirs([str(tmp_path / "a")], topic)


# Of each view a table; together they have columns of every type.
IN_SPARK = [
    ("groups", "members"),
    ("transaction_state", "transactions"),
    ("share_state", "partitions"),
    ("metadata", "quotas"),
    ("remote_segments", "segments"),
]


def require_tables(spark: SparkSession, data_dir: Path, tables: list[tuple[str, str]]) -> None:
    from kafkascan import spark as kspark

    for view, table in tables:
        frame = getattr(kspark, view)(spark, data_dir, table=table)
        found = [in_utc(row.asDict(recursive=True)) for row in frame.collect()]
        assert found == expected_rows(data_dir, view, table), (view, table)


def test_tables_in_spark(spark: SparkSession, data_dir: Path) -> None:
    require_tables(spark, data_dir, IN_SPARK)


@pytest.mark.slow
def test_every_table_in_spark(spark: SparkSession, data_dir: Path) -> None:
    require_tables(spark, data_dir, TABLES)


def in_utc(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row whose times have a zone, and whose bytes are immutable."""
    return {name: _plain(value) for name, value in row.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, datetime.datetime):
        return value.astimezone(datetime.UTC)
    return bytes(value) if isinstance(value, bytearray) else value


def test_data_frames(spark: SparkSession, tmp_path: Path) -> None:
    from kafkascan import spark as kspark

    fleet = fleet_of(tmp_path)
    found = kspark.groups(spark, fleet)
    assert found.count() == 2 * len(ks.read_groups(DATA).offsets)
    topics = kspark.metadata(spark, fleet, table="topics")
    assert {row.data_dir.rpartition("/")[2] for row in topics.collect()} == {"broker-1", "broker-2"}
    assert kspark.transaction_state(spark, [DATA]).count() > 0
    with pytest.raises(ValueError, match=r"groups has no table 'ofsets'.*offsets"):
        kspark.groups(spark, fleet, table="ofsets")
    for view in (kspark.remote_segments, kspark.share_state):
        with pytest.raises(ks.format.NoLogsError):
            view(spark, fleet)
