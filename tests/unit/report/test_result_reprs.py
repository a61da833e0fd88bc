"""Results of large data directories as Python prints them: short, what is damaged first."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import kafkascan as ks
from kafkascan.analysis import read_fingerprints
from kafkascan.recovery import restore
from kafkascan.recovery.tier_restore import PartitionRestore, Restore
from kafkascan.report.page import Report
from kafkascan.tiered import open_tiered
from tests.support.paths import GOLDEN
from tests.support.tiers import AivenTier

PARTITION = GOLDEN / "kafka-4.4.0" / "data" / "headers-0"
DAMAGED = "headers-38"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a data directory of 40 logs, of which one is damaged."""
    data = tmp_path_factory.mktemp("data")
    for partition in range(40):
        shutil.copytree(PARTITION, data / f"headers-{partition}")
    log = min((data / DAMAGED).glob("*.log"))
    content = bytearray(log.read_bytes())
    content[-3] ^= 1
    log.write_bytes(content)
    return data


def test_results_are_short_and_name_what_is_damaged(data: Path, tmp_path: Path) -> None:
    shorter = shutil.copytree(data, tmp_path / "shorter")
    log = shorter / DAMAGED / f"{0:020}.log"
    os.truncate(log, int(ks.scan_batches(log).batches["position"][-1]))
    results = [ks.audit(data), ks.recover(data), ks.salvage(data), ks.diff_logs(data, shorter)]
    for result in results:
        assert DAMAGED in repr(result), repr(result)
        _require_short(result)
    assert "40 logs" in repr(results[1])
    for other, counted in (
        (ks.open_log_dir(data), ": 40 partitions>"),
        (ks.advise(data), "<Advice: 1 groups>"),
        (read_fingerprints(data), ": 40 logs, "),
    ):
        assert counted in repr(other)
        _require_short(other)
    _require_short(ks.open_log_dir(data).partitions[0])


def test_notes_do_not_hide_an_error(data: Path, tmp_path: Path) -> None:
    noted = shutil.copytree(data, tmp_path / "noted")
    for index in noted.glob("*/*.index"):
        index.unlink()
    found = ks.audit(noted)
    assert len(found.findings) > 30
    assert ": error: " in repr(found).splitlines()[1]


def test_failed_and_incomplete_logs_come_first() -> None:
    whole = [PartitionRestore(Path(), None, "a", None, one, 1, 10, 0, 5) for one in range(40)]
    gap = PartitionRestore(Path(), None, "b", None, 0, 1, 10, 0, 5, gaps=[(2, 3)])
    failed = PartitionRestore(Path(), None, "c", None, 0, 1, 10, 0, error=OSError("no room"))
    lines = repr(Restore(Path("tier"), None, [*whole, gap, failed], [])).splitlines()
    assert lines[0] == "<Restore tier: not complete>"
    assert lines[1] == "  c-0: 1 segments, offsets 0 to None, 0 gaps; no room"
    assert lines[2] == "  b-0: 1 segments, offsets 0 to 5, 1 gaps"


def test_others_are_counted(data: Path) -> None:
    text = repr(ks.open_log_dir(data))
    assert text.splitlines()[0] == f"<LogDir {data}: 40 partitions>"
    assert text.splitlines()[-1] == "  ... 10 more lines"


def test_a_report_is_not_its_html(data: Path) -> None:
    report = Report("<html>" * 100_000, ks.audit(data))
    assert repr(report).startswith(f"<Report on {data}: ")
    assert repr(report).endswith("600,000 characters of HTML>")
    _require_short(report)


def test_remote_storage(tmp_path: Path) -> None:
    stored = AivenTier(tmp_path / "tier", "", 1 << 20, False, None)
    stored.put_partition(PARTITION)
    tier = open_tiered(tmp_path / "tier")
    segments = len(tier.remote_segments)
    title = f"<TieredLogs {tier.path}: layout aiven, 1 partitions, {segments} segments, 0 problems>"
    assert repr(tier).splitlines()[0] == title
    restored = restore(tier, tmp_path / "restored")
    assert repr(restored).startswith(f"<Restore {tier.path}: complete>\n  ")
    for result in (tier, restored):
        _require_short(result)


def _require_short(result: object) -> None:
    text = repr(result)
    assert len(text.splitlines()) <= 33  # title, 30 lines, a count of the others, a problem
    assert len(text) < 10_000
