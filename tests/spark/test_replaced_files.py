"""Files that a broker renames, replaces or deletes between a plan and its tasks."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kafkascan as ks
from kafkascan.format.errors import FileGoneError, SourceReadError
from kafkascan.io import folders
from kafkascan.io.source_protocols import FilePins
from kafkascan.spark.options.reader_options import Options
from kafkascan.spark.planning import read_plan
from kafkascan.spark.planning.planned_logs import PlannedSegment
from kafkascan.spark.planning.read_plan import plan_read
from kafkascan.spark.planning.task_plan import ScanTask
from kafkascan.spark.rows.task_scan import scan_task
from kafkascan.tables.table import Problem
from tests.spark.logs import plain_batch

LAST = 12


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A log of two segments of four batches."""
    folder = tmp_path / "data" / "t-0"
    folder.mkdir(parents=True)
    for base in (0, LAST):
        batches = [plain_batch(base + 3 * number, 3, 50) for number in range(4)]
        (folder / f"{base:020}.log").write_bytes(b"".join(batches))
    return folder


def _planned(folder: Path, **options: str) -> tuple[Options, list[ScanTask]]:
    parsed = Options.parse({"path": str(folder.parent), "prefetch": "0", **options})
    return parsed, plan_read(parsed)


def _offsets(options: Options, tasks: list[ScanTask]) -> list[int]:
    name = "offset" if options.view == "records" else "base_offset"
    batches = [batch for task in tasks for batch in scan_task(task, options)]
    return [offset for batch in batches for offset in batch[name].to_pylist()]


def _delete_by_broker(path: Path) -> None:
    path.rename(f"{path}.deleted")


def _replace(path: Path) -> None:
    """Give the name to a smaller file with other offsets, as the cleaner does."""
    _delete_by_broker(path)
    path.write_bytes(plain_batch(6, 3, 50))
    Path(f"{path}.deleted").unlink()


def _copy_as_on_another_host(path: Path) -> None:
    shutil.copy2(path, f"{path}.copy")
    os.replace(f"{path}.copy", path)


@pytest.mark.parametrize("size", ["1000000", "90"])
@pytest.mark.parametrize("view", ["records", "batches"])
@pytest.mark.parametrize("change", [_delete_by_broker, _copy_as_on_another_host])
def test_the_file_that_was_listed_is_read(
    folder: Path, change: Callable[[Path], None], view: str, size: str
) -> None:
    options, tasks = _planned(folder, view=view, maxPartitionBytes=size)
    expected = _offsets(options, tasks)
    change(folder / f"{0:020}.log")
    assert _offsets(options, tasks) == expected


def test_a_deleted_file_whose_name_another_one_has(folder: Path) -> None:
    """The cleaner renames the old file before it renames the new one."""
    options, tasks = _planned(folder)
    path = folder / f"{0:020}.log"
    _delete_by_broker(path)
    path.write_bytes(plain_batch(6, 3, 50))
    assert _offsets(options, tasks) == [*range(24)]


@pytest.mark.parametrize("grows", [False, True])
@pytest.mark.parametrize("view", ["records", "batches", "segments"])
def test_another_file_is_not_read(folder: Path, view: str, grows: bool) -> None:
    """It has other offsets at other positions, however large it is."""
    options, tasks = _planned(folder, view=view, mode="FAILFAST")
    path = folder / f"{0:020}.log"
    _replace(path)
    if grows:
        path.write_bytes(b"".join(plain_batch(6 + 3 * number, 3, 50) for number in range(9)))
    changed = r"another file took its place .*\[CHANGED_WHILE_READ\]"
    with pytest.raises(SourceReadError, match=changed):
        _offsets(options, tasks)


@pytest.mark.parametrize("mode", ["PERMISSIVE", "DROPMALFORMED"])
def test_another_file_is_an_error_in_each_mode(folder: Path, mode: str) -> None:
    """Its log has offsets that are read nowhere: no option leaves them out."""
    options, tasks = _planned(folder, mode=mode, ignoreMissingFiles="true")
    _replace(folder / f"{0:020}.log")
    with pytest.raises(SourceReadError):
        _offsets(options, tasks)


def test_another_file_in_the_segments_view(folder: Path) -> None:
    options, tasks = _planned(folder, view="segments")
    _replace(folder / f"{0:020}.log")
    rows = [row for task in tasks for part in scan_task(task, options) for row in part.to_pylist()]
    assert [row["status"] for row in rows] == ["UNREADABLE", "HEADERS_OK"]


def test_a_deleted_file(folder: Path) -> None:
    options, tasks = _planned(folder)
    (folder / f"{0:020}.log").unlink()
    with pytest.raises(FileGoneError, match=f"{0:020}.log: the file was deleted"):
        _offsets(options, tasks)
    lenient = options.replace(ignore_missing_files=True)
    assert _offsets(lenient, tasks) == [*range(12, 24)]


def test_what_is_appended_is_not_read(folder: Path) -> None:
    options, tasks = _planned(folder)
    with (folder / f"{LAST:020}.log").open("ab") as log:
        log.write(plain_batch(24, 3, 50))
    assert _offsets(options, tasks) == [*range(24)]
    assert len(ks.read_records(folder)) == 27


def test_the_driver_plans_again_if_a_file_is_gone(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads files to look up a time, and retention may delete them meanwhile."""
    open_listed = read_plan.open_file
    opened: list[str] = []

    def open_and_delete(file: PlannedSegment, options: Options) -> ks.Source:
        opened.append(file.name)
        if len(opened) == 1:
            (folder / f"{0:020}.log").unlink()
        return open_listed(file, options)

    monkeypatch.setattr(read_plan, "open_file", open_and_delete)
    options, tasks = _planned(folder, startingTimestamp="0")
    assert _offsets(options, tasks) == [*range(LAST, 2 * LAST)]
    assert opened == [f"{0:020}.log", f"{LAST:020}.log"]


def test_a_start_offset_that_moves_while_the_folder_is_listed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``DeleteRecords`` raises the start offset, and the first segment is deleted."""
    list_files = folders.files_in

    def list_and_delete(path: Path) -> FilePins:
        found = list_files(path)
        checkpoint = folder.parent / "log-start-offset-checkpoint"
        if path == folder and not checkpoint.exists():
            checkpoint.write_text(f"0\n1\nt 0 {LAST + 3}\n")
        return found

    monkeypatch.setattr(folders, "files_in", list_and_delete)
    options, tasks = _planned(folder)
    assert _offsets(options, tasks) == [*range(LAST + 3, 2 * LAST)]


def test_a_segment_that_is_renamed_while_the_folder_is_listed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the renames of the cleaner: the folder is listed again."""
    first, list_files, listings = folder / f"{0:020}.log", folders.files_in, []

    def list_and_rename(path: Path) -> FilePins:
        if not first.exists():
            Path(f"{first}.deleted").rename(first)
        found = list_files(path)
        if path == folder and folder not in listings:
            del found.sizes[first.name]
            first.rename(f"{first}.deleted")
        listings.append(path)
        return found

    monkeypatch.setattr(folders, "files_in", list_and_rename)
    options, tasks = _planned(folder)
    assert _offsets(options, tasks) == [*range(2 * LAST)]
    assert listings.count(folder) == 2


def test_a_plan_that_is_made_again_reports_problems_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (folder / f"{0:020}.log").open("ab") as first:
        first.write(plain_batch(LAST, 3, 50))  # which the next segment has, too
    plan, plans, problems = read_plan.plan, list[int](), list[Problem]()

    def plan_late(*arguments: Any) -> list[ScanTask]:
        plans.append(1)
        if len(plans) < 3:
            raise FileGoneError(str(folder))
        return plan(*arguments)

    monkeypatch.setattr(read_plan, "plan", plan_late)
    options = Options.parse({"path": str(folder), "findOverlaps": "true"})
    assert plan_read(options, problems.append)
    assert len(plans) == 3
    assert len(problems) == len(set(problems)) > 0
