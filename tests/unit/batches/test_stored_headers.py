"""Scans of an object: only headers where batches are large, and the rows of any other scan."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import kafkascan as ks
from kafkascan.format.layout import OFFSET_INDEX_ENTRY
from kafkascan.io.stores.prefetching_reader import PrefetchingReader
from tests.spark.logs import plain_batch
from tests.support.recorded_objects import RecordedObject, UsualCost

MIB = 1 << 20
SIZES = {"1 MB": 1_000_000, "100 KB": 100_000, "16 KB": 16_000}


def log_of(*parts: tuple[int, int]) -> bytes:
    """A log whose batches have these sizes, so many bytes of each."""
    sizes = [size for size, total in parts for _ in range(total // size)]
    return b"".join(plain_batch(offset, 1, size - 70) for offset, size in enumerate(sizes))


LOGS = {name: log_of((size, 24 * MIB)) for name, size in SIZES.items()}
MIXED = log_of((16_000, 6 * MIB), (700_000, 8 * MIB), (90_000, 6 * MIB))


def index_of(log: bytes) -> bytes:
    entries: bytes = ks.build_offset_index(ks.scan_batches(log).batches, base_offset=0).tobytes()
    return entries


def reader_of(
    log: bytes, index: bytes | None, together: int = 1
) -> tuple[RecordedObject, PrefetchingReader]:
    stored = RecordedObject(log, together)
    return stored, PrefetchingReader(stored, lambda: index, UsualCost())


@pytest.mark.parametrize(("size", "share"), [("1 MB", 0.02), ("100 KB", 0.1), ("16 KB", 1.001)])
def test_the_share_of_bytes_that_a_scan_requests(size: str, share: float) -> None:
    log = LOGS[size]
    stored, reader = reader_of(log, index_of(log))
    assert ks.scan_batches(reader).batches.tobytes() == ks.scan_batches(log).batches.tobytes()
    assert stored.requested_bytes <= share * len(log)


def test_headers_are_requested_ahead_of_a_walk() -> None:
    log = LOGS["100 KB"]
    stored, reader = reader_of(log, index_of(log), together=50)
    ks.scan_batches(reader)
    assert stored.most_in_flight >= 50


def test_a_part_of_a_log() -> None:
    log = LOGS["100 KB"]
    expected = ks.scan_batches(log).batches
    stored, reader = reader_of(log, index_of(log))
    first, stop = expected["position"][100], expected["position"][110]
    found = ks.scan_batches(reader, start=int(first), stop=int(stop)).batches
    assert found.tobytes() == expected[100:110].tobytes()
    assert all(position >= first for position, _ in stored.ranges)
    assert stored.requested_bytes < 0.05 * len(log)


def shifted(log: bytes) -> bytes:
    entries = np.frombuffer(index_of(log), OFFSET_INDEX_ENTRY).copy()
    entries["position"] += 7
    return entries.tobytes()


WRONG_INDEXES: dict[str, Callable[[bytes], bytes | None]] = {
    "missing": lambda log: None,
    "empty": lambda log: b"",
    "zeros": lambda log: bytes(8_000),
    "of another log": lambda log: index_of(LOGS["16 KB"]),
    "of the log before it was compacted": lambda log: index_of(log)[: len(index_of(log)) // 3],
    "beside every batch": shifted,
    "sparse": lambda log: np.frombuffer(index_of(log), OFFSET_INDEX_ENTRY)[::40].tobytes(),
    "descending": lambda log: np.frombuffer(index_of(log), OFFSET_INDEX_ENTRY)[::-1].tobytes(),
    "beyond the end": lambda log: np.full(500, -1, np.int64).tobytes(),
    "half an entry": lambda log: index_of(log)[:-3],
    "noise": lambda log: np.random.default_rng(3).bytes(4_000),
}


@pytest.mark.parametrize("index", WRONG_INDEXES)
@pytest.mark.parametrize("log", [*LOGS.values(), MIXED], ids=[*LOGS, "mixed"])
def test_an_index_is_a_hint_only(log: bytes, index: str) -> None:
    stored, reader = reader_of(log, WRONG_INDEXES[index](log))
    expected = ks.scan_batches(log, on_corrupt="stop")
    found = ks.scan_batches(reader, on_corrupt="stop")
    assert found.batches.tobytes() == expected.batches.tobytes()
    assert (found.end, found.valid_bytes) == (expected.end, expected.valid_bytes)
    assert stored.requested_bytes <= 1.5 * len(log)


@settings(max_examples=40, deadline=None)
@given(
    hints=st.lists(st.integers(0, len(MIXED) + 1_000), max_size=60),
    damage=st.none() | st.integers(0, len(MIXED) - 1),
    cut=st.integers(len(MIXED) - 2 * MIB, len(MIXED)),
)
def test_any_hints_and_any_damage(hints: list[int], damage: int | None, cut: int) -> None:
    log = bytearray(MIXED[:cut])
    if damage is not None and damage < cut:
        log[damage] ^= 0xFF
    entries = np.zeros(len(hints), OFFSET_INDEX_ENTRY)
    entries["position"] = sorted(hints)
    _, reader = reader_of(bytes(log), entries.tobytes())
    expected = ks.scan_batches(bytes(log), on_corrupt="stop")
    found = ks.scan_batches(reader, on_corrupt="stop")
    assert found.batches.tobytes() == expected.batches.tobytes()
    assert (found.end, found.trailing_bytes) == (expected.end, expected.trailing_bytes)


def read_records(reader: PrefetchingReader) -> int:
    return len(ks.read_records(reader))


def iter_records(reader: PrefetchingReader) -> int:
    return sum(map(len, ks.iter_records(reader)))


@pytest.mark.parametrize("read", [read_records, iter_records])
@pytest.mark.parametrize("log", [*LOGS.values(), MIXED], ids=[*LOGS, "mixed"])
def test_records_request_each_byte_once(
    log: bytes, read: Callable[[PrefetchingReader], int]
) -> None:
    stored, reader = reader_of(log, index_of(log), together=2)
    assert read(reader) == len(ks.read_records(log))
    assert stored.is_each_byte_requested_once()
    assert stored.most_in_flight >= 2


def test_records_of_an_object_are_those_of_its_bytes() -> None:
    _, reader = reader_of(MIXED, None)
    found, expected = ks.read_records(reader), ks.read_records(MIXED)
    assert found.to_arrow() == expected.to_arrow()
    assert found.batches.tobytes() == expected.batches.tobytes()


def test_the_first_records_of_an_object() -> None:
    stored, reader = reader_of(LOGS["16 KB"], None)
    next(iter(ks.iter_records(reader)))
    assert stored.requested_bytes <= 3 * MIB


def test_an_object_without_batches() -> None:
    _, reader = reader_of(b"", None)
    assert len(ks.read_records(reader)) == 0
    assert len(ks.scan_batches(reader)) == 0


@pytest.mark.parametrize("size", SIZES)
def test_checksums_request_each_byte_once(size: str) -> None:
    log = LOGS[size]
    stored, reader = reader_of(log, None, together=2)
    assert ks.verify_crcs(reader, ks.scan_batches(log).batches).all()
    assert stored.requested_bytes <= 1.001 * len(log)
    assert stored.most_in_flight >= 2


def test_large_batches_are_verified_and_decoded_from_the_same_bytes() -> None:
    log = plain_batch(0, 1, 30 * MIB) + plain_batch(1, 1, 10) + plain_batch(2, 1, 20 * MIB)
    stored, reader = reader_of(log, None)
    sizes = [len(one) for one in ks.read_records(reader).items("value")]
    assert sizes == [30 * MIB, 10, 20 * MIB]
    assert stored.is_each_byte_requested_once()
