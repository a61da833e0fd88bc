"""Odd command lines of dump-log: as the tool ends and prints, or a difference that docs name."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.oracle.build import ClassPaths
from tests.oracle.jvm import java_command

pytestmark = pytest.mark.oracle

_HERE = Path(__file__).parent
_DATA = _HERE.parent / "golden" / "kafka-4.4.0" / "data"
_FIRST = "00000000000000000000"
_LINES = (_HERE / "odd_command_lines.txt").read_text().splitlines()
_BAD_VALUE = re.compile(r"--max-bytes(=0x10| abc| 9{11}|=100 --max-bytes 200|=$)|no\.such\.Class")
_OLD_NAME = re.compile(r"-class (kafka\.serializer\.)?StringDecoder")
_REASON = re.compile(r"(skipping\.).*")


class Run(NamedTuple):
    """How a command ended, and what it printed."""

    exit_code: int
    output: str


def make_folder(folder: Path) -> None:
    """Make the files that the command lines name."""
    for name in (
        "empty",
        "lone",
        "dir.log",
        "00000000000000000007.log",
        "00000000000000000007.index",
    ):
        (folder / name).mkdir(parents=True)
    for suffix in (".log", ".index", ".timeindex"):
        shutil.copy(_DATA / "consumed-0" / f"{_FIRST}{suffix}", folder)
        (folder / "empty" / f"{_FIRST}{suffix}").touch()
    for name in (".txnindex", ".snapshot", "-0000000000.checkpoint"):
        (folder / "empty" / f"{_FIRST}{name}").touch()
    shutil.copy(_DATA / "__consumer_offsets-0" / f"{_FIRST}.log", folder / f"{2:020}.log")
    shutil.copy(_DATA / "consumed-0" / f"{_FIRST}.index", folder / "lone")
    shutil.copy(
        _DATA / "consumed-0" / f"{_FIRST}.timeindex", folder / "lone" / f"{5:020}.timeindex"
    )


def run(command: Sequence[str], arguments: Sequence[str], folder: Path) -> Run:
    make_folder(folder)
    environment = os.environ | {"PYTHONPATH": str(_HERE.parents[1])}
    done = subprocess.run(
        [*command, *arguments], cwd=folder, env=environment, capture_output=True, check=False
    )
    return Run(done.returncode, done.stdout.decode())


def difference(line: str, ours: Run, tools: Run) -> str | None:
    """Return the difference that `docs/from-kafka-dump-log.md` names; None for none."""
    if ours == tools:
        return "same"
    if "--help" in line and (ours.exit_code, tools.exit_code) == (0, 1):
        return "help"
    if _OLD_NAME.search(line) and (ours.exit_code, tools.exit_code) == (0, 1):
        return "name of a decoder"
    if ours.exit_code != tools.exit_code:
        return None
    if _BAD_VALUE.search(line) and (ours.output, tools.output) == ("", f"Dumping {_FIRST}.log\n"):
        return "bad value"
    if _REASON.sub(r"\1", ours.output) == _REASON.sub(r"\1", tools.output):
        return "reason"
    return None


def test_as_the_tool_or_as_the_docs_say(class_paths: ClassPaths, tmp_path: Path) -> None:
    tool = java_command(class_paths.dump, "org.apache.kafka.tools.DumpLogSegments")
    own = [sys.executable, "-m", "kafkascan", "dump-log"]

    def compare(number: int) -> tuple[str | None, Run, Run]:
        arguments = shlex.split(_LINES[number])
        tools = run(tool, arguments, tmp_path / f"{number}.tool" / "w")
        ours = run(own, arguments, tmp_path / f"{number}.own" / "w")
        return difference(_LINES[number], ours, tools), ours, tools

    with ThreadPoolExecutor(2) as threads:
        found = list(threads.map(compare, range(len(_LINES))))
    wrong = [
        f"{line}\n  ours {ours}\n  tool {tools}"
        for line, (what, ours, tools) in zip(_LINES, found, strict=True)
        if what is None
    ]
    assert not wrong, "\n".join(wrong)
    met = Counter(what for what, _, _ in found)
    assert met["same"] > len(_LINES) * 3 // 4, met
    assert set(met) == {"same", "help", "name of a decoder", "bad value", "reason"}
