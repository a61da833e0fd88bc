"""Exit codes of all commands."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

EXIT_CLEAN, EXIT_FINDINGS, EXIT_USAGE, EXIT_UNREADABLE = 0, 1, 2, 3
# As a shell reports a process that SIGINT ended.
EXIT_INTERRUPTED = 130


def exit_code_of(run: Callable[[], int | None]) -> int:
    """Run a command and write what is left in stdout's buffer; return the exit code."""
    try:
        code = run()
        sys.stdout.flush()
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return EXIT_INTERRUPTED
    except OSError as error:
        return _cannot_write(error)
    return code or EXIT_CLEAN


def _cannot_write(error: OSError) -> int:
    """Report that the output cannot be written, and discard what is left in stdout's buffer."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    place = f" {error.filename}" if error.filename else ""
    print(f"kafkascan: cannot write{place}: {error.strerror}", file=sys.stderr)
    return EXIT_UNREADABLE
