"""Run `kafkascan` commands: in this process, or in a process of their own."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from kafkascan.cli import commands
from tests.support.paths import GOLDEN
from tests.support.waiting import HANG_SECONDS

DATA = GOLDEN / "kafka-4.4.0" / "data"
KILLED = GOLDEN / "kafka-4.4.0-killed" / "data"
LEGACY = GOLDEN / "kafka-2.8.2" / "data"


@dataclass(frozen=True)
class Done:
    """Exit code and output of a finished command."""

    returncode: int
    stdout: str
    stderr: str


def run(*arguments: object) -> Done:
    """
    Run a command in this process.

    A process of its own takes ten times as long. It is needed only by tests of signals,
    descriptors, the environment and the start of the program.
    """
    with _stream() as out, _stream() as err:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = commands.invoke([str(argument) for argument in arguments])
            out.flush()
            err.flush()
        return Done(code, _content(out), _content(err))


def run_process(*arguments: object) -> Done:
    """Run a command in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "kafkascan", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG_SECONDS,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def rows(*arguments: object, code: int = 0) -> list[dict[str, Any]]:
    """Run a command in this process; return the rows that it prints as JSON."""
    done = run(*arguments, "--format", "json")
    assert done.returncode == code, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def _stream() -> IO[str]:
    """Return a text file with the error handler that the program gives to its streams."""
    return tempfile.NamedTemporaryFile("w", encoding="utf-8", errors="backslashreplace")


def _content(stream: IO[str]) -> str:
    """Read by name: a command that cannot write redirects the descriptor."""
    return Path(stream.name).read_text("utf-8")
