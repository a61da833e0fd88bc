"""Command lines by chance, of all commands that need no Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.fuzzed_lines import COMMANDS, try_command_lines

# Of libraries that open stores.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
LINES, GROUPS = 80, 4
_COMMANDS = [names for names in COMMANDS if names[0] != "spark"]


@pytest.mark.parametrize("group", range(GROUPS))
def test_command_lines(group: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    try_command_lines(_COMMANDS, range(group, LINES, GROUPS), tmp_path, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("group", range(GROUPS))
def test_many_command_lines(group: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    try_command_lines(_COMMANDS, range(LINES + group, 600, GROUPS), tmp_path, monkeypatch)
