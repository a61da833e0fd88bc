"""Make lines of a dump in chunks of bounded size, and write them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafkascan._core.text_lines import LineWriter
from kafkascan.dump_log.batch_lines import Lines
from kafkascan.format.errors import STATUS, BatchTableError
from kafkascan.io.sources import Source

CHUNK_SIZE = 1 << 20
# A smaller chunk is copied, so that it is written with others.
_WRITTEN_ALONE = 1 << 18


class Offsets(NamedTuple):
    """Offsets of consecutive records: the first, the last, and pairs with a gap between them."""

    first: int
    last: int
    gaps: list[tuple[int, int]]


def offsets_of(offsets: NDArray[np.int64]) -> Offsets | None:
    """Return what is kept of the offsets of consecutive records; None if there are none."""
    if not len(offsets):
        return None
    rows = np.flatnonzero(offsets[1:] != offsets[:-1] + 1)
    gaps = list(zip(offsets[rows].tolist(), offsets[rows + 1].tolist(), strict=True))
    return Offsets(int(offsets[0]), int(offsets[-1]), gaps)


class TextChunk(NamedTuple):
    """Lines, maybe without the end of the last one, and the offsets of their records."""

    data: NDArray[np.uint8]
    offsets: Offsets | None = None


class ChunkMemory:
    """
    Memory of chunks, used again after they are written: fresh pages cost more than their lines.

    Threads may take and give back at the same time.
    """

    def __init__(self) -> None:
        self._free: deque[NDArray[np.uint8]] = deque()

    def take(self, size: int = CHUNK_SIZE) -> NDArray[np.uint8]:
        """Return memory of the usual size, or of a larger one."""
        if size > CHUNK_SIZE:
            return np.empty(size, np.uint8)
        try:
            return self._free.pop()
        except IndexError:
            return np.empty(CHUNK_SIZE, np.uint8)

    def give_back(self, chunk: TextChunk) -> None:
        """Take the memory of a chunk, which is not used any more."""
        memory = chunk.data.base
        if isinstance(memory, np.ndarray) and len(memory) == CHUNK_SIZE:
            self._free.append(memory)


def chunks_of(
    source: Source,
    heads: Lines,
    lines: Lines,
    first_line: NDArray[np.int64],
    memory: ChunkMemory,
    offsets: Offsets | None = None,
) -> Iterator[TextChunk]:
    """
    Yield lines of two levels.

    Parameters
    ----------
    source : Source
        What items of the forms may lie in.
    heads, lines : Lines
    first_line : array of int64, shape (heads + 1,)
        The first line that follows each head, and the number of lines.
    memory : ChunkMemory
    offsets : Offsets, optional
        Of all lines; the first chunk has them.

    Yields
    ------
    TextChunk
    """
    mapped = source.as_array() if source.is_in_memory else np.empty(0, np.uint8)
    writer = LineWriter(*heads, *lines, first_line, mapped)
    status = STATUS["OUTPUT_FULL"]
    while status == STATUS["OUTPUT_FULL"]:
        out = memory.take()
        status, fault = writer.fill(out, 0)
        if status == STATUS["SOURCE_FAULT"]:
            raise source.fault_error(fault)
        if status == STATUS["ROW_MISMATCH"]:  # headers were valid when they were decoded
            source.require_unshrunk()
            raise BatchTableError(source.path, 0, status)
        yield TextChunk(out[: writer.end], offsets)
        offsets = None


class LineOutput:
    """
    Writes lines, many at a time.

    Parameters
    ----------
    write : callable
        Takes each chunk; it is valid during the call only.
    """

    def __init__(self, write: Callable[[memoryview], object]) -> None:
        self._write = write
        self._buffer = np.empty(CHUNK_SIZE, np.uint8)
        self._end = 0

    def add(self, lines: Iterable[str]) -> None:
        """Add lines without their ends."""
        for line in lines:
            self.add_bytes(np.frombuffer(line.encode("utf-8", "replace") + b"\n", np.uint8))

    def add_bytes(self, data: NDArray[np.uint8]) -> None:
        """Add lines in UTF-8."""
        if len(data) > CHUNK_SIZE - self._end or len(data) >= _WRITTEN_ALONE:
            self.flush()
        if len(data) >= _WRITTEN_ALONE:
            self._write(data.data)
            return
        self._buffer[self._end : self._end + len(data)] = data
        self._end += len(data)

    def flush(self) -> None:
        """Write what is left."""
        if self._end:
            self._write(self._buffer.data[: self._end])
            self._end = 0
