"""Spark Connect: a client process without a JVM, and a server in the JVM of the shared session."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.spark.logs import DATA, damaged_log, require_views, segment_path
from tests.spark.remote_driver import ROOT, running_driver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_views(spark: SparkSession, connect_port: int, tmp_path: Path) -> None:
    url = f"sc://127.0.0.1:{connect_port}"
    command = [sys.executable, "-m", "tests.spark.driver", url]
    with running_driver(command, tmp_path, {"PYTHONPATH": str(ROOT)}) as client:
        require_views(client.ask("views", DATA))


def test_a_job_from_the_shell(spark: SparkSession, connect_port: int, tmp_path: Path) -> None:
    path = segment_path(tmp_path, "bad")
    path.write_bytes(damaged_log().flip(5, 70).log)
    command = ["-m", "kafkascan.spark", "verify", str(tmp_path), str(DATA / "headers-0")]
    options = ["--remote", f"sc://127.0.0.1:{connect_port}", "--format", "jsonl"]
    result = subprocess.run(
        [sys.executable, *command, *options], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode == 1, result.stderr
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(row["topic"], row["bad_checksums"]) for row in found] == [("bad", 1), ("headers", 0)]
    assert f"{path}: position 595" in result.stderr
    assert "verify: files 2, " in result.stderr
