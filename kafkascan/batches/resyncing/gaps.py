"""Bytes between the batches of a damaged log that no batch covers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kafkascan.batches.columns import BatchTable, last_offset, size_in_bytes
from kafkascan.batches.resyncing.offset_evidence import HIGHEST_OFFSET, SEGMENT_OFFSETS
from kafkascan.batches.walks import read_bytes
from kafkascan.format.errors import CorruptBatchError
from kafkascan.format.layout import BATCH_HEADER, BATCH_HEADER_SIZE
from kafkascan.io.sources import Source


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

    def as_damaged(self) -> DamagedRange:
        """Return the range of bytes."""
        return DamagedRange(self.position, self.position + self.size, self.error)


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


def announced_offset(
    source: Source, batches: BatchTable, damaged: list[DamagedRange]
) -> int | None:
    """Return the offset after the first damaged batch of unknown extent, as its header has it."""
    one = next((one for one in damaged if not one.is_framed), None)
    if one is None or one.error.symbol not in ("BAD_LENGTH", "TORN_TAIL"):
        return None  # its length shows where batches within it end
    header = read_bytes(source, one.start, BATCH_HEADER_SIZE)
    if len(header) < BATCH_HEADER_SIZE:
        return None
    fields = np.frombuffer(header, BATCH_HEADER)[0]
    before = batches[: int(np.searchsorted(batches["position"], one.start))]
    after = int(last_offset(before)[-1]) if len(before) else -1
    first, delta = int(fields["base_offset"]), max(0, int(fields["last_offset_delta"]))
    is_next = after < first <= HIGHEST_OFFSET - SEGMENT_OFFSETS
    return first + delta + 1 if is_next and fields["magic"] == 2 else None
