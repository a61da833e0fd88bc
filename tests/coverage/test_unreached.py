"""The list of unreached branches is up to date, and differences from it are reported."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.coverage.unreached import LIST, Line, differences, read_list, unexecuted
from tests.support.paths import ROOT

LISTED = """
# A reason.
csrc/a.h f 2 if (a || b) {
csrc/a.h f 0-1 while (!done) {
"""
A = Line("csrc/a.h", "f", "if (a || b) {")
RACE = Line("csrc/a.h", "f", "while (!done) {")


def test_listed_lines_exist() -> None:
    listed = read_list(LIST.read_text("utf-8"))
    assert len(listed) > 10
    for line in listed:
        texts = [text.strip() for text in (ROOT / line.file).read_text("utf-8").splitlines()]
        assert line.text in texts, line


def test_entries_are_read() -> None:
    assert read_list(LISTED) == {A: (2, 2), RACE: (0, 1)}
    with pytest.raises(ValueError, match="listed twice"):
        read_list(LISTED + "csrc/a.h f 1 if (a || b) {")
    with pytest.raises(ValueError, match="without a reason"):
        read_list(LISTED + "\ncsrc/a.h f 1 if (c) {")


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ({A: 2}, []),
        ({A: 2, RACE: 1}, []),
        ({A: 3}, ["not executed, and 2 listed: csrc/a.h f 3 if (a || b) {"]),
        ({A: 1}, ["executed, but 2 listed: csrc/a.h f 1 if (a || b) {"]),
        (
            {A: 2, Line("csrc/b.h", "g", "if (c) {"): 1},
            ["not executed, and 0 listed: csrc/b.h g 1 if (c) {"],
        ),
    ],
)
def test_differences(found: dict[Line, int], expected: list[str]) -> None:
    assert list(differences(Counter(found), read_list(LISTED))) == expected


def test_branches_and_functions_that_were_not_executed_are_counted(tmp_path: Path) -> None:
    (tmp_path / "a.h").write_text("int f(void) {\n    if (a || b) {\n")
    branches = [{"count": count} for count in (7, 0, 0, 7)]
    lines = [
        {"line_number": 1, "function_name": "f", "branches": []},
        {"line_number": 2, "function_name": "f", "branches": branches},
    ]
    functions = [{"name": "f", "lineno": 1, "execution_count": 0}]
    report = {"files": [{"file": "a.h", "lines": lines, "functions": functions}]}
    assert unexecuted(report, tmp_path) == {
        Line("a.h", "f", "if (a || b) {"): 2,
        Line("a.h", "f", "int f(void) {"): 1,
    }
