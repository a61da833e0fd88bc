"""The command line: verbs over the public API. It parses, prints and exits; no logic."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Sequence

# Seconds after which somebody who was told to leave is told again.
_PATIENCE = 0.1


def _leave(signal_number: int, _frame: object) -> None:
    """
    Leave by an exception instead of death, so that files that are not whole are taken away.

    NumPy forgets whatever is raised while it asks an operand what it is. So there is an alarm,
    until the exception is on its way: then something is being handled, and not to be disturbed.
    """
    if hasattr(signal, "setitimer"):
        signal.signal(signal.SIGALRM, lambda *_: _leave(signal_number, None))
        signal.setitimer(signal.ITIMER_REAL, _PATIENCE)
    if sys.exc_info()[1] is None:
        raise SystemExit(128 + signal_number)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns its exit code."""
    try:
        from kafkascan.cli.commands import run
    except ModuleNotFoundError as error:
        if error.name not in ("click", "rich"):
            raise
        print("kafkascan: the command line needs: pip install 'kafkascan[cli]'", file=sys.stderr)
        return 2
    # A closed stream is None; names of files may be what an encoding cannot say.
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    try:
        return run(arguments)
    finally:
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, 0)
