"""`kafkascan salvage`, `diff`, `advise` and `report`."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest

import kafkascan as ks
from tests.support.command_line import DATA, LEGACY, rows, run, run_process


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A copy of real logs, with one batch of one log damaged."""
    data = Path(shutil.copytree(DATA, tmp_path / "data"))
    log = data / "small-segments-0" / f"{0:020}.log"
    batches = ks.scan_batches(log).batches
    content = bytearray(log.read_bytes())
    content[int(batches["position"][2]) + 65] ^= 4
    log.write_bytes(content)
    return data


def test_salvage_dry_run_and_copy(damaged: Path, tmp_path: Path) -> None:
    result = run("salvage", damaged, "--format", "json")
    assert result.returncode == 1
    (row,) = json.loads(result.stdout)
    assert (row["outcome"], row["symbol"], row["topic"]) == (
        "lost", "CHECKSUM_MISMATCH", "small-segments",
    )  # fmt: skip
    assert f"{row['size']} bytes lost, offsets {row['first_offset']} to" in result.stderr
    out, report = tmp_path / "out", tmp_path / "report.json"
    result = run_process("salvage", damaged, out, "--report", report)
    assert result.returncode == 1
    saved = json.loads(report.read_text())
    assert saved["lost_bytes"] == row["size"]
    assert saved["is_marked_clean"]
    assert run("salvage", damaged, out).returncode == 3  # there is something in it
    again = run("salvage", out)
    assert again.returncode == 1
    assert "[OFFSET_GAP]" in again.stderr, "the lost offsets are missing in the copy"
    assert ("small-segments", "OFFSET_GAP") in {
        (row["topic"], row["symbol"]) for row in rows("audit", out, "--alarms", code=1)
    }
    assert run("info", out).returncode == 1
    checkpoint = out / "cleaner-offset-checkpoint"
    ks.broker_state.write_offset_checkpoint(checkpoint, {("small-segments", 0): 200})
    assert run("info", out).returncode == 0, "compaction explains the gap"


def test_salvage_says_what_it_keeps(damaged: Path, tmp_path: Path) -> None:
    log = damaged / "small-segments-0"
    report = tmp_path / "report.json"
    found = run("salvage", log, "--report", report)
    saved = json.loads(report.read_text())
    kept, lost = saved["kept_records"], saved["lost_bytes"]
    assert (saved["kept_batches"], 0 < kept < 480) == (119, True)
    line = f"119 batches with {kept} records (offsets 0 to 479); {lost} bytes lost in 1 range"
    assert found.stderr.splitlines()[-1] == f"{log}: would keep {line}"
    copied = run("salvage", log, tmp_path / "copy-0")
    assert f"\n{log}: kept {line}\n" in copied.stderr
    of_all = run("salvage", DATA, tmp_path / "copy").stderr
    assert re.search(
        r": kept [\d,]+ batches with [\d,]+ records of \d+ logs; nothing lost\n", of_all
    )
    assert ": would keep 376 batches of 6 logs; nothing lost\n" in run("salvage", LEGACY).stderr
    (tmp_path / "other").mkdir()
    nothing = tmp_path / "other" / f"{0:020}.log"
    nothing.write_bytes(b"x" * 100)
    assert run("salvage", nothing).returncode == 1
    nothing.write_bytes(b"")
    assert f"{nothing}: would keep 0 batches with 0 records; nothing lost\n" in (
        run("salvage", nothing).stderr
    )


def test_a_report_without_a_file_says_the_whole_command(damaged: Path) -> None:
    done = run("report", damaged)
    assert done.returncode == 2
    assert f"\n    kafkascan report {shlex.quote(str(damaged))} -o report.html\n" in done.stderr


def test_diff(damaged: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    ks.salvage(damaged, out)
    result = run("diff", DATA, out, "--format", "jsonl")
    assert result.returncode == 1
    (row,) = map(json.loads, result.stdout.splitlines())
    assert (row["kind"], row["location"], row["is_difference"]) == ("only_left", "middle", True)
    said = r"^small-segments-0: differs from offset \d+ on, in 1 range$"
    assert re.search(said, result.stderr, re.MULTILINE)
    assert run("diff", DATA, out, "--compacted").returncode == 0
    for name in ("one.parquet",):
        saved = tmp_path / name
        assert run("diff", DATA, "--save", saved).returncode == 0
        assert rows("diff", saved, out, code=1) == [row]
    epochs = out / "small-segments-0" / "leader-epoch-checkpoint"
    (last,) = ks.broker_state.read_leader_epochs(epochs)
    (log,) = out.glob(f"small-segments-0/{0:020}.log")
    for path in set(out.glob("small-segments-0/*.log")) - {log}:
        path.unlink()
    begun = last._replace(epoch=last.epoch + 1, start_offset=24)
    ks.broker_state.write_leader_epochs(epochs, [last, begun])
    result = run("diff", DATA / "small-segments-0", out / "small-segments-0", "--compacted")
    assert result.returncode == 1
    assert "LEFT would be truncated to 24 if it followed RIGHT" in result.stderr
    assert run("diff", DATA).returncode == 2
    assert run("diff", DATA, "--save", tmp_path / "x.csv").returncode == 2
    report = tmp_path / "report.json"
    run("diff", DATA, out, "--report", report, "--shifted")
    assert json.loads(report.read_text())["is_same"] is False


def test_advise() -> None:
    found = rows("advise", DATA / "codecs-java-0", "--codec", "zstd:5", "--codec", "lz4")
    assert [(row["codec"], row["level"]) for row in found] == [("zstd", 5), ("lz4", 9)]
    assert all(row["ratio"] > 1 for row in found)
    by = rows("advise", DATA / "transactions-0", "--by", "producer", "--codec", "gzip")
    assert len({row["producer_id"] for row in by}) == len(by) > 2
    assert run("advise", DATA, "--codec", "brotli").returncode == 2


def test_report(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    result = run("report", DATA, "-o", page, "--title", "Logs & more", "--no-verify")
    assert result.returncode == 1  # there are warnings in these logs
    assert "<h1>Logs &amp; more</h1>" in page.read_text()
    assert run("report", "/nowhere", "-o", page).returncode == 3
