"""Segments that overlap: one table of commands, each of which names them and exits with 1."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import kafkascan as ks
from tests.support.command_line import rows, run
from tests.support.overlaps import SHAPES, segment, write_indexes, write_segments

# LOGS is replaced by a partition, OTHER by the same one without stale segments, OUT by a path.
COMMANDS = (
    "info LOGS",
    "verify LOGS",
    "batches LOGS",
    "records LOGS",
    "txns LOGS",
    "producers LOGS",
    "count LOGS",
    "diff LOGS OTHER",
    "diff OTHER LOGS",
    "diff LOGS --save OUT.parquet",
    "advise LOGS --codec gzip --sample 1",
    "recover LOGS",
    "salvage LOGS",
    "salvage LOGS OUT",
    "convert LOGS --compression-type gzip --output OUT",
    "convert LOGS --compression-type gzip --in-place",
    "restamp LOGS --partition-leader-epoch 3 --output OUT",
    "scrub LOGS --from-offset 7 --to-offset 8 --output OUT",
    "scrub LOGS --key k7 --in-place",
)
FIRST, SECOND, THIRD, LAST = (f"{base:020}.log" for base in (0, 100, 200, 300))


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """The log without the segments that the cleaner has merged into the first one."""
    segments = SHAPES["the first of three stale ones was replaced"]
    return write_segments(tmp_path / "other" / "t-0", {base: segments[base] for base in (0, 300)})


@pytest.fixture
def logs(other: Path, tmp_path: Path) -> Path:
    """A backup of it that has kept them."""
    segments = SHAPES["the first of three stale ones was replaced"]
    folder = Path(shutil.copytree(other, tmp_path / "logs" / "t-0"))
    for base in (100, 200):
        (folder / f"{base:020}.log").write_bytes(segments[base])
    return folder


def words(command: str, logs: Path, other: Path, tmp_path: Path) -> list[str | Path]:
    """Return the arguments of a command, with paths."""
    names = {
        "LOGS": logs,
        "OTHER": other,
        "OUT": tmp_path / "out",
        "OUT.parquet": tmp_path / "o.parquet",
    }
    return [names.get(word, word) for word in command.split()]


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_name_both_segments_and_the_offsets(
    command: str, logs: Path, other: Path, tmp_path: Path
) -> None:
    done = run(*words(command, logs, other, tmp_path))
    assert done.returncode == 1, done.stderr
    said = done.stdout + done.stderr
    assert said.count("[OFFSET_OVERLAP]") == 2
    for following, first, last in ((SECOND, 100, 199), (THIRD, 200, 299)):
        sentence = f"{logs / FIRST}: offsets {first} to {last} are also in {following}"
        assert sentence in said or command.startswith("recover")
        assert FIRST in said
        assert following in said


@pytest.mark.parametrize("command", [one for one in COMMANDS if "--key" not in one])
def test_nothing_is_said_without_stale_segments(command: str, other: Path, tmp_path: Path) -> None:
    done = run(*words(command, other, other, tmp_path))
    assert "OFFSET_OVERLAP" not in done.stdout + done.stderr
    # Side files are missing: recovery would write them.
    assert done.returncode == 0 or command.startswith("recover"), done.stderr


def test_audit_and_report_say_so_in_their_findings(logs: Path, tmp_path: Path) -> None:
    found = rows("audit", logs, "--alarms", code=1)
    stale = [one["file"] for one in found if one["symbol"] == "OFFSET_OVERLAP"]
    assert stale == [SECOND, f"{200:020}.log"]
    assert run("report", logs, "-o", tmp_path / "page.html").returncode == 1
    assert "OFFSET_OVERLAP" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize("verb", ["records", "batches"])
def test_each_offset_is_listed_once(verb: str, logs: Path, other: Path) -> None:
    assert rows(verb, logs, code=1) == rows(verb, other)
    # Everything on disk, and files that are given by their names.
    listed = rows(verb, logs, "--all", code=1)
    assert len(listed) > len(rows(verb, other))
    files = sorted(logs.glob("*.log"))
    assert rows(verb, *files, code=1) == listed


def test_a_file_by_itself_is_read_in_full(logs: Path) -> None:
    assert len(rows("records", logs / SECOND)) == 100


def test_conditions_do_not_change_what_is_found(logs: Path, other: Path) -> None:
    """The end of a segment does not depend on the records that are shown of it."""
    for condition in (["--key", "k210"], ["--to-offset", "50"], ["--from-offset", "290"]):
        assert rows("records", logs, *condition, code=1) == rows("records", other, *condition)


def test_counts_and_differences_are_those_of_the_log(logs: Path, other: Path) -> None:
    (counted,), (expected,) = rows("count", logs, code=1), rows("count", other)
    assert counted["is_exact"] is False
    on_disk = {name: counted[name] for name in ("segments", "size_in_bytes")}
    assert counted | {"is_exact": True} == expected | on_disk
    assert rows("diff", logs, other, code=1) == rows("diff", other, logs, code=1) == []
    (one,) = ks.diff_logs(logs, other).partitions
    assert one.differences == []
    assert not one.is_same


# What a file of these names and offsets contains is judged also where a command skips it, begins in
# the middle of it, or has enough rows before its end.
OF_FOREIGN = [
    *(one for one in COMMANDS if not one.startswith(("recover", "salvage"))),
    "count LOGS --deep",
    "records LOGS --tail 2",
    "records LOGS --limit 11",
    "records LOGS --around 15 --context 1",
    "records LOGS --from-offset 12",
    "records LOGS --from-time 2020-01-01",
    "records LOGS --isolation read_committed",
    "batches LOGS --tail 1",
    "batches LOGS --around 15 --context 1",
]


@pytest.mark.parametrize("command", OF_FOREIGN)
def test_a_foreign_segment_is_named(command: str, tmp_path: Path) -> None:
    own, added = segment("A", 0, 10, step=2), segment("A", 10, 20, step=2)
    other = write_segments(tmp_path / "other" / "t-0", {0: own, 10: added})
    logs = write_segments(tmp_path / "logs" / "t-0", {0: own, 10: own + added})
    for folder in (other, logs):
        write_indexes(folder)
    done = run(*words(command, logs, other, tmp_path))
    assert done.returncode != 0
    said = done.stdout + done.stderr
    assert f"{10:020}.log" in said
    # The index of a rewritten segment cannot have such offsets.
    is_rewrite = command.startswith(("convert", "restamp", "scrub"))
    assert "[OFFSET_OUT_OF_SEGMENT]" in said or (is_rewrite and "[OFFSET_OVERFLOW]" in said)


def test_sql_warns_of_a_foreign_segment(tmp_path: Path) -> None:
    pytest.importorskip("duckdb")
    own = segment("A", 0, 10, step=2)
    logs = write_segments(tmp_path / "t-0", {0: own, 10: own})
    done = run("sql", "select count(*) as n from records", logs, "--format", "json")
    assert done.returncode == 1, done.stderr
    assert '"n":10' in done.stdout.replace(" ", "")
    assert "[OFFSET_OUT_OF_SEGMENT]" in done.stderr


def test_saved_fingerprints_keep_the_overlaps(logs: Path, other: Path, tmp_path: Path) -> None:
    saved = tmp_path / "fingerprints.parquet"
    assert run("diff", logs, "--save", saved).returncode == 1
    done = run("diff", saved, other)
    assert done.returncode == 1
    assert done.stderr.count("[OFFSET_OVERLAP]") == 2
