"""Segments and batches that are missing, moved or repeated: tasks judge as the library does."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow
import pytest

import kafkascan as ks
from kafkascan.spark import jobs
from kafkascan.spark.options.reader_options import Options
from kafkascan.spark.planning.read_plan import plan_read
from kafkascan.spark.rows.task_scan import scan_task
from kafkascan.tables import IncompleteTableWarning
from tests.spark.logs import plain_batch

Segments = dict[int, bytes]
FIRST, MIDDLE, LAST = 0, 24, 48
GAP, OVERLAP, FOREIGN = "OFFSET_GAP", "OFFSET_OVERLAP", "OFFSET_OUT_OF_SEGMENT"


def _batches(base_offset: int) -> list[bytes]:
    return [plain_batch(base_offset + 3 * number, 3, 50) for number in range(8)]


INTACT: Segments = {base: b"".join(_batches(base)) for base in (FIRST, MIDDLE, LAST)}


def _middle(change: Callable[[list[bytes]], list[bytes]]) -> Segments:
    return {**INTACT, MIDDLE: b"".join(change(_batches(MIDDLE)))}


DAMAGES: dict[str, tuple[Segments, str]] = {
    "cut between batches": (_middle(lambda batches: batches[:-1]), GAP),
    "empty": (_middle(lambda batches: []), GAP),
    "missing": ({FIRST: INTACT[FIRST], LAST: INTACT[LAST]}, GAP),
    "a batch is missing": (_middle(lambda batches: batches[:2] + batches[3:]), GAP),
    "the first batch is missing": (_middle(lambda batches: batches[1:]), GAP),
    "a batch is repeated": (_middle(lambda batches: batches[:2] + batches[1:]), OVERLAP),
    "batches are swapped": (
        _middle(lambda batches: [batches[1], batches[0], *batches[2:]]),
        OVERLAP,
    ),
    "files are swapped": ({**INTACT, FIRST: INTACT[MIDDLE], MIDDLE: INTACT[FIRST]}, FOREIGN),
    "an earlier file": ({**INTACT, LAST: INTACT[FIRST]}, FOREIGN),
    "an earlier file before its own": ({**INTACT, LAST: INTACT[FIRST] + INTACT[LAST]}, FOREIGN),
    "zeros": ({**INTACT, MIDDLE: INTACT[MIDDLE] + bytes(100)}, "ZERO_TAIL"),
}
ERRORS = {"records": "_corrupt_record", "batches": "error", "segments": "error"}


def _write(data_dir: Path, segments: Segments) -> Path:
    folder = data_dir / "t-0"
    folder.mkdir(parents=True)
    for base, data in segments.items():
        (folder / f"{base:020}.log").write_bytes(data)
    return data_dir


def _read(path: Path | str, **options: Any) -> tuple[list[dict[str, Any]], list[str]]:
    """The rows of a read, and what it says: errors of rows, and warnings."""
    parsed = Options.parse({"path": str(path), **options})
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", IncompleteTableWarning)
        tasks = plan_read(parsed)
    column = ERRORS[parsed.view]
    rows = [row for task in tasks for part in scan_task(task, parsed) for row in part.to_pylist()]
    said = [row[column] for row in rows if row.get(column) is not None]
    return rows, said + [str(one.message) for one in warned]


@pytest.fixture
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the tasks of jobs in this process."""
    pytest.importorskip("pyspark")
    from kafkascan.spark.jobs import fleet_jobs

    class Frame:
        def __init__(self, batches: Iterator[Any]) -> None:
            self._batches = list(batches)

        def toArrow(self) -> Any:  # noqa: N802 - Spark's name
            return pyarrow.Table.from_batches(self._batches)

    def map_tasks(spark: Any, tasks: Any, work: Any, argument: Any, schema: str) -> Frame:
        return Frame(batch for task in tasks for batch in work(task, argument))

    monkeypatch.setattr(fleet_jobs, "map_tasks", map_tasks)


@pytest.mark.parametrize("view", ERRORS)
def test_an_intact_log(tmp_path: Path, view: str) -> None:
    path = _write(tmp_path / "data", INTACT)
    assert _read(path, view=view, mode="PERMISSIVE")[1] == []
    assert _read(path, view=view, mode="FAILFAST", verify="true")[1] == []


@pytest.mark.parametrize("damage", DAMAGES)
def test_rows(tmp_path: Path, damage: str) -> None:
    segments, symbol = DAMAGES[damage]
    path = _write(tmp_path / "data", segments)
    for view, size in (("records", None), ("batches", None), ("segments", None), ("batches", 300)):
        said = _read(path, view=view, mode="PERMISSIVE", maxPartitionBytes=size, prefetch="0")[1]
        assert any(f"[{symbol}]" in one for one in said), (view, said)
        assert all(str(path) in one for one in said)
    for view in ("records", "batches"):
        with pytest.raises(ks.CorruptBatchError):
            _read(path, view=view, mode="FAILFAST")


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.usefixtures("without_spark")
def test_jobs(tmp_path: Path, damage: str) -> None:
    segments, symbol = DAMAGES[damage]
    path, session = _write(tmp_path / "data", segments), None
    for report in (
        jobs.verify(session, path),  # type: ignore[arg-type]
        jobs.catalog(session, path, str(tmp_path / "catalog")),  # type: ignore[arg-type]
        jobs.export(session, path, str(tmp_path / "out"), mode="PERMISSIVE"),  # type: ignore[arg-type]
    ):
        assert report.exit_code == 1, report.job
        assert any(f"[{symbol}]" in one for one in report.findings), report.findings
    with pytest.raises(ks.CorruptBatchError):
        jobs.export(session, path, str(tmp_path / "failing"))  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [90, 300, 1000])
@pytest.mark.parametrize("damage", DAMAGES)
def test_rows_do_not_depend_on_cuts(tmp_path: Path, damage: str, size: int) -> None:
    path = _write(tmp_path / "data", DAMAGES[damage][0])
    for view in ("records", "batches"):
        whole = _read(path, view=view, mode="PERMISSIVE")
        cut = _read(path, view=view, mode="PERMISSIVE", maxPartitionBytes=size, prefetch="0")
        assert sorted(map(repr, cut[0])) == sorted(map(repr, whole[0]))


def test_gaps_outside_of_the_requested_offsets(tmp_path: Path) -> None:
    path = _write(tmp_path / "data", DAMAGES["a batch is missing"][0])  # 30 to 32
    for start, stop, is_gap in ((0, 30, False), (0, 31, True), (32, 72, True), (33, 72, False)):
        limits = {
            "startingOffsets": f'{{"t":{{"0":{start}}}}}',
            "endingOffsets": f'{{"t":{{"0":{stop}}}}}',
        }
        rows, said = _read(path, mode="PERMISSIVE", **limits)
        offsets = [row["offset"] for row in rows if row["_corrupt_record"] is None]
        assert offsets == [one for one in range(start, stop) if not 30 <= one < 33]
        assert (len(said) == 1) == is_gap, (start, stop, said)


def test_files_that_are_given_as_such(tmp_path: Path) -> None:
    """Each is read as a source of its own, which may begin and end anywhere."""
    path = _write(tmp_path / "data", DAMAGES["missing"][0])
    assert _read(f"{path}/t-0/*.log")[1] == []
    assert _read(path, pathGlobFilter=f"*{FIRST}.log")[1] == []
    foreign = _write(tmp_path / "other", DAMAGES["an earlier file"][0])
    assert FOREIGN in _read(f"{foreign}/t-0/*.log", mode="PERMISSIVE")[1][0]


# ---- compaction ------------------------------------------------------------------------------


def test_a_checkpoint_of_the_cleaner(tmp_path: Path) -> None:
    path = _write(tmp_path / "data", DAMAGES["a batch is missing"][0])
    (path / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 40\n")
    for view in ERRORS:
        assert _read(path, view=view)[1] == []


@pytest.mark.parametrize("place", [FIRST, LAST])
def test_another_segment_that_was_compacted(tmp_path: Path, place: int) -> None:
    """A batch with fewer records than offsets: the cleaner removes records, not offsets."""
    builder = ks.BatchBuilder(base_offset=place)
    builder.append(1, b"k", b"v")
    builder.append(2, b"k", b"v", offset=place + 2)
    cleaned = builder.build() + b"".join(_batches(place)[1:])
    path = _write(tmp_path / "data", {**DAMAGES["a batch is missing"][0], place: cleaned})
    for view in ERRORS:
        assert _read(path, view=view)[1] == []
        assert _read(path, view=view, maxPartitionBytes=90, prefetch="0")[1] == []


def test_the_topics_of_kafka_are_compacted(tmp_path: Path) -> None:
    path = _write(tmp_path / "data", DAMAGES["missing"][0])
    (path / "t-0").rename(path / "__consumer_offsets-0")
    assert _read(path)[1] == []


def test_a_segment_that_retention_deletes_meanwhile(tmp_path: Path) -> None:
    """Whether the offsets that follow it are missing, or were deleted, is not known by then."""
    path = _write(tmp_path / "data", DAMAGES["missing"][0])
    parsed = Options.parse({"path": str(path), "mode": "PERMISSIVE"})
    tasks, first = plan_read(parsed), path / "t-0" / f"{FIRST:020}.log"
    parts = [part for task in tasks for part in _after_open(task, parsed, first)]
    errors = [error for part in parts for error in part["_corrupt_record"].to_pylist() if error]
    assert sum(part.num_rows for part in parts) == 48 + len(errors)
    assert [error.endswith("[CHANGED_WHILE_READ]") for error in errors] == [True]


def _after_open(task: Any, parsed: Options, path: Path) -> Iterator[Any]:
    for part in scan_task(task, parsed.replace(prefetch=0)):
        path.unlink(missing_ok=True)
        yield part


# ---- folders ---------------------------------------------------------------------------------


@pytest.mark.parametrize("base", [FIRST, MIDDLE, LAST])
@pytest.mark.usefixtures("without_spark")
def test_a_link_that_leads_nowhere(tmp_path: Path, base: int) -> None:
    path = _write(tmp_path / "data", {one: INTACT[one] for one in INTACT if one != base})
    link = path / "t-0" / f"{base:020}.log"
    link.symlink_to("nowhere")
    for view in ("records", "batches"):
        with pytest.raises(FileNotFoundError):
            _read(path, view=view, mode="PERMISSIVE")
    rows, _ = _read(path, view="segments")
    assert [row["status"] for row in rows].count("UNREADABLE") == 1
    report = jobs.verify(None, path)  # type: ignore[arg-type]
    assert report.exit_code == 3
    assert any(str(link) in one for one in report.findings)


def test_a_folder_that_is_named_as_a_segment(tmp_path: Path) -> None:
    path = _write(tmp_path / "data", DAMAGES["missing"][0])
    (path / "t-0" / f"{MIDDLE:020}.log").mkdir()
    assert GAP in _read(path, mode="PERMISSIVE")[1][0]


@pytest.mark.usefixtures("without_spark")
def test_a_rewrite_that_did_not_end(tmp_path: Path) -> None:
    path = _write(tmp_path / "data", INTACT)
    (path / "t-0" / ".partition.rewriting").touch()
    for view in ERRORS:
        (said,) = _read(path, view=view)[1]
        assert said.endswith("[INTERRUPTED_REWRITE]")
    for report in (
        jobs.verify(None, path),  # type: ignore[arg-type]
        jobs.export(None, path, str(tmp_path / "out")),  # type: ignore[arg-type]
    ):
        assert (report.exit_code, report.findings) == (1, [said])


@pytest.mark.parametrize("seed", range(20))
def test_the_same_findings_as_the_library(tmp_path: Path, seed: int) -> None:
    """Any batches may be missing, or be in another place, of any log."""
    dice = random.Random(seed)
    batches = {base: _batches(base) for base in INTACT}
    for _ in range(dice.randrange(1, 3)):
        base = dice.choice([*batches])
        if dice.random() < 0.5 and batches[base]:
            batches[base].pop(dice.randrange(len(batches[base])))
        else:
            batches[base].insert(dice.randrange(9), dice.choice(_batches(dice.choice([*batches]))))
    path = _write(tmp_path / "data", {base: b"".join(found) for base, found in batches.items()})
    table = ks.read_records(path / "t-0", on_corrupt="stop")
    said = _read(path, mode="PERMISSIVE")[1]
    symbols = {one.symbol for one in table.problems}
    assert symbols == {one.rpartition("[")[2].rstrip("]") for one in said}, said


OFFSETS_OF = {
    "cut between batches": (45, 3),
    "empty": (24, 24),
    "missing": (24, 24),
    "a batch is missing": (30, 3),
    "the first batch is missing": (24, 3),
    "a batch is repeated": (27, None),
    "batches are swapped": (24, None),
    "an earlier file": (0, None),
}


@pytest.mark.parametrize("damage", OFFSETS_OF)
def test_the_first_offset_that_is_wrong(tmp_path: Path, damage: str) -> None:
    segments, symbol = DAMAGES[damage]
    path = _write(tmp_path / "data", segments)
    (found,) = [
        one
        for one in ks.read_records(path / "t-0", on_corrupt="stop").problems
        if one.symbol == symbol
    ]
    assert (found.offset, found.count) == OFFSETS_OF[damage]
    rows = _read(path, mode="PERMISSIVE")[0]
    (row,) = [row for row in rows if f"[{symbol}]" in (row["_corrupt_record"] or "")]
    assert row["offset"] == found.offset


@pytest.mark.parametrize("damage", DAMAGES)
def test_the_same_records_as_the_library(tmp_path: Path, damage: str) -> None:
    """A segment of another log, or one that is repeated, adds no rows to those of the log."""
    path = _write(tmp_path / "data", DAMAGES[damage][0])
    table = ks.read_records(path / "t-0", on_corrupt="stop", columns=["offset"])
    rows = _read(path, mode="PERMISSIVE")[0]
    assert [row["offset"] for row in rows if not row["_corrupt_record"]] == table["offset"].tolist()


@pytest.mark.usefixtures("without_spark")
def test_jobs_report_a_torn_tail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a killed broker wrote last is in no file: the report says so, the job goes on."""
    path, session = _write(tmp_path / "data", {**INTACT, LAST: INTACT[LAST][:-10]}), None
    for mode in ("FAILFAST", "PERMISSIVE"):
        for number, job in enumerate((jobs.catalog, jobs.export)):
            out = str(tmp_path / f"{mode}-{number}")
            report = job(session, path, out, mode=mode)  # type: ignore[operator]
            assert report.exit_code == 1
            (line,) = report.findings
            assert "bytes follow the last complete batch, which were not read" in line
            assert line.startswith(str(path))
            assert line.endswith("[TORN_TAIL]")
    assert _read(path, mode="PERMISSIVE")[1] == []
    monkeypatch.setattr(ks.Source, "has_grown", lambda self: True)  # a broker writes the batch
    report = jobs.export(session, path, str(tmp_path / "live"))  # type: ignore[arg-type]
    assert (report.exit_code, report.findings) == (0, [])
