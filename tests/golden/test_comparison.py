"""The comparison with Kafka detects every wrong field, row and end."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import kafkascan
from tests.support import compare

_RUN = Path(__file__).parent / "kafka-4.4.0"
_NAME = "transactions-0/00000000000000000005.log"
_LOG = _RUN / "data" / _NAME
_DUMP = (_RUN / "dump" / f"{_NAME}.txt").read_text(encoding="utf-8")
_FIELDS = (_RUN / "fields" / f"{_NAME}.jsonl").read_text(encoding="utf-8")

_IN_BOTH = [
    "position", "base_offset", "batch_length", "partition_leader_epoch", "magic", "crc",
    "attributes", "last_offset_delta", "max_timestamp", "producer_id", "producer_epoch",
    "base_sequence", "records_count", "last_offset", "last_sequence", "size_in_bytes",
    "compression_type", "timestamp_type", "is_transactional", "is_control", "delete_horizon_ms",
    "is_valid",
]  # fmt: skip


def test_the_columns_are_equal() -> None:
    assert compare.compare_segment(_LOG, _DUMP, _FIELDS) > 10


@pytest.mark.parametrize("row", [0, -1])
@pytest.mark.parametrize("field", [*_IN_BOTH, "base_timestamp"])
def test_one_wrong_value_is_detected(field: str, row: int, monkeypatch: pytest.MonkeyPatch) -> None:
    read = compare.our_columns

    def read_wrongly(log: Path, batches: np.ndarray) -> compare.Columns:
        columns = read(log, batches)
        column = columns[field].astype(np.int64)
        column[row] ^= 1
        return {**columns, field: column}

    monkeypatch.setattr(compare, "our_columns", read_wrongly)
    references = 2 if field in _IN_BOTH else 1
    with pytest.raises(
        AssertionError, match=rf"{references} differences\nposition \d+: {field} is"
    ):
        compare.compare_segment(_LOG, _DUMP, _FIELDS)


def test_every_column_is_compared() -> None:
    batches = kafkascan.scan_batches(_LOG).batches
    assert set(compare.our_columns(_LOG, batches)) == {*_IN_BOTH, "base_timestamp"}


def test_a_missing_batch_is_detected(tmp_path: Path) -> None:
    rows = _FIELDS.splitlines()
    without_one = "\n".join(rows[:-2] + rows[-1:])
    with pytest.raises(AssertionError, match="references disagree"):
        compare.compare_segment(_LOG, _DUMP, without_one)


@pytest.mark.parametrize("change", [{"end": "partial"}, {"validBytes": 1}, {"trailingBytes": 1}])
def test_another_end_is_detected(change: dict[str, object]) -> None:
    *rows, end = _FIELDS.splitlines()
    changed = "\n".join([*rows, json.dumps({**json.loads(end), **change})])
    with pytest.raises(AssertionError, match="ends with"):
        compare.compare_segment(_LOG, _DUMP, changed)


def test_comparing_nothing_is_a_failure() -> None:
    with pytest.raises(AssertionError, match="nothing was compared"):
        compare.compare_segments([])
