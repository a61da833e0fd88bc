"""Audits: nothing is found on healthy logs, and every kind of damage is."""

from __future__ import annotations

import os
import shutil
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kafkascan as ks
from kafkascan.audit_findings import WORDS
from kafkascan.folders import DiskFolder
from kafkascan.schemas.encoder import encode
from kafkascan.schemas.metadata import CONFIG
from tests.support.logs import ABORT, COMMIT, TRANSACTIONAL
from tests.support.partitions import NOW, HealthyPartition
from tests.support.records import RecordV2, batch_of
from tests.support.segments import V2_FIELDS, message_v0, sign

GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.fixture
def partition(tmp_path: Path) -> HealthyPartition:
    return HealthyPartition(tmp_path / "orders-0")


def symbols(path: Path, **options: object) -> set[str]:
    found = ks.audit(path, deep=True, **options)  # type: ignore[arg-type]
    return {one.symbol for one in found.findings}


def alarms(path: Path, **options: object) -> set[str]:
    found = ks.audit(path, deep=True, **options)  # type: ignore[arg-type]
    return {one.symbol for one in found.alarms}


def test_a_healthy_partition(partition: HealthyPartition) -> None:
    partition.write()
    found = ks.audit(partition.folder, deep=True)
    assert found.findings == []
    assert found.is_healthy
    assert (found.logs, found.segments, found.batches) == (1, 3, 27)
    assert found.size_in_bytes == sum(one.stat().st_size for one in partition.folder.glob("*.log"))
    # Whatever else is to find does not keep it from looking at the data dir around it.
    assert ks.audit(partition.folder.parent).findings == []


TRUE_ALARMS = {
    "kafka-4.4.0": {
        ("timestamps", "FUTURE_TIMESTAMP"),
        ("timestamps", "PAST_TIMESTAMP"),
        ("transactions", "HANGING_TRANSACTION"),
    },
    "kafka-4.4.0-killed": set(),
    "kafka-2.8.2": set(),
}
"""What the scenarios did on purpose."""


@pytest.mark.parametrize("run", TRUE_ALARMS)
@pytest.mark.parametrize("deep", [False, True])
def test_no_false_alarms_on_what_brokers_wrote(run: str, deep: bool) -> None:
    found = ks.audit(GOLDEN / run / "data", deep=deep)
    assert {(one.topic, one.symbol) for one in found.alarms} == TRUE_ALARMS[run]


# ---- damage ----------------------------------------------------------------------------------

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


def bad_epochs(partition: HealthyPartition) -> None:
    path = partition.folder / "leader-epoch-checkpoint"
    epochs = [one._replace(epoch=one.epoch + 5) for one in ks.read_leader_epochs(path)]
    ks.write_leader_epochs(path, epochs)


def missing_epochs(partition: HealthyPartition) -> None:
    path = partition.folder / "leader-epoch-checkpoint"
    ks.write_leader_epochs(path, ks.read_leader_epochs(path)[:-1])


def no_epochs(partition: HealthyPartition) -> None:
    (partition.folder / "leader-epoch-checkpoint").write_text("nonsense\n")


def bad_metadata(partition: HealthyPartition) -> None:
    (partition.folder / "partition.metadata").write_text("version: 0\ntopic_id: ?")


def wrong_snapshot(partition: HealthyPartition) -> None:
    path = partition.log(2).with_suffix(".snapshot")
    entries = ks.read_producer_snapshot(path)
    entries["last_sequence"] += 1
    ks.write_producer_snapshot(path, entries)


def snapshot_of_a_stranger(partition: HealthyPartition) -> None:
    path = partition.log(2).with_suffix(".snapshot")
    entries = ks.read_producer_snapshot(path)
    stranger = entries[:1].copy()
    stranger["producer_id"] = 99
    ks.write_producer_snapshot(path, np.concatenate([entries, stranger]))


def no_aborted(partition: HealthyPartition) -> None:
    ks.write_index(
        partition.log(0).with_suffix(".txnindex"), np.empty(0, ks.TRANSACTION_INDEX_ENTRY)
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


def truncate(number: int) -> Damage:
    def damage(partition: HealthyPartition) -> None:
        log = partition.log(number)
        log.write_bytes(log.read_bytes()[:-5])

    return damage


def end_early(name: str) -> Damage:
    def damage(partition: HealthyPartition) -> None:
        offsets = {("orders", 0): partition.offset + 1, ("other", 0): 10**9}
        ks.write_offset_checkpoint(partition.folder.parent / name, offsets)

    return damage


DAYS = 86_400_000
DAMAGE: dict[str, tuple[Damage, str]] = {
    "a bit of a value": (edit(1, ".log", 500, b"\xff"), "BAD_CRC"),
    "a checksum": (set_field("crc", 7, is_signed=False), "BAD_CRC"),
    "a length": (set_field("batch_length", 3, is_signed=False), "CORRUPT"),
    "a magic byte": (set_field("magic", 9, is_signed=False), "CORRUPT"),
    "a tail cut off": (truncate(2), "TORN_TAIL"),
    "a tail cut off in the middle": (truncate(1), "CUT_SEGMENT"),
    "zeros behind the log": (append(2, bytes(4096)), "ZERO_TAIL"),
    "zeros behind a segment": (append(1, bytes(4096)), "CUT_SEGMENT"),
    "more records than offsets": (set_field("records_count", 9), "BAD_COUNT"),
    "a negative count": (set_field("records_count", -1), "BAD_COUNT"),
    "an unknown codec": (set_field("attributes", 7), "UNKNOWN_CODEC"),
    "a record that is none": (break_record, "BAD_RECORDS"),
    "a large batch": (write_large_batch, "OVERSIZED_BATCH"),
    "less than was replicated": (end_early("replication-offset-checkpoint"), "ENDS_EARLY"),
    "less than was flushed": (end_early("recovery-point-offset-checkpoint"), "ENDS_EARLY"),
    "old messages": (write_old_messages, "OLD_FORMAT"),
    "a batch removed": (remove_batch, "OFFSET_GAP"),
    "a segment removed": (remove_segment, "OFFSET_GAP"),
    "a batch twice": (repeat_batch, "OFFSET_OVERLAP"),
    "a segment of another name": (other_name, "OFFSET_OUT_OF_SEGMENT"),
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
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_found(name: str, partition: HealthyPartition) -> None:
    damage, symbol = DAMAGE[name]
    partition.write()
    damage(partition)
    found = ks.audit(partition.folder, deep=True)
    symbols = {one.symbol for one in found.findings}
    assert symbol in symbols, found
    for one in found.findings:
        assert one.topic == "orders"
        assert one.advice
        assert one.message in str(one)
        assert one.count >= 1


def test_damage_is_where_it_is_said_to_be(partition: HealthyPartition) -> None:
    partition.write()
    set_field("crc", 7, is_signed=False)(partition)
    (found,) = ks.audit(partition.folder).findings
    before = sum(map(len, partition.batches[1][:2]))
    assert (found.file, found.position) == (partition.log(1).name, before)
    assert found.offset == int.from_bytes(partition.batches[1][2][:8], "big")
    assert found.severity is ks.Severity.ERROR


def test_every_word_is_used_somewhere() -> None:
    tested = {symbol for _, symbol in DAMAGE.values()}
    elsewhere = {
        "UNREADABLE", "DROPPED_LOG", "PADDED", "INCOMPLETE", "EMPTY_TRANSACTIONS",
        "MANY_PRODUCERS", "COMPACTION",
    }  # fmt: skip
    assert set(WORDS) <= tested | elsewhere


def test_the_rest_of_the_words(tmp_path: Path, partition: HealthyPartition) -> None:
    partition.write()
    uuid = "0123456789abcdef" * 2
    (tmp_path / f"gone-0.{uuid}-delete").mkdir()
    (tmp_path / f"gone-0.{uuid}-delete" / "0.log").touch()
    assert symbols(tmp_path) == {"DROPPED_LOG"}
    assert "MANY_PRODUCERS" in alarms(partition.folder, many_producers=1)
    partition.log(1).unlink()
    partition.log(1).symlink_to(tmp_path / "nowhere")
    assert "UNREADABLE" in alarms(partition.folder)


def test_compaction_is_no_damage(partition: HealthyPartition) -> None:
    partition.write()
    partition.batches[0][1] = b""
    partition.log(0).write_bytes(b"".join(partition.batches[0]))
    for kind in ("index", "timeindex"):
        partition.log(0).with_suffix(f".{kind}").unlink()
    assert "OFFSET_GAP" in alarms(partition.folder)
    ks.write_offset_checkpoint(
        partition.folder.parent / "cleaner-offset-checkpoint", {("orders", 0): partition.offset}
    )
    found = ks.audit(partition.folder.parent, deep=True)
    assert found.is_healthy
    assert {"COMPACTION", "OFFSET_GAP"} <= {one.symbol for one in found.findings}


def test_a_log_that_is_written_to_ends_as_it_may(
    partition: HealthyPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two looks, the rest of the last batch has come."""
    partition.write()
    partition.batches[2].append(partition.batches[2][-2])
    with partition.log(2).open("ab") as file:
        file.write(partition.batches[2][-1][:80])
    assert alarms(partition.folder) == {"TORN_TAIL"}
    monkeypatch.setattr("kafkascan.log_dir.SegmentFile.size", property(lambda self: 1 << 30))
    found = ks.audit(partition.folder)
    assert [(one.symbol, one.severity) for one in found.findings if one.symbol == "TORN_TAIL"] == [
        ("TORN_TAIL", ks.Severity.NOTE)
    ]


def test_a_limit_that_is_given(partition: HealthyPartition) -> None:
    partition.write()
    assert alarms(partition.folder, max_message_bytes=100) == {"OVERSIZED_BATCH"}


def test_no_checksums_no_records(partition: HealthyPartition) -> None:
    partition.write()
    edit(1, ".log", 500, b"\xff")(partition)
    assert ks.audit(partition.folder, verify=False).findings == []


# ---- logs whose beginning is gone ------------------------------------------------------------


def without_first_segment(
    partition: HealthyPartition, *, end: int | None, begins_later: bool = False
) -> Path:
    """Write a log in which producer 8 has a transaction open when the second segment begins."""
    if not begins_later:
        partition.data(8, transactional=True)
    partition.batches.append([])
    if begins_later:
        partition.data(8, transactional=True)
    partition.data(9)
    if end is not None:
        partition.end(8, end)
    partition.data(9)
    partition.write()
    for number in range(len(partition.batches) - 1):
        for path in partition.folder.glob(f"{partition.log(number).stem}.*"):
            path.unlink()
    return partition.log(len(partition.batches) - 1)


@pytest.mark.parametrize("end", [ABORT, COMMIT])
def test_a_transaction_that_began_before_the_log_does(
    end: int, partition: HealthyPartition
) -> None:
    begin = partition.offset
    log = without_first_segment(partition, end=end)
    assert ks.audit(partition.folder).findings == []
    found = ks.read_transactions(partition.folder)
    (span,) = found.spans
    assert (span["first_offset"], span["marker_offset"]) == (begin, begin + 6)
    assert (span["batches"], span["first_timestamp"], span["last_offset"]) == (0, -1, begin + 2)
    assert not found.is_empty.any()
    index = log.with_suffix(".txnindex")
    assert index.exists() == (end == ABORT)
    if end == ABORT:
        assert found.aborted().tobytes() == index.read_bytes()
        index.unlink()
        assert symbols(partition.folder) == {"TXN_INDEX_MISMATCH"}
    (row,) = ks.count_records(partition.folder).counts
    assert (row["open_records"], row["committed_records"], row["records"]) == (0, 6, 6)
    # Without the snapshot, nothing tells of the transaction but its marker.
    log.with_suffix(".snapshot").unlink()
    assert ks.read_transactions(partition.folder).is_empty.tolist() == [True]
    assert symbols(partition.folder) == {"EMPTY_TRANSACTIONS"}


def test_a_transaction_that_hangs_since_before_the_log_begins(partition: HealthyPartition) -> None:
    begin = partition.offset
    log = without_first_segment(partition, end=None)
    late = NOW + 3_600_000
    (hanging,) = ks.audit(partition.folder, now_ms=late).findings
    assert (hanging.symbol, hanging.offset, hanging.file) == (
        "HANGING_TRANSACTION", begin, log.name
    )  # fmt: skip
    found = ks.read_transactions(partition.folder, now_ms=late)
    assert found.is_hanging.tolist() == [True]
    # A consumer that reads committed records gets none, though none of those here is open.
    assert found.last_stable_offsets.tolist() == [begin + 3]
    (row,) = ks.count_records(partition.folder).counts
    assert (row["open_records"], row["committed_records"], row["records"]) == (0, 0, 6)
    # A snapshot that is damaged says nothing, as to a broker.
    edit(len(partition.batches) - 1, ".snapshot", 20, b"\xff")(partition)
    assert len(ks.read_transactions(partition.folder)) == 0
    assert symbols(partition.folder, now_ms=late) == {"BAD_SNAPSHOT"}


def test_a_transaction_goes_on_with_what_a_snapshot_says(partition: HealthyPartition) -> None:
    begin = partition.offset
    partition.data(8, transactional=True)
    partition.batches.append([])
    partition.data(8, transactional=True)
    partition.end(8, ABORT)
    partition.write()
    for path in partition.folder.glob("*.log"):
        if path != partition.log(3):
            path.unlink()
    (span,) = ks.read_transactions(partition.folder).spans
    assert (span["first_offset"], span["last_offset"]) == (begin, begin + 5)
    assert (span["batches"], span["records"]) == (1, 3)
    (row,) = ks.count_records(partition.folder).counts
    assert (row["aborted_records"], row["committed_records"]) == (3, 0)


# ---- what the metadata log says --------------------------------------------------------------

_TOPIC, _BROKER = 2, 4


def write_configs(data_dir: Path, *configs: tuple[int, str, str, str | None]) -> None:
    """Write a metadata log that sets values."""
    records = []
    for number, values in enumerate(configs):
        fields = dict(zip(("resource_type", "resource_name", "name", "value"), values, strict=True))
        message = bytes([1, 4, 0]) + encode(CONFIG, fields, 0)
        records.append(RecordV2(value=message, offset_delta=number))
    folder = data_dir / "__cluster_metadata-0"
    folder.mkdir(exist_ok=True)
    batch = batch_of(records, base_timestamp=NOW, max_timestamp=NOW)
    (folder / f"{0:020}.log").write_bytes(batch)


def oversized(path: Path, **options: Any) -> dict[str | None, str]:
    found = ks.audit(path, **options).findings
    return {one.topic: one.message for one in found if one.symbol == "OVERSIZED_BATCH"}


def test_limits_of_the_metadata_log(tmp_path: Path) -> None:
    for topic in ("orders", "other"):
        HealthyPartition(tmp_path / f"{topic}-0").write()
    largest = "max.message.bytes"
    assert oversized(tmp_path) == {}
    write_configs(tmp_path, (_TOPIC, "orders", largest, "100"))
    said = {"orders": "a batch is larger than the topic's limit of 100 bytes"}
    assert oversized(tmp_path) == oversized(tmp_path / "orders-0") == said
    assert not any(one.alarms for one in [ks.audit(tmp_path / "orders-0")])
    with tarfile.open(tmp_path / "all.tar", "w") as tar:
        tar.add(tmp_path, "", filter=lambda one: None if one.name.endswith("tar") else one)
    assert oversized(tmp_path / "all.tar") == said
    # The broker's default is that of topics without their own; the metadata log has neither.
    default = (_BROKER, "", "message.max.bytes", "90")
    write_configs(tmp_path, default, (_TOPIC, "orders", largest, "1000000"))
    assert set(oversized(tmp_path)) == {"other"}
    write_configs(tmp_path, default, (_BROKER, "", "message.max.bytes", None))
    assert oversized(tmp_path) == {}
    write_configs(tmp_path, default)
    assert oversized(tmp_path, max_message_bytes=1_000_000) == {}
    assert set(oversized(tmp_path, max_message_bytes=80)) > {"orders", "other"}
    # What is no number of Kafka's says nothing.
    write_configs(tmp_path, (_TOPIC, "orders", largest, "9" * 5000), (_TOPIC, "o", largest, "-1"))
    assert oversized(tmp_path) == {}


# ---- what is no file -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["index", "timeindex", "txnindex", "snapshot", "leader-epoch-checkpoint", "partition.metadata"],
)
def test_a_fifo_among_the_files(name: str, partition: HealthyPartition) -> None:
    partition.write()
    first = partition.log(1)
    path = first.with_suffix(f".{name}") if "-" not in name and "." not in name else (
        partition.folder / name
    )  # fmt: skip
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    found = {(one.symbol, one.file) for one in ks.audit(partition.folder, deep=True).findings}
    assert found == {("UNREADABLE", path.name)}
    assert len(ks.read_transactions(partition.folder)) == 6
    with pytest.raises(OSError, match="not a regular file"):
        DiskFolder(partition.folder).read(path.name)


def test_a_fifo_as_a_log_or_a_checkpoint(partition: HealthyPartition) -> None:
    partition.write()
    os.mkfifo(partition.folder.parent / "cleaner-offset-checkpoint")
    assert ks.audit(partition.folder).findings == []
    partition.log(2).unlink()
    os.mkfifo(partition.log(2))
    assert ("UNREADABLE", partition.log(2).name) in {
        (one.symbol, one.file) for one in ks.audit(partition.folder).findings
    }


# ---- how often -------------------------------------------------------------------------------


def test_a_log_that_a_broker_refuses_is_said_to_be_so_once(partition: HealthyPartition) -> None:
    partition.write()
    write_from_another_producer_in_transaction(partition)
    found = {one.symbol: one.count for one in ks.audit(partition.folder).findings}
    assert found["BAD_MARKER"] == 1


def test_the_order_of_batches_is_judged_behind_one_that_a_broker_refuses() -> None:
    def batch(offset: int, sequence: int, attributes: int = 0) -> bytes:
        return batch_of([RecordV2()], base_offset=offset, base_sequence=sequence, producer_id=3,
                        producer_epoch=0, attributes=attributes)  # fmt: skip

    log = batch(0, 0, TRANSACTIONAL) + batch(1, 1) + batch(2, 5) + batch(3, 6) + batch(4, 3)
    found = {one.symbol: (one.offset, one.count) for one in ks.audit(log).findings}
    assert found["BAD_MARKER"] == (1, 1)
    assert found["SEQUENCE_GAP"] == (2, 1)
    assert found["DUPLICATE_SEQUENCE"] == (4, 1)


def test_places_are_counted_batch_by_batch(tmp_path: Path) -> None:
    """However many are looked at at once."""
    partition = HealthyPartition(tmp_path / "orders-0", segments=1)
    for _ in range(6000):
        partition.data(-1)
    partition.write()
    (log,) = partition.folder.glob("*.log")
    batches = ks.scan_batches(log).batches
    ks.write_leader_epochs(
        partition.folder / "leader-epoch-checkpoint",
        [ks.LeaderEpoch(0, 0), ks.LeaderEpoch(1, int(batches["base_offset"][5000]))],
    )
    (found,) = ks.audit(partition.folder).findings
    assert (found.symbol, found.count, found.offset) == ("EPOCH_MISMATCH", 5000, 0)
    (partition.folder / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    (found,) = ks.audit(partition.folder).findings
    assert (found.symbol, found.count, found.offset) == ("EPOCHS_BEHIND", len(batches), 0)
