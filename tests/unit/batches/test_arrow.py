"""Batch tables in pyarrow, pandas, Polars and DuckDB."""

from __future__ import annotations

import datetime
import sys

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import kafkascan as ks
from tests.support.segments import T0, Rig, message_v0

UTC_T0 = datetime.datetime.fromtimestamp(T0 / 1000, datetime.UTC)


@pytest.fixture(scope="module")
def scan() -> ks.BatchScan:
    rig = Rig().batches(3).batch(attributes=4, producer_id=7).batch(attributes=6)
    return rig.add(message_v0()).batch(base_timestamp=-1, max_timestamp=2**63 - 1).scan()


def test_every_column_keeps_its_values(scan: ks.BatchScan) -> None:
    table = scan.to_arrow()
    assert table.column_names == list(ks.batches.COLUMN_NAMES)
    for name in set(ks.batches.COLUMN_NAMES) - {"compression_type", "timestamp_type"}:
        values = table[name].combine_chunks()
        if pa.types.is_timestamp(values.type):
            values = values.cast(pa.int64()).fill_null(-1)
        assert np.array_equal(values.to_numpy(zero_copy_only=False), scan[name]), name
        assert values.type == pa.from_numpy_dtype(scan[name].dtype)


def test_logical_types(scan: ks.BatchScan) -> None:
    table = scan.to_arrow()
    assert table["max_timestamp"].type == pa.timestamp("ms", tz="UTC")
    assert table["max_timestamp"][0].as_py() == UTC_T0
    assert table["max_timestamp"].null_count == 1
    assert table["delete_horizon_ms"].null_count == len(scan)
    codecs = table["compression_type"].to_pylist()
    assert codecs == ["none"] * 3 + ["zstd", "unknown(6)", "none", "none"]
    assert set(table["timestamp_type"].to_pylist()) == {"CreateTime", "NoTimestampType"}


def test_a_selection_of_columns(scan: ks.BatchScan) -> None:
    table = scan.to_arrow(["last_offset", "crc"])
    assert table.column_names == ["last_offset", "crc"]
    assert list(scan.to_pandas(["crc"]).columns) == ["crc"]
    with pytest.raises(ValueError, match="there is no batch column"):
        scan.to_arrow(["offset"])


def test_pandas(scan: ks.BatchScan) -> None:
    frame = scan.to_pandas()
    assert str(frame["max_timestamp"].dtype) == "datetime64[ms, UTC]"
    assert frame["max_timestamp"].isna().sum() == 1
    assert frame["base_offset"].tolist() == scan["base_offset"].tolist()
    assert frame.groupby("compression_type", observed=True).size()["none"] == 5


def test_polars_takes_a_scan(scan: ks.BatchScan) -> None:
    frame = pl.DataFrame(scan)
    assert frame.shape == (len(scan), len(ks.batches.COLUMN_NAMES))
    assert frame["producer_id"].max() == 7


def test_duckdb_takes_a_scan(scan: ks.BatchScan) -> None:
    query = "select compression_type, count(*) from scan group by all order by all"
    assert duckdb.sql(query).fetchall() == [("none", 5), ("unknown(6)", 1), ("zstd", 1)]


def test_pyarrow_takes_the_stream(scan: ks.BatchScan) -> None:
    assert pa.table(scan).equals(scan.to_arrow())
    assert pa.RecordBatchReader.from_stream(scan).read_all().num_rows == len(scan)


def test_an_empty_scan() -> None:
    scan = ks.scan_batches(b"")
    assert scan.to_arrow().num_rows == 0
    assert scan.to_pandas().empty
    assert pl.DataFrame(scan).height == 0


def test_polars_frame(scan: ks.BatchScan) -> None:
    frame = scan.to_polars(["base_offset", "max_timestamp"])
    assert frame["base_offset"].to_list() == scan["base_offset"].tolist()
    assert frame["max_timestamp"].null_count() == 1


def test_a_missing_library_is_named(scan: ks.BatchScan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(ImportError, match=r"polars, .* pip install 'kafkascan\[polars\]\'"):
        scan.to_polars()
