"""The log start offset: what ``DeleteRecords`` deleted is not read by default."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import kafkascan as ks
from kafkascan.broker_state.checkpoints import LOG_START_CHECKPOINT
from tests.support.command_line import DATA, LEGACY, rows, run
from tests.support.partitions import HealthyPartition

TOPIC = ("orders", 0)


@pytest.fixture
def partition(tmp_path: Path) -> HealthyPartition:
    """Three segments of 20 offsets: batches of three records, and transactions."""
    return HealthyPartition(tmp_path / "data" / "orders-0").write()


def delete_before(partition: Path, offset: int) -> None:
    """Write the checkpoint that a broker writes after ``DeleteRecords``."""
    topic, _, number = partition.name.rpartition("-")
    path = partition.parent / LOG_START_CHECKPOINT
    ks.broker_state.write_offset_checkpoint(path, {(topic, int(number)): offset})


def offsets_on_disk(folder: Path, isolation: str = "read_uncommitted") -> list[int]:
    found: list[int] = []
    for path in sorted(folder.glob("*.log")):
        found += ks.read_records(path, isolation=isolation)["offset"].tolist()  # type: ignore[arg-type]
    return found


@pytest.mark.parametrize("start", [*range(23), 30, 31, 40, 47, 58, 59, 60, 61])
def test_counts_and_records_begin_at_the_start(partition: HealthyPartition, start: int) -> None:
    folder = partition.folder
    delete_before(folder, start)
    expected = [offset for offset in offsets_on_disk(folder) if offset >= start]
    committed = [one for one in offsets_on_disk(folder, "read_committed") if one >= start]
    (counted,) = ks.count_records(folder).counts
    assert (counted["records"], counted["committed_records"]) == (len(expected), len(committed))
    assert (counted["start_offset"], counted["missing_offsets"]) == (start, 0)
    assert counted["end_offset"] == max(start, partition.offset)
    assert ks.read_records(folder)["offset"].tolist() == expected
    assert ks.read_records(folder, isolation="read_committed")["offset"].tolist() == committed
    parts = [table["offset"] for table in ks.iter_records(folder, batch_size=4)]
    assert all(len(part) for part in parts)
    assert np.concatenate([np.empty(0, int), *parts]).tolist() == expected
    # The first batch may begin before the start.
    batches = ks.scan_log_dir(folder).to_arrow(["base_offset", "last_offset", "size_in_bytes"])
    assert min(batches["last_offset"].to_pylist(), default=start) >= start
    assert counted["batches"] == len(batches)
    assert counted["size_in_bytes"] == sum(batches["size_in_bytes"].to_pylist())
    producers = ks.read_producers(folder).counts
    assert producers["batches"].sum() + producers["markers"].sum() == len(batches)
    assert producers["records"].sum() == len(expected)
    assert len(ks.analysis.read_fingerprints(folder).logs[0].rows) == len(batches)
    assert ks.diff_logs(folder, partition.folder).is_same


@pytest.mark.parametrize("start", range(0, 62, 3))
def test_everything_on_disk_on_request(partition: HealthyPartition, start: int) -> None:
    folder = partition.folder
    before = ks.count_records(folder).counts.tolist()
    everything = ks.read_records(folder)["offset"].tolist()
    delete_before(folder, start)
    assert ks.count_records(folder, log_start_offset=0).counts.tolist() == before
    assert ks.read_records(folder, log_start_offset=0)["offset"].tolist() == everything
    assert len(ks.scan_log_dir(folder, include="all").to_arrow()) == sum(
        len(ks.scan_batches(path)) for path in folder.glob("*.log")
    )
    assert ks.audit(folder).findings == []


def test_transactions(partition: HealthyPartition) -> None:
    folder = partition.folder
    ended = ks.read_transactions(folder).spans
    start = int(ended["marker_offset"][2])
    delete_before(folder, start)
    found = ks.read_transactions(folder)
    assert found.spans["marker_offset"].tolist() == ended["marker_offset"][2:].tolist()
    assert found.spans["records"].tolist() == [0, *ended["records"][3:]]
    delete_before(folder, start + 1)
    assert len(ks.read_transactions(folder)) == len(ended) - 3
    assert len(ks.read_transactions(folder, log_start_offset=0)) == len(ended)


def test_an_open_transaction_before_the_start(tmp_path: Path) -> None:
    """A broker still knows it, and a read_committed consumer gets nothing."""
    one = HealthyPartition(tmp_path / "data" / "orders-0", segments=1)
    one.data(8, transactional=True)
    first_open = one.offset - 3
    one.data(-1)
    one.data(-1)
    one.write()
    start = one.offset - 2
    delete_before(one.folder, start)
    (counted,) = ks.count_records(one.folder).counts
    assert (counted["records"], counted["committed_records"]) == (2, 0)
    assert counted["last_stable_offset"] == start
    assert len(ks.read_records(one.folder, isolation="read_committed")) == 0
    (span,) = ks.read_transactions(one.folder).spans
    assert (span["first_offset"], span["records"]) == (first_open, 0)


@pytest.mark.parametrize("start", range(0, 62, 5))
def test_lookups(partition: HealthyPartition, start: int) -> None:
    folder = partition.folder
    records = ks.read_records(folder, columns=["offset", "timestamp"], control="include")
    delete_before(folder, start)
    for trust_index in (False, True):
        for timestamp in (0, int(records["timestamp"][20]), int(records["timestamp"][-1])):
            found = ks.lookup_timestamp(folder, timestamp, trust_index=trust_index)
            fits = (records["timestamp"] >= timestamp) & (records["offset"] >= start)
            expected = records["offset"][fits][:1].tolist()
            assert ([] if found is None else [found.offset]) == expected
        first = ks.lookup_offset(folder, 0, trust_index=trust_index)
        assert first is None or first.base_offset <= start <= first.last_offset
        assert (first is None) == (start >= partition.offset)
    everything = ks.lookup_timestamp(folder, 0, log_start_offset=0)
    assert everything is not None
    assert everything.offset == 0


@pytest.mark.parametrize("name", ["magic-mixed-0", "magic-1-0", "magic-0-0"])
def test_compressed_messages_of_magic_0_and_1(tmp_path: Path, name: str) -> None:
    folder = Path(shutil.copytree(LEGACY / name, tmp_path / name))
    everything = ks.read_records(folder)["offset"]
    for start in range(int(everything[0]), int(everything[-1]) + 2):
        delete_before(folder, start)
        (counted,) = ks.count_records(folder, deep=True).counts
        assert counted["records"] == (everything >= start).sum()
        assert (
            ks.read_records(folder)["offset"].tolist() == everything[everything >= start].tolist()
        )


def test_a_damaged_batch_at_the_start_is_not_counted_exactly(partition: HealthyPartition) -> None:
    delete_before(partition.folder, 1)
    data = bytearray(partition.log(0).read_bytes())
    data[61] = 0x7F  # the length of the first record
    partition.log(0).write_bytes(data)
    found = ks.count_records(partition.folder)
    assert found.is_exact.tolist() == [False]
    assert not found.is_complete


@pytest.mark.parametrize(
    "damage", [os.mkfifo, os.mkdir, lambda path: path.write_text("not a checkpoint")]
)
def test_a_checkpoint_that_cannot_be_read_is_ignored_with_a_warning(
    partition: HealthyPartition, damage: Callable[[Path], object]
) -> None:
    """As ``LogManager.loadLogs`` does."""
    path = partition.folder.parent / LOG_START_CHECKPOINT
    damage(path)
    with pytest.warns(ks.broker_state.CheckpointWarning, match=re.escape(str(path))):
        counts = ks.count_records(partition.folder).counts
    assert counts["start_offset"].tolist() == [0]
    one = ks.open_log_dir(partition.folder.parent).partitions[0]
    with pytest.raises((OSError, ks.CorruptLogError)):
        assert one.log_start_offset


def test_commands(partition: HealthyPartition, tmp_path: Path) -> None:
    folder, start = partition.folder, 31
    everything = {verb: len(rows(verb, folder)) for verb in ("batches", "records", "info")}
    delete_before(folder, start)
    for verb, count in everything.items():
        assert len(rows(verb, folder, "--all")) == count
        assert len(rows(verb, folder)) < count
    assert min(row["offset"] for row in rows("records", folder)) == start
    # The batch of offsets 29 to 31 is returned as a whole.
    assert min(row["last_offset"] for row in rows("batches", folder)) >= start
    assert min(row["base_offset"] for row in rows("batches", folder)) < start
    assert len(rows("verify", folder)) == 2
    (counted,) = rows("count", folder)
    (on_disk,) = rows("count", folder, "--all")
    assert (counted["start_offset"], on_disk["start_offset"]) == (start, 0)
    (found,) = rows("index", "lookup", folder, "--timestamp", "2000-01-01")
    assert found["offset"] == start
    saved = tmp_path / "saved.parquet"
    for options, batches in (((), 2 * len(rows("batches", folder))), (("--all",), 0)):
        assert run("diff", folder, "--save", saved, *options).returncode == 0
        kept = ks.analysis.read_fingerprints(saved).logs[0].rows
        assert len(kept) == (batches // 2 or everything["batches"])


def test_a_tar(partition: HealthyPartition, tmp_path: Path) -> None:
    import subprocess

    delete_before(partition.folder, 31)
    path = tmp_path / "backup.tar"
    subprocess.run(["tar", "-cf", path, "-C", tmp_path, "data"], check=True)
    assert ks.count_records(path).counts["start_offset"].tolist() == [31]


def test_golden_logs_without_a_checkpoint_entry_are_whole() -> None:
    for log in ks.count_records(DATA).logs:
        assert not log.has_deleted_offsets
