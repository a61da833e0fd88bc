"""The console blocks of README.md: what they show is what the commands print.

python -m tests.house.readme      writes today's output into README.md
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
_BLOCK = re.compile(r"```console\n\$ (?P<command>.*)\n(?P<output>(?:.*\n)*?)```\n")


def blocks() -> list[tuple[str, str]]:
    """Commands, and the output that README.md shows for them."""
    return [(match["command"], match["output"]) for match in _BLOCK.finditer(README.read_text())]


def output_of(command: str) -> str:
    """What a command prints, stderr behind stdout, run in the repository's root."""
    binaries = Path(sys.executable).parent
    result = subprocess.run(
        ["bash", "-c", command],
        cwd=ROOT,
        env=os.environ | {"PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    return result.stdout + result.stderr


def main() -> None:
    """Write today's output into README.md."""

    def shown(match: re.Match[str]) -> str:
        return f"```console\n$ {match['command']}\n{output_of(match['command'])}```\n"

    README.write_text(_BLOCK.sub(shown, README.read_text()))


if __name__ == "__main__":
    main()
