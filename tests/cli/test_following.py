"""`records` and `batches` with --follow, --around, and --decode with a name."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

import kafkascan as ks
from tests.support.command_line import DATA, rows, run
from tests.support.internal_topics import TopicLog, commit
from tests.support.logs import COMMIT
from tests.support.records import RecordV2, batch_of
from tests.support.segments import T0
from tests.support.waiting import HANG_SECONDS
from tests.unit.logs.test_log_follower import GrowingLog


class FollowingCommand:
    """A command in a process of its own, line by line."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self._unread = b""

    def lines(self, count: int) -> list[str]:
        """Wait for lines of the output."""
        assert self.process.stdout is not None
        deadline = time.monotonic() + HANG_SECONDS
        while self._unread.count(b"\n") < count:
            ready, _, _ = select.select([self.process.stdout], [], [], 1)
            if ready:
                data = os.read(self.process.stdout.fileno(), 1 << 16)
                assert data, self._ended()
                self._unread += data
            assert time.monotonic() < deadline, self._unread
        *found, self._unread = self._unread.split(b"\n", count)
        return [line.decode() for line in found]

    def _ended(self) -> str:
        """Return why there is no more output."""
        errors = self.process.communicate(timeout=HANG_SECONDS)[1].decode()
        return f"exit code {self.process.returncode}, after {self._unread!r}: {errors}"

    def offsets(self, count: int) -> list[int]:
        """Wait for JSON lines; return their offsets."""
        return [json.loads(line)["offset"] for line in self.lines(count)]

    def interrupt(self) -> tuple[int, str]:
        """Send SIGINT; return the exit code and the findings."""
        self.process.send_signal(signal.SIGINT)
        rest, errors = self.process.communicate(timeout=HANG_SECONDS)
        assert self._unread + rest == b""
        return self.process.returncode, errors.decode()


@contextmanager
def following(*arguments: object) -> Iterator[FollowingCommand]:
    command = [sys.executable, "-m", "kafkascan", *map(str, arguments), "--follow"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            yield FollowingCommand(process)
        finally:
            process.kill()


@pytest.fixture
def log(tmp_path: Path) -> GrowingLog:
    return GrowingLog(tmp_path / "orders-0")


def test_records_are_followed(log: GrowingLog) -> None:
    log.append(5)
    with following("records", log.folder, "--format", "jsonl", "--tail", 2) as command:
        assert command.offsets(2) == [3, 4]
        log.append()
        assert command.offsets(1) == [5]
        log.roll()
        log.append(2)
        assert command.offsets(2) == [6, 7]
        assert command.interrupt() == (0, "")


def test_committed_records_are_followed(log: GrowingLog) -> None:
    log.append()
    arguments = ("--format", "jsonl", "--isolation", "read_committed")
    with following("records", log.folder, *arguments) as command:
        assert command.offsets(1) == [0]
        log.append(producer_id=7)
        log.append()
        log.end(7, COMMIT)
        assert command.offsets(2) == [1, 2]
        assert command.interrupt() == (0, "")


@pytest.mark.parametrize("output_format", ["table", "csv", "jsonl"])
def test_batches_are_followed(log: GrowingLog, output_format: str) -> None:
    log.append(2)
    with following("batches", log.file, "--format", output_format) as command:
        command.lines(2 + (output_format != "jsonl"))
        log.append()
        command.lines(1)
        assert command.interrupt() == (0, "")


def test_findings_of_a_followed_log(log: GrowingLog) -> None:
    log.append(2)
    with following("records", log.folder, "--format", "jsonl", "--limit", 4) as command:
        command.offsets(2)
        first = log.file
        log.append()
        log.roll()
        first.unlink()
        log.append(2)
        # The third record may have been read before its segment was deleted.
        command.offsets(2)
        command.process.wait(HANG_SECONDS)
        assert command.process.returncode in (0, 1)


def test_what_cannot_be_followed(tmp_path: Path, log: GrowingLog) -> None:
    log.append()
    assert run("records", log.folder, "--follow", "--output", tmp_path / "x.csv").returncode == 2
    assert run("records", log.folder, "--follow", "--around", 3).returncode == 2
    copy = tmp_path / "copy.bin"
    copy.write_bytes(log.file.read_bytes())
    done = run("batches", copy, "--follow")
    assert done.returncode == 2
    assert "is not a segment" in done.stderr


def test_around(tmp_path: Path) -> None:
    for number in range(2):
        log = GrowingLog(tmp_path / f"orders-{number}")
        log.append(20)
        log.roll()
        log.append(20)

    def offsets(*arguments: object, verb: str = "records") -> list[tuple[int, int]]:
        column = "offset" if verb == "records" else "base_offset"
        found = rows(verb, tmp_path, "--columns", f"partition,{column}", *arguments)
        return [(row["partition"], row[column]) for row in found]

    both = [(number, offset) for number in range(2) for offset in range(17, 23)]
    assert offsets("--around", 20, "--context", 3) == both
    moment = datetime.fromtimestamp((T0 + 20) / 1000, UTC).isoformat()
    assert offsets("--around", moment, "--context", 3) == both
    assert offsets("--around", 20, "--context", 3, verb="batches") == both
    assert len(offsets("--around", 20)) == 20
    assert offsets("--around", 1, "--context", 2)[:3] == [(0, 0), (0, 1), (0, 2)]
    assert offsets("--around", 99, "--context", 2) == [(0, 38), (0, 39), (1, 38), (1, 39)]
    assert run("records", tmp_path, "--around", 1, "--tail", 1).returncode == 2


def indexed_log(folder: Path) -> GrowingLog:
    """Return a log of three segments of 40 batches with index files, an entry every two batches."""
    log = GrowingLog(folder)
    for part in range(3):
        if part:
            log.roll()
        log.append(40)
    size = len(log.batches.batches[0])
    run("index", "build", folder, "--write", "--interval-bytes", 2 * size - 1)
    return log


def shown_around(log: Path, *arguments: object, verb: str = "records") -> tuple[int, list[int]]:
    column = "offset" if verb == "records" else "base_offset"
    done = run(verb, log, "--format", "json", "--columns", column, "--around", *arguments)
    return done.returncode, [row[column] for row in json.loads(done.stdout)]


PLACES = [
    (offset, context) for offset in (0, 3, 39, 40, 61, 79, 80, 118, 500) for context in (0, 2, 25)
]


def iso_time(offset: int) -> str:
    return datetime.fromtimestamp((T0 + offset) / 1000, UTC).isoformat()


@pytest.mark.parametrize("verb", ["records", "batches"])
@pytest.mark.parametrize(
    "damage",
    [
        "none", "no indexes", "garbage", "wrong positions", "not in order", "cut off",
        "early times", "late times", "late offsets", "another segment's",
    ],
)  # fmt: skip
def test_rows_around_do_not_depend_on_indexes(tmp_path: Path, damage: str, verb: str) -> None:
    log = indexed_log(tmp_path / "orders-0").folder
    indexes = sorted([*log.glob("*.index"), *log.glob("*.timeindex")])
    assert len(indexes) == 6
    for path in indexes:
        data = path.read_bytes()
        assert len(data) >= 120
        if damage == "no indexes":
            path.unlink()
        elif damage == "garbage":
            path.write_bytes(bytes(range(1, 241)))
        elif damage == "wrong positions" and path.suffix == ".index":
            entries = [data[at : at + 4] + (7).to_bytes(4, "big") for at in range(0, len(data), 8)]
            path.write_bytes(b"".join(entries))
        elif damage == "not in order":
            path.write_bytes(data[len(data) // 24 * 12 :] + data[: len(data) // 24 * 12])
        elif damage == "cut off":
            path.write_bytes(data[:24])
        elif path.suffix == ".timeindex":
            lie_about_times(path, damage)
    for offset, context in PLACES:
        first, end = max(0, min(offset, 120) - context), min(120, offset + context)
        expected = (0, list(range(first, end)))
        assert shown_around(log, offset, "--context", context, verb=verb) == expected
        assert shown_around(log, iso_time(offset), "--context", context, verb=verb) == expected


def lie_about_times(path: Path, damage: str) -> None:
    """Change a time index so that its entries are in order, but wrong."""
    entries = ks.read_index(path).copy()
    if damage == "early times":
        entries["timestamp"] -= 15
    elif damage == "late times":
        entries["timestamp"] += 15
    elif damage == "late offsets":
        entries["relative_offset"] += 15
    elif damage == "another segment's":
        other = min(path.parent.glob("*.timeindex"))
        entries = ks.read_index(other)
    ks.write_index(path, entries)


@pytest.mark.parametrize("verb", ["records", "batches"])
def test_around_reads_a_part_of_the_log(tmp_path: Path, verb: str) -> None:
    log = indexed_log(tmp_path / "orders-0").folder
    damage_a_length(log / f"{80:020}.log")
    # For a time, headers before the place are read, too: a time index may be wrong.
    for place in (70, 81, iso_time(70)):
        code, found = shown_around(log, place, "--context", 4, verb=verb)
        assert code == 0
        assert len(found) == 8
    damage_a_length(log / f"{0:020}.log")
    for place in (70, 81):
        assert shown_around(log, place, "--context", 4, verb=verb)[0] == 0
    assert shown_around(log, iso_time(70), "--context", 4, verb=verb) == (1, list(range(66, 74)))
    # With a condition, any number of rows before the place may not meet it.
    done = run(verb, log, "--around", 70, "--from-offset", 0)
    assert "position" in done.stderr


@pytest.mark.parametrize("verb", ["records", "batches"])
def test_a_time_index_that_hides_an_early_batch(tmp_path: Path, verb: str) -> None:
    """A batch of a later time is at offset 5; the index is that of a log without it."""
    log = indexed_log(tmp_path / "orders-0").folder
    first = log / f"{0:020}.log"
    data = first.read_bytes()
    size = len(data) // 40
    times = {"base_timestamp": T0 + 70, "max_timestamp": T0 + 70}
    early = batch_of([RecordV2(b"k", b"v")], base_offset=5, **times)
    assert len(early) == size
    first.write_bytes(data[: 5 * size] + early + data[6 * size :])
    for offset in (45, 60, 70):
        shown = shown_around(log, iso_time(offset), "--context", 3, verb=verb)
        assert shown == (0, list(range(2, 8)))
    assert shown_around(log, iso_time(71), "--context", 1, verb=verb) == (0, [70, 71])


def damage_a_length(path: Path) -> None:
    """Overwrite the length of a batch far from the beginning of a segment of 40 batches."""
    data = bytearray(path.read_bytes())
    at = len(data) // 40 * 30
    data[at + 8 : at + 12] = b"\xff" * 4
    path.write_bytes(data)


def shown_tail(log: Path, count: int, verb: str = "records") -> tuple[int, list[int]]:
    column = "offset" if verb == "records" else "base_offset"
    done = run(verb, log, "--format", "json", "--columns", column, "--tail", count)
    return done.returncode, [row[column] for row in json.loads(done.stdout)]


@pytest.mark.parametrize("verb", ["records", "batches"])
def test_the_tail_reads_the_end_of_the_log(tmp_path: Path, verb: str) -> None:
    log = indexed_log(tmp_path / "orders-0").folder
    assert shown_tail(log, 300, verb) == (0, list(range(120)))
    damage_a_length(log / f"{0:020}.log")
    for count in (0, 1, 2, 39, 41):
        assert shown_tail(log, count, verb) == (0, list(range(120 - count, 120)))
    assert shown_tail(log, 90, verb) == (1, [*range(20, 30), *range(40, 120)])


def test_the_tail_of_segments_that_overlap_is_what_a_consumer_reads(tmp_path: Path) -> None:
    log = indexed_log(tmp_path / "orders-0").folder
    for name in log.glob(f"{80:020}.*"):
        name.unlink()
    whole = b"".join((log / f"{first:020}.log").read_bytes() for first in (0, 40))
    (log / f"{0:020}.log").write_bytes(whole)
    stale = (log / f"{40:020}.log").read_bytes()
    (log / f"{40:020}.log").write_bytes(stale[: len(stale) // 40 * 35])
    run("index", "build", log, "--write", "--interval-bytes", 100)
    assert shown_tail(log, 3)[1] == [77, 78, 79]


def test_too_few_records_behind_the_entry_of_an_index(tmp_path: Path) -> None:
    log = GrowingLog(tmp_path / "orders-0")
    log.append(20)
    for _ in range(40):  # batches without records of clients
        log.end(7, COMMIT)
    log.append(5)
    run("index", "build", log.folder, "--write", "--interval-bytes", 1)
    assert shown_around(log.folder, 61, "--context", 4) == (0, [17, 18, 19, 60, 61, 62, 63, 64])


DECODED = {
    "groups": ("__consumer_offsets-0", "OffsetCommitValue"),
    "txns": ("__transaction_state-0", "TransactionLogValue"),
    "metadata": ("__cluster_metadata-0", "FeatureLevelRecord"),
}


@pytest.mark.parametrize("name", DECODED)
def test_records_are_decoded_as_those_of_a_topic(name: str, tmp_path: Path) -> None:
    folder, expected = DECODED[name]
    copy = tmp_path / "copy.log"
    copy.write_bytes((DATA / folder / f"{0:020}.log").read_bytes())
    values = [row["value"] for row in rows("records", copy, "--decode", name)]
    assert expected in {value["type"] for value in values if isinstance(value, dict)}
    assert not any(isinstance(row["value"], dict) for row in rows("records", copy))


def test_records_of_another_topic_are_findings(tmp_path: Path) -> None:
    log = TopicLog(tmp_path / "orders-0").add(commit("g", 0, 1), (b"k", b"v"), (b"", b""))
    done = run("records", log.write(), "--decode", "groups", "--format", "jsonl")
    assert done.returncode == 1
    assert len(done.stdout.splitlines()) == 3
    assert "2 records are not those of __consumer_offsets; the first is at offset 1" in done.stderr
    assert run("records", log.folder, "--decode", "auto").returncode == 0
    for name in ("share", "remote", "txns", "metadata"):
        assert run("records", log.folder, "--decode", name).returncode == 1
