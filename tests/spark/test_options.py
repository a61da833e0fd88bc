"""Options: names, values and error messages."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from kafkascan.spark.options.option_values import format_offsets, parse_offsets
from kafkascan.spark.options.reader_options import (
    OPTION_NAMES,
    Options,
    WhereClause,
    without_connections,
)
from kafkascan.spark.options.view_schemas import VIEWS, arrow_schema, ddl


def test_names_have_any_case() -> None:
    options = Options.parse({"startingoffsets": "earliest", "MAXPARTITIONBYTES": "2m"})
    assert (options.starting_offsets, options.max_partition_bytes) == ("earliest", 2 << 20)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"startingOffset": "x"}, "did you mean 'startingOffsets'"),
        ({"veiw": "x"}, "did you mean 'view'"),
        ({"somethingElse": "x"}, "has no option 'somethingElse'"),
        ({"view": "record"}, "did you mean 'records'"),
        ({"mode": "LENIENT"}, "expected one of FAILFAST, PERMISSIVE, DROPMALFORMED"),
        ({"verify": "yes"}, "option verify='yes': expected true or false"),
        ({"columns": "key,valeu"}, "did you mean 'value'"),
        ({"columns": "key,KEY"}, "named twice"),
        ({"view": "batches", "columns": "value"}, "no column 'value'"),
        ({"startingOffsets": "{"}, "is not JSON"),
        ({"startingOffsets": '{"t": 1}'}, "is neither earliest nor latest"),
        ({"startingOffsets": '{"t": {"0": -3}}'}, "at least 0"),
        ({"endingOffsets": "earliest"}, "cannot be 'earliest'"),
        ({"startingTimestamp": "soon"}, "expected a whole number"),
        ({"startingTimestamp": "-3"}, "at least -2"),
        ({"startingOffsetsByTimestamp": '{"t": {"0": -3}}'}, "at least 0, or -1 for latest"),
        ({"endingOffsetsByTimestamp": '{"t": 5}'}, 'expected {"topic":{"0":23,"1":-2}}'),
        ({"assign": '{"t": 5}'}, 'expected {"topic":[0,1]}'),
        ({"assign": "t"}, "is not JSON"),
        ({"assign": '{"t": [0]}', "subscribe": "t"}, "assign and subscribe cannot be combined"),
        ({"subscribe": "a", "topics": "b"}, "subscribe and topics cannot be combined"),
        ({"topics": "a", "TOPICS": "b"}, "option topics is given twice"),
        ({"startingOffsets": '{"t":{"0":1.5}}'}, 'expected {"topic":{"0":23,"1":-2}}'),
        ({"startingOffsets": '{"t":{"0":"x"}}'}, 'expected {"topic":{"0":23,"1":-2}}'),
        ({"endingOffsetsByTimestamp": '{"t":{"0":1e3}}'}, 'expected {"topic":{"0":23,"1":-2}}'),
        ({"assign": '{"t":[1.5]}'}, 'expected {"topic":[0,1]}'),
        ({"subscribePattern": "("}, "is not a regular expression"),
        ({"topics": "a", "topicPattern": "b"}, "cannot be combined"),
        ({"topicPattern": "("}, "is not a regular expression"),
        ({"partitions": "1-x"}, "0,3,5-7"),
        ({"maxPartitionBytes": "many"}, "expected a size"),
        ({"minPartitions": "0"}, "at least 1"),
        # Tables for so many rows need more memory than there is: every task failed.
        ({"prefetch": "999999999999"}, "expected at most 1000"),
        ({"maxOffsetsPerTrigger": "9" * 23}, "expected at most 9223372036854775807"),
        ({"view": "batches", "isolationLevel": "read_committed"}, "requires the view 'records'"),
        ({"where": "producer_ld == 1"}, "did you mean 'producer_id'"),
        ({"where": "__import__('os')"}, "not part of a condition"),
        ({"where": "producer_id =="}, "is not a condition"),
        ({"where": "producer_id = 'x'"}, "'x'\" is not part of a condition"),
        ({"where": "base_offset < last_offset"}, "not part of a condition"),
        ({"where": "true"}, "not part of a condition"),
        ({"storageOptions": "[]"}, "JSON object"),
    ],
)
def test_invalid_options(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=r".") as error:
        Options.parse(given)
    assert message in str(error.value)


def test_values() -> None:
    options = Options.parse(
        {
            "path": "/a",
            "paths": '["/b", "/c"]',
            "topics": "x, y",
            "partitions": "0,3,5-7",
            "startingOffsets": '{"x":{"0":23,"1":-2}}',
            "includeHeaders": "TRUE",
            "isolationLevel": "read_committed",
        }
    )
    assert options.paths == ("/a", "/b", "/c")
    assert options.topics == ("x", "y")
    assert options.partitions == (0, 3, 5, 6, 7)
    assert options.starting_offsets == {("x", 0): 23, ("x", 1): -2}
    assert options.schema()[-1].name == "headers"
    assert pickle.loads(pickle.dumps(options)) == options
    assert len(OPTION_NAMES) >= 30


def test_options_of_sparks_kafka_source() -> None:
    options = Options.parse(
        {
            "subscribe": "x, y,",
            "startingOffsetsByTimestamp": '{"x":{"0":1000,"1":-2}}',
            "endingoffsetsbytimestamp": {"x": {"0": -1}},
            "startingOffsets": "earliest",
        }
    )
    assert options.topics == ("x", "y")
    assert options.starting_offsets_by_timestamp == {("x", 0): 1000, ("x", 1): -2}
    assert options.ending_offsets_by_timestamp == {("x", 0): -1}
    assert [options.starting_time(("x", n)) for n in range(3)] == [1000, -2, None]
    one_time = options.replace(starting_timestamp=7)
    assert [one_time.starting_time(("x", n)) for n in range(3)] == [7, 7, 7], "it has precedence"
    assert Options.parse({"assign": '{"x":[0,2],"y":[1]}'}).assign == (("x", 0), ("x", 2), ("y", 1))


def test_options_of_connections() -> None:
    """A query for Spark's Kafka source has more options; those that mean something count."""
    given = {
        "kafka.bootstrap.servers": "localhost:9092",
        "kafka.isolation.level": "read_committed",
        "Kafka.Check.Crcs": "false",
        "kafka.security.protocol": "SASL_SSL",
        "subscribe": "x",
        "includeheaders": "true",
        "failondataloss": "false",
        "maxoffsetspertrigger": "7",
        "minoffsetspertrigger": "3",
        "maxtriggerdelay": "15m",
        "maxrecordsperpartition": "100",
        "groupidprefix": "g",
        "kafkaconsumer.polltimeoutms": "512",
        "fetchoffset.numretries": "3",
        "fetchoffset.retryintervalms": "10",
    }
    kept, ignored = without_connections(given)
    options = Options.parse(kept)
    assert (options.isolation_level, options.verify) == ("read_committed", False)
    assert (options.topics, options.max_offsets_per_trigger) == (("x",), 7)
    expected = """fetchOffset.numRetries fetchOffset.retryIntervalMs groupIdPrefix
        kafka.bootstrap.servers kafka.security.protocol kafkaConsumer.pollTimeoutMs
        maxRecordsPerPartition maxTriggerDelay minOffsetsPerTrigger"""
    assert ignored == expected.split()
    twice = {"isolationLevel": "read_committed", "kafka.isolation.level": "read_committed"}
    with pytest.raises(ValueError, match=r"isolationLevel and kafka.isolation.level cannot be"):
        Options.parse(twice)


def test_offsets_round_trip() -> None:
    shown = {"a": {"0": 5}, "b": {"0": 1, "10": 7}}
    assert format_offsets(parse_offsets(shown)) == shown


def test_defaults_follow_the_view() -> None:
    records, batches = Options.parse({}), Options.parse({"view": "batches"})
    assert (records.fails_fast, batches.fails_fast) == (True, False)
    assert (records.verifies, batches.verifies) == (True, False)
    assert Options.parse({"view": "batches", "columns": "crc_is_valid"}).verifies
    assert [column.name for column in Options.parse({"mode": "permissive"}).schema()][-1] == (
        "_corrupt_record"
    )


@pytest.mark.parametrize("view", VIEWS)
def test_every_column_has_its_types(view: str) -> None:
    columns = VIEWS[view]
    schema = arrow_schema(columns)
    assert [field.name for field in schema] == [column.name for column in columns]
    assert ddl(columns).count("`") == 2 * len(columns)
    assert [field.nullable for field in schema] == [column.nullable for column in columns]


COLUMNS = {
    "producer_id": np.array([1, 2, 3]),
    "max_timestamp": np.array([10, 20, 30]),
    "compression_type": np.array(["none", "gzip", "none"]),
    "is_control": np.array([False, True, False]),
    "topic": "orders",
    "partition": 4,
    "segment": "00000000000000000000.log",
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("producer_id == 2", [0, 1, 0]),
        ("Producer_ID = 2", [0, 1, 0]),
        ("producer_id <> 2", [1, 0, 1]),
        ("1 < producer_id < 3", [0, 1, 0]),
        ("producer_id in (1, 3)", [1, 0, 1]),
        ("producer_id NOT IN (1, 3)", [0, 1, 0]),
        ("compression_type = 'gzip' OR max_timestamp >= 30", [0, 1, 1]),
        ("is_control", [0, 1, 0]),
        ("not is_control and producer_id > -1", [1, 0, 1]),
        ("topic = 'orders' and partition = 4", [1, 1, 1]),
        ("topic = 'and or' or partition = 5", [0, 0, 0]),
        ("not (producer_id in (1, 3) or is_control = true)", [0, 0, 0]),
        ("not 1 < producer_id < 3", [1, 0, 1]),
        ("compression_type in ('gzip', 'zstd')", [0, 1, 0]),
    ],
)
def test_conditions(text: str, expected: list[int]) -> None:
    where = pickle.loads(pickle.dumps(WhereClause.parse(text)))
    assert where == WhereClause.parse(text)
    assert where.mask(COLUMNS.__getitem__, 3).tolist() == [bool(one) for one in expected]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("topic = 'orders'", True),
        ("topic = 'other'", False),
        ("topic = 'other' and producer_id = 1", False),
        ("topic = 'other' or producer_id = 1", True),
        ("topic = 'orders' or producer_id = 1", True),
        ("not (partition = 4 or producer_id = 1)", False),
        ("producer_id = 1", True),
        ("segment < '00000000000000000000.log'", False),
        ("segment = '00000000000000000000.log'", True),
    ],
)
def test_conditions_on_files(text: str, expected: bool) -> None:
    file = {"topic": "orders", "partition": 4, "segment": "00000000000000000000.log"}
    assert WhereClause.parse(text).may_match_file(file) is expected
