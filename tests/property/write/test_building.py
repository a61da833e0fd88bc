"""Built batches are read back by the reference reader and by read_records."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, strategies as st

import kafkascan as ks
from kafkascan.write.record_columns import columns_of_table
from tests.support.examples import examples
from tests.support.records import read_slowly

MAX_INT, MAX_LONG = 2**31 - 1, 2**63 - 1
_ITEMS = st.none() | st.binary(max_size=40) | st.integers(0, 300).map(bytes)
_EDGES = [1, 63, 64, 8191, 8192, 2**20 - 1, 2**20, 2**27 - 1, 2**27, MAX_INT, MAX_INT + 1]
_STEPS = st.integers(1, 5) | st.sampled_from(_EDGES)
_TIMES = st.sampled_from([-1, 0, MAX_LONG, 1_714_000_000_000]) | st.integers(-1, MAX_LONG)
_HEADERS = st.lists(st.tuples(st.binary(max_size=9), _ITEMS), max_size=4)


_RECORD = st.tuples(_STEPS, _TIMES, _ITEMS, _ITEMS, _HEADERS)


@st.composite
def _records(draw: st.DrawFn) -> dict[str, Any]:
    first = draw(st.sampled_from([0, 1, 2**40, 2**62]))
    records = draw(st.lists(_RECORD, min_size=1, max_size=12))
    steps, *columns = map(list, zip(*records, strict=True))
    names = ("timestamp", "key", "value", "headers")
    offset = (first + np.cumsum(steps, dtype=np.int64)).tolist()
    return {"offset": offset, **dict(zip(names, columns, strict=True))}


def _rows(columns: dict[str, Any]) -> list[tuple[Any, ...]]:
    names = ("offset", "timestamp", "key", "value", "headers")
    return list(zip(*(columns[name] for name in names), strict=True))


@examples(200)
@given(_records(), st.integers(1, 2000), st.none() | st.integers(1, 40))
def test_the_reference_reader_reads_built_batches(
    columns: dict[str, Any], batch_size: int, max_records: int | None
) -> None:
    found: list[tuple[Any, ...]] = []
    for batch in ks.iter_built_batches(columns, batch_size=batch_size, max_records=max_records):
        records = read_slowly(bytes(batch))
        assert len(batch) <= batch_size or len(records) == 1
        assert len(records) <= (max_records or MAX_INT)
        found += records
    assert found == _rows(columns)


@examples(150)
@given(
    _records(),
    st.sampled_from([0, 1, 2]),
    st.sampled_from(["none", "gzip", "snappy", "lz4", "zstd"]),
    st.integers(1, 3000),
)
def test_read_records_reads_built_batches(
    columns: dict[str, Any], magic: int, codec: str, batch_size: int
) -> None:
    if magic < 2:
        columns["headers"] = [[]] * len(columns["offset"])
        codec = "none" if codec == "zstd" else codec
    options: dict[str, Any] = {"magic": magic, "compression_type": codec}
    data = ks.build_batches(columns, batch_size=batch_size, **options)
    batches = ks.scan_batches(data).batches
    assert ks.verify_crcs(data, batches).all()
    table = ks.read_records(data)
    if magic == 0:
        columns["timestamp"] = [-1] * len(table)
    read = [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in table]
    assert read == _rows(columns)
    # The table gives the same batches.
    again = ks.build_batches(table, batch_size=batch_size, **options)
    assert again == data
    assert len(columns_of_table(table)) == len(table)


@examples(100)
@given(_records(), st.sampled_from(["none", "lz4"]))
def test_a_builder_and_columns_write_the_same(columns: dict[str, Any], codec: str) -> None:
    first = columns["offset"][0]
    rows = [row for row in _rows(columns) if row[0] - first <= MAX_INT]
    builder = ks.BatchBuilder(base_offset=first, compression_type=codec)
    for offset, timestamp, key, value, headers in rows:
        builder.append(timestamp, key, value, headers, offset=offset)
    few = {name: column[: len(rows)] for name, column in columns.items()}
    assert builder.build() == ks.build_batches(few, batch_size=MAX_INT, compression_type=codec)
