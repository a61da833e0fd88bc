"""Bytes between the batches of a damaged log that no batch covers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kafkascan.batches.columns import BatchTable, last_offset, size_in_bytes
from kafkascan.format.errors import CorruptBatchError


@dataclass(frozen=True)
class DamagedRange:
    """
    Bytes that contain no batch of the log.

    Attributes
    ----------
    start, stop : int
        Positions of the first byte and of the byte after the last.
    error : CorruptBatchError
        What is wrong at the start.
    is_framed : bool
        Whether the range is one damaged batch whose length is correct: a batch or the end of the
        log follows it.
    """

    start: int
    stop: int
    error: CorruptBatchError
    is_framed: bool = False


@dataclass(frozen=True)
class Gap:
    """
    Bytes between the batches of a scan that no row covers.

    Attributes
    ----------
    position, size : int
        In bytes.
    after_offset, before_offset : int or None
        Last offset of the previous batch and first offset of the next one; the lost records have
        offsets in between. None where there is no such batch, or where it is a compressed message
        of magic 0 or 1, which does not contain its first offset.
    error : CorruptBatchError
        What is wrong at the position.
    """

    position: int
    size: int
    after_offset: int | None
    before_offset: int | None
    error: CorruptBatchError

    def __str__(self) -> str:
        return f"{self.error}; {self.size} bytes are skipped"


def gaps_between(batches: BatchTable, damaged: list[DamagedRange]) -> list[Gap]:
    """Return the gaps of a log from its batches and damaged ranges, both sorted by position."""
    starts, lasts = batches["position"], last_offset(batches)
    rows = np.searchsorted(starts, [one.start for one in damaged])
    return [
        Gap(
            one.start,
            one.stop - one.start,
            int(lasts[row - 1]) if row > 0 else None,
            _first_offset(batches, row),
            one.error,
        )
        for one, row in zip(damaged, rows.tolist(), strict=True)
    ]


def _first_offset(batches: BatchTable, row: int) -> int | None:
    if row >= len(batches) or (batches["magic"][row] < 2 and batches["records_count"][row] < 0):
        return None
    return int(batches["base_offset"][row])


def are_joined(start: int, batches: BatchTable, damaged: list[DamagedRange]) -> NDArray[np.bool_]:
    """Return which batches follow the previous one without bytes whose extent is unknown."""
    framed_sizes = np.zeros(len(batches) + 1, np.int64)
    framed = [one for one in damaged if one.is_framed]
    rows = np.searchsorted(batches["position"], [one.start for one in framed])
    np.add.at(framed_sizes, rows, [one.stop - one.start for one in framed])
    stops = batches["position"] + size_in_bytes(batches)
    joined: NDArray[np.bool_] = batches["position"] == (
        np.append(start, stops[:-1]) + framed_sizes[:-1]
    )
    joined[:1] &= framed_sizes[0] == 0
    return joined
