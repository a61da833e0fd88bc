"""read_committed, compared with a model of Kafka's consumer."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

import kafkascan as ks
from kafkascan.spark.options.reader_options import Options
from kafkascan.spark.planning.file_listing import list_logs
from kafkascan.spark.rows.committed_views import committed_view
from tests.spark.logs import (
    ABORT,
    COMMIT,
    DATA,
    data,
    marker,
    plain_batch,
    rows,
    segment_path,
)
from tests.support.transactional_logs import TransactionalLog


def committed(folder: Path, **options: object) -> list[int]:
    found = rows(path=str(folder), isolationLevel="read_committed", **options)
    return sorted(row["offset"] for row in found)


STEPS = st.lists(
    st.tuples(st.sampled_from(["plain", "data", "commit", "abort", "roll"]), st.integers(1, 3)),
    max_size=30,
)


@settings(max_examples=60)
@given(steps=STEPS, size=st.integers(40, 900))
def test_any_transactions(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]], size: int
) -> None:
    folder = tmp_path_factory.mktemp("log")
    log = TransactionalLog(folder)
    log.write(steps)
    assert committed(folder) == log.moments[-1]
    assert committed(folder, maxPartitionBytes=size) == log.moments[-1]


def test_deleted_segments(tmp_path: Path) -> None:
    """A marker without batches has no effect; an aborted transaction may lack its first batches."""
    log = marker(10, 1, ABORT) + data(11, 2) + plain_batch(12, 1) + marker(13, 2, ABORT)
    segment_path(tmp_path, "topic", base_offset=10).write_bytes(log)
    assert committed(tmp_path) == [12]
    assert committed(tmp_path, includeControlRecords="true") == [10, 12, 13]


def test_partitions_are_independent(tmp_path: Path) -> None:
    segment_path(tmp_path, "topic", 0).write_bytes(data(0, 1) + plain_batch(1, 1))
    segment_path(tmp_path, "topic", 1).write_bytes(plain_batch(0, 1) + data(1, 1))
    found = rows(path=str(tmp_path), isolationLevel="read_committed")
    assert [(row["partition"], row["offset"]) for row in found] == [(1, 0)]


def test_a_start_inside_of_a_transaction(tmp_path: Path) -> None:
    log = data(0, 1) + data(1, 1) + plain_batch(2, 1) + marker(3, 1, ABORT) + data(4, 1)
    segment_path(tmp_path, "topic").write_bytes(log + marker(5, 1, COMMIT))
    assert committed(tmp_path, startingOffsets='{"topic":{"0":1}}') == [2, 4]


def test_damage_raises_in_every_mode(tmp_path: Path) -> None:
    log = bytearray(data(0, 1) + plain_batch(1, 1) + marker(2, 1, COMMIT))
    log[-1] ^= 1
    segment_path(tmp_path, "topic").write_bytes(log)
    for mode in ("FAILFAST", "PERMISSIVE", "DROPMALFORMED"):
        with pytest.raises(ks.ChecksumMismatchError):
            committed(tmp_path, mode=mode)


def test_golden_transactions() -> None:
    """The golden log has commits, aborts and an open transaction."""
    options = Options.parse({"path": str(DATA), "topics": "transactions"})
    (log,) = list_logs(options)
    view = committed_view(log, options)
    found = zip(view.producer_ids, view.first_offsets, view.last_offsets, strict=True)
    written = [
        fields[1:4]
        for path in sorted(DATA.glob("transactions-0/*.txnindex"))
        for fields in struct.iter_unpack(">hqqqq", path.read_bytes())
    ]
    assert sorted(map(tuple, written)) == sorted(tuple(map(int, one)) for one in found)
    assert len(written) >= 2
    assert view.last_stable_offset == 37
    assert committed(DATA, topics="transactions") == [
        0,
        1,
        2,
        3,
        4,
        10,
        12,
        13,
        14,
        15,
        16,
        22,
        33,
        34,
    ]
