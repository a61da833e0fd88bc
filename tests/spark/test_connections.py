"""Tests run again if Spark did not wait for a worker of Python, and only then."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTS = """
import pytest

@pytest.fixture
def driver(tmp_path):
    return tmp_path

folders = []

def test_connects_at_last(driver):
    folders.append(driver)
    if len(folders) < 3:
        raise RuntimeError("Python worker failed to connect back.")
    assert len(set(folders)) == 3

def test_never_connects(driver):
    raise RuntimeError("Python worker failed to connect back.")

def test_without_spark():
    raise RuntimeError("Python worker failed to connect back.")

others = []

def test_other_failures_count_at_once(driver):
    others.append(driver)
    assert len(others) == 2, "another run would pass"
"""


def test_runs(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.spark.conftest", "test_it.py"]
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    result = subprocess.run(
        command,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "3 failed, 1 passed" in result.stdout, result.stdout + result.stderr
    assert "test_connects_at_last" not in result.stdout
