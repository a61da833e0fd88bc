"""`kafkascan info`, `verify` and `batches`, and what all commands share."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest

import kafkascan as ks
from kafkascan.cli import commands
from kafkascan.cli.verb_table import VERBS
from kafkascan.io.page_cache import DropBehind
from kafkascan.logs import log_problems
from kafkascan.logs.walking.segment_tails import LogEnd, intact_batches
from tests.support.cold_files import evict
from tests.support.command_line import DATA, KILLED, LEGACY, rows, run, run_process
from tests.support.permissions import folder_for_all
from tests.support.records import RecordV2, batch_of
from tests.support.segments import T0, Rig, batch_v2, message_v1
from tests.support.waiting import HANG_SECONDS, cpu_seconds, wait_until

# A record without key, value and headers.
RECORD = bytes([12, 0, 0, 0, 1, 1, 0])


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(Rig().batches(10).log)
    return path


def test_info_over_a_data_dir() -> None:
    found = rows("info", DATA, "--all")
    segments = list(ks.open_log_dir(DATA).segments())
    assert [row["segment"] for row in found] == [one.path.name for _, one in segments]
    assert {row["end"] for row in found} == {"CLEAN"}
    for row, (partition, segment) in zip(found, segments, strict=True):
        scan = ks.scan_batches(segment.path)
        assert (row["topic"], row["partition"]) == (partition.topic, partition.partition)
        assert (row["batches"], row["size"]) == (len(scan), segment.size)


def test_info_of_magic_0_and_1() -> None:
    found = {row["topic"]: row for row in rows("info", LEGACY)}
    assert set(found["magic-mixed"]["magics"]) == {"0", "1", "2"}
    assert found["magic-0"]["max_timestamp"] is None
    assert found["magic-0"]["uncounted_batches"] > 0


def test_verify_a_healthy_data_dir() -> None:
    found = rows("verify", DATA)
    assert sum(row["bad_checksums"] for row in found) == 0
    assert sum(row["batches"] for row in found) > 250


def test_a_killed_brokers_zero_tail_is_a_note() -> None:
    result = run_process("verify", KILLED, "--format", "jsonl")
    assert result.returncode == 0
    assert "zeros follow the last complete batch [ZERO_TAIL]" in result.stderr
    ends = [json.loads(line)["end"] for line in result.stdout.splitlines()]
    assert ends.count("ZERO_TAIL") == 1


def test_batches_match_scan_batches() -> None:
    segment = max((DATA / "transactions-0").glob("*.log"))
    found = rows("batches", segment, "--columns", "all", "--verify")
    scan = ks.scan_batches(segment)
    names = {"compression_type": ks.CompressionType, "timestamp_type": ks.TimestampType}
    for name in ks.batches.COLUMN_NAMES:
        expected = scan[name].tolist()
        if name in names:
            expected = [names[name].name_of(code) for code in expected]
        assert [row[name] for row in found] == expected, name
    assert all(row["crc_is_valid"] for row in found)


def test_formats_agree(log: Path) -> None:
    columns = ("base_offset", "is_control", "compression_type", "max_timestamp")
    arguments = ("batches", log, "--columns", ",".join(columns))
    from_json = rows(*arguments)
    from_lines = [json.loads(x) for x in run(*arguments, "--format", "jsonl").stdout.splitlines()]
    from_csv = list(csv.DictReader(io.StringIO(run(*arguments, "--format", "csv").stdout)))
    table = [line.split() for line in run(*arguments).stdout.splitlines()]
    assert from_json == from_lines
    assert [row["base_offset"] for row in from_json] == list(range(10))
    assert [row["base_offset"] for row in from_csv] == [str(n) for n in range(10)]
    assert {row["is_control"] for row in from_csv} == {"false"}
    assert {row["max_timestamp"] for row in from_csv} == {str(T0)}
    assert table[0] == list(columns)
    assert table[3] == ["2", "false", "none", "2024-04-24T23:06:40.000Z"]


@pytest.mark.parametrize(
    ("options", "offsets"),
    [
        (["--limit", "3"], [0, 1, 2]),
        (["--limit", "0"], []),
        (["--tail", "2"], [8, 9]),
        (["--tail", "0"], []),
        (["--tail", "99"], list(range(10))),
        (["--from-offset", "4", "--to-offset", "6"], [4, 5]),
        (["--from-offset", "4", "--limit", "1"], [4]),
        (["--from-offset", "99"], []),
    ],
)
def test_selections(log: Path, options: list[str], offsets: list[int]) -> None:
    found = rows("batches", log, "--columns", "base_offset", *options)
    assert [row["base_offset"] for row in found] == offsets


def test_tail_over_several_files(tmp_path: Path, log: Path) -> None:
    second = tmp_path / "00000000000000000010.log"
    second.write_bytes(b"".join(Rig().batches(13).parts[10:]))
    found = rows("batches", tmp_path, "--columns", "base_offset,segment", "--tail", "5")
    assert [row["base_offset"] for row in found] == [8, 9, 10, 11, 12]
    assert [row["segment"] for row in found] == [log.name] * 2 + [second.name] * 3


def test_times() -> None:
    segment = DATA / "timestamps-0" / "00000000000000000000.log"
    everything = rows("batches", segment)
    late = rows("batches", segment, "--from-time", "2030-01-01")
    early = rows("batches", segment, "--to-time", "1893456000000")
    assert 0 < len(late) < len(everything)
    assert len(late) + len(early) == len(everything)


def test_damage_is_reported_and_the_run_continues(tmp_path: Path, log: Path) -> None:
    bad_crc = tmp_path / "00000000000000000010.log"
    bad_crc.write_bytes(Rig().batches(5).flip(2, 63).log)
    corrupt = tmp_path / "00000000000000000020.log"
    corrupt.write_bytes(Rig().batches(5).set(3, "magic", 7).log)
    torn = tmp_path / "00000000000000000030.log"
    torn.write_bytes(Rig().batches(5).log[:-3])
    result = run("verify", tmp_path, "--format", "jsonl")
    assert result.returncode == 1
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(row["batches"], row["bad_checksums"], row["end"]) for row in found] == [
        (10, 0, "CLEAN"), (5, 1, "CLEAN"), (3, 0, "CORRUPT"), (4, 0, "TORN_TAIL"),
    ]  # fmt: skip
    # The bytes are not those of segments with these names.
    lines = [line for line in result.stderr.splitlines() if "[OFFSET_" not in line]
    first, second, third = lines
    assert first.startswith(f"{bad_crc}: position 136 (base_offset 2): ")
    assert first.endswith("[CHECKSUM_MISMATCH]")
    assert "magic 7 is not 0, 1 or 2 [BAD_MAGIC]" in second
    assert third == f"{torn}: position 272: 65 bytes follow the last complete batch [TORN_TAIL]"
    listed = run("batches", bad_crc, "--verify", "--columns", "base_offset", "--format", "csv")
    assert listed.returncode == 1
    assert listed.stdout.splitlines()[3] == "2,false"


@pytest.mark.parametrize("verb", ["info", "verify", "batches", "records"])
def test_a_batch_that_is_being_written_is_a_note(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / f"{0:020}.log"
    log = b"".join(batch_of([RecordV2()], base_offset=offset) for offset in range(5))
    path.write_bytes(log[:-3])

    def write_the_rest(end: LogEnd, *given: Any) -> ks.BatchTable:
        with path.open("ab") as file:
            file.write(log[-3:])
        return intact_batches(end, *given)

    monkeypatch.setattr(log_problems, "intact_batches", write_the_rest)
    done = run(verb, path)
    assert done.returncode == 0
    assert "bytes follow the last complete batch [TORN_TAIL]" in done.stderr
    assert run(verb, path).stderr.count("TORN_TAIL") == 0


@pytest.mark.parametrize("as_file", [True, False])
def test_all_verbs_say_that_intact_batches_follow_a_wrong_length(
    as_file: bool, tmp_path: Path
) -> None:
    """It looks like the length of an incomplete batch at the end, which a broker removes."""
    folder = tmp_path / "orders-0"
    folder.mkdir()
    path = folder / f"{0:020}.log"
    path.write_bytes(Rig().batches(10).set(4, "batch_length", 1 << 30).log)
    place = path if as_file else folder
    expected = (
        f"{path}: position 272: 408 bytes follow the last complete batch; 5 intact batches follow"
        " at position 340: see `kafkascan salvage` [TORN_TAIL]"
    )
    for verb in ("info", "verify", "batches", "records", "count", "producers", "advise"):
        result = run(verb, place)
        assert result.returncode == 1
        assert expected in result.stderr.splitlines()
    assert expected in run("index", "check", place).stderr.splitlines()
    assert expected in run("batches", place, "--tail", "2").stderr.splitlines()
    copying = ("--compression-type", "zstd", "-o", tmp_path / "new")
    assert run("convert", place, *copying).stderr == f"{expected}\n"
    (found,) = (one for one in rows("audit", place, code=1) if one["symbol"] == "TORN_TAIL")
    assert found["severity"] == "error"
    assert f"{path}: position {found['position']}: {found['message']} [TORN_TAIL]" == expected
    if not as_file:
        assert "with 5 intact batches" in run("recover", place).stderr


def test_unreadable_inputs_exit_3_after_the_readable_ones(tmp_path: Path, log: Path) -> None:
    (tmp_path / "empty").mkdir()
    result = run_process(
        "info", tmp_path / "none.log", tmp_path / "empty", log, "--format", "jsonl"
    )
    assert result.returncode == 3
    assert json.loads(result.stdout)["batches"] == 10
    assert result.stderr.splitlines() == [
        f"{tmp_path / 'none.log'}: No such file or directory",
        f"{tmp_path / 'empty'}: no logs here [NO_LOGS]",
    ]


@pytest.mark.parametrize(
    "arguments",
    [
        [], ["info"], ["scan", "x"], ["info", "x", "--format", "xml"],
        ["batches", "x", "--columns", "max_timestam"], ["batches", "x", "--limit", "-1"],
        ["batches", "x", "--limit", "1", "--tail", "1"], ["batches", "x", "--from-time", "soon"],
        ["batches", "x", "--from-time", "²"], ["batches", "x", "--from-time=--5"],
        ["verify", "x", "--threads", "0"],
    ],
)  # fmt: skip
def test_wrong_usage_is_exit_2(arguments: list[str]) -> None:
    result = run(*arguments)
    assert result.returncode == 2
    assert result.stdout == ""
    assert "Usage" in result.stderr


def test_a_misspelt_column_gets_a_suggestion() -> None:
    result = run_process("batches", "x", "--columns", "max_timestam")
    assert result.returncode == 2
    assert "did you mean 'max_timestamp'" in result.stderr


@pytest.mark.parametrize(("word", "meant"), [("inof", "info"), ("Dump", "dump-log"), ("xyzzy", "")])
def test_a_misspelt_command_gets_a_suggestion(word: str, meant: str) -> None:
    result = run(word, "x")
    assert result.returncode == 2
    hint = f"; did you mean {meant!r}?" if meant else "."
    assert f"No such command {word!r}{hint}\n" in result.stderr


@pytest.mark.parametrize(
    ("word", "meant"), [("ls", "info"), ("repair", "recover"), ("version", "--version")]
)
def test_a_word_of_other_tools_gets_the_command(word: str, meant: str) -> None:
    done = run(word)
    assert (done.returncode, f"did you mean {meant!r}?" in done.stderr) == (2, True)
    assert run("-V").stdout == run("--version").stdout


@pytest.mark.parametrize("value", ["beginning", "end", "-5", "1234", "s@17"])
def test_an_offset_of_kcat_is_no_file(value: str, log: Path) -> None:
    done = run("records", log, "-o", value)
    assert (done.returncode, "--from-offset" in done.stderr) == (2, True)


def test_help_and_version() -> None:
    for command in ([], ["info"], ["verify"], ["batches"]):
        result = run(*command, "--help")
        assert result.returncode == 0
        assert "Usage: kafkascan" in result.stdout
    assert ks.__version__ in run_process("--version").stdout


@pytest.mark.parametrize("command", [["info"], ["index", "check"], ["dump-log"], []])
def test_help_as_a_command(command: list[str]) -> None:
    assert run("help", *command).stdout == run(*command, "--help").stdout != ""


def test_the_list_of_commands_shows_the_first_line_of_each_help() -> None:
    listed = run("--help").stdout
    for verb in VERBS.values():
        command = commands.cli.get_command(click.Context(commands.cli), verb.name)
        assert command is not None
        assert verb.summary == (command.help or "").splitlines()[0]
        assert f"{verb.name} " in listed
        assert verb.summary in listed


READ_BY_FILES = ("info", "verify", "batches", "records", "index check", "index build")
READ_BY_LOGS = ("audit", "txns", "producers", "count", "advise", "diff", "salvage", "report",
                "recover")  # fmt: skip


def test_help_states_which_segments_a_verb_reads() -> None:
    for verb in READ_BY_FILES:
        text = " ".join(run(*verb.split(), "--help").stdout.split())
        assert "--all adds the other files" in text, verb
    for verb in READ_BY_LOGS:
        text = " ".join(run(verb, "--help").stdout.split())
        assert "nly the segments that a broker would load" in text, verb


def test_verbs_read_live_segments() -> None:
    metadata = DATA / "__cluster_metadata-0"
    assert [row["segment"] for row in rows("info", metadata)] == [f"{0:020}.log"]
    segments = [row["segment"] for row in rows("info", metadata, "--all")]
    assert [name for name in segments if not str(name).endswith(".checkpoint")] == [f"{0:020}.log"]
    assert len(segments) > 1
    (counted,) = rows("count", metadata)
    live = ks.read_records(metadata / f"{0:020}.log", control="include")
    assert counted["records"] + counted["control_records"] == len(live)


@pytest.mark.parametrize("verb", ["info", "verify", "batches", "records"])
def test_leftovers_and_dropped_logs_are_read_on_request_or_by_name(
    verb: str, tmp_path: Path
) -> None:
    """Retention and the cleaner rename segments before they delete them."""
    live = tmp_path / "data" / "orders-0"
    live.mkdir(parents=True)
    log = b"".join(batch_v2(RECORD, base_offset=offset) for offset in range(3, 6))
    (live / f"{3:020}.log").write_bytes(log)
    names = [f"{0:020}.log.deleted", f"{3:020}.log.cleaned", f"{3:020}.log.swap"]
    for name in names:
        (live / name).write_bytes(log)
    dropped = tmp_path / "data" / f"orders-1.{0:032x}-delete"
    shutil.copytree(live, dropped)
    per_file = 1 if verb in ("info", "verify") else 3
    assert len(rows(verb, tmp_path / "data")) == per_file
    assert len(rows(verb, live)) == per_file
    assert len(rows(verb, tmp_path / "data", "--all")) == 8 * per_file
    assert len(rows(verb, live / names[0], live / names[2])) == 2 * per_file
    assert len(rows(verb, dropped)) == per_file


def test_reading_and_mapping_give_the_same_rows(log: Path) -> None:
    for verb in ("info", "verify", "batches"):
        assert run(verb, DATA).stdout == run(verb, DATA, "--no-memory-map").stdout


def test_a_closed_pipe_is_silent() -> None:
    batches = shlex.join([sys.executable, "-m", "kafkascan", "batches", str(DATA)])
    command = f"{batches} | head -n 1"
    result = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False
    )
    assert result.returncode in (0, 128 + signal.SIGPIPE)
    assert (len(result.stdout.splitlines()), result.stderr) == (1, "")


def test_no_progress_without_a_terminal(log: Path) -> None:
    assert run("verify", log).stderr == ""


@pytest.mark.parametrize(
    "command", [("records", "--format", "csv"), ("dump-log", "--print-data-log", "--files")]
)
def test_values_do_not_control_a_terminal(command: tuple[str, ...], tmp_path: Path) -> None:
    """A pipe gets their bytes; a terminal gets no control sequence and no change of direction."""
    value = "\x1b[31mred \x9b2J \u202eright to left\r\x07 ünïcode"
    log = tmp_path / f"{0:020}.log"
    log.write_bytes(batch_of([RecordV2(key=b"\xff", value=value.encode())]))
    command_line = [sys.executable, "-m", "kafkascan", *command, str(log)]
    piped = subprocess.run(command_line, capture_output=True, check=True).stdout
    assert value.encode() in piped
    main, follower = pty.openpty()
    with subprocess.Popen(command_line, stdout=follower) as process:
        os.close(follower)
        shown = _all_of(main).decode()
    assert process.returncode == 0
    assert r"\x1b[31mred \x9b2J \u202eright to left\r\x07 ünïcode" in shown
    assert shown.count("\n") == shown.count("\r\n") == piped.count(b"\n")


def _all_of(terminal: int) -> bytes:
    """Return what a terminal got, and close it."""
    seen = b""
    while True:
        try:
            seen += os.read(terminal, 65536)
        except OSError:
            os.close(terminal)
            return seen


@pytest.mark.parametrize("quiet", [(), ("--quiet",)])
def test_progress_on_a_terminal(quiet: tuple[str, ...]) -> None:
    """Stderr is a terminal and shows the bar; stdout is a pipe and gets the rows."""
    main, follower = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "kafkascan", "verify", str(DATA), "--format", "jsonl", *quiet],
        stdout=subprocess.PIPE,
        stderr=follower,
        env=os.environ | {"TERM": "xterm", "COLUMNS": "120"},
    ) as process:
        os.close(follower)
        assert process.stdout is not None
        stdout = process.stdout.read()
        seen = _all_of(main)
    assert process.returncode == 0
    files = len(list(ks.open_log_dir(DATA).log_segments()))
    assert len(stdout.splitlines()) == files
    if quiet:
        assert seen == b""
        return
    assert "100 %" in seen.decode()
    assert f"{files} of {files} files" in seen.decode()
    assert b"\x1b[" in seen


def test_an_unknown_first_offset_is_null(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    path.write_bytes(message_v1(offset=9, attributes=1))
    (row,) = rows("info", path)
    assert (row["first_offset"], row["last_offset"]) == (None, 9)


def test_a_data_dir_with_a_bootstrap_checkpoint_is_a_data_dir(tmp_path: Path) -> None:
    """KRaft keeps that file next to the partition directories."""
    shutil.copytree(LEGACY, tmp_path / "data")
    snapshot = next((DATA / "__cluster_metadata-0").glob("*.checkpoint"))
    shutil.copy(snapshot, tmp_path / "data" / "bootstrap.checkpoint")
    assert "bootstrap.checkpoint" not in [row["segment"] for row in rows("verify", LEGACY)]
    found = rows("verify", tmp_path / "data", "--all")
    assert found[0]["segment"] == "bootstrap.checkpoint"
    assert len(found) == 1 + len(list(ks.open_log_dir(LEGACY).segments()))


def test_a_file_that_ends_early_is_unreadable(log: Path) -> None:
    """Files in /sys are shorter than the size that stat reports."""
    short = Path("/sys/kernel/uevent_seqnum")
    if not short.exists():
        pytest.skip("this system has no such file")
    for verb in ("info", "verify", "batches"):
        result = run(verb, short, log, "--no-memory-map", "--format", "jsonl")
        assert result.returncode == 3
        assert "CHANGED_WHILE_READ" in result.stderr
        assert "Traceback" not in result.stderr
        assert len(result.stdout.splitlines()) == (10 if verb == "batches" else 1)


def test_pipes_and_devices_are_unreadable(tmp_path: Path, log: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    result = run("info", tmp_path / "fifo", "/dev/null", log, "--format", "jsonl")
    assert result.returncode == 3
    assert result.stderr.count("not a regular file") == 2
    assert len(result.stdout.splitlines()) == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="takes another user")
@pytest.mark.skipif(
    "KAFKASCAN_COVERAGE" in os.environ, reason="the other user may not write the counts"
)
def test_unreadable_directories_do_not_hide_readable_ones() -> None:
    # The first run imports what the second one needs: the other user may not read this folder.
    script = (
        "import contextlib, os, sys; from kafkascan.cli import commands\n"
        "with open(os.devnull, 'w') as nowhere, contextlib.redirect_stdout(nowhere):\n"
        "    commands.invoke(['info', sys.argv[1], '--format', 'jsonl'])\n"
        "os.seteuid(65534)\n"
        "sys.exit(commands.invoke(['info', sys.argv[1], '--format', 'jsonl']))"
    )
    with folder_for_all() as folder:
        for name in ("a-0", "b-0", "c-0"):
            shutil.copytree(DATA / "consumed-0", folder / "data" / name)
        (folder / "data" / "lost+found").mkdir(mode=0o700)
        (folder / "data" / "b-0").chmod(0o700)
        result = subprocess.run(
            [sys.executable, "-c", script, folder / "data"], capture_output=True, text=True
        )
    assert [json.loads(line)["topic"] for line in result.stdout.splitlines()] == ["a", "c"]
    assert result.stderr.splitlines() == [f"{folder / 'data' / 'b-0'}: Permission denied"]
    assert result.returncode == 3


@pytest.mark.skipif(sys.platform != "linux", reason="needs /dev/full")
@pytest.mark.parametrize("arguments", [["info", DATA], ["batches", DATA], ["--help"]])
def test_a_full_disk_is_reported(arguments: list[object]) -> None:
    with open("/dev/full", "w") as full:
        result = subprocess.run(
            [sys.executable, "-m", "kafkascan", *map(str, arguments)],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert result.returncode == 3
    assert result.stderr == "kafkascan: cannot write: No space left on device\n"


BY_FILES = ["info", "verify", "batches", "records", "index check"]


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
@pytest.mark.parametrize("verb", BY_FILES)
def test_a_file_that_cannot_be_read_is_not_an_output_that_cannot_be_written(
    verb: str,
) -> None:
    """As on a failing disk; the other inputs are read."""
    result = run(*verb.split(), "/proc/self/mem", DATA / "headers-0", "--format", "csv")
    assert result.returncode == 3
    assert result.stderr == "/proc/self/mem: Input/output error\n"
    assert len(result.stdout.splitlines()) >= 2


@pytest.mark.parametrize("verb", BY_FILES)
def test_a_fifo_is_no_empty_log(verb: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.log")
    result = run(*verb.split(), tmp_path / "fifo.log")
    assert result.returncode == 3
    assert result.stderr == f"{tmp_path / 'fifo.log'}: not a regular file\n"


@pytest.mark.parametrize("verb", ["batches", "records", "scrub"])
@pytest.mark.parametrize("unit", ["offset", "time"])
def test_a_range_that_ends_before_it_begins_is_refused(verb: str, unit: str, log: Path) -> None:
    if (verb, unit) == ("scrub", "time"):
        pytest.skip("scrub has no times")
    before = log.read_bytes()
    first, last = (9, 3) if unit == "offset" else ("2025-01-02", "2025-01-01")
    options = [f"--from-{unit}", first, f"--to-{unit}", last] + ["--in-place"] * (verb == "scrub")
    result = run(verb, log, *options)
    assert result.returncode == 2
    assert f"--to-{unit} is before --from-{unit}" in result.stderr
    assert log.read_bytes() == before


def test_closed_streams() -> None:
    """Rows that nobody can get are an error."""
    log = DATA / "transactions-0" / f"{5:020}.log"
    for verb in (["info", DATA], ["dump-log", "--files", log]):
        command = shlex.join([sys.executable, "-m", "kafkascan", *map(str, verb)])
        for redirection, code in ((">&-", 3), ("2>&-", 0), (">&- 2>&-", 3), (">/dev/full", 3)):
            done = subprocess.run(
                ["bash", "-c", f"{command} {redirection}"], capture_output=True, check=False
            )
            assert done.returncode == code, (verb, redirection)


def test_a_bug_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise KeyError("nobody expects it")

    monkeypatch.setattr(ks, "count_records", fail)
    done = run("count", DATA)
    assert done.returncode == 70
    assert "nobody expects it" in done.stderr
    assert done.stderr.endswith("this is a bug: please report it, with the lines above\n")


@pytest.mark.skipif(sys.platform != "linux", reason="file names must be UTF-8 elsewhere")
def test_unprintable_names(tmp_path: Path) -> None:
    """Invalid UTF-8, control characters, and text that resembles markup."""
    names = [b"caf\xe9-0", b"new\nline-1", b"esc\x1b[31m-2", b"a:warning:b-3"]
    for name in names:
        folder = os.path.join(os.fsencode(tmp_path), name)
        os.mkdir(folder)
        with open(os.path.join(folder, b"0.log"), "wb") as file:
            file.write(Rig().batches(2).log[:-1])
    for output_format in ("table", "csv", "json"):
        result = run("info", tmp_path, "--format", output_format)
        assert result.returncode == 1
        assert "\x1b" not in result.stderr
        assert ":warning:" in result.stderr
        assert len(result.stderr.splitlines()) == len(names)
    assert "\x1b" not in run("info", tmp_path).stdout
    assert [row["partition"] for row in json.loads(result.stdout)] == [3, 0, 2, 1]


def test_only_listed_batches_are_verified(tmp_path: Path) -> None:
    (tmp_path / "0.log").write_bytes(Rig().batches(3).flip(2, 63).log)
    (tmp_path / "3.log").write_bytes(b"".join(Rig().batches(4).parts[3:]))
    result = run("batches", tmp_path, "--verify", "--tail", 1, "--format", "jsonl")
    assert (result.returncode, result.stderr) == (0, "")
    assert run("batches", tmp_path, "--verify", "--tail", 2).returncode == 1


def test_an_empty_first_chunk_does_not_spoil_the_table(tmp_path: Path, log: Path) -> None:
    (tmp_path / "00000000000000000010.log").write_bytes(b"")
    table = run("batches", tmp_path, "--from-offset", 4).stdout
    assert table == run("batches", tmp_path, "--tail", 6).stdout
    lines = [line for line in table.splitlines() if " none " in line]
    assert len({line.index(" none ") for line in lines}) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="needs RWF_NOWAIT")
def test_drop_cache(log: Path) -> None:
    log.write_bytes(Rig().batches(20_000, bytes(200)).log)
    with log.open("rb") as file:
        os.fdatasync(file.fileno())
    for options in ([], ["--no-memory-map"]):
        # The kernel keeps pages that something else refers to at that moment.
        assert any(_drops_cache(log, options) for _ in range(5))


@pytest.mark.skipif(sys.platform != "linux", reason="needs cachestat")
@pytest.mark.parametrize("options", [[], ["--keep-cache"]])
def test_what_was_not_cached_is_dropped_again(log: Path, options: list[str]) -> None:
    log.write_bytes(Rig().batches(20_000, bytes(200)).log)
    with ks.Source(log) as source:
        evict(log)
        behind = DropBehind(source)
        log.read_bytes()
        behind.drop()
        if source.is_cached(0, source.size):
            pytest.skip("the system does not report what is cached")
        assert run("verify", log, *options).returncode == 0
        # The first bytes stay: they say what the file is.
        assert source.is_cached(1 << 20, source.size) == bool(options)
        log.read_bytes()
        assert run("verify", log).returncode == 0
        assert source.is_cached(1 << 20, source.size), "it was cached before"


def _drops_cache(log: Path, options: list[str]) -> bool:
    with open(log, "rb") as file:
        file.read()
        os.preadv(file.fileno(), [bytearray(10)], 1 << 20, os.RWF_NOWAIT)  # in the cache
        assert run("verify", log, "--drop-cache", *options).returncode == 0
        try:
            os.preadv(file.fileno(), [bytearray(10)], 1 << 20, os.RWF_NOWAIT)
        except BlockingIOError:
            return True
        except OSError:
            pytest.skip("this file system does not report what is cached")
        return False


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_threads_change_nothing(threads: int) -> None:
    for verb in ("info", "verify"):
        expected = run(verb, DATA, KILLED, "--threads", 1)
        found = run(verb, DATA, KILLED, "--threads", threads)
        assert (found.stdout, found.stderr) == (expected.stdout, expected.stderr)


@pytest.mark.skipif(sys.platform != "linux", reason="reads the CPU clock of a process")
def test_ctrl_c_ends_the_run_soon(tmp_path: Path) -> None:
    """Queued segments are not started, running ones stop at their next table."""
    log = tmp_path / "0.log"
    log.write_bytes(Rig().batches(100, bytes(1 << 20)).log)
    for offset in range(1, 60):
        os.link(log, tmp_path / f"{offset}.log")
    program = (
        "import signal, sys; import kafkascan.cli.commands; from kafkascan.cli import main;"
        "signal.signal(signal.SIGINT, signal.default_int_handler);"
        "print('ready', flush=True);"
        "sys.exit(main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", program, "verify", str(tmp_path), "--threads", "1"]
    with subprocess.Popen(
        command,
        env=os.environ | {"KAFKASCAN_CRC32C": "portable"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        begun, of_children = cpu_seconds(process.pid), os.times()
        wait_until(lambda: cpu_seconds(process.pid) > begun + 0.3 or process.poll() is not None)
        assert process.poll() is None, "interrupted too late"
        process.send_signal(signal.SIGINT)
        sent = cpu_seconds(process.pid)  # this process may not run for a while before
        process.communicate(timeout=HANG_SECONDS)
    ended = os.times()
    taken = ended.children_user + ended.children_system
    taken -= of_children.children_user + of_children.children_system
    assert taken - sent < 2
    assert process.returncode == 130


def test_many_findings_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    one = batch_v2(b"x", crc=1)
    path.write_bytes(b"".join(offset.to_bytes(8) + one[8:] for offset in range(20_000)))
    result = run("verify", path, "--format", "jsonl")
    assert json.loads(result.stdout)["bad_checksums"] == 20_000
    lines = result.stderr.splitlines()
    assert len(lines) == 1001
    assert lines[-1] == "… and 19000 more findings in the same file"
    assert len(run("batches", path, "--verify").stderr.splitlines()) > 3000


def test_an_unknown_kernel_is_an_error() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "kafkascan", "verify", str(DATA)],
        env=os.environ | {"KAFKASCAN_CRC32C": "quantum"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode != 0
    assert "quantum" in result.stderr


def test_a_loop_of_links_does_not_hide_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "0.log").write_bytes(Rig().batches(2).log)
    (tmp_path / "1.log").symlink_to("1.log")
    result = run("info", tmp_path, "--format", "jsonl")
    assert result.returncode == 3
    assert len(result.stdout.splitlines()) == 1
    assert "1.log: " in result.stderr


def test_an_empty_path_is_wrong_usage() -> None:
    assert run("info", "").returncode == 2


def test_a_message_names_a_file_once() -> None:
    path = DATA / "headers-0" / "00000000000000000000.log"
    done = run("index", "show", path)
    assert done.returncode == 3
    assert done.stderr.count(str(path)) == 1
