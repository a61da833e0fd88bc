"""Calls in a thread end, also those that the thread never begins."""

from __future__ import annotations

import threading
from concurrent.futures import Future

import pytest

from kafkascan.io.background_calls import BackgroundCalls
from tests.support.waiting import HANG_SECONDS


def test_a_call_returns_or_raises() -> None:
    calls = BackgroundCalls(lambda: None)
    assert calls.call(lambda: threading.current_thread() is threading.main_thread()) is False
    with pytest.raises(ZeroDivisionError):
        calls.call(lambda: 1 / 0)
    calls.close()


def test_a_call_that_never_begins_ends_with_the_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread leaves out a job that it takes after the signal."""
    calls, is_taken = BackgroundCalls(lambda: None), threading.Event()
    monkeypatch.setattr(calls._team, "begin", lambda _job: is_taken.set())
    original = Future.done

    def interrupted(*_: object) -> None:
        assert is_taken.is_set()
        raise KeyboardInterrupt

    monkeypatch.setattr("kafkascan.io.background_calls.wait", interrupted)
    ended = threading.Event()

    def call() -> None:
        with pytest.raises(KeyboardInterrupt):
            calls.call(original)
        ended.set()

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    assert ended.wait(HANG_SECONDS)
    calls.close()
