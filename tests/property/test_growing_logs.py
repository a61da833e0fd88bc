"""
What read_committed returns of a log that grows meanwhile is what it returns as of some moment.

A reader lists a folder, reads transactions, and opens segments: each of it at another moment.
"""

from __future__ import annotations

import functools
import itertools
import json
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import kafkascan as ks
from kafkascan.io.folders import DiskFolder
from kafkascan.io.sources import Source
from kafkascan.logs.read_committed import CommittedView, CommittedViewBuilder
from tests.spark.logs import rows as rows_of_spark
from tests.support.command_line import run
from tests.support.examples import seeds
from tests.support.paths import GOLDEN
from tests.support.transactional_logs import Step, TransactionalLog
from tests.support.waiting import IS_SANITIZED

pytestmark = pytest.mark.skipif(
    IS_SANITIZED, reason="libraries that commands load end under sanitizers"
)

COMMITTED = "read_committed"
# Records that were listed, or opened, before the transactions were read.
FOUND = (54, 158, 294, 397)


@contextmanager
def growing(grow: Callable[[], None]) -> Iterator[None]:
    """Let a log grow after each listing, before each open, and after transactions were read."""
    list_names, open_source, view = DiskFolder.names, Source.__init__, CommittedViewBuilder.view

    def list_and_grow(folder: DiskFolder) -> list[str]:
        found = list_names(folder)
        grow()
        return found

    def grow_and_open(source: Source, *arguments: Any, **options: Any) -> None:
        grow()
        open_source(source, *arguments, **options)

    def view_and_grow(builder: CommittedViewBuilder, *arguments: int) -> CommittedView:
        found = view(builder, *arguments)
        grow()
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DiskFolder, "names", list_and_grow)
        patch.setattr(Source, "__init__", grow_and_open)
        patch.setattr(CommittedViewBuilder, "view", view_and_grow)
        yield


# ---- readers ---------------------------------------------------------------------------------


def _read(path: Path) -> list[int]:
    offsets: list[int] = ks.read_records(path, isolation=COMMITTED)["offset"].tolist()
    return offsets


def _read_in_times(path: Path) -> list[int]:
    table = ks.read_records(path, isolation=COMMITTED, from_time=0, on_corrupt="stop")
    offsets: list[int] = table["offset"].tolist()
    return offsets


def _iterated(path: Path) -> list[int]:
    tables = ks.iter_records(path, isolation=COMMITTED, batch_size=1)
    return [offset for table in tables for offset in table["offset"].tolist()]


def _scanned(path: Path) -> list[int]:
    frame = ks.polars.scan_records(path, isolation=COMMITTED).collect()
    offsets: list[int] = frame["offset"].to_list()
    return offsets


def _followed(path: Path) -> list[int]:
    polled = ks.logs.LogFollower(path, isolation=COMMITTED).poll()
    tables = [ks.read_records(one.source, one.batches) for one in polled]
    return [offset for table in tables for offset in table["offset"].tolist()]


def _on_spark(path: Path) -> list[int]:
    return sorted(row["offset"] for row in rows_of_spark(path=str(path), isolationLevel=COMMITTED))


def _printed(*arguments: object) -> list[int]:
    done = run(*arguments, "--isolation", COMMITTED, "--format", "jsonl")
    assert done.returncode == 0, done.stderr
    return [json.loads(line)["offset"] for line in done.stdout.splitlines()]


def _records(*options: object) -> Callable[[Path], list[int]]:
    return lambda path: _printed("records", path, *options)


def _counted(path: Path) -> list[int]:
    return [row["committed_records"] for row in ks.count_records(path).rows()]


def _around(offsets: list[int], place: int, context: int) -> list[int]:
    before = [one for one in offsets if one < place]
    return before[-context:] + [one for one in offsets if one >= place][:context]


@dataclass(frozen=True)
class Reader:
    """
    A reader of a log.

    Attributes
    ----------
    read : callable
        Takes the folder of the partition; returns offsets.
    of : callable
        Takes the committed offsets of a moment; returns what `read` should return of it.
    """

    read: Callable[[Path], list[int]]
    of: Callable[[list[int]], list[int]] = list


READERS = {
    "read_records": Reader(_read),
    "read_records in times": Reader(_read_in_times),
    "iter_records": Reader(_iterated),
    "scan_records": Reader(_scanned),
    "LogFollower": Reader(_followed),
    "sql": Reader(functools.partial(_printed, "sql", 'SELECT "offset" FROM records')),
    "Spark": Reader(_on_spark),
    "records": Reader(_records()),
    "records --limit": Reader(_records("--limit", 20), lambda seen: seen[:20]),
    "records --tail": Reader(_records("--tail", 3), lambda seen: seen[-3:]),
    "records --around": Reader(
        _records("--around", 22, "--context", 4), lambda seen: _around(seen, 22, 4)
    ),
    "records --grep": Reader(_records("--grep", ".")),
    "records --sample": Reader(_records("--sample", 1000)),
    "count": Reader(_counted, lambda seen: [len(seen)]),
}
OF_A_FILE = {
    name: READERS[name].read
    for name in ("read_records", "iter_records", "scan_records", "records", "sql")
}


@pytest.mark.parametrize("name", READERS)
def test_a_log_as_of_some_moment(tmp_path: Path, name: str) -> None:
    for seed in {*FOUND, *seeds(120)}:
        log = _GrowingLog(tmp_path / str(seed), seed)
        first = len(log.moments) - 1
        with growing(log.grow):
            found = READERS[name].read(log.folder)
        moments = [READERS[name].of(seen) for seen in log.moments[first:]]
        assert found in moments, f"seed={seed}"


@pytest.mark.parametrize("name", OF_A_FILE)
def test_a_segment_as_of_some_moment(tmp_path: Path, name: str) -> None:
    """
    Its size is that of when it was opened; how its transactions ended, the log says later.

    So it is the beginning of an answer as of some moment, with all that was decided before.
    """
    for seed in seeds(120):
        log = _GrowingLog(tmp_path / str(seed), seed)
        path, first = log.path, len(log.moments) - 1
        with growing(log.grow):
            found = OF_A_FILE[name](path)
        followers = [int(one.stem) for one in log.folder.glob("*.log") if one.name > path.name]
        offsets = range(int(path.stem), min(followers, default=2**63))
        moments = [[one for one in seen if one in offsets] for seen in log.moments]
        assert found in [seen[: len(found)] for seen in moments], f"seed={seed}"
        assert len(found) >= len(moments[first]), f"seed={seed}"


class _GrowingLog(TransactionalLog):
    """A random log that grows by some batches."""

    def __init__(self, data_dir: Path, seed: int) -> None:
        super().__init__(data_dir)
        self._choice = random.Random(seed)
        self.write(self._steps(self._choice.randrange(20)))

    def grow(self) -> None:
        """Write the next steps."""
        self.write(self._steps(self._choice.randrange(4)))

    def _steps(self, count: int) -> list[Step]:
        kinds = ["plain", "data", "commit", "abort", "roll"]
        found = self._choice.choices(kinds, [3, 4, 3, 3, 1], k=count)
        return [(kind, self._choice.randrange(1, 4)) for kind in found]


# ---- a log of a broker -----------------------------------------------------------------------


@pytest.mark.parametrize("name", READERS)
def test_a_transaction_that_begins_while_a_log_is_read(tmp_path: Path, name: str) -> None:
    """At any access, records are appended of a transaction that no marker ends: 37 and 38."""
    expected = READERS[name].of([0, 1, 2, 3, 4, 10, 12, 13, 14, 15, 16, 22, 33, 34])
    for access in itertools.count():
        folder = tmp_path / str(access) / "transactions-0"
        shutil.copytree(GOLDEN / "kafka-4.4.0" / "data" / folder.name, folder)
        path = folder / "00000000000000000005.log"
        whole, batches = path.read_bytes(), ks.scan_batches(path).batches
        path.write_bytes(whole[: int(batches[batches["base_offset"] == 37]["position"][0])])
        accesses = itertools.count()

        def grow(path: Path = path, whole: bytes = whole, access: int = access) -> None:
            if next(accesses) == access:  # noqa: B023 - called in this turn of the loop
                path.write_bytes(whole)

        with growing(grow):
            assert READERS[name].read(folder) == expected, f"appended at access {access}"
        if next(accesses) <= access:
            assert access > 1
            return
