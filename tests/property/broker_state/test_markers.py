"""The compiled loop and the record decoder read the same markers."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given, strategies as st

import kafkascan as ks
from kafkascan._core import markers as core
from kafkascan.broker_state.markers import MARKER, read_control_rows, read_markers
from tests.support.examples import examples
from tests.support.logs import ABORT, COMMIT, marker
from tests.support.segments import T0

LOG_APPEND_TIME = 0x08


@examples(300)
@given(
    kind=st.sampled_from([ABORT, COMMIT, 2, 200, -1]),
    coordinator_epoch=st.integers(-(2**31), 2**31 - 1),
    timestamp_delta=st.sampled_from([0, 3, -1, 63, -64, 64, 10**9]),
    attributes=st.sampled_from([0x30, 0x30 | LOG_APPEND_TIME, 0x70, 0x31]),
    flipped=st.lists(st.tuples(st.integers(57, 80), st.integers(1, 255)), max_size=2),
)
@example(0, -129, 0, 0x30, [(65, 24)])  # a damaged marker does not affect the others
def test_the_loop_and_the_decoder_agree(
    kind: int,
    coordinator_epoch: int,
    timestamp_delta: int,
    attributes: int,
    flipped: list[tuple[int, int]],
) -> None:
    batch = bytearray(
        marker(
            kind,
            coordinator_epoch=coordinator_epoch,
            timestamp_delta=timestamp_delta,
            attributes=attributes,
            max_timestamp=T0 + 5,
        )
    )
    for at, bits in flipped:
        batch[at % len(batch)] ^= bits
    log = marker(COMMIT) + bytes(batch) + marker(ABORT, base_offset=2)
    source = ks.Source(log)
    batches = ks.scan_batches(source).batches
    found = read_control_rows(source, batches)
    rows = np.flatnonzero(ks.batches.is_control(batches) & (batches["producer_id"] >= 0))
    markers, errors = read_markers(source, batches.take(rows))
    assert found.rows.tolist() == rows.tolist()
    assert found.markers.tolist() == markers.tolist()
    assert {row: str(error) for row, error in found.errors.items()} == {
        row: str(error) for row, error in errors.items()
    }


def test_usual_markers_need_no_decoder() -> None:
    log = b"".join(
        marker(kind, coordinator_epoch=number, timestamp_delta=number, base_offset=number)
        for number, kind in enumerate([ABORT, COMMIT, COMMIT])
    )
    batches = ks.scan_batches(log).batches
    rows, found = np.empty(3, np.int64), np.empty(3, MARKER)
    assert core.read_into(log, batches, rows, found) == (0, 3, 0)
    assert rows.tolist() == [0, 1, 2]
    assert found.tolist() == [(ABORT, 0, T0), (COMMIT, 1, T0 + 1), (COMMIT, 2, T0 + 2)]
