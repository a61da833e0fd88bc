"""`kafkascan recover` and `kafkascan index`."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
from rich.filesize import decimal

import kafkascan as ks
from kafkascan.cli.verbs import index_commands, recovery_commands
from kafkascan.io.file_identity import FileIdentity
from kafkascan.logs import SegmentFile
from kafkascan.logs.data_dir_lock import UNCLEAN_SHUTDOWN
from kafkascan.logs.queries.segment_inputs import SegmentInput
from tests.support.command_line import DATA, KILLED, rows, run, run_process
from tests.support.files import contents
from tests.support.partitions import HealthyPartition
from tests.support.paths import in_properties


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    return Path(shutil.copytree(KILLED, tmp_path / "data"))


def test_recover_is_a_dry_run_by_default(killed: Path) -> None:
    before = contents(killed)
    result = run_process("recover", killed, "--format", "json")
    assert result.returncode == 1
    assert contents(killed) == before
    found = {row["topic"]: row for row in json.loads(result.stdout)}
    assert found["preallocated"]["truncated_bytes"] == 62741
    assert found["being-written"]["log_end_offset"] == 124
    assert found["being-written"]["changes_made"] == 0
    assert (
        "preallocated-0/00000000000000000000.log: truncate: zeros follow the last batch;"
        " discards 62,741 bytes, no records\n"
    ) in result.stderr
    ended, skipped, dry, *_, command = result.stderr.splitlines()
    assert ended == f"{killed}: {UNCLEAN_SHUTDOWN}"
    assert skipped.startswith(f"{killed}/__cluster_metadata-0: skipped: ")
    assert dry == f"{killed}: a dry run: nothing was changed"
    assert command == f"    kafkascan recover {shlex.quote(str(killed))} --write --truncate"
    assert "salvage" not in result.stderr


def test_recover_writes_and_truncates(killed: Path) -> None:
    result = run("recover", killed, "--write")
    assert result.returncode == 1  # a tail is left
    assert result.stderr.count("\n") == 5
    assert result.stderr.startswith(f"{killed}: {UNCLEAN_SHUTDOWN}\n")
    assert f"{killed}: recovered: 6 of 7 changes made\n" in result.stderr
    assert "not marked as shut down cleanly: changes remain, for which --truncate" in result.stderr
    result = run("recover", killed, "--write", "--truncate")
    assert result.returncode == 0  # only zeros were discarded
    ended, _, done, truncated, marked = result.stderr.splitlines()
    assert ended == f"{killed}: {UNCLEAN_SHUTDOWN}"
    assert done == f"{killed}: recovered: 1 of 1 changes made"
    assert "truncated: zeros follow the last batch; discarded 62,741 bytes" in truncated
    assert marked == f"{killed}: marked as shut down cleanly, broker epoch 11"
    assert (killed / ".kafka_cleanshutdown").exists()
    result = run("recover", killed)
    assert result.returncode == 0
    assert UNCLEAN_SHUTDOWN not in result.stderr
    assert "kafkascan recover" not in result.stderr
    assert run("verify", killed).returncode == 0


def test_the_command_of_a_dry_run_makes_its_changes(killed: Path) -> None:
    options = (
        "--no-backup", "--recovery-point", "0", "--tiered-topic", "a b", "--tiered-topic", "c",
        "--verify",
    )  # fmt: skip
    planned = run("recover", killed, *options, "--threads", "1")
    *_, command = planned.stderr.splitlines()
    words = shlex.split(command)
    assert words[:3] == ["kafkascan", "recover", str(killed)]
    assert words[-2:] == ["--write", "--truncate"]
    given = sorted(words[3:-2])
    assert given == sorted(options)
    assert run(*words[1:]).returncode == 0
    assert not list(killed.rglob("*.bak"))
    (killed / "being-written-0" / f"{0:020}.index").unlink()
    (killed / ".kafka_cleanshutdown").unlink()
    *_, command = run("recover", killed / "being-written-0").stderr.splitlines()
    assert shlex.split(command)[3:] == ["--write"]  # nothing to truncate


def test_recover_reports_what_it_discards(killed: Path) -> None:
    folder = killed / "being-written-0"
    log = folder / f"{0:020}.log"
    damage(log, 3000)
    loss = "14,431 bytes, offsets 21 to 123 or later, with 41 intact batches of 100 records"
    result = run("recover", killed)
    assert f"{log}: truncate: the stored checksum differs" in result.stderr
    assert f"; discards {loss}\n" in result.stderr
    hint = (
        "recovery discards 100 records of intact batches after the damage; `salvage` keeps them"
        f" in a copy:\n    kafkascan salvage {shlex.quote(str(folder))} COPY\n"
    )
    assert hint in result.stderr
    (found, _) = rows("recover", killed, code=1)
    assert (found["discarded_records"], found["changes_made"]) == (103, 0)
    result = run("recover", killed, "--write", "--truncate")
    assert result.returncode == 1  # records were discarded
    assert f"{log}: truncated: the stored" in result.stderr
    assert f"; discarded {loss}\n" in result.stderr
    assert "kafkascan salvage" not in result.stderr
    assert run("recover", killed).returncode == 0


def test_recover_reports_dropped_segments(tmp_path: Path) -> None:
    healthy = HealthyPartition(tmp_path / "data" / "orders-0").write()
    first, second, *_ = sorted(healthy.folder.glob("*.log"))
    damage(first, 200)
    records = len(ks.read_records(second, control="include"))
    result = run("recover", healthy.folder)
    assert f"with {len(ks.scan_batches(second)):,} intact batches of {records:,} records" in (
        next(one for one in result.stderr.splitlines() if one.startswith(f"{second}: delete: "))
    )


def damage(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def test_a_dry_run_can_be_asked_for(killed: Path, tmp_path: Path) -> None:
    before, copy = contents(killed), tmp_path / "copy"
    assert run("recover", killed, "-n") == run("recover", killed)
    assert run("recover", killed, "-n", "--output", tmp_path / "rows.json").returncode == 1
    assert run("index", "build", killed, "--dry-run") == run("index", "build", killed)
    assert run("salvage", killed, copy, "-n") == run("salvage", killed)
    assert not copy.exists()
    assert contents(killed) == before
    for command in (("recover", "--write"), ("index", "build", "--write"),
                    ("index", "build", f"--output={copy}")):  # fmt: skip
        done = run(*command, killed, "--dry-run")
        assert (done.returncode, "cannot be combined" in done.stderr) == (2, True)
    assert contents(killed) == before


def test_recover_errors(killed: Path, tmp_path: Path) -> None:
    assert run("recover", killed, "--truncate").returncode == 2
    assert run("recover", tmp_path / "nowhere").returncode == 3
    (killed / "being-written-0" / "leader-epoch-checkpoint").write_text("nonsense")
    result = run("recover", killed, "--write", "--truncate", "--format", "jsonl")
    assert result.returncode == 3
    assert "BAD_CHECKPOINT" in result.stderr
    assert len(result.stdout.splitlines()) == 2


def test_recover_counts_changes_of_one_kind(tmp_path: Path) -> None:
    data = tmp_path / "data"
    for number in range(6):
        (data / f"empty-{number}").mkdir(parents=True)
        (data / f"empty-{number}" / f"{0:020}.log").touch()
    log = data / "empty-5" / f"{0:020}.log"
    log.write_bytes(b"torn")
    result = run("recover", data)
    lines = result.stderr.splitlines()
    assert lines[0] == f"{data}: a dry run: nothing was changed"
    loss = "discards 4 bytes, from offset 0 on, no intact batches"
    assert lines[1] == f"{log}: truncate: the last batch is incomplete; {loss}"
    epochs = data / "empty-0" / "leader-epoch-checkpoint"
    assert (
        f"6 leader-epoch-checkpoint files: write: the file is missing (such as {epochs})" in lines
    )
    assert len(lines) == 7  # and both indexes, and the command
    assert len(run("recover", data, "--all-changes").stderr.splitlines()) == 4 + 3 * 6


def test_recover_reports_what_a_broker_does_not_notice(tmp_path: Path) -> None:
    healthy = HealthyPartition(tmp_path / "data" / "orders-0").write()
    data, logs = healthy.folder.parent, sorted(healthy.folder.glob("*.log"))
    checkpoint = data / "recovery-point-offset-checkpoint"
    checkpoint.write_text(f"0\n1\norders 0 {healthy.offset}\n")
    damaged = bytearray(logs[0].read_bytes())
    damaged[-1] ^= 1
    logs[0].write_bytes(damaged)
    result = run("recover", data, "--write")
    assert result.returncode == 0  # as a broker
    assert f"{data}: 2 segments (" in result.stderr
    assert "use --verify, or `kafkascan verify`" in result.stderr
    result = run("recover", data, "--verify")
    assert result.returncode == 1
    assert f"{logs[0]}: position" in result.stderr
    assert "below the recovery point" in result.stderr
    assert "not verified" not in result.stderr
    assert "marked as shut down cleanly before: a broker would load these" in result.stderr
    (data / ".kafka_cleanshutdown").unlink()
    checkpoint.write_text(f"0\n1\norders 0 {healthy.offset + 1}\n")
    result = run("recover", data, "--write", "--truncate")
    assert result.returncode == 1
    assert f"ends at offset {healthy.offset}, but was flushed up to" in result.stderr
    assert "[ENDS_EARLY]" in result.stderr
    assert not (data / ".kafka_cleanshutdown").exists()


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    """A data directory of a broker that shut down cleanly, with a damaged closed segment."""
    healthy = HealthyPartition(tmp_path / "data" / "orders-0").write()
    data, log = healthy.folder.parent, min(healthy.folder.glob("*.log"))
    ks.recover(healthy.folder, write=True, backup=False)
    (data / "meta.properties").write_text("version=1\nnode.id=1\n")
    (data / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":1}')
    (data / "recovery-point-offset-checkpoint").write_text(f"0\n1\norders 0 {healthy.offset}\n")
    damaged = bytearray(log.read_bytes())
    damaged[-1] ^= 1
    log.write_bytes(damaged)
    return data


@pytest.mark.parametrize("options", [
    ("recover",), ("recover", "--write"), ("audit",), ("report", "-o", "page.html"),
])  # fmt: skip
def test_damage_that_no_recovery_repairs_is_the_first_line(
    options: tuple[str, ...], stopped: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(stopped.parent)
    result = run(*options, stopped)
    assert result.returncode == 1
    first, second, *others = result.stderr.splitlines()
    assert first.startswith(f"{stopped}: 1 segment is damaged: consumers fail there, and a broker")
    assert second == f"    kafkascan salvage {shlex.quote(str(stopped / 'orders-0'))} COPY"
    if "--write" in options:
        assert others[0].startswith(f"{min(stopped.rglob('*.log'))}: position ")
        assert not any("marked as shut down cleanly, " in line for line in others)


def test_recover_says_first_what_it_did_not_verify(stopped: Path) -> None:
    """A directory that was not shut down cleanly is recovered as a broker does, which is fast."""
    result = run("recover", stopped, "--no-verify")
    assert result.returncode == 0
    (stopped / ".kafka_cleanshutdown").unlink()
    for said in (result, run("recover", stopped)):
        assert "2 segments (" in said.stderr.splitlines()[0]
        assert "were not verified, as in a broker" in said.stderr.splitlines()[0]
    assert "[CHECKSUM_MISMATCH]" in run("recover", stopped, "--verify").stderr


def test_recover_all_data_dirs(killed: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    shutil.copy(killed / "meta.properties", other)
    shutil.move(killed / "preallocated-0", other)
    properties = tmp_path / "server.properties"
    properties.write_text(f"log.dirs={in_properties(killed, other)}\n")
    named = run("recover", killed, other, "--format", "json")
    assert len(json.loads(named.stdout)) == 2
    of_broker = run("recover", "--server-properties", properties, "--format", "json")
    assert of_broker.stdout == named.stdout
    *notes, command = of_broker.stderr.splitlines()
    assert notes == named.stderr.splitlines()[:-1]
    assert shlex.split(command)[2:6] == [
        str(killed), str(other), "--server-properties", str(properties),
    ]  # fmt: skip
    result = run("recover", "--server-properties", properties, "--write", "--truncate")
    assert result.returncode == 0
    for path in (killed, other):
        assert f"{path}: marked as shut down cleanly, broker epoch 11" in result.stderr
    assert run("recover").returncode == 2
    properties.write_text("log.index.interval.bytes=x\n")
    result = run("recover", killed, "--server-properties", properties)
    assert result.returncode == 3
    assert "[BAD_PROPERTY]" in result.stderr


def test_show_every_kind_of_file() -> None:
    transactions = DATA / "transactions-0"
    (first, *_) = rows("index", "show", transactions / f"{5:020}.txnindex")
    assert first["producer_id"] == 2
    producers = rows("index", "show", transactions / f"{41:020}.snapshot")
    assert [row["producer_id"] for row in producers] == [2, 3, 4, 5, 6]
    times = rows("index", "show", transactions / f"{5:020}.timeindex")
    assert times[0]["offset"] == times[0]["relative_offset"] + 5
    epochs = rows("index", "show", transactions / "leader-epoch-checkpoint")
    assert epochs[0] == {"epoch": 0, "start_offset": 0}
    offsets = rows("index", "show", DATA / "recovery-point-offset-checkpoint")
    assert {"topic": "transactions", "partition": 0, "offset": 41} in offsets
    for name in ("meta.properties", ".kafka_cleanshutdown", "transactions-0/partition.metadata"):
        assert len(rows("index", "show", DATA / name)) == 1
    assert run("index", "show", transactions / f"{5:020}.log").returncode == 3


def test_check(killed: Path) -> None:
    found = rows("index", "check", DATA)
    assert sum(row["errors"] + row["warnings"] for row in found) == 0
    assert sum(row["entries"] for row in found) > 50
    index = killed / "being-written-0" / f"{0:020}.index"
    index.write_bytes(b"\0\0\0\1\0\0\0\7")
    result = run("index", "check", killed / "being-written-0")
    assert result.returncode == 1
    assert "no batch starts at position 7 of the log [WRONG_POSITION]" in result.stderr


def test_check_of_a_log_that_grows(killed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker appends to the log and then to its index, while both are read."""
    log = killed / "being-written-0" / f"{0:020}.log"
    run("index", "build", log.parent, "--interval-bytes", "1", "--write")
    index, data = log.with_suffix(".index"), log.read_bytes()
    entries = index.read_bytes()
    position = int.from_bytes(entries[-4:], "big")
    log.write_bytes(data[:position])
    index.write_bytes(entries[:-8])

    def grow(segment: SegmentFile, kind: str) -> tuple[Path, bytes] | None:
        log.write_bytes(data)
        index.write_bytes(entries)
        return read_sibling(segment, kind)

    read_sibling = SegmentFile.read_sibling
    monkeypatch.setattr(SegmentFile, "read_sibling", grow)
    result = run("index", "check", log.parent)
    assert (result.returncode, result.stderr) == (0, "")


def test_build(killed: Path, tmp_path: Path) -> None:
    found = rows("index", "build", DATA / "transactions-0")
    assert {row["verdict"] for row in found} == {"same"}
    partition = killed / "being-written-0"
    before = contents(partition)
    found = rows("index", "build", partition, "--interval-bytes", "200", code=1)
    assert {row["verdict"] for row in found} == {"differs"}
    assert contents(partition) == before
    rows("index", "build", partition, "--interval-bytes", "200", "--output", tmp_path / "new")
    assert contents(partition) == before
    rows("index", "build", partition, "--interval-bytes", "200", "--write")
    for kind in ("index", "timeindex"):
        written = (partition / f"{0:020}.{kind}").read_bytes()
        assert written == (tmp_path / "new" / partition.name / f"{0:020}.{kind}").read_bytes()
        assert len(written) > 100
    assert run("index", "check", partition).returncode == 0
    assert run("index", "build", partition, "--write", "--output", tmp_path).returncode == 2


def test_a_long_pass_over_a_clean_directory_is_announced(
    killed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = sum(path.stat().st_size for path in killed.glob("[!_]*-*/*.log"))
    assert "verifying" not in run("recover", killed).stderr
    (killed / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":3}')
    assert "verifying" not in run("recover", killed).stderr
    monkeypatch.setattr(recovery_commands, "_LONG_PASS", size)
    announced, *_ = run("recover", killed).stderr.splitlines()
    assert announced == (
        f"{killed}: shut down cleanly, so a broker would recover nothing: verifying the checksums"
        f" of all {decimal(size)} of its logs; --no-verify leaves that out"
    )
    for option in ("--verify", "--no-verify"):
        assert "verifying the" not in run("recover", killed, option).stderr


def test_a_folder_that_cannot_be_listed_stops_no_recovery_of_a_clean_directory(
    tmp_path: Path,
) -> None:
    for name in ("consumed-0", "headers-0"):
        shutil.copytree(DATA / name, tmp_path / "ü 1" / name)
    for name in ("meta.properties", ".kafka_cleanshutdown"):
        shutil.copy(DATA / name, tmp_path / "ü 1" / name)
    (tmp_path / "ü 1" / "gone-0").symlink_to(tmp_path / "nowhere")
    done = run("recover", tmp_path / "ü 1", "--format", "jsonl")
    assert done.returncode == 3
    assert "gone-0" in done.stderr
    found = {row["topic"]: row["segments"] for row in map(json.loads, done.stdout.splitlines())}
    assert found["consumed"] > 0
    assert found["headers"] > 0


@pytest.mark.parametrize("change", ["append", "replace", "delete"])
def test_no_index_is_written_of_a_log_that_changed_meanwhile(
    killed: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """A broker, or rsync: the index would not match the log, and brokers believe it."""
    partition = killed / "being-written-0"
    (log,) = partition.glob("*.log")
    before = contents(partition)
    del before[log.name]

    def build_and_change(*given: Any, **options: Any) -> Any:
        found = build(*given, **options)
        data = log.read_bytes()
        if change != "append":
            log.unlink()
        if change != "delete":
            log.write_bytes(data + ks.build_batches(offset=1000, timestamp=[1], value=[b"new"]))
        return found

    build = ks.build_offset_index
    monkeypatch.setattr(ks, "build_offset_index", build_and_change)
    done = run("index", "build", partition, "--interval-bytes", "200", "--write")
    assert done.returncode == 3
    assert "[FILE_CHANGED]" in done.stderr
    assert str(log) in done.stderr
    after = contents(partition)
    after.pop(log.name, None)
    assert after == before


def test_indexes_are_written_where_opened_files_have_other_inodes(
    killed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in file systems of layers, after a file of a lower one was opened."""
    partition = killed / "being-written-0"
    (log,) = partition.glob("*.log")
    inode = log.stat().st_ino

    def other_inode(descriptor: int) -> os.stat_result:
        found = fstat(descriptor)
        if found.st_ino != inode:
            return found
        return os.stat_result((found.st_mode, inode + 1, *found[2:]), _facts(found))

    fstat = os.fstat
    monkeypatch.setattr(os, "fstat", other_inode)
    found = rows("index", "build", partition, "--interval-bytes", "200", "--write")
    assert {row["verdict"] for row in found} == {"written"}


def _facts(found: os.stat_result) -> dict[str, object]:
    """What stands in a result besides the sequence."""
    names = {name for name in dir(found) if name.startswith("st_")}
    return {name: getattr(found, name) for name in names.difference(found.__match_args__)}


def test_no_index_is_written_of_a_log_that_was_replaced_before_it_was_read(
    killed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log that was listed is read under its new name; the indexes are those of the other."""
    partition = killed / "being-written-0"
    (log,) = partition.glob("*.log")

    def replace_and_look(one: SegmentInput) -> FileIdentity:
        data = log.read_bytes()
        log.rename(f"{log}.deleted")
        log.write_bytes(data)
        return look(one)

    look = index_commands._as_read
    monkeypatch.setattr(index_commands, "_as_read", replace_and_look)
    done = run("index", "build", partition, "--interval-bytes", "200", "--write")
    assert done.returncode == 3
    assert "another file replaced it" in done.stderr
    assert "[FILE_CHANGED]" in done.stderr


def test_lookup() -> None:
    partition = DATA / "transactions-0"
    (found,) = rows("index", "lookup", partition, "--offset", "17")
    expected = ks.lookup_offset(partition, 17)
    assert expected is not None
    assert found == vars(expected)
    (found,) = rows("index", "lookup", partition, "--timestamp", "2024-04-24T23:06:40")
    assert found["offset"] == 0
    missing = run("index", "lookup", partition, "--offset", "99")
    assert missing.returncode == 1
    assert "the log has no record at offset 99 or later" in missing.stderr
    assert run("index", "lookup", partition).returncode == 2
    assert run("index", "lookup", "/nowhere/0.log", "--offset", "1").returncode == 3


def test_an_empty_file_of_properties_is_a_finding(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").touch()
    done = run("index", "show", tmp_path / "meta.properties")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"{tmp_path / 'meta.properties'}: the file has no properties\n"
