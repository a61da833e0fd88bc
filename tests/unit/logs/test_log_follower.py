"""Logs that grow, roll, shrink and disappear while they are followed."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import kafkascan as ks
from kafkascan.format.errors import SourceReadError
from kafkascan.io.sources import Source
from kafkascan.logs.log_finding import partition_dir
from kafkascan.logs.log_follower import LogFollower
from kafkascan.logs.segment import SegmentFile
from tests.support.internal_topics import TopicLog
from tests.support.logs import ABORT, COMMIT
from tests.support.records import RecordV2, batch_of

_PATIENCE = 50


class GrowingLog:
    """A log whose segments a test writes byte by byte."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self.batches = TopicLog(folder)
        self.base = 0
        self.file.touch()

    @property
    def file(self) -> Path:
        return self.folder / f"{self.base:020}.log"

    def append(self, count: int = 1, producer_id: int = -1) -> None:
        for _ in range(count):
            self.batches.add((b"k", b"v"), producer_id=producer_id)
            self.write(self.batches.batches[-1])

    def end(self, producer_id: int, kind: int) -> None:
        self.write(self.batches.end(producer_id, kind).batches[-1])

    def write(self, data: bytes) -> None:
        with self.file.open("ab") as file:
            file.write(data)

    def roll(self) -> None:
        self.base = self.batches.offset
        self.file.touch()


@pytest.fixture
def log(tmp_path: Path) -> GrowingLog:
    return GrowingLog(tmp_path / "orders-0")


@pytest.fixture
def follower(log: GrowingLog) -> LogFollower:
    return LogFollower(partition_dir(log.folder))


def offsets(follower: LogFollower) -> list[int]:
    return [int(one) for found in follower.poll() for one in found.batches["base_offset"]]


def test_new_batches_are_read_once(log: GrowingLog, follower: LogFollower) -> None:
    assert offsets(follower) == []
    log.append(3)
    assert offsets(follower) == [0, 1, 2]
    assert offsets(follower) == []
    log.append()
    assert offsets(follower) == [3]


def test_a_torn_tail_is_waited_for(log: GrowingLog, follower: LogFollower) -> None:
    log.append()
    batch = log.batches.add((b"k", b"v")).batches[-1]
    log.write(batch[:20])
    assert offsets(follower) == [0]
    log.write(batch[20:-1])
    for _ in range(2 * _PATIENCE):
        assert offsets(follower) == []
    log.write(batch[-1:])
    assert offsets(follower) == [1]
    assert follower.messages == []


def test_batches_of_a_preallocated_file_are_read_when_they_are_complete(
    log: GrowingLog, follower: LogFollower
) -> None:
    batch = log.batches.add((b"k", b"v" * 100)).batches[-1]
    for written in (0, 8, 20, 70, len(batch) - 20):
        log.file.write_bytes((batch[:written]).ljust(4096, b"\0"))
        assert offsets(follower) == []
    log.file.write_bytes(batch.ljust(4096, b"\0"))
    assert offsets(follower) == [0]
    assert follower.messages == []


def test_a_preallocated_file_that_is_trimmed_while_it_is_read(
    log: GrowingLog, follower: LogFollower, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers truncate a preallocated file to its batches when they roll."""
    log.append(2)
    size = log.file.stat().st_size
    os.truncate(log.file, 1 << 16)
    open_segment = SegmentFile.open

    def opened(segment: SegmentFile, **arguments: Any) -> Source:
        source = open_segment(segment, **arguments)
        os.truncate(log.file, size)
        return source

    monkeypatch.setattr(SegmentFile, "open", opened)
    assert offsets(follower) == []
    assert offsets(follower) == [0, 1]
    assert follower.messages == []


@pytest.mark.parametrize("memory_map", [True, False])
def test_records_are_read_although_a_preallocated_file_is_trimmed(
    log: GrowingLog, memory_map: bool
) -> None:
    log.append(2)
    size = log.file.stat().st_size
    os.truncate(log.file, 1 << 16)
    follower = LogFollower(partition_dir(log.folder), memory_map=memory_map)
    (followed,) = follower.poll()
    os.truncate(log.file, size)
    assert len(ks.read_records(followed.source, followed.batches)) == 2
    assert [offset for _ in range(2) for offset in offsets(follower)] == []
    assert follower.messages == []


def test_a_file_that_cannot_be_read_ends_it_after_a_while(
    log: GrowingLog, follower: LogFollower, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.append()

    def failing(segment: SegmentFile, **arguments: Any) -> Source:
        raise SourceReadError(str(segment.path), 17, "the disk is failing")

    monkeypatch.setattr(SegmentFile, "open", failing)
    for _ in range(_PATIENCE - 1):
        assert offsets(follower) == []
    with pytest.raises(SourceReadError, match="position 17"):
        offsets(follower)


def test_rolled_segments_are_followed(log: GrowingLog, follower: LogFollower) -> None:
    log.append(2)
    assert offsets(follower) == [0, 1]
    log.append()
    log.roll()
    log.append()
    log.roll()
    assert offsets(follower) == [2, 3]
    log.append()
    assert offsets(follower) == [4]


@pytest.mark.parametrize("start", range(7))
def test_a_follower_may_begin_at_an_offset(log: GrowingLog, start: int) -> None:
    log.append(2)
    first = log.file
    log.roll()
    log.append(3)
    if start >= 2:  # it is not opened
        first.write_bytes(b"\xff" * 99)
    follower = LogFollower(str(log.folder), from_offset=start)
    assert offsets(follower) == list(range(start, 5))
    assert offsets(follower) == []
    log.append()
    log.roll()
    log.append(2)
    assert offsets(follower) == list(range(max(5, start), 8))
    assert follower.messages == []


def test_a_follower_may_begin_at_the_end(log: GrowingLog) -> None:
    log.append(2)
    partition = partition_dir(log.folder)
    follower = LogFollower(partition, from_offset=partition.find_end_offset() or 0)
    log.append()
    assert offsets(follower) == [2]


def test_offsets_that_are_gone_before_the_first_poll(log: GrowingLog) -> None:
    log.append(2)
    first = log.file
    log.roll()
    log.append()
    first.unlink()
    follower = LogFollower(log.folder, from_offset=1)
    assert offsets(follower) == [2]
    assert "the offsets 1 to 1 were deleted before they were read" in follower.messages[0]


def test_a_truncation_below_the_first_offset(log: GrowingLog) -> None:
    log.append(2)
    size = log.file.stat().st_size
    log.append(3)
    follower = LogFollower(log.folder, from_offset=4)
    assert offsets(follower) == [4]
    with log.file.open("r+b") as file:
        file.truncate(size)
    log.write(written_again(log, 2, 4, epoch=7))
    assert offsets(follower) == [2, 3, 4, 5]
    assert "written again by the leader of epoch 7" in follower.messages[0]


def test_what_cannot_be_followed(log: GrowingLog) -> None:
    with pytest.raises(ValueError, match="from_offset must not be negative"):
        LogFollower(log.folder, from_offset=-1)
    with pytest.raises(ValueError, match="isolation must be"):
        LogFollower(log.folder, isolation="serializable")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="is not on a disk"):
        LogFollower("memory://bucket/orders-0")


def test_retention_does_not_end_it(log: GrowingLog, follower: LogFollower) -> None:
    log.append(2)
    assert offsets(follower) == [0, 1]
    first = log.file
    log.roll()
    log.append()
    first.rename(first.with_name(first.name + ".deleted"))
    assert offsets(follower) == [2]
    assert follower.messages == []
    log.append()
    second = log.file
    log.roll()
    log.append()
    second.unlink()
    assert offsets(follower) == [4]
    assert len(follower.messages) == 1
    assert "the offsets 3 to 3 were deleted before they were read" in follower.messages[0]


def test_truncated_offsets_are_read_again(log: GrowingLog, follower: LogFollower) -> None:
    log.append(2)
    size = log.file.stat().st_size
    log.append(3)
    assert offsets(follower) == [0, 1, 2, 3, 4]
    with log.file.open("r+b") as file:
        file.truncate(size)
    assert offsets(follower) == []
    assert "truncated to offset 2" in follower.messages[0]
    log.write(log.batches.batches[2])
    assert offsets(follower) == [2]


def written_again(log: GrowingLog, offset: int, count: int, epoch: int) -> bytes:
    """Return batches of a later leader, larger than those that were there."""
    records = [RecordV2(key=b"k", value=b"of another leader")]
    return b"".join(
        batch_of(records, base_offset=offset + number, partition_leader_epoch=epoch)
        for number in range(count)
    )


@pytest.mark.parametrize("count", [1, 2, 3, 9])
def test_offsets_that_a_later_leader_wrote_are_read_again(
    log: GrowingLog, follower: LogFollower, count: int
) -> None:
    """Also if the file has grown past the position, or has the same size."""
    log.append(2)
    size = log.file.stat().st_size
    log.append(3)
    assert offsets(follower) == [0, 1, 2, 3, 4]
    with log.file.open("r+b") as file:
        file.truncate(size)
    log.write(written_again(log, 2, count, epoch=7))
    assert offsets(follower) == list(range(2, 2 + count))
    assert "truncated to offset 2 and written again by the leader of epoch 7" in "".join(
        follower.messages
    )
    log.write(written_again(log, 2 + count, 1, epoch=7))
    assert offsets(follower) == [2 + count]
    assert len(follower.messages) == 1


@pytest.mark.parametrize("is_seen_between", [True, False])
def test_a_truncation_over_segments(
    log: GrowingLog, follower: LogFollower, is_seen_between: bool
) -> None:
    log.append(2)
    first, size = log.file, log.file.stat().st_size
    log.append()
    log.roll()
    log.append(2)
    assert offsets(follower) == [0, 1, 2, 3, 4]
    log.file.rename(log.file.with_name(log.file.name + ".deleted"))
    with first.open("r+b") as file:
        file.truncate(size)
    if is_seen_between:
        assert offsets(follower) == []
    log.base = 0
    log.write(written_again(log, 2, 4, epoch=1))
    assert offsets(follower) == [2, 3, 4, 5]
    assert len(follower.messages) == 1
    assert "truncated to offset 2" in follower.messages[0]


def test_a_file_that_was_replaced_is_named(log: GrowingLog, follower: LogFollower) -> None:
    log.append(2)
    assert offsets(follower) == [0, 1]
    log.file.write_bytes(written_again(log, 0, 4, epoch=0))
    assert offsets(follower) == [2, 3]
    assert "records before offset 2 may differ" in follower.messages[0]


def test_a_segment_that_is_compacted_before_its_end_is_read(
    log: GrowingLog, follower: LogFollower
) -> None:
    log.append(5)
    torn, first = log.batches.batches[3][:20], log.file
    first.write_bytes(b"".join(log.batches.batches[:3]) + torn)
    assert offsets(follower) == [0, 1, 2]
    log.roll()
    log.append()
    first.write_bytes(b"".join(log.batches.batches[2:5]))
    assert offsets(follower) == [3, 4, 5]
    assert follower.messages == []


def test_a_link_to_nothing_ends_it_after_a_while(log: GrowingLog, follower: LogFollower) -> None:
    log.file.unlink()
    log.file.symlink_to("nothing")
    for _ in range(_PATIENCE + 1):
        assert offsets(follower) == []
    assert follower.is_ended


def test_a_folder_that_is_renamed_to_be_deleted_ends_it(
    log: GrowingLog, follower: LogFollower
) -> None:
    log.append()
    assert offsets(follower) == [0]
    log.folder.rename(log.folder.with_name("orders-0.5bf3-delete"))
    assert offsets(follower) == []
    assert follower.is_ended


def test_damage_ends_it_after_a_while(log: GrowingLog, follower: LogFollower) -> None:
    log.append()
    log.write(b"\xff" * 200)
    seen = [offset for _ in range(_PATIENCE + 2) for offset in offsets(follower)]
    assert seen == [0]
    assert follower.is_ended
    assert "position" in follower.messages[0]


def test_damage_of_a_rolled_segment_is_passed(log: GrowingLog, follower: LogFollower) -> None:
    log.append()
    log.write(b"\1" * 7)
    log.roll()
    log.append()
    assert offsets(follower) == [0, 1]
    assert "[CUT_SEGMENT]" in follower.messages[0]


def test_a_wrong_checksum_is_shown_after_a_while(log: GrowingLog, follower: LogFollower) -> None:
    batch = log.batches.add((b"k", b"v")).batches[-1]
    log.write(batch[:-1] + b"\xff")
    (partition,) = ks.open_log_dir(log.folder).partitions
    unverified = LogFollower(partition, verify=False)
    assert offsets(follower) == offsets(unverified) == []
    assert [one for _ in range(_PATIENCE + 2) for one in offsets(unverified)] == [0]
    assert [one for _ in range(_PATIENCE + 2) for one in offsets(follower)] == []
    assert [message for message in follower.messages if "[CHECKSUM_MISMATCH]" in message]


def test_a_removed_folder_ends_it(log: GrowingLog, follower: LogFollower) -> None:
    log.append()
    assert offsets(follower) == [0]
    shutil.rmtree(log.folder)
    assert offsets(follower) == []
    assert follower.is_ended
    assert "has been removed" in follower.messages[0]


def test_undecided_transactions_are_withheld(log: GrowingLog) -> None:
    follower = LogFollower(log.folder, isolation="read_committed")

    log.append()
    log.append(producer_id=7)
    log.append(producer_id=8)
    log.append()
    assert offsets(follower) == [0]
    log.end(8, ABORT)
    assert offsets(follower) == []
    log.end(7, COMMIT)
    assert offsets(follower) == [1, 3, 4, 5]
    log.append(producer_id=7)
    assert offsets(follower) == []
    log.roll()
    log.end(7, ABORT)
    assert offsets(follower) == [7]


def test_a_transaction_that_was_truncated_ends_it(log: GrowingLog) -> None:
    """Which transactions are open is not known any more; nothing is shown twice."""
    follower = LogFollower(log.folder, isolation="read_committed")
    log.append(1)
    size = log.file.stat().st_size
    log.append(producer_id=7)
    assert [len(one.batches) for one in follower.poll()] == [1]
    with log.file.open("r+b") as file:
        file.truncate(size)
    log.write(written_again(log, 1, 3, epoch=4))
    with pytest.raises(SourceReadError, match="position 70"):
        offsets(follower)
    assert "written again" in follower.messages[0]
