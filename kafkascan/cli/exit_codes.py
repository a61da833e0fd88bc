"""Exit codes of all commands, and the last resort of errors."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable

from kafkascan.format.errors import KafkaScanError

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
    except KafkaScanError as error:
        return _failed(str(error), EXIT_UNREADABLE)
    except OSError as error:
        return _cannot_write(error)
    except MemoryError:
        return _failed("not enough memory", EXIT_UNREADABLE)
    except (ValueError, ImportError) as error:  # of arguments, and of extras
        return _failed(str(error), EXIT_USAGE)
    except Exception:
        traceback.print_exc()
        return _failed("this is a bug: please report it, with the lines above", EXIT_BUG)
    return code or EXIT_CLEAN


def _failed(message: str, code: int) -> int:
    print(f"kafkascan: {message}", file=sys.stderr)
    return code


def _cannot_write(error: OSError) -> int:
    """Report that the output cannot be written, and discard what is left in stdout's buffer."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    place = f" {error.filename}" if error.filename else ""
    return _failed(f"cannot write{place}: {error.strerror or error}", EXIT_UNREADABLE)
