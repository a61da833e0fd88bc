"""Ranges of an object: the right bytes, each once, and many requests at the same time."""

from __future__ import annotations

import multiprocessing
import os
import random
import threading

import pytest
from hypothesis import given, settings, strategies as st

from kafkascan.format.errors import SourceReadError
from kafkascan.io.stores import prefetching_reader
from kafkascan.io.stores.prefetching_reader import REQUESTS_AT_ONCE, PrefetchingReader, RequestCost
from tests.support.recorded_objects import RecordedObject, UsualCost
from tests.support.waiting import HANG_SECONDS

MIB = 1 << 20
DATA = random.Random(11).randbytes(1 << 16) * 640  # 40 MiB
SLOW_STORE = RequestCost(latency=0.5, bandwidth=1e8)


def read(reader: PrefetchingReader, start: int, stop: int, step: int) -> bytes:
    """Read a range in steps, as a source does: an answer may be shorter than asked for."""
    parts = []
    while start < stop:
        parts.append(reader.read_at(start, min(step, stop - start)))
        assert parts[-1]
        start += len(parts[-1])
    return b"".join(parts)


positions = st.integers(0, len(DATA) - 1)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("read"), positions, st.integers(1, 9 * MIB)),
        st.tuples(st.just("expect"), positions, st.just(0)),
        st.tuples(st.just("request"), positions, st.integers(1, 50_000)),
    ),
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(steps=steps)
def test_any_reads_return_the_bytes_of_the_object(steps: list[tuple[str, int, int]]) -> None:
    reader = PrefetchingReader(RecordedObject(DATA))
    for what, position, number in steps:
        if what == "expect":
            reader.expect(position)
        elif what == "request":
            reader.request(range(position, min(position + 5 * number, len(DATA)), number))
        else:
            stop = min(position + number, len(DATA))
            assert read(reader, position, stop, MIB) == DATA[position:stop]


@pytest.mark.parametrize("step", [4_096, 100_000, MIB])
def test_reads_in_order_request_each_byte_once_with_several_requests_in_flight(step: int) -> None:
    stored = RecordedObject(DATA, together=3)
    assert read(PrefetchingReader(stored, cost=UsualCost()), 0, len(DATA), step) == DATA
    assert stored.is_each_byte_requested_once()
    assert stored.most_in_flight >= 3
    assert len(stored.ranges) < 12


def test_one_record_at_the_start_of_an_object_costs_one_small_request() -> None:
    stored = RecordedObject(DATA)
    PrefetchingReader(stored).read_at(0, 100)
    assert stored.ranges == [(0, 1 << 14)]


def test_expected_bytes_are_requested_across_jumps() -> None:
    stored = RecordedObject(DATA)
    reader = PrefetchingReader(stored)
    reader.expect(len(DATA))
    for position in range(0, len(DATA), 3 * MIB):  # headers of large batches, then all of it
        reader.read_at(position, 100)
    for position in range(0, len(DATA), MIB):
        reader.read_at(position, MIB)
    assert stored.is_each_byte_requested_once()


@pytest.mark.parametrize("batch", [20_000, 1_000_000, 7_000_000])
def test_headers_then_bytes_of_one_table_after_the_other(batch: int) -> None:
    """As records are read: a walk over the headers of a table, its checksums, its records."""
    stored = RecordedObject(DATA * 4)
    reader = PrefetchingReader(stored)
    start = 0
    while start < stored.size:
        reader.expect(min(start + 16 * MIB, stored.size))
        starts = range(start, min(start + 16 * MIB, stored.size), batch)
        for position in starts:
            reader.read_at(position, 4_096)
        stop = min(starts[-1] + batch, stored.size)
        for _ in ("checksums", "records"):
            assert len(read(reader, start, stop, MIB)) == stop - start
        start = stop
    assert stored.is_each_byte_requested_once()


def test_gaps_are_requested_where_a_request_takes_longer_than_their_bytes() -> None:
    ranges = {}
    for latency in (0.0005, 0.5):
        stored = RecordedObject(DATA)
        reader = PrefetchingReader(stored, cost=RequestCost(latency=latency, bandwidth=1e8))
        for position in range(0, len(DATA), MIB):
            reader.read_at(position, 100)
        ranges[latency] = stored.requested_bytes
    assert ranges[0.0005] < 0.02 * len(DATA)
    assert ranges[0.5] == len(DATA)


def test_the_cost_of_requests_follows_their_times() -> None:
    cost = RequestCost()
    for _ in range(50):
        cost.add(4_096, 0.1)
        cost.add(8 * MIB, 0.1 + 8 * MIB / 1e7)
    assert cost.latency == pytest.approx(0.1, rel=0.01)
    assert cost.bandwidth == pytest.approx(1e7, rel=0.01)
    assert cost.bytes_of_a_request() == pytest.approx(1e6, rel=0.02)
    for _ in range(50):  # clocks that stand still, and hours of waiting, stay within bounds
        cost.add(4_096, 0.0)
        cost.add(8 * MIB, 0.0)
    assert cost.latency > 0
    assert cost.bandwidth <= 1e10


def test_headers_are_requested_together_and_read_once() -> None:
    found = range(0, len(DATA), 200_000)
    stored = RecordedObject(DATA, together=min(len(found), REQUESTS_AT_ONCE))
    reader = PrefetchingReader(stored)
    reader.request(found)
    for position in found:
        assert reader.read_at(position, 61) == DATA[position : position + 61]
    assert len(stored.ranges) == len(found)
    assert stored.most_in_flight == min(len(found), REQUESTS_AT_ONCE)


def test_memory_is_bounded() -> None:
    stored = RecordedObject(DATA * 3)
    reader = PrefetchingReader(stored)
    for position in range(0, stored.size, MIB):
        reader.read_at(position, MIB)
        assert sum(one.stop - one.start for one in reader._blocks) <= 72 * MIB
    reader.request(range(0, stored.size, 5_000))
    assert len(reader._headers) <= 4_096


def test_a_failed_request_is_an_error_where_it_is_read_and_is_made_again() -> None:
    failures = [SourceReadError("object", 8 * MIB, "the store is busy")]

    def fault(position: int, size: int) -> None:
        if position + size > 20 * MIB and failures:
            raise failures.pop()

    reader = PrefetchingReader(RecordedObject(DATA, fault=fault))
    with pytest.raises(SourceReadError, match="busy"):
        read(reader, 0, len(DATA), MIB)
    assert read(reader, 0, len(DATA), MIB) == DATA


def test_requests_are_made_where_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(prefetching_reader, "_threads", prefetching_reader.RequestThreads())
    monkeypatch.setattr(threading.Thread, "start", start)
    stored = RecordedObject(DATA)
    assert read(PrefetchingReader(stored), 0, len(DATA), MIB) == DATA
    assert stored.most_in_flight == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_child_does_not_wait_for_requests_of_its_parent() -> None:
    parent, is_answered = os.getpid(), threading.Event()

    def wait_in_parent(position: int, size: int) -> None:
        if position >= 12 * MIB and os.getpid() == parent:
            is_answered.wait()

    reader = PrefetchingReader(RecordedObject(DATA, fault=wait_in_parent))
    read(reader, 0, 12 * MIB, MIB)
    assert any(not one.data.done() for one in reader._blocks)
    child = multiprocessing.get_context("fork").Process(target=require_data, args=(reader,))
    child.start()
    child.join(HANG_SECONDS)
    is_answered.set()
    assert child.exitcode == 0


def require_data(reader: PrefetchingReader) -> None:
    assert read(reader, 0, reader.size, MIB) == DATA
