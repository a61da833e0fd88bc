"""The command line: parses arguments, calls the library, prints rows and findings."""

from __future__ import annotations

import atexit
import gc
import os
import sys
from collections.abc import Sequence

from kafkascan.cli.exit_codes import EXIT_CLEAN, EXIT_USAGE, exit_code_of
from kafkascan.cli.signals import exit_code_of_signal, handle_signals, release_signals
from kafkascan.cli.streams import prepare_streams


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns its exit code."""
    # NumPy's BLAS would start threads, which no command needs.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # A command creates few cycles, and many objects: imported code, and what it knows of files.
    gc.set_threshold(100_000)
    # At its exit, Python would search all of them for cycles.
    atexit.register(gc.freeze)
    prepare_streams()
    try:
        handle_signals()
        code = _run(sys.argv[1:] if arguments is None else arguments)
    except BaseException as error:
        if isinstance(error, SystemExit) or exit_code_of_signal() is None:
            raise
        code = EXIT_CLEAN
    finally:
        release_signals()
    # A library may have turned the exception of a signal into anything.
    return exit_code_of_signal() or code


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
