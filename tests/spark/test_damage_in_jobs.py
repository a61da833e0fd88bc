"""Damage is a finding of every job, in every mode that does not fail. Needs no JVM."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kafkascan as ks
from kafkascan.spark import jobs
from tests.spark.logs import damaged_log, plain_batch, rows, segment_path
from tests.spark.test_repeated_offsets import without_spark as without_spark

pytest.importorskip("pyspark")
pytestmark = pytest.mark.usefixtures("without_spark")

Job = Callable[..., jobs.JobReport]


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Logs whose fifth batch is damaged, and an intact one."""
    for topic, field, value in (("magic", "magic", 9), ("length", "batch_length", 3)):
        segment_path(tmp_path / "logs", topic).write_bytes(damaged_log().set(4, field, value).log)
    segment_path(tmp_path / "logs", "torn").write_bytes(damaged_log().log[:-9])
    segment_path(tmp_path / "logs", "torn", base_offset=24).write_bytes(plain_batch(24))
    segment_path(tmp_path / "logs", "intact").write_bytes(damaged_log().log)
    return tmp_path / "logs"


def run(job: Job, logs: Path, tmp_path: Path, **options: Any) -> jobs.JobReport:
    output = str(tmp_path / f"out-{len(options)}-{options.get('mode')}")
    return job(None, logs, output, **options)


def test_damage_of_headers(logs: Path, tmp_path: Path) -> None:
    for mode in (None, "PERMISSIVE", "DROPMALFORMED"):
        options = {} if mode is None else {"mode": mode}
        report = run(jobs.catalog, logs, tmp_path, **options)
        assert report.exit_code == 1
        said = "\n".join(report.findings)
        for topic in ("magic", "length", "torn"):
            assert f"{topic}-0" in said
        assert "intact-0" not in said
    with pytest.raises(ks.CorruptBatchError):
        run(jobs.catalog, logs, tmp_path, mode="FAILFAST")


@pytest.mark.parametrize("mode", ["PERMISSIVE", "DROPMALFORMED"])
def test_an_export_names_damage(logs: Path, tmp_path: Path, mode: str) -> None:
    segment_path(logs, "crc").write_bytes(damaged_log().flip(0, 70).flip(7, 70).log)
    options = {"mode": mode}
    report = run(jobs.export, logs, tmp_path, **options)
    assert len(report.findings) == 4
    assert report.exit_code == 1
    (crc,) = [one for one in report.findings if "crc-0" in one]
    assert crc.endswith("(the first of 2 damaged batches)")
    assert report.summary["rows"] == len(rows(path=str(logs), **options))
    again = jobs.export(None, logs, f"{tmp_path}/out-1-{mode}", resume=True, **options)  # type: ignore[arg-type]
    assert again.findings == report.findings, "outputs with damage are not kept"
    assert again.summary["kept"] == 2


def test_a_file_with_damage_only(tmp_path: Path) -> None:
    segment_path(tmp_path, "a").write_bytes(b"\x7f" * 300)
    report = jobs.export(None, tmp_path, f"{tmp_path}/o", mode="DROPMALFORMED")  # type: ignore[arg-type]
    assert (report.summary["files"], len(report.findings)) == (0, 1)


def test_verify_drops_nothing(logs: Path) -> None:
    with pytest.raises(ValueError, match="DROPMALFORMED"):
        jobs.verify(None, logs, mode="DROPMALFORMED")  # type: ignore[arg-type]
    assert len(jobs.verify(None, logs).findings) == 3  # type: ignore[arg-type]


def test_segments_that_are_dropped_are_named(logs: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "kafkascan.spark"):
        found = rows(path=str(logs), view="segments", mode="DROPMALFORMED")
    assert len(found) == 2
    assert sum("dropped: " in message for message in caplog.messages) == 3


def test_files_that_vanish(logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kafkascan.spark.jobs import fleet_jobs

    plan = fleet_jobs.planned_tasks

    def vanish(options: Any) -> Any:
        planned = plan(options)
        segment_path(logs, "intact").unlink(missing_ok=True)
        return planned

    monkeypatch.setattr(fleet_jobs, "planned_tasks", vanish)
    with pytest.raises(FileNotFoundError):
        run(jobs.catalog, logs, tmp_path)
    segment_path(logs, "intact").write_bytes(damaged_log().log)
    assert len(run(jobs.catalog, logs, tmp_path, ignoreMissingFiles=True).findings) == 3
