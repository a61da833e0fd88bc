"""Let a history go on between the system calls of a reader."""

from __future__ import annotations

import builtins
import io
import os
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import pytest

from tests.moving.segments import Steps
from tests.moving.snapshots import Snapshot

_CALLS = ("open", "stat", "lstat", "fstat", "scandir", "listdir", "read", "pread", "preadv")
# Steady, and in bursts.
_PACES = ((0, 0, 0, 1, 1, 2), (0, 1, 3), (0, 0, 0, 0, 0, 0, 0, 6), (0, 0, 0, 12))


@dataclass
class _Entry:
    """A file in a folder that is listed; to look at its status is a system call."""

    entry: os.DirEntry[str]
    clock: Clock

    def stat(self, **options: bool) -> os.stat_result:
        self.clock.tick()
        return self.entry.stat(**options)

    def __fspath__(self) -> str:
        return self.entry.path

    def __getattr__(self, name: str) -> Any:
        return getattr(self.entry, name)


@dataclass
class _Entries:
    """What `os.scandir` returns."""

    entries: Any
    clock: Clock

    def __iter__(self) -> Iterator[Any]:
        return (_Entry(entry, self.clock) for entry in self.entries)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.entries.close()


@dataclass
class Clock:
    """
    Advances a history at some of the system calls that Python makes on a data dir.

    Attributes
    ----------
    data_dir : Path
    history : iterator
        Makes the next step each time that it is advanced.
    dice : random.Random
    most : int
        The number of steps.
    moments : list of Snapshot
        The data dir as it was at first, and after each step.
    paces : tuple of int
        How many steps are made at a system call; one of them by chance.
    """

    data_dir: Path
    history: Steps
    dice: random.Random
    most: int
    moments: list[Snapshot] = field(default_factory=list)
    paces: tuple[int, ...] = ()
    _is_ticking: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.paces = self.dice.choice(_PACES)

    def keep(self) -> None:
        """Keep the data dir as of now."""
        snapshot = Snapshot.of(self.data_dir)
        if self.moments[-1:] != [snapshot]:
            self.moments.append(snapshot)

    def tick(self) -> None:
        """Make some steps, or none."""
        if self._is_ticking:
            return
        with self._lock:
            self._is_ticking = True
            try:
                for _ in range(self.dice.choice(self.paces)):
                    if len(self.moments) > self.most:
                        break
                    next(self.history, None)
                    self.keep()
            finally:
                self._is_ticking = False

    @contextmanager
    def running(self) -> Iterator[None]:
        """Hook the system calls of this process."""
        with pytest.MonkeyPatch.context() as patches:
            for name in _CALLS:
                patches.setattr(os, name, self._hooked(getattr(os, name)))
            patches.setattr(os, "scandir", self._hooked_entries(os.scandir))
            patches.setattr(io, "open", self._hooked(io.open))
            patches.setattr(builtins, "open", self._hooked(builtins.open))
            yield

    def _hooked_entries(self, scandir: Callable[..., Any]) -> Callable[..., Any]:
        def hooked(path: Any = ".") -> _Entries:
            return _Entries(scandir(path), self)

        return self._hooked(hooked)

    def _hooked(self, call: Callable[..., Any]) -> Callable[..., Any]:
        here = os.fspath(self.data_dir)

        def hooked(*arguments: Any, **options: Any) -> Any:
            place = arguments[0] if arguments else None
            if isinstance(place, int) or (
                isinstance(place, (str, os.PathLike)) and os.fspath(place).startswith(here)
            ):
                self.tick()
            return call(*arguments, **options)

        return hooked
