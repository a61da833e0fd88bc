"""README.md shows the real output of commands, and its links exist."""

from __future__ import annotations

import re
import shlex

import pytest

from tests.house.readme import README, ROOT, blocks, output_of
from tests.support.warm_process import run_warm

_KAFKASCAN = "import sys; from kafkascan.cli import main; sys.exit(main())"


def _output(command: str) -> str:
    """Run commands of a shell as they are, and others in a warm process."""
    program, *arguments = shlex.split(command)
    if program != "kafkascan" or set(command) & set("|&;<>$"):
        return output_of(command)
    done = run_warm(_KAFKASCAN, *arguments, folder=ROOT)
    return done.stdout + done.stderr


@pytest.mark.parametrize(("command", "output"), blocks(), ids=lambda value: value[:40])
def test_console_blocks(command: str, output: str) -> None:
    assert _output(command) == output
    assert output.count("\n") >= 2


def test_readme_has_console_blocks() -> None:
    assert len(blocks()) >= 4


def test_links_exist() -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", README.read_text())
    assert len(links) >= 6
    assert [link for link in links if not (ROOT / link).exists()] == []
