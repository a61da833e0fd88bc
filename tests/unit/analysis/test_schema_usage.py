"""Which schemas the records of topics were written with."""

from __future__ import annotations

import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

import kafkascan as ks
from kafkascan.analysis import read_schema_usage
from kafkascan.schemas import Registry, SchemaError, open_registry
from tests.support.internal_topics import TopicLog
from tests.support.schema_topics import AVRO, AVRO_2, schema
from tests.support.segments import T0

FIRST, SECOND, UNKNOWN = (b"\0\0\0\0" + bytes([number]) for number in (1, 2, 9))


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    log = TopicLog(tmp_path / "_schemas-0")
    log.add(schema("copies-value", 1, 1, AVRO), schema("orders-value", 3, 1, AVRO))
    log.add(schema("orders-value", 4, 2, AVRO_2), schema("orders-key", 1, 2, AVRO_2)).write()
    return tmp_path


@pytest.fixture
def registry(data_dir: Path) -> Registry:
    return open_registry(data_dir)


def test_rows(data_dir: Path, registry: Registry) -> None:
    orders = TopicLog(data_dir / "orders-1")
    orders.add((SECOND + b"k", FIRST + b"a"), producer_id=7)
    orders.add((b"k", SECOND + b"b"), (b"k", None), (b"k", UNKNOWN), (b"k", b"{}"))
    orders.add((b"k", FIRST + b"c"), producer_id=5)
    orders.add((b"k", FIRST + b"d")).write()
    TopicLog(data_dir / "__consumer_offsets-0").add((b"k", FIRST)).write()
    table = read_schema_usage(data_dir, registry)
    first, second, null, none, unknown = table.where(topic="orders").rows()
    assert first == {
        "topic": "orders", "partition": 1, "subject": "orders-value", "version": 3, "id": 1,
        "schema_type": "AVRO", "framing": "confluent", "records": 3, "first_offset": 0,
        "last_offset": 6, "first_timestamp": T0, "last_timestamp": T0 + 6, "producer_ids": [5, 7],
    }  # fmt: skip
    assert (second["subject"], second["version"], second["records"]) == ("orders-value", 4, 1)
    assert [one["framing"] for one in (null, none, unknown)] == ["null", "no_prefix", "unknown_id"]
    assert unknown["subject"] is unknown["id"] is None
    assert unknown["producer_ids"] == []
    assert {*table["topic"]} == {"orders"}
    assert table.to_arrow().num_rows == len(table)
    (key,) = (
        read_schema_usage(data_dir / "orders-1", registry, part="key")
        .where(framing="confluent")
        .rows()
    )
    assert (key["subject"], key["id"], key["last_offset"]) == ("orders-key", 2, 0)
    assert len(read_schema_usage(data_dir / "__consumer_offsets-0", registry)) == 1


def test_a_segment_and_bytes(data_dir: Path, registry: Registry) -> None:
    batches = ks.build_batches(value=[FIRST, FIRST, SECOND])
    for source in (batches, ks.io.Source(batches)):
        table = read_schema_usage(source, registry)
        assert table["records"] == [2, 1]
        assert table["first_timestamp"] == [-1, -1]
        # The subject of no topic: the first one that has the schema.
        assert table["subject"] == ["copies-value", "orders-key"]


def test_damage_is_named(data_dir: Path, registry: Registry) -> None:
    folder = TopicLog(data_dir / "orders-0").add((b"k", FIRST), (b"k", FIRST)).write()
    (log,) = folder.iterdir()
    log.write_bytes(log.read_bytes()[:-3])
    table = read_schema_usage(folder, registry)
    assert table["records"] == [1]
    assert len(table.problems)


def test_random_logs(data_dir: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkascan.analysis.schema_usage._RECORDS_AT_ONCE", 10)
    choices = {FIRST: 1, SECOND: 2, UNKNOWN: None, b"x": None}
    random_ = random.Random(5)
    log = TopicLog(data_dir / "orders-0")
    wanted: dict[tuple[int | None, bool], Any] = defaultdict(list)
    for offset in range(300):
        value, producer = random_.choice([*choices]), random_.choice([-1, 3, 4, 5])
        log.add((b"k", value), producer_id=producer)
        wanted[choices[value], value == b"x"].append((offset, producer))
    table = read_schema_usage(log.write(), registry)
    rows = {(row["id"], row["framing"] == "no_prefix"): row for row in table.rows()}
    assert rows.keys() == wanted.keys()
    for key, found in wanted.items():
        row = rows[key]
        assert (row["records"], row["first_offset"], row["last_offset"]) == (
            len(found), found[0][0], found[-1][0],
        )  # fmt: skip
        assert row["producer_ids"] == sorted({one for _, one in found if one >= 0})


def test_producer_ids_are_limited(
    data_dir: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafkascan.analysis.schema_usage.MOST_PRODUCERS", 3)
    log = TopicLog(data_dir / "orders-0")
    for number in range(5):
        log.add((b"k", FIRST), producer_id=number)
    table = read_schema_usage(log.write(), registry)
    assert len(table["producer_ids"][0]) == 3
    assert [one.symbol for one in table.problems] == ["TOO_MANY_PRODUCERS"]
    assert table.is_complete


def test_a_context_that_the_registry_does_not_have(data_dir: Path, registry: Registry) -> None:
    with pytest.raises(SchemaError, match=r"no context '\.x', only the default one$"):
        read_schema_usage(data_dir, registry, context=".x")
    log = TopicLog(data_dir / "contexts-0")
    log.add(*(schema(f":.{number}:orders-value", 1, 1, AVRO) for number in range(7))).write()
    contexts = open_registry(data_dir, topic="contexts")
    with pytest.raises(SchemaError, match=r"only the default one, '\.0', .*'\.4' and 2 more$"):
        read_schema_usage(data_dir, contexts, context=".x")
    for context in ("", ".", ".6"):
        read_schema_usage(data_dir, contexts, context=context)
