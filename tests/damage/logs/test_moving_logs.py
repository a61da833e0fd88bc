"""Retention and the cleaner work between the listing of a folder and the opening of its files."""

from __future__ import annotations

import errno
import itertools
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

import kafkascan as ks
from kafkascan.cli.verbs import segment_commands
from kafkascan.format.errors import FileGoneError, KafkaScanError
from kafkascan.io import folders, source_protocols
from kafkascan.io.folders import DiskFolder, PinnedFolder
from kafkascan.io.source_protocols import FilePins, PinnedFile
from kafkascan.logs.log_chunks import inspect_chunks
from kafkascan.logs.opened_logs import open_logs
from kafkascan.logs.queries.segment_inputs import SegmentInput, SegmentPaths
from kafkascan.logs.segment import SegmentFile
from kafkascan.tables.table import AnyTable
from tests.support import command_line
from tests.support.moving_logs import (
    CHANGES,
    SEGMENTS,
    Change,
    MovingLog,
    cleaner_ends,
    retention_begins,
    retention_ends,
)
from tests.support.partitions import HealthyPartition
from tests.support.waiting import IS_SANITIZED

pytestmark = pytest.mark.skipif(
    IS_SANITIZED, reason="libraries that commands load end under sanitizers"
)

COMMANDS: dict[str, list[str]] = {
    "info": ["info", "DIR"],
    "info --by": ["info", "DIR", "--by", "codec"],
    "verify": ["verify", "DIR"],
    "batches": ["batches", "DIR", "--verify"],
    "batches --tail": ["batches", "DIR", "--tail", "2"],
    "batches --around": ["batches", "DIR", "--around", "70"],
    "records": ["records", "DIR"],
    "records --sort": ["records", "DIR", "--sort", "timestamp"],
    "records --sample": ["records", "DIR", "--sample", "3"],
    "records --isolation": ["records", "DIR", "--isolation", "read_committed"],
    "count": ["count", "DIR"],
    "count --deep": ["count", "DIR", "--deep"],
    "txns": ["txns", "DIR", "--state", "aborted"],
    "producers": ["producers", "DIR", "--sample", "2"],
    "advise": ["advise", "DIR", "--codec", "gzip"],
    "sql records": ["sql", "SELECT count(*) FROM records", "DIR"],
    "sql batches": ["sql", "SELECT count(*) FROM batches", "DIR"],
    "sql transactions": ["sql", "SELECT count(*) FROM transactions", "DIR"],
    "audit": ["audit", "DIR", "--deep", "--alarms"],
    "index check": ["index", "check", "DIR"],
    "index lookup": ["index", "lookup", "DIR", "--offset", "30"],
    "report": ["report", "DIR", "--output", "OUT"],
    "diff": ["diff", "DIR", "COPY"],
}

LISTINGS = 12
"""More than any command needs."""


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of five segments, with all side files."""
    folder = tmp_path_factory.mktemp("ü b") / "data" / "orders-0"
    partition = HealthyPartition(folder, segments=5)
    partition.write()
    return folder


def copied(original: Path, tmp_path: Path, number: int) -> Path:
    data = tmp_path / f"data-{number}"
    shutil.copytree(original.parent, data)
    return data / original.name


def run(command: list[str], folder: Path, copy: Path) -> command_line.Done:
    places = {"DIR": folder, "COPY": copy, "OUT": folder.parent.with_suffix(".html")}
    return command_line.run(*(places.get(one, one) for one in command))


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_no_finding_while_retention_and_the_cleaner_work(
    original: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: list[str],
    change: Change,
) -> None:
    for after in range(1, LISTINGS):
        log = MovingLog(copied(original, tmp_path, after), change, after)
        with monkeypatch.context() as patches:
            log.start(patches)
            done = run(command, log.folder, original)
        assert (done.returncode, done.stderr) == (0, ""), f"listing {after}: {done.stderr}"
        if log.listings < after:
            break
    assert after > 1


def _scanned(path: Path) -> list[int]:
    table = ks.scan_log_dir(path)
    bases = [int(base) for chunk in table for base in chunk.batches["base_offset"]]
    assert not len(table.problems)
    return bases


def _offsets(table: ks.RecordTable) -> list[int]:
    assert not len(table.problems)
    return [int(offset) for offset in table["offset"]]


def _chained(tables: Iterable[ks.RecordTable]) -> list[int]:
    return [offset for table in tables for offset in _offsets(table)]


def _counted(path: Path) -> list[int]:
    counts = ks.count_records(path, deep=True)
    assert not len(counts.problems)
    (row,) = counts.rows()
    return list(range(row["records"]))


def _polars(path: Path) -> list[int]:
    return ks.polars.scan_records(path).select("offset").collect()["offset"].to_list()


def _polars_of_range(path: Path) -> list[int]:
    frame = ks.polars.scan_records(path).filter(pl.col("offset") >= 30, pl.col("offset") < 80)
    return frame.select("offset").collect()["offset"].to_list()


# Each returns offsets of records or batches that ascend, and has no problems.
READERS: dict[str, Callable[[Path], list[int]]] = {
    "read_records": lambda path: _offsets(ks.read_records(path)),
    "read_records committed": lambda path: _offsets(
        ks.read_records(path, isolation="read_committed")
    ),
    "read_records of a range": lambda path: _offsets(
        ks.read_records(path, from_offset=30, to_offset=80)
    ),
    "iter_records": lambda path: _chained(ks.iter_records(path)),
    "iter_records of a range": lambda path: _chained(
        ks.iter_records(path, from_offset=30, to_offset=80)
    ),
    "polars.scan_records": _polars,
    "polars.scan_records of a range": _polars_of_range,
    "scan_log_dir": _scanned,
    "count_records": _counted,
    "read_fingerprints": lambda path: [
        int(row["first_offset"])
        for log in ks.analysis.read_fingerprints(path).logs
        for row in log.rows
        if not len(log.problems)
    ],
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_each_offset_is_read_once_while_retention_and_the_cleaner_work(
    original: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    read: Callable[[Path], list[int]],
    change: Change,
) -> None:
    everything = read(original)
    changed = copied(original, tmp_path, 0)
    change(changed)
    possible = (everything, read(changed))
    for after in range(1, LISTINGS):
        log = MovingLog(copied(original, tmp_path, after), change, after)
        with monkeypatch.context() as patches:
            log.start(patches)
            assert read(log.folder) in possible, f"listing {after}"
        if log.listings < after:
            break
    assert after > 1


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_segments_that_were_chosen_and_are_replaced(
    original: Path, tmp_path: Path, change: Change
) -> None:
    """The cleaner gives the offsets of a chosen segment to one that was not chosen."""
    folder = copied(original, tmp_path, 0)
    everything = _offsets(ks.read_records(folder, from_offset=30, to_offset=80))
    tables = ks.iter_records(folder, from_offset=30, to_offset=80)
    change(folder)
    left = _offsets(ks.read_records(folder, from_offset=30, to_offset=80))
    assert _chained(tables) in (everything, left)


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_lookups_while_retention_and_the_cleaner_work(
    original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Change
) -> None:
    times = ks.read_records(original, columns=["offset", "timestamp"])
    for after in range(1, LISTINGS):
        log = MovingLog(copied(original, tmp_path, after), change, after)
        with monkeypatch.context() as patches:
            log.start(patches)
            found = ks.lookup_offset(log.folder, 100)
            assert found is not None
            assert found.base_offset <= 100
            record = ks.lookup_timestamp(log.folder, int(times["timestamp"][-1]))
            assert record is not None
            (partition,) = ks.open_log_dir(log.folder).partitions
            assert partition.find_end_offset() == 115
        if log.listings < after:
            break


def test_a_topic_that_is_deleted_while_its_data_dir_is_read(
    original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = copied(original, tmp_path, 0).parent
    shutil.copytree(original, data / "other-0")
    dropped = data / "other-0"

    def delete_topic(folder: Path) -> None:
        folder.rename(folder.with_name("other-0.1234567890abcdef1234567890abcdef-delete"))

    for command in (["info", "DIR"], ["count", "DIR"], ["audit", "DIR"], ["records", "DIR"]):
        for after in range(1, LISTINGS):
            log = MovingLog(dropped, delete_topic, after)
            with monkeypatch.context() as patches:
                log.start(patches)
                done = run(command, data, original)
            assert done.returncode == 0, f"{command}, listing {after}: {done.stderr}"
            for path in data.glob("other-0.*"):
                path.rename(dropped)
            if log.listings < after:
                break


def test_a_swap_that_is_seen_half_way_is_waited_for(
    original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = copied(original, tmp_path, 0)
    log, *_ = sorted(folder.glob("*.log"))
    swap = log.with_suffix(".log.swap")
    log.rename(swap)
    sleep = SimpleNamespace(sleep=lambda _: swap.exists() and swap.rename(log))
    monkeypatch.setattr(folders, "time", sleep)
    assert _offsets(ks.read_records(folder)) == _offsets(ks.read_records(original))


def test_a_swap_that_nobody_completes_is_left_out(original: Path, tmp_path: Path) -> None:
    folder = copied(original, tmp_path, 0)
    log, following, *_ = sorted(folder.glob("*.log"))
    log.rename(log.with_suffix(".log.swap"))
    assert _offsets(ks.read_records(folder))[0] == int(following.stem)


def test_a_link_that_leads_nowhere_and_a_file_without_permission_stay_findings(
    original: Path, tmp_path: Path
) -> None:
    folder = copied(original, tmp_path, 0)
    log, *_ = sorted(folder.glob("*.log"))
    log.unlink()
    log.symlink_to("nowhere")
    done = command_line.run("info", folder)
    assert done.returncode == 3
    assert f"{log}: No such file or directory" in done.stderr
    problems = ks.count_records(folder).problems
    assert [one.symbol for one in problems] == ["UNREADABLE"]


def test_segments_that_overlap_stay_findings_beside_retention(
    original: Path, tmp_path: Path
) -> None:
    folder = copied(original, tmp_path, 0)
    first, second, *_ = sorted(folder.glob("*.log"))
    first.write_bytes(first.read_bytes() + second.read_bytes())
    done = command_line.run("records", folder)
    assert done.returncode == 1
    assert "[OFFSET_OVERLAP]" in done.stderr


def test_positions_of_a_replaced_file_are_not_read_in_another_one(
    original: Path, tmp_path: Path
) -> None:
    folder = copied(original, tmp_path, 0)
    segment = ks.open_log_dir(folder).partitions[0].log_segments[0]
    batches = ks.scan_batches(segment).batches
    new = folder / "new"
    new.write_bytes(segment.path.read_bytes()[1:])
    new.rename(segment.path)
    with pytest.raises(FileGoneError, match="FILE_GONE"):
        ks.verify_crcs(segment, batches)


VANISHING: dict[str, Callable[[Path], AnyTable]] = {
    "iter_records": lambda folder: list(ks.iter_records(folder, on_corrupt="stop"))[-1],
    "read_records": lambda folder: ks.read_records(folder, on_corrupt="stop"),
    "count_records": ks.count_records,
    "read_transactions": ks.read_transactions,
    "read_fingerprints": ks.analysis.read_fingerprints,
}


@pytest.mark.parametrize("name", VANISHING)
@pytest.mark.parametrize("is_moved", [True, False])
def test_a_folder_that_vanishes_is_no_empty_log(
    name: str, is_moved: bool, original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No broker moves a folder away, nor deletes all segments of one: a disk may be unmounted."""

    def vanish(folder: Path) -> None:
        if is_moved:
            folder.parent.rename(folder.parent.with_suffix(".moved"))
            return
        for path in folder.glob("*.log"):
            path.unlink()

    for after in range(1, LISTINGS):
        folder = copied(original, tmp_path, after)
        log = MovingLog(folder, vanish, after)
        with monkeypatch.context() as patches:
            log.start(patches)
            try:
                found = VANISHING[name](folder)
            except (OSError, KafkaScanError):
                continue
        if log.listings < after:
            break
        assert any(one.rows_missing for one in found.problems), f"listing {after}"


def test_a_gap_where_files_have_other_inodes_at_each_look(
    original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As some network file systems: a gap is a problem there, too."""
    folder = copied(original, tmp_path, 0)
    sorted(folder.glob("*.log"))[2].unlink()
    numbers = itertools.count(10**9)

    def of_other_inode(stat: Callable[..., os.stat_result]) -> Callable[..., os.stat_result]:
        def look(*given: object, **options: object) -> os.stat_result:
            found = list(stat(*given, **options))
            found[1] = next(numbers)
            return os.stat_result(found)

        return look

    for name in ("stat", "fstat", "lstat"):
        monkeypatch.setattr(source_protocols.os, name, of_other_inode(getattr(os, name)))
    assert "OFFSET_GAP" in [one.symbol for one in ks.count_records(folder).problems]


def test_threads_that_open_a_linked_segment(original: Path, tmp_path: Path) -> None:
    folder = copied(original, tmp_path, 0)
    log, *_ = sorted(folder.glob("*.log"))
    log.symlink_to(log.rename(tmp_path / "elsewhere.log"))
    opened = PinnedFolder(DiskFolder(folder)).source(log.name)
    assert isinstance(opened, PinnedFile)
    # Another thread opens it between the two looks of this one.
    looks = iter([lambda: None, opened._open_listed])
    first = PinnedFile(opened.path, opened.name, opened.pins)
    os.close(opened.open())
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(PinnedFile, "_open_listed", lambda _: next(looks)())
        os.close(first.open())


def test_a_side_file_that_was_replaced_is_read(original: Path, tmp_path: Path) -> None:
    folder = copied(original, tmp_path, 0)
    index, *_ = sorted(folder.glob("*.index"))
    pinned = PinnedFolder(DiskFolder(folder))
    before = pinned.read(index.name)
    new = folder / "new"
    new.write_bytes(index.read_bytes())
    new.rename(index)
    assert pinned.read(index.name) == before is not None


@pytest.mark.parametrize("change", [retention_ends, cleaner_ends])
@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_one_listing_serves_all_segments_that_are_gone(
    original: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    read: Callable[[Path], list[int]],
    change: Change,
) -> None:
    at_rest = LISTINGS
    for after in range(LISTINGS):
        log = MovingLog(copied(original, tmp_path, after), change, after)
        with monkeypatch.context() as patches:
            log.start(patches)
            read(log.folder)
        at_rest = log.listings if after == 0 else at_rest
        assert log.listings <= 2 * at_rest + 1  # a whole answer is begun again
        if after == at_rest:
            break
    assert after == at_rest


@pytest.mark.parametrize("read", [READERS[name] for name in READERS if "range" not in name])
def test_a_segment_that_is_gone_in_a_newer_listing_too(
    original: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    read: Callable[[Path], list[int]],
) -> None:
    """Retention deletes the first segment after each listing."""
    expected = read(original)
    folder = copied(original, tmp_path, 0)
    list_folder = folders._settled_files

    def list_and_delete(path: Path) -> FilePins:
        found = list_folder(path)
        logs = sorted(path.glob("*.log"))
        if path == folder and len(logs) > 1:
            logs[0].unlink()
        return found

    monkeypatch.setattr(folders, "_settled_files", list_and_delete)
    offsets = read(folder)
    assert 0 < len(offsets) < len(expected)
    assert offsets == expected[-len(offsets) :] or read is READERS["count_records"]


def _unlink_logs(folder: Path) -> None:
    for path in folder.glob("*.log"):
        path.unlink()


def _move_away(folder: Path) -> None:
    folder.rename(folder.parent.with_suffix(".moved"))


def _delete_third(folder: Path) -> None:
    sorted(folder.glob("*.log"))[2].unlink()


@pytest.fixture
def changed_when_found(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path, Change], None]:
    """Change a folder once a command knows the sizes of its files."""
    find = SegmentPaths.find

    def prepare(folder: Path, change: Change) -> None:
        def find_and_change(paths: SegmentPaths, *given: Any) -> list[SegmentInput]:
            found = find(paths, *given)
            change(folder)
            return found

        monkeypatch.setattr(SegmentPaths, "find", find_and_change)

    return prepare


_OF_FILES = ("info", "verify", "index check", "batches --verify")


@pytest.mark.parametrize("command", _OF_FILES)
@pytest.mark.parametrize("vanish", [_unlink_logs, _move_away])
def test_commands_say_that_a_folder_vanished(
    original: Path,
    tmp_path: Path,
    changed_when_found: Callable[[Path, Change], None],
    command: str,
    vanish: Change,
) -> None:
    """As of a disk that is unmounted: no broker deletes all segments of a log."""
    folder = copied(original, tmp_path, 0)
    changed_when_found(folder, vanish)
    done = command_line.run(*command.split(), folder)
    assert done.returncode == 3
    assert f"{min(original.glob('*.log')).name}: No such file or directory" in done.stderr


@pytest.mark.parametrize("command", ["info", "verify"])
def test_commands_say_that_a_segment_within_a_log_vanished(
    original: Path,
    tmp_path: Path,
    changed_when_found: Callable[[Path, Change], None],
    command: str,
) -> None:
    """Neither retention nor the cleaner leaves such a gap."""
    folder = copied(original, tmp_path, 0)
    changed_when_found(folder, _delete_third)
    done = command_line.run(command, folder)
    assert done.returncode == 1
    assert "[OFFSET_GAP]" in done.stderr


@pytest.mark.parametrize("command", ["info", "verify"])
def test_commands_read_the_segment_that_the_cleaner_has_put_in_place(
    original: Path,
    tmp_path: Path,
    changed_when_found: Callable[[Path, Change], None],
    command: str,
) -> None:
    folder = copied(original, tmp_path, 0)
    changed_when_found(folder, cleaner_ends)
    done = command_line.run(command, folder, "--format", "jsonl")
    assert (done.returncode, done.stderr) == (0, "")
    read = sum(json.loads(line)["batches"] for line in done.stdout.splitlines())
    assert read == sum(len(ks.scan_batches(path).batches) for path in original.glob("*.log"))


def test_rows_whose_file_is_gone_before_they_are_verified(
    original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = copied(original, tmp_path, 0)
    verify_rows = segment_commands._verify_rows

    def delete_and_verify(run: Any, one: SegmentInput, rows: Any) -> Any:
        if one.path.exists() and one.path != max(folder.glob("*.log")):
            one.path.unlink()
        return verify_rows(run, one, rows)

    monkeypatch.setattr(segment_commands, "_verify_rows", delete_and_verify)
    done = command_line.run("batches", folder, "--verify", "--format", "jsonl")
    assert done.returncode == 0
    assert "[FILE_GONE]" in done.stderr
    assert json.loads(done.stdout.splitlines()[0])["crc_is_valid"] is None


def test_the_time_of_a_segment_that_was_renamed(
    original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a time index, a broker takes the time of the file's last modification."""
    starts = {0, int(sorted(original.glob("*.log"))[SEGMENTS].stem)}
    for after in range(LISTINGS):
        folder = copied(original, tmp_path, after)
        for path in folder.glob("*.timeindex"):
            path.write_bytes(b"")
        log = MovingLog(folder, retention_begins, after)
        with monkeypatch.context() as patches:
            log.start(patches)
            found = ks.lookup_timestamp(folder, 0, trust_index=True)
        assert found is not None
        assert found.offset in starts
        if log.listings < after:
            break


class _FailsOnce:
    """An inspector that cannot read the second table of the first segment."""

    reads_content = True
    reads_side_files = False

    def __init__(self, segment: SegmentFile, tables: Iterator[int]) -> None:
        self._path, self._tables = segment.path, tables

    def open(self, source: ks.Source) -> None:
        """Take the source."""

    def table(self, batches: Any) -> int:
        """Return how many batches there are."""
        if next(self._tables) == 1:
            raise OSError(errno.EIO, "Input/output error", str(self._path))
        return len(batches)

    def end(self, *, is_whole: bool) -> None:
        """Return nothing."""


def test_batches_that_an_inspector_could_not_read_are_read_in_a_copy(
    original: Path, tmp_path: Path
) -> None:
    """The walk does not go on behind what it has not returned."""
    folder = copied(original, tmp_path, 0)
    first, *_, last = sorted(folder.glob("*.log"))
    everything = [ks.scan_batches(path).batches for path in sorted(folder.glob("*.log"))]
    for path in folder.glob("*.log"):
        if path not in (first, last):
            path.unlink()
    tables, offset = itertools.count(), int(everything[0]["base_offset"][2])
    second = last.with_name(f"{offset:020}.log")
    second.write_bytes(first.read_bytes()[int(everything[0]["position"][2]) :])
    last.unlink()
    (log,) = open_logs(folder)
    segments = [(log.partition, one) for one in log.segments]
    chunks = inspect_chunks(segments, range(2), 2, lambda one: _FailsOnce(one, tables), position=0)
    read = [int(base) for chunk in chunks for base in chunk.batches["base_offset"]]
    assert read == everything[0]["base_offset"].tolist()


def test_a_log_that_is_truncated_into_the_segment_before_the_last(
    original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A follower truncates its log, and then appends: the end of a log is no cut segment."""

    def truncate(folder: Path) -> None:
        *_, before, last = sorted(folder.glob("*.log"))
        appended = last.read_bytes()[:70]
        last.unlink()
        with before.open("ab") as file:
            file.write(appended)

    symbols: set[str] = set()
    for after in range(1, LISTINGS):
        log = MovingLog(copied(original, tmp_path, after), truncate, after)
        with monkeypatch.context() as patches:
            log.start(patches)
            for read in (ks.count_records, ks.analysis.read_fingerprints, ks.read_records):
                symbols |= {one.symbol for one in read(log.folder).problems}
        if log.listings < after:
            break
    assert symbols == {"TORN_TAIL"}


@pytest.mark.parametrize("command", ["index lookup DIR --offset 3", "count DIR"])
def test_an_answer_that_is_missing_is_no_success(
    original: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """As of a log that changes each time that it is read."""

    def find_gone(*_: object, **__: object) -> None:
        raise FileGoneError(str(original / "0.log"))

    for name in ("lookup_offset", "count_records"):
        monkeypatch.setattr(ks, name, find_gone)
    done = run(command.split(), original, original)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.endswith("[FILE_GONE]\n")
