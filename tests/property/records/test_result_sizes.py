"""Results equal those in NumPy's memory, whatever their size, and whatever memory is used again."""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, strategies as st

import kafkascan as ks
from kafkascan.io import result_memory
from tests.support.examples import examples

# The columns of so many records cross the sizes of small and large blocks.
MOST_RECORDS = 24_000
COLUMNS = ["offset", "timestamp", "key", "value", "headers"]
LIMITS = (1 << 17, 1 << 20)
# Bytes of one record in a column, in all columns, and of a batch in a table.
ITEM_SIZES = (1, 4, 8, 56, 69)
counts = st.one_of(
    st.integers(0, MOST_RECORDS),
    st.builds(
        lambda limit, size, more: min(max(limit // size + more, 0), MOST_RECORDS),
        st.sampled_from(LIMITS),
        st.sampled_from(ITEM_SIZES),
        st.integers(-2, 2),
    ),
)


def log_of(per_batch: int) -> bytes:
    """A log with short and empty values, some nulls and headers."""
    numbers = range(MOST_RECORDS)
    columns = {
        "offset": np.arange(MOST_RECORDS),
        "timestamp": np.where(np.arange(MOST_RECORDS) % 7, np.arange(MOST_RECORDS) + 10**12, -1),
        "key": [None if number % 5 else b"%d" % number for number in numbers],
        "value": [None if number % 11 == 0 else b"v" * (number % 13) for number in numbers],
        "headers": [[("h", b"%d" % number)] if number % 17 == 0 else [] for number in numbers],
    }
    return bytes(ks.build_batches(columns, max_records=per_batch))


LOGS = {per_batch: log_of(per_batch) for per_batch in (1, 7)}
BATCHES = {per_batch: ks.scan_batches(log).batches for per_batch, log in LOGS.items()}


def in_numpys_memory(read: Callable[[], list[object]]) -> list[object]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(result_memory, "MIN_BLOCK_SIZE", sys.maxsize)
        return read()


def leave_garbage(sizes: list[int]) -> None:
    """Free blocks with content."""
    held = [result_memory.empty(size, np.uint8) for size in sizes]
    for one in held:
        one.fill(0xA5)


@given(
    st.sampled_from(sorted(LOGS)),
    counts,
    st.lists(st.integers(1 << 17, 3 << 20), max_size=3),
    st.sampled_from([1, 100, 5_000, 65_536]),
)
@examples(60)
def test_records_equal_those_in_numpys_memory(
    per_batch: int, count: int, garbage: list[int], batch_size: int
) -> None:
    log, batches = LOGS[per_batch], BATCHES[per_batch][: -(-count // per_batch)]
    if count // batch_size > 200:
        batch_size = 5_000

    def read() -> list[object]:
        whole = ks.read_records(log, batches, columns=COLUMNS)
        parts = list(ks.iter_records(log, batches, columns=COLUMNS, batch_size=batch_size))
        return [
            whole.to_arrow(),
            *(one.tolist() for one in whole.columns.values()),
            *(one.to_arrow() for one in parts),
        ]

    leave_garbage(garbage)
    assert read() == in_numpys_memory(read)


@given(st.sampled_from(sorted(LOGS)), counts, st.lists(st.integers(1 << 17, 3 << 20), max_size=3))
@examples(60)
def test_scans_equal_those_in_numpys_memory(per_batch: int, count: int, garbage: list[int]) -> None:
    rows = BATCHES[per_batch][: -(-count // per_batch)]
    stop = int(rows["position"][-1]) if len(rows) else 0

    def scan() -> list[object]:
        return [ks.scan_batches(LOGS[per_batch][:stop]).batches.tolist()]

    leave_garbage(garbage)
    assert scan() == in_numpys_memory(scan)
