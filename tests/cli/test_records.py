"""`kafkascan records`."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet
import pytest
import zstandard

import kafkascan as ks
from tests.support.command_line import DATA, LEGACY, rows, run, run_process
from tests.support.records import RecordV2, batch_of
from tests.support.segments import T0, batch_v2
from tests.support.waiting import HANG_SECONDS, wait_until

HEADERS: list[tuple[bytes, bytes | None]] = [(b"h", b"1"), (b"n", None)]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Ten batches of ten records; every third value is JSON."""
    parts = []
    for batch in range(10):
        values = [b'{"n": %d}' % i if i % 3 == 0 else b"\xff%d" % i for i in range(10)]
        records = [RecordV2(b"key-%d" % i, value, HEADERS, i, i) for i, value in enumerate(values)]
        start = T0 + 1000 * batch
        parts.append(
            batch_of(records, base_offset=10 * batch, base_timestamp=start, max_timestamp=start + 9)
        )
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(b"".join(parts))
    return path


def test_every_record_of_a_data_dir() -> None:
    for data in (DATA, LEGACY):
        found = rows("records", data, "--all")
        expected = sum(
            len(ks.read_records(segment.path)) for _, segment in ks.open_log_dir(data).segments()
        )
        assert len(found) == expected > 300


def test_decoded_keys_values_and_headers(log: Path) -> None:
    first, second, *_ = rows("records", log)
    assert first == {
        "topic": None, "partition": None, "offset": 0, "timestamp": T0, "key": "key-0",
        "value": '{"n": 0}',
        "headers": [{"key": "h", "value": "1"}, {"key": "n", "value": None}],
    }  # fmt: skip
    assert second["value"] == "\\xff1"
    assert rows("records", log, "--value-as", "hex")[1]["value"] == "ff31"
    assert rows("records", log, "--value-as", "base64")[1]["value"] == "/zE="
    decoded = rows("records", log, "--value-as", "json", "--key-as", "hex")
    assert decoded[3]["value"] == {"n": 3}
    assert decoded[3]["key"] == b"key-3".hex()


def test_columns_of_the_batch(log: Path) -> None:
    found = rows("records", log, "--columns", "offset,base_offset,compression_type,sequence")
    assert found[57] == {
        "offset": 57, "base_offset": 50, "compression_type": "none", "sequence": -1,
    }  # fmt: skip
    result = run("records", log, "--columns", "ofset")
    assert result.returncode == 2
    assert "did you mean 'offset'" in result.stderr


@pytest.mark.parametrize(
    ("options", "offsets"),
    [
        (["--from-offset", 95], list(range(95, 100))),
        (["--to-offset", 3], [0, 1, 2]),
        (["--from-time", T0 + 9_008], [98, 99]),
        (["--from-time", "2024-04-24T23:06:49.008Z"], [98, 99]),
        (["--to-time", T0 + 2], [0, 1]),
        (["--key", "key-7", "--from-offset", 50], [57, 67, 77, 87, 97]),
        (["--limit", 12, "--from-offset", 5], list(range(5, 17))),
        (["--limit", 0], []),
    ],
)
def test_filters(log: Path, options: list[object], offsets: list[int]) -> None:
    found = rows("records", log, "--columns", "offset", *options)
    assert [row["offset"] for row in found] == offsets


def test_offsets_inside_old_wrappers() -> None:
    """A wrapper's header contains only its last offset; its first records are still found."""
    (log,) = (LEGACY / "magic-1-0").glob("*.log")
    everything = [row["offset"] for row in rows("records", log, "--columns", "offset")]
    for stop in everything[:20]:
        found = rows("records", log, "--columns", "offset", "--to-offset", stop)
        assert [row["offset"] for row in found] == [x for x in everything if x < stop]


def test_a_damaged_batch_is_a_finding(log: Path) -> None:
    data = bytearray(log.read_bytes())
    position = int(ks.scan_batches(log).batches["position"][4])
    data[position + 61] ^= 0xFF
    log.write_bytes(data)
    result = run_process("records", log, "--format", "jsonl", "--columns", "offset")
    assert result.returncode == 1
    assert f"position {position} (base_offset 40)" in result.stderr
    offsets = [json.loads(line)["offset"] for line in result.stdout.splitlines()]
    assert offsets == [*range(40), *range(50, 100)]
    data[position + 61] ^= 0xFF
    data[position + 100] ^= 0xFF
    log.write_bytes(data)
    verified = run("records", log, "--verify", "--format", "jsonl", "--columns", "offset")
    assert verified.returncode == 1
    assert "CHECKSUM_MISMATCH" in verified.stderr
    assert len(verified.stdout.splitlines()) == 90


def test_offsets_of_a_single_file_that_go_back(log: Path) -> None:
    data = bytearray(log.read_bytes())
    data[int(ks.scan_batches(log)["position"][4]) + 2] ^= 1
    log.write_bytes(data)
    result = run("records", log, "--format", "jsonl")
    assert result.returncode == 1
    assert "offset 50 follows an equal or higher offset [OFFSET_OVERLAP]" in result.stderr


def test_control_records() -> None:
    found = rows("records", DATA / "transactions-0", "--control", "only")
    assert {row["key"] for row in found} == {"COMMIT", "ABORT"}
    assert found[0]["value"] == {"version": 0, "coordinator_epoch": 0}
    both = rows("records", DATA / "transactions-0", "--control", "include")
    assert len(both) > len(found) + 10
    leaders = rows("records", DATA / "__cluster_metadata-0", "--control", "only", "--all")
    assert {"LEADER_CHANGE", "SNAPSHOT_HEADER"} <= {row["key"] for row in leaders}


def test_csv_and_table(log: Path) -> None:
    result = run("records", log, "--format", "csv", "--limit", 2)
    read = list(csv.DictReader(io.StringIO(result.stdout)))
    assert read[0]["key"] == "key-0"
    assert json.loads(read[0]["headers"]) == [
        {"key": "h", "value": "1"}, {"key": "n", "value": None},
    ]  # fmt: skip
    table = run("records", log, "--limit", 2).stdout.splitlines()
    assert table[0].split() == ["offset", "timestamp", "key", "value", "headers"]
    assert "2024-04-24T23:06:40.000Z  key-0" in table[1]


def test_nulls_and_empties_differ(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    path.write_bytes(batch_of([RecordV2(None, b"")]))
    line = run("records", path, "--columns", "key,value").stdout.splitlines()[1]
    assert line.split() == ["-", '""']


def test_parquet(log: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    result = run("records", log, log, "--format", "parquet", "--output", out)
    assert result.returncode == 0, result.stderr
    table = pyarrow.parquet.read_table(out)
    assert table.num_rows == 200
    assert table["value"][1].as_py() == b"\xff1"
    assert table["headers"][0].as_py() == [
        {"key": "h", "value": b"1"}, {"key": "n", "value": None},
    ]  # fmt: skip
    assert table.column_names[:3] == ["topic", "partition", "offset"]
    assert [path.name for path in tmp_path.iterdir() if path.name.endswith(".part")] == []
    nothing = run("records", log, "--format", "parquet", "--output", out, "--from-offset", 1000)
    assert nothing.returncode == 0
    assert pyarrow.parquet.read_table(out).num_rows == 0
    assert run("records", log, "--format", "parquet").returncode == 2


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("out.parquet", lambda path: pyarrow.parquet.read_table(path).num_rows),
        ("OUT.PARQUET", lambda path: pyarrow.parquet.read_table(path).num_rows),
        ("out.json", lambda path: len(json.loads(path.read_text()))),
        ("out.jsonl", lambda path: len(list(map(json.loads, path.read_text().splitlines())))),
        ("out.ndjson", lambda path: len(list(map(json.loads, path.read_text().splitlines())))),
        ("out.csv", lambda path: len(list(csv.DictReader(path.read_text().splitlines())))),
        ("out.txt", lambda path: len(path.read_text().splitlines()) - 1),
        ("out", lambda path: len(path.read_text().splitlines()) - 1),
    ],
)
def test_the_extension_selects_the_format(
    name: str, read: Callable[[Path], int], log: Path, tmp_path: Path
) -> None:
    columns = ("--columns", "offset,timestamp")
    assert run("records", log, *columns, "--output", tmp_path / name).returncode == 0
    assert read(tmp_path / name) == 100


def test_an_unknown_extension_needs_a_format(log: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.xlsx"
    result = run("records", log, "--output", out)
    assert (result.returncode, out.exists()) == (2, False)
    assert "'.xlsx' does not name a format; give --format" in result.stderr
    assert run("records", log, "--output", out, "--format", "csv").returncode == 0
    assert out.read_text().startswith("topic,partition,offset,")


def test_output_is_atomic(log: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    out.write_text("before")
    assert run("records", log, "--format", "json", "--output", out).returncode == 0
    assert len(json.loads(out.read_text())) == 100
    missing = run("records", log, "--output", tmp_path / "no" / "out.json")
    assert missing.returncode == 3
    assert "cannot write" in missing.stderr
    link = tmp_path / "link.json"
    link.symlink_to(out)
    assert run("records", log, "--format", "jsonl", "--output", link).returncode == 0
    assert link.is_symlink()
    assert len(out.read_text().splitlines()) == 100


def test_output_does_not_replace_inputs_or_special_files(log: Path, tmp_path: Path) -> None:
    before = log.read_bytes()
    os.mkfifo(tmp_path / "fifo")
    for output in (log, tmp_path / "fifo", tmp_path, ""):
        result = run("records", log, "--format", "csv", "--output", output)
        assert result.returncode == 2, result.stderr
    assert log.read_bytes() == before
    assert (tmp_path / "fifo").is_fifo()


def test_a_signal_removes_temporary_files(log: Path, tmp_path: Path) -> None:
    log.write_bytes(log.read_bytes() * 3000)
    command = [sys.executable, "-m", "kafkascan", "records", log, "--format", "jsonl"]
    process = subprocess.Popen([*command, "--output", tmp_path / "out"])
    wait_until(lambda: list(tmp_path.glob(".out.*.part")) or process.poll() is not None)
    process.send_signal(signal.SIGTERM)
    assert process.wait(HANG_SECONDS) == 128 + signal.SIGTERM
    assert not list(tmp_path.glob("*out*"))


def test_a_discarded_signal_is_raised_again(tmp_path: Path) -> None:
    # NumPy discards exceptions that are raised while it inspects operands.
    program = f"""
import os, signal, sys, time
from kafkascan import cli
from kafkascan.cli import commands

def run(arguments):
    try:
        os.kill(os.getpid(), signal.SIGTERM)
    except SystemExit:
        pass
    try:
        time.sleep({2 * HANG_SECONDS})
    finally:
        time.sleep(0.5)  # is not disturbed
        open(arguments[0], "w").close()

commands.invoke = run
cli.main(sys.argv[1:])
"""
    command = [sys.executable, "-c", program, tmp_path / "done"]
    result = subprocess.run(command, timeout=HANG_SECONDS)
    assert result.returncode == 128 + signal.SIGTERM
    assert (tmp_path / "done").exists()


def test_many_damaged_batches_take_no_longer_than_good_ones(tmp_path: Path) -> None:
    records = RecordV2(value=b"A" * 4000).encode() + RecordV2(value=b"A").encode()
    packed = zstandard.compress(records)
    parts = [batch_v2(packed, records_count=1, attributes=4, base_offset=i) for i in range(3000)]
    path = tmp_path / "0.log"
    path.write_bytes(b"".join(parts) + batch_of([RecordV2(b"good")], base_offset=5000))
    result = run("records", path, "--format", "jsonl")  # which has a minute
    assert result.returncode == 1
    assert json.loads(result.stdout)["offset"] == 5000
    assert result.stderr.count("[RECORDS_LEFT]") == 1000
    assert "2000 more findings" in result.stderr


def test_hostile_json(tmp_path: Path) -> None:
    # Python 3.14 parses nested lists until the C stack is full: 50_000 of them in 8 MiB.
    depth = 1_000_000
    values = [b"[" * depth + b"]" * depth, b"NaN", b"1e999", b'{"a": [1]}', b"a\rb"]
    path = tmp_path / "0.log"
    path.write_bytes(
        batch_of([RecordV2(value=value, offset_delta=i) for i, value in enumerate(values)])
    )
    found = rows("records", path, "--value-as", "json")
    assert [row["value"] for row in found] == [
        values[0].decode(), "NaN", "1e999", {"a": [1]}, "a\rb",
    ]  # fmt: skip
    text = run("records", path, "--format", "csv", "--columns", "offset,value").stdout
    csv.field_size_limit(3 * depth)
    assert [row["offset"] for row in csv.DictReader(io.StringIO(text, newline=""))] == list("01234")


def test_one_small_batch_of_many_records(tmp_path: Path) -> None:
    one = RecordV2(value=None).encode()
    path = tmp_path / "0.log"
    packed = zstandard.compress(one * 150_000)
    path.write_bytes(batch_v2(packed, records_count=150_000, attributes=4))
    out = tmp_path / "out.csv"
    assert run("records", path, "--format", "csv", "--output", out, "--key", "x").returncode == 1
    assert run("records", path, "--format", "csv", "--output", out).returncode == 0
    assert len(out.read_text().splitlines()) == 150_001


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r", "\n"])
def test_csv_contains_no_formulas(tmp_path: Path, start: str) -> None:
    """Text that a spreadsheet would evaluate gets an apostrophe; numbers do not change."""
    text = f'{start}HYPERLINK("http://x","y")'
    record = RecordV2(key=text.encode(), value=b"a" + text.encode())
    path = tmp_path / "log"
    path.write_bytes(batch_of([record], base_timestamp=-5, max_timestamp=-5))
    arguments = ("records", path, "--columns", "timestamp,key,value", "--format")
    assert run(*arguments, "csv", "--output", tmp_path / "csv").returncode == 0
    with (tmp_path / "csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert row == {"timestamp": "-5", "key": f"'{text}", "value": f"a{text}"}
    assert json.loads(run(*arguments, "jsonl").stdout)["key"] == text


def values_shown(tmp_path: Path, values: list[bytes | None], *options: str) -> list[str]:
    path = tmp_path / "00000000000000000000.log"
    records = [RecordV2(b"k", value, [], i, i) for i, value in enumerate(values)]
    path.write_bytes(batch_of(records, base_offset=0, base_timestamp=T0, max_timestamp=T0 + 9))
    done = run("records", path, "--columns", "value", *options)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[1:]


def test_a_table_shows_different_values_differently(tmp_path: Path) -> None:
    values = [b"\x01", rb"\x01", rb"\\x01", b"\xff", rb"\xff", None, b"-", b"", b'""', b'"-"']
    shown = values_shown(tmp_path, values)
    assert shown[:5] == [r"\x01", r"\\x01", r"\\\\x01", r"\xff", r"\\xff"]
    assert shown[5:] == ["-", '"-"', '""', r'"\"\""', r'"\"-\""']


def test_json_values_stay_json_in_a_table(tmp_path: Path) -> None:
    values = [b'{"a": 1}', b'{"a": "x"}', b'{"a": {"b": null}}', b"[1, 2]", b"3", b"no json"]
    shown = values_shown(tmp_path, values, "--value-as", "json")
    assert shown[:4] == ['{"a": 1}', '{"a": "x"}', '{"a": {"b": null}}', "[1, 2]"]
    assert [line.strip() for line in shown[4:]] == ["3", "no json"]


def test_messages_name_the_output_file_and_no_temporary_one(log: Path, tmp_path: Path) -> None:
    for format_ in ("csv", "parquet"):
        output = tmp_path / "missing" / "out"
        done = run("records", log, "--format", format_, "--output", output)
        assert done.returncode == 3
        assert f"cannot write {output}: No such file or directory" in done.stderr


def test_folders_whose_names_are_not_utf8(log: Path, tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"dir-\xff")
    (folder / "topic-0").mkdir(parents=True)
    log.rename(folder / "topic-0" / log.name)
    for command in ("info", "audit", "recover", "verify", "batches", "count"):
        done = run(command, folder, "--format", "jsonl")
        text = done.stdout + done.stderr
        assert "\\ud" not in text
        text.encode()
        for line in done.stdout.splitlines():
            json.loads(line)
    report = ks.salvage(folder, tmp_path / "copy").to_json()
    assert json.loads(report)["path"].endswith(r"dir-\xff")


def test_a_key_that_no_record_has_is_a_finding(tmp_path: Path) -> None:
    log = tmp_path / f"{0:020}.log"
    log.write_bytes(ks.build_batches(key=[b"a", b"b"], value=[b"1", b"2"]))
    found = run("records", log, "--key", "a", "--columns", "offset")
    assert (found.returncode, found.stderr) == (0, "")
    for options in (
        ["--key", "c"],
        ["--key", "b", "--to-offset", "1"],
        ["--key", "c", "--limit", 1],
    ):
        missing = run("records", log, *options)
        assert missing.returncode == 1
        assert f"no selected record has the key {options[1]!r} [KEY_NOT_FOUND]" in missing.stderr
    assert run("records", log, "--key", "c", "--limit", "0").returncode == 0
