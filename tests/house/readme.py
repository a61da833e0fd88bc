"""What README.md and docs/ show: the output of commands, and lists of commands and names.

`python -m tests.house.readme` runs the commands and updates the documents.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import kafkascan
from kafkascan.cli.verb_table import VERBS_BY_TASK

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
DOCUMENTS = (README, *sorted((ROOT / "docs").rglob("*.md")))
API = ROOT / "docs" / "api.md"
_API_HEAD = """# Python API

`import kafkascan as ks`: these are the names that most programs need, by the sub-package that
defines them. The sub-packages have more. Everything is imported when it is first used.
"""
_BLOCK = re.compile(
    r"(?P<indent> *)```console\n *\$ (?P<command>.*)\n(?P<output>(?:.*\n)*?)(?P=indent)```\n"
)
_SNIPPET = re.compile(r"(?P<indent> *)```python\n(?P<code>(?:.*\n)*?)(?P=indent)```\n")
_TABLE = re.compile(r"\| task \| command \| what it does \|\n(?:\|.*\n)*")


def blocks(document: Path) -> list[tuple[str, str]]:
    """Return the commands of a document with the output that it shows."""
    return [
        (match["command"], _without(match["indent"], match["output"]))
        for match in _BLOCK.finditer(document.read_text())
    ]


def snippets(document: Path) -> list[str]:
    """Return the Python code of a document."""
    return [
        _without(match["indent"], match["code"])
        for match in _SNIPPET.finditer(document.read_text())
    ]


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


def table_of_commands() -> str:
    """Return the table of all commands."""
    rows = ["| task | command | what it does |", "|---|---|---|"]
    for task, verbs in VERBS_BY_TASK.items():
        for verb in verbs:
            rows.append(f"| {task} | `{verb.name}` | {verb.summary} |")
            task = ""
    return "".join(f"{row}\n" for row in rows)


def api_reference() -> str:
    """Return the page about the public names, by sub-package."""
    rooms = defaultdict(list)
    for name in sorted(set(kafkascan.__all__) - {"__version__"}):
        module = str(getattr(getattr(kafkascan, name), "__module__", None))
        is_ours = module.startswith("kafkascan.") and not module.startswith("kafkascan._core")
        rooms[module.split(".")[1] if is_ours else "format"].append(name)
    parts = [_API_HEAD]
    for room, names in sorted(rooms.items()):
        parts += [f"\n## {room}\n", *(f"\n::: kafkascan.{name}\n" for name in names)]
    return "".join(parts)


def updated(text: str) -> str:
    """Return a document with the current output of its commands, and the table of commands."""

    def shown(match: re.Match[str]) -> str:
        lines = [f"```console\n$ {match['command']}\n", output_of(match["command"]), "```\n"]
        return _with(match["indent"], "".join(lines))

    return _TABLE.sub(lambda _: table_of_commands(), _BLOCK.sub(shown, text))


def _with(indent: str, text: str) -> str:
    return "".join(f"{indent}{line}" for line in text.splitlines(keepends=True))


def _without(indent: str, text: str) -> str:
    return "".join(line.removeprefix(indent) for line in text.splitlines(keepends=True))


def main() -> None:
    """Update all documents."""
    for document in DOCUMENTS:
        document.write_text(updated(document.read_text()))
    API.write_text(api_reference())


if __name__ == "__main__":
    main()
