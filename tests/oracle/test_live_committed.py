"""
What read_committed returns of a log while transactions are written to it.

A read is wrong if it has a record of an aborted transaction, or of one that was not decided when
the read ended, or if it lacks a record before one that it has.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import kafkascan as ks
from tests.oracle.brokers import KafkaBroker
from tests.oracle.build import ClassPaths
from tests.oracle.clients import JavaClients
from tests.oracle.live_transactions import TransactionWriters, consumed_offsets
from tests.oracle.stage import Stage
from tests.spark.logs import record_batches
from tests.spark.test_stream import Follower
from tests.support.command_line import run
from tests.support.examples import seeds

pytestmark = pytest.mark.oracle

COMMITTED = "read_committed"
PRODUCERS = 3
# Each round has a new topic, as reads of a long log take long.
READS, ROUNDS = len(seeds(2000)), len(seeds(5, least=2))
# Of slow consumers, and between the reads of followers, in seconds.
_PAUSE = 0.005


@pytest.fixture(scope="module")
def stage(class_paths: ClassPaths, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    directory = tmp_path_factory.mktemp("committed")
    with KafkaBroker(directory, class_paths) as broker:
        log_file = directory / "clients.log"
        with JavaClients(class_paths.broker, broker.bootstrap_servers, log_file) as java:
            yield Stage(broker, java)


# ---- readers: each call returns the offsets of a read of the folder --------------------------


def _read(path: Path) -> list[int]:
    offsets: list[int] = ks.read_records(path, columns=["offset"], isolation=COMMITTED)[
        "offset"
    ].tolist()
    return offsets


def _read_last_segment(folder: Path) -> list[int]:
    return _read(max(folder.glob("*.log")))


def _iterated_slowly(folder: Path) -> list[int]:
    tables = ks.iter_records(folder, columns=["offset"], isolation=COMMITTED)
    time.sleep(_PAUSE)
    return [offset for table in tables for offset in table["offset"].tolist()]


def _scanned(folder: Path) -> list[int]:
    frame = ks.polars.scan_records(folder, columns=["offset"], isolation=COMMITTED).collect()
    offsets: list[int] = frame["offset"].to_list()
    return offsets


def _on_spark(folder: Path) -> list[int]:
    batches = record_batches(path=str(folder), isolationLevel=COMMITTED)
    return [offset for batch in batches for offset in batch["offset"].to_pylist()]


def _stream_on_spark(folder: Path) -> Callable[[], list[int]]:
    """Return a reader of the micro-batches of a query so far."""
    stream, found = Follower(folder, isolationLevel=COMMITTED), list[int]()

    def read() -> list[int]:
        time.sleep(_PAUSE)
        found.extend(offset for _, _, offset in stream.read())
        return list(found)

    return read


def _printed(folder: Path, *command: object) -> list[int]:
    done = run(*command, folder, "--isolation", COMMITTED, "--format", "csv")
    # The moment may be within an append of the broker: part of a batch is there.
    is_appending = done.returncode == 1 and done.stderr.strip().endswith("[TORN_TAIL]")
    assert done.returncode == 0 or is_appending, done.stderr
    return [int(line) for line in done.stdout.splitlines()[1:]]


def _follow(folder: Path) -> Callable[[], list[int]]:
    """Return a reader whose reads go on where the one before it ended."""
    follower, found = ks.logs.LogFollower(folder, isolation=COMMITTED), list[int]()

    def poll() -> list[int]:
        time.sleep(_PAUSE)
        for one in follower.poll():
            found.extend(ks.read_records(one.source, one.batches)["offset"].tolist())
        return list(found)

    return poll


@dataclass(frozen=True)
class Reader:
    """
    An entry point.

    Attributes
    ----------
    begin : callable
        Takes the folder of a partition; returns what reads it.
    reads : int
        How many reads there are.
    is_whole : bool
        Whether a read begins with the first record.
    """

    begin: Callable[[Path], Callable[[], list[int]]]
    reads: int = READS
    is_whole: bool = True


def _each(
    read: Callable[..., list[int]], *arguments: object
) -> Callable[[Path], Callable[[], list[int]]]:
    return lambda folder: partial(read, folder, *arguments)


_COMMAND = ("records", "--columns", "offset")
READERS = {
    "read_records": Reader(_each(_read)),
    "read_records-of-a-segment": Reader(_each(_read_last_segment), is_whole=False),
    "iter_records": Reader(_each(_iterated_slowly)),
    "scan_records": Reader(_each(_scanned)),
    "records": Reader(_each(_printed, *_COMMAND)),
    "records-tail": Reader(_each(_printed, *_COMMAND, "--tail", 20), is_whole=False),
    # It reads by scan_records, and a command that starts DuckDB takes long.
    "sql": Reader(_each(_printed, "sql", 'SELECT "offset" FROM records ORDER BY 1'), READS // 4),
    "spark": Reader(_each(_on_spark)),
    "spark-stream": Reader(_stream_on_spark),
    "follower": Reader(_follow),
}


@pytest.mark.parametrize("name", READERS)
def test_only_decided_records_are_returned(stage: Stage, name: str) -> None:
    for number in range(ROUNDS):
        _read_while_it_grows(stage, f"decided-{name}-{number}", READERS[name])


def _read_while_it_grows(stage: Stage, topic: str, reader: Reader) -> None:
    """Compare a round of reads with what a consumer gets at the end."""
    servers, folder = stage.broker.bootstrap_servers, stage.broker.data_dir / f"{topic}-0"
    stage.create_topic(topic, segment_ms="1000")
    with TransactionWriters(servers, topic, PRODUCERS) as writers:
        while not writers.decided_at:
            time.sleep(_PAUSE)
        read = reader.begin(folder)
        count = reader.reads // ROUNDS
        found = [(np.array(read(), np.int64), time.monotonic()) for _ in range(count)]
    committed = consumed_offsets(servers, topic)
    assert committed == sorted(writers.decided_at)
    last = read()
    assert last == committed[-len(last) :]
    assert len(last) == len(committed) or not reader.is_whole
    truth = _Truth(np.array(committed), [writers.decided_at[offset] for offset in committed])
    wrong = [offsets for offsets, ended in found if not truth.has(offsets, ended, reader.is_whole)]
    assert not wrong, f"{len(wrong)} of {len(found)} reads, such as {wrong[0][-20:]}"


class _Truth:
    """
    The records that a consumer gets at the end.

    Parameters
    ----------
    offsets : ndarray of int64
    decided_at : list of float
        When their producer began to commit them, or a later time.
    """

    def __init__(self, offsets: NDArray[np.int64], decided_at: list[float]) -> None:
        self._offsets = offsets
        self._decided_at = np.maximum.accumulate(decided_at)

    def has(self, found: NDArray[np.int64], ended: float, is_whole: bool) -> bool:
        """Return whether a read that ended at a time could get these offsets, up to the last."""
        if not len(found):
            return True
        stop = int(np.searchsorted(self._offsets, found[-1], "right"))
        first = 0 if is_whole else stop - len(found)
        is_decided = bool(self._decided_at[stop - 1] <= ended)
        return is_decided and np.array_equal(self._offsets[max(first, 0) : stop], found)
