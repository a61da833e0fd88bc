"""What a broker serves of segments that overlap, by Kafka's own classes."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kafkascan as ks
from tests.oracle.build import ClassPaths
from tests.oracle.rebuild import LoadArguments, Rebuild
from tests.support.overlaps import HIDDEN_END, SHAPES, segment, write_segments

pytestmark = pytest.mark.oracle

_WHOLE_SEGMENTS, _FEW_BATCHES, _ONE_BATCH = 1 << 30, 2000, 1
_STATES = (LoadArguments(clean_shutdown=True), LoadArguments(clean_shutdown=False))

Offsets = list[tuple[int, str]]
"""Offsets of records, each with the name of its segment."""


@pytest.fixture(scope="module")
def rebuild(class_paths: ClassPaths, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rebuild]:
    with Rebuild(class_paths.broker, tmp_path_factory.mktemp("overlaps")) as running:
        yield running


def ours(folder: Path) -> Offsets:
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        records = ks.read_records(folder)
    return [(one.offset, (one.value or b"").decode()) for one in records]


def theirs(consumed: dict[str, Any]) -> Offsets:
    return [(offset, value) for offset, value in consumed["records"]]


@pytest.mark.parametrize("arguments", _STATES, ids=["clean", "recovered"])
@pytest.mark.parametrize("shape", SHAPES)
def test_records_are_those_of_a_consumer(
    shape: str, arguments: LoadArguments, rebuild: Rebuild, tmp_path: Path
) -> None:
    folder = write_segments(tmp_path / "t-0", SHAPES[shape])
    consumed = rebuild.consume(folder, _WHOLE_SEGMENTS, arguments)
    assert ours(folder) == theirs(consumed)
    # The last fetch may end after the log: the position is then out of range.
    (end,) = ks.count_records(folder).counts["end_offset"].tolist()
    assert consumed["position"] == end >= consumed["logEndOffset"]


def test_small_fetches_get_other_records(rebuild: Rebuild, tmp_path: Path) -> None:
    """Why no count of such a log is exact: each fetch begins in the last possible segment."""
    differing = set()
    for number, (name, segments) in enumerate(SHAPES.items()):
        folder = write_segments(tmp_path / str(number) / "t-0", segments)
        for size in (_FEW_BATCHES, _ONE_BATCH):
            if theirs(rebuild.consume(folder, size)) != ours(folder):
                differing.add(name)
    assert differing == set(SHAPES) - {"an identical copy"}


def test_a_segment_within_others_hides_the_end_of_one(rebuild: Rebuild, tmp_path: Path) -> None:
    """Only a fetch that begins in B before C does gets the offsets up to its end."""
    folder = write_segments(tmp_path / "t-0", HIDDEN_END)
    records, consumed = ours(folder), theirs(rebuild.consume(folder, _WHOLE_SEGMENTS))
    assert set(consumed) < set(records)
    hidden = [one for one in records if one not in consumed]
    assert hidden == [(offset, "B") for offset in range(300, 500)]


@pytest.mark.parametrize("shape", SHAPES)
def test_lookups_find_the_batch_at_which_a_fetch_begins(
    shape: str, rebuild: Rebuild, tmp_path: Path
) -> None:
    folder = write_segments(tmp_path / "t-0", SHAPES[shape])
    end = rebuild.consume(folder, _ONE_BATCH)["logEndOffset"]
    offsets = range(0, end, 5)
    answer = rebuild.lookup(folder, LoadArguments(clean_shutdown=True), offsets=offsets)
    for offset, one in zip(offsets, answer["offsets"], strict=True):
        found = ks.lookup_offset(folder, offset)
        assert found is not None
        base_offset, position, _ = one["logRead"]
        assert (int(Path(found.path).stem), found.position) == (base_offset, position)


# A broker takes the file's time of an empty segment, and ends the search there.
_WITH_TIMES = [*(shape for shape in SHAPES if shape != "an empty one"), "hidden end"]


@pytest.mark.parametrize("arguments", _STATES, ids=["clean", "recovered"])
@pytest.mark.parametrize("shape", _WITH_TIMES)
def test_lookups_of_timestamps(
    shape: str, arguments: LoadArguments, rebuild: Rebuild, tmp_path: Path
) -> None:
    """``UnifiedLog.fetchOffsetByTimestamp``: the first segment that reaches the timestamp."""
    folder = write_segments(tmp_path / "t-0", SHAPES.get(shape, HIDDEN_END))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        times = ks.read_records(folder)["timestamp"]
    timestamps = range(int(times.min()) - 1, int(times.max()) + 2, 3)
    answer = rebuild.lookup(folder, arguments, timestamps=timestamps)
    for timestamp, expected in zip(timestamps, answer["timestamps"], strict=True):
        found = ks.lookup_timestamp(folder, timestamp)
        ours = None if found is None else [found.timestamp, found.offset]
        assert ours == (None if expected is None else expected[:2]), timestamp


@pytest.mark.parametrize("shape", [*SHAPES, "hidden end"])
def test_a_salvaged_copy_is_served_alike_by_fetches_of_any_size(
    shape: str, rebuild: Rebuild, tmp_path: Path
) -> None:
    folder = write_segments(tmp_path / "t-0", SHAPES.get(shape, HIDDEN_END))
    (one,) = ks.salvage(folder, tmp_path / "copy" / "t-0").partitions
    assert one.error is None
    assert one.destination is not None
    expected = ours(folder)
    for size in (_WHOLE_SEGMENTS, _FEW_BATCHES, _ONE_BATCH):
        consumed = rebuild.consume(one.destination, size)
        # A batch that begins in an earlier segment is not split.
        assert shape == "part of a batch" or theirs(consumed) == expected
        assert [offset for offset, _ in theirs(consumed)] == [offset for offset, _ in expected]
        assert consumed["position"] == consumed["logEndOffset"]


def test_recovery_keeps_segments_that_overlap(rebuild: Rebuild, tmp_path: Path) -> None:
    """The advice of an audit: a broker loads both."""
    segments = {0: segment("A", 0, 300), 100: segment("B", 100, 300)}
    folder = write_segments(tmp_path / "t-0", segments)
    files = rebuild.expected_after_load(folder, clean_shutdown=False)
    assert {base: files[f"{base:020}.log"] for base in segments} == segments


def test_recovery_fails_if_offsets_repeat_inside_a_segment(
    rebuild: Rebuild, tmp_path: Path
) -> None:
    """The advice of an audit: here no index exists, and the broker does not load the log."""
    repeated = segment("A", 0, 3000) + segment("B", 100, 3000)
    folder = write_segments(tmp_path / "t-0", {0: repeated})
    outcome = rebuild.outcome_of_load(folder, LoadArguments(clean_shutdown=False))
    assert outcome.answer["exception"]["class"].endswith(".InvalidOffsetException")
