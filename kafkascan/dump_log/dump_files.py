"""Dump files as ``DumpLogSegments`` does."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from kafkascan.dump_log.dump_options import DumpOptions
from kafkascan.dump_log.index_dump import (
    IndexComplaints,
    offset_index_lines,
    snapshot_lines,
    time_index_lines,
    transaction_index_lines,
)
from kafkascan.dump_log.log_dump import OffsetGaps, log_lines
from kafkascan.format.errors import CorruptSnapshotError

Write = Callable[[str], object]


class _Complaints:
    """What is printed when all files are dumped, by the file."""

    def __init__(self) -> None:
        self.indexes: dict[Path, IndexComplaints] = {}
        self.gaps: dict[Path, OffsetGaps] = {}

    def text(self) -> str:
        lines: list[str] = []
        for path, one in self.indexes.items():
            pairs = sorted(one.mismatches.items(), reverse=True)
            lines += _listed(f"Mismatches in :{path}", "  Index offset: {}, log offset: {}", pairs)
        for path, one in self.indexes.items():
            title = f"Found timestamp mismatch in :{path}"
            row = "  Index timestamp: {}, log timestamp: {}"
            lines += _listed(title, row, one.wrong_timestamps)
        for path, one in self.indexes.items():
            title = f"Found out of order timestamp in :{path}"
            row = "  Index timestamp: {}, Previously indexed timestamp: {}"
            lines += _listed(title, row, one.unordered)
        for path, one in self.indexes.items():
            title = f"The following indexed offsets are not found in :{path}"
            lines += _listed(title, "Indexed offset: {}, found log offset: {}", one.not_found)
        for path, gaps in self.gaps.items():
            pairs = sorted(gaps.pairs.items())
            lines += _listed(f"Non-consecutive offsets in {path}", "  {} is followed by {}", pairs)
        return "".join(f"{line}\n" for line in lines)


def _listed(title: str, row: str, pairs: Iterable[tuple[int, int]]) -> list[str]:
    found = [row.format(*pair) for pair in pairs]
    return [title, *found] if found else []


def dump_files(files: Iterable[str], options: DumpOptions, write: Write, complain: Write) -> None:
    """
    Dump files in turn.

    Parameters
    ----------
    files : iterable of str
    options : DumpOptions
    write : callable
        Takes text for the standard output, whole lines.
    complain : callable
        Takes text for the standard error: what the tool complains about, after the last file.

    Raises
    ------
    CorruptLogError, OSError, ValueError
        Where the tool ends; what comes before was written. Complaints are lost then, as the
        tool's are.
    """
    complaints = _Complaints()
    for name in files:
        path = Path(name)
        write(f"Dumping {path}\n")
        _dump_file(path, options, complaints, write, complain)
    complain(complaints.text())


def _dump_file(
    path: Path, options: DumpOptions, complaints: _Complaints, write: Write, complain: Write
) -> None:
    _, dot, ending = path.name.rpartition(".")
    if not dot:
        raise ValueError(f"{path}: the name has no suffix")
    suffix = dot + ending
    if suffix in (".log", ".checkpoint"):
        gaps = complaints.gaps.setdefault(path.absolute(), OffsetGaps())
        _write_all(log_lines(path, options, gaps), write)
    elif suffix == ".index":
        found = complaints.indexes.setdefault(path.absolute(), IndexComplaints())
        _write_all(offset_index_lines(path, options, found), write)
    elif suffix == ".timeindex":
        found = complaints.indexes.setdefault(path.absolute(), IndexComplaints())
        _write_all(time_index_lines(path, options, found), write)
    elif suffix == ".txnindex":
        _write_all([transaction_index_lines(path)], write)
    elif suffix == ".snapshot":
        try:
            _write_all([snapshot_lines(path)], write)
        except CorruptSnapshotError as error:
            complain(f"{error}\n")
    else:
        complain(f"Ignoring unknown file {path}\n")


def _write_all(parts: Iterable[list[str]], write: Write) -> None:
    for lines in parts:
        if lines:
            write("\n".join(lines) + "\n")
