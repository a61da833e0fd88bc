"""Commands that read remote storage (tiered storage)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.command_line import run
from tests.support.paths import GOLDEN
from tests.support.tiers import KEY_ID, AivenTier, new_cipher, put_local

LOG = GOLDEN / "kafka-4.4.0" / "data" / "small-segments-0"


@pytest.fixture
def tier(tmp_path: Path) -> Path:
    AivenTier(tmp_path / "tier").put_partition(LOG)
    return tmp_path / "tier"


def test_audit_finds_out_that_it_is_a_tier(tier: Path, tmp_path: Path) -> None:
    done = run("audit", tier, "--deep")
    assert done.returncode == 0
    assert "not checked" not in done.stderr
    assert f"{tier}: remote storage, layout aiven: 1 partitions, " in done.stderr
    put_local(tmp_path / "local", LOG)
    assert "layout local" in run("audit", tmp_path / "local").stderr
    assert "remote storage" not in run("audit", LOG).stderr


def test_audit_has_the_findings_of_a_tier(tier: Path) -> None:
    for path in sorted(tier.rglob("00000000000000000024-*")):
        path.unlink()
    done = run("audit", tier, "--alarms", "--format", "json")
    assert done.returncode == 1
    (found,) = json.loads(done.stdout)
    assert (found["symbol"], found["offset"]) == ("TIER_GAP", 24)


def test_options_override_what_is_found_out(tier: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy" / LOG.name
    copy.mkdir(parents=True)
    for log in LOG.glob("*.log"):
        (copy / log.name).write_bytes(log.read_bytes())
    assert "remote storage" not in run("audit", copy.parent).stderr
    assert "layout pinterest" in run("audit", copy.parent, "--layout", "pinterest").stderr
    done = run("audit", tier, "--layout", "local")
    assert done.returncode == 3
    assert run("audit", tier, "--private-key", "key-1").returncode == 2


def test_encrypted_segments_need_a_key(tmp_path: Path) -> None:
    pem = tmp_path / "private.pem"
    AivenTier(tmp_path / "tier", cipher=new_cipher(pem)).put_partition(LOG)
    done = run("audit", tmp_path / "tier")
    assert done.returncode == 3
    assert "MISSING_KEY" in done.stderr
    assert run("audit", tmp_path / "tier", "--private-key", f"{KEY_ID}={pem}").returncode == 0


def test_a_folder_without_anything_is_an_error_about_logs(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    done = run("audit", tmp_path)
    assert done.returncode == 3
    assert "no logs here" in done.stderr


def test_segments_that_the_cluster_knows_beside_those_that_are_there(tier: Path) -> None:
    data = GOLDEN / "kafka-4.4.0-tiered" / "data"
    done = run("remote-segments", data, "--tier", tier, "--format", "json")
    assert done.returncode == 1
    verdicts = {(row["topic"], row["verdict"]) for row in json.loads(done.stdout)}
    assert verdicts == {("tiered", "MISSING_OBJECT"), ("small-segments", "ORPHAN")}
    assert "small-segments-0: offset 24: segment " in done.stderr
    assert "the cluster does not know it [ORPHAN]" in done.stderr
    assert run("remote-segments", data, "--tier", tier, "--show", "unknown").returncode == 2
    assert run("remote-segments", data, data, "--tier", tier).returncode == 2
    assert run("remote-segments", data, "--tier", data.parent / "nothing").returncode == 3


def test_the_catalogue_of_remote_storage_alone(tier: Path) -> None:
    done = run("remote-segments", tier, "--format", "json")
    assert done.returncode == 0
    rows = json.loads(done.stdout)
    assert [row["start_offset"] for row in rows] == sorted(
        int(log.stem) for log in LOG.glob("*.log")
    )
    assert run("remote-segments", tier, "--as-of", "5").returncode == 2
    sorted(tier.rglob("*.rsm-manifest"))[0].unlink()
    done = run("remote-segments", tier)
    assert done.returncode == 1
    assert "NOT_UPLOADED" in done.stderr


def test_an_audit_compares_with_the_cluster(tier: Path) -> None:
    data = GOLDEN / "kafka-4.4.0-tiered" / "data"
    done = run("audit", tier, "--cluster", data, "--format", "json")
    assert done.returncode == 1
    symbols = {row["symbol"] for row in json.loads(done.stdout)}
    assert {"MISSING_OBJECT", "DELETED_TOPIC", "ORPHANED_SEGMENT"} <= symbols
    assert "topic small-segments (" in done.stderr
    done = run("audit", data, "--cluster", data)
    assert done.returncode == 2
    assert "--cluster is for remote storage" in done.stderr
