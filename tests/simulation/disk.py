"""
A disk that forgets: what is on it after a process was killed, or the power went.

A trace has what a process did to the files of a folder, in order. Of it, POSIX promises only what
was synced: the bytes of a file by `fsync` of the file, the names in a folder by `fsync` of the
folder. Anything later may be on the disk or not, in any order, and a write in part.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

ROOT = 0
_SECTOR = 512


@dataclass(frozen=True)
class Names:
    """Names in folders that change together: a folder, a name, and the file; None removes it."""

    changes: tuple[tuple[int, str, int | None], ...]


@dataclass(frozen=True)
class Write:
    """Bytes that are written to a file."""

    file: int
    position: int
    data: bytes


@dataclass(frozen=True)
class Truncate:
    """A file that gets a size."""

    file: int
    size: int


@dataclass(frozen=True)
class Sync:
    """A file or folder that is synced."""

    file: int


Operation = Names | Write | Truncate | Sync


@dataclass
class Disk:
    """Folders and files by number: the names in a folder, the bytes of a file, links."""

    folders: dict[int, dict[str, int]] = field(default_factory=lambda: {ROOT: {}})
    files: dict[int, bytearray] = field(default_factory=dict)
    links: dict[int, str] = field(default_factory=dict)

    def copy(self) -> Disk:
        """Return a disk that changes apart from this one."""
        return Disk(
            {number: dict(names) for number, names in self.folders.items()},
            {number: bytearray(data) for number, data in self.files.items()},
            dict(self.links),
        )

    def apply(self, operation: Operation) -> None:
        """Do an operation."""
        match operation:
            case Names(changes):
                for folder, name, file in changes:
                    names = self.folders.setdefault(folder, {})
                    if file is None:
                        names.pop(name, None)
                    else:
                        names[name] = file
            case Write(file, position, data):
                content = self.files.setdefault(file, bytearray())
                content.extend(bytes(max(0, position - len(content))))
                content[position : position + len(data)] = data
            case Truncate(file, size):
                content = self.files.setdefault(file, bytearray())
                del content[size:]
                content.extend(bytes(size - len(content)))

    def write_to(self, path: Path) -> None:
        """Write the files into a new folder. A file with several names is one file."""
        written: dict[int, str] = {}
        self._write_folder(ROOT, os.fspath(path), written)

    def _write_folder(self, folder: int, path: str, written: dict[int, str]) -> None:
        os.mkdir(path)
        for name, number in self.folders[folder].items():
            place = f"{path}/{name}"
            if number in self.folders:
                self._write_folder(number, place, written)
            elif number in self.links:
                os.symlink(self.links[number], place)
            elif number in written:
                os.link(written[number], place)
            else:
                with open(place, "wb") as file:
                    file.write(self.files.get(number, b""))
                written[number] = place


def read_disk(path: Path) -> tuple[Disk, dict[tuple[int, int], int]]:
    """Return the files in a folder as a disk, and their numbers by device and inode."""
    disk, numbers = Disk(), dict[tuple[int, int], int]()
    _read_folder(os.fspath(path), disk, numbers)
    return disk, numbers


def _read_folder(path: str, disk: Disk, numbers: dict[tuple[int, int], int]) -> int:
    folder = _number_of(os.stat(path), numbers)
    names = disk.folders.setdefault(folder, {})
    with os.scandir(path) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                names[entry.name] = _read_folder(entry.path, disk, numbers)
                continue
            number = _number_of(entry.stat(follow_symlinks=False), numbers)
            names[entry.name] = number
            if entry.is_symlink():
                disk.links[number] = os.readlink(entry.path)
            else:
                with open(entry.path, "rb") as file:
                    disk.files[number] = bytearray(file.read())
    return folder


def _number_of(status: os.stat_result, numbers: dict[tuple[int, int], int]) -> int:
    return numbers.setdefault((status.st_dev, status.st_ino), len(numbers))


def after_kill(start: Disk, trace: Iterable[Operation]) -> Disk:
    """Return the disk after a process was killed: all that it did is there."""
    disk = start.copy()
    for operation in trace:
        disk.apply(operation)
    return disk


def after_power_loss(start: Disk, trace: list[Operation], dice: random.Random) -> Disk:
    """Return a disk as POSIX allows it after the power went at the end of a trace."""
    disk, synced = start.copy(), _synced(trace)
    # Most file systems keep the order of names; POSIX does not ask for it.
    keeps_order = dice.random() < 0.5
    chance, is_lost = dice.choice((0.0, 0.5, 0.9)), False
    for number, operation in enumerate(trace):
        if number in synced:
            disk.apply(operation)
            continue
        if isinstance(operation, Names):
            is_lost = (keeps_order and is_lost) or dice.random() >= chance
            if not is_lost:
                disk.apply(operation)
        elif dice.random() < chance:
            disk.apply(_torn(operation, dice))
    return disk


def _synced(trace: list[Operation]) -> set[int]:
    """Return the numbers of the operations that a later sync makes durable."""
    found, durable = set(), set[int]()
    for number in range(len(trace) - 1, -1, -1):
        match trace[number]:
            case Sync(file):
                durable.add(file)
            case Names(changes):
                if any(folder in durable for folder, _, _ in changes):
                    found.add(number)
            case Write(file, _, _) | Truncate(file, _):
                if file in durable:
                    found.add(number)
    return found


def _torn(operation: Operation, dice: random.Random) -> Operation:
    """Return what of a write was on the disk when the power went."""
    if not isinstance(operation, Write) or dice.random() < 0.5:
        return operation
    sectors = len(operation.data) // _SECTOR
    size = dice.randint(0, sectors) * _SECTOR
    if dice.random() < 0.5:
        return Write(operation.file, operation.position, operation.data[:size])
    zeros = bytes(len(operation.data) - size)  # the size of the file was written, the bytes not
    return Write(operation.file, operation.position, operation.data[:size] + zeros)
