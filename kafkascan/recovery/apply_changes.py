"""Apply planned file changes in a crash-safe order."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from kafkascan.broker_state.checkpoints import LEADER_EPOCH_CHECKPOINT
from kafkascan.format.errors import CHANGED_WHILE_READ, SourceReadError
from kafkascan.io.atomic_files import (
    AtomicFile,
    behind_link,
    holds,
    replace_files,
    sync_folder,
)
from kafkascan.io.file_identity import FileIdentity, require_missing
from kafkascan.recovery.loading.planned_files import Action, Change, Part, PlannedFiles, Split

_COPY_BYTES = 1 << 24
_FILES_PER_STEP = 128


def _steps(changes: list[Change]) -> Iterator[list[Change]]:
    """
    Yield the changes in steps: several files to write, or one other change.

    A step is durable before the next one. Leader epochs are a step of their own: a restart skips
    segments that have indexes, and would miss their epochs.
    """
    for (is_write, _), group in itertools.groupby(
        changes,
        lambda one: (one.action is Action.WRITE, one.name == LEADER_EPOCH_CHECKPOINT),
    ):
        run, size = list(group), _FILES_PER_STEP if is_write else 1
        yield from (run[first : first + size] for first in range(0, len(run), size))


class ChangeApplier:
    """
    Applies the changes of a folder, step by step.

    Parameters
    ----------
    files : PlannedFiles
    changes : list of Change
        Changes of these files, in their order.
    backup : bool
        Keep files that are replaced, truncated or dropped.

    Attributes
    ----------
    applied : list of Change
        The changes that were made.
    error : Exception or None
        The error that ended the work.
    """

    def __init__(self, files: PlannedFiles, changes: list[Change], *, backup: bool) -> None:
        self.applied: list[Change] = []
        self.error: Exception | None = None
        self._files, self._backup = files, backup
        self._logs = files.logs_as_read()
        self._splits = {one.change: one for one in files.splits()}
        self._steps = deque(_steps(changes))

    @property
    def folder(self) -> Path:
        """The folder with the files."""
        return self._files.folder

    @property
    def has_steps(self) -> bool:
        """Whether steps remain and none has failed."""
        return self.error is None and bool(self._steps)

    @property
    def writes_next(self) -> bool:
        """Whether the next step is to write files."""
        return self._steps[0][0].action is Action.WRITE

    def check_logs(self) -> None:
        """Set `error` if logs are not those that were read, except for the applied changes."""
        mine = {name for one in self.applied for name in (one.name, one.old_name)}
        splits = (self._splits[one] for one in self.applied if one.action is Action.SPLIT)
        mine |= {part.name for split in splits for part in split.parts}
        try:
            for name, log in self._logs.items():
                if name not in mine:
                    log.require_unchanged()
            for name in os.listdir(self.folder):
                if name.endswith(".log") and name not in mine and name not in self._logs:
                    require_missing(self.folder / name)
        except OSError as error:
            self.error = self.error or error

    def apply_step(self) -> None:
        """Apply the next step; set `error` if it fails."""
        try:
            if self.writes_next:
                _write_files([self])
            else:
                (change,) = self._steps[0]
                if change.action is Action.SPLIT:
                    _split(self._splits[change], self._files, backup=self._backup)
                else:
                    _apply(change, self._files, self._deleted(), backup=self._backup)
            self.finish_step()
        except OSError as error:
            self.error = error

    def _deleted(self) -> set[str]:
        return {one.name for one in self.applied if one.action is Action.DELETE}

    def sync_folder(self) -> None:
        """Make the names in the folder durable, those of up-to-date files, too."""
        sync_folder(self._files.folder)

    def finish_step(self) -> None:
        """Record that the next step was applied."""
        self.applied += self._steps.popleft()

    def files_to_write(self) -> Iterator[tuple[Path, bytes, Path]]:
        """Yield path, content and template of the next step's files, except up-to-date files."""
        template = _template(self._files.folder)
        for change in self._steps[0]:
            path, data = self._files.folder / change.name, self._files.read(change.name)
            # An interrupted step may have written it.
            if not holds(os.fspath(path), data):
                yield path, data, path if path.exists() else template

    def back_up(self, path: Path) -> None:
        """Keep a file that is about to be replaced, unless it changed since it was read."""
        _require_as_read(path, self._files.as_renamed(path.name))
        _back_up(path, backup=self._backup)


def _template(folder: Path) -> Path:
    """Return the file whose owner and mode new files get: a log."""
    logs = (entry.name for entry in os.scandir(folder) if entry.name.endswith(".log"))
    return folder / min(logs, default="")


def apply_all(appliers: list[ChangeApplier]) -> None:
    """
    Apply the changes of several folders, a step of each at a time, and sync files together.

    No change is made in a folder with a log that changed since the plan was made from it. A log
    that changes later, so that its new side files may not be its own, is an error in the end.
    """
    for applier in (done := appliers):
        applier.check_logs()
    while appliers := [applier for applier in appliers if applier.has_steps]:
        writing = [applier for applier in appliers if applier.writes_next]
        for applier in appliers:
            if applier not in writing:
                applier.apply_step()
        _write_together(writing)
    for applier in done:
        applier.check_logs()


def _write_together(appliers: list[ChangeApplier]) -> None:
    """Write the files of several folders; if that fails, write those of each folder separately."""
    if not appliers:
        return
    try:
        _write_files(appliers)
    except OSError:
        for one in appliers:
            one.apply_step()
    else:
        for one in appliers:
            one.finish_step()


def _write_files(appliers: list[ChangeApplier]) -> None:
    """Write the files of the next step of several folders, and make them durable."""
    files = (file for one in appliers for file in one.files_to_write())
    applier_of = {one.folder: one for one in appliers}
    replace_files(files, before=lambda path: applier_of[path.parent].back_up(path))
    for one in appliers:
        one.sync_folder()


def _require_as_read(path: Path, file: FileIdentity | None) -> None:
    """Raise an error if a path has another file than when the plan was made."""
    if file is None:
        require_missing(path)
    else:
        file.require_unchanged()


def _apply(change: Change, files: PlannedFiles, deleted: set[str], *, backup: bool) -> None:
    folder, path = files.folder, files.folder / change.name
    if change.action is Action.DELETE:
        _require_as_read(path, files.as_read(change.name))
        if backup:
            os.replace(path, _free_name(path))
        else:
            path.unlink()
    elif change.action is Action.RENAME:
        old_path = folder / str(change.old_name)
        _require_as_read(old_path, files.as_read(old_path.name))
        _require_as_read(path, None if path.name in deleted else files.as_read(path.name))
        _back_up(path, backup=backup)
        os.replace(old_path, path)
    else:
        assert change.new_size is not None
        _truncate(files.shortened_log(change.name), change.new_size, backup=backup)
    sync_folder(folder)


def _back_up(path: Path, *, backup: bool) -> None:
    """Give a file that is about to be replaced a second name, as its backup."""
    if not backup or not path.exists():
        return
    name = _free_name(path)
    try:
        os.link(behind_link(path), name)
    except OSError:  # not every file system supports links
        with open(path, "rb") as old, AtomicFile(name, like=path) as file:
            shutil.copyfileobj(old, file.stream, _COPY_BYTES)


def _free_name(path: Path) -> Path:
    """Return the name of a backup that does not exist yet."""
    name, number = path.with_name(f"{path.name}.bak"), 1
    while os.path.lexists(name):
        number += 1
        name = path.with_name(f"{path.name}.bak{number}")
    return name


def _truncate(log: FileIdentity, size: int, *, backup: bool) -> None:
    """Truncate a log, unless it changed since it was read."""
    path = Path(log.path)
    with contextlib.ExitStack() as undo:
        if backup:
            undo.callback(_copy_tail(path, size).unlink)
        log.require_unchanged()
        undo.pop_all()
    with open(path, "r+b") as file:
        file.truncate(size)
        file.flush()
        os.fsync(file.fileno())


def _copy_tail(path: Path, size: int) -> Path:
    """Copy the bytes of a log that are about to be discarded; return the path of the copy."""
    tail = _free_name(path.with_name(f"{path.name}.tail-{size}"))
    with open(path, "rb") as log, AtomicFile(tail, like=path) as file:
        log.seek(size)
        shutil.copyfileobj(log, file.stream, _COPY_BYTES)
    return tail


# ---- splitting logs --------------------------------------------------------------------------


def _split(split: Split, files: PlannedFiles, *, backup: bool) -> None:
    """
    Replace a log by its parts, as ``LocalLog.replaceSegments`` does.

    A restart discards the parts unless all of them are ``.swap`` files. From then on, a restart
    finishes the replacement: it deletes the replaced files and renames the parts.
    """
    folder = files.folder
    parts = _write_parts(split, files)
    for name in reversed(parts):
        os.replace(folder / f"{name}.cleaned", folder / f"{name}.swap")
        # A restart finishes a replacement by the first parts alone: the last ones come first.
        sync_folder(folder)
    for name in split.replaced:
        if backup and os.path.lexists(folder / name):
            os.replace(folder / name, _free_name(folder / name))
        else:
            (folder / name).unlink(missing_ok=True)
    sync_folder(folder)
    for name in parts:
        _back_up(folder / name, backup=backup)
        os.replace(folder / f"{name}.swap", folder / name)
    sync_folder(folder)


def _write_parts(split: Split, files: PlannedFiles) -> list[str]:
    """Write parts and their indexes as ``.cleaned`` files; return their final names."""
    folder, names = files.folder, list[str]()
    log = folder / split.change.name
    try:
        for part in split.parts:
            names.append(part.name)
            with AtomicFile(folder / f"{part.name}.cleaned", like=log) as file:
                _copy_part(log, part, file.stream)
            for kind in ("index", "timeindex"):
                names.append(f"{part.name.removesuffix('log')}{kind}")
                with AtomicFile(folder / f"{names[-1]}.cleaned", like=log) as file:
                    file.stream.write(files.read(names[-1]))
        files.shortened_log(log.name).require_unchanged()
    except BaseException:  # a full disk must not stay full
        for name in names:
            (folder / f"{name}.cleaned").unlink(missing_ok=True)
        raise
    return names


def _copy_part(path: Path, part: Part, copy: IO[bytes]) -> None:
    """Copy a range, with the modification time: retention may depend on it."""
    with open(path, "rb") as log:
        log.seek(part.start)
        left = part.stop - part.start
        while left:
            data = log.read(min(left, _COPY_BYTES))
            if not data:
                reason = "the file was truncated"
                raise SourceReadError(str(path), part.stop - left, reason, CHANGED_WHILE_READ)
            copy.write(data)
            left -= len(data)
        copy.flush()
        times = os.fstat(log.fileno())
        os.utime(copy.fileno(), ns=(times.st_atime_ns, times.st_mtime_ns))
