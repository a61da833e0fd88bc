"""The rows of files cut into ranges are those of one sequential scan."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

import kafkascan as ks
from kafkascan.spark.options.reader_options import Options
from kafkascan.spark.rows.task_scan import scan_task
from tests.spark.logs import (
    DATA,
    KILLED_DATA,
    OLD_DATA,
    cut_batches,
    damaged_log,
    multiset,
    plain_batch,
    record_batches,
    rows,
    segment_path,
    tasks,
)
from tests.support.segments import Rig

# No damage, or damage that causes two errors.
NOT_ONE_ERROR = {"none", "torn tail", "zero tail", "longer by a byte", "swallows the next"}
# Hundreds of small tasks would spend their time on starting threads.
NO_THREADS = {"prefetch": "0"}
DAMAGES: dict[str, Callable[[Rig], Rig]] = {
    "none": lambda rig: rig,
    "bad crc": lambda rig: rig.flip(5, 70),
    "bad magic": lambda rig: rig.set(5, "magic", 3),
    "bad length": lambda rig: rig.set(5, "batch_length", 3),
    "huge length": lambda rig: rig.set(5, "batch_length", 2**31 - 1),
    "longer by a byte": lambda rig: rig.set(5, "batch_length", 1 + rig.size_of(5) - 12),
    "swallows the next": lambda rig: rig.set(5, "batch_length", 2 * rig.size_of(5) - 12).sign(5),
    "too many records": lambda rig: rig.set(5, "records_count", 9).sign(5),
    "no codec": lambda rig: rig.set(5, "attributes", 7).sign(5),
    "torn tail": lambda rig: rig.end_with(bytes(rig.parts[0][:40])),
    "zero tail": lambda rig: rig.end_with(bytes(500)),
    "garbage tail": lambda rig: rig.end_with(b"\x7f" * 99),
}


@pytest.mark.parametrize("data", [DATA, OLD_DATA, KILLED_DATA], ids=lambda path: path.parent.name)
@pytest.mark.parametrize("view", ["records", "batches"])
def test_golden_logs(data: Path, view: str) -> None:
    options = {"path": str(data), "view": view, "includeControlRecords": "true"}
    expected = multiset(rows(**options))
    assert len(expected) > 50
    assert multiset(rows(**options, maxPartitionBytes=3000)) == expected
    for size in (1 << 30, 700, 131):
        assert multiset(rows(**options, **NO_THREADS, maxPartitionBytes=size)) == expected
    assert len(tasks(**options, maxPartitionBytes=700)) > 25


def test_records_equal_read_records() -> None:
    log = DATA / "headers-0" / "00000000000000000000.log"
    table = ks.read_records(log)
    found = rows(path=str(log), includeHeaders="true", columns="offset,key,value,timestamp,headers")
    headers = [None if not record.headers else record.headers for record in table]
    assert [row["offset"] for row in found] == table["offset"].tolist()
    assert [row["timestamp"].timestamp() * 1000 for row in found] == table["timestamp"].tolist()
    assert [row["key"] for row in found] == table.items("key")
    assert [row["value"] for row in found] == table.items("value")
    assert [
        row["headers"] and [(pair["key"].encode(), pair["value"]) for pair in row["headers"]]
        for row in found
    ] == headers
    assert len(found) > 10


@pytest.mark.parametrize("view", ["records", "batches"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_logs(tmp_path: Path, damage: str, view: str) -> None:
    path = segment_path(tmp_path, "topic")
    path.write_bytes(DAMAGES[damage](damaged_log()).log)
    options = {"path": str(tmp_path), "view": view, "mode": "PERMISSIVE", "verify": "true"}
    expected = multiset(rows(**options))
    assert sum(expected.values()) >= 5
    # Both views find their batches by the same walk: one of them tries every cut.
    smallest = 1 if view == "batches" else 20
    for size in (smallest, 60, 61, 100, 333, 1000):
        cut = {"maxPartitionBytes": size}
        assert multiset(rows(**options, **NO_THREADS, **cut)) == expected, size


def texts(**options: Any) -> list[str]:
    """The rows as texts: Python's `datetime` does not have all times of damaged headers."""
    return [
        repr([one.cast(pa.int64()) if pa.types.is_timestamp(one.type) else one for one in row])
        for batch in record_batches(**options)
        for row in zip(*batch.columns, strict=True)
    ]


@settings(max_examples=40)
@given(
    flips=st.lists(
        st.tuples(st.integers(0, 11), st.integers(0, 90), st.integers(0, 7)), max_size=3
    ),
    size=st.integers(1, 1500),
    view=st.sampled_from(["records", "batches"]),
)
def test_any_damage_and_any_cuts(
    tmp_path_factory: pytest.TempPathFactory,
    flips: list[tuple[int, int, int]],
    size: int,
    view: str,
) -> None:
    folder = tmp_path_factory.mktemp("log")
    rig = damaged_log()
    for index, byte, bit in flips:
        rig.flip(index, byte, bit)
    segment_path(folder, "topic").write_bytes(rig.log)
    options = {"path": str(folder), "view": view, "mode": "PERMISSIVE"}
    cut = texts(**options, **NO_THREADS, maxPartitionBytes=size)
    assert sorted(cut) == sorted(texts(**options))


@pytest.mark.parametrize("damage", sorted(set(DAMAGES) - NOT_ONE_ERROR))
def test_damage_by_mode(tmp_path: Path, damage: str) -> None:
    path = segment_path(tmp_path, "topic")
    path.write_bytes(DAMAGES[damage](damaged_log()).log)
    good = multiset(rows(path=str(tmp_path), mode="DROPMALFORMED"))
    all_rows = rows(path=str(tmp_path), mode="PERMISSIVE")
    (bad,) = [row for row in all_rows if row["_corrupt_record"] is not None]
    assert str(path) in bad["_corrupt_record"]
    assert "position" in bad["_corrupt_record"]
    assert (bad["key"], bad["value"], bad["timestamp"]) == (None, None, None)
    kept = [
        {name: value for name, value in row.items() if name != "_corrupt_record"}
        for row in all_rows
        if row is not bad
    ]
    assert multiset(kept) == good
    with pytest.raises(ks.CorruptBatchError) as error:
        rows(path=str(tmp_path))
    assert str(error.value) == bad["_corrupt_record"]
    (segment,) = rows(path=str(tmp_path), view="segments", verify="true")
    if damage not in ("too many records", "no codec"):  # headers and checksums are sound there
        assert segment["status"] != "OK"
        assert str(path) in segment["error"]


def test_tails_are_not_damage(tmp_path: Path) -> None:
    for name in ("torn tail", "zero tail"):
        segment_path(tmp_path, name).write_bytes(DAMAGES[name](damaged_log()).log)
    assert len(rows(path=str(tmp_path))) == 48
    segments = rows(path=str(tmp_path), view="segments")
    assert [row["end"] for row in segments] == ["TORN_TAIL", "ZERO_TAIL"]
    assert [row["trailing_bytes"] for row in segments] == [40, 500]
    assert {row["status"] for row in segments} == {"HEADERS_OK"}


@pytest.mark.parametrize("size", [1 << 20, 50])
def test_a_wrong_length_in_the_last_file_of_a_log_is_damage(size: int, tmp_path: Path) -> None:
    """It hides all later batches, as the library says of such a file."""
    path = segment_path(tmp_path, "topic")
    path.write_bytes(damaged_log().set(5, "batch_length", 2**31 - 1).log)
    (problem,) = ks.read_records(path).problems
    found = rows(path=str(tmp_path), mode="PERMISSIVE", maxPartitionBytes=size)
    (damage,) = filter(None, (row["_corrupt_record"] for row in found))
    assert problem.rows_missing
    assert "intact batches follow at position" in problem.message
    assert problem.message in damage
    for view in ("records", "segments"):
        with pytest.raises(ValueError, match="TORN_TAIL"):
            rows(path=str(tmp_path), view=view, mode="FAILFAST", maxPartitionBytes=size)


def test_a_torn_tail_inside_a_log_is_damage(tmp_path: Path) -> None:
    torn = DAMAGES["torn tail"](damaged_log())
    segment_path(tmp_path, "topic").write_bytes(torn.log)
    segment_path(tmp_path, "topic", base_offset=24).write_bytes(plain_batch(24))
    with pytest.raises(ks.CorruptBatchError, match=r"position 1442 \(base_offset 0\).*TORN_TAIL"):
        rows(path=str(tmp_path))
    for size in (1 << 20, 50):
        found = rows(path=str(tmp_path), mode="PERMISSIVE", maxPartitionBytes=size)
        assert len(found) == 24 + 1 + 2
        assert sum(row["_corrupt_record"] is not None for row in found) == 1
    segments = rows(path=str(tmp_path), view="segments")
    assert [row["status"] for row in segments] == ["TORN_TAIL", "HEADERS_OK"]


def test_size_and_rows_of_batches_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_batches(monkeypatch, 64, 4096)
    log = plain_batch(0, 400, 10) + plain_batch(400, 30, 900) + plain_batch(430, 1, 50_000)
    segment_path(tmp_path, "topic").write_bytes(log)
    options = Options.parse({"path": str(tmp_path)})
    (task,) = tasks(path=str(tmp_path))
    found = list(scan_task(task, options))
    assert sum(batch.num_rows for batch in found) == 431
    assert 32 < max(batch.num_rows for batch in found) <= 64, "pieces are about as large"
    sizes = [sum(len(value) for value in batch["value"].to_pylist()) for batch in found]
    assert sorted(sizes)[-1] == 50_000, "one record is never cut"
    assert sorted(sizes)[-2] <= 4096
