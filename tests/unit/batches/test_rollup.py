"""Totals of batches by their properties."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np
import pytest

import kafkascan as ks
from kafkascan.batches.batch_schemas import ROLLUP_KEYS
from kafkascan.batches.rollup import TOTALS, BatchRollup, merge_rows
from tests.support.paths import GOLDEN

_LOGS = sorted(GOLDEN.glob("kafka-*/data/*/*.log"))


@pytest.mark.parametrize(
    "by", [(), ("codec",), ("magic", "producer"), ("day", "codec"), ROLLUP_KEYS]
)
def test_totals_equal_those_of_single_batches(by: tuple[str, ...]) -> None:
    expected: dict[tuple[object, ...], list[int]] = defaultdict(lambda: [0] * len(TOTALS))
    rows = []
    for path in _LOGS:
        batches = ks.scan_batches(path, on_corrupt="stop").batches
        rollup = BatchRollup(by)
        for start in range(0, len(batches), 7):
            rollup.add(batches[start : start + 7])
        rows += list(rollup.rows())
        for batch in batches:
            time = int(batch["max_timestamp"])
            text = str(np.datetime64(time, "ms"))
            properties = {
                "codec": ks.CompressionType.name_of(int(batch["attributes"]) & 7),
                "magic": int(batch["magic"]),
                "producer": int(batch["producer_id"]),
                "day": None if time < 0 else text[:10],
                "hour": None if time < 0 else text[:13],
            }
            total = expected[tuple(properties[name] for name in by)]
            count = int(batch["records_count"])
            size = int(batch["batch_length"]) + 12
            for index, value in enumerate((1, max(count, 0), int(count < 0), size)):
                total[index] += value
    found = merge_rows(rows, by)
    assert {
        tuple(row[name] for name in by): [row[name] for name in TOTALS] for row in found
    } == expected
    assert all(sum(row["codecs"].values()) == row["batches"] for row in found)
    if "codec" in by:
        assert all(row["codecs"] == {row["codec"]: row["batches"]} for row in found)
    assert sum(row["share"] for row in found) == pytest.approx(1, abs=0.01)


def test_order() -> None:
    row = dict.fromkeys(TOTALS, 1) | {"codecs": Counter()}
    rows = [
        row | {"day": "2026-01-02", "size": 9},
        row | {"day": None},
        row | {"day": "2026-01-01"},
    ]
    assert [one["day"] for one in merge_rows(rows, ["day"])] == [None, "2026-01-01", "2026-01-02"]
    codecs = [row | {"codec": "none"}, row | {"codec": "zstd", "size": 9}]
    assert [one["codec"] for one in merge_rows(codecs, ["codec"])] == ["zstd", "none"]
    assert merge_rows([], ["codec"]) == []


def test_bytes_in_no_batch() -> None:
    batches = ks.scan_batches(_LOGS[0], on_corrupt="stop").batches
    by_codec, by_nothing = BatchRollup(("codec", "day")), BatchRollup(())
    for rollup in (by_codec, by_nothing):
        rollup.add(batches)
        rollup.add_bytes(0)
        rollup.add_bytes(7)
        rollup.add_bytes(8)
    *_, last = by_codec.rows()
    assert (last["codec"], last["day"], last["batches"], last["size"]) == (None, None, 0, 15)
    (total,) = by_nothing.rows()
    assert (total["batches"], total["size"]) == (
        len(batches),
        15 + batches["batch_length"].sum() + 12 * len(batches),
    )


def test_damaged_timestamps() -> None:
    batches = ks.scan_batches(_LOGS[0], on_corrupt="stop").batches[:1].copy()
    for time, is_known in ((2**63 - 1, True), (-(2**63), False), (0, True)):
        batches["max_timestamp"] = time
        rollup = BatchRollup(("day", "hour"))
        rollup.add(batches)
        (row,) = rollup.rows()
        assert (row["day"] is not None) == is_known
