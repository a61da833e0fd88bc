"""
Compare the branches of csrc/ that no test executes with those of `unreached_branches.txt`.

    python -m tests.coverage.unreached REPORT    # a JSON report of gcovr

Fails if a branch is neither executed nor listed, or listed but executed. An entry identifies a
branch by the text of its line, because numbers of lines change with every edit.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.paths import ROOT

LIST = Path(__file__).with_name("unreached_branches.txt")


class Line(NamedTuple):
    """A line with branches. A function may contain several lines with the same text."""

    file: str
    function: str
    text: str


def read_list(text: str) -> dict[Line, tuple[int, int]]:
    """
    Return the least and the largest number of unreached branches of each listed line.

    Entries follow comments with their reason; an empty line ends both.
    """
    listed = {}
    for block in text.split("\n\n"):
        lines = block.strip().splitlines()
        entries = [line for line in lines if not line.startswith("#")]
        if entries and not lines[0].startswith("#"):
            raise ValueError(f"an entry without a reason: {entries[0]}")
        for entry in entries:
            file, function, count, source = entry.split(maxsplit=3)
            least, _, most = count.partition("-")
            line = Line(file, function, source)
            if line in listed:
                raise ValueError(f"listed twice: {entry}")
            listed[line] = int(least), int(most or least)
    return listed


def unexecuted(report: dict[str, Any], root: Path) -> Counter[Line]:
    """
    Count the branches of each line that were not executed; lines without them are omitted.

    A function that was not called counts as a branch of its first line.
    """
    found: Counter[Line] = Counter()
    for file in report["files"]:
        sources = (root / file["file"]).read_text("utf-8").splitlines()

        counts = [
            (line["line_number"], line.get("function_name", "-"), branch["count"])
            for line in file["lines"]
            for branch in line["branches"]
        ]
        counts += [
            (function["lineno"], function["name"], function["execution_count"])
            for function in file["functions"]
        ]
        for number, function, count in counts:
            if count == 0:
                found[Line(file["file"], function, sources[number - 1].strip())] += 1
    return found


def differences(found: Counter[Line], listed: dict[Line, tuple[int, int]]) -> Iterator[str]:
    """Describe each line whose number of unexecuted branches is not the listed one."""
    for line in sorted(found.keys() | listed.keys()):
        least, most = listed.get(line, (0, 0))
        entry = f"{line.file} {line.function} {found[line]} {line.text}"
        if found[line] > most:
            yield f"not executed, and {most} listed: {entry}"
        elif found[line] < least:
            yield f"executed, but {least} listed: {entry}"


def main(path: str) -> int:
    """Print the differences; return the exit code."""
    report = json.loads(Path(path).read_text("utf-8"))
    listed = read_list(LIST.read_text("utf-8"))
    found = unexecuted(report, ROOT)
    wrong = list(differences(found, listed))
    print(*wrong, sep="\n", end="\n" if wrong else "")
    print(f"csrc: {sum(found.values())} branches are not executed; {len(listed)} lines are listed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
