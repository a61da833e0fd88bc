"""Logs that change after a reader has read a part of them: begin again, or say so."""

from __future__ import annotations

import json
import os
import shutil
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import polars
import pytest

import kafkascan as ks
from kafkascan.io import folders
from kafkascan.io.source_protocols import PinnedFile
from kafkascan.logs import opened_logs
from tests.spark.logs import plain_batch
from tests.support import command_line
from tests.support.moving_logs import Change, cleaner_ends, retention_begins, retention_ends
from tests.support.partitions import HealthyPartition
from tests.support.waiting import IS_SANITIZED

pytestmark = pytest.mark.skipif(
    IS_SANITIZED, reason="libraries that commands load end under sanitizers"
)

CHANGED = "CHANGED_WHILE_READ"


def _cut(folder: Path) -> None:
    """Truncate the third segment, as a follower of a new leader does."""
    _, _, third, *later = sorted(folder.glob("*.log"))
    for path in later:
        path.unlink()
    os.truncate(third, 100)


def _cut_first(folder: Path) -> None:
    """Truncate the first segment, of which all was read."""
    first, *later = sorted(folder.glob("*.log"))
    for path in later:
        path.unlink()
    os.truncate(first, 100)


def _delete_topic(folder: Path) -> None:
    folder.rename(folder.with_name(f"{folder.name}.{'a' * 32}-delete"))


def _make_topic_again(folder: Path) -> None:
    new = folder.with_name("new")
    HealthyPartition(new, segments=1).write()
    (new / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")
    _delete_topic(folder)
    shutil.rmtree(next(folder.parent.glob("*-delete")))
    new.rename(folder)


NOTED = {"retention": retention_ends, "cleaner": cleaner_ends, "deleted": _delete_topic}
COMMANDS = (
    ["records"],
    ["batches"],
    ["verify"],
    ["sql", 'SELECT topic, partition, "offset" FROM records'],
)
WARNED = {"cut": _cut_first, "made again": _make_topic_again}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A log of five segments."""
    folder = tmp_path / "ü b" / "data" / "orders-0"
    HealthyPartition(folder, segments=5).write()
    (folder / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA\n")
    return folder


@pytest.fixture
def before_open(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, Callable[[], None]], None]:
    """Call a function before a segment is opened to be read: the second one is number 1."""

    def begin(number: int, change: Callable[[], None]) -> None:
        open_file, opened = PinnedFile.open, list[str]()

        def changing(self: PinnedFile) -> int:
            if self.is_listed:
                opened.append(self.name)
                if len(opened) == number + 1:
                    change()
            return open_file(self)

        monkeypatch.setattr(PinnedFile, "open", changing)

    return begin


def _offsets(tables: Iterator[ks.RecordTable]) -> tuple[list[int], list[ks.tables.Problem]]:
    offsets, problems = list[int](), list[ks.tables.Problem]()
    for table in tables:
        offsets += table["offset"].tolist()
        problems += table.problems
    return offsets, problems


@pytest.mark.parametrize("change", [*NOTED.values(), *WARNED.values()], ids=[*NOTED, *WARNED])
def test_what_was_yielded_is_of_another_moment_than_the_rest(
    folder: Path, before_open: Callable[[int, Callable[[], None]], None], change: Change
) -> None:
    first, second, *_ = sorted(folder.glob("*.log"))
    of_first = ks.read_records(first)["offset"].tolist()
    before_open(1, lambda: change(folder))
    offsets, problems = _offsets(ks.iter_records(folder, on_corrupt="stop"))
    assert offsets[: len(of_first)] == of_first
    (found,) = [one for one in problems if one.symbol == CHANGED]
    is_note = found.severity is ks.format.Severity.NOTE
    assert is_note == (change in NOTED.values())
    assert not found.rows_missing
    assert found.path.startswith(str(folder))
    assert found.path == str(second)


@pytest.mark.parametrize("change", [*NOTED.values(), *WARNED.values()], ids=[*NOTED, *WARNED])
@pytest.mark.parametrize("command", COMMANDS, ids=[command[0] for command in COMMANDS])
def test_exit_codes(
    folder: Path,
    before_open: Callable[[int, Callable[[], None]], None],
    change: Change,
    command: list[str],
) -> None:
    # Those that print rows of each file look at it first.
    before_open(2 if command[0] in ("records", "batches") else 1, lambda: change(folder))
    done = command_line.run(*command, folder, "--format", "jsonl")
    lines = [line for line in done.stderr.splitlines() if f"[{CHANGED}]" in line]
    assert len(lines) == 1, done.stderr
    assert done.returncode == (0 if change in NOTED.values() else 1), done.stderr
    assert json.loads(done.stdout.splitlines()[0])["partition"] == 0


def _at_rest(read: Callable[[Path], object], folder: Path) -> str:
    return repr(read(folder)).replace(str(folder.parent), "DATA")


READERS: dict[str, Callable[[Path], object]] = {
    "read_records": lambda path: ks.read_records(path)["offset"].tolist(),
    "read_records committed": lambda path: ks.read_records(path, isolation="read_committed")[
        "offset"
    ].tolist(),
    "count_records": lambda path: [
        {name: value for name, value in row.items() if name != "path"}
        for row in ks.count_records(path).rows()
    ],
    "read_transactions": lambda path: list(ks.read_transactions(path, now_ms=0).rows()),
    "read_producers": lambda path: list(ks.read_producers(path).rows()),
}


@pytest.mark.parametrize("change", [retention_ends, cleaner_ends, _cut, _make_topic_again])
@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_a_whole_answer_is_begun_again(
    folder: Path,
    before_open: Callable[[int, Callable[[], None]], None],
    read: Callable[[Path], object],
    change: Change,
) -> None:
    before = _at_rest(read, folder)
    before_open(1, lambda: change(folder))
    found = _at_rest(read, folder)
    after = _at_rest(read, folder)
    assert found == after
    assert before != after or change is cleaner_ends


@pytest.mark.parametrize(("logs", "most"), [(1, 6), (2, 1)])
def test_attempts_are_bounded(
    folder: Path, monkeypatch: pytest.MonkeyPatch, logs: int, most: int
) -> None:
    """Of many logs, a broker always changes one."""
    attempts = list[int]()
    monkeypatch.setattr(opened_logs, "_is_stale", lambda _: True)

    def read(opened: Sequence[opened_logs.LogView]) -> int:
        attempts.append(len(opened))
        return len(attempts)

    partitions = ks.open_log_dir(folder).partitions * logs
    found = opened_logs.at_one_moment(ks.logs.LogDir(folder.parent, partitions), read)
    assert found == most
    assert attempts == [logs] * most


def test_a_view_is_read_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opened_logs, "_is_stale", lambda _: True)
    attempts = list[int]()
    opened_logs.at_one_moment(ks.logs.open_view(folder), lambda views: attempts.append(len(views)))
    assert attempts == [1]


def test_segments_that_were_renamed_are_read_as_they_were_listed(
    folder: Path, before_open: Callable[[int, Callable[[], None]], None]
) -> None:
    expected = ks.read_records(folder)["offset"].tolist()
    before_open(1, lambda: retention_begins(folder))
    found = ks.read_records(folder)
    assert found["offset"].tolist() == expected
    assert not len(found.problems)


def test_what_is_appended_after_the_listing_is_not_read(folder: Path) -> None:
    """Neither by a table that is read later, nor by one that is read twice."""
    table, frame = ks.scan_log_dir(folder), ks.polars.scan_records(folder)
    batches, records = len(table.to_pandas()), len(frame.collect())
    last = max(folder.glob("*.log"))
    end = int(ks.read_records(folder)["offset"][-1]) + 1
    with last.open("ab") as file:
        file.write(ks.build_batches(value=[b"later"], offset=end))
    assert len(table.to_pandas()) == batches
    assert len(frame.collect()) == records
    assert len(ks.scan_log_dir(folder).to_pandas()) == batches + 1


def test_a_start_offset_that_moves_during_the_listing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The start offset and the segments are those of one moment."""
    list_logs, listings = opened_logs.list_logs, list[int]()

    def deleting(*given: object) -> object:
        found = list_logs(*given)  # type: ignore[arg-type]
        listings.append(len(found))
        if len(listings) == 1:
            text = "0\n1\norders 0 30\n"
            (folder.parent / "log-start-offset-checkpoint").write_text(text)
        return found

    monkeypatch.setattr(opened_logs, "list_logs", deleting)
    assert ks.read_records(folder)["offset"][0] == 30
    assert len(listings) == 2


def _roll_and_delete_all(folder: Path) -> None:
    """Begin a segment, and delete those before it, as retention by size does."""
    segments = sorted(folder.glob("*.log"))
    end = ks.scan_batches(segments[-1]).batches["base_offset"][-1] + 1000
    (folder / f"{end:020}.log").write_bytes(plain_batch(int(end), 3, 50))
    for path in segments:
        path.unlink()


@pytest.mark.parametrize("command", COMMANDS, ids=[command[0] for command in COMMANDS])
def test_all_listed_segments_are_gone(
    folder: Path,
    before_open: Callable[[int, Callable[[], None]], None],
    command: list[str],
) -> None:
    """An answer without rows says that it lacks those that the log has by now."""
    before_open(0, lambda: _roll_and_delete_all(folder))
    done = command_line.run(*command, folder, "--format", "jsonl")
    assert done.stdout == ""
    assert "deleted all segments of the log before they were read" in done.stderr
    assert done.stderr.count(f"[{CHANGED}]") == 1
    assert done.returncode == 1


def test_a_whole_answer_has_what_the_log_has_by_now(
    folder: Path, before_open: Callable[[int, Callable[[], None]], None]
) -> None:
    before_open(0, lambda: _roll_and_delete_all(folder))
    records = ks.read_records(folder)
    assert len(records) == 3
    assert not records.problems


def test_an_index_of_a_segment_that_is_being_deleted(folder: Path) -> None:
    """A broker renames the log first, and then its indexes."""
    first = min(folder.glob("*.log"))
    first.rename(f"{first}.deleted")
    found = [one for one in ks.audit(folder).findings if one.symbol == "ORPHAN"]
    assert found
    assert {one.severity for one in found} == {ks.format.Severity.NOTE}
    Path(f"{first}.deleted").unlink()
    found = [one for one in ks.audit(folder).findings if one.symbol == "ORPHAN"]
    assert {one.severity for one in found} == {ks.format.Severity.WARNING}


def test_a_link_that_leads_nowhere_is_not_waited_for(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / f"{1 << 40:020}.log").symlink_to("nowhere")
    waits: list[float] = []
    monkeypatch.setattr(folders.time, "sleep", waits.append)
    assert "UNREADABLE" in ks.read_records(folder, on_corrupt="stop").problems["symbol"]
    assert not waits


def test_some_listed_segments_are_gone_that_were_asked_for(folder: Path) -> None:
    """The log has the others, and says nothing of what a query without offsets left out."""
    frame = ks.polars.scan_records(folder)
    first, second, *_ = sorted(folder.glob("*.log"))
    first.unlink()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = frame.filter(polars.col("offset") < int(second.stem)).collect()
    assert len(found) == 0


def test_that_a_log_was_emptied_is_a_note(
    folder: Path, before_open: Callable[[int, Callable[[], None]], None]
) -> None:
    """Retention deletes all of a log that nobody writes to."""

    def delete_all() -> None:
        segments = sorted(folder.glob("*.log"))
        (folder / f"{1 << 20:020}.log").touch()
        for path in segments:
            path.unlink()

    before_open(0, delete_all)
    tables = list(ks.iter_records(folder, on_corrupt="stop"))
    (problem,) = [one for table in tables for one in table.problems]
    assert (problem.symbol, problem.rows_missing) == ("CHANGED_WHILE_READ", False)
    assert problem.severity is ks.Severity.NOTE


@pytest.mark.parametrize("is_back", [True, False])
def test_an_audit_of_a_log_that_is_gone_says_so(
    folder: Path, monkeypatch: pytest.MonkeyPatch, is_back: bool
) -> None:
    """A broker renames the folder; of a log that it moves between disks, then the copy."""
    copy = folder.with_name("copy")
    shutil.copytree(folder, copy)
    open_file, opened = PinnedFile.open, list[str]()

    def opening(self: PinnedFile) -> int:
        opened.append(self.name)
        if opened == [self.name]:
            shutil.rmtree(folder)
        return open_file(self)

    def come_back(seconds: float) -> None:
        if copy.exists():
            copy.rename(folder)

    monkeypatch.setattr(PinnedFile, "open", opening)
    monkeypatch.setattr(folders.time, "sleep", come_back if is_back else lambda seconds: None)
    audit = ks.audit(folder)
    symbols = {one.symbol for one in audit.findings}
    assert ("CHANGED_WHILE_READ" in symbols) is not is_back
    assert (audit.batches > 0) is is_back
    assert "UNREADABLE" not in symbols
