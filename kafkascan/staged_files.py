"""What is to become of the files of a folder, decided before any of them is touched."""

from __future__ import annotations

import enum
import os
from dataclasses import dataclass
from pathlib import Path

from kafkascan.files import holds, read_up_to


class Action(enum.StrEnum):
    """What happens to a file."""

    RENAME = "rename"
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
        In bytes; None where there is no such file.
    old_name : str or None
        Of a file that is renamed.
    shortens_log : bool
        Whether a part of the log is given up by it.
    """

    action: Action
    name: str
    reason: str
    old_size: int | None
    new_size: int | None
    old_name: str | None = None
    shortens_log: bool = False


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
        self._at_first: set[str] = set()

    def names(self) -> list[str]:
        """Names of the files that there would be."""
        return sorted({*self._origin, *self._written})

    def __contains__(self, name: str) -> bool:
        return name in self._origin or name in self._written

    def path(self, name: str) -> str:
        """Return the path that a file would have."""
        return self._prefix + name

    def origin(self, name: str) -> str:
        """Return where the bytes of a file are that is not written anew."""
        return self._prefix + self._origin[name]

    def size(self, name: str) -> int:
        """Return the size that a file would have, in bytes."""
        if name in self._written:
            return len(self._written[name])
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

    def write(self, name: str, data: bytes, reason: str) -> None:
        """Let a file have these bytes; if it has them on disk, nothing is noted."""
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
        if size < self.size(name):
            self._sizes[name] = size
            self._reasons[name] = reason

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
        origin = self._origin.pop(name, None)
        if origin is not None:
            size = self._size_on_disk(origin)
            self._gone[origin] = Change(
                Action.DELETE, origin, reason, size, None, shortens_log=shortens_log
            )
            if at_first:
                self._at_first.add(origin)

    def rename(self, old: str, new: str, reason: str) -> None:
        """Give a file another name; a file of that name is replaced."""
        self.delete(new, reason)
        self._origin[new] = self._origin.pop(old)
        self._reasons[new] = reason

    def changes(self) -> list[Change]:
        """
        Return what there is to do, in an order that may be interrupted anywhere.

        What was superseded goes before what replaces it gets its name, as Kafka does it.
        Segments behind damage go before the damage does, which says that they must go.
        Other files go when those that are written are there.
        """
        deleted = [change for name, change in sorted(self._gone.items()) if name not in self]
        return [
            *(change for change in deleted if change.name in self._at_first),
            *self._renamed(),
            *(change for change in deleted if change.shortens_log),
            *self._truncated(),
            *self._rewritten(),
            *(
                change
                for change in deleted
                if change.name not in self._at_first and not change.shortens_log
            ),
        ]

    def _renamed(self) -> list[Change]:
        return [
            Change(
                Action.RENAME,
                new,
                self._reasons[new],
                self._old_size(new),
                self._size_on_disk(old),
                old,
            )
            for new, old in sorted(self._origin.items())
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
