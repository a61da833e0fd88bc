"""The recovery of a log does not depend on the tables in which its batches are read."""

from __future__ import annotations

import random
import struct
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

import kafkascan as ks
from kafkascan.recovery.loading import segment_recovery
from tests.property.recovery.test_recovery import partition
from tests.support.examples import examples
from tests.support.files import contents


def _recovered(seed: int, rows: int, changes: int) -> tuple[object, ...]:
    """Recover a log, and return its files, and what is said of it."""
    dice = random.Random(seed)
    with tempfile.TemporaryDirectory() as parent, pytest.MonkeyPatch.context() as patch:
        folder = Path(parent, "topic-0")
        folder.mkdir()
        partition(folder, seed, segments=2)
        for _ in range(changes):
            log = dice.choice(sorted(folder.glob("*.log")))
            log.write_bytes(_changed(log.read_bytes(), dice))
        patch.setattr(segment_recovery, "_ROWS_AT_ONCE", rows)
        (done,) = ks.recover(folder, write=True, recovery_point=0, interval_bytes=200).partitions
        said = [(one.symbol, one.message, one.row, one.position) for one in done.findings]
        error = str(done.error).replace(parent, "")
        return contents(folder), done.segments, done.leader_epochs, said, error


def _changed(data: bytes, dice: random.Random) -> bytes:
    """Flip a bit, set a base offset, which no checksum covers, or repeat or drop batches."""
    batches = ks.scan_batches(data, on_corrupt="stop").batches
    kind, changed = dice.randrange(4), bytearray(data)
    if not len(batches):
        return data
    starts = batches["position"].tolist()
    start, stop = sorted(dice.choices([*starts, len(data)], k=2))
    if kind == 0:
        changed[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
    elif kind == 1:
        near = int(batches["base_offset"][0]) + dice.randrange(60)
        offset = dice.choice([near, near, 0, 2**31 + 5, -1])
        struct.pack_into(">q", changed, dice.choice(starts), offset)
    elif kind == 2:
        changed[start:start] = data[start:stop]
    else:
        del changed[start:stop]
    return bytes(changed)


@examples(150)
@given(st.integers(0, 2**32), st.sampled_from([1, 2, 3]), st.integers(0, 3))
def test_tables_of_any_size_give_the_same_files(seed: int, rows: int, changes: int) -> None:
    assert _recovered(seed, rows, changes) == _recovered(seed, 1 << 16, changes)
