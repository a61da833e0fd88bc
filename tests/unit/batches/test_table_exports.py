"""Displays that all tables share, and a scan as an array of rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import kafkascan as ks
from tests.support.segments import Rig

DATA = Path(__file__).parents[2] / "golden" / "kafka-4.4.0" / "data"


def test_a_scan_behaves_as_its_array_of_rows() -> None:
    scan = Rig().batches(5).scan()
    assert scan[0] == scan.batches[0]
    assert scan[np.int64(-1)]["base_offset"] == scan.batches["base_offset"][-1]
    assert scan[1:3].dtype == ks.BATCH_DTYPE
    assert scan[scan["base_offset"] > 0].tolist() == scan.batches[1:].tolist()
    assert scan[[0, 2]].tolist() == scan.batches[[0, 2]].tolist()
    assert [row["position"] for row in scan] == scan["position"].tolist()
    assert np.asarray(scan).dtype == ks.BATCH_DTYPE
    assert len(scan) == 5
    with pytest.raises(IndexError, match=r"index 5 is out of bounds .* size 5"):
        scan[5]
    with pytest.raises(ValueError, match="did you mean 'base_offset'"):
        scan["base_ofset"]


def test_a_notebook_shows_the_first_rows_of_a_scan() -> None:
    shown = Rig().batches(500).scan()._repr_html_()
    assert shown.count("<tr>") == 11  # the names of columns, and ten rows
    assert "&lt;BatchScan" in shown
    assert "<th>compression_type</th>" in shown
    assert "<td>none</td>" in shown
    assert "<td>2024-04-24T" in shown
    assert len(shown) < 20_000


def test_an_empty_scan_is_shown_without_rows() -> None:
    shown = ks.scan_batches(b"")._repr_html_()
    assert shown.count("<tr>") == 1


def test_long_values_are_cut_and_escaped() -> None:
    log = ks.build_batches({"key": [b"<b>"], "value": [b"x" * 1_000_000]})
    shown = ks.read_records(log)._repr_html_()
    assert "&lt;b&gt;" in shown
    assert "…" in shown
    assert len(shown) < 5_000


def test_a_notebook_shows_the_first_rows_of_a_log_dir() -> None:
    table = ks.scan_log_dir(DATA, columns=["topic", "partition", "segment", "base_offset"])
    ends = table.ends
    shown = table._repr_html_()
    assert shown.count("<tr>") == 11
    assert ".log</td>" in shown
    assert table.ends is ends  # a display is not an iteration
    assert table.to_pandas(["topic"]).columns.tolist() == ["topic"]
    assert table.to_polars().height == table.to_arrow().num_rows


def test_pandas_with_arrow_columns_has_equal_values() -> None:
    logs = sorted(DATA.rglob("*.log"))
    tables = [ks.scan_log_dir(DATA), ks.count_records(DATA), *map(ks.read_records, logs)]
    for table in tables:
        frame, other = table.to_pandas(dtype_backend="pyarrow"), table.to_pandas()
        assert {type(kind) for kind in frame.dtypes} == {pd.ArrowDtype}
        assert frame.columns.tolist() == other.columns.tolist()
        for name in frame:
            found, expected = ([_plain(one) for one in it[name]] for it in (frame, other))
            assert found == expected, name


def _plain(value: object) -> object:
    """Return None for every null of pandas, and a list for an array."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    return None if value is pd.NA or value is pd.NaT or value != value else value


def test_pandas_with_an_unknown_backend_is_refused() -> None:
    with pytest.raises(ValueError, match="dtype_backend must be 'pyarrow' or None, not 'numpy'"):
        ks.scan_batches(b"").to_pandas(dtype_backend="numpy")  # type: ignore[arg-type]
