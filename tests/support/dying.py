"""Work that is killed at its n-th change of the file system."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.warm_process import run_warm

_STEPS = ("replace", "rename", "link", "unlink", "truncate", "fchmod", "mkdir", "rmdir", "fsync")
_PROGRAM = """
import os, signal, sys
import numpy as np
import kafkascan as ks

def dies(call):
    def counted(*arguments, **options):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*arguments, **options)
    return counted

code, folder, left = sys.argv[1], sys.argv[2], int(sys.argv[3])
for name in sys.argv[4:]:
    setattr(os, name, dies(getattr(os, name)))
exec(code)
"""


def run_dying(code: str, folder: Path, step: int) -> int:
    """Run code that knows `ks` and `folder`; return its exit code, negative if it died."""
    return run_warm(_PROGRAM, code, folder, step, *_STEPS).returncode


def states_at_kills(
    action: Callable[[], object], folder: Path, states: Path, stride: int = 1
) -> Iterator[int]:
    """
    Yield the number of each step with `folder` as a kill at that step leaves it.

    A process that is killed has written exactly what it has written until then. So one run, with
    a copy of the folder before each step, stands for a killed run at each step. The last number
    is that of a run that ends.
    """
    steps = _run_with_copies(action, folder, states, stride)
    for step in (*range(1, steps + 1, stride), steps + 1):
        shutil.rmtree(folder)
        os.rename(states / str(step), folder)
        yield step


def _run_with_copies(action: Callable[[], object], folder: Path, states: Path, stride: int) -> int:
    """Run an action; return the number of its steps."""
    lock, taken, is_copying = threading.RLock(), 0, False
    states.mkdir()

    def with_copy(call: Callable[..., object]) -> Callable[..., object]:
        def counted(*arguments: object, **options: object) -> object:
            nonlocal taken, is_copying
            with lock:
                if not is_copying:
                    taken += 1
                    is_copying = True
                    if (taken - 1) % stride == 0:
                        shutil.copytree(folder, states / str(taken), symlinks=True)
                    is_copying = False
            return call(*arguments, **options)

        return counted

    with pytest.MonkeyPatch.context() as patch:
        for name in _STEPS:
            patch.setattr(os, name, with_copy(getattr(os, name)))
        action()
    shutil.copytree(folder, states / str(taken + 1), symlinks=True)
    return taken
