"""``kafkascan spark …``: what it prints, and its exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from kafkascan.cli.spark_commands import spark as group
from tests.spark.logs import DATA, damaged_log, segment_path

ROOT = Path(__file__).parents[2]


def test_a_run_from_the_shell(java_home: str, tmp_path: Path) -> None:
    path = segment_path(tmp_path, "bad")
    path.write_bytes(damaged_log().flip(5, 70).log)
    command = ["-m", "kafkascan.spark", "verify", str(tmp_path), str(DATA / "headers-0")]
    options = ["--master", "local[1]", "--format", "jsonl", "--conf", "spark.ui.enabled=false"]
    result = subprocess.run(
        [sys.executable, *command, *options], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode == 1, result.stderr
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(row["topic"], row["badChecksums"]) for row in found] == [("bad", 1), ("headers", 0)]
    assert f"{path}: position 595" in result.stderr
    assert "verify: files 2, " in result.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["verify"], "Missing argument"),
        (["verify", "x", "--conf", "spark.ui"], "is not NAME=VALUE"),
        (["export", "x"], "Missing option '--output'"),
        (["verfy", "x"], "No such command"),
    ],
)
def test_wrong_usage(arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(group, arguments)
    assert result.exit_code == 2
    assert said in result.output


def test_every_job_has_a_command() -> None:
    from kafkascan.spark import jobs

    names = {name.replace("-", "_") for name in group.commands}
    assert names == {
        "verify", "catalog", "export", "rebuild_indexes", "producer_stats", "bad_timestamps"
    }  # fmt: skip
    assert all(callable(getattr(jobs, name)) for name in names)
