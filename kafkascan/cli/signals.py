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
    exception is being handled, the command imports a module (libraries such as DuckDB abort the
    process if their initialization fails), or it has ended. A further signal, seconds later, ends
    the process at once.
    """
    global _received, _received_at
    if _received is None:
        _received_at = time.monotonic()
    elif time.monotonic() - _received_at > _PATIENCE_SECONDS:  # a library does not end its work
        os._exit(128 + number)
    _received = number
    _raise_in_main(number, frame)


def _raise_in_main(number: int, frame: FrameType | None) -> None:
    callers = _frames_of_command(frame)
    if any(caller.f_code is release_signals.__code__ for caller in callers):
        return
    if hasattr(signal, "setitimer"):
        signal.signal(signal.SIGALRM, lambda _, frame: _raise_in_main(number, frame))
        signal.setitimer(signal.ITIMER_REAL, _RETRY_SECONDS)
        # `main` itself may be about to call `release_signals`.
        modules = [caller.f_globals.get("__name__") for caller in callers]
        if modules == [__package__] or "importlib._bootstrap" in modules:
            return
    if sys.exc_info()[1] is None:
        raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)


def _frames_of_command(frame: FrameType | None) -> list[FrameType]:
    """Return the frames that a signal interrupts, up to that of `main`: an import may call it."""
    frames = []
    while frame is not None:
        frames.append(frame)
        if frame.f_globals.get("__name__") == __package__:  # it has `main`
            break
        frame = frame.f_back
    return frames


def _report_unraisable(found: UnraisableHookArgs) -> None:
    """Report an error of a finalizer or callback, but not the exception of a signal."""
    if _received is None or not isinstance(found.exc_value, (KeyboardInterrupt, SystemExit)):
        sys.__unraisablehook__(found)
