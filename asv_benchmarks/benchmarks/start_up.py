"""Start-up: whole processes of Python, each beside one that only imports NumPy."""

from __future__ import annotations

import os
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


# The commands set it for themselves: NumPy's BLAS starts a thread per CPU otherwise.
ENVIRONMENT = os.environ | {"OPENBLAS_NUM_THREADS": "1"}


def start(name: str) -> None:
    """Run one of the programs to its end."""
    command = [sys.executable, *PROGRAMS[name]]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True, env=ENVIRONMENT)


class StartUp:
    """Seconds of a process."""

    params = tuple(PROGRAMS)
    param_names = ("program",)
    number = 1

    def time_process(self, name: str) -> None:
        start(name)
