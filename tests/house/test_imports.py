"""`import kafkascan` loads NumPy only; compiled modules use neither NumPy nor files."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import kafkascan

PACKAGE = Path(kafkascan.__file__).parent


def test_importing_the_package_imports_no_heavy_library_but_numpy() -> None:
    script = (
        "import sys, kafkascan;"
        "print([m for m in ('pyarrow','pandas','polars','duckdb','pyspark','click','rich')"
        " if m in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["no-such-command"]])
def test_the_command_line_starts_without_numpy_and_the_library(arguments: list[str]) -> None:
    script = (
        "import sys; from kafkascan.cli import main; main(sys.argv[1:]);"
        "print([m for m in sys.modules if m in ('numpy', 'rich', 'pyarrow', 'lz4', 'zstandard')"
        " or m.startswith(('kafkascan._core', 'kafkascan.batches'))])"
    )
    result = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=True
    )
    assert result.stdout.splitlines()[-1] == "[]"


def test_no_base_class_is_subscripted_that_older_versions_of_click_do_not_subscript() -> None:
    """Before click 8.4, `click.ParamType` is no generic class: the command line did not start."""
    sources = [*PACKAGE.glob("cli/**/*.py")]
    assert len(sources) >= 10
    assert [path for path in sources if "click.ParamType[" in path.read_text()] == []


def test_compiled_modules_use_neither_numpy_nor_files() -> None:
    sources = [*PACKAGE.glob("_core/*.pyx"), *PACKAGE.glob("_core/*.pxd")]
    assert len(sources) >= 6
    for path in sources:
        text = path.read_text()
        assert not re.search(r"cimport numpy|import numpy|\bopen\(", text), path


def test_public_names_exist_and_are_documented() -> None:
    assert len(kafkascan.__all__) == len(set(kafkascan.__all__)) >= 35
    for name in kafkascan.__all__:
        value = getattr(kafkascan, name)
        if callable(value):
            assert value.__doc__, name


def test_a_name_that_is_missing_is_an_attribute_error_of_the_package() -> None:
    for package in (kafkascan, kafkascan.logs):
        with pytest.raises(AttributeError, match=f"module '{package.__name__}' has no attribute"):
            package.no_such_name  # noqa: B018
