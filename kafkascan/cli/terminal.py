"""Escape what data does to a terminal: control sequences, and changes of the text's direction."""

from __future__ import annotations

import codecs
import io
import sys
from typing import Any, TextIO

from kafkascan.format.texts import printable_lines


class _EscapedBytes(io.RawIOBase):
    """UTF-8 text that a terminal gets with escaped control characters."""

    def __init__(self, terminal: TextIO) -> None:
        self._terminal = terminal
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, data: Any, /) -> int:
        """Write a part of the text."""
        text = self._decoder.decode(bytes(data))
        self._terminal.write(printable_lines(text))
        return memoryview(data).nbytes


def stdout_for_values() -> TextIO:
    """
    Return stdout for text that has keys, values and names as they are.

    A pipe or a file gets every byte; on a terminal, control characters are escaped.
    """
    if not sys.stdout.isatty():
        return sys.stdout
    terminal: Any = _EscapedBytes(sys.stdout)
    return io.TextIOWrapper(terminal, "utf-8", "backslashreplace", write_through=True)
