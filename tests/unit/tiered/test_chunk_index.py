"""Which stored bytes hold which bytes of a segment."""

from __future__ import annotations

import base64
import struct

import pytest
import zstandard
from hypothesis import given, strategies as st

from kafkascan.tiered.chunk_reader import (
    ChunkIndexError,
    decode_chunk_sizes,
    fixed_chunks,
    variable_chunks,
)
from tests.support.tiers import encode_sizes


def test_the_sizes_that_the_plugins_test_has() -> None:
    """``TransformedChunksSerializer``: [10, 20, 30]."""
    assert decode_chunk_sizes(base64.b64decode("KLUv/SAPeQAAAAAAAwAAAAoBAAoAAAAe")).tolist() == [
        10, 20, 30,
    ]  # fmt: skip


@given(st.lists(st.integers(0, 2**31 - 1), max_size=40))
def test_sizes_of_all_widths(sizes: list[int]) -> None:
    assert decode_chunk_sizes(encode_sizes(sizes)).tolist() == sizes


@given(st.binary(max_size=60))
def test_any_bytes_are_sizes_or_an_error(content: bytes) -> None:
    for data in (content, zstandard.compress(content)):
        try:
            sizes = decode_chunk_sizes(data)
        except ChunkIndexError as error:
            assert "transformedChunks" in str(error)
        else:
            assert len(sizes) <= len(content)


def test_sizes_that_unpack_to_too_much_are_refused() -> None:
    bomb = zstandard.compress(struct.pack(">i", 1 << 24) + bytes(11 << 20))
    with pytest.raises(ChunkIndexError, match="content size of 11534340"):
        decode_chunk_sizes(bomb)


def test_ranges_of_fixed_chunks() -> None:
    index = fixed_chunks(100, 250, 128, 78)
    assert index.count == 3
    assert [index.stored_range(n) for n in range(3)] == [(0, 128), (128, 256), (256, 334)]
    assert [index.plain_size(n) for n in range(3)] == [100, 100, 50]
    assert index.stored_size == 334
    # No memory for each chunk.
    assert fixed_chunks(1, 2**31 - 1, 29, 29).stored_range(2**30) == (29 << 30, 29 + (29 << 30))


def test_ranges_of_variable_chunks() -> None:
    index = variable_chunks(100, 250, decode_chunk_sizes(encode_sizes([30, 10, 20])))
    assert [index.stored_range(n) for n in range(3)] == [(0, 30), (30, 40), (40, 60)]
    for sizes in ([], [0], [9]):
        empty = variable_chunks(100, 0, decode_chunk_sizes(encode_sizes(sizes)))
        assert (empty.count, empty.plain_size(0), empty.stored_size) == (1, 0, sum(sizes))


@pytest.mark.parametrize("sizes", [[1, 2], [1, 2, 3, 4], []])
def test_a_wrong_number_of_chunks(sizes: list[int]) -> None:
    with pytest.raises(ChunkIndexError, match="250 bytes have 3 chunks"):
        variable_chunks(100, 250, decode_chunk_sizes(encode_sizes(sizes)))


@pytest.mark.parametrize(
    "values", [(0, 1, 1, 1), (-5, 1, 1, 1), (1 << 30, 1, 1, 1), (1, -1, 1, 1), (1, 1, -1, 1),
               (1, 1, 1, 1 << 31)],
)  # fmt: skip
def test_impossible_sizes(values: tuple[int, int, int, int]) -> None:
    with pytest.raises(ChunkIndexError):
        fixed_chunks(*values)
