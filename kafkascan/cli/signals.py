"""Signals that end a command: SIGINT, SIGTERM and SIGHUP."""

from __future__ import annotations

import os
import signal
import sys
import time
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

# Seconds until a signal is raised again.
_RETRY_SECONDS = 0.1
# Seconds after a signal from which on another one ends the process at once.
_PATIENCE_SECONDS = 2
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_received: int | None = None
_received_at = 0.0


def handle_signals() -> None:
    """
    Let signals raise exceptions, so that incomplete temporary files are removed.

    A signal that is ignored, as by ``nohup``, stays ignored.
    """
    global _received
    _received = None
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    for number in _ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _stop)
    sys.unraisablehook = _report_unraisable


def release_signals() -> None:
    """Let signals end the process: there is nothing left to remove."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, 0)
    for number in _ENDING:
        if signal.getsignal(number) is _stop:
            signal.signal(number, signal.SIG_DFL)


def exit_code_of_signal() -> int | None:
    """Return the exit code of a command that a signal ends, as a shell reports it; else None."""
    return None if _received is None else 128 + _received


def _stop(number: int, frame: FrameType | None) -> None:
    """
    Raise the exception of a signal, and raise it again until the command ends.

    NumPy discards exceptions raised while it inspects an operand's type, and other libraries turn
    them into errors of their own. An alarm therefore raises the exception again, except while an
    exception is being handled, or the command imports a module: libraries such as DuckDB abort
    the process if their initialization fails. A further signal, seconds later, ends the process at
    once.
    """
    global _received, _received_at
    if _received is None:
        _received_at = time.monotonic()
    elif time.monotonic() - _received_at > _PATIENCE_SECONDS:  # a library does not end its work
        os._exit(128 + number)
    _received = number
    _raise_in_main(number, frame)


def _raise_in_main(number: int, frame: FrameType | None) -> None:
    is_raised_again = hasattr(signal, "setitimer")
    if is_raised_again:
        signal.signal(signal.SIGALRM, lambda _, frame: _raise_in_main(number, frame))
        signal.setitimer(signal.ITIMER_REAL, _RETRY_SECONDS)
    if is_raised_again and _is_importing(frame):
        return
    if sys.exc_info()[1] is None:
        raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)


def _is_importing(frame: FrameType | None) -> bool:
    """Return whether the command is importing a module; `main` may itself be called by one."""
    while frame is not None:
        module = frame.f_globals.get("__name__")
        if module == "importlib._bootstrap":
            return True
        if module == __package__:  # it has `main`
            return False
        frame = frame.f_back
    return False


def _report_unraisable(found: UnraisableHookArgs) -> None:
    """Report an error of a finalizer or callback, but not the exception of a signal."""
    if _received is None or not isinstance(found.exc_value, (KeyboardInterrupt, SystemExit)):
        sys.__unraisablehook__(found)
