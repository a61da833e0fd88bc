"""Files that are not logs, given to every command that takes a file."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import pytest

from tests.support.command_line import run
from tests.support.paths import GOLDEN

PARTITION = GOLDEN / "kafka-4.4.0" / "data" / "transactions-0"
VERBS = (
    ["info"], ["verify"], ["batches"], ["records"], ["index", "lookup", "--offset", "1"],
    ["audit"], ["count"], ["txns"], ["producers"], ["advise"],
    ["convert", "--in-place", "--to-magic", "2"],
)  # fmt: skip


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_the_kind_of_the_file_is_named_once(verb: list[str], tmp_path: Path) -> None:
    log, index = tmp_path / "log.gz", tmp_path / f"{5:020}.timeindex"
    log.write_bytes(gzip.compress((PARTITION / f"{0:020}.log").read_bytes()))
    shutil.copy(PARTITION / index.name, index)
    empty = tmp_path / f"{5:020}.index"
    empty.touch()
    for path, reason in (
        (log, "the file begins as a gzip file does, not with a batch"),
        (index, "this is a time index (.timeindex), not a log"),
        (empty, "this is an offset index (.index), not a log"),
    ):
        result = run(*verb, path)
        assert result.returncode == 3
        assert result.stderr == f"{path}: position 0: {reason} [NOT_A_LOG]\n"


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_a_segment_of_redpanda_is_named(verb: list[str], tmp_path: Path) -> None:
    path = tmp_path / "0-1-v1.log"
    path.write_bytes(bytes.fromhex("0df0ad8b65000000") + bytes(93))
    reason = "this is a segment of Redpanda, whose batches have another format than Kafka's"
    result = run(*verb, path)
    assert (result.returncode, result.stderr) == (3, f"{path}: position 0: {reason} [NOT_A_LOG]\n")
    result = run(*verb, tmp_path)
    assert result.returncode == 3
    assert f"{path.name}: {reason} [NO_LOGS]" in result.stderr


def test_a_file_without_batches_is_described(tmp_path: Path) -> None:
    path = tmp_path / "orders.log"
    path.touch()
    for verb in ("info", "verify", "batches", "records"):
        result = run(verb, path)
        assert result.returncode == 0
        assert result.stderr == f"{path}: the file is empty, a log without batches\n"
    path.write_bytes(bytes(4096))
    zeros = "the file contains no complete batch, only 4,096 zeros [ZERO_TAIL]"
    assert zeros in run("info", path).stderr
    path.write_bytes(bytes(30))
    assert "only 30 zeros" in run("info", path).stderr
    path.write_bytes((PARTITION / f"{0:020}.log").read_bytes()[:30])
    result = run("info", path)
    assert result.returncode == 1
    assert "the file contains no complete batch, only 30 bytes [TORN_TAIL]" in result.stderr


@pytest.mark.parametrize("size", [0, 4096])
def test_an_audit_of_a_log_without_batches_knows_no_end(size: int, tmp_path: Path) -> None:
    path = tmp_path / "orders.log"
    path.write_bytes(bytes(size))
    result = run("audit", path)
    assert result.returncode == (1 if size else 0)  # NO_BATCHES
    assert "ENDS_EARLY" not in result.stdout


def test_a_table_that_is_no_file_of_fingerprints(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    assert run("records", PARTITION, "--format", "parquet", "--output", path).returncode == 0
    result = run("diff", PARTITION, path)
    assert result.returncode == 3
    assert "not a file of fingerprints: b'kafkascan.fingerprints' is missing" in result.stderr


def test_losses_of_a_file_are_at_its_path(tmp_path: Path) -> None:
    path = tmp_path / "damaged.log"
    path.write_bytes(b"\xff" * 200 + (PARTITION / f"{5:020}.log").read_bytes())
    result = run("salvage", path)
    assert f"{path}: position 0: 200 bytes lost" in result.stderr
