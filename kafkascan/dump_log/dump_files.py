"""Dump files as ``DumpLogSegments`` does."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from kafkascan.dump_log.dump_options import DumpOptions
from kafkascan.dump_log.line_output import LineOutput
from kafkascan.dump_log.log_dump import OffsetGaps, dump_log
from kafkascan.format.errors import CorruptSnapshotError
from kafkascan.format.shown_places import shown_url
from kafkascan.io.stores.urls import as_path, is_url

if TYPE_CHECKING:
    from kafkascan.dump_log.index_dump import IndexComplaints

Complain = Callable[[str], object]


class Complaints:
    """What is printed when all files are dumped, by the file."""

    def __init__(self) -> None:
        self.indexes: dict[str, IndexComplaints] = {}
        self.gaps: dict[str, OffsetGaps] = {}

    def text(self) -> str:
        """Return the lines of all complaints."""
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


def dump_files(
    files: Iterable[str],
    options: DumpOptions,
    write: Callable[[memoryview], object],
    complain: Complain,
) -> None:
    """
    Dump files in turn.

    Parameters
    ----------
    files : iterable of str
    options : DumpOptions
    write : callable
        Takes chunks of the standard output, in UTF-8, each valid during the call only.
    complain : callable
        Takes text for the standard error: what the tool complains about, after the last file.

    Raises
    ------
    CorruptLogError, OSError, ValueError
        Where the tool ends; what comes before was written. Complaints are lost then, as the
        tool's are.
    """
    complaints = Complaints()
    output = LineOutput(write)
    try:
        for name in files:
            path = java_path(name)
            output.add([f"Dumping {shown_url(path)}"])
            _dump_file(path, options, complaints, output, complain)
    finally:
        output.flush()
    complain(complaints.text())


def java_path(name: str) -> str:
    """Return a path as Java's ``File`` has it, which keeps ``.`` and ``..``; a URL as it is."""
    if is_url(name):
        return name
    return re.sub("(?<=.)/$", "", re.sub("/+", "/", name))


def absolute_path(name: str) -> str:
    """Return the path that complaints name; a URL without secrets."""
    return shown_url(name) if is_url(name) else os.path.join(os.getcwd(), name)


def _dump_file(
    name: str,
    options: DumpOptions,
    complaints: Complaints,
    output: LineOutput,
    complain: Complain,
) -> None:
    path, full_path = as_path(name), absolute_path(name)
    _, dot, ending = path.name.rpartition(".")
    suffix = dot + ending
    if suffix in (".log", ".checkpoint"):
        gaps = complaints.gaps.setdefault(full_path, OffsetGaps())
        dump_log(path, options, gaps, output)
    elif suffix in (".index", ".timeindex"):
        from kafkascan.dump_log import index_dump

        found = complaints.indexes.setdefault(full_path, index_dump.IndexComplaints())
        for lines in index_dump.index_lines(name, options, found):
            output.add(lines)
    elif suffix in (".txnindex", ".snapshot"):
        _dump_side_file(path, output, complain)
    else:
        complain(f"Ignoring unknown file {shown_url(name)}\n")


def _dump_side_file(path: Path, output: LineOutput, complain: Complain) -> None:
    from kafkascan.dump_log.index_dump import snapshot_lines, transaction_index_lines

    if path.suffix == ".txnindex":
        output.add(transaction_index_lines(path))
        return
    try:
        output.add(snapshot_lines(path))
    except CorruptSnapshotError as error:
        complain(f"{error}\n")
