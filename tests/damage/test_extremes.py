"""Extreme numbers in files: every command and function ends soon, without a traceback."""

from __future__ import annotations

import json
import re
import signal
import sys
from itertools import combinations, product
from pathlib import Path

import pytest

from tests.support.covering import covering_rows
from tests.support.examples import FEWER, seeds
from tests.support.waiting import IS_SANITIZED
from tests.support.warm_process import run_warm

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the CPU clock of a process"),
    pytest.mark.skipif(IS_SANITIZED, reason="libraries that commands load end under sanitizers"),
]

_PROGRAM = """
import json, sys
from pathlib import Path
from tests.support.extreme_steps import try_families

folder, shares, part, parts = sys.argv[1:]
failed = try_families(Path(folder), json.loads(shares), int(part), int(parts))
sys.exit(1 if failed else 0)
"""
# Shares of the cases that each run tries, and a slow one with all examples; processes that divide
# the latter, each of ten to twenty seconds.
_FAMILIES = {
    "single numbers": (0.006, 0.5, 8),
    "pairs of numbers": (0.0001, 0.005, 4),
    "covered pairs": (0.002, 0.5, 4),
    "names": (0.03, 1.0, 4),
    "offsets": (0.1, 1.0, 1),
    "older formats": (0.04, 1.0, 2),
    "data directories": (0.004, 0.5, 8),
    "messages": (0.07, 1.0, 2),
    "tiers": (0.004, 1.0, 3),
    "registries": (0.006, 1.0, 1),
    "typed values": (0.03, 1.0, 1),
    "arguments": (0.02, 1.0, 1),
}
_PARTS = [
    (family, part) for family, (*_, parts) in _FAMILIES.items() for part in seeds(parts, least=1)
]


def _try(folder: Path, shares: dict[str, float], part: int = 0, parts: int = 1) -> None:
    done = run_warm(_PROGRAM, folder, json.dumps(shares), part, parts)
    if done.returncode:
        pytest.fail(_explained(done.returncode, done.stdout) + done.stderr[-2000:])


def _explained(code: int, said: str) -> str:
    """Return the steps that failed, each with the cases that it read; the last one may hang."""
    lines = said.splitlines()
    if code == -signal.SIGPROF:
        lines.append(lines[-1].replace("trying", "FAILED, as it hangs:", 1))
    cases, found = [], []
    for before, line in zip(["", *lines], lines, strict=False):
        if " is the case: " in line:
            cases = [*cases, line] if " is the case: " in before else [line]
        elif line.startswith("FAILED"):
            named = re.findall(r"data/x-\d+", line)
            found += [one for one in cases if not named or named[0] + " is" in one]
        if not line.startswith("trying") and " is the case: " not in line:
            found.append(line)
    return "\n".join(found)[:20_000]


def test_some_numbers(tmp_path: Path) -> None:
    _try(tmp_path, {family: shares[0] for family, shares in _FAMILIES.items()})


def test_covering_rows_have_every_two_values() -> None:
    for counts in ([9, 7, 7, 7, 9, 12], [2, 3], [1, 1, 1], [5, 1, 4]):
        for changed in range(2, len(counts) + 1):
            rows = list(covering_rows(counts, changed))
            assert all(len(row) <= changed for row in rows)
            for one, other in combinations(range(len(counts)), 2):
                pairs = {(row[one], row[other]) for row in rows if one in row and other in row}
                assert pairs == set(product(range(counts[one]), range(counts[other])))


@pytest.mark.slow
@pytest.mark.parametrize(("family", "part"), _PARTS)
def test_all_numbers(family: str, part: int, tmp_path: Path) -> None:
    _, share, parts = _FAMILIES[family]
    _try(tmp_path, {family: share / FEWER}, part, len(seeds(parts, least=1)))
