"""Times that callers give to what writes or rewrites batches."""

from __future__ import annotations

import datetime
from pathlib import Path

import numpy as np
import pandas as pd
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
