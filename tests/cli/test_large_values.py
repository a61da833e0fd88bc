"""Records of many megabytes: the memory of each verb and format, and what they write."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import kafkascan as ks
from kafkascan.cli import record_cells
from kafkascan.tables import writers
from tests.support.command_line import run
from tests.support.waiting import HANG_SECONDS, IS_SANITIZED

SIZE = 40_000_000
# Beyond what the program takes for a small log: 300 MB in all.
_ROOM = 200_000_000
_PROGRAM = """
import os, re, resource, sys
from kafkascan.cli import main

small, large, room, *command = sys.argv[1:]
with open(os.devnull, "w") as sys.stdout:
    main([small if one == "LOG" else one for one in command])
    size = int(re.search(r"VmSize:\\s+(\\d+) kB", open("/proc/self/status").read())[1]) << 10
    limit = size + int(room)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    code = main([large if one == "LOG" else one for one in command])
sys.exit(code)
"""
COMMANDS = [
    "records LOG",
    *(f"records LOG --format {one}" for one in ("jsonl", "csv")),
    "records LOG --format jsonl --value-as base64",
    "records LOG --output OUT.parquet",
    "records LOG --grep zzz",
    "dump-log --print-data-log --files LOG",
    "dump-log --print-data-log --format jsonl --files LOG",
    "batches LOG",
    "info LOG",
    "verify LOG",
    "count LOG --deep",
    "audit LOG",
    "producers LOG",
    "txns LOG",
    "index lookup LOG --offset 0",
]


COMMANDS_ON_HEADERS = [
    *(f"records LOG --format {one}" for one in ("table", "jsonl", "json", "csv")),
    "records LOG --output OUT.parquet",
    "dump-log --print-data-log --files LOG",
    "dump-log --print-data-log --format jsonl --files LOG",
]


def _write(path: Path, value: bytes, headers: list[tuple[str, bytes | None]] | None = None) -> Path:
    builder = ks.BatchBuilder(compression_type="zstd")
    builder.append(1_714_000_000_000, b"key", value, headers or [])
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(builder.build())
    return path


@pytest.fixture(scope="session")
def logs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A small log, one of a large value that is no text, and two of large headers."""
    folder, name = tmp_path_factory.mktemp("large"), f"{0:020}.log"
    value = (b"large, " * 200 + b"\xff\x00") * (SIZE // 1402)
    many: list[tuple[str, bytes | None]] = [("trace-id", b"\xff0123456789"), ("null", None)]
    return {
        "small": _write(folder / "small" / name, b"v"),
        "value": _write(folder / "value" / name, value),
        "header": _write(folder / "header" / name, b"v", [("key", value)]),
        "headers": _write(folder / "headers" / name, b"v", many * (SIZE // 28)),
    }


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.skipif(IS_SANITIZED, reason="sanitizers reserve memory")
@pytest.mark.parametrize(
    ("command", "large"),
    [
        *((command, "value") for command in COMMANDS),
        *((command, large) for command in COMMANDS_ON_HEADERS for large in ("header", "headers")),
    ],
)
def test_memory(command: str, large: str, logs: dict[str, Path], tmp_path: Path) -> None:
    words = [one.replace("OUT", str(tmp_path / "out")) for one in command.split()]
    arguments = [str(logs["small"]), str(logs[large]), str(_ROOM + 2 * SIZE), *words]
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, *arguments],
        capture_output=True, text=True, timeout=HANG_SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stderr
    assert "memory" not in done.stderr


@pytest.mark.parametrize("decoder", ["text", "hex", "base64", "json"])
@pytest.mark.parametrize("output_format", ["jsonl", "json", "csv"])
def test_large_values_are_written_as_small_ones(
    decoder: str, output_format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = b'=\r"\\\xff\xc3' + "Zürich \U0001f600, ".encode() * 700 + b"\xe2\x82"
    log = _write(tmp_path / f"{0:020}.log", value)
    arguments = ("records", log, "--value-as", decoder, "--format", output_format)
    expected = run(*arguments).stdout
    monkeypatch.setattr(record_cells, "_LARGEST_JSON", 0)
    for size in (512, 3000):
        monkeypatch.setattr(writers, "_CHUNK_SIZE", size)
        assert run(*arguments).stdout == expected


def test_a_cell_shows_the_begin_of_a_large_value(tmp_path: Path) -> None:
    log = _write(tmp_path / f"{0:020}.log", b"\\begin" + b"v" * (1 << 21))
    done = run("records", log)
    assert "\\\\beginvvv" in done.stdout
    assert done.stdout.count("v") < 200
