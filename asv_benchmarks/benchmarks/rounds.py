"""Measure contenders in alternating rounds, by wall and CPU time, and print tables in Markdown."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from .table import Contenders

_SECONDS = 120


class Cost(NamedTuple):
    """What a run took, in seconds; the CPU time is that of processes and those below them."""

    wall: float
    cpu: float


Costs = dict[str, list[Cost]]
"""The costs of each contender, per round."""


def alternate(contenders: Contenders, rounds: int, processes: Collection[int] = ()) -> Costs:
    """
    Run all contenders once to warm up the JVM, then measure them in alternation.

    Every other round is in reverse order; after two minutes, no other one begins. Without
    `processes`, this one is measured.
    """
    end = time.monotonic() + _SECONDS
    costs: Costs = {name: [] for name in contenders}
    names = list(contenders)
    for number in range(rounds + 1):
        if number > 1 and time.monotonic() > end:
            break
        for name in names:
            cpu, start = cpu_seconds(processes), time.perf_counter()
            contenders[name]()
            cost = Cost(time.perf_counter() - start, cpu_seconds(processes) - cpu)
            if number:
                costs[name].append(cost)
        names.reverse()
    return costs


def cpu_seconds(processes: Collection[int] = ()) -> float:
    """Return the CPU time of processes and of those below them: a JVM and its Python workers."""
    below: dict[int, list[int]] = {}
    used: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        pid = int(path.parent.name)
        below.setdefault(int(fields[1]), []).append(pid)
        # User and system time, including that of ended children.
        used[pid] = sum(map(int, fields[11:15]))
    total, waiting = 0, list(processes or [os.getpid()])
    while waiting:
        pid = waiting.pop()
        total += used.get(pid, 0)
        waiting += below.get(pid, [])
    return total / os.sysconf("SC_CLK_TCK")


def show(title: str, costs: Costs, amount: float, unit: str) -> None:
    """
    Print the median costs of contenders.

    A ratio is how many times as fast as the first contender one is: the median of the ratios within
    a round, so that noise of the machine affects both.
    """
    first = next(iter(costs.values()))
    rows = []
    for name, taken in costs.items():
        cells = [name]
        for kind in range(len(Cost._fields)):
            median = statistics.median(one[kind] for one in taken)
            pairs = zip(first, taken, strict=True)
            # CPU time is counted in ticks of a hundredth of a second.
            ratio = statistics.median(a[kind] / max(b[kind], 0.01) for a, b in pairs)
            cells += [f"{median:.3f}", f"{amount / max(median, 0.01):.2f}", f"{ratio:.2f}"]
        rows.append(cells)
    title += f", rounds: {len(first)}"
    print_table([title, "s", unit, "x", "CPU s", f"{unit} of CPU", "x of CPU"], rows)


def print_table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table whose first column is text."""
    lines = [head, ["---", *["--:"] * (len(head) - 1)], *rows]
    print("\n" + "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines), flush=True)
