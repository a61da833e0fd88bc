"""`kafkascan dump-log` takes the options of Kafka's tool, and ends as it does."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.support.dumped_json import lines_of
from tests.support.segments import T0, batch_v2, message_v1
from tests.support.warm_process import Ended, run_warm

_GOLDEN = Path(__file__).parents[1] / "golden" / "kafka-4.4.0"
_LOG = "data/consumed-0/00000000000000000000.log"


_PROGRAM = "import sys; from kafkascan.cli import main; sys.exit(main())"


def run(*arguments: str, folder: Path = _GOLDEN) -> Ended:
    return run_warm(_PROGRAM, "dump-log", *arguments, folder=folder)


def test_prints_the_lines_of_the_tool() -> None:
    expected = (_GOLDEN / "dump" / "consumed-0" / "00000000000000000000.log.txt").read_text("utf-8")
    for arguments in (
        ["--print-data-log", "--files", _LOG],
        [f"--files={_LOG}", "-print-data-log=ignored", "also ignored"],
        ["--files", f"{_LOG},", "--print-data-log", "--print-data-log", "--", "--unknown"],
    ):
        done = run(*arguments)
        assert (done.returncode, done.stdout, done.stderr) == (0, expected, "")


def test_several_files_and_unknown_ones() -> None:
    done = run("--files", f"{_LOG},data/other.deleted")
    assert done.returncode == 0
    assert done.stdout.startswith(f"Dumping {_LOG}\n")
    assert done.stdout.endswith("Dumping data/other.deleted\n")
    assert done.stderr == "Ignoring unknown file data/other.deleted\n"


def test_records_without_metadata() -> None:
    done = run("--skip-record-metadata", "--value-decoder-class", "--files", _LOG)
    assert done.stdout.splitlines()[3] == "| key: key-0 payload: 29b3622bb590"
    hexadecimal = run(
        "--key-decoder-class=org.apache.kafka.tools.api.DefaultDecoder", "--files", _LOG
    )
    assert " key: 6b65792d30 payload: 29b3622bb590" in hexadecimal.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], 'Missing required argument "[files]"'),
        (["--files", "0.log"], "No such file"),
        (["--files", "0.log", "--files", "1.log"], "option files has 2 arguments, not one"),
        (["--file", "0.log"], "file is not a recognized option"),
        (["-f", "0.log"], "f is not a recognized option"),
        (["--files"], "option files requires an argument"),
        (["--max-bytes", "--files", "0.log"], 'Missing required argument "[files]"'),
        (["--max-bytes", "0x10", "--files", "0.log"], "needs an integer of 32 bits, not '0x10'"),
        (["--max-bytes", "99999999999", "--files", "0.log"], "needs an integer of 32 bits"),
        (["--value-decoder-class", "no.Such", "--files", "0.log"], "cannot be loaded"),
        (["--files", "name.log"], "the name does not begin with an offset"),
    ],
)
def test_ends_with_one(arguments: list[str], message: str, tmp_path: Path) -> None:
    done = run(*arguments, folder=tmp_path)
    assert done.returncode == 1
    assert message in done.stderr


@pytest.mark.parametrize("kind", ["log", "index", "timeindex"])
def test_a_number_that_no_offset_has_is_no_offset(kind: str, tmp_path: Path) -> None:
    """Java's ``toLong`` refuses it."""
    name = f"{10**20 - 1}.{kind}"
    for one in ("log", "index", "timeindex"):
        shutil.copy(_GOLDEN / _LOG.replace(".log", f".{one}"), tmp_path / f"{10**20 - 1}.{one}")
    done = run("--files", name, folder=tmp_path)
    assert done.returncode == 1
    assert "the name does not begin with an offset" in done.stderr


def test_what_comes_before_damage_is_printed(tmp_path: Path) -> None:
    data = batch_v2(b"", records_count=0)
    (tmp_path / "00000000000000000000.log").write_bytes(data + bytes(100))
    done = run("--files", "00000000000000000000.log", folder=tmp_path)
    assert done.returncode == 1
    assert len(done.stdout.splitlines()) == 3
    assert f"position {len(data)}" in done.stderr
    shortened = run("--files", "00000000000000000000.log", "--max-bytes", str(len(data)),
                    folder=tmp_path)  # fmt: skip
    assert (shortened.returncode, shortened.stderr) == (0, "")


@pytest.mark.parametrize(
    ("files", "out", "err"),
    [
        ("", "Dumping \n", "Ignoring unknown file \n"),
        (",", "", ""),
        ("no-suffix", "Dumping no-suffix\n", "Ignoring unknown file no-suffix\n"),
        (".//a.b/", "Dumping ./a.b\n", "Ignoring unknown file ./a.b\n"),
        (",a", "Dumping \nDumping a\n", "Ignoring unknown file \nIgnoring unknown file a\n"),
    ],
)
def test_names_of_files_are_split_and_printed_as_by_java(files: str, out: str, err: str) -> None:
    done = run("--files", files)
    assert (done.returncode, done.stdout, done.stderr) == (0, out, err)


def test_the_time_of_an_old_message_does_not_depend_on_its_value(tmp_path: Path) -> None:
    message = bytearray(message_v1(b"key", b"value", offset=21, timestamp=T0))
    message[26:30] = (99).to_bytes(4, "big")  # the size of the key
    (tmp_path / f"{21:020}.log").write_bytes(message)
    (tmp_path / f"{21:020}.index").touch()
    entry = T0.to_bytes(8, "big") + bytes(4)
    (tmp_path / f"{21:020}.timeindex").write_bytes(entry)
    done = run("--files", f"{21:020}.timeindex", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith(f"timestamp: {T0} offset: 21\n")


def test_values_count_only_for_files_that_need_them() -> None:
    assert run("--max-message-size", "many", "--files", _LOG).returncode == 0
    index = _LOG.replace(".log", ".index")
    assert run("--max-bytes", "many", "--files", index).returncode == 0
    assert run("--max-message-size", "many", "--files", index).returncode == 1


def test_batches_beyond_max_bytes_are_not_printed() -> None:
    size = (_GOLDEN / _LOG).stat().st_size
    heads = ["Dumping", "Log starting offset"]
    for count, is_printed in ((0, False), (100, False), (size - 1, False), (size, True)):
        done = run("--max-bytes", str(count), "--files", _LOG)
        assert done.returncode == 0
        assert len(done.stdout.splitlines()) == len(heads) + is_printed


def test_numbers_are_read_from_the_first_bytes() -> None:
    package = "org.apache.kafka.tools.api"
    done = run("--value-decoder-class", f"{package}.LongDecoder", "--files", _LOG)
    assert done.returncode == 0
    assert done.stdout.splitlines()[3].endswith(" key: key-0 payload: 3619031747661017698")
    short = run("--key-decoder-class", f"{package}.LongDecoder", "--files", _LOG)
    assert short.returncode == 1
    assert "needs 8 bytes, not 5" in short.stderr


def test_version_of_the_tool() -> None:
    done = run("--version", "--files", _LOG)
    assert (done.returncode, done.stdout, done.stderr) == (0, "4.4.0\n", "")


def objects(*arguments: str, folder: Path = _GOLDEN) -> list[dict]:
    done = run("--format", "jsonl", *arguments, folder=folder)
    assert (done.returncode, done.stderr) == (0, "")
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("partition", ["headers-0", "nulls-and-empties-0", "transactions-0"])
def test_json_has_the_facts_of_the_lines(partition: str) -> None:
    name = "00000000000000000000.log"
    lines = (_GOLDEN / "dump" / partition / f"{name}.txt").read_bytes().decode().split("\n")
    found = objects("--print-data-log", "--files", f"data/{partition}/{name}")
    kinds = [one["kind"] for one in found]
    assert [*lines_of(found), ""] == lines
    assert kinds.count("batch") == sum(line.startswith("baseOffset") for line in lines)
    head = next(line for line in lines if line.startswith("baseOffset"))
    batch = found[kinds.index("batch")]
    for field in ("baseOffset", "lastOffset", "count", "producerId", "size", "magic", "crc"):
        assert f"{field}: {batch[field]} " in head
    assert f" {batch['timestampType']}: {batch['maxTimestamp']} " in head
    assert batch["isvalid"] is True
    assert batch["deleteHorizonMs"] is None


def test_json_of_other_files() -> None:
    folder = "data/transactions-0/00000000000000000005"
    found = objects("--files", f"{folder}.index,{folder}.timeindex,{folder}.txnindex,other.bin")
    entries = [one for one in found if one["kind"] not in ("file", "finding")]
    txn = (_GOLDEN / "dump/transactions-0/00000000000000000005.txnindex.txt").read_text()
    assert [one for one in entries if one["kind"] == "aborted transaction"] == [
        {"kind": "aborted transaction"}
        | {name: int(value) for name, value in re.findall(r"(\w+): (\d+)", line)}
        for line in txn.splitlines()[1:]
    ]
    assert found[-1]["what"] == "unknown file, ignored"
    snapshot = objects("--files", "data/idempotent-0/00000000000000000024.snapshot")[1]
    assert snapshot["kind"] == "producer"
    assert snapshot["currentTxnFirstOffset"] is None


def test_json_says_what_is_wrong(tmp_path: Path) -> None:
    data = (_GOLDEN / _LOG).read_bytes()
    name = "00000000000000000000.log"
    (tmp_path / name).write_bytes(data + data + b"torn")
    found = objects("--deep-iteration", "--files", name, folder=tmp_path)
    assert [one["what"] for one in found if one["kind"] == "finding"] == [
        "invalid bytes at the end", "non-consecutive offsets",
    ]  # fmt: skip
    assert found[-1]["offset"] + 1 != found[-1]["followedBy"]
    (tmp_path / name).write_bytes(data + bytes(100))
    broken = run("--format", "jsonl", "--print-data-log", "--files", name, folder=tmp_path)
    assert broken.returncode == 1
    assert len(broken.stdout.splitlines()) > 2
    assert run("--format", "xml", "--files", name, folder=tmp_path).returncode == 1
