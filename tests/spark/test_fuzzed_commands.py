"""Command lines by chance, of the commands that run on Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.shared_session import Builder, Session
from tests.support.fuzzed_lines import COMMANDS, try_command_lines

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LINES = 20
_COMMANDS = [names for names in COMMANDS if names[0] == "spark"]


@pytest.fixture
def session(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands use the shared session, unless they cannot reach the one that they name."""
    from pyspark.sql import SparkSession

    monkeypatch.setattr(SparkSession, "builder", Builder(Session(spark)))
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)


@pytest.mark.usefixtures("session")
def test_command_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    try_command_lines(_COMMANDS, range(LINES), tmp_path, monkeypatch)


@pytest.mark.slow
@pytest.mark.usefixtures("session")
def test_many_command_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    try_command_lines(_COMMANDS, range(LINES, 300), tmp_path, monkeypatch)
