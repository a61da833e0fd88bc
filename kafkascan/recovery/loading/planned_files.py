"""Planned changes of a partition directory, kept in memory until they are applied."""

from __future__ import annotations

import enum
import itertools
import os
from dataclasses import dataclass, replace
from pathlib import Path

from kafkascan.io.atomic_files import holds, read_up_to
from kafkascan.io.file_identity import FileIdentity
from kafkascan.io.folders import DiskFolder
from kafkascan.io.source_protocols import FileRange


class Action(enum.StrEnum):
    """Kind of change to a file."""

    RENAME = "rename"
    SPLIT = "split"
    TRUNCATE = "truncate"
    WRITE = "write"
    DELETE = "delete"


@dataclass(frozen=True)
class Change:
    """
    A planned change of one file.

    Attributes
    ----------
    action : Action
    name : str
        File name within the partition directory. For a rename, the new name.
    reason : str
    old_size, new_size : int or None
        Sizes in bytes before and after the change; None where the file does not exist. For a
        split, `new_size` is the sum over all parts.
    old_name : str or None
        The previous name of a renamed file.
    shortens_log : bool
        Whether the change discards a part of the log, or splits a log.
    """

    action: Action
    name: str
    reason: str
    old_size: int | None
    new_size: int | None
    old_name: str | None = None
    shortens_log: bool = False


@dataclass(frozen=True)
class Part:
    """
    A byte range of a log that becomes a log of its own.

    Attributes
    ----------
    name : str
        File name of the new log.
    start, stop : int
        Positions of its first byte and of the byte after its last.
    """

    name: str
    start: int
    stop: int


@dataclass(frozen=True)
class Split:
    """
    A log that is split, with the parts that remain.

    Attributes
    ----------
    change : Change
    parts : list of Part
        Sorted by name.
    replaced : list of str
        Files that the parts replace: the log and the files that belong to it.
    """

    change: Change
    parts: list[Part]
    replaced: list[str]


@dataclass(frozen=True)
class _Content:
    """
    Origin of the bytes of a planned file.

    Attributes
    ----------
    origin : str or None
        The file on disk that holds them; None for a new file.
    start, stop : int, int or None
        Range of the origin; None for its end.
    split_from : str or None
        The log of which the file is a part.
    data : bytes or None
        The new bytes of a file that is written.
    """

    origin: str | None
    start: int = 0
    stop: int | None = None
    split_from: str | None = None
    data: bytes | None = None


@dataclass(frozen=True)
class _Deletion:
    """The removal of a file on disk."""

    reason: str
    shortens_log: bool
    rank: int | None
    """Position among the files that must be gone before others are renamed or written."""


@dataclass(frozen=True)
class _SplitLog:
    """A log that is split: its file on disk, why it has its name, and what its parts replace."""

    origin: str
    reason: str
    replaced: tuple[str, ...]


@dataclass(slots=True)
class FileState:
    """
    One name in the folder: the file on disk, the planned file, and the reason.

    Attributes
    ----------
    on_disk : os.DirEntry or None
        The file that has this name now.
    content : _Content or None
        The bytes of the file that is to have this name; None if there is to be no such file.
    reason : str
        Why the file is renamed, truncated or written.
    is_written_first : bool
        Whether the file is written before any other change.
    deletion : _Deletion or None
        Set if the file that has this name now is deleted, and not renamed.
    split : _SplitLog or None
        Set if the log of this name is split.
    shortened : FileIdentity or None
        The log that is truncated or split, as it was read.
    """

    on_disk: os.DirEntry[str] | None = None
    content: _Content | None = None
    reason: str = ""
    is_written_first: bool = False
    deletion: _Deletion | None = None
    split: _SplitLog | None = None
    shortened: FileIdentity | None = None


class PlannedFiles:
    """
    The files of a folder as they will be after the planned changes. Nothing is written.

    Parameters
    ----------
    folder : Path

    Attributes
    ----------
    folder : Path
    disk_folder : DiskFolder
        The same.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.disk_folder = DiskFolder(folder)
        self._prefix = os.path.join(folder, "")
        # File sizes are read on demand: a stat of every file takes as long as the recovery.
        with os.scandir(folder) as entries:
            self._states = {
                entry.name: FileState(entry, _Content(entry.name))
                for entry in entries
                if entry.is_file()
            }
        self._ranks = itertools.count()

    # ---- the planned files ------------------------------------------------------------------

    def names(self, suffix: str = "") -> list[str]:
        """Return the names of the planned files that end with a suffix, sorted."""
        states = self._states
        return sorted([name for name in states if name.endswith(suffix) and name in self])

    def names_on_disk(self) -> set[str]:
        """Return the names of the files before all changes."""
        return {name for name, state in self._states.items() if state.on_disk is not None}

    def __contains__(self, name: str) -> bool:
        state = self._states.get(name)
        return state is not None and state.content is not None

    def path(self, name: str) -> str:
        """Return the path of a planned file."""
        return self._prefix + name

    def source(self, name: str) -> str | FileRange | bytes:
        """Return the current location of a planned file's bytes, or the bytes to be written."""
        content = self._content(name)
        if content.data is not None:
            return content.data
        path = self._prefix + str(content.origin)
        if content.split_from is None:
            return path
        return FileRange(path, content.start, self.size(name), self.path(name))

    def size(self, name: str) -> int:
        """Return the size of a planned file, in bytes."""
        content = self._content(name)
        if content.data is not None:
            return len(content.data)
        if content.stop is not None:
            return content.stop - content.start
        return self._size_on_disk(content.origin)

    def read(self, name: str) -> bytes:
        """Return the bytes of a planned file that is not a part of a log."""
        content = self._content(name)
        if content.data is not None:
            return content.data
        return read_up_to(self._prefix + str(content.origin), self.size(name))

    # ---- planning ---------------------------------------------------------------------------

    def write(self, name: str, data: bytes, reason: str, *, at_first: bool = False) -> None:
        """
        Plan the content of a file. A file that has it on disk is not written again.

        Parameters
        ----------
        name : str
        data : bytes
        reason : str
        at_first : bool
            Whether the file must be written before any other change.
        """
        state = self._states.setdefault(name, FileState())
        state.is_written_first |= at_first
        origin = None if state.content is None else state.content.origin
        if state.on_disk and origin in (None, name) and holds(self._prefix + name, data):
            state.content, state.deletion = _Content(name), None
        else:
            state.content = _Content(origin, data=data)
            state.reason = reason

    def truncate(self, name: str, size: int, reason: str) -> None:
        """Plan to truncate a file; a file that is not larger stays as it is."""
        if size >= self.size(name):
            return
        content = self._content(name)
        state = self._states[name]
        state.content = replace(content, stop=content.start + size)
        state.reason = reason
        if content.origin is not None:
            log = self._identity(content.origin)
            state.shortened = log.with_bytes_at(content.start + size)

    def delete(
        self, name: str, reason: str, *, at_first: bool = False, shortens_log: bool = False
    ) -> None:
        """
        Plan to delete a file.

        Parameters
        ----------
        name, reason : str
        at_first : bool
            Whether the file must be gone before others are renamed or written.
        shortens_log : bool
            Whether the file belongs to a discarded part of the log.
        """
        state = self._states.get(name)
        if state is None or state.content is None:
            return
        content, state.content = state.content, None
        if content.origin is not None and content.split_from is None:
            rank = next(self._ranks) if at_first else None
            self._states[content.origin].deletion = _Deletion(reason, shortens_log, rank)

    def rename(self, old: str, new: str, reason: str) -> None:
        """Plan to rename a file, in place of any file that has the new name."""
        self.delete(new, reason)
        state = self._states.setdefault(new, FileState())
        state.content, state.reason = self._content(old), reason
        self._states[old].content = None

    def split_log(
        self, name: str, parts: list[Part], reason: str, *, siblings: list[str], keeps: bool
    ) -> None:
        """
        Plan to split a log, in place of any files that have the names of its parts.

        Parameters
        ----------
        name : str
        parts : list of Part
        reason : str
        siblings : list of str
            Files that are replaced together with the log.
        keeps : bool
            Whether the log itself stays, next to its parts.
        """
        state = self._states[name]
        origin = self._content(name).origin
        assert origin is not None
        replaced = [] if keeps else [name, *siblings]
        for one in replaced:
            # After an interruption, a sibling that still has its .swap name would be taken for
            # the sibling of a part.
            is_renamed = one != name and one in self and self._is_renamed(one)
            self.delete(one, reason, at_first=is_renamed, shortens_log=not is_renamed)
        state.split = _SplitLog(origin, state.reason, tuple(replaced))
        state.shortened = self._identity(origin)
        for part in parts:
            self.delete(part.name, reason)
            of_part = self._states.setdefault(part.name, FileState())
            of_part.content = _Content(origin, part.start, part.stop, split_from=name)
            of_part.reason = reason

    # ---- the changes ------------------------------------------------------------------------

    def splits(self) -> list[Split]:
        """Return the logs that are split, except those of which no part remains."""
        parts: dict[str, list[Part]] = {}
        for name in self.names():
            content = self._content(name)
            if content.split_from is not None and content.stop is not None:
                part = Part(name, content.start, content.stop)
                parts.setdefault(content.split_from, []).append(part)
        return [self._split(name, parts[name]) for name in sorted(parts)]

    def _split(self, name: str, parts: list[Part]) -> Split:
        split = self._states[name].split
        assert split is not None
        old_size = self._size_on_disk(split.origin)
        new_size = sum(part.stop - part.start for part in parts)
        reason = self._states[parts[0].name].reason
        change = Change(Action.SPLIT, name, reason, old_size, new_size, shortens_log=True)
        replaced = [one for one in split.replaced if one == name or one not in self]
        return Split(change, parts, replaced)

    def changes(self) -> list[Change]:
        """
        Return the changes, in an order that may be interrupted at any step.

        Superseded files are deleted before their replacements get their names, as Kafka does.
        Segments after damage are deleted before the damaged log is truncated, because the damage
        is what shows that they have to go. Other files are deleted after all files are written.
        """
        splits = self.splits()
        first, last = self._rewritten()
        dropped, stale = self._deleted(splits)
        ranks = {
            name: state.deletion.rank
            for name, state in self._states.items()
            if state.deletion is not None and state.deletion.rank is not None and name not in self
        }
        return [
            *first,
            *(self._deletion(name) for name in sorted(ranks, key=ranks.__getitem__)),
            *self._renamed(splits),
            *dropped,
            *(split.change for split in splits),
            *self._truncated(),
            *last,
            *stale,
        ]

    def _deleted(self, splits: list[Split]) -> tuple[list[Change], list[Change]]:
        """Return the deletions that shorten the log, and the other ones."""
        replaced = {name for one in splits for name in self._replaced_by(one)}
        names = sorted(name for name in self._states if name not in self and name not in replaced)
        deletions = [(self._states[name].deletion, name) for name in names]
        plain = [(one, name) for one, name in deletions if one is not None and one.rank is None]
        return (
            [self._deletion(name) for one, name in plain if one.shortens_log],
            [self._deletion(name) for one, name in plain if not one.shortens_log],
        )

    def _replaced_by(self, split: Split) -> tuple[str, ...]:
        whole = self._states[split.change.name].split
        return () if whole is None else (whole.origin, *whole.replaced)

    def _deletion(self, name: str) -> Change:
        deletion = self._states[name].deletion
        assert deletion is not None
        size, shortens = self._size_on_disk(name), deletion.shortens_log
        return Change(Action.DELETE, name, deletion.reason, size, None, shortens_log=shortens)

    def _renamed(self, splits: list[Split]) -> list[Change]:
        found = {
            name: (state.content.origin, state.reason)
            for name, state in self._states.items()
            if state.content is not None and state.content.split_from is None
        }
        for one in splits:  # a log gets its name before it is split
            whole = self._states[one.change.name].split
            if whole is not None:
                found[one.change.name] = whole.origin, whole.reason
        return [
            Change(Action.RENAME, new, reason, self._old_size(new), self._size_on_disk(old), old)
            for new, (old, reason) in sorted(found.items())
            if old is not None and old != new
        ]

    def _truncated(self) -> list[Change]:
        found = []
        for name in self.names():
            content = self._content(name)
            if content.stop is not None and content.split_from is None:
                old_size, reason = self._size_on_disk(content.origin), self._states[name].reason
                found.append(
                    Change(Action.TRUNCATE, name, reason, old_size, content.stop, shortens_log=True)
                )
        return found

    def _rewritten(self) -> tuple[list[Change], list[Change]]:
        """Return the files that are written before any other change, and the other ones."""
        found: tuple[list[Change], list[Change]] = [], []
        for name in self.names():
            state, data = self._states[name], self._content(name).data
            if data is not None:
                old_size = self._old_size(name)
                change = Change(Action.WRITE, name, state.reason, old_size, len(data))
                found[0 if state.is_written_first else 1].append(change)
        return found

    # ---- files that others change meanwhile -------------------------------------------------

    def logs_as_read(self) -> dict[str, FileIdentity]:
        """Return the logs that the plan was made from, by their names on disk."""
        names = (name for name in self.names_on_disk() if name.endswith((".log", ".log.swap")))
        return {name: self._identity(name) for name in names}

    def as_read(self, name: str) -> FileIdentity | None:
        """Return the file that had a name when the plan was made; None if there was none."""
        return None if self._states[name].on_disk is None else self._identity(name)

    def as_renamed(self, name: str) -> FileIdentity | None:
        """Return the file that has a name after the planned renames; None if there is none."""
        content = self._states[name].content
        if content is None or content.origin in (None, name):
            return self.as_read(name)
        return self._identity(str(content.origin))._replace(path=self.path(name))

    def shortened_log(self, name: str) -> FileIdentity:
        """Return a log that is truncated or split, as it was read."""
        log = self._states[name].shortened
        assert log is not None
        return log._replace(path=self.path(name))

    # ---- helpers ----------------------------------------------------------------------------

    def _content(self, name: str) -> _Content:
        content = self._states[name].content
        if content is None:
            raise KeyError(name)
        return content

    def _is_renamed(self, name: str) -> bool:
        return self._content(name).origin not in (None, name)

    def _identity(self, name: str) -> FileIdentity:
        entry = self._states[name].on_disk
        assert entry is not None
        return FileIdentity.of_stat(entry.path, entry.stat())

    def _size_on_disk(self, name: str | None) -> int:
        entry = None if name is None else self._states[name].on_disk
        if entry is None:
            raise KeyError(name)
        return entry.stat().st_size

    def _old_size(self, name: str) -> int | None:
        return None if self._states[name].on_disk is None else self._size_on_disk(name)
