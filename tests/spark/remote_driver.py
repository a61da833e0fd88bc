"""Drivers in processes of their own (`tests.spark.driver`), which tests send commands to."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from tests.support.waiting import HANG_SECONDS

ROOT = Path(__file__).parents[2]
DRIVER = ROOT / "tests" / "spark" / "driver.py"


class RemoteDriver:
    """A running driver."""

    def __init__(self, process: subprocess.Popen[bytes], stream: IO[str], log: Path) -> None:
        self._process, self._stream, self._log = process, stream, log

    def send(self, *command: object) -> None:
        self._stream.write(json.dumps([str(word) for word in command]) + "\n")
        self._stream.flush()

    def receive(self) -> Any:
        line = self._stream.readline()
        assert line, self._log.read_text()[-4000:]
        return json.loads(line)

    def ask(self, *command: object) -> Any:
        self.send(*command)
        return self.receive()

    def kill(self) -> None:
        """Kill the driver's JVM as a crash would."""
        self._process.kill()
        self._process.wait(HANG_SECONDS)

    def end(self) -> str:
        """Wait until the process ends without an error; return what it printed."""
        code = self._process.wait(HANG_SECONDS)
        printed = self._log.read_text()
        assert code == 0, printed[-4000:]
        return printed


@contextmanager
def running_driver(
    command: list[str], folder: Path, environment: dict[str, str] | None = None
) -> Iterator[RemoteDriver]:
    """Start a command that runs `DRIVER`; its last argument is added, the address to connect to."""
    log = folder / "driver.log"
    with socket.create_server(("127.0.0.1", 0)) as server, log.open("w") as out:
        server.settimeout(HANG_SECONDS)
        port = server.getsockname()[1]
        process = subprocess.Popen(
            [*command, str(port)],
            cwd=folder,
            env=os.environ | (environment or {}),
            stdout=out,
            stderr=subprocess.STDOUT,
        )
        try:
            connection, _ = server.accept()
            with connection, connection.makefile("rw") as stream:
                yield RemoteDriver(process, stream, log)
        finally:
            process.kill()
            process.wait()
