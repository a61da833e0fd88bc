"""Resync after arbitrary damage: untouched batches are kept, and any bytes can be scanned."""

from __future__ import annotations

import random
import struct

import numpy as np
import pytest
from hypothesis import example, given, strategies as st

import kafkascan as ks
from kafkascan.batches.resyncing import batch_search
from kafkascan.batches.resyncing.resync import ResyncScan, scan_with_resync
from kafkascan.recovery.salvaging.epoch_repair import repair_epochs
from kafkascan.recovery.salvaging.header_repair import RepairedLog, repair_headers
from tests.support.examples import examples
from tests.support.segments import V2_FIELDS, batch_v2, message_v0, message_v1

HIGHEST = (1 << 63) - 1
FIELDS = [name for name in V2_FIELDS if name != "base_offset"]


def batches(seed: int, count: int, *, is_compacted: bool, magics: str) -> list[bytes]:
    choice = random.Random(seed)
    offset, parts = choice.choice([0, 77]), []
    for _ in range(count):
        size = choice.choice(
            [0, 7, 67, 67, 67, 300]
        )  # equal sizes, so that a wrong length may meet a batch start
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
    """Batches, a log in which some of them are damaged, and the rows of the damaged ones."""
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


@examples(400)
@given(damaged_logs())
def test_untouched_batches_are_kept(damaged: tuple[list[bytes], bytes, set[int]]) -> None:
    parts, log, touched = damaged
    starts = np.cumsum([0, *map(len, parts)]).tolist()
    untouched = {starts[row] for row in range(len(parts)) if row not in touched}
    for verify in (False, True):
        found = scan_with_resync(ks.Source(log), 0, len(log), verify=verify)
        _assert_same(found, scan_with_resync(ks.Source(_Read(log)), 0, len(log), verify=verify))
        assert untouched <= set(found.batches["position"].tolist())
        _assert_tiles(found)
        if verify:
            assert ks.verify_crcs(log, found.batches).all()


def _assert_same(found: ResyncScan, read: ResyncScan) -> None:
    """The compiled loop, which skips damage in memory, decides as the rest of the scan does."""
    assert np.array_equal(read.batches, found.batches)
    assert np.array_equal(read.damaged.rows, found.damaged.rows)
    assert (read.position, read.end) == (found.position, found.end)


def _assert_tiles(found: ResyncScan) -> None:
    """Rows and gaps cover each byte once."""
    stops = found.batches["position"] + ks.batches.size_in_bytes(found.batches)
    ranges = list(zip(found.batches["position"].tolist(), stops.tolist(), strict=True))
    ranges += [(gap.position, gap.position + gap.size) for gap in found.gaps]
    at = 0
    for start, stop in sorted(ranges):
        assert start == at < stop
        at = stop
    assert at == found.position


@examples(300)
@given(
    seed=st.integers(0, 10**6),
    count=st.integers(4, 40),
    row=st.integers(0, 39),
    change=st.one_of(
        st.tuples(st.integers(0, 7), st.integers(0, 7).map(lambda bit: 1 << bit)),
        st.tuples(st.sampled_from([8, 9, 10, 11, 12, 13, 14, 16]), st.integers(1, 255)),
        st.tuples(st.just(15), st.integers(128, 255)),  # not the epoch of a later leader
    ),
)
@example(seed=506, count=4, row=0, change=(7, 2))  # two batches become identical
def test_fields_that_no_checksum_covers_are_repaired(
    seed: int, count: int, row: int, change: tuple[int, int]
) -> None:
    """One bit of the offset, or one byte of the length, leader epoch or magic of one batch."""
    parts = batches(seed, count, is_compacted=False, magics="2")
    _require_repaired(parts, 1 + row % (count - 3), *change)


@examples(300)
@given(
    counts=st.lists(st.integers(1, 3), min_size=4, max_size=20),
    first=st.sampled_from([0, 77, 1000]),
    row=st.integers(0, 19),
    bit=st.integers(0, 5),
)
def test_offsets_of_equal_batches_are_repaired(
    counts: list[int], first: int, row: int, bit: int
) -> None:
    """The damaged batch may become a copy of another one; both are not certain then."""
    starts = [first + sum(counts[:number]) for number in range(len(counts))]
    parts = [
        batch_v2(b"same", base_offset=start, last_offset_delta=count - 1, records_count=count)
        for start, count in zip(starts, counts, strict=True)
    ]
    row = 1 + row % (len(parts) - 3)
    repaired = _require_repaired(parts, row, 7, 1 << bit)
    if starts[row] ^ 1 << bit in starts:
        assert not all(one.is_certain for one in repaired.repairs)


def _require_repaired(parts: list[bytes], row: int, at: int, flipped: int) -> RepairedLog:
    """Damage a byte of a batch that two batches follow: of a pair, either may be damaged."""
    log = [bytearray(part) for part in parts]
    log[row][at] ^= flipped
    source = ks.Source(b"".join(log))
    first = struct.unpack_from(">q", parts[0])[0]
    scan = scan_with_resync(source, 0, source.size, verify=True, lowest=first)
    repaired = repair_epochs(repair_headers(source, scan, first, HIGHEST))
    assert not len(repaired.damaged)
    assert len(repaired.batches) == len(parts)
    whole = bytearray(b"".join(log))
    for position, patch in repaired.patches().items():
        whole[position : position + len(patch)] = patch
    assert bytes(whole) == b"".join(parts)
    return repaired


@examples(300)
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
def test_any_bytes(parts: list[bytes]) -> None:
    """The result is the same for bytes in memory and bytes that are read in windows."""
    log = b"".join(parts)
    found = scan_with_resync(ks.Source(log), 0, len(log))
    _assert_tiles(found)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch_search, "_WINDOW", 256)
        read = scan_with_resync(ks.Source(_Read(log)), 0, len(log))
    if read.is_exhaustive:
        assert np.array_equal(read.batches, found.batches)
    verified = scan_with_resync(ks.Source(log), 0, len(log), verify=True)
    _assert_tiles(verified)
    last = ks.batches.last_offset(verified.batches)
    assert (verified.batches["base_offset"][1:] > last[:-1]).all()
    repair_headers(ks.Source(log), verified, 0, HIGHEST)


class _Read:
    path = "<read>"

    def __init__(self, data: bytes) -> None:
        self._data, self.size = data, len(data)

    def read_at(self, position: int, size: int) -> bytes:
        return self._data[position : position + size]
