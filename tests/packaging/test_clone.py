"""Python that starts in a clone imports the package from its sources."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import GOLDEN, ROOT

SEGMENT = GOLDEN / "kafka-4.4.0/data/codecs-java-0/00000000000000000000.log"
SCAN = f"import kafkascan as ks; print(len(ks.scan_batches({str(SEGMENT)!r}).batches))"


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sources of the package, which nobody has compiled."""
    folder = tmp_path_factory.mktemp("clone")
    compiled = shutil.ignore_patterns("*.so", "__pycache__")
    shutil.copytree(ROOT / "kafkascan", folder / "kafkascan", ignore=compiled)
    return folder


def started(clone: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=clone, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "arguments", [("-c", SCAN), ("-m", "kafkascan", "info", str(SEGMENT))], ids=["python", "-m"]
)
def test_sources_that_are_not_compiled_name_the_remedies(
    clone: Path, arguments: tuple[str, ...]
) -> None:
    done = started(clone, *arguments)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last == (
        f"ImportError: kafkascan was imported from {clone}/kafkascan/, which is not compiled for"
        " this Python. In a clone, run `make demo` and use .venv/bin/python. To use an installed"
        " kafkascan, start Python in another folder, or with -P."
    )


def test_an_installed_package_is_used_with_the_option_p(clone: Path) -> None:
    assert int(started(clone, "-P", "-c", SCAN).stdout) > 10
