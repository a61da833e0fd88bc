"""The wheel installs into an empty environment without a compiler, and scans a file."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SEGMENT = ROOT / "tests/golden/kafka-4.4.0/data/codecs-java-0/00000000000000000000.log"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    (path,) = folder.glob("*.whl")
    return path


def test_the_wheel_holds_the_package_and_its_types_only(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "kafkascan/py.typed" in names
    assert "kafkascan/_core/batches.pyi" in names
    modules = len(list((ROOT / "kafkascan" / "_core").glob("*.pyx")))
    assert sum(name.endswith(".so") for name in names) == modules
    assert not [name for name in names if name.endswith((".pyx", ".pxd", ".c", ".h"))]
    assert not [name for name in names if name.startswith("tests")]


def test_it_works_without_a_compiler(wheel: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    no_compiler = os.environ | {"PATH": str(python.parent), "CC": "/nonexistent"}
    subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "--only-binary", ":all:", f"{wheel}[cli]"],
        env=no_compiler,
        check=True,
    )
    result = subprocess.run(
        [python.parent / "kafkascan", "verify", SEGMENT, "--format", "csv"],
        env=no_compiler,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.splitlines()[1].endswith(f",0,CLEAN,{SEGMENT.stat().st_size},0")
