"""The tests of the C code on this machine, and CPUs that are refused."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.arm import kernels
from tests.arm.package import required_packages
from tests.support.paths import ROOT

COMPILER = os.environ.get("CC", "cc")
REFUSAL = "kafkascan does not support big-endian CPUs"

pytestmark = pytest.mark.skipif(shutil.which(COMPILER) is None, reason="needs a C compiler")


def build_here(output: Path, *flags: str) -> Path:
    command = [COMPILER, *kernels.FLAGS, *flags, *map(str, kernels.SOURCES), "-o", str(output)]
    subprocess.run(command, check=True)
    return output


@pytest.mark.parametrize("flags", [(), ("-mssse3",)])
def test_kernels_and_headers(tmp_path: Path, flags: tuple[str, ...]) -> None:
    if flags and os.uname().machine != "x86_64":
        pytest.skip("the flags are those of x86-64")
    program = build_here(tmp_path / "test", *flags)
    names = subprocess.run([program], capture_output=True, text=True, check=True).stdout.split()
    assert names[0] == "portable"
    passed = subprocess.run([program, "test"], capture_output=True, text=True, check=True).stdout
    for name in names:
        assert f"crc32c by {name}: correct" in passed
    assert passed.endswith("headers: correct\n")


def test_a_wrong_kernel_fails(tmp_path: Path) -> None:
    """The tests notice a kernel that is wrong for one length only."""
    source = tmp_path / "crc32c.c"
    correct = (ROOT / "csrc" / "crc32c.c").read_text()
    broken = correct.replace(
        "return ~ks_slice_by_8(ieee_table, ~crc, data, size);",
        "return ~ks_slice_by_8(ieee_table, ~crc, data, size) ^ (size == 1203);",
    )
    assert broken != correct
    source.write_text(broken)
    flags = [*kernels.FLAGS, str(kernels.SOURCES[0]), str(source)]
    subprocess.run([COMPILER, *flags, "-o", str(tmp_path / "test")], check=True)
    result = subprocess.run([tmp_path / "test", "test"], capture_output=True, text=True)
    assert result.returncode == 1
    assert "crc32 by portable" in result.stderr


@pytest.mark.parametrize("source", ["crc32c.c", "kafka_layout.h"])
def test_c_for_big_endian_cpus_does_not_compile(source: str) -> None:
    flags = ["-std=c11", "-fsyntax-only", "-Wno-builtin-macro-redefined", "-U__BYTE_ORDER__"]
    flags += ["-D__BYTE_ORDER__=__ORDER_BIG_ENDIAN__", "-x", "c", str(ROOT / "csrc" / source)]
    result = subprocess.run([COMPILER, *flags], capture_output=True, text=True, check=False)
    assert result.returncode != 0
    assert REFUSAL in result.stderr


def test_setup_refuses_big_endian_cpus() -> None:
    program = "import runpy, sys; sys.byteorder = 'big'; sys.argv = ['setup.py', '--version']\n"
    program += f"runpy.run_path({str(ROOT / 'setup.py')!r}, run_name='__main__')"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.returncode == 1
    assert result.stderr.strip() == REFUSAL


def test_packages_of_the_emulated_environment() -> None:
    names = required_packages()
    assert {"numpy", "pyarrow", "pytest", "Cython"} <= {re.split("[<>=[]", one)[0] for one in names}
    assert not any(name.startswith(("kafkascan", "ruff", "mypy")) for name in names)
