"""Changes that were noted down, made in steps that may be interrupted anywhere."""

from __future__ import annotations

import itertools
import os
import re
import shutil
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from kafkascan.errors import SourceReadError
from kafkascan.files import AtomicFile, behind_link, holds, replace_files, sync_folder
from kafkascan.staged_files import Action, Change, Part, Split, StagedFiles

_HALF_WRITTEN = re.compile(r"\.(\d{20}\.\w+(\.cleaned)?|leader-epoch-checkpoint)\..*\.part")
_COPIED_AT_ONCE = 1 << 24
_WRITTEN_AT_ONCE = 128


def sweep(folder: Path) -> None:
    """Take away what was being written when a recovery before this one was killed."""
    for entry in os.scandir(folder):
        if _HALF_WRITTEN.fullmatch(entry.name):
            os.unlink(entry.path)


def _batched(changes: list[Change]) -> Iterator[list[Change]]:
    """Cut changes into those that are made at once: files to be written, or one other."""
    for is_writing, group in itertools.groupby(changes, lambda one: one.action is Action.WRITE):
        some, at_once = list(group), _WRITTEN_AT_ONCE if is_writing else 1
        yield from (some[first : first + at_once] for first in range(0, len(some), at_once))


class Repair:
    """
    What is left to do in a folder, step by step.

    Parameters
    ----------
    files : StagedFiles
    changes : list of Change
        Of these files, in their order.
    backup : bool
        Keep what is replaced, cut off or dropped.

    Attributes
    ----------
    made : list of Change
    error : Exception or None
        What ended the repair.
    """

    def __init__(self, files: StagedFiles, changes: list[Change], *, backup: bool) -> None:
        self.made: list[Change] = []
        self.error: Exception | None = None
        self._files, self._backup = files, backup
        self._splits = {one.change: one for one in files.splits()}
        self._steps = deque(_batched(changes))

    @property
    def has_steps(self) -> bool:
        """Whether there is anything left to do that can be done."""
        return self.error is None and bool(self._steps)

    @property
    def writes_next(self) -> bool:
        """Whether the next step is to write files."""
        return self._steps[0][0].action is Action.WRITE

    def make(self) -> None:
        """Take the next step by itself; an error ends the repair."""
        try:
            if self.writes_next:
                replace_files(self.files(), before=self.keep)
            else:
                (change,) = self._steps[0]
                if change.action is Action.SPLIT:
                    _split(self._splits[change], self._files, backup=self._backup)
                else:
                    _make(change, self._files.folder, backup=self._backup)
            self.note_step()
        except OSError as error:
            self.error = error

    def note_step(self) -> None:
        """Note that a step is done."""
        self.made += self._steps.popleft()

    def files(self) -> Iterator[tuple[Path, bytes, Path]]:
        """Give the files of the next step; but not those that are there already."""
        like = _like_new_ones(self._files.folder)
        for change in self._steps[0]:
            path, data = self._files.folder / change.name, self._files.written(change.name)
            # An interrupted step may have written it.
            if not holds(os.fspath(path), data):
                yield path, data, path if path.exists() else like

    def keep(self, path: Path) -> None:
        """Keep what is about to be replaced."""
        _keep(path, backup=self._backup)


def _like_new_ones(folder: Path) -> Path:
    """Return what new files take after: who may write to a log may write to what belongs to it."""
    logs = (entry.name for entry in os.scandir(folder) if entry.name.endswith(".log"))
    return folder / min(logs, default="")


def make(repairs: list[Repair]) -> None:
    """Make all repairs, a step of each at a time: what is written is made durable together."""
    while repairs := [repair for repair in repairs if repair.has_steps]:
        writing = [repair for repair in repairs if repair.writes_next]
        for repair in repairs:
            if repair not in writing:
                repair.make()
        _write_together(writing)


def _write_together(repairs: list[Repair]) -> None:
    """Write the files of several partitions; if that fails, those of each by themselves."""
    if not repairs:
        return
    try:
        files = (file for one in repairs for file in one.files())
        replace_files(files, before=repairs[0].keep)
    except OSError:
        for one in repairs:
            one.make()
    else:
        for one in repairs:
            one.note_step()


def _make(change: Change, folder: Path, *, backup: bool) -> None:
    path = folder / change.name
    if change.action is Action.DELETE:
        if backup:
            os.replace(path, _free_name(path))
        else:
            path.unlink()
    elif change.action is Action.RENAME:
        _keep(path, backup=backup)
        os.replace(folder / str(change.old_name), path)
    else:
        assert change.new_size is not None
        _cut_off(path, change.new_size, backup=backup)
    sync_folder(folder)


def _keep(path: Path, *, backup: bool) -> None:
    """Give a file that is about to be replaced a second name."""
    if not backup or not path.exists():
        return
    name = _free_name(path)
    try:
        os.link(behind_link(path), name)
    except OSError:  # not every file system has links
        with open(path, "rb") as old, AtomicFile(name, like=path) as file:
            shutil.copyfileobj(old, file.stream, _COPIED_AT_ONCE)


def _free_name(path: Path) -> Path:
    """Return the name of a backup that is not there yet."""
    name, number = path.with_name(f"{path.name}.bak"), 1
    while os.path.lexists(name):
        number += 1
        name = path.with_name(f"{path.name}.bak{number}")
    return name


def _cut_off(path: Path, size: int, *, backup: bool) -> None:
    with open(path, "r+b") as log:
        if backup:
            tail = _free_name(path.with_name(f"{path.name}.tail-{size}"))
            log.seek(size)
            with AtomicFile(tail, like=path) as file:
                shutil.copyfileobj(log, file.stream, _COPIED_AT_ONCE)
        log.truncate(size)
        log.flush()
        os.fsync(log.fileno())


# ---- splitting logs --------------------------------------------------------------------------


def _split(split: Split, files: StagedFiles, *, backup: bool) -> None:
    """
    Put a log's parts in its place, as ``LocalLog.replaceSegments`` does.

    Until all parts are ``.swap`` files, whoever begins anew gives them up; from then on, nothing
    but names is missing, and whoever begins anew gives up what they replace.
    """
    folder = files.folder
    parts = _write_parts(split, files)
    for name in reversed(parts):
        os.replace(folder / f"{name}.cleaned", folder / f"{name}.swap")
    sync_folder(folder)
    for name in split.gone:
        if backup and os.path.lexists(folder / name):
            os.replace(folder / name, _free_name(folder / name))
        else:
            (folder / name).unlink(missing_ok=True)
    sync_folder(folder)
    for name in parts:
        _keep(folder / name, backup=backup)
        os.replace(folder / f"{name}.swap", folder / name)
    sync_folder(folder)


def _write_parts(split: Split, files: StagedFiles) -> list[str]:
    """Write parts and their indexes as ``.cleaned`` files; return the names that they get."""
    folder, names = files.folder, list[str]()
    whole = folder / split.change.name
    try:
        for part in split.parts:
            names.append(part.name)
            with AtomicFile(folder / f"{part.name}.cleaned", like=whole) as file:
                _copy_part(whole, part, file.stream)
            for kind in ("index", "timeindex"):
                names.append(f"{part.name.removesuffix('log')}{kind}")
                with AtomicFile(folder / f"{names[-1]}.cleaned", like=whole) as file:
                    file.stream.write(files.read(names[-1]))
    except BaseException:  # above all, a full disk is not to be left full
        for name in names:
            (folder / f"{name}.cleaned").unlink(missing_ok=True)
        raise
    return names


def _copy_part(whole: Path, part: Part, copy: IO[bytes]) -> None:
    """Copy a range, and the time of the last change, by which brokers may delete segments."""
    with open(whole, "rb") as log:
        log.seek(part.start)
        left = part.stop - part.start
        while left:
            piece = log.read(min(left, _COPIED_AT_ONCE))
            if not piece:
                raise SourceReadError(str(whole), part.stop - left, "the file was truncated")
            copy.write(piece)
            left -= len(piece)
        copy.flush()
        times = os.fstat(log.fileno())
        os.utime(copy.fileno(), ns=(times.st_atime_ns, times.st_mtime_ns))
