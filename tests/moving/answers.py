"""What of an answer has to be true of one moment."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kafkascan.format.findings import Severity
from kafkascan.tables.table import Problem
from tests.support.command_line import run

Answer = tuple[Any, ...]
"""What an answer consists of."""
Reader = Callable[[Path], Answer]
"""Reads the log in a partition's folder."""
CHANGED = frozenset({"CHANGED_WHILE_READ", "FILE_CHANGED", "FILE_GONE"})
"""Symbols of what says that a log changed while it was read."""


def symbols(problems: Iterable[Problem]) -> tuple[str, ...]:
    """Return what is wrong, without the ends of appends in progress."""
    return tuple(
        sorted({
            # The error of a file that was truncated while it was read says so.
            "FILE_CHANGED" if "the file was truncated" in problem.message else problem.symbol
            for problem in problems
            if (problem.severity is not Severity.NOTE or problem.symbol in CHANGED)
            and not (problem.symbol in ("TORN_TAIL", "ZERO_TAIL") and not problem.rows_missing)
        })
    )  # fmt: skip


def without_place(value: object, path: Path) -> str:
    """Return a text without the place of the data dir, which is another one at each moment."""
    return str(value).replace(str(path.parent), "DATA")


def rows(read: Callable[[Path], Any], *left_out: str) -> Reader:
    """Return a reader of a table, without some of its columns."""

    def answer(path: Path) -> Answer:
        table = read(path)
        found = [
            tuple(value for name, value in row.items() if name not in left_out)
            for row in table.rows()
        ]
        return without_place(found, path), symbols(table.problems)

    return answer


def printed(*arguments: object) -> Reader:
    """Return a reader of what a command prints; `LOG` stands for the folder of the partition."""

    def answer(path: Path) -> Answer:
        places = {"LOG": str(path), "DATA": str(path.parent)}
        words = (
            re.sub("^(LOG|DATA)", lambda name: places[name[0]], str(word)) for word in arguments
        )
        done = run(*words, "--format", "jsonl")
        lines = [json.loads(line).values() for line in done.stdout.splitlines()]
        found = tuple(tuple(without_place(repr(one), path) for one in row) for row in lines)
        if arguments[0] == "records":  # which has the offset first
            found = tuple((int(offset), *rest) for offset, *rest in found)
        return found, *_messages(done.stderr, done.returncode, path)

    return answer


def _messages(stderr: str, code: int, path: Path) -> tuple[list[str], int]:
    """Return messages and exit code without what an append in progress adds."""
    lines = without_place(stderr, path).splitlines()
    tails = [line for line in lines if line.endswith("_TAIL]")]
    found = [line for line in lines if line.endswith("]") or "[Errno" in line if line not in tails]
    # An append in progress is a note, if the log goes on to grow.
    return sorted(found), 0 if len(found) < len(lines) and code == 1 else code


@contextmanager
def empty_log(name: str) -> Iterator[Path]:
    """Make the folder of a partition without batches."""
    with tempfile.TemporaryDirectory() as folder:
        still = Path(folder, name)
        still.mkdir()
        (still / "00000000000000000000.log").touch()
        yield still
