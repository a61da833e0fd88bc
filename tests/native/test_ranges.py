"""Loops over ranges of bytes that the caller chose: nothing outside of the data is touched."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

from kafkascan._core import batches, checksums, guard
from kafkascan.format.errors import STATUS
from kafkascan.format.layout import BATCH_DTYPE, BATCH_HEADER_SIZE
from tests.support.segments import batch_v2, message_v0

DATA = bytes(range(100))


def array(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def test_pieces_are_copied_to_their_places() -> None:
    out = np.full(10, 255, np.uint8)
    pieces = array(90, 0, 50), array(3, 0, 2), array(0, 10, 8)
    assert guard.copy_pieces(out, DATA, *pieces) == (STATUS["OK"], 0)
    assert out.tolist() == [90, 91, 92, 255, 255, 255, 255, 255, 50, 51]


@pytest.mark.parametrize(
    "piece",
    [(98, 3, 0), (-1, 3, 0), (0, -1, 0), (0, 3, 8), (0, 3, -1), (101, 0, 0), (2**63 - 1, 2, 0)],
)
def test_pieces_outside_of_the_data_or_buffer_are_refused(piece: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="exceeds"):
        guard.copy_pieces(np.zeros(10, np.uint8), DATA, *map(array, piece))
    with pytest.raises(ValueError, match="length"):
        guard.copy_pieces(np.zeros(10, np.uint8), DATA, array(1), array(1), array())


def test_ranges_are_summed() -> None:
    sums, starts, stops = np.empty(3, np.uint32), array(0, 5, 100), array(100, 5, 100)
    assert checksums.sum_ranges(DATA, starts, stops, sums, True) == -1
    assert sums.tolist() == [zlib.crc32(DATA), 0, 0]
    assert checksums.sum_ranges(DATA, starts, stops, sums, False) == -1
    assert sums.tolist() == [checksums.crc32c(DATA, 0)[0], 0, 0]
    assert checksums.sum_ranges(b"", array(0), array(0), sums[:1], True) == -1
    assert sums[0] == 0


@pytest.mark.parametrize("bounds", [(0, 101), (-1, 5), (6, 5), (-5, -3)])
def test_ranges_outside_of_the_data_are_refused(bounds: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="exceeds"):
        checksums.sum_ranges(DATA, *map(array, bounds), np.empty(1, np.uint32), False)
    with pytest.raises(ValueError, match="length"):
        checksums.sum_ranges(DATA, array(1), array(2), np.empty(2, np.uint32), False)


def test_headers_are_rows_if_they_frame_a_batch() -> None:
    batch, message = batch_v2(b"x" * 20, base_offset=7), message_v0(b"key", offset=3)
    headers = np.zeros((4, BATCH_HEADER_SIZE), np.uint8)
    headers[0] = headers[1] = list(batch[:BATCH_HEADER_SIZE])
    headers[2, : len(message)] = list(message)
    rows, are_framed = np.zeros(4, BATCH_DTYPE), np.empty(4, np.uint8)
    left = array(len(batch), len(batch) - 1, len(message), -5)
    batches.rows_of_headers(headers, left, rows, are_framed)
    assert are_framed.tolist() == [1, 0, 1, 0]
    assert rows["base_offset"].tolist() == [7, 0, 3, 0]
    assert rows["magic"].tolist() == [2, 0, 0, 0]


def test_headers_of_another_size_are_refused() -> None:
    rows, are_framed = np.zeros(1, BATCH_DTYPE), np.empty(1, np.uint8)
    for shape in ((1, BATCH_HEADER_SIZE - 1), (2, BATCH_HEADER_SIZE)):
        with pytest.raises(ValueError, match="length"):
            batches.rows_of_headers(np.zeros(shape, np.uint8), array(61), rows, are_framed)
