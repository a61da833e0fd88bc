"""The source archive is complete; the wheel made from it works without a compiler."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.support.paths import GOLDEN, ROOT

MODULES = {path.stem for path in (ROOT / "kafkascan" / "_core").glob("*.pyx")} | {"_cyutility"}
SEGMENT = GOLDEN / "kafka-4.4.0/data/codecs-java-0/00000000000000000000.log"

# These tests use one source archive and one wheel, so one process runs them.
one_process = pytest.mark.xdist_group("packaging")


def build(kind: str, source: Path, folder: Path) -> Path:
    command = [sys.executable, "-m", "build", f"--{kind}", "--no-isolation", "--outdir", folder]
    result = subprocess.run([*command, source], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    (path,) = folder.iterdir()
    return path


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source archive."""
    clone = tmp_path_factory.mktemp("clone") / "kafkascan"
    leave_out = shutil.ignore_patterns(".*", "build", "dist", "target", "*.so", "__pycache__")
    shutil.copytree(ROOT, clone, ignore=leave_out)  # a build writes beside its sources
    pages = [sys.executable, ROOT / "docs" / "man_pages.py", clone / "docs" / "man"]
    subprocess.run(pages, check=True)
    return build("sdist", clone, tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def wheel(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """
    A wheel built from the source archive alone.

    What the Makefile compiled from the same sources is copied there. setup.py compiles again
    whatever is older than its sources.
    """
    unpacked = tmp_path_factory.mktemp("source")
    with tarfile.open(archive) as file:
        file.extractall(unpacked, filter="data")
    (source,) = unpacked.iterdir()
    for folder in (ROOT / "build").glob("*"):
        if folder.name.startswith(("cython", "lib")):
            shutil.copytree(folder, source / "build" / folder.name, ignore=_not_compiled)
    return build("wheel", source, tmp_path_factory.mktemp("wheel"))


def _not_compiled(_folder: str, names: list[str]) -> list[str]:
    """Name the files that are no compiled modules of today, which would get into the wheel."""
    ends = (".so", ".c", ".h")
    return [
        name
        for name in names
        if "." in name and not (name.endswith(ends) and name.split(".")[0] in MODULES)
    ]


def test_the_source_archive_holds_what_a_build_needs(tmp_path: Path) -> None:
    command = [sys.executable, "setup.py", "-q", "egg_info", "--egg-base", tmp_path]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    listed = set((tmp_path / "kafkascan.egg-info" / "SOURCES.txt").read_text().splitlines())
    kinds = ("*.py", "*.pyi", "*.pyx", "*.pxd", "*.j2", "*.messages", "*.typed", "*.c", "*.h")
    folders = ("kafkascan", "pyspark_kafkascan", "csrc")
    found = [path for name in folders for kind in kinds for path in (ROOT / name).rglob(kind)]
    needed = {str(path.relative_to(ROOT)) for path in found}
    assert len(needed) > 200
    assert needed - listed == set()


@pytest.mark.slow
@one_process
def test_the_wheel_holds_the_package_and_its_types_only(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    package = ROOT / "kafkascan"
    kinds = (".py", ".pyi", ".j2", ".messages")
    sources = [path for path in package.rglob("*") if path.suffix in kinds]
    assert {str(path.relative_to(ROOT)) for path in sources} <= names
    assert "kafkascan/py.typed" in names
    compiled = {Path(name).name.split(".")[0] for name in names if name.endswith(".so")}
    assert compiled == MODULES
    assert not [name for name in names if name.endswith((".pyx", ".pxd", ".c", ".h"))]
    installed = {name.split(".data/data/")[-1] for name in names if ".data/data/" in name}
    assert {f"share/man/man1/kafkascan{verb}.1" for verb in ("", "-audit", "-sql")} <= installed
    others = {name for name in names if ".dist-info" not in name and ".data/data/" not in name}
    assert {name.split("/")[0] for name in others} == {"kafkascan", "pyspark_kafkascan"}


@pytest.mark.slow
@one_process
def test_the_source_archive_installs_where_cython_is_not_installed(
    archive: Path, tmp_path: Path
) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check"]
    alone = os.environ | {"PYTHONPATH": ""}
    without_cython = subprocess.run([python, "-c", "import Cython"], env=alone, check=False,
                                    capture_output=True)  # fmt: skip
    assert without_cython.returncode == 1
    subprocess.run([*pip, "install", "--quiet", f"{archive}[cli]"], env=alone, check=True)
    result = subprocess.run(
        [python.parent / "kafkascan", "verify", SEGMENT, "--format", "csv"],
        env=alone, cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.slow
@one_process
def test_it_works_without_a_compiler(wheel: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    no_compiler = os.environ | {"PATH": str(python.parent), "CC": "/nonexistent", "PYTHONPATH": ""}
    pip = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check"]
    options = ["--quiet", "--no-compile", "--only-binary", ":all:"]
    command = [*pip, "install", *options, f"{wheel}[cli]"]
    subprocess.run(command, env=no_compiler, cwd=tmp_path, check=True)
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
