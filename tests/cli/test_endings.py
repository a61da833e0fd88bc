"""How every command ends at a signal, and where its output or its findings cannot be written."""

from __future__ import annotations

import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kafkascan.cli.verb_table import VERBS
from tests.support.command_line import DATA
from tests.support.machine import make_machine
from tests.support.warm_process import Ended, run_warm

LINES = [line for name, verb in VERBS.items() if name != "spark" for line in verb.examples[:1]]
# It imports matplotlib in each run.
SLOW_LINES = [line for line in LINES if line.startswith("report")]
LINES_IN_SHORT = [line for line in LINES if line not in SLOW_LINES]
OF_SIGNALS = {signal.SIGINT: 130, signal.SIGTERM: 143}

# Sends a signal when Python calls a function for the n-th time, so that a moment can be repeated.
# Not by setprofile, which also calls its function at the end of `with lock`, before the lock is
# released: a signal that comes there would leave it locked.
_WITH_SIGNAL = """
import os, signal, sys
from kafkascan.cli import main

number, moment, *arguments = sys.argv[1:]
left = int(moment)

def count(_frame, _event, _argument):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), int(number))

# A shell that runs the tests in the background makes its processes ignore SIGINT.
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.settrace(count)
try:
    code = main(arguments)
finally:
    sys.settrace(None)
print("calls", int(moment) - left, file=sys.stderr)
sys.exit(code)
"""


# Sends a signal when `release_signals` is called, or calls a function; then waits for an alarm.
_WITH_SIGNAL_AT_END = """
import os, signal, sys, time
from kafkascan.cli import main

number, function, *arguments = sys.argv[1:]

def send(frame, _event, _argument):
    callers = [frame.f_code.co_name, frame.f_back.f_code.co_name]
    if callers[0] == function and "release_signals" in callers:
        sys.settrace(None)
        os.kill(os.getpid(), int(number))

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.settrace(send)
code = main(arguments)
time.sleep(0.3)
sys.exit(code)
"""


# How the streams of a command are made useless.
_WITH_STREAMS = """
import os, sys
from kafkascan.cli import main

how, *arguments = sys.argv[1:]
if how == "closed stdout":
    os.close(1)
    sys.stdout = None
elif how != "open":
    os.dup2(os.open("/dev/full", os.O_WRONLY), 1 if how == "full stdout" else 2)
code = main(arguments)
if how == "full stderr":
    sys.stderr.flush()  # as the interpreter does, whose exit code would be 120
os._exit(code)
"""


class Machine:
    """A machine whose logs no command of `LINES` changes; it has a segment that is unreadable."""

    def __init__(self, folder: Path) -> None:
        self.folder = make_machine(folder)
        # Root may read any file; nobody can read a link to itself.
        path = self.folder / "var/lib/kafka/orders-0" / f"{10**6:020}.log"
        path.symlink_to(path)

    def run(self, program: str, *arguments: object, line: str) -> Ended:
        shutil.rmtree(self.folder / "backup/orders-0", ignore_errors=True)  # an output
        words = [word.removeprefix("/") for word in shlex.split(line)]
        return run_warm(program, *arguments, *words, folder=self.folder)

    def calls(self, line: str) -> int:
        """Count the calls of a command that gets no signal."""
        return int(self.run(_WITH_SIGNAL, 0, 0, line=line).stderr.split()[-1])

    def require_ended_by(self, number: signal.Signals, moment: int, line: str) -> None:
        done = self.run(_WITH_SIGNAL, int(number), max(1, moment), line=line)
        assert done.returncode == OF_SIGNALS[number], done.stderr
        assert not any(word in done.stderr for word in ("Traceback", "Error:", "bug", "Exception"))


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    return Machine(tmp_path_factory.mktemp("endings") / "machine")


@pytest.mark.parametrize("line", LINES_IN_SHORT)
def test_a_signal(line: str, machine: Machine) -> None:
    calls = machine.calls(line)
    for number, share in zip((*OF_SIGNALS, *OF_SIGNALS), (0.05, 0.3, 0.6, 0.9), strict=True):
        machine.require_ended_by(number, int(share * calls), line)


@pytest.mark.parametrize("number", OF_SIGNALS)
@pytest.mark.parametrize("function", ["release_signals", "getsignal"])
def test_a_signal_at_the_end(number: signal.Signals, function: str, machine: Machine) -> None:
    """A signal, or its alarm, comes when the command has ended, and nothing of it is left."""
    line = LINES_IN_SHORT[0]
    done = machine.run(_WITH_SIGNAL_AT_END, int(number), function, line=line)
    assert done.returncode == OF_SIGNALS[number], done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("line", LINES)
def test_a_signal_at_many_moments(line: str, machine: Machine) -> None:
    calls = machine.calls(line)
    for number in OF_SIGNALS:
        for part in range(1, 11):  # not before the first lines of main(), which nothing handles
            machine.require_ended_by(number, part * calls // 11, line)


@pytest.mark.skipif(sys.platform != "linux", reason="needs /dev/full")
@pytest.mark.parametrize(
    "line", [*LINES_IN_SHORT, *(pytest.param(line, marks=pytest.mark.slow) for line in SLOW_LINES)]
)
def test_streams_that_take_nothing(line: str, machine: Machine) -> None:
    expected = machine.run(_WITH_STREAMS, "open", line=line)
    for how in ("closed stdout", "full stdout"):
        done = machine.run(_WITH_STREAMS, how, line=line)
        assert done.returncode == (3 if expected.stdout else expected.returncode), done.stderr
        assert "Traceback" not in done.stderr
    silent = machine.run(_WITH_STREAMS, "full stderr", line=line)
    assert silent.returncode == expected.returncode
    assert len(silent.stdout.splitlines()) == len(expected.stdout.splitlines())


@pytest.mark.skipif(sys.platform != "linux", reason="needs /dev/full")
def test_the_exit_of_a_program_whose_stderr_is_full(machine: Machine) -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "kafkascan", "info", machine.folder / "nothing"]
        assert subprocess.run(command, stderr=full, check=False).returncode == 3


_IMPORT = """
import os, signal, sys
from kafkascan import cli
from kafkascan.cli import commands

number, folder = sys.argv[1:]
sys.path.insert(0, folder)
signal.signal(signal.SIGINT, signal.default_int_handler)

def invoke(_):
    import aborting
    while True:
        pass

commands.invoke = invoke
sys.exit(cli.main([]))
"""
_ABORTING = """
import os, signal, sys
try:
    os.kill(os.getpid(), int(sys.argv[1]))
    for _ in range(1000):
        os.getpid()
except BaseException:
    os.abort()
print("imported")
"""


@pytest.mark.parametrize("number", OF_SIGNALS)
def test_a_module_is_imported_before_a_signal_ends_a_command(tmp_path: Path, number: int) -> None:
    """Libraries abort the process if their initialization fails."""
    (tmp_path / "aborting.py").write_text(_ABORTING)
    done = run_warm(_IMPORT, int(number), tmp_path)
    assert (done.returncode, done.stdout) == (OF_SIGNALS[signal.Signals(number)], "imported\n")


_IMPORTED_MAIN = """
import sys
_, number, folder = sys.argv
sys.path.insert(0, folder)
import command
sys.exit(command.code)
"""
_COMMAND = """
import os, signal, sys
from kafkascan import cli
from kafkascan.cli import commands

signal.signal(signal.SIGINT, signal.default_int_handler)

def invoke(_):
    os.kill(os.getpid(), int(sys.argv[1]))
    for _ in range(1000):
        os.getpid()
    print("not ended")

commands.invoke = invoke
code = cli.main([])
"""


@pytest.mark.parametrize("number", OF_SIGNALS)
def test_a_signal_ends_a_command_that_a_module_runs(tmp_path: Path, number: int) -> None:
    (tmp_path / "command.py").write_text(_COMMAND)
    done = run_warm(_IMPORTED_MAIN, int(number), tmp_path)
    assert (done.returncode, done.stdout) == (OF_SIGNALS[signal.Signals(number)], "")


# ---- queries ----------------------------------------------------------------------------------

# The query works in libraries, which make no calls that could be counted.
_ENDLESS = """
import os, signal, sys, threading, time
from kafkascan.cli import main
from kafkascan.logs.record_scan import RecordScan

number, query, logs = sys.argv[1:]
tables = RecordScan.tables

def without_end(self, *arguments):
    while True:
        yield from tables(self, *arguments)

RecordScan.tables = without_end
signal.signal(signal.SIGINT, signal.default_int_handler)

def send_signal():
    while not is_handled():
        time.sleep(0.05)
    time.sleep(0.3)  # a query that has begun by then is interrupted, any other is not begun
    os.kill(os.getpid(), int(number))

def is_handled():
    return signal.getsignal(int(number)) not in (signal.SIG_DFL, signal.default_int_handler)

threading.Thread(target=send_signal, daemon=True).start()
sys.exit(main(["sql", query, logs, "--format", "jsonl"]))
"""
_MANY = "range(1000000000)"


@pytest.mark.parametrize(
    "query",
    [
        f"SELECT count(*) FROM {_MANY} a, {_MANY} b WHERE a.range <> b.range",
        "SELECT count(DISTINCT value) FROM records",
        f"COPY (SELECT * FROM {_MANY} a, {_MANY} b) TO '/dev/null'",
    ],
    ids=["computing", "reading", "writing"],
)
@pytest.mark.parametrize("number", OF_SIGNALS)
def test_a_signal_ends_a_query(query: str, number: int) -> None:
    pytest.importorskip("duckdb")
    done = run_warm(_ENDLESS, int(number), query, DATA / "idempotent-0")
    assert done.returncode == OF_SIGNALS[signal.Signals(number)]
    assert done.stderr.strip() == ""
