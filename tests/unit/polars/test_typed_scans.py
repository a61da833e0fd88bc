"""Typed values of several topics and logs as lazy frames."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import kafkascan as ks
from kafkascan.format.errors import NoLogsError, ValueSchemaError
from kafkascan.polars import scan_records
from kafkascan.schemas import open_registry
from tests.support.paths import GOLDEN

DATA = GOLDEN / "kafka-4.4.0-typed" / "data"
_AVRO = ["offset", "value"]

pytestmark = pytest.mark.filterwarnings("ignore::kafkascan.tables.table.IncompleteTableWarning")


def test_two_typed_topics_are_joined() -> None:
    registry = open_registry(DATA)
    orders, events = (
        scan_records(DATA, topics=[topic], columns=_AVRO, value=registry, on_corrupt="stop")
        for topic in ("orders", "events")
    )
    joined = orders.join(events, on="offset", suffix="_of_event").collect()
    assert len(joined) == min(len(orders.collect()), len(events.collect()))
    assert isinstance(joined.schema["value"], pl.Struct)
    assert isinstance(joined.schema["value_of_event"], pl.Struct)


def test_topics_of_kafka_and_of_the_registry_have_no_types(tmp_path: Path) -> None:
    for name in ("_schemas-0", "orders-0"):
        (tmp_path / name).mkdir()
        for path in (DATA / name).iterdir():
            (tmp_path / name / path.name).write_bytes(path.read_bytes())
    registry = open_registry(tmp_path)
    frame = scan_records(tmp_path, value=registry, on_corrupt="stop")
    assert frame.select(pl.col("topic").unique()).collect()["topic"].to_list() == ["orders"]
    plain = scan_records(tmp_path).select(pl.col("topic").unique().sort()).collect()
    assert plain["topic"].to_list() == ["_schemas", "orders"]
    named = scan_records(tmp_path, topics=["_schemas"]).collect()
    assert set(named["topic"]) == {"_schemas"}


def test_several_logs_are_read_in_their_order() -> None:
    logs = [DATA / "payments-0", DATA / "orders-0"]
    frame = scan_records(logs, columns=["topic", "offset"]).collect()
    counts = [len(ks.read_records(one)) for one in logs]
    assert frame["topic"].to_list() == ["payments"] * counts[0] + ["orders"] * counts[1]


def test_a_topic_that_is_not_there_is_an_error() -> None:
    with pytest.raises(NoLogsError, match="no partitions of nothing here"):
        scan_records(DATA, topics=["nothing"])
    with pytest.raises(TypeError, match="topics must be a collection"):
        scan_records(DATA, topics="orders")
    with pytest.raises(ValueSchemaError, match=r"scan one topic \(topics=\[NAME\]\)"):
        scan_records(DATA, value=open_registry(DATA))


@pytest.mark.parametrize("part", ["key", "value"])
def test_what_decodes_values_is_said(part: str) -> None:
    log = DATA / "orders-0"
    message = (
        rf"{part} must be a Registry .*registry.reader\(SUBJECT\).*json_values\(\), not 'avro'"
    )
    arguments: dict[str, object] = {part: "avro"}
    for read in (ks.read_records, scan_records, lambda *a, **k: next(ks.iter_records(*a, **k))):
        with pytest.raises(TypeError, match=message):
            read(log, **arguments)
    with pytest.raises(TypeError, match="not int"):
        ks.read_records(log, value=7)
