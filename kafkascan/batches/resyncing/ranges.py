"""What a scan of a damaged log says of its bytes: gaps, and ranges of batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from kafkascan.format.errors import CorruptBatchError


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


# A tuple: a damaged log may have one for each batch; a frozen dataclass takes four times as long.
class KeptRange(NamedTuple):
    """
    Consecutive batches that are kept.

    Attributes
    ----------
    position, size : int
        In bytes.
    batches : int
    first_offset, last_offset : int
    is_doubtful : bool
        Whether only checksums and offsets indicate that the range belongs to the log. The bytes
        before it are damaged, and neither its offsets, nor a header before it, nor sequences of
        its producers continue the log: old data in a tail, and copies of batches within the value
        of a damaged record, look the same. Or valid batches that are not kept contradict it, and
        the kept ones are not clearly more, or have the same offsets. Or it is the last batch,
        after the only gap in the offsets, and one flipped bit explains the gap. After a salvage,
        also if adjacent batches, or a copy, contradict its leader epoch.
    """

    position: int
    size: int
    batches: int
    first_offset: int
    last_offset: int
    is_doubtful: bool
