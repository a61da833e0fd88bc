"""Kafka's classes behave in the recovery oracle as in a broker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import kafkascan as ks
from tests.oracle.build import ClassPaths
from tests.oracle.damaged_dirs import damaged_dir, damaged_dirs, golden_directories
from tests.oracle.rebuild import Files, LoadArguments, Rebuild, read_files

pytestmark = pytest.mark.oracle

_BY_NAME = {
    f"{path.parent.parent.name}/{path.name}": path
    for path in golden_directories()
    if not path.name.startswith("__cluster")  # KRaft's own: without indexes on disk
}
_STOPPED = [name for name in _BY_NAME if "killed" not in name]
_INTERVALS = {"kafka-4.4.0/small-segments-0": 200}
_WRITTEN_OTHERWISE = {
    # Each stop of the broker appended an entry to the time index.
    "kafka-3.9.1/leader-epochs-0",
    "kafka-4.1.1/leader-epochs-0",
    "kafka-4.4.0/leader-epochs-0",
    # Kafka 2.8 stored the last offset of the request, which contains several messages.
    "kafka-2.8.2/magic-small-segments-0",
}


@pytest.fixture(scope="module")
def rebuild(class_paths: ClassPaths, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rebuild]:
    with Rebuild(class_paths.broker, tmp_path_factory.mktemp("rebuild")) as running:
        yield running


def _of_kind(files: Files, *suffixes: str) -> Files:
    return {name: data for name, data in files.items() if name.endswith(suffixes)}


@pytest.mark.parametrize("name", sorted(set(_STOPPED) - _WRITTEN_OTHERWISE))
def test_an_intact_log_gets_the_indexes_that_the_broker_wrote(name: str, rebuild: Rebuild) -> None:
    before = read_files(_BY_NAME[name])
    after = rebuild.expected_after_load(
        _BY_NAME[name], interval_bytes=_INTERVALS.get(name, 4096), recovery_point=0
    )
    kinds = (".log", ".index", ".timeindex", ".txnindex")
    assert _of_kind(after, *kinds) == _of_kind(before, *kinds)


@pytest.mark.parametrize("name", ["kafka-4.4.0/transactions-0", "kafka-4.4.0/idempotent-0"])
def test_producers_are_rebuilt_without_their_snapshots(
    name: str, rebuild: Rebuild, tmp_path: Path
) -> None:
    directory = rebuild.copy_of(_BY_NAME[name])
    snapshots = _of_kind(read_files(directory), ".snapshot")
    assert snapshots
    for snapshot in snapshots:
        (directory / snapshot).unlink()
    # At the time of the records, so that no producer has expired.
    now = 1_714_000_000_000
    assert _of_kind(rebuild.expected_after_load(directory, now=now), ".snapshot") == snapshots


def test_what_is_torn_is_cut(rebuild: Rebuild) -> None:
    directory = rebuild.copy_of(_BY_NAME["kafka-4.4.0/codecs-java-0"])
    log = directory / f"{0:020}.log"
    sound = log.read_bytes()
    batches = ks.scan_batches(sound).batches
    log.write_bytes(sound[:-1])
    last = int(batches["position"][-1])
    outcome = rebuild.outcome_of_load(directory)
    assert outcome.files[log.name] == sound[:last]
    assert outcome.answer["logEndOffset"] == int(batches["base_offset"][-1])
    answer = rebuild.segment(directory, 0)
    assert answer["truncatedBytes"] == len(sound) - 1 - last
    assert log.read_bytes() == sound[:last]


def test_nothing_is_checked_after_a_clean_shutdown(rebuild: Rebuild) -> None:
    directory = rebuild.copy_of(_BY_NAME["kafka-4.4.0/idempotent-0"])
    index = directory / f"{0:020}.index"
    index.write_bytes(bytes(8))
    lies = rebuild.outcome_of_load(directory, LoadArguments(clean_shutdown=True))
    assert lies.files[index.name] == bytes(8)
    assert rebuild.expected_after_load(directory)[index.name] != bytes(8)


def test_indexes_are_preallocated_between_loading_and_closing(rebuild: Rebuild) -> None:
    outcome = rebuild.outcome_of_load(_BY_NAME["kafka-4.4.0-killed/being-written-0"])
    assert outcome.loaded is not None
    for suffix, size in ((".index", 4096), (".timeindex", 4092)):
        (name,) = _of_kind(outcome.files, suffix)
        entries = outcome.files[name]
        assert 0 < len(entries) < size
        assert outcome.loaded[name] == entries.ljust(size, b"\0")


def test_a_segment_by_itself_is_rebuilt_as_when_the_log_is_loaded(rebuild: Rebuild) -> None:
    directory = _BY_NAME["kafka-4.4.0/transactions-0"]
    loaded = rebuild.expected_after_load(directory)
    for base in (0, 5):
        alone = rebuild.expected_after_segment(directory, base)
        names = [f"{base:020}{suffix}" for suffix in (".index", ".timeindex", ".txnindex")]
        assert [alone.get(name) for name in names] == [loaded.get(name) for name in names]


def test_every_offset_is_found_in_its_batch(rebuild: Rebuild) -> None:
    directory = _BY_NAME["kafka-4.4.0/codecs-librdkafka-0"]
    batches = ks.scan_batches(directory / f"{0:020}.log").batches
    end = int(ks.batches.last_offset(batches)[-1]) + 1
    answers = rebuild.lookup(directory, offsets=range(end + 1))["offsets"]
    rows = np.searchsorted(ks.batches.last_offset(batches), np.arange(end))
    expected = zip(
        batches["base_offset"][rows].tolist(),
        batches["position"][rows].tolist(),
        ks.batches.size_in_bytes(batches)[rows].tolist(),
        strict=True,
    )
    assert [tuple(one["translated"]) for one in answers[:end]] == list(expected)
    assert answers[end]["translated"] is None


def test_measuring_leaves_the_directory_as_it_is(rebuild: Rebuild) -> None:
    directory = rebuild.copy_of(_BY_NAME["kafka-4.4.0/small-segments-0"])
    before = read_files(directory)
    segment = rebuild.segment(directory, 24, repeat=3)
    load = rebuild.load(directory, repeat=3)
    assert segment["medianMs"] > 0 < load["medianMs"]
    assert read_files(directory) == before


def test_the_same_seed_gives_the_same_directories(rebuild: Rebuild, tmp_path: Path) -> None:
    for number in range(25):
        one = damaged_dir(tmp_path / f"one-{number}", rebuild, seed=f"7/{number}")
        other = damaged_dir(tmp_path / f"other-{number}", rebuild, seed=f"7/{number}")
        assert (one.arguments, one.what) == (other.arguments, other.what)
        assert read_files(one.directory) == read_files(other.directory)


def test_the_damaged_directories_are_worth_something(rebuild: Rebuild, tmp_path: Path) -> None:
    """Most directories are loaded, many are truncated, and Kafka refuses a few."""
    outcomes: Counter[str] = Counter()
    for one in damaged_dirs(tmp_path, rebuild, 200, seed=1):
        before = read_files(one.directory)
        outcome = rebuild.outcome_of_load(one.directory, one.arguments)
        logs = _of_kind(outcome.files, ".log")
        outcomes["refused"] += outcome.is_refused
        outcomes["recovered"] += bool(outcome.recovered)
        outcomes["logs changed"] += logs != _of_kind(before, ".log")
        outcomes["transactions"] += any(_of_kind(outcome.files, ".txnindex").values())
        outcomes["snapshots"] += any(
            len(one) > 10 for one in _of_kind(outcome.files, ".snapshot").values()
        )
    assert outcomes["refused"] < 40, outcomes
    assert min(outcomes[name] for name in ("recovered", "logs changed", "snapshots")) > 20, outcomes
    assert outcomes["transactions"] > 10, outcomes
