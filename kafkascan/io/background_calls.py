"""Calls of libraries in a thread, while the caller's thread handles signals."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait

from kafkascan.io.worker_threads import POLL, Result, ThreadPool


class BackgroundCalls:
    """
    A thread that makes calls while the caller's thread handles signals.

    It is for libraries that do not look for signals while they work. A signal's exception is
    raised in the caller's thread when the call has ended.

    Parameters
    ----------
    interrupt : callable
        Makes the library end the current call soon.
    """

    def __init__(self, interrupt: Callable[[], None]) -> None:
        self._interrupt = interrupt
        self._team = ThreadPool(1)

    def call(self, function: Callable[[], Result]) -> Result:
        """Return the result of a function, or raise its error."""
        done: Future[Result] = Future()
        try:
            self._team.begin(lambda: _make_call(function, done))
            # A thread that waits without a limit may not notice a signal of the process.
            while wait([done], POLL).not_done:
                pass
            return done.result()
        except BaseException:
            if not done.cancel():
                self._end(done)
            raise

    def _end(self, done: Future[Result]) -> None:
        self._team.cancel()
        while wait([done], 0).not_done:
            # Again and again: a library that begins its work forgets what was before.
            self._interrupt()
            wait([done], POLL)

    def close(self) -> None:
        """End the thread."""
        self._team.dismiss(threading.Lock())


def _make_call(function: Callable[[], Result], done: Future[Result]) -> None:
    if not done.set_running_or_notify_cancel():
        return
    try:
        done.set_result(function())
    except BaseException as error:
        done.set_exception(error)
