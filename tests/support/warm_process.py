"""
Programs in forked children of a process that has already imported what they need.

Starting Python and importing kafkascan takes some hundred times as long as what most programs
of tests do. Programs that are about the start itself, or set variables that are read at import,
need `subprocess`.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.support.waiting import HANG_SECONDS

_SERVER = """
import ctypes, json, os, runpy, signal, sys, traceback
import pyarrow
import kafkascan as ks
import kafkascan.analysis.record_counts, kafkascan.auditing.runner, kafkascan.cli.commands
import kafkascan.logs.log_table, kafkascan.recovery.log_jobs, kafkascan.rewrite.log_rewrites
import kafkascan.write.segment_writer

os.fsync = os.fstat  # a kill does not show what was synced

if "KAFKASCAN_COVERAGE" in os.environ:
    # gcov itself writes its counts only at an ordinary exit. A child beside threads loads nothing.
    compiled = [name for name in sys.modules if name.startswith("kafkascan._core.")]
    writers = [ctypes.CDLL(sys.modules[name].__file__).__gcov_dump for name in compiled]

    def write_counts(code, leave=os._exit):
        for write in writers:
            write()
        leave(code)

    os._exit = write_counts

def run(task):
    for descriptor, path in enumerate(task["streams"]):
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND if descriptor else os.O_RDONLY
        os.dup2(os.open(path, flags, 0o600), descriptor)
    os.chdir(task["folder"])
    sys.argv = ["-c", *task["arguments"]]
    signal.alarm(task["seconds"])
    try:
        exec(compile(task["program"], "<program>", "exec"), {"__name__": "__main__"})
        code = 0
    except SystemExit as error:
        code = error.code or 0
        if not isinstance(code, int):
            print(code, file=sys.stderr)
            code = 1
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)

def end(child):
    # A child that hangs may have replaced its own alarm.
    def kill(number, frame):
        nonlocal is_hanging
        is_hanging = True
        os.kill(child, signal.SIGKILL)

    is_hanging = False
    signal.signal(signal.SIGALRM, kill)
    signal.alarm(task["seconds"] + 10)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    signal.alarm(0)
    return -signal.SIGALRM if is_hanging else code

for line in sys.stdin:
    task = json.loads(line)
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        run(task)
    print(int(end(child)), flush=True)
"""


@dataclass(frozen=True)
class Ended:
    """Exit code, negative if a signal ended the program, and output."""

    returncode: int
    stdout: str
    stderr: str


def run_warm(program: str, *arguments: object, folder: Path | None = None) -> Ended:
    """Run a program, which may be indented, in a folder; a hang ends it by SIGALRM."""
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    with tempfile.TemporaryDirectory() as streams:
        out, err = Path(streams, "out"), Path(streams, "err")
        task = {
            "program": textwrap.dedent(program),
            "arguments": [str(one) for one in arguments],
            "folder": str(folder or Path.cwd()),
            "streams": [os.devnull, str(out), str(err)],
            "seconds": HANG_SECONDS,
        }
        server.stdin.write(json.dumps(task) + "\n")
        code = int(server.stdout.readline())
        assert code != -signal.SIGALRM, "the program hangs"
        return Ended(code, out.read_text("utf-8"), err.read_text("utf-8"))


@cache
def _server() -> subprocess.Popen[str]:
    """Start the process that forks; it ends with this one."""
    server = subprocess.Popen(
        [sys.executable, "-c", _SERVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
        # Arrow's other allocators reserve addresses of 1 GiB at a time, and start threads.
        env=os.environ | {"ARROW_DEFAULT_MEMORY_POOL": "system"},
    )
    atexit.register(server.communicate)
    return server
