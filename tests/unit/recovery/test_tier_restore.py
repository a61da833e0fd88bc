"""Partitions from remote storage as the logs that a broker loads."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

import kafkascan as ks
from kafkascan.format.errors import (
    ChecksumMismatchError,
    CorruptLogError,
    LogDirInUseError,
    NoLogsError,
)
from kafkascan.recovery import restore, tier_restore
from kafkascan.tiered import open_tiered
from tests.support.broker_lock import broker_in
from tests.support.command_line import run
from tests.support.files import contents
from tests.support.paths import GOLDEN
from tests.support.s3_server import s3_server
from tests.support.tiers import TOPIC_ID, AivenTier, put_local

DATA = GOLDEN / "kafka-4.4.0" / "data"
NAMES = ("small-segments-0", "transactions-0")
# A broker trims the indexes of the last segment when it rolls, and drops epochs after the end.
AS_LOADED = (f"{468:020}.index", f"{468:020}.timeindex", "leader-epoch-checkpoint")


@pytest.fixture
def tier(tmp_path: Path) -> Path:
    folder = tmp_path / "tier"
    folder.mkdir()
    for name in NAMES:
        put_local(folder, DATA / name)
    return folder


def objects_of(tier: Path, name: str, kind: str) -> list[Path]:
    return sorted(tier.rglob(f"{name}*/*.{kind}"))


def test_files_are_those_of_the_broker(tier: Path, tmp_path: Path) -> None:
    result = restore(tier, tmp_path / "out")
    assert result.is_complete
    assert [one.destination for one in result.partitions] == [tmp_path / "out" / n for n in NAMES]
    for one, name in zip(result.partitions, NAMES, strict=True):
        here, expected = contents(tmp_path / "out" / name), contents(DATA / name)
        assert here.keys() == expected.keys()
        different = {file for file in here if here[file] != expected[file]}
        assert different <= {*AS_LOADED, "partition.metadata"}
        assert (one.start_offset, one.topic_id, one.rebuilt) == (0, TOPIC_ID, [])
        records = [
            ks.read_records(path).to_arrow() for path in (tmp_path / "out" / name, DATA / name)
        ]
        assert records[0].equals(records[1])
        assert one.end_offset == ks.open_log_dir(DATA / name).partitions[0].find_end_offset()
    found = [
        ks.audit(folder, deep=True).alarms for folder in (tmp_path / "out", tier_copy(tmp_path))
    ]
    assert [one.symbol for one in found[0]] == [one.symbol for one in found[1]]


def tier_copy(tmp_path: Path) -> Path:
    for name in NAMES:
        shutil.copytree(DATA / name, tmp_path / "expected" / name)
    return tmp_path / "expected"


@pytest.mark.parametrize("is_compressed", [False, True])
def test_chunked_segments_in_a_bucket(tmp_path: Path, is_compressed: bool) -> None:
    pytest.importorskip("obstore")
    stored = AivenTier(tmp_path / "tier", "", 2_000, is_compressed)
    stored.put_partition(DATA / "small-segments-0")
    with s3_server(f"restore-{is_compressed}") as server:
        url = server.put_folder(tmp_path / "tier", "tier")
        opened = open_tiered(url, storage_options=server.options)
        assert restore(opened, tmp_path / "out", threads=3).is_complete
    assert ks.diff_logs(tmp_path / "out" / "small-segments-0", DATA / "small-segments-0").is_same


def test_without_a_destination_nothing_is_written(tier: Path, tmp_path: Path) -> None:
    before = contents(tmp_path)
    result = restore(tier)
    assert [(one.segments, one.end_offset, one.destination) for one in result.partitions] == [
        (len(list((DATA / name).glob("*.log"))), None, None) for name in NAMES
    ]
    assert contents(tmp_path) == before


def test_directories_that_exist_are_not_changed(tier: Path, tmp_path: Path) -> None:
    existing = tmp_path / "out" / "small-segments-0"
    existing.mkdir(parents=True)
    (existing / "file").write_bytes(b"mine")
    first, second = restore(tier, tmp_path / "out").partitions
    assert isinstance(first.error, FileExistsError)
    assert contents(existing) == {"file": b"mine"}
    assert second.error is None
    assert second.destination is not None


def test_a_damaged_segment(tier: Path, tmp_path: Path) -> None:
    log = objects_of(tier, "small-segments", "log")[3]
    data = bytearray(log.read_bytes())
    data[100] ^= 1
    log.write_bytes(data)
    first, second = restore(tier, tmp_path / "out").partitions
    assert isinstance(first.error, ChecksumMismatchError)
    assert str(first.error).startswith(f"{first.path}/{log.name[:20]}.log: position")
    assert second.error is None
    assert os.listdir(tmp_path / "out") == ["transactions-0"]
    done = run("restore", tier, tmp_path / "again")
    assert done.returncode == 3
    assert "CHECKSUM_MISMATCH" in done.stderr


def test_a_segment_with_bytes_after_its_end(tier: Path, tmp_path: Path) -> None:
    log = objects_of(tier, "transactions", "log")[0]
    log.write_bytes(log.read_bytes() + bytes(5))
    _, second = restore(tier, tmp_path / "out").partitions
    assert "5 bytes after the last batch" in str(second.error)


def test_indexes_that_are_missing_or_wrong(tier: Path, tmp_path: Path) -> None:
    objects_of(tier, "small-segments", "index")[2].unlink()
    wrong = objects_of(tier, "small-segments", "timeindex")[4]
    wrong.write_bytes(wrong.read_bytes()[:-12] + b"\x7f" * 12)
    first, _ = restore(tier, tmp_path / "out").partitions
    assert first.error is None
    assert first.rebuilt == [f"{48:020}.index", f"{92:020}.timeindex"]
    folder = tmp_path / "out" / "small-segments-0"
    done = run("index", "check", folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert {f"{48:020}.index", f"{92:020}.timeindex"} <= set(os.listdir(folder))


def test_a_segment_that_is_missing(tier: Path, tmp_path: Path) -> None:
    for path in tier.rglob(f"{92:020}-*"):
        path.unlink()
    result = restore(tier, tmp_path / "out", topics=["small-segments"])
    (one,) = result.partitions
    assert (one.gaps, one.error) == ([(92, 108)], None)
    assert not result.is_complete
    done = run("restore", tier, tmp_path / "again", "--topic", "small-segments")
    assert done.returncode == 1
    assert "no segment contains the offsets 92 to 107 [MISSING_RANGE]" in done.stderr


def test_segments_that_overlap(tier: Path, tmp_path: Path) -> None:
    """Two leaders uploaded the same offsets: a broker would load both."""
    first = objects_of(tier, "small-segments", "log")[0]
    shutil.copy(first, first.with_name(f"{1:020}{first.name[20:]}"))
    one, other = restore(tier, tmp_path / "out").partitions
    assert isinstance(one.error, CorruptLogError)
    assert str(one.error).startswith(f"{one.path}/{0:020}.log: ")
    assert f"{1:020}.log" in str(one.error)
    assert "[OFFSET_OVERLAP]" in str(one.error)
    assert other.error is None
    assert os.listdir(tmp_path / "out") == ["transactions-0"]


def test_topics_of_the_same_name(tier: Path, tmp_path: Path) -> None:
    """A topic was deleted and created again; its id tells them apart."""
    other = TOPIC_ID[::-1][:21] + "A"
    (folder,) = (one for one in tier.rglob("transactions-0-*") if one.is_dir())
    shutil.copytree(folder, folder.with_name(f"transactions-0-{other}"))
    result = restore(tier, tmp_path / "out", topics=["transactions"])
    assert ["choose one by its id" in str(one.error) for one in result.partitions] == [True] * 2
    (one,) = restore(tier, tmp_path / "out", topics=[other]).partitions
    assert (one.error, one.topic_id) == (None, other)
    assert ks.open_log_dir(tmp_path / "out" / "transactions-0").partitions[0].topic_id == other


def test_an_interrupted_copy_leaves_nothing(
    tier: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(tier_restore, "_copy_side_files", interrupt)
    with pytest.raises(KeyboardInterrupt):
        restore(tier, tmp_path / "out")
    assert os.listdir(tmp_path / "out") == []


def test_a_data_directory_that_a_broker_uses(tier: Path, tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    data_dir.mkdir()
    (data_dir / "meta.properties").write_text("version=1\n")
    with broker_in(data_dir), pytest.raises(LogDirInUseError):
        restore(tier, data_dir)
    assert restore(tier, data_dir).is_complete


def test_no_such_topics(tier: Path, tmp_path: Path) -> None:
    with pytest.raises(NoLogsError, match="no segments of missing"):
        restore(tier, tmp_path / "out", topics=["missing"])
    assert not (tmp_path / "out").exists()


def test_the_command(tier: Path, tmp_path: Path) -> None:
    listed = run("restore", tier)
    assert listed.returncode == 0
    assert "small-segments" in listed.stdout
    done = run("restore", tier, tmp_path / "out", "--format", "jsonl")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.dumps(str(tmp_path / "out" / "transactions-0")) in done.stdout
    refused = run("restore", tier, "s3://bucket/out")
    assert refused.returncode == 2
    assert run("restore", tier, "--private-key", "nonsense").returncode == 2
