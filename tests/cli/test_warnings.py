"""No module and no command causes a warning, whatever the releases of the dependencies."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from kafkascan.cli.verb_table import VERBS
from tests.cli.test_examples import CHANGING, make_machine
from tests.support.waiting import HANG_SECONDS

# Imports all modules but those of Spark, which needs pyspark; then runs commands in their folders.
_PROGRAM = """
import importlib, json, os, pkgutil, shlex, sys
import kafkascan
from kafkascan.cli import commands

for module in pkgutil.walk_packages(kafkascan.__path__, "kafkascan."):
    if not module.name.startswith("kafkascan.spark") and not module.name.endswith("__main__"):
        importlib.import_module(module.name)
for folder, line in json.load(sys.stdin):
    os.chdir(folder)
    code = commands.invoke(shlex.split(line.replace(" /", " ")))
    assert code in (0, 1), (code, line)
print("all commands ran")
"""
_VERBS_OF_ROWS = ("info", "batches", "records", "count", "txns", "producers", "audit", "verify")


def test_modules_and_commands_run_with_warnings_as_errors(tmp_path: Path) -> None:
    log, common = "var/lib/kafka/orders-0", make_machine(tmp_path / "common")
    lines: list[tuple[Path, str]] = []
    for verb in _VERBS_OF_ROWS:
        lines += [(common, f"{verb} {log} --format {name}") for name in ("json", "jsonl", "csv")]
        lines.append((common, f"{verb} {log} --output {verb}.parquet"))
    for verb in VERBS:
        for number, line in enumerate(VERBS[verb].examples if verb != "spark" else ()):
            own = tmp_path / f"{verb}-{number}"
            lines.append((make_machine(own) if verb in CHANGING else common, line))
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", _PROGRAM],
        input=json.dumps(lines, default=str),
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )
    assert done.stdout.endswith("all commands ran\n"), done.stderr
