"""Work in a process that is killed at its n-th change of the file system."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Self

_PROGRAM = """
    import json, os, shutil, signal, sys
    import numpy as np
    import kafkascan as ks
    import kafkascan.cli.commands, kafkascan.rewrite.log_rewrites, kafkascan.write.segment_writer
    def dies(call):
        def counted(*arguments, **options):
            global left
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*arguments, **options)
        return counted
    os.fsync = os.fstat  # a kill does not show what was synced
    for line in sys.stdin:
        task = json.loads(line)
        child = os.fork()
        if child:
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
            continue
        left = task["step"]
        for name in (
            "replace", "rename", "link", "unlink", "truncate", "fchmod", "mkdir", "rmdir",
        ):
            setattr(os, name, dies(getattr(os, name)))
        os.fsync = dies(os.fsync)
        exec(task["code"], {"ks": ks, "np": np, "folder": task["folder"]})
        os._exit(0)
"""


class DyingRuns:
    """A process that forks a child for each run: it knows kafkascan already."""

    def __enter__(self) -> Self:
        program = [sys.executable, "-c", textwrap.dedent(_PROGRAM)]
        self._process = subprocess.Popen(
            program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def run(self, code: str, folder: Path, step: int) -> int:
        """Run code that knows `ks` and `folder`; return its exit code, negative if it died."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        task = {"code": code, "folder": str(folder), "step": step}
        self._process.stdin.write(json.dumps(task) + "\n")
        return int(self._process.stdout.readline())
