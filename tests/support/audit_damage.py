"""Ways to damage a healthy partition, and the finding that an audit has for each."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np

import kafkascan as ks
from kafkascan.format.layout import BATCH_HEADER_SIZE
from tests.support.partitions import NOW, HealthyPartition
from tests.support.records import RecordV2, batch_of
from tests.support.segments import V2_FIELDS, message_v0, sign

Damage = Callable[[HealthyPartition], None]


def _edit(path: Path, at: int, data: bytes) -> None:
    content = bytearray(path.read_bytes())
    content[at : at + len(data)] = data
    path.write_bytes(content)


def set_field(name: str, value: int, *, is_signed: bool = True) -> Damage:
    """Change a header field of the third batch of the second segment."""

    def damage(partition: HealthyPartition) -> None:
        batch = bytearray(partition.batches[1][2])
        at, code = V2_FIELDS[name]
        struct.pack_into(">" + code, batch, at, value)
        if is_signed:
            sign(batch)
        partition.batches[1][2] = bytes(batch)
        partition.log(1).write_bytes(b"".join(partition.batches[1]))

    return damage


def edit(number: int, suffix: str, at: int, data: bytes) -> Damage:
    """Change bytes of a file beside a segment."""

    def damage(partition: HealthyPartition) -> None:
        path = partition.log(number).with_suffix(suffix)
        _edit(path, at % path.stat().st_size, data)

    return damage


def append(number: int, data: bytes) -> Damage:
    def damage(partition: HealthyPartition) -> None:
        with partition.log(number).open("ab") as file:
            file.write(data)

    return damage


def only_zeros(partition: HealthyPartition) -> None:
    partition.log(2).write_bytes(bytes(4096))


def copy_beside(partition: HealthyPartition) -> None:
    shutil.copy(partition.log(0), partition.folder / "backup.log")


def remove_batch(partition: HealthyPartition) -> None:
    del partition.batches[1][1]
    partition.log(1).write_bytes(b"".join(partition.batches[1]))


def remove_segment(partition: HealthyPartition) -> None:
    for path in partition.folder.glob(f"{partition.log(1).stem}.*"):
        path.unlink()


def repeat_batch(partition: HealthyPartition) -> None:
    partition.batches[1].insert(2, partition.batches[1][1])
    partition.log(1).write_bytes(b"".join(partition.batches[1]))


def other_name(partition: HealthyPartition) -> None:
    shutil.copy(partition.log(0), partition.log(2))


def first_below_segment(partition: HealthyPartition) -> None:
    """A batch that begins before its segment, and ends in it."""
    log = partition.log(0)
    log.write_bytes((-2).to_bytes(8, "big", signed=True) + log.read_bytes()[8:])


def skip_sequences(partition: HealthyPartition) -> None:
    partition.data(7, base_sequence=partition.sequences[7] + 5)
    partition.write()


def repeat_sequences(partition: HealthyPartition) -> None:
    partition.data(7, base_sequence=partition.sequences[7] - 3)
    partition.write()


def go_back_in_epochs(partition: HealthyPartition) -> None:
    partition.data(7, producer_epoch=3, base_sequence=0)
    partition.data(7)
    partition.write()


def leave_open(partition: HealthyPartition) -> None:
    partition.data(8, transactional=True)
    partition.data(7, base_timestamp=NOW, max_timestamp=NOW + 2)
    partition.write()


def write_from_another_producer_in_transaction(partition: HealthyPartition) -> None:
    partition.data(8, transactional=True)
    partition.data(8)
    partition.batches[-1].append(b"")
    partition.log(2).write_bytes(b"".join(partition.batches[2]))


def write_old_messages(partition: HealthyPartition) -> None:
    partition.batches[2].append(message_v0(offset=partition.offset))
    partition.log(2).write_bytes(b"".join(partition.batches[2]))


def write_large_batch(partition: HealthyPartition) -> None:
    records = [RecordV2(value=bytes(1_100_000))]
    batch = batch_of(
        records, base_offset=partition.offset, base_timestamp=NOW, max_timestamp=NOW,
        partition_leader_epoch=3,
    )  # fmt: skip
    partition.batches[2].append(batch)
    partition.log(2).write_bytes(b"".join(partition.batches[2]))


def break_record(partition: HealthyPartition) -> None:
    batch = bytearray(partition.batches[1][2])
    batch[61] = 0x7E  # a longer record than there is
    sign(batch)
    partition.batches[1][2] = bytes(batch)
    partition.log(1).write_bytes(b"".join(partition.batches[1]))


def set_offset_delta(record: int, delta: int) -> Damage:
    """Change the offset of one of three records, which have the same size."""

    def damage(partition: HealthyPartition) -> None:
        batch = bytearray(partition.batches[1][2])
        size = (len(batch) - BATCH_HEADER_SIZE) // 3
        # In front of it: two bytes of length, attributes, and a timestamp delta.
        batch[BATCH_HEADER_SIZE + record * size + 4] = 2 * delta
        sign(batch)
        partition.batches[1][2] = bytes(batch)
        partition.log(1).write_bytes(b"".join(partition.batches[1]))

    return damage


def bad_epochs(partition: HealthyPartition) -> None:
    path = partition.folder / "leader-epoch-checkpoint"
    epochs = [one._replace(epoch=one.epoch + 5) for one in ks.broker_state.read_leader_epochs(path)]
    ks.broker_state.write_leader_epochs(path, epochs)


def missing_epochs(partition: HealthyPartition) -> None:
    path = partition.folder / "leader-epoch-checkpoint"
    ks.broker_state.write_leader_epochs(path, ks.broker_state.read_leader_epochs(path)[:-1])


def no_epochs(partition: HealthyPartition) -> None:
    (partition.folder / "leader-epoch-checkpoint").write_text("nonsense\n")


def bad_metadata(partition: HealthyPartition) -> None:
    (partition.folder / "partition.metadata").write_text("version: 0\ntopic_id: ?")


def wrong_snapshot(partition: HealthyPartition) -> None:
    path = partition.log(2).with_suffix(".snapshot")
    entries = ks.broker_state.read_producer_snapshot(path)
    entries["last_sequence"] += 1
    ks.broker_state.write_producer_snapshot(path, entries)


def snapshot_of_a_stranger(partition: HealthyPartition) -> None:
    path = partition.log(2).with_suffix(".snapshot")
    entries = ks.broker_state.read_producer_snapshot(path)
    stranger = entries[:1].copy()
    stranger["producer_id"] = 99
    ks.broker_state.write_producer_snapshot(path, np.concatenate([entries, stranger]))


def no_aborted(partition: HealthyPartition) -> None:
    ks.write_index(
        partition.log(0).with_suffix(".txnindex"), np.empty(0, ks.format.TRANSACTION_INDEX_ENTRY)
    )


def rename(old: str, new: str) -> Damage:
    def damage(partition: HealthyPartition) -> None:
        (partition.folder / old).rename(partition.folder / new)

    return damage


def remove_index(partition: HealthyPartition) -> None:
    partition.log(1).with_suffix(".index").unlink()


def orphan(partition: HealthyPartition) -> None:
    (partition.folder / "00000000000000009999.timeindex").write_bytes(b"")


def leftover(partition: HealthyPartition) -> None:
    shutil.copy(partition.log(1), partition.log(1).with_suffix(".log.swap"))


def interrupted_rewrite(partition: HealthyPartition) -> None:
    (partition.folder / ".partition.rewriting").touch()


def truncate(number: int) -> Damage:
    def damage(partition: HealthyPartition) -> None:
        log = partition.log(number)
        log.write_bytes(log.read_bytes()[:-5])

    return damage


def end_early(name: str) -> Damage:
    def damage(partition: HealthyPartition) -> None:
        offsets = {("orders", 0): partition.offset + 1, ("other", 0): 10**9}
        ks.broker_state.write_offset_checkpoint(partition.folder.parent / name, offsets)

    return damage


DAYS = 86_400_000
DAMAGE: dict[str, tuple[Damage, str]] = {
    "a bit of a value": (edit(1, ".log", 500, b"\xff"), "CHECKSUM_MISMATCH"),
    "a checksum": (set_field("crc", 7, is_signed=False), "CHECKSUM_MISMATCH"),
    "a length": (set_field("batch_length", 3, is_signed=False), "CORRUPT"),
    "a magic byte": (set_field("magic", 9, is_signed=False), "CORRUPT"),
    "a tail cut off": (truncate(2), "TORN_TAIL"),
    "a tail cut off in the middle": (truncate(1), "CUT_SEGMENT"),
    "zeros behind the log": (append(2, bytes(4096)), "ZERO_TAIL"),
    "zeros in place of the last segment": (only_zeros, "NO_BATCHES"),
    "zeros behind a segment": (append(1, bytes(4096)), "CUT_SEGMENT"),
    "more records than offsets": (set_field("records_count", 9), "BAD_COUNT"),
    "a negative count": (set_field("records_count", -1), "BAD_COUNT"),
    "an unknown codec": (set_field("attributes", 7), "UNKNOWN_CODEC"),
    "a record that is none": (break_record, "BAD_RECORDS"),
    "a record with the offset of another": (set_offset_delta(0, 1), "RECORD_OFFSETS"),
    "a record behind the end of its batch": (set_offset_delta(2, 9), "RECORD_OFFSETS"),
    "a large batch": (write_large_batch, "OVERSIZED_BATCH"),
    "less than was replicated": (end_early("replication-offset-checkpoint"), "ENDS_EARLY"),
    "less than was flushed": (end_early("recovery-point-offset-checkpoint"), "ENDS_EARLY"),
    "old messages": (write_old_messages, "OLD_FORMAT"),
    "a batch removed": (remove_batch, "OFFSET_GAP"),
    "a segment removed": (remove_segment, "OFFSET_GAP"),
    "a batch twice": (repeat_batch, "OFFSET_OVERLAP"),
    "a segment of another name": (other_name, "OFFSET_OUT_OF_SEGMENT"),
    "a base offset below that of the segment": (first_below_segment, "OFFSET_OUT_OF_SEGMENT"),
    "a base offset": (set_field("base_offset", 2), "OFFSET_OVERLAP"),
    "a leader epoch going back": (
        set_field("partition_leader_epoch", 1, is_signed=False), "EPOCH_BACKWARDS",
    ),
    "a leader epoch that is not in the file": (bad_epochs, "EPOCH_MISMATCH"),
    "a leader epoch that is missing": (missing_epochs, "EPOCHS_BEHIND"),
    "no leader epochs": (no_epochs, "BAD_CHECKPOINT"),
    "metadata": (bad_metadata, "BAD_CHECKPOINT"),
    "the far future": (set_field("max_timestamp", NOW + 9 * DAYS), "FUTURE_TIMESTAMP"),
    "seconds for milliseconds": (set_field("max_timestamp", NOW // 1000), "PAST_TIMESTAMP"),
    "a wrong latest time": (set_field("max_timestamp", NOW - 9 * DAYS), "MAX_TIMESTAMP_MISMATCH"),
    "a wrong position in an index": (edit(1, ".index", 4, b"\0\0\0\1"), "WRONG_POSITION"),
    "a wrong offset in an index": (edit(1, ".index", -8, b"\0\0\x7f\0"), "OFFSET_NOT_IN_LOG"),
    "a wrong time in an index": (edit(1, ".timeindex", 7, b"\1"), "TIMESTAMP_MISMATCH"),
    "a wrong producer in an index": (edit(0, ".txnindex", 9, b"\1"), "PRODUCER_MISMATCH"),
    "an index that is missing": (remove_index, "MISSING_INDEX"),
    "an index without a log": (orphan, "ORPHAN"),
    "an aborted transaction that is missing": (no_aborted, "TXN_INDEX_MISMATCH"),
    "a byte of a snapshot": (edit(2, ".snapshot", 20, b"\xff"), "BAD_SNAPSHOT"),
    "a sequence in a snapshot": (wrong_snapshot, "SNAPSHOT_MISMATCH"),
    "a stranger in a snapshot": (snapshot_of_a_stranger, "SNAPSHOT_MISMATCH"),
    "sequences skipped": (skip_sequences, "SEQUENCE_GAP"),
    "sequences repeated": (repeat_sequences, "DUPLICATE_SEQUENCE"),
    "a zombie": (go_back_in_epochs, "FENCED_PRODUCER"),
    "a transaction that is left": (leave_open, "HANGING_TRANSACTION"),
    "a write outside of its transaction": (
        write_from_another_producer_in_transaction, "BAD_MARKER",
    ),
    "what a cleaner left": (leftover, "LEFTOVER"),
    "a copy with a name of its own": (copy_beside, "FOREIGN_NAME"),
    "a rewrite that did not end": (interrupted_rewrite, "INTERRUPTED_REWRITE"),
}  # fmt: skip
