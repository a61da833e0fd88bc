"""The topic of a schema registry that a broker wrote and compacted, and records with prefixes."""

from __future__ import annotations

import kafkascan as ks
from kafkascan.analysis import read_schema_usage
from kafkascan.schemas import open_registry
from tests.oracle.scenarios.registry import GUID
from tests.support.paths import GOLDEN
from tests.support.schema_topics import MONEY, PROTO

DATA = GOLDEN / "kafka-4.4.0-schemas" / "data"


def test_the_state_is_that_of_the_rules() -> None:
    found = open_registry(DATA)
    assert [(one.subject, one.version, one.schema.id, one.is_deleted) for one in found] == [
        (":.staging:orders-value", 1, 1, False),
        ("back-value", 1, 8, True),
        ("back-value", 3, 9, False),
        ("bills-value", 1, 5, False),
        ("clear-value", 2, 11, False),
        ("events-value", 1, 6, False),
        ("money", 1, 4, False),
        ("orders-key", 1, 3, False),
        ("orders-value", 1, 1, False),
        ("orders-value", 2, 2, False),
        ("panda-value", 1, 12, False),
    ]
    assert [one.symbol for one in found.problems] == ["DUPLICATE_SCHEMA_ID"]
    levels = [found.compatibility_of(one) for one in ("orders-value", "money", ":.staging:x")]
    assert levels == ["FULL_TRANSITIVE", "BACKWARD", None]
    assert found.mode_of(":.staging:orders-value") == "READONLY"
    bill, key = found.newest("bills-value"), found.newest("orders-key")
    assert bill is not None
    assert bill.text == PROTO
    assert found.referenced(bill)["money.proto"].text == MONEY
    assert found.schema_of_guid(GUID) == key
    assert found.schema(7) is None
    staged = found.schema(1, context=".staging")
    assert staged is not None
    assert staged.text == '"long"'


def test_a_state_before_the_compaction_is_named() -> None:
    (problem,) = open_registry(DATA, as_of=12).problems
    assert problem.symbol == "COMPACTED"


def test_the_schemas_of_records() -> None:
    usage = read_schema_usage(DATA, open_registry(DATA))
    rows = [
        (one["subject"], one["version"], one["framing"], one["records"]) for one in usage.rows()
    ]
    assert rows == [
        ("orders-key", 1, "header", 1),
        ("orders-value", 1, "confluent", 3),
        ("orders-value", 2, "confluent", 2),
        (None, None, "null", 1),
        (None, None, "no_prefix", 1),
        (None, None, "unknown_id", 1),
    ]
    assert sum(usage["records"]) == len(ks.read_records(DATA / "orders-0"))
