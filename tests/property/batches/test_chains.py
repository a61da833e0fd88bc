"""A walk in chains returns the same rows as the plain walk, on any bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import kafkascan as ks
from kafkascan._core import batches as core
from kafkascan.format.layout import OFFSET_INDEX_ENTRY
from tests.support.examples import examples, seeds
from tests.support.segments import batch_v2, message_v0, message_v1

# Small enough for chains to be placed again and again in small logs.
EAGER = {"chain_steps": 16, "first_steps": 1, "smallest_batch": 0, "largest_batch": 2**40}


def walk(log: bytes, rows: int, stop: int | None = None, **chaining: Any) -> list[Any]:
    """Return all results of a walk that is resumed with `rows` rows each time."""
    outcomes: list[Any] = []
    position, status = 0, 1
    stop = len(log) if stop is None else stop
    while status == 1:
        table = np.zeros(rows, ks.BATCH_DTYPE)
        status, count, position = core.scan_into(
            log, 0, len(log), position, stop, table, **chaining
        )
        outcomes.append((status, count, position, table[:count].tolist()))
    return outcomes


def assert_chains_are_plain(log: bytes, rows: int, stop: int | None = None) -> None:
    plain = walk(log, rows, stop)
    for steps in (16, 40, 512):
        chained = walk(log, rows, stop, in_chains=True, **(EAGER | {"chain_steps": steps}))
        assert chained == plain


def assert_known_starts_change_nothing(log: bytes, starts: list[int], rows: int) -> None:
    plain = walk(log, rows)
    known = np.unique(np.array(starts, np.int64))
    for largest_batch in (0, 2**40):  # without and with guesses besides
        chaining = EAGER | {"largest_batch": largest_batch}
        assert walk(log, rows, in_chains=True, known_starts=known, **chaining) == plain


def honest_log(rng: np.random.Generator, count: int, largest: int = 200) -> list[bytes]:
    offset, parts = 0, []
    for size in rng.integers(0, largest, count):
        records = int(rng.integers(1, 5))
        parts.append(
            batch_v2(
                rng.bytes(int(size)),
                base_offset=offset,
                last_offset_delta=records - 1,
                records_count=records,
            )
        )
        offset += records
    return parts


def fake_batches(rng: np.random.Generator, offset: int) -> bytes:
    """Return a payload that misleads a guess: valid batches that follow each other."""
    count = int(rng.integers(3, 9))
    return b"".join(
        batch_v2(rng.bytes(int(rng.integers(0, 60))), base_offset=offset + 10 + i, crc=1)
        for i in range(count)
    )


@pytest.mark.parametrize("largest", [200, 300, 2000])
def test_sizes_that_change(largest: int) -> None:
    """The size of batches decides whether a walk prefetches or chains; it is measured again."""
    rng = np.random.default_rng(largest)
    small, other = (b"".join(honest_log(rng, 6000, most)) for most in (100, largest))
    log = small + other + small
    assert walk(log, 20_000, in_chains=True) == walk(log, 20_000)


def test_batches_that_become_small_at_once() -> None:
    """A chain ends long before the next one, and the rows between them need the next one's room."""
    rng = np.random.default_rng(1)
    log = b"".join(honest_log(rng, 200, 3000) + honest_log(rng, 3000, 90))
    for rows in (10_000, 1000):
        assert_chains_are_plain(log, rows)


@pytest.mark.parametrize("seed", seeds(12))
def test_undamaged_logs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    log = b"".join(honest_log(rng, int(rng.integers(100, 3000))))
    for rows in (len(log), 1000, 100, 17):
        assert_chains_are_plain(log, rows)


@pytest.mark.parametrize("seed", seeds(30))
def test_payloads_that_hold_batches(seed: int) -> None:
    """Guesses land in payloads, chains grow there, and some join the sequential walk."""
    rng = np.random.default_rng(1000 + seed)
    parts = honest_log(rng, 600, 100)
    for index in rng.choice(600, 300, replace=False).tolist():
        tail = rng.bytes(int(rng.integers(0, 3)))
        # Without a tail, the last fake batch ends where the next batch of the log starts.
        payload = rng.bytes(int(rng.integers(0, 30))) + fake_batches(rng, index) + tail
        parts[index] = batch_v2(payload, base_offset=index * 3, crc=0)
    log = b"".join(parts)
    assert_chains_are_plain(log, len(log))
    assert_chains_are_plain(log, 50)


@pytest.mark.parametrize("seed", seeds(60))
def test_damaged_and_mixed_logs(seed: int) -> None:
    rng = np.random.default_rng(2000 + seed)
    parts = honest_log(rng, 800)
    for index in rng.choice(800, 80, replace=False).tolist():
        make = message_v1 if rng.random() < 0.5 else message_v0
        parts[index] = make(None, rng.bytes(int(rng.integers(0, 90))), offset=index)
    log = bytearray(b"".join(parts))
    for _ in range(int(rng.integers(0, 4))):
        at = int(rng.integers(len(log) // 3, len(log)))
        damage = [bytes(30), rng.bytes(20), b"\xff" * 8, fake_batches(rng, 9)]
        piece = damage[int(rng.integers(0, 4))]
        log[at : at + len(piece)] = piece
    if rng.random() < 0.3:
        log += bytes(int(rng.integers(1, 5000)))
    data = bytes(log[: int(rng.integers(len(log) // 2, len(log) + 1))])
    for rows in (len(data), 33):
        assert_chains_are_plain(data, rows)
    assert_chains_are_plain(data, len(data), stop=int(rng.integers(0, len(data) + 1)))


@pytest.mark.parametrize("seed", seeds(40))
def test_starts_from_an_index_that_may_be_wrong(seed: int) -> None:
    """Indexes of another log, stale ones, positions in payloads, random, or outside of the log."""
    rng = np.random.default_rng(3000 + seed)
    parts = honest_log(rng, 500)
    for index in rng.choice(500, 150, replace=False).tolist():
        make = message_v1 if rng.random() < 0.5 else message_v0
        fake = make(b"k", rng.bytes(5), offset=index)
        parts[index] = make(None, fake * int(rng.integers(1, 9)), offset=index)
    log = b"".join(parts)
    true = np.cumsum([0, *map(len, parts)])[:-1]
    some_payloads = (true + 26)[rng.random(len(true)) < 0.3]
    wrong_starts = [
        true[::4].tolist(),
        (true[::4] + int(rng.integers(-3, 4))).tolist(),
        np.concatenate([true[::7], some_payloads, some_payloads + 30]).tolist(),
        rng.integers(-(2**63), 2**63 - 1, 50).tolist() + true[::50].tolist(),
        rng.integers(0, 2 * len(log), 300).tolist(),
        [0] * 10,
    ]
    for starts in wrong_starts:
        assert_known_starts_change_nothing(log, starts, len(log))
        assert_known_starts_change_nothing(log, starts, 40)
    cut = log[: int(rng.integers(0, len(log)))]
    assert_known_starts_change_nothing(cut, true[::3].tolist(), 1000)


def test_legacy_chains_start_from_an_index() -> None:
    """Right starts are used: without them, messages of magic 1 have no chains."""
    parts = [message_v1(None, bytes(600), offset=i) for i in range(5000)]
    true = np.cumsum([0, *map(len, parts)])[:-1]
    assert_known_starts_change_nothing(b"".join(parts), true.tolist(), 10_000)


@pytest.mark.parametrize("is_wrong", [False, True])
def test_an_index_beside_the_file(tmp_path: Path, is_wrong: bool) -> None:
    parts = [message_v1(None, bytes(900 + i % 50), offset=i) for i in range(9000)]
    log = b"".join(parts)
    positions = np.cumsum([0, *map(len, parts)])[:-1]
    entries = np.zeros(4000, OFFSET_INDEX_ENTRY)  # the rest is preallocated
    entries["relative_offset"][:2250] = np.arange(0, 9000, 4)
    entries["position"][:2250] = positions[::4] + (positions[::4] // 100_000 if is_wrong else 0)
    (tmp_path / "00000000000000000000.log").write_bytes(log)
    (tmp_path / "00000000000000000000.index").write_bytes(entries.tobytes() + b"odd")
    scan = ks.scan_batches(tmp_path / "00000000000000000000.log")
    assert scan.batches.tolist() == ks.scan_batches(log).batches.tolist()
    assert (len(scan), scan.end) == (9000, ks.ScanEnd.CLEAN)


def test_a_log_of_nothing_but_plausible_starts() -> None:
    """Every byte is a 2, so each is a candidate of a guess."""
    huge = batch_v2(b"\x02" * 300_000, base_offset=2000)
    log = b"".join(honest_log(np.random.default_rng(5), 500)) + huge * 3
    assert_chains_are_plain(log, 10_000)


@given(st.lists(st.integers(0, 80), min_size=70, max_size=200), st.data())
@examples(150)
def test_any_log_cut_and_overwritten_anywhere(sizes: list[int], data: Any) -> None:
    parts = [batch_v2(b"\x02" * size, base_offset=i) for i, size in enumerate(sizes)]
    log = bytearray(b"".join(parts))
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, len(log)))
        piece = data.draw(st.binary(max_size=10) | st.sampled_from(parts))
        log[at : at + len(piece)] = piece
    cut = bytes(log[: data.draw(st.integers(0, len(log)))])
    assert_chains_are_plain(cut, data.draw(st.sampled_from([7, 64, 1000])))


@pytest.mark.parametrize("batch_size", [600, 3000])
def test_the_real_chaining_on_a_large_log(batch_size: int) -> None:
    rng = np.random.default_rng(9)
    log = b"".join(honest_log(rng, 12_000, batch_size))
    scan = ks.scan_batches(log)
    (outcome,) = walk(log, 20_000)
    assert scan.batches.tolist() == outcome[3]
    assert len(scan) == 12_000


def test_offsets_at_the_limits_of_their_type() -> None:
    """The computations of a guess must not overflow."""
    low, high = -(2**63), 2**63 - 1
    parts = [batch_v2(b"x" * 40, base_offset=low)] * 80
    for index, offset in ((30, high), (45, high - 5), (60, -1), (70, 0)):
        parts[index] = batch_v2(
            b"x" * 40, base_offset=offset, last_offset_delta=2**31 - 1, records_count=1
        )
    log = b"".join(parts)
    assert_chains_are_plain(log, len(log))
    assert_chains_are_plain(log * 3, 31)
