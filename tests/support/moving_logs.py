"""Changes that a running broker makes to the folder of a log while a command reads it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import kafkascan as ks
from kafkascan.io import folders
from kafkascan.io.source_protocols import FilePins

SEGMENTS = 3
"""How many segments, from the first one on, retention deletes, or the cleaner merges."""

Change = Callable[[Path], None]


def _files(folder: Path, count: int = SEGMENTS) -> list[Path]:
    """Return the files of the first segments, each with its log first, as brokers rename them."""
    kinds = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
    bases = [path.stem for path in sorted(folder.glob("*.log"))[:count]]
    named = (folder / f"{base}{kind}" for base in bases for kind in kinds)
    return [path for path in named if path.exists()]


def retention_begins(folder: Path) -> None:
    """Rename the first segments, as retention does."""
    for path in _files(folder):
        path.rename(path.with_name(path.name + ".deleted"))


def retention_ends(folder: Path) -> None:
    """Delete the first segments, as retention does after ``file.delete.delay.ms``."""
    for path in _files(folder):
        path.unlink()


def cleaner_swaps(folder: Path) -> None:
    """Merge the first segments, as the cleaner does (``LocalLog.replaceSegments``)."""
    files = _files(folder)
    logs = [path for path in files if path.suffix == ".log"]
    base = int(logs[0].stem)
    cleaned = logs[0].with_suffix(".log.cleaned")
    cleaned.write_bytes(b"".join(path.read_bytes() for path in logs))
    batches = ks.scan_batches(cleaned).batches
    new = [cleaned]
    for kind, build in (("index", ks.build_offset_index), ("timeindex", ks.build_time_index)):
        new.append(logs[0].with_suffix(f".{kind}.cleaned"))
        build(batches, base_offset=base).tofile(new[-1])
    of_aborted = [path for path in files if path.suffix == ".txnindex"]
    new.append(logs[0].with_suffix(".txnindex.cleaned"))
    new[-1].write_bytes(b"".join(path.read_bytes() for path in of_aborted))
    swapped = [path.rename(path.with_suffix(".swap")) for path in new]
    # Snapshots stay: they belong to offsets, not to files.
    for path in (path for path in files if path.suffix != ".snapshot"):
        path.rename(path.with_name(path.name + ".deleted"))
    for path in swapped:
        path.rename(path.with_suffix(""))


def cleaner_ends(folder: Path) -> None:
    """Merge the first segments, and delete the old ones."""
    cleaner_swaps(folder)
    for path in folder.glob("*.deleted"):
        path.unlink()


CHANGES: dict[str, Change] = {
    change.__name__: change
    for change in (retention_begins, retention_ends, cleaner_swaps, cleaner_ends)
}


@dataclass
class MovingLog:
    """
    A log that changes right after one of the listings of its folder.

    Attributes
    ----------
    folder : Path
    change : callable
    after : int
        Number of the listing.
    listings : int
        How often the folder was listed.
    """

    folder: Path
    change: Change
    after: int
    listings: int = 0
    _list: Callable[[Path], FilePins] = field(default=folders._settled_files)

    def start(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Hook the listings of folders."""

        def list_folder(path: Path) -> FilePins:
            found = self._list(path)
            if path == self.folder:
                self.listings += 1
                if self.listings == self.after:
                    self.change(self.folder)
            return found

        monkeypatch.setattr(folders, "_settled_files", list_folder)
