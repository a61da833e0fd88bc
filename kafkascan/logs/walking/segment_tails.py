"""How the batches of a file end, and what follows them."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from kafkascan.batches.columns import BatchTable, size_in_bytes
from kafkascan.format.layout import BATCH_DTYPE, ScanEnd
from kafkascan.io.sources import Source


class LogEnd(Protocol):
    """How the batches of a file end: `SegmentEnd`, `BatchScan`, `BatchIterator` at its end."""

    @property
    def end(self) -> ScanEnd | None:
        """None if the file cannot be read."""

    @property
    def error(self) -> Exception | None:
        """What is wrong at `position`, or why the file cannot be read."""

    @property
    def position(self) -> int:
        """Position in the file after the last batch."""

    @property
    def trailing_bytes(self) -> int:
        """Number of bytes from there on."""


def intact_batches(end: LogEnd, source: Source, end_offset: int | None) -> BatchTable:
    """
    Return the intact batches in a torn tail: a wrong length looks like one, too.

    Those with lower offsets than `end_offset`, the offset after the batches before the tail, are in
    a copy, or old data.
    """
    start, stop = end.position, end.position + end.trailing_bytes
    # A broker may have completed its last batch by now, or truncated the file: nothing is lost.
    if end.end is not ScanEnd.TORN_TAIL or stop > source.size:
        return np.empty(0, BATCH_DTYPE)
    from kafkascan.batches.resyncing.resync import scan_with_resync  # of a torn tail only

    lowest = end_offset or 0
    found = scan_with_resync(source, start, stop, verify=True, lowest=lowest).batches
    positions = found["position"]
    return found[(positions > start) & (positions + size_in_bytes(found) <= stop)]


def is_preallocated(end: ScanEnd | str | None, position: int) -> bool:
    """Return whether zeros after the last batch are room for more (``preallocate``): no damage."""
    return end == ScanEnd.ZERO_TAIL and position > 0


def describe_end(end: LogEnd, intact: BatchTable | None = None) -> str:
    """Return a sentence about a tail, with the intact batches that were found in it."""
    kind = "zeros" if end.end is ScanEnd.ZERO_TAIL else "bytes"
    message = f"{end.trailing_bytes:,} {kind} follow the last complete batch"
    if not end.position:
        message = f"the file contains no complete batch, only {end.trailing_bytes:,} {kind}"
    if intact is None or not len(intact):
        return message
    follow = "intact batch follows" if len(intact) == 1 else "intact batches follow"
    first = intact["position"][0]
    return f"{message}; {len(intact):,} {follow} at position {first}: see `kafkascan salvage`"
