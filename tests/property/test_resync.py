"""Damage of any kind: what was not touched is kept, and any bytes have an answer."""

from __future__ import annotations

import random
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kafkascan as ks
from kafkascan import true_batches
from kafkascan.mending import mend, mend_epochs
from kafkascan.resync import ResyncScan
from tests.support.segments import V2_FIELDS, batch_v2, message_v0, message_v1

HIGHEST = (1 << 63) - 1
FIELDS = [name for name in V2_FIELDS if name != "base_offset"]


def batches(seed: int, count: int, *, is_compacted: bool, magics: str) -> list[bytes]:
    choice = random.Random(seed)
    offset, parts = choice.choice([0, 77]), []
    for _ in range(count):
        size = choice.choice([0, 7, 67, 67, 67, 300])  # equal ones: lengths may meet by chance
        magic = choice.choice(magics)
        if magic == "2":
            records = choice.randrange(1, 5)
            parts.append(
                batch_v2(choice.randbytes(size), base_offset=offset,
                         last_offset_delta=records - 1, records_count=records)
            )  # fmt: skip
            offset += records
        else:
            message = message_v1 if magic == "1" else message_v0
            parts.append(message(b"key", choice.randbytes(size), offset=offset))
            offset += 1
        if is_compacted and choice.random() < 0.3:
            offset += choice.randrange(20)
    return parts


@st.composite
def damaged_logs(draw: st.DrawFn) -> tuple[list[bytes], bytes, set[int]]:
    """Batches, a log in which some are damaged, and which of them those are."""
    count = draw(st.integers(1, 30))
    parts = batches(
        draw(st.integers(0, 10**6)), count,
        is_compacted=draw(st.booleans()), magics=draw(st.sampled_from(["2", "2", "210", "1"])),
    )  # fmt: skip
    log, touched = [bytearray(part) for part in parts], set()
    for _ in range(draw(st.integers(0, 4))):
        row = draw(st.integers(0, count - 1))
        touched.add(row)
        _damage(draw, log[row])
    return parts, b"".join(log), touched


def _damage(draw: st.DrawFn, batch: bytearray) -> None:
    kind = draw(st.sampled_from(["bit", "field", "zeros", "noise", "tail"]))
    if kind == "bit":
        batch[draw(st.integers(8, len(batch) - 1))] ^= 1 << draw(st.integers(0, 7))
    elif kind == "field" and len(batch) >= 61:
        at, code = V2_FIELDS[draw(st.sampled_from(FIELDS))]
        size = struct.calcsize(code)
        batch[at : at + size] = draw(st.binary(min_size=size, max_size=size))
    elif kind == "zeros":
        batch[8:] = bytes(len(batch) - 8)
    elif kind == "noise":
        batch[8:] = random.Random(draw(st.integers(0, 99))).randbytes(len(batch) - 8)
    else:
        start = draw(st.integers(8, len(batch) - 1))
        batch[start:] = bytes(len(batch) - start)


@settings(max_examples=400, deadline=None)
@given(damaged_logs())
def test_what_was_not_touched_is_kept(damaged: tuple[list[bytes], bytes, set[int]]) -> None:
    parts, log, touched = damaged
    starts = np.cumsum([0, *map(len, parts)]).tolist()
    untouched = {starts[row] for row in range(len(parts)) if row not in touched}
    for verify in (False, True):
        found = ResyncScan(ks.Source(log), 0, len(log), verify=verify)
        assert untouched <= set(found.batches["position"].tolist())
        _assert_tiles(found)
        if verify:
            assert ks.verify_crcs(log, found.batches).all()


def _assert_tiles(found: ResyncScan) -> None:
    """Rows and gaps cover all, each byte once."""
    stops = found.batches["position"] + ks.size_in_bytes(found.batches)
    pieces = list(zip(found.batches["position"].tolist(), stops.tolist(), strict=True))
    pieces += [(gap.position, gap.position + gap.size) for gap in found.gaps]
    at = 0
    for start, stop in sorted(pieces):
        assert start == at < stop
        at = stop
    assert at == found.position


@settings(max_examples=300, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    count=st.integers(3, 40),
    row=st.integers(0, 39),
    change=st.tuples(st.integers(0, 16), st.integers(1, 255)),
)
def test_what_no_checksum_covers_is_mended(
    seed: int, count: int, row: int, change: tuple[int, int]
) -> None:
    """One batch among others: offset, length, leader epoch, magic."""
    parts = batches(seed, count, is_compacted=False, magics="2")
    row = 1 + row % (count - 2)
    log = [bytearray(part) for part in parts]
    log[row][change[0]] ^= change[1]
    source = ks.Source(b"".join(log))
    first = struct.unpack_from(">q", parts[0])[0]
    scan = ResyncScan(source, 0, source.size, verify=True, lowest=first)
    mended = mend(source, scan, first, HIGHEST)
    mend_epochs(mended)
    assert mended.holes == []
    assert len(mended.batches) == count
    whole = bytearray(b"".join(log))
    for position, patch in mended.patches().items():
        whole[position : position + len(patch)] = patch
    assert bytes(whole) == b"".join(parts)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.binary(max_size=120),
            st.builds(
                batch_v2,
                st.binary(max_size=40),
                base_offset=st.integers(-5, 50),
                last_offset_delta=st.integers(-1, 5),
                batch_length=st.integers(0, 400),
            ),
            st.builds(batch_v2, st.binary(max_size=40), base_offset=st.integers(0, 50)),
            st.builds(message_v1, value=st.binary(max_size=40), offset=st.integers(-5, 50)),
            st.integers(0, 300).map(bytes),
        ),
        max_size=12,
    )
)
def test_any_bytes(pieces: list[bytes]) -> None:
    """An answer, the same for bytes at hand and bytes that are read in windows."""
    log = b"".join(pieces)
    found = ResyncScan(ks.Source(log), 0, len(log))
    _assert_tiles(found)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(true_batches, "_WINDOW", 256)
        read = ResyncScan(ks.Source(_Read(log)), 0, len(log))
    if read.is_exhaustive:
        assert np.array_equal(read.batches, found.batches)
    verified = ResyncScan(ks.Source(log), 0, len(log), verify=True)
    _assert_tiles(verified)
    last = ks.last_offset(verified.batches)
    assert (verified.batches["base_offset"][1:] > last[:-1]).all()
    mend(ks.Source(log), verified, 0, HIGHEST)


class _Read:
    path = "<read>"

    def __init__(self, data: bytes) -> None:
        self._data, self.size = data, len(data)

    def read_at(self, position: int, size: int) -> bytes:
        return self._data[position : position + size]
