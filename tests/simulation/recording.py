"""Record what a process does to the files of a folder, and refuse it where a fault is due."""

from __future__ import annotations

import builtins
import errno
import io
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from tests.simulation.disk import Disk, Names, Operation, Sync, Truncate, Write, read_disk


@dataclass
class Fault:
    """
    Calls that fail.

    Attributes
    ----------
    error : int
        An errno.
    at : int
        The number of the first call that fails, of those that can fail with it.
    calls : int
        How many fail from there on.
    """

    error: int
    at: int
    calls: int

    def is_due(self, number: int) -> bool:
        """Return whether a call fails."""
        return self.at <= number < self.at + self.calls


# The calls that fail with an error. A process without descriptors cannot open anything.
_CALLS_OF = {
    errno.ENOSPC: {"write", "create", "replace", "link", "mkdir"},
    errno.EIO: {"write", "fsync", "replace", "truncate"},
    errno.EMFILE: {"open", "create"},
}


@dataclass
class Recorder:
    """
    Records operations on the files below a folder.

    Attributes
    ----------
    root : str
    start : Disk
        The files at the start.
    trace : list of Operation
    fault : Fault or None
    failed : int
        Number of calls that were refused.
    """

    root: str
    start: Disk
    numbers: dict[tuple[int, int], int]
    trace: list[Operation] = field(default_factory=list)
    fault: Fault | None = None
    failed: int = 0
    _calls: int = 0
    _lock: Any = field(default_factory=threading.RLock)

    def is_ours(self, path: object) -> bool:
        """Return whether a path, or an open file, is below the folder."""
        if isinstance(path, int):
            path = os.readlink(f"/proc/self/fd/{path}")
        return isinstance(path, (str, os.PathLike)) and f"{os.fspath(path)}/".startswith(self.root)

    def may_fail(self, call: str, path: object) -> None:
        """Raise the error of the fault, if it is due at this call."""
        if self.fault is None or call not in _CALLS_OF[self.fault.error]:
            return
        number, self._calls = self._calls, self._calls + 1
        if self.fault.is_due(number):
            self.failed += 1
            raise OSError(self.fault.error, os.strerror(self.fault.error), str(path))

    def number(self, status: os.stat_result, *, is_new: bool = False) -> int:
        """Return the number of a file; an inode may be used again for a new file."""
        key = status.st_dev, status.st_ino
        if is_new or key not in self.numbers:
            self.numbers[key] = max(self.numbers.values()) + 1
        return self.numbers[key]

    def entry(self, path: Any, dir_fd: int | None = None) -> tuple[int, str]:
        """Return the number of a file's folder, and its name."""
        path = os.fspath(path)
        folder, name = os.path.split(path.rstrip("/"))
        status = os.fstat(dir_fd) if dir_fd is not None else os.stat(folder or ".")
        return self.number(status), name


class _RecordedFile(io.FileIO):
    """A file that is written; its writes are recorded."""

    recorder: Recorder

    def write(self, data: Any, /) -> int:
        recorder, data = self.recorder, bytes(data)
        with recorder._lock:
            recorder.may_fail("write", self.name)
            position = os.fstat(self.fileno()).st_size if "a" in self.mode else self.tell()
            size = super().write(data)
            number = recorder.number(os.fstat(self.fileno()))
            recorder.trace.append(Write(number, position, data[:size]))
        return size

    def truncate(self, size: int | None = None, /) -> int:
        recorder = self.recorder
        with recorder._lock:
            recorder.may_fail("truncate", self.name)
            new_size = super().truncate(size)
            recorder.trace.append(Truncate(recorder.number(os.fstat(self.fileno())), new_size))
        return new_size


@contextmanager
def recorded(root: Path, fault: Fault | None = None) -> Iterator[Recorder]:
    """Record what this process does below a folder as long as the context lasts."""
    start, numbers = read_disk(root)
    recorder = Recorder(os.path.join(root, ""), start.copy(), numbers, fault=fault)
    with mock.patch.multiple(os, **_recording(recorder)):
        open_file = _open_of(recorder)
        with (
            mock.patch.object(io, "open", open_file),
            mock.patch.object(builtins, "open", open_file),
        ):
            yield recorder


def _recording(recorder: Recorder) -> dict[str, Callable[..., Any]]:
    """Return the functions of `os` that take the places of its own ones."""
    real = {
        name: getattr(os, name)
        for name in ("open", "fdopen", "replace", "rename", "link", "unlink", "remove", "mkdir",
                     "rmdir", "fsync", "truncate", "ftruncate", "symlink")
    }  # fmt: skip
    trace, entry, number = recorder.trace, recorder.entry, recorder.number

    def open_(path: Any, flags: int, *more: Any, **options: Any) -> int:
        with recorder._lock:
            dir_fd = options.get("dir_fd")
            if not recorder.is_ours(path if dir_fd is None else dir_fd):
                return int(real["open"](path, flags, *more, **options))
            is_new = bool(flags & os.O_CREAT) and not _exists(path, dir_fd)
            recorder.may_fail("create" if is_new else "open", path)
            is_emptied = bool(flags & os.O_TRUNC) and not is_new
            descriptor = int(real["open"](path, flags, *more, **options))
            _record_opened(recorder, path, dir_fd, descriptor, is_new=is_new, is_emptied=is_emptied)
            return descriptor

    def fdopen(descriptor: int, mode: str = "r", buffering: int = -1, *more: Any, **o: Any) -> Any:
        return open(descriptor, mode, buffering, *more, **o)  # the recorded one

    def move(old: Any, new: Any, *, src_dir_fd: Any = None, dst_dir_fd: Any = None) -> None:
        if not recorder.is_ours(new):
            real["replace"](old, new)
            return
        with recorder._lock:
            recorder.may_fail("replace", new)
            moved = number(os.stat(old, follow_symlinks=False))
            source, target = entry(old, src_dir_fd), entry(new, dst_dir_fd)
            real["replace"](old, new, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
            trace.append(Names(((*source, None), (*target, moved))))

    def link(old: Any, new: Any, **options: Any) -> None:
        if not recorder.is_ours(new):
            real["link"](old, new, **options)
            return
        with recorder._lock:
            recorder.may_fail("link", new)
            real["link"](old, new, **options)
            trace.append(Names(((*entry(new), number(os.stat(new, follow_symlinks=False))),)))

    def symlink(target: Any, path: Any, *more: Any, **options: Any) -> None:
        real["symlink"](target, path, *more, **options)
        if recorder.is_ours(path):
            raise NotImplementedError("no verb makes links")

    def remove(call: Callable[..., Any]) -> Callable[..., None]:
        def recorded_removal(path: Any, *, dir_fd: int | None = None) -> None:
            if not recorder.is_ours(path if dir_fd is None else dir_fd):
                call(path, dir_fd=dir_fd)
                return
            with recorder._lock:
                recorder.may_fail("unlink", path)
                place = entry(path, dir_fd) if _exists(path, dir_fd) else None
                call(path, dir_fd=dir_fd)
                assert place is not None
                trace.append(Names(((*place, None),)))

        return recorded_removal

    def mkdir(path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        if not recorder.is_ours(path):
            real["mkdir"](path, mode, dir_fd=dir_fd)
            return
        with recorder._lock:
            recorder.may_fail("mkdir", path)
            real["mkdir"](path, mode, dir_fd=dir_fd)
            folder = number(os.stat(path), is_new=True)
            # A folder is there with its name. It has no names in it, which `setdefault` gives.
            recorder.start.folders.setdefault(folder, {})
            trace.append(Names(((*entry(path, dir_fd), folder),)))

    def fsync(descriptor: int) -> None:
        if not recorder.is_ours(descriptor):
            real["fsync"](descriptor)
            return
        with recorder._lock:
            recorder.may_fail("fsync", descriptor)
            trace.append(Sync(number(os.fstat(descriptor))))

    def truncate(path: Any, size: int) -> None:
        if not recorder.is_ours(path):
            real["truncate"](path, size)
            return
        with recorder._lock:
            recorder.may_fail("truncate", path)
            real["truncate"](path, size)
            status = os.fstat(path) if isinstance(path, int) else os.stat(path)
            trace.append(Truncate(number(status), size))

    return {
        "open": open_, "fdopen": fdopen, "replace": move, "rename": move, "link": link,
        "unlink": remove(real["unlink"]), "remove": remove(real["remove"]), "mkdir": mkdir,
        "rmdir": remove(real["rmdir"]), "fsync": fsync, "truncate": truncate,
        "ftruncate": truncate, "symlink": symlink,
    }  # fmt: skip


def _exists(path: Any, dir_fd: int | None) -> bool:
    try:
        os.stat(path, dir_fd=dir_fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _record_opened(
    recorder: Recorder,
    path: Any,
    dir_fd: int | None,
    descriptor: int,
    *,
    is_new: bool,
    is_emptied: bool,
) -> None:
    status = os.fstat(descriptor)
    if is_new:
        file = recorder.number(status, is_new=True)
        recorder.trace.append(Names(((*recorder.entry(path, dir_fd), file),)))
    elif is_emptied:
        recorder.trace.append(Truncate(recorder.number(status), 0))


def _open_of(recorder: Recorder) -> Callable[..., Any]:
    """Return the function that takes the place of `open`."""
    real = io.open

    def open_(file: Any, mode: str = "r", buffering: int = -1, *more: Any, **options: Any) -> Any:
        if not recorder.is_ours(file):
            return real(file, mode, buffering, *more, **options)
        if not set(mode) & set("wax+"):
            if not isinstance(file, int):
                recorder.may_fail("open", file)
            return real(file, mode, buffering, *more, **options)
        binary = mode.replace("b", "").replace("t", "")
        with recorder._lock:
            is_new = not isinstance(file, int) and not _exists(file, None)
            if not isinstance(file, int):
                recorder.may_fail("create" if is_new else "open", file)
            raw = _RecordedFile(file, binary)
            raw.recorder = recorder
            if not isinstance(file, int):
                _record_opened(
                    recorder, file, None, raw.fileno(), is_new=is_new, is_emptied="w" in mode
                )
        if buffering == 0:
            return raw
        stream = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
        return stream if "b" in mode else io.TextIOWrapper(stream, *more, **options)

    return open_
