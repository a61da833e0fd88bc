"""README.md shows the real output of commands, and its links exist."""

from __future__ import annotations

import re

import pytest

from tests.house.readme import README, ROOT, blocks, output_of


@pytest.mark.parametrize(("command", "output"), blocks(), ids=lambda value: value[:40])
def test_console_blocks(command: str, output: str) -> None:
    assert output_of(command) == output
    assert output.count("\n") >= 2


def test_readme_has_console_blocks() -> None:
    assert len(blocks()) >= 4


def test_links_exist() -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", README.read_text())
    assert len(links) >= 6
    assert [link for link in links if not (ROOT / link).exists()] == []
