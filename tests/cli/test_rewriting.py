"""`kafkascan convert`, `restamp` and `scrub`."""

from __future__ import annotations

import fcntl
import json
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import kafkascan as ks
from tests.support.command_line import DATA, run, run_process
from tests.support.files import contents
from tests.support.segments import Rig, message_v0


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    return Path(shutil.copytree(DATA / "compacted-0", tmp_path / "data" / "compacted-0"))


def keys(folder: Path) -> list[bytes | None]:
    return [
        key for log in sorted(folder.glob("*.log")) for key in ks.read_records(log).items("key")
    ]


def test_convert(partition: Path, tmp_path: Path) -> None:
    before = contents(partition)
    target = tmp_path / "converted-0"
    result = run("convert", partition, "--output", target, "--compression-type", "zstd",
                 "--format", "jsonl")  # fmt: skip
    assert (result.returncode, result.stderr) == (0, "")
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [Path(row["target"]).parent for row in rows] == [target, target]
    assert sum(row["recompressed"] for row in rows) > 0
    assert contents(partition) == before
    assert keys(target) == keys(partition)
    assert run("verify", target).returncode == 0
    again = run("convert", partition, "--output", target, "--compression-type", "zstd")
    assert again.returncode == 3
    assert "the target already exists" in again.stderr


def test_lost_batches_are_a_finding(partition: Path) -> None:
    log = min(partition.glob("*.log"))
    result = run("convert", log, "--in-place", "--to-magic", "1")
    assert result.returncode == 1
    assert f"{log}: lost 2 control batches" in result.stderr
    assert set(ks.scan_batches(log)["magic"].tolist()) == {1}


def test_scrub_in_place(partition: Path) -> None:
    assert b"a" in keys(partition)
    result = run("scrub", partition, "--in-place", "--key", "a", "--key", "b", "--format", "json")
    assert (result.returncode, result.stderr) == (0, "")
    rows = json.loads(result.stdout)
    dropped = sum(row["records"] - row["kept_records"] for row in rows)
    assert dropped > 0
    assert {b"a", b"b"}.isdisjoint(keys(partition))
    assert run("recover", partition, "--recovery-point", "0").returncode == 0
    again = run("scrub", partition, "--in-place", "--key", "a", "--format", "json")
    assert not any(row["is_changed"] for row in json.loads(again.stdout))
    assert again.returncode == 1
    assert "no record has the key b'a'; none was removed [NOTHING_REMOVED]" in again.stderr


def test_a_key_that_is_not_found_is_a_finding(partition: Path) -> None:
    result = run("scrub", partition, "--in-place", "--key", "a", "--key", "Zoë")
    assert result.returncode == 1
    assert "no record has the key b'Zo\\xc3\\xab' [KEY_NOT_FOUND]" in result.stderr
    empty = run("scrub", partition, "--in-place", "--from-offset", "7", "--to-offset", "6")
    assert empty.returncode == 2
    same = run("scrub", partition, "--in-place", "--from-offset", "7", "--to-offset", "7")
    assert same.returncode == 2
    assert "no offset is between --from-offset 7 and --to-offset 7" in same.stderr
    none = run("scrub", partition, "--in-place", "--from-offset", "1000000")
    assert none.returncode == 1
    assert "no record was selected; none was removed [NOTHING_REMOVED]" in none.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="devices of Linux")
@pytest.mark.parametrize(
    ("path", "said"),
    [("/proc/self/mem", "Input/output error"), ("/dev/zero", "more than 268435456 bytes")],
)
def test_keys_from_what_cannot_be_read(
    partition: Path, tmp_path: Path, path: str, said: str
) -> None:
    done = run("scrub", partition, "--output", tmp_path / "new", "--keys-from", path)
    assert done.returncode == 2
    assert f"--keys-from: {path}: {said}" in done.stderr


def test_keys_from_a_file(partition: Path, tmp_path: Path) -> None:
    listed = tmp_path / "keys"
    listed.write_bytes(b"a\nc\n")
    target = tmp_path / "out-0"
    assert run("scrub", partition, "--output", target, "--keys-from", listed).returncode == 0
    gone = {b"a", b"c"}
    assert [key for key in keys(partition) if key not in gone] == keys(target)


def test_restamp(partition: Path, tmp_path: Path) -> None:
    target = tmp_path / "moved-0"
    result = run("restamp", partition, "--output", target, "--offset-shift", "100",
                 "--log-append-time", "2024-01-01T00:00:00")  # fmt: skip
    assert result.returncode == 0, result.stderr
    log = min(target.glob("*.log"))
    assert log.name == f"{100:020}.log"
    records = ks.read_records(log, verify=True)
    assert set(records["timestamp"].tolist()) == {1_704_067_200_000}
    assert int(records["offset"][0]) == 115


@pytest.mark.parametrize(
    "arguments",
    [
        ["convert", "--in-place"],
        ["convert", "--in-place", "--output", "x", "--to-magic", "2"],
        ["convert", "--in-place", "--to-magic", "1", "--compression-type", "zstd"],
        ["restamp", "--in-place"],
        ["restamp", "--in-place", "--offset-shift", "5"],
        ["scrub", "--in-place"],
        ["scrub", "--in-place", "--key", "a", "--from-offset", "1"],
    ],
)
def test_wrong_usage_changes_nothing(arguments: list[str], partition: Path) -> None:
    before = contents(partition)
    verb, *options = arguments
    assert run(verb, partition, *options).returncode == 2
    assert contents(partition) == before


def test_a_target_must_be_named(partition: Path) -> None:
    for target in ((), ("--in-place", "--output", "x")):
        result = run("convert", partition, *target, "--to-magic", "2")
        assert result.returncode == 2
        assert "Error: give --output TARGET or --in-place\n" in result.stderr


def test_unreadable_logs(partition: Path, tmp_path: Path) -> None:
    assert run("scrub", tmp_path / "nowhere", "--in-place", "--key", "a").returncode == 3
    log = min(partition.glob("*.log"))
    data = bytearray(log.read_bytes())
    data[100] ^= 1
    log.write_bytes(data)
    result = run("scrub", partition, "--in-place", "--key", "a")
    assert result.returncode == 1
    assert "CHECKSUM_MISMATCH" in result.stderr
    assert log.read_bytes() == data


_REWRITES = (
    ("convert", "--compression-type", "gzip"),
    ("restamp", "--partition-leader-epoch", "1"),
    ("restamp", "--offset-shift", "5"),
    ("restamp", "--max-timestamp", "2024-05-01"),
    ("scrub", "--key", "a"),
)


_DAMAGE: dict[str, Callable[[Rig], Rig]] = {
    "checksum": lambda rig: rig.flip(2, 70),
    "length": lambda rig: rig.set(2, "batch_length", 1),
    "offset below 0": lambda rig: rig.set(2, "base_offset", -7),
    "highest offset": lambda rig: rig.set(2, "base_offset", 2**63 - 1),
    "codec": lambda rig: rig.set(2, "attributes", 7).sign(2),
}
_UNREAD = ("--partition-leader-epoch", "--offset-shift")
"""Options that need no record."""


@pytest.mark.parametrize("kind", _DAMAGE)
@pytest.mark.parametrize("command", _REWRITES, ids=lambda command: " ".join(command[:2]))
def test_damage_is_a_finding_that_names_file_and_position(
    kind: str, command: tuple[str, ...], tmp_path: Path
) -> None:
    log = tmp_path / "orders-0" / f"{0:020}.log"
    log.parent.mkdir()
    rig = _DAMAGE[kind](Rig().batches(4, bytes(20)))
    log.write_bytes(rig.log)
    target = ("--output", tmp_path / "new-0") if "--offset-shift" in command else ("--in-place",)
    result = run(command[0], log.parent, *target, *command[1:])
    if kind == "codec" and command[1] in _UNREAD:
        assert result.returncode == 0
        return
    assert result.returncode == 1
    assert f"{log}: position {rig.position_of(2)}" in result.stderr
    assert log.read_bytes() == rig.log
    assert not (tmp_path / "new-0").exists()


@pytest.mark.parametrize("options", [
    ("--partition-leader-epoch", "1"), ("--max-timestamp", "2024-05-01"),
])  # fmt: skip
def test_a_format_without_a_field_is_a_finding(options: tuple[str, str], tmp_path: Path) -> None:
    log = tmp_path / f"{0:020}.log"
    log.write_bytes(message_v0(b"k", b"v", offset=0))
    result = run("restamp", log, "--in-place", *options)
    assert result.returncode == 1
    assert f"{log}: position 0 (base_offset 0): messages of magic 0" in result.stderr


def test_a_file_that_is_not_a_log_stays(tmp_path: Path) -> None:
    log = tmp_path / "notes.txt"
    log.write_bytes(b"not a log")
    for verb, *options in (
        ("convert", "--to-magic", "2"),
        ("restamp", "--partition-leader-epoch", "1"),
        ("scrub", "--key", "a"),
    ):
        result = run(verb, log, "--in-place", *options)
        assert result.returncode == 3
        assert f"{log}: position 0: the file begins as a text file does" in result.stderr
        assert log.read_bytes() == b"not a log"


def test_out_must_not_be_inside_the_source(partition: Path) -> None:
    before = contents(partition)
    for verb, *options in (
        ("convert", "--to-magic", "2"),
        ("restamp", "--offset-shift", "1"),
        ("scrub", "--key", "a"),
    ):
        result = run(verb, partition, "--output", partition / "new", *options)
        assert result.returncode == 2
        assert "inside" in result.stderr
    assert contents(partition) == before


def test_a_data_dir_in_use_is_refused(partition: Path) -> None:
    (partition.parent / "meta.properties").write_text("")
    before = contents(partition)
    with open(partition.parent / ".lock", "ab") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        result = run_process("convert", partition, "--in-place", "--compression-type", "zstd")
    assert result.returncode == 3
    assert "LOG_DIR_IN_USE" in result.stderr
    assert contents(partition) == before


@pytest.mark.parametrize(
    "arguments",
    [
        ["convert", "--compression-type", "gzip"],
        ["restamp", "--partition-leader-epoch", "1"],
        ["scrub", "--from-offset", "1", "--to-offset", "2"],
    ],
)
def test_the_expiration_of_producers_is_an_option(arguments: list[str], tmp_path: Path) -> None:
    now = time.time_ns() // 1_000_000
    idle = ks.build_batches(
        value=[b"a"], timestamp=[now - 3_600_000], producer_id=7, producer_epoch=0, base_sequence=0
    )
    counts = []
    for milliseconds in (7_200_000, 60_000):
        folder = tmp_path / f"orders-{milliseconds}"
        with ks.SegmentWriter(folder, segment_bytes=len(idle)) as writer:
            writer.append(idle)
            writer.append(ks.build_batches(value=[b"b"], timestamp=[now], offset=1))
        for path in folder.glob(f"{0:020}.*"):  # the producer is known from the snapshot only
            path.unlink()
        verb, *options = arguments
        option = ("--producer-expiration-ms", str(milliseconds))
        assert run(verb, folder, "--in-place", *option, *options).returncode == 0
        snapshot = ks.broker_state.read_producer_snapshot(folder / f"{2:020}.snapshot")
        counts.append(len(snapshot))
    assert counts == [1, 0]


@pytest.mark.parametrize("name", ["--output", "-o"])
def test_the_end_of_a_range_is_exclusive(partition: Path, tmp_path: Path, name: str) -> None:
    """As in `kafkascan records`; the earlier name of the option still works."""
    before = ks.read_records(partition)["offset"].tolist()
    target = tmp_path / "out-0"
    ends = ("--from-offset", before[1], "--to-offset", before[3])
    assert run("scrub", partition, name, target, *ends).returncode == 0
    assert ks.read_records(target)["offset"].tolist() == [before[0], *before[3:]]
    shown = run("records", partition, *ends, "--columns", "offset", "--format", "json")
    assert [row["offset"] for row in json.loads(shown.stdout)] == before[1:3]
