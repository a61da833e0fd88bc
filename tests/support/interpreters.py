"""
Find the newest Python of this machine, or the oldest that the package supports.

`python tests/support/interpreters.py newest` (or `oldest`) prints its path, or nothing if there is
none. A machine with one Python has no newest one. The program uses the standard library only,
because it runs before any environment exists.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

# The tests need headers, to compile extensions, and venv. Free-threaded builds are excluded:
# not all dependencies have wheels for them.
_PROBE = """
import ensurepip, os, sys, sysconfig, venv
has_headers = os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h"))
is_release = sys.version_info.releaselevel == "final"
if has_headers and is_release and not sysconfig.get_config_var("Py_GIL_DISABLED"):
    print(os.path.realpath(sys.executable))
"""


def oldest_minor() -> int:
    """Return N of the oldest supported Python 3.N, according to pyproject.toml."""
    configuration = Path(__file__).resolve().parents[2] / "pyproject.toml"
    project = tomllib.loads(configuration.read_text("utf-8"))["project"]
    return int(project["requires-python"].removeprefix(">=3."))


def installed() -> dict[int, Path]:
    """Return the Pythons on the PATH and those that pyenv and uv have installed, by N of 3.N."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    data = Path(os.environ.get("XDG_DATA_HOME", Path.home() / ".local/share"))
    folders = [Path(folder) for folder in os.get_exec_path()]
    folders += [*pyenv.glob("versions/*/bin"), *data.glob("uv/python/*/bin")]
    found: dict[int, Path] = {}
    for path in (path for folder in folders for path in folder.glob("python3.*")):
        name = re.fullmatch(r"python3\.(\d+)", path.name)
        if name and oldest_minor() <= int(name[1]) and int(name[1]) not in found:
            python = _usable(path)
            if python:
                found[int(name[1])] = python
    return found


def _usable(python: Path) -> Path | None:
    try:
        done = subprocess.run(
            [python, "-I", "-c", _PROBE], capture_output=True, text=True, check=True, timeout=60
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return Path(done.stdout.strip()) if done.stdout else None


def main() -> None:
    """Print the path of the interpreter."""
    found = installed()
    wanted = oldest_minor()
    if sys.argv[1] == "newest":
        wanted = max(found) if len(found) > 1 else 0
    if wanted in found:
        print(found[wanted])


if __name__ == "__main__":
    main()
