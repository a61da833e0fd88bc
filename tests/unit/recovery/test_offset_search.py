"""Offsets in a segment, searched as `FileRecords.searchForOffsetFromPosition` does."""

from __future__ import annotations

import gzip

import pytest

import kafkascan as ks
from kafkascan.io.sources import Source
from kafkascan.recovery.loading.offset_search import find_offset, is_batch_at
from tests.support.segments import batch_v2, message_v1


def batch(first: int, last: int, **fields: int) -> bytes:
    """Return a batch of 70 bytes with a range of offsets."""
    return batch_v2(bytes(9), base_offset=first, last_offset_delta=last - first, **fields)


def positions(log: bytes, *offsets: int, start: int = 0) -> list[int | None]:
    with Source(log) as source:
        return [find_offset(source, start, offset) for offset in offsets]


def test_the_batch_that_contains_an_offset_or_the_first_one_after_it() -> None:
    log = batch(10, 12) + batch(20, 24) + batch(30, 30)
    assert positions(log, 0, 10, 11, 12) == [0, 0, 0, 0]
    assert positions(log, 13, 20, 24) == [70, 70, 70]
    assert positions(log, 25, 30, 31) == [140, 140, None]
    assert positions(log, 11, 22, start=70) == [70, 70]
    assert positions(b"", 0) == [None]


def test_of_overlapping_batches_the_one_that_begins_at_the_offset() -> None:
    log = batch(10, 30) + batch(20, 24)
    assert positions(log, 15, 20, 25) == [0, 70, None]
    assert positions(2 * batch(20, 24), 20, 24) == [0, 70]


def test_offsets_around_the_end_of_a_table() -> None:
    """Batches are read in tables of 256 rows."""
    log = b"".join(batch(2 * row, 2 * row + 1) for row in range(300))
    assert positions(log, 509, 510, 511, 512, 513) == [
        254 * 70, 255 * 70, 255 * 70, 256 * 70, 256 * 70,
    ]  # fmt: skip
    assert positions(log[: 256 * 70], 511, 512) == [255 * 70, None]


def test_batches_of_an_unknown_magic_have_offsets_and_a_length() -> None:
    log = batch(10, 12) + batch(20, 24, magic=5) + batch(30, 34, magic=6)
    assert positions(log, 13, 22, 24, 25, 34, 35) == [70, 70, 70, 140, 140, None]
    smallest = batch_v2(base_offset=20, batch_length=14, magic=5)[:26]
    assert positions(smallest + batch(30, 30), 20, 30) == [0, 26]
    with pytest.raises(ks.CorruptBatchError, match="BAD_LENGTH") as refused:
        positions(batch(10, 12) + batch(20, 24, magic=5, batch_length=13), 20)
    assert refused.value.position == 70
    incomplete = batch(20, 24, magic=5)[:-1]
    assert positions(batch(10, 12) + incomplete, 12, 20) == [0, None]


@pytest.mark.parametrize("size", [1, 17])
def test_a_tail_without_a_magic_byte_is_no_batch(size: int) -> None:
    assert positions(batch(10, 12) + bytes(size), 12, 13) == [0, None]


def test_a_longer_tail_of_zeros_is_a_batch_with_a_wrong_length() -> None:
    with pytest.raises(ks.CorruptBatchError, match="BAD_LENGTH") as refused:
        positions(batch(10, 12) + bytes(18), 13)
    assert refused.value.position == 70


def test_compressed_messages_begin_with_their_first_record() -> None:
    """They store the offset of the last one. Kafka decompresses each of them on its way."""
    inner = gzip.compress(b"".join(message_v1(offset=number) for number in range(3)))
    one, other = (message_v1(value=inner, offset=last, attributes=1) for last in (12, 22))
    log = one + other
    assert positions(log, 9, 10, 12, 13, 20, 21) == [0, 0, 0] + [len(one)] * 3
    assert positions(log, 23) == [None]
    assert positions(batch(10, 21) + other, 20, 21) == [70, 70]
    damaged = message_v1(value=inner[:-9], offset=12, attributes=1)
    with pytest.raises(ks.InvalidRecordError):
        positions(damaged + other, 20)


def test_the_positions_of_batches_up_to_damage() -> None:
    log = batch(10, 12) + batch(20, 24, magic=5) + batch(30, 30)
    with Source(log) as source:
        assert [at for at in range(len(log) + 2) if is_batch_at(source, at)] == [0, 70, 140]
    damaged = batch(10, 12) + batch(20, 24, magic=5, batch_length=13) + batch(30, 30)
    with Source(damaged) as source:
        assert [at for at in range(len(log) + 2) if is_batch_at(source, at)] == [0, 70]
