"""What is to become of the files of a folder, decided before any of them is touched."""

from __future__ import annotations

import enum
import os
from dataclasses import dataclass, replace
from pathlib import Path

from kafkascan.files import holds, read_up_to
from kafkascan.sources import FileRange


class Action(enum.StrEnum):
    """What happens to a file."""

    RENAME = "rename"
    SPLIT = "split"
    TRUNCATE = "truncate"
    WRITE = "write"
    DELETE = "delete"


@dataclass(frozen=True)
class Change:
    """
    One file that is not as it should be.

    Attributes
    ----------
    action : Action
    name : str
        Of the file, in its folder; of a file that is renamed, the name it gets.
    reason : str
    old_size, new_size : int or None
        In bytes; None where there is no such file. Of a log that is split, the new size is that
        of all its parts.
    old_name : str or None
        Of a file that is renamed.
    shortens_log : bool
        Whether a part of the log is given up by it, or it is split.
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
    A range of a log that becomes a log by itself.

    Attributes
    ----------
    name : str
        That it gets.
    start, stop : int
        Position of its first byte, and of the one behind its last.
    """

    name: str
    start: int
    stop: int


@dataclass(frozen=True)
class Split:
    """
    A log that is to be cut into parts.

    Attributes
    ----------
    change : Change
    parts : list of Part
        Those that stay, in the order of their names.
    gone : list of str
        What the parts replace: the log, and what belongs to it.
    """

    change: Change
    parts: list[Part]
    gone: list[str]


@dataclass(frozen=True)
class _Whole:
    """A log that is cut into parts: where it is, why it is there, and what goes."""

    origin: str
    reason: str
    gone: tuple[str, ...]


class StagedFiles:
    """
    The files of a folder as they would be after changes that are only noted down.

    Parameters
    ----------
    folder : Path
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._prefix = os.path.join(folder, "")
        # Sizes are asked for where they matter; to ask for all takes as long as reading does.
        self._on_disk = {entry.name: entry for entry in os.scandir(folder) if entry.is_file()}
        # Where the bytes of each file are now.
        self._origin = {name: name for name in self._on_disk}
        self._written: dict[str, bytes] = {}
        self._sizes: dict[str, int] = {}
        self._reasons: dict[str, str] = {}
        # By the name on disk.
        self._gone: dict[str, Change] = {}
        self._first_written: set[str] = set()
        # In the order in which they are to go.
        self._at_first: dict[str, None] = {}
        # Parts of logs by their names, each with the name of its log; those logs by theirs.
        self._parts: dict[str, tuple[str, Part]] = {}
        self._wholes: dict[str, _Whole] = {}

    def names(self) -> list[str]:
        """Names of the files that there would be."""
        return sorted({*self._origin, *self._written, *self._parts})

    def __contains__(self, name: str) -> bool:
        return name in self._origin or name in self._written or name in self._parts

    def path(self, name: str) -> str:
        """Return the path that a file would have."""
        return self._prefix + name

    def origin(self, name: str) -> str:
        """Return where the bytes of a file are that is not written anew."""
        return self._prefix + self._origin[name]

    def source(self, name: str) -> str | FileRange:
        """Return where the bytes of a log are now; those of a part are in the whole."""
        if name not in self._parts:
            return self.origin(name)
        whole, part = self._parts[name]
        path = self._prefix + self._wholes[whole].origin
        return FileRange(path, part.start, part.stop - part.start, self.path(name))

    def size(self, name: str) -> int:
        """Return the size that a file would have, in bytes."""
        if name in self._written:
            return len(self._written[name])
        if name in self._parts:
            return self._parts[name][1].stop - self._parts[name][1].start
        if name in self._sizes:
            return self._sizes[name]
        return self._size_on_disk(self._origin[name])

    def _size_on_disk(self, name: str) -> int:
        return self._on_disk[name].stat().st_size

    def _old_size(self, name: str) -> int | None:
        return self._size_on_disk(name) if name in self._on_disk else None

    def read(self, name: str) -> bytes:
        """Return what would be in a file."""
        if name in self._written:
            return self._written[name]
        return read_up_to(self.origin(name), self.size(name))

    def write(self, name: str, data: bytes, reason: str, *, at_first: bool = False) -> None:
        """
        Let a file have these bytes; if it has them on disk, nothing is noted.

        Parameters
        ----------
        name : str
        data : bytes
        reason : str
        at_first : bool
            Whether it is to be there before anything else is changed.
        """
        if at_first:
            self._first_written.add(name)
        if self._is_on_disk(name, data):
            self._gone.pop(name, None)
            self._written.pop(name, None)
            self._sizes.pop(name, None)
            self._origin[name] = name
        else:
            self._written[name] = data
            self._reasons[name] = reason

    def truncate(self, name: str, size: int, reason: str) -> None:
        """Cut a file off."""
        if size >= self.size(name):
            return
        self._reasons[name] = reason
        if name in self._parts:
            whole, part = self._parts[name]
            self._parts[name] = whole, replace(part, stop=part.start + size)
        else:
            self._sizes[name] = size

    def delete(
        self, name: str, reason: str, *, at_first: bool = False, shortens_log: bool = False
    ) -> None:
        """
        Let there be no such file.

        Parameters
        ----------
        name, reason : str
        at_first : bool
            Whether it must be gone before others are renamed or written.
        shortens_log : bool
            Whether it belongs to a part of the log that is given up.
        """
        self._written.pop(name, None)
        self._sizes.pop(name, None)
        self._parts.pop(name, None)
        origin = self._origin.pop(name, None)
        if origin is not None:
            size = self._size_on_disk(origin)
            self._gone[origin] = Change(
                Action.DELETE, origin, reason, size, None, shortens_log=shortens_log
            )
            if at_first:
                self._at_first[origin] = None

    def rename(self, old: str, new: str, reason: str) -> None:
        """Give a file another name; a file of that name is replaced."""
        self.delete(new, reason)
        self._origin[new] = self._origin.pop(old)
        self._reasons[new] = reason

    def take_apart(
        self, name: str, parts: list[Part], reason: str, *, siblings: list[str], keeps: bool
    ) -> None:
        """
        Cut a log into parts; a file that has the name of one of them is replaced.

        Parameters
        ----------
        name : str
        parts : list of Part
        reason : str
        siblings : list of str
            What goes together with the log.
        keeps : bool
            Whether the log itself stays beside its parts.
        """
        origin, why = self._origin[name], self._reasons.get(name, "")
        gone = [] if keeps else [name, *siblings]
        for one in gone:
            # A replacement that never gets its name must not be taken for that of a part.
            superseded = one != name and self._origin.get(one, one) != one
            self.delete(one, reason, at_first=superseded, shortens_log=not superseded)
        self._wholes[name] = _Whole(origin, why, tuple(gone))
        for part in parts:
            self.delete(part.name, reason)
            self._parts[part.name] = name, part
            self._reasons[part.name] = reason

    def splits(self) -> list[Split]:
        """Return the logs that are cut into parts, unless all of these are given up."""
        found = []
        for name, whole in sorted(self._wholes.items()):
            parts = sorted(
                (part for of, part in self._parts.values() if of == name), key=lambda one: one.name
            )
            if parts:
                size = sum(part.stop - part.start for part in parts)
                old_size = self._size_on_disk(whole.origin)
                why = self._reasons[parts[0].name]
                change = Change(Action.SPLIT, name, why, old_size, size, shortens_log=True)
                gone = [one for one in whole.gone if one == name or one not in self]
                found.append(Split(change, parts, gone))
        return found

    def changes(self) -> list[Change]:
        """
        Return what there is to do, in an order that may be interrupted anywhere.

        What was superseded goes before what replaces it gets its name, as Kafka does it.
        Segments behind damage go before the damage does, which says that they must go.
        Other files go when those that are written are there.
        """
        written = self._rewritten()
        splits = self.splits()
        superseded = [name for name in self._at_first if name in self._gone]
        wholes = [self._wholes[one.change.name] for one in splits]
        split = {name for whole in wholes for name in (whole.origin, *whole.gone)}
        deleted = [
            change
            for name, change in sorted(self._gone.items())
            if name not in self and name not in split
        ]
        return [
            *(change for change in written if change.name in self._first_written),
            *(self._gone[name] for name in superseded if name not in self),
            *self._renamed([one.change.name for one in splits]),
            *(change for change in deleted if change.shortens_log),
            *(one.change for one in splits),
            *self._truncated(),
            *(change for change in written if change.name not in self._first_written),
            *(
                change
                for change in deleted
                if change.name not in self._at_first and not change.shortens_log
            ),
        ]

    def _renamed(self, split: list[str]) -> list[Change]:
        # What is split is put in its place before.
        wholes = {name: (self._wholes[name].origin, self._wholes[name].reason) for name in split}
        whys = {name: (old, self._reasons.get(name, "")) for name, old in self._origin.items()}
        return [
            Change(Action.RENAME, new, why, self._old_size(new), self._size_on_disk(old), old)
            for new, (old, why) in sorted((whys | wholes).items())
            if new != old
        ]

    def _truncated(self) -> list[Change]:
        return [
            Change(
                Action.TRUNCATE,
                name,
                self._reasons[name],
                self._size_on_disk(self._origin[name]),
                size,
                shortens_log=True,
            )
            for name, size in sorted(self._sizes.items())
        ]

    def _rewritten(self) -> list[Change]:
        return [
            Change(Action.WRITE, name, self._reasons[name], self._old_size(name), len(data))
            for name, data in sorted(self._written.items())
        ]

    def _is_on_disk(self, name: str, data: bytes) -> bool:
        return (
            self._origin.get(name, name) == name
            and name in self._on_disk
            and holds(self._prefix + name, data)
        )

    def written(self, name: str) -> bytes:
        """Return the bytes of a file that is written."""
        return self._written[name]
