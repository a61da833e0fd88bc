"""DuckDB over a lazy frame gives the rows of DuckDB over all records, and reads fewer of them."""

from __future__ import annotations

from functools import cache

import duckdb
import polars as pl
import pytest
from hypothesis import given, strategies as st

from kafkascan.logs.queries.conditions import Condition
from kafkascan.polars import lazy_records, scan_records
from tests.support.examples import examples
from tests.support.paths import GOLDEN

DATA = GOLDEN / "kafka-4.4.0" / "data"
QUERY = 'SELECT topic, partition, "offset", epoch_ms("timestamp"), "key" FROM records WHERE '


@cache
def everything() -> pl.DataFrame:
    return scan_records(DATA).collect()


def rows(records: pl.DataFrame | pl.LazyFrame, where: str) -> list[tuple[object, ...]]:
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.register("records", records)
    try:
        return connection.execute(QUERY + where).fetchall()
    finally:
        connection.close()


@st.composite
def terms(draw: st.DrawFn) -> str:
    name = draw(st.sampled_from(["topic", "partition", '"offset"', '"timestamp"']))
    known = everything()[name.strip('"')].unique().sort()
    values = st.sampled_from(known.to_list())
    shown = values.map(lambda value: repr(value) if isinstance(value, (int, str)) else f"'{value}'")
    match draw(st.integers(0, 3)):
        case 0 | 1:
            relation = draw(st.sampled_from(["<", "<=", ">", ">=", "=", "<>"]))
            return f"{name} {relation} {draw(shown)}"
        case 2:
            return f"{name} BETWEEN {draw(shown)} AND {draw(shown)}"
        case _:
            return f"{name} IN ({', '.join(draw(st.lists(shown, min_size=1, max_size=4)))})"


WHERE = st.recursive(
    terms(),
    lambda inner: st.one_of(
        st.builds("({} AND {})".format, inner, inner),
        st.builds("({} OR {})".format, inner, inner),
        st.builds("NOT ({})".format, inner),
    ),
    max_leaves=4,
)


@examples(200)
@given(WHERE)
def test_a_query_gives_the_rows_of_one_over_all_records(where: str) -> None:
    def key(row: tuple[object, ...]) -> list[str]:
        return [repr(value) for value in row]

    assert sorted(rows(scan_records(DATA), where), key=key) == sorted(
        rows(everything(), where), key=key
    )


@pytest.mark.parametrize(
    ("where", "columns"),
    [
        ("topic = 'compacted'", {"topic"}),
        ("topic IN ('compacted', 'consumed')", {"topic"}),
        ("\"offset\" BETWEEN 3 AND 5 AND topic = 'consumed'", {"offset", "topic"}),
        ("\"timestamp\" >= TIMESTAMPTZ '2020-01-01 00:00:00.0005+00'", {"timestamp"}),
        ('"offset" IN (1, 2) OR "offset" > 1000', {"offset"}),
    ],
)
def test_filters_arrive_at_the_reader(
    where: str, columns: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """DuckDB rewrites them for Polars; a new release of either may do it in another way."""
    found: list[Condition] = []
    condition_of = lazy_records.condition_of

    def spy(predicate: pl.Expr, schema: pl.Schema, *levels: int) -> Condition:
        condition = condition_of(predicate, schema, *levels)
        if not levels:  # not a part of a predicate
            found.append(condition)
        return condition

    monkeypatch.setattr(lazy_records, "condition_of", spy)
    assert rows(scan_records(DATA), where)
    assert [condition.columns for condition in found] == [columns]
