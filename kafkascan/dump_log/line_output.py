"""Write the lines of a dump in large pieces."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from kafkascan._core.text_lines import LineForm, LineWriter
from kafkascan.format.errors import STATUS
from kafkascan.io.sources import Source

_SIZE = 1 << 20
# Written as soon as it is full to this.
_ENOUGH = 1 << 19


class LineOutput:
    """
    Lines in a buffer that is used again.

    Parameters
    ----------
    write : callable
        Takes each piece; it is valid during the call only.
    """

    def __init__(self, write: Callable[[memoryview], object]) -> None:
        self._write = write
        self._buffer = np.empty(_SIZE, np.uint8)
        self._end = 0

    def add(self, lines: Iterable[str]) -> None:
        """Add lines that are short, without their ends."""
        for line in lines:
            data = line.encode("utf-8", "replace") + b"\n"
            if len(data) > _SIZE - self._end:
                self.flush()
            if len(data) > _SIZE:
                self._write(memoryview(data))
                continue
            self._buffer[self._end : self._end + len(data)] = np.frombuffer(data, np.uint8)
            self._end += len(data)

    def add_lines(
        self,
        source: Source,
        heads: tuple[tuple[LineForm, ...], NDArray[np.uint8]],
        lines: tuple[tuple[LineForm, ...], NDArray[np.uint8]],
        first_line: NDArray[np.int64],
    ) -> None:
        """
        Add lines of two levels.

        Parameters
        ----------
        source : Source
            What items of the forms may lie in.
        heads, lines : (tuple of LineForm, array of uint8)
            The forms, and the form of each line.
        first_line : array of int64, shape (heads + 1,)
            The first line that follows each head, and the number of lines.
        """
        mapped = source.as_array() if source.is_in_memory else np.empty(0, np.uint8)
        writer = LineWriter(*heads, *lines, first_line, mapped)
        while True:
            status, fault = writer.fill(self._buffer, self._end)
            if status == STATUS["SOURCE_FAULT"]:
                raise source.fault_error(fault)
            self._end = writer.end
            if status == STATUS["OK"]:
                break
            self.flush()
        if self._end >= _ENOUGH:
            self.flush()

    def flush(self) -> None:
        """Write what is left."""
        if self._end:
            self._write(self._buffer.data[: self._end])
            self._end = 0
