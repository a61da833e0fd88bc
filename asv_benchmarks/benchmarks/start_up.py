"""Start-up: whole processes of Python, each beside one that only imports NumPy."""

from __future__ import annotations

import subprocess
import sys

PROGRAMS = {
    "python -c pass": ("-c", "pass"),
    "import numpy": ("-c", "import numpy"),
    "import kafkascan": ("-c", "import kafkascan"),
    "kafkascan.scan_batches is there": ("-c", "import kafkascan; kafkascan.scan_batches"),
    "kafkascan --help": ("-m", "kafkascan", "--help"),
    "kafkascan verify --help": ("-m", "kafkascan", "verify", "--help"),
}


def start(name: str) -> None:
    """Run one of the programs to its end."""
    subprocess.run([sys.executable, *PROGRAMS[name]], stdout=subprocess.DEVNULL, check=True)


class StartUp:
    """Seconds of a process."""

    params = tuple(PROGRAMS)
    param_names = ("program",)
    number = 1

    def time_process(self, name: str) -> None:
        start(name)
