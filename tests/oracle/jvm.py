"""Command lines and processes of small JVMs."""

from __future__ import annotations

import json
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from tests.support.waiting import HANG_SECONDS


def java_command(
    class_path: str,
    main: str,
    arguments: Sequence[str] = (),
    *,
    heap: str = "256m",
    properties: Mapping[str, str] | None = None,
    is_measured: bool = False,
) -> list[str]:
    """Return a command line that favours a quick start, unless the speed is measured."""
    options = [f"-Xmx{heap}", "-Dfile.encoding=UTF-8"]
    options.append(f"-Djava.io.tmpdir={tempfile.gettempdir()}")
    if not is_measured:
        options += ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    options += [f"-D{name}={value}" for name, value in (properties or {}).items()]
    return ["java", *options, "-cp", class_path, main, *arguments]


class Closing:
    """A resource that is closed at the end of its `with` block."""

    def close(self) -> None:
        """End its processes."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class JavaProcess:
    """A JVM in the background whose output goes to a file."""

    def __init__(self, command: Sequence[str], output: Path) -> None:
        self._output = output
        with output.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )

    @property
    def process_id(self) -> int:
        """The id of the process."""
        return self._process.pid

    def raise_if_dead(self) -> None:
        """Raise an error with the end of the log if the process has ended."""
        if self._process.poll() is not None:
            tail = "\n".join(self._output.read_text(errors="replace").splitlines()[-40:])
            raise RuntimeError(
                f"{self._output.name}: exit status {self._process.returncode}\n{tail}"
            )

    def terminate(self) -> None:
        """End the process (SIGTERM) and wait; if it does not end, kill it and raise an error."""
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(HANG_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise RuntimeError(
                f"{self._output.name}: did not stop within {HANG_SECONDS:.0f} s"
            ) from None

    def kill(self) -> None:
        """Kill the process (SIGKILL)."""
        self._process.kill()
        self._process.wait()


class JsonProgram:
    """A JVM that reads a JSON object per line and answers with one; its log is a file."""

    def __init__(self, command: Sequence[str], log_file: Path) -> None:
        self._log = log_file.open("ab")
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            encoding="utf-8",
        )

    def call(self, command: str, **arguments: object) -> dict[str, Any]:
        """Run one command and return its reply; raise its "error"."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"command": command, **arguments}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{command}: the JVM is gone, see {self._log.name}")
        reply: dict[str, Any] = json.loads(line)
        if "error" in reply:
            raise RuntimeError(f"{command}: {reply['error']}")
        return reply

    def close(self) -> None:
        """Kill the JVM; its open files remain as they are."""
        self._process.kill()
        self._process.communicate()
        self._log.close()


def wait_until(
    what: str, is_true: Callable[[], object], *, seconds: float = HANG_SECONDS, pause: float = 0.1
) -> None:
    """Call `is_true` until it returns a true value; fail after `seconds`."""
    deadline = time.monotonic() + seconds
    while not is_true():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {seconds:.0f} s")
        time.sleep(pause)
