"""
Handlers of SIGBUS that a program sets, and signals that it gets, while our loops are guarded.

Each case runs in a process of its own. A loop of the portable checksum takes long enough for a
signal to arrive before it ends.
"""

from __future__ import annotations

import os
import sys

import pytest

from tests.support.warm_process import run_warm

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="glibc's sigaction")

PRELUDE = """
import ctypes, faulthandler, mmap, os, signal, threading, time
from kafkascan._core import checksums

SIZE = 1 << 26
SA_SIGINFO = 4
libc = ctypes.CDLL(None, use_errno=True)
memory = mmap.mmap(-1, SIZE)
start = ctypes.addressof(ctypes.c_char.from_buffer(memory))

class Action(ctypes.Structure):
    _fields_ = [
        ("handler", ctypes.c_void_p), ("mask", ctypes.c_ubyte * 128),
        ("flags", ctypes.c_int), ("restorer", ctypes.c_void_p),
    ]

class Info(ctypes.Structure):
    _fields_ = [
        ("signal", ctypes.c_int), ("error", ctypes.c_int), ("code", ctypes.c_int),
        ("address", ctypes.c_void_p), ("rest", ctypes.c_ubyte * 104),
    ]

def installed():
    action = Action()
    assert libc.sigaction(signal.SIGBUS, None, ctypes.byref(action)) == 0
    return action.handler

def install(function):
    # A function of libc without effects is a handler.
    action = Action(ctypes.cast(function, ctypes.c_void_p), flags=SA_SIGINFO)
    assert libc.sigaction(signal.SIGBUS, ctypes.byref(action), None) == 0
    assert installed() == action.handler

def while_guarded(act, undo=lambda: None):
    # Calls act() while another thread sums, and again if the sum ended too early; returns the sum.
    while True:
        before, results = installed(), []
        thread = threading.Thread(
            target=lambda: results.append(checksums.crc32c(memory, 0, "portable"))
        )
        thread.start()
        while installed() == before and not results:
            pass
        act()
        was_early = not results
        thread.join()
        if was_early:
            return results[0]
        undo()

CORRECT = checksums.crc32c(memory, 0)
"""


def run(body: str) -> list[str]:
    result = run_warm(PRELUDE + body)
    assert result.returncode == 0, f"{result.returncode}: {result.stderr}"
    return result.stdout.splitlines()


def test_a_sent_signal_reaches_the_programs_handler() -> None:
    body = """
calls = []
signal.signal(signal.SIGBUS, lambda *_: calls.append(1))
before = installed()
assert while_guarded(lambda: os.kill(os.getpid(), signal.SIGBUS), calls.clear) == CORRECT
while not calls:
    time.sleep(0.01)
assert installed() == before
print(calls)
"""
    assert run(body) == ["[1]"]


def test_an_ignored_signal_is_ignored() -> None:
    body = """
signal.signal(signal.SIGBUS, signal.SIG_IGN)
assert while_guarded(lambda: os.kill(os.getpid(), signal.SIGBUS)) == CORRECT
print(signal.getsignal(signal.SIGBUS) == signal.SIG_IGN)
"""
    assert run(body) == ["True"]


def test_a_signal_reaches_a_handler_with_three_parameters() -> None:
    body = """
install(libc.abs)
before = installed()
assert while_guarded(lambda: os.kill(os.getpid(), signal.SIGBUS)) == CORRECT
print(installed() == before)
"""
    assert run(body) == ["True"]


INSIDE, OUTSIDE, SENT = "a fault of the guarded bytes", "another fault", "a sent signal"


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="an emulator may not survive it")
@pytest.mark.parametrize(
    ("position", "is_fault", "expected"),
    [
        (0, True, INSIDE),
        ((1 << 26) - 1, True, INSIDE),
        (-1, True, OUTSIDE),
        (1 << 26, True, OUTSIDE),
        (0, False, SENT),
    ],
)
def test_only_faults_of_the_guarded_bytes_are_ours(
    position: int, is_fault: bool, expected: str
) -> None:
    """A process may send itself a signal with the content of a fault."""
    body = f"""
RT_SIGQUEUEINFO, BUS_ADRERR, SI_QUEUE = 129, 2, -1
calls = []
signal.signal(signal.SIGBUS, lambda *_: calls.append(1))
info = Info(signal.SIGBUS, 0, BUS_ADRERR if {is_fault} else SI_QUEUE, start + {position})
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGBUS])
def act():
    result = libc.syscall(RT_SIGQUEUEINFO, os.getpid(), signal.SIGBUS, ctypes.byref(info))
    assert result == 0, ctypes.get_errno()
before, results = installed(), []
def work():
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGBUS])
    while not (results and results[-1] != CORRECT or calls):
        results.append(checksums.crc32c(memory, 0, "portable"))
thread = threading.Thread(target=work)
thread.start()
while installed() == before:
    pass
act()
while thread.is_alive():
    time.sleep(0.01)  # handlers of Python run in this thread
print(results[-1][1] if results[-1] != CORRECT else "handler")
"""
    assert run(body) == [str(position) if expected == INSIDE else "handler"]


def test_a_handler_that_is_restored_after_a_loop_is_removed_by_the_next_one() -> None:
    """faulthandler saves our handler if a loop runs, and restores it later."""
    body = """
before = installed()
while_guarded(faulthandler.enable, faulthandler.disable)
theirs = installed()
assert checksums.crc32c(memory, 0, "portable") == CORRECT
assert installed() == theirs
faulthandler.disable()
assert installed() not in (before, theirs)
assert checksums.crc32c(memory, 0, "portable") == CORRECT
print(installed() == before)
"""
    assert run(body) == ["True"]


def test_handlers_that_replace_ours_again_and_again_stay() -> None:
    body = """
for turn in range(5):
    function = (libc.abs, libc.labs)[turn % 2]
    assert while_guarded(lambda: install(function)) == CORRECT
    assert while_guarded(lambda: os.kill(os.getpid(), signal.SIGBUS)) == CORRECT
    assert installed() == ctypes.cast(function, ctypes.c_void_p).value
print("alive")
"""
    assert run(body) == ["alive"]
