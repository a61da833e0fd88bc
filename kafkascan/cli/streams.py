"""The standard streams of a command: closed, full, and of any encoding."""

from __future__ import annotations

import io
import os
import sys


def prepare_streams() -> None:
    """
    Let stdout and stderr take every text.

    A closed stream is None: rows for it cannot be written, which is an error. Findings that cannot
    be written are not: the exit code says what they say.
    """
    sys.stdout = sys.stdout or os.fdopen(os.open(os.devnull, os.O_RDONLY), "w")
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        # File names may contain bytes that the encoding lacks.
        sys.stdout.reconfigure(errors="backslashreplace")
    if isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr = _FindingStream(sys.stderr)


class _FindingStream(io.TextIOWrapper):
    """A stream that discards what cannot be written, as to a full disk."""

    def __init__(self, stream: io.TextIOWrapper) -> None:
        buffer = open(stream.fileno(), "wb", closefd=False)  # noqa: SIM115
        super().__init__(buffer, stream.encoding, "backslashreplace", line_buffering=True)

    def write(self, text: str, /) -> int:
        """Write a text, or discard it."""
        try:
            return super().write(text)
        except OSError:
            self._discard()
            return len(text)

    def flush(self) -> None:
        """Write what is buffered, or discard it."""
        try:
            super().flush()
        except OSError:
            self._discard()

    def _discard(self) -> None:
        """Let the descriptor lead nowhere: what is buffered would fail again at exit."""
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, self.fileno())
        os.close(null)
