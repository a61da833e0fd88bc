"""
Measure how many small changes of the code (mutants) the tests notice.

    python -m tests.mutants.run --count 300 --seed 1

A mutant changes a token of a random line of Python, Cython or C, or drops its statement. First, all
tests run and coverage.py records the lines that they execute. Then each mutant is tested by those
that execute its line, or that use a compiled module which contains it: those that are mostly about
its file first, up to SECONDS of them. A mutant that hangs is noticed. One that does not compile or
import is not counted. Left out are slow tests, those that fail while lines are recorded, and the
folders LEFT_OUT. All of this happens in a copy of the tree, build/mutants.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import os
import platform
import random
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Generator, Iterable, Sequence
from itertools import accumulate, chain
from pathlib import Path

import coverage
import pytest

from tests.mutants.changes import Mutant, find_mutants
from tests.support.paths import ROOT

BUILD = ROOT / "build" / "mutants"
TREE = BUILD / "tree"
NATIVE = "kafkascan/_core", "csrc", "build/cython"
COMPILE = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
RECORD = [
    *("-n", "auto", "-vv", "--durations=0", "tests", "-p", "tests.mutants.run"),
    *("--cov=kafkascan", "--cov-report="),
]
LEFT_OUT = [f"--ignore=tests/{folder}" for folder in ("oracle", "packaging", "fuzz", "arm")]
SECONDS = 60
IS_X86 = platform.machine() in ("x86_64", "AMD64")
OF_OTHER_CPUS = "crc_arm.h" if IS_X86 else "crc_x86.h"


def run(command: list[str], seconds: float) -> int | None:
    """Run a command in the copy; return its exit code, or None if it hangs."""
    shutil.rmtree(BUILD / "tmp", ignore_errors=True)
    (BUILD / "tmp").mkdir()
    variables = {"CI": "1", "TMPDIR": BUILD / "tmp", "COVERAGE_CORE": "ctrace"}
    variables |= {"PYTHONPATH": TREE, "PYTHONPYCACHEPREFIX": BUILD / "pycache"}
    environment = os.environ | {name: str(value) for name, value in variables.items()}
    with (
        (BUILD / "output.txt").open("w") as log,
        subprocess.Popen(
            command, cwd=TREE, env=environment, stdout=log, stderr=log, start_new_session=True
        ) as child,
    ):
        try:
            return child.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)


def make_copy() -> None:
    """Copy the files that git does not ignore, and compile them fast."""
    shutil.rmtree(BUILD, ignore_errors=True)
    listed = subprocess.check_output(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT)
    for path in filter(os.path.isfile, listed.decode().split()):
        (TREE / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / path, TREE / path)
    setup = (TREE / "setup.py").read_text().replace("-O3", "-O1").replace("depends=C_HEADERS,", "")
    (TREE / "setup.py").write_text(setup)
    run(COMPILE, 3600)
    for folder in NATIVE:
        shutil.copytree(TREE / folder, BUILD / "compiled" / folder)


def users_of(path: str) -> list[Path]:
    """Return the C and Cython files that contain a file's declarations, itself included."""
    files = [*TREE.glob("csrc/*"), *TREE.glob("kafkascan/_core/*.p*x*")]
    users = [TREE / path]
    for user in users:
        used = re.compile(rf'"{user.name}"|_core.{user.name.removesuffix(".pxd")} cimport')
        users += [one for one in files if one not in users and used.search(one.read_text())]
    return users


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """
    Let coverage.py record the test, as --cov-context=test does not with pytest 9.

    Its name is without parameters, and without the group that pytest-xdist appends.
    """
    running = coverage.Coverage.current()
    if running is not None:
        running.switch_context(re.split(r"[\[@]", item.nodeid)[0])
    return (yield)


class Recording:
    """Which tests execute which lines, and for how long. Parameters of tests are ignored."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        output = (BUILD / "output.txt").read_text()
        for seconds, test in re.findall(r"(?m)^([\d.]+)s \w+ +([^\[@\n]+)", output):
            self.seconds[test] += float(seconds)
        self.failed = set(re.findall(r"(?m)^(?:FAILED|ERROR) ([^\[@\s]+)", output))
        data = coverage.CoverageData(str(TREE / ".coverage"))
        data.read()
        self.lines = {
            os.path.relpath(path, TREE): {
                line: set(filter(None, tests)) - self.failed
                for line, tests in data.contexts_by_lineno(path).items()
            }
            for path in data.measured_files()
        }
        self.total = self.count(self.lines)

    def count(self, paths: Iterable[str]) -> Counter[str]:
        """Return how many lines of files each test executes."""
        sets = (tests for path in paths for tests in self.lines.get(path, {}).values())
        return Counter(test for tests in sets for test in tests)

    def select(self, mutant: Mutant) -> list[str]:
        """Return the tests of a mutant, first those that are mostly about its file."""
        counts = self.count([mutant.path])
        if mutant.path.endswith(".py"):
            nodes = ast.walk(ast.parse((TREE / mutant.path).read_text()))
            bodies = [(one.body[0], one) for one in nodes if isinstance(one, ast.FunctionDef)]
            if any(first.lineno <= mutant.line <= one.end_lineno for first, one in bodies):
                lines = self.lines.get(mutant.path, {})
                tests = {test for line in mutant.lines for test in lines.get(line, ())}
                counts = Counter({test: counts[test] for test in tests}) or counts
        else:
            modules = "|".join(one.stem for one in users_of(mutant.path) if one.suffix == ".pyx")
            used = re.compile(rf"_core(\.| import .*\b)({modules})\b")
            counts = self.count(
                path for path in self.lines if used.search((TREE / path).read_text())
            )
            for test in self.total:  # those that call the module themselves
                if used.search((TREE / test.partition("::")[0]).read_text()):
                    counts[test] = self.total[test]
        ordered = sorted(counts, key=lambda test: (-counts[test] / self.total[test], test))
        times = accumulate(self.seconds[test] for test in ordered)
        return [test for test, seconds in zip(ordered, times, strict=True) if seconds < SECONDS]


def is_killed(mutant: Mutant, tests: list[str]) -> bool | None:
    """Return whether tests notice a mutant, or None if it does not compile or import."""
    path, is_native = TREE / mutant.path, not mutant.path.endswith(".py")
    text, module = path.read_text(), re.sub(r"(/__init__)?\.py$", "", mutant.path).replace("/", ".")
    path.write_text(text[: mutant.start] + mutant.new + text[mutant.stop :])
    try:
        for user in users_of(mutant.path) if is_native else ():
            user.touch()
        if is_native and run(COMPILE, 600) != 0:
            return None
        code = run([*PYTEST, "-x", *tests], 60 + 4 * SECONDS) if tests else 0
        imported = f"import {'kafkascan' if is_native else module}"
        if code in (2, 4) and run([sys.executable, "-c", imported], 60) != 0:
            return None
        return code not in (0, 4)
    finally:
        path.write_text(text)
        for folder in NATIVE if is_native else ():
            shutil.copytree(BUILD / "compiled" / folder, TREE / folder, dirs_exist_ok=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw and test mutants; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--count", type=int, default=300, help="number of mutants")
    parser.add_argument("--seed", type=int, default=1, help="seed of their choice")
    options = parser.parse_args(arguments)
    make_copy()
    if run([*PYTEST, *RECORD, *LEFT_OUT], 7200) not in (0, 1):
        print((BUILD / "output.txt").read_text()[-4000:])
        return 1
    recording, by_line = Recording(), defaultdict(list)
    for test in sorted(recording.failed):
        print(f"{test} fails without a mutant, and is left out")
    for path in sorted([*TREE.glob("kafkascan/**/*.py*"), *TREE.glob("csrc/*.[ch]")]):
        if path.suffix in (".py", ".pyx", ".c", ".h") and path.name != OF_OTHER_CPUS:
            name = str(path.relative_to(TREE))
            for mutant in find_mutants(name, path.read_text()):
                by_line[name, mutant.line].append(mutant)
    choice, killed = random.Random(options.seed), defaultdict(list)
    chosen = [choice.choice(mutants) for mutants in by_line.values()]
    choice.shuffle(chosen)
    for mutant in chosen:
        if sum(map(len, killed.values())) == options.count:
            break
        result = is_killed(mutant, recording.select(mutant))
        if result is not None:
            killed[mutant.path.removeprefix("kafkascan/").partition("/")[0]].append(result)
        if result is False:
            print(mutant.show((TREE / mutant.path).read_text()), flush=True)
    for room, results in [*sorted(killed.items()), ("all", list(chain(*killed.values())))]:
        print(f"{room:16} {sum(results):4} of {len(results)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
