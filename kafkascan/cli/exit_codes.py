"""Exit codes of all commands, and the last resort of errors."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from kafkascan.cli.signals import exit_code_of_signal

EXIT_CLEAN, EXIT_FINDINGS, EXIT_USAGE, EXIT_UNREADABLE = 0, 1, 2, 3
EXIT_BUG = 70  # EX_SOFTWARE of sysexits.h
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
    except Exception as error:
        return exit_code_of_signal() or _report(error)
    return code or EXIT_CLEAN


def _report(error: Exception) -> int:
    """Print an error that no command has handled; return the exit code."""
    from kafkascan.format.errors import KafkaScanError  # not at each start

    if isinstance(error, KafkaScanError):
        return _failed(str(error), EXIT_UNREADABLE)
    if isinstance(error, OSError):
        return _cannot_write(error)
    if isinstance(error, MemoryError):
        return _failed("not enough memory", EXIT_UNREADABLE)
    if isinstance(error, (ValueError, ImportError)):  # of arguments, and of extras
        return _failed(str(error), EXIT_USAGE)
    import traceback

    print_message("".join(traceback.format_exception(error)).rstrip("\n"))
    return _failed("this is a bug: please report it, with the lines above", EXIT_BUG)


def _failed(message: str, code: int) -> int:
    print_message(f"kafkascan: {message}")
    return code


def print_message(text: str) -> None:
    """Print a text to stderr, without the secrets of URLs and what a terminal would obey."""
    from kafkascan.format.shown_places import without_secrets  # not at each start
    from kafkascan.format.texts import printable_lines

    print(printable_lines(without_secrets(text)), file=sys.stderr)


def _cannot_write(error: OSError) -> int:
    """Report that the output cannot be written, and discard what is left in stdout's buffer."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    place = f" {error.filename}" if error.filename else ""
    return _failed(f"cannot write{place}: {error.strerror or error}", EXIT_UNREADABLE)
