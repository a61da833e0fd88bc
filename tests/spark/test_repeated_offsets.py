"""Segments that overlap: each offset is read once, by the library's rule. Needs no JVM."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pytest

import kafkascan as ks
from kafkascan.broker_state.indexes import build_offset_index
from kafkascan.spark import jobs
from kafkascan.spark.options.reader_options import Options
from kafkascan.spark.planning.read_plan import plan_read
from kafkascan.spark.rows.task_scan import scan_task
from kafkascan.tables import IncompleteTableWarning
from tests.spark.logs import plain_batch
from tests.spark.test_stream import Follower
from tests.support.overlaps import HIDDEN_END, SHAPES, Segments, segment, write_segments

LOGS: dict[str, Segments] = SHAPES | {"a hidden end": HIDDEN_END}
REPLACED = "the first of three stale ones was replaced"
HOUR = 3600


@pytest.fixture(params=LOGS)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return write_segments(tmp_path / "t-0", LOGS[request.param])


@pytest.fixture
def replaced(tmp_path: Path) -> Path:
    return write_segments(tmp_path / "t-0", SHAPES[REPLACED])


@pytest.fixture
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the tasks of jobs in this process."""
    pytest.importorskip("pyspark")
    from kafkascan.spark.jobs import fleet_jobs

    class Frame:
        def __init__(self, batches: list[Any]) -> None:
            self._batches = batches

        def toArrow(self) -> Any:  # noqa: N802 - Spark's name
            return pyarrow.Table.from_batches(self._batches)

    def map_tasks(spark: Any, tasks: Any, work: Any, argument: Any, schema: str) -> Frame:
        return Frame([batch for task in tasks for batch in work(task, argument)])

    monkeypatch.setattr(fleet_jobs, "map_tasks", map_tasks)


def read(path: Path | str, **options: Any) -> tuple[list[dict[str, Any]], list[str]]:
    """The rows of a read, and the overlaps that it names."""
    parsed, overlaps = Options.parse({"path": str(path)} | options), list[str]()
    planned = plan_read(parsed, lambda one: overlaps.append(str(one)))
    found = [
        row for task in planned for part in scan_task(task, parsed) for row in part.to_pylist()
    ]
    return found, overlaps


def by_library(folder: Path) -> tuple[list[tuple[int, bytes]], list[str]]:
    table = ks.read_records(folder)
    values = [bytes(value) for value in table.to_numpy()["value"]]
    return list(zip(table["offset"].tolist(), values, strict=True)), [
        str(one) for one in table.problems
    ]


def followed(path: Path, **options: Any) -> list[tuple[str, int, int]]:
    """The records of a stream, trigger by trigger."""
    stream, found = Follower(path, **options), []
    while part := stream.read():
        found += part
    return found


def set_times(folder: Path, age: Callable[[int], float]) -> None:
    for number, path in enumerate(sorted(folder.glob("*.log"))):
        os.utime(path, (1e9 - age(number), 1e9 - age(number)))


@pytest.mark.parametrize("size", [None, 700])
def test_records(folder: Path, size: int | None) -> None:
    found, overlaps = read(folder.parent, maxPartitionBytes=size)
    expected = by_library(folder)
    assert ([(row["offset"], row["value"]) for row in found], overlaps) == expected
    assert overlaps
    committed, _ = read(folder.parent, isolationLevel="read_committed")
    assert committed == read(folder)[0]


def test_batches(folder: Path) -> None:
    expected = ks.scan_log_dir(folder).to_arrow(["base_offset", "position"]).to_pylist()
    found, _ = read(folder, view="batches")
    assert [(row["base_offset"], row["position"]) for row in found] == [
        tuple(row.values()) for row in expected
    ]


def test_a_stream(folder: Path) -> None:
    pytest.importorskip("pyspark")
    expected = [("t", 0, offset) for offset, _ in by_library(folder)[0]]
    for options in ({}, {"isolationLevel": "read_committed"}, {"maxBytesPerTrigger": "300"}):
        with pytest.warns(IncompleteTableWarning):
            found = followed(folder.parent, **options)
        assert found == expected


def test_times_of_modification(replaced: Path) -> None:
    """Times show that segments may overlap; if they do not, the tasks notice it."""
    expected = by_library(replaced)
    set_times(replaced, lambda number: HOUR * number)  # the stale ones are older
    assert len(read(replaced)[0]) == len(expected[0])
    set_times(replaced, lambda number: 0)
    assert len(read(replaced)[0]) == len(expected[0])
    set_times(replaced, lambda number: -HOUR * number)  # copied one after the other
    with pytest.raises(ks.CorruptBatchError, match=r"100 to 299 may also be in .*findOverlaps"):
        read(replaced)
    found, overlaps = read(replaced, findOverlaps="true")
    assert ([(row["offset"], row["value"]) for row in found], overlaps) == expected
    for view, column in (("records", "_corrupt_record"), ("batches", "error")):
        found, _ = read(replaced, view=view, mode="PERMISSIVE")
        (damage,) = [row[column] for row in found if row[column] is not None]
        assert "OFFSET_OVERLAP" in damage
        assert str(replaced / f"{0:020}.log") in damage


def test_offsets_that_do_not_overlap_are_read(replaced: Path) -> None:
    set_times(replaced, lambda number: -HOUR * number)
    found, _ = read(replaced, endingOffsets='{"t":{"0":100}}')
    assert [row["offset"] for row in found] == list(range(0, 100, 7))


def test_files_that_are_given_as_such_are_read_in_full(replaced: Path) -> None:
    found, overlaps = read(f"{replaced}/*.log")
    everything = [read(path)[0] for path in sorted(replaced.glob("*.log"))]
    assert found == [row for rows in everything for row in rows]
    assert overlaps == []


def test_a_log_start_offset(folder: Path) -> None:
    """Segments before it are not served, and do not hide offsets of later ones."""
    for start in (50, 120, 250, 310):
        table = ks.read_records(folder, log_start_offset=start, on_corrupt="stop")
        expected = table["offset"].tolist()
        found, _ = read(folder, logStartOffset=start, mode="PERMISSIVE")
        damage = [row["_corrupt_record"] for row in found if row["_corrupt_record"] is not None]
        assert [row["offset"] for row in found if row["_corrupt_record"] is None] == expected
        gaps = [one for one in table.problems if one.symbol == "OFFSET_GAP"]
        assert len(damage) == len(gaps)
        assert all("OFFSET_GAP" in one for one in damage)


@pytest.mark.parametrize("error", [FileNotFoundError, PermissionError])
def test_a_file_that_the_driver_cannot_read(
    replaced: Path, error: type[OSError], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan goes on; the task that reads it fails, or gives a row."""
    from kafkascan.spark.planning import segment_ends

    def refuse(file: Any, options: Any) -> Any:
        raise error(file.path)

    monkeypatch.setattr(segment_ends, "open_current", refuse)
    with pytest.raises(ks.CorruptBatchError, match="OFFSET_OVERLAP"):
        read(replaced)
    assert len(read(replaced, view="segments")[0]) == 4


def test_segments_are_complete(replaced: Path) -> None:
    for mode in ("FAILFAST", "PERMISSIVE", "DROPMALFORMED"):
        found, _ = read(replaced, view="segments", mode=mode)
        assert [row["status"] for row in found] == ["OFFSET_OVERLAP", *["HEADERS_OK"] * 3]
        assert [row["last_offset"] for row in found] == [299, 199, 299, 339]
        assert [row["error"] for row in found[1:]] == [None, None, None]
        assert found[0]["error"] == (
            f"{replaced / '00000000000000000000.log'}: offsets 100 to 299 may also be in the next"
            " segments: one of them is stale [OFFSET_OVERLAP]"
        )


def test_a_store(folder: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    fs, url = fsspec.filesystem("memory"), "memory://bucket/data"
    try:
        for path in folder.glob("*.log"):
            fs.pipe_file(f"/bucket/data/t-0/{path.name}", path.read_bytes())
        found, overlaps = read(url, findOverlaps="true")
        expected, said = by_library(folder)
        assert [(row["offset"], row["value"]) for row in found] == expected
        assert overlaps == [one.replace(str(folder), f"{url}/t-0") for one in said]
    finally:
        fs.store.clear()


def test_a_segment_that_ends_before_its_last_batches(tmp_path: Path) -> None:
    """The plan finds its last batches by the index; a walk ends at the damage before them."""
    log = bytearray(segment("A", 0, 9000, step=1))
    log += plain_batch(9000, 1, 3 << 20) + segment("A", 9001, 9010)
    batches = ks.scan_batches(bytes(log)).batches
    log[int(batches["position"][9]) + 16] = 9  # the magic
    folder = write_segments(tmp_path / "t-0", {0: bytes(log), 100: segment("B", 100, 200)})
    entries = build_offset_index(batches, base_offset=0)
    (folder / f"{0:020}.index").write_bytes(entries.tobytes())
    with pytest.raises(ks.CorruptBatchError, match="magic"):
        read(tmp_path)
    found, _ = read(tmp_path, mode="PERMISSIVE")
    said = [row["_corrupt_record"] for row in found if row["_corrupt_record"] is not None]
    assert [row["offset"] for row in found if row["_corrupt_record"] is None] == list(range(9))
    assert len(said) == 2
    assert "ends before offset 9, but its last batches end before offset 9010" in said[1]


@pytest.mark.usefixtures("without_spark")
def test_jobs_name_the_overlaps(folder: Path, tmp_path: Path) -> None:
    expected, said = by_library(folder)
    report = jobs.export(None, folder, str(tmp_path / "out"))  # type: ignore[arg-type]
    assert (report.summary["rows"], report.findings) == (len(expected), said)
    assert report.exit_code == 1
    again = jobs.export(None, folder, str(tmp_path / "out"), resume=True)  # type: ignore[arg-type]
    assert (again.summary["rows"], again.findings) == (len(expected), said)
    stats = jobs.catalog(None, folder, str(tmp_path / "catalog"))  # type: ignore[arg-type]
    assert stats.findings == said
    assert stats.summary["rows"] == len(read(folder, view="batches")[0])
    assert jobs.verify(None, folder).findings == said  # type: ignore[arg-type]
    # The manifest of verify has all ends, whatever the times are.
    set_times(folder, lambda number: -HOUR * number)
    assert jobs.verify(None, folder).findings == said  # type: ignore[arg-type]


@pytest.mark.usefixtures("without_spark")
def test_jobs_say_nothing_without_overlaps(tmp_path: Path) -> None:
    segments = SHAPES[REPLACED]
    folder = write_segments(tmp_path / "t-0", {base: segments[base] for base in (0, 300)})
    shutil.copytree(folder, tmp_path / "u-0")
    assert jobs.verify(None, tmp_path).exit_code == 0  # type: ignore[arg-type]
