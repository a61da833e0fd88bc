"""Times that callers give to what writes or rewrites batches."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import kafkascan as ks
from kafkascan.format.times import TimeLike

TIME = 1_714_000_000_001
_ISO = "2024-04-24T23:06:40.001"
FORMS: list[TimeLike] = [
    TIME,
    datetime.datetime.fromisoformat(f"{_ISO}+00:00"),
    datetime.datetime.fromisoformat(_ISO),
    np.datetime64(_ISO),
    pd.Timestamp(_ISO),
    _ISO,
    "2024-04-25T01:06:40.001+02:00",
    str(TIME),
]


@pytest.mark.parametrize("time", FORMS, ids=lambda time: f"{type(time).__name__} {time}")
def test_every_form_of_a_time(time: TimeLike, tmp_path: Path) -> None:
    def build(**options: object) -> np.ndarray:
        data = ks.build_batches(key=["k"], value=[None], **options)  # type: ignore[arg-type]
        return ks.scan_batches(data).batches

    assert build(timestamp_type=1, log_append_time=time)["max_timestamp"] == TIME
    assert build(delete_horizon_ms=time)["base_timestamp"] == TIME
    builder = ks.BatchBuilder()
    assert builder.has_room_for(time, b"k", None)
    builder.append(time, b"k", None)
    data = builder.build()
    assert ks.scan_batches(data)["max_timestamp"].tolist() == [TIME]
    log = ks.build_batches(key=["k"], value=[None], timestamp=0)
    for given in (time, [time], np.array([time])):
        restamped = ks.restamp(log, max_timestamp=given)
        assert ks.scan_batches(restamped)["max_timestamp"].tolist() == [TIME]
    path = tmp_path / "log"
    path.write_bytes(log)
    ks.restamp_log(path, tmp_path / "new", max_timestamp=time)
    assert ks.scan_batches(tmp_path / "new")["max_timestamp"].tolist() == [TIME]
    kept = ks.filter_records(log, keep=ks.without_keys([]), new_delete_horizon_ms=time).data
    assert ks.scan_batches(kept)["delete_horizon_ms"].tolist() == [TIME]


@pytest.mark.parametrize(
    "times",
    [
        np.array([1, 2**62], "datetime64[s]"),
        np.array([2**62], "datetime64[D]"),
        np.array([2**40], "datetime64[Y]"),
        pa.array([1, 2**62], pa.timestamp("s")),
        pa.chunked_array([[2**62, None]], pa.timestamp("s", tz="UTC")),
        [1, 2**64 - 1],
        [2**64],
    ],
)
def test_times_that_do_not_fit_are_refused(times: Any) -> None:
    with pytest.raises(ValueError, match=r"64 bits|2\*\*63"):
        ks.build_batches(key=["k"] * len(times), timestamp=times)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_times_of_arrow(unit: str, zone: str | None) -> None:
    per_unit = {"s": 1000, "ms": 1, "us": 1, "ns": 1}[unit]
    column = pa.chunked_array([[5, None], [7]], pa.timestamp(unit, tz=zone))
    for times in (column, column.combine_chunks()):
        log = ks.build_batches(key=["k"] * 3, timestamp=times)
        found = ks.read_records(log)["timestamp"].tolist()
        per_milli = {"us": 1000, "ns": 10**6}.get(unit, 1)
        assert found == [5 * per_unit // per_milli, -1, 7 * per_unit // per_milli]


def test_offsets_that_numpy_takes_for_floats_are_out_of_range() -> None:
    with pytest.raises(ValueError, match="offset does not fit into 64 bits"):
        ks.build_batches(key=["k", "k"], offset=[1, 2**64 - 1])
    with pytest.raises(TypeError, match="offset must be integers, not float64"):
        ks.build_batches(key=["k", "k"], offset=[1.0, 2.0])
