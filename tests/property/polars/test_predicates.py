"""A lazy scan with any predicate gives the rows of an eager read that Polars filters."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache

import polars as pl
from hypothesis import given, strategies as st
from polars.testing import assert_frame_equal

import kafkascan as ks
from kafkascan.polars import scan_records
from tests.support.examples import examples
from tests.support.paths import GOLDEN

# Magic 0 to 2, all codecs, deleted records, compacted and transactional logs.
DATA_DIRS = [GOLDEN / "kafka-4.4.0" / "data", GOLDEN / "kafka-2.8.2" / "data"]
COLUMNS = ["offset", "timestamp", "key", "value", "producer_id", "base_offset", "sequence"]


@cache
def eager(data_dir: int) -> pl.DataFrame:
    frames = []
    for partition in ks.open_log_dir(DATA_DIRS[data_dir]).partitions:
        table = ks.read_records(partition, columns=COLUMNS).to_polars()
        topic = pl.lit(partition.topic, pl.String).alias("topic")
        number = pl.lit(partition.partition, pl.Int32).alias("partition")
        frames.append(table.select(topic, number, *COLUMNS))
    return pl.concat(frames)


@cache
def lazy(data_dir: int) -> pl.LazyFrame:
    return scan_records(DATA_DIRS[data_dir], columns=["topic", "partition", *COLUMNS])


@st.composite
def values(draw: st.DrawFn, name: str, data_dir: int) -> object:
    """A value of a column, or one next to it."""
    known = eager(data_dir)[name].drop_nulls().unique().sort().to_list()
    value = draw(st.sampled_from(known))
    step = draw(st.sampled_from([-1, 0, 0, 1]))
    if isinstance(value, datetime):
        unit = draw(st.sampled_from(["milliseconds", "microseconds", "days"]))
        return value.astimezone(UTC) + timedelta(**{unit: step})
    return value + step if isinstance(value, int) else value


def as_listed(several: list[object], name: str) -> pl.Series:
    """Return values of a column in its unit of time: before Polars 2, `is_in` takes no other."""
    return pl.Series(several, strict=False).cast(eager(0).schema[name])


@st.composite
def terms(draw: st.DrawFn, data_dir: int) -> pl.Expr:
    names = ["topic", "partition", "offset", "timestamp", "producer_id", "base_offset", "sequence"]
    name = draw(st.sampled_from(names))
    column, value = pl.col(name), values(name, data_dir)
    match draw(st.integers(0, 7)):
        case 0 | 1 | 2:
            relation = draw(st.sampled_from(["lt", "le", "gt", "ge", "eq", "ne"]))
            one = pl.lit(draw(value))
            if name == "timestamp" and draw(st.booleans()):  # as DuckDB compares times
                column = column.dt.cast_time_unit("us")
                one = pl.lit(draw(value), pl.Datetime("us", "UTC"))
            sides = (column, one) if draw(st.booleans()) else (one, column)
            return getattr(sides[0], relation)(sides[1])
        case 3:
            closed = draw(st.sampled_from(["both", "left", "right", "none"]))
            return column.is_between(pl.lit(draw(value)), pl.lit(draw(value)), closed=closed)
        case 4:
            several = draw(st.lists(value, max_size=4))
            return column.is_in(several if name != "timestamp" else as_listed(several, name))
        case 5:
            listed = column.is_in(as_listed([draw(value)], name))
            return pl.when(column.is_null()).then(None).otherwise(listed)
        case 6:
            return draw(st.sampled_from([column.is_null(), column.eq_missing(pl.lit(draw(value)))]))
        case _:
            return draw(
                st.sampled_from(
                    [
                        pl.col("value").is_not_null(),
                        pl.col("key").bin.size() > 3,
                        pl.col("offset") % 3 == 1,
                        pl.col("offset") > 4.5,
                        pl.col("offset") > pl.col("base_offset") + 1,
                        pl.lit(True),
                    ]
                )
            )


@st.composite
def predicates(draw: st.DrawFn) -> tuple[int, pl.Expr]:
    data_dir = draw(st.integers(0, len(DATA_DIRS) - 1))
    one = terms(data_dir)
    expression = st.recursive(
        one,
        lambda inner: st.one_of(
            st.builds(lambda left, right: left & right, inner, inner),
            st.builds(lambda left, right: left | right, inner, inner),
            inner.map(lambda part: ~part),
        ),
        max_leaves=6,
    )
    return data_dir, draw(expression)


@examples(500)
@given(predicates(), st.sampled_from(["in-memory", "streaming"]))
def test_filters_give_the_rows_of_an_eager_read(case: tuple[int, pl.Expr], engine: str) -> None:
    data_dir, predicate = case
    expected = eager(data_dir).filter(predicate)
    found = lazy(data_dir).filter(predicate).collect(engine=engine)
    assert_frame_equal(found, expected)


@examples(300)
@given(predicates(), st.integers(0, 200), st.lists(st.sampled_from(COLUMNS), unique=True))
def test_filters_slices_and_columns_are_applied_in_their_order(
    case: tuple[int, pl.Expr], count: int, names: list[str]
) -> None:
    data_dir, predicate = case
    names = ["partition", *names]
    after = lazy(data_dir).filter(predicate).head(count).select(names).collect()
    assert_frame_equal(after, eager(data_dir).filter(predicate).head(count).select(names))
    before = lazy(data_dir).head(count).filter(predicate).select(names).collect()
    assert_frame_equal(before, eager(data_dir).head(count).filter(predicate).select(names))
