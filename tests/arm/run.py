"""
Test kafkascan for ARM on an x86-64 machine: cross-compile it and run it under QEMU.

    python -m tests.arm.run --tests tests/unit tests/native tests/damage

First the C kernels on several CPUs and counts of their instructions, then the package. Needs
gcc-aarch64-linux-gnu and qemu-user; for the package, also mmdebstrap (all in Debian) and PyPI. The
time that anything takes under emulation says nothing about ARM.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.arm import kernels, package
from tests.support.paths import ROOT


def missing_programs(with_package: bool) -> list[str]:
    """Return the names of programs that are not installed."""
    needed = [kernels.COMPILER, kernels.QEMU, *(["mmdebstrap", "tar"] if with_package else [])]
    return [program for program in needed if shutil.which(program) is None]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tests; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "arm")
    parser.add_argument(
        "--tests", nargs="*", default=[], help="tests of the package [default: kernels only]"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args(arguments)
    missing = missing_programs(with_package=bool(options.tests))
    if missing:
        print(f"make arm needs {', '.join(missing)} (see CONTRIBUTING.md)", file=sys.stderr)
        return 1
    folder = options.build.resolve()
    kernels.check_kernels(folder / "kernels")
    kernels.print_counts(folder / "kernels")
    if not options.tests:
        return 0
    environment = package.Environment(folder)
    package.create_environment(environment)
    print("Compiling the package for arm64", flush=True)
    package.compile_package(environment)
    return package.run_tests(environment, options.tests, options.jobs)


if __name__ == "__main__":
    sys.exit(main())
