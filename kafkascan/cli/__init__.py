"""The command line: parses arguments, calls the library, prints rows and findings."""

from __future__ import annotations

import atexit
import gc
import io
import os
import signal
import sys
from collections.abc import Sequence

from kafkascan.cli.exit_codes import EXIT_INTERRUPTED, EXIT_USAGE, exit_code_of

# Seconds until a termination signal is raised again.
_RETRY_SECONDS = 0.1


def _terminate(signal_number: int, _frame: object) -> None:
    """
    Raise SystemExit, so that incomplete temporary files are removed.

    NumPy discards exceptions raised while it inspects an operand's type. An alarm therefore
    raises the exception again, except while an exception is being handled.
    """
    if hasattr(signal, "setitimer"):
        signal.signal(signal.SIGALRM, lambda *_: _terminate(signal_number, None))
        signal.setitimer(signal.ITIMER_REAL, _RETRY_SECONDS)
    if sys.exc_info()[1] is None:
        raise SystemExit(128 + signal_number)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns its exit code."""
    # NumPy's BLAS would start threads, which no command needs.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # A command creates few cycles, and many objects: imported code, and what it knows of files.
    gc.set_threshold(100_000)
    # At its exit, Python would search all of them for cycles.
    atexit.register(gc.freeze)
    # A closed stream is None: rows for it cannot be written. File names may contain bytes that
    # the encoding lacks.
    sys.stdout = sys.stdout or os.fdopen(os.open(os.devnull, os.O_RDONLY), "w")
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _terminate)
    try:
        return _run(sys.argv[1:] if arguments is None else arguments)
    except KeyboardInterrupt:  # while modules are imported
        return EXIT_INTERRUPTED
    finally:
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, 0)


def _run(arguments: Sequence[str]) -> int:
    if arguments[:1] == ["dump-log"]:
        from kafkascan.cli.verbs.dump_run import asks_for_help, run_dump

        if not asks_for_help(arguments[1:]):
            return exit_code_of(lambda: run_dump(arguments[1:]))
    try:
        from kafkascan.cli.commands import invoke
    except ModuleNotFoundError as error:
        if error.name not in ("click", "rich"):
            raise
        message = "kafkascan: the command line needs click and rich: pip install 'kafkascan[cli]'"
        print(message, file=sys.stderr)
        return EXIT_USAGE
    return invoke(arguments)
