"""Readers in Go and Rust, built into a temporary folder where their toolchains are installed."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

SOURCES = Path(__file__).parents[1] / "yardsticks"
ROUNDS = 5
# Seconds that a build may take: the first one downloads modules.
_BUILD_TIMEOUT = 600


def franz_go(path: Path) -> dict[str, float]:
    """Seconds in which franz-go's kmsg reads every record: one by one, and into a table."""
    seconds = _run(_built("franz_go", "go", ("build", "-o", "reader", ".")), "reader", path)
    return dict(zip(("franz-go, iterating", "franz-go, a table"), seconds, strict=False))


def kafka_protocol(path: Path) -> dict[str, float]:
    """Seconds in which the crate kafka-protocol decodes every record."""
    folder = _built("kafka_protocol", "cargo", ("build", "--release", "--quiet"))
    seconds = _run(folder, "target/release/kafka_protocol_records", path)
    return dict(zip(("kafka-protocol (Rust)",), seconds, strict=False))


@cache
def _built(name: str, tool: str, arguments: tuple[str, ...]) -> Path | None:
    """Build a program; None, and a message, where it cannot be built."""
    if shutil.which(tool) is None:
        print(f"  {name}: skipped, {tool} is not installed")
        return None
    folder = Path(tempfile.mkdtemp(prefix=f"kafkascan-{name}-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    shutil.copytree(SOURCES / name, folder, dirs_exist_ok=True)
    environment = os.environ | {"CARGO_TARGET_DIR": str(folder / "target")}
    result = subprocess.run(
        [tool, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=_BUILD_TIMEOUT,
        env=environment,
    )
    if result.returncode != 0:
        print(f"  {name}: skipped, it cannot be built: {result.stderr.strip()[-300:]}")
        return None
    return folder


def _run(folder: Path | None, program: str, path: Path) -> list[float]:
    if folder is None:
        return []
    command = [folder / program, path, str(ROUNDS)]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    return [float(one) for one in result.stdout.split()]
