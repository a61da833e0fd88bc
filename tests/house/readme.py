"""The console blocks of README.md: commands and their output.

`python -m tests.house.readme` runs the commands and updates README.md.
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
    """Return the commands of README.md with the output that it shows."""
    return [(match["command"], match["output"]) for match in _BLOCK.finditer(README.read_text())]


def output_of(command: str) -> str:
    """Run a command in the repository's root; return its stdout, then its stderr."""
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
    """Write the current output of all commands into README.md."""

    def shown(match: re.Match[str]) -> str:
        return f"```console\n$ {match['command']}\n{output_of(match['command'])}```\n"

    README.write_text(_BLOCK.sub(shown, README.read_text()))


if __name__ == "__main__":
    main()
