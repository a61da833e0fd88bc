"""The output of DumpLogSegments for single files, and its complaints."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.oracle.build import ClassPaths
from tests.oracle.dump import run_dump

PLAIN: tuple[str, ...] = ()
DEEP = ("--deep-iteration",)
VERIFY = ("--verify-index-only",)
SANITY = ("--index-sanity-check",)

_LISTS = {
    "Mismatches in :": "mismatch",
    "Found timestamp mismatch in :": "timestamp mismatch",
    "Found out of order timestamp in :": "out of order",
    "The following indexed offsets are not found in the log.": "not found",
    "Non-consecutive offsets in ": "not consecutive",
}
_NUMBER = re.compile(r"-?\d+")
_INVALID = re.compile(r"^baseOffset: (-?\d+) .* isvalid: false$", re.MULTILINE)
_OLD_INVALID = re.compile(r"^offset: (-?\d+) .* isvalid: false$", re.MULTILINE)
_TRAILING = re.compile(r"^Found (\d+) invalid bytes at the end of ", re.MULTILINE)


@dataclass(frozen=True)
class Complaint:
    """
    One complaint.

    `numbers` are those of its line: for a mismatch, the offsets in the index and in the log.
    """

    what: str
    numbers: tuple[int, ...] = ()


@dataclass(frozen=True)
class Dump:
    """The output of one run of the tool."""

    file: Path
    mode: tuple[str, ...]
    stdout: str
    stderr: str
    complaints: list[Complaint] = field(default_factory=list)


def dump_all(
    requests: Sequence[tuple[Path, tuple[str, ...]]], scratch: Path, class_paths: ClassPaths
) -> list[Dump]:
    """Run the tool over files, each with the options of a mode, in one JVM."""
    arguments = [["--files", str(file), *mode] for file, mode in requests]
    printed = run_dump(arguments, scratch, class_paths.dump)
    return [
        Dump(file, mode, stdout, stderr, list(_complaints(stdout, stderr)))
        for (file, mode), (stdout, stderr) in zip(requests, printed, strict=True)
    ]


def _complaints(stdout: str, stderr: str) -> Iterator[Complaint]:
    for pattern in (_INVALID, _OLD_INVALID):
        for match in pattern.finditer(stdout):
            yield Complaint("bad checksum", (int(match[1]),))
    for match in _TRAILING.finditer(stdout):
        yield Complaint("invalid bytes", (int(match[1]),))
    what = ""
    for line in stderr.splitlines():
        if line.startswith("Exception in thread"):
            yield Complaint("exception")
            continue
        heading = next((name for start, name in _LISTS.items() if line.startswith(start)), None)
        if heading is not None:
            what = heading
        elif line.startswith("  "):
            numbers = tuple(int(number) for number in _NUMBER.findall(line))
            yield Complaint(what, numbers)
