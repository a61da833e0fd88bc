"""Crash recovery: reported changes, written files, settings."""

from __future__ import annotations

import gzip
import shutil
import struct
from pathlib import Path

import pytest

import kafkascan as ks
from kafkascan.logs.metadata_log import TopicConfig, read_cluster_metadata
from tests.support.files import contents
from tests.support.logs import ABORT, COMMIT, TRANSACTIONAL, marker
from tests.support.metadata_logs import TOPIC, write_configs
from tests.support.partitions import HealthyPartition
from tests.support.paths import GOLDEN
from tests.support.records import RecordV2, batch_of
from tests.support.segments import Rig, message_v1
from tests.unit.recovery.damaged_partitions import (
    KILLED,
    NOW,
)


def test_without_write_no_file_changes(damaged: Path) -> None:
    before = contents(damaged.parent)
    planned = ks.recover(damaged, now_ms=NOW)
    assert contents(damaged.parent) == before
    assert not planned.is_in_order
    (partition,) = planned.partitions
    assert partition.error is None
    assert [segment.is_recovered for segment in partition.segments] == [True, True, True]
    assert partition.truncated_bytes == sum(one.truncated_bytes for one in partition.segments) > 0
    assert "torn" not in repr(planned)
    assert "the last batch is incomplete" in repr(planned)


def test_discarded_records_are_counted_by_their_offsets(tmp_path: Path) -> None:
    folder = tmp_path / "orders-0"
    folder.mkdir()
    batches = [
        batch_of([RecordV2(value=b"one"), RecordV2(offset_delta=1)], base_offset=offset)
        for offset in range(0, 8, 2)
    ]
    first, second = folder / f"{0:020}.log", folder / f"{8:020}.log"

    def discarded(content: bytes, next_segment: bytes | None = None) -> tuple[int | None, int]:
        first.write_bytes(content)
        second.unlink(missing_ok=True)
        if next_segment is not None:
            second.write_bytes(next_segment)
        (found,) = ks.recover(folder, now_ms=NOW).partitions
        assert found.error is None
        return found.discarded_records, found.salvageable_records

    intact, damaged = b"".join(batches), bytearray(b"".join(batches))
    damaged[len(batches[0]) + 70] ^= 1  # a record of the second batch
    assert discarded(intact) == (0, 0)
    assert discarded(intact + bytes(1000)) == (0, 0)
    assert discarded(bytes(damaged)) == (6, 4)
    damaged[len(batches[0]) + 8] = 1  # a length that exceeds the file
    assert discarded(bytes(damaged)) == (6, 4)
    assert discarded(intact[:-1]) == (None, 0)  # nothing determines the end of what is lost
    last = batch_of([RecordV2(value=b"x")], base_offset=8)
    assert discarded(bytes(damaged), last) == (6, 4)
    assert discarded(intact[:-1], last) == (2, 0)
    assert discarded(intact, last[:-1]) == (None, 0)
    assert discarded(intact[:-1], last[:-1]) == (2, 0)


def test_a_segment_that_repeats_its_first_offset_is_truncated_at_the_index_entry(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "orders-0"
    folder.mkdir()
    batch = batch_of([RecordV2(value=b"one")], base_offset=27, max_timestamp=NOW)
    (folder / f"{27:020}.log").write_bytes(6 * batch)
    (folder / f"{27:020}.index").touch()
    for interval, kept in ((0, 1), (len(batch), 2), (4096, 6)):
        (partition,) = ks.recover(folder, now_ms=NOW, interval_bytes=interval).partitions
        (segment,) = partition.segments
        assert segment.valid_bytes == kept * len(batch)
        assert segment.next_offset == partition.log_end_offset == 28


def test_an_emptied_segment_has_an_empty_transaction_index(tmp_path: Path) -> None:
    """Kafka creates the file when it reads the aborted transaction, and then truncates it."""
    folder = tmp_path / "orders-0"
    folder.mkdir()
    record = [RecordV2(value=b"one")]
    begun = batch_of(record, base_offset=27, producer_id=5, base_sequence=0,
                     producer_epoch=0, attributes=TRANSACTIONAL)  # fmt: skip
    ended = marker(ABORT, producer_id=5, base_offset=28)
    (folder / f"{27:020}.log").write_bytes(begun + ended + 3 * batch_of(record, base_offset=27))
    (folder / f"{27:020}.index").touch()
    ks.recover(folder, write=True, truncate=True, now_ms=NOW, interval_bytes=0)
    sizes = {path.suffix: path.stat().st_size for path in folder.glob(f"{27:020}.*")}
    assert sizes.pop(".bak") == len(begun + ended + 3 * batch_of(record, base_offset=27))
    assert sizes == {".log": 0, ".index": 0, ".timeindex": 0, ".txnindex": 0}


def test_logs_are_truncated_only_with_truncate(damaged: Path) -> None:
    logs = {name: data for name, data in contents(damaged).items() if name.endswith(".log")}
    done = ks.recover(damaged, write=True, now_ms=NOW)
    assert {name: data for name, data in contents(damaged).items() if name in logs} == logs
    assert not done.is_in_order
    (partition,) = done.partitions
    left = [change for change in partition.changes if change not in partition.applied]
    (cut,) = (change.name for change in left if change.shortens_log)
    # With an index, a broker would drop the segments after it.
    indexes = {cut.replace(".log", f".{kind}") for kind in ("index", "timeindex", "txnindex")}
    assert {change.name for change in left} - {cut} <= indexes


def test_recovered_files_are_valid(damaged: Path) -> None:
    before = contents(damaged)
    done = ks.recover(damaged, write=True, truncate=True, now_ms=NOW)
    assert done.is_in_order
    assert ks.recover(damaged, now_ms=NOW).partitions[0].changes == []
    after = contents(damaged)
    for path in damaged.glob("*.log"):
        scan = ks.scan_batches(path)
        assert scan.end is ks.ScanEnd.CLEAN
        place = {"base_offset": int(path.stem)}
        assert after[f"{path.stem}.index"] == ks.build_offset_index(scan.batches, **place).tobytes()
        for kind in ("index", "timeindex"):
            assert ks.check_index(path.with_suffix(f".{kind}"), scan.batches) == []
    # Nothing is lost: what was there is there still, or beside it.
    for name, data in before.items():
        kept = [after.get(name), *(after[other] for other in after if other.startswith(name))]
        cut = [whole for whole in kept if whole is not None]
        assert data in cut or cut[0] + cut[-1] == data


def test_a_recovered_data_dir_is_marked_clean(tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(KILLED, data)
    assert not ks.recover(data, write=True).is_marked_clean  # a log has a tail still
    assert not (data / ".kafka_cleanshutdown").exists()
    assert not ks.recover(data, write=True, truncate=True, mark_clean=False).is_marked_clean
    assert ks.recover(data, write=True, truncate=True).is_marked_clean
    mark = ks.broker_state.read_clean_shutdown(data / ".kafka_cleanshutdown")
    assert mark == ks.broker_state.CleanShutdown(
        0, read_cluster_metadata(KILLED).broker_epoch or -1
    )
    assert mark.broker_epoch > 0
    shapes = {partition.topic for partition in ks.recover(data).partitions}
    assert shapes == {"being-written", "preallocated"}  # brokers load the metadata themselves


def test_the_broker_epoch_is_that_of_its_clean_shutdown_file() -> None:
    data = GOLDEN / "kafka-4.4.0" / "data"
    written = ks.broker_state.read_clean_shutdown(data / ".kafka_cleanshutdown")
    assert read_cluster_metadata(data).broker_epoch == written.broker_epoch
    assert read_cluster_metadata(GOLDEN).broker_epoch is None


def test_the_index_interval_of_a_topic() -> None:
    assert read_cluster_metadata(KILLED).topics == {"being-written": TopicConfig(200)}
    planned = {one.topic: one for one in ks.recover(KILLED).partitions}
    changed = {change.name: change.new_size for change in planned["being-written"].changes}
    partition = KILLED / "being-written-0"
    log = max(partition.glob("*.log"))
    entries = ks.build_offset_index(
        ks.scan_batches(log).batches, base_offset=int(log.stem), interval_bytes=200
    )
    assert changed[f"{log.stem}.index"] == entries.nbytes > 0
    (alone,) = ks.recover(partition).partitions
    assert {change.name: change.new_size for change in alone.changes} == changed
    (finer,) = ks.recover(partition, interval_bytes=0).partitions
    assert {change.name: change.new_size for change in finer.changes} != changed


@pytest.fixture
def without_first(tmp_path: Path) -> Path:
    """A partition whose first segment was deleted; the snapshot of the second one is left."""
    folder = HealthyPartition(tmp_path / "data" / "orders-0").write().folder
    first = min(folder.glob("*.log"))
    for path in folder.glob(f"{first.stem}.*"):
        path.unlink()
    (folder.parent / "meta.properties").write_text("version=1\nnode.id=1\n")
    return folder


@pytest.mark.parametrize(
    ("settings", "checkpoint", "is_tiered"),
    [
        ({"remote.storage.enable": "true"}, None, True),
        ({"remote.storage.enable": " TRUE "}, 0, True),
        ({"remote.storage.enable": "true", "cleanup.policy": "delete"}, None, True),
        ({"remote.storage.enable": "true", "cleanup.policy": "delete, compact"}, 0, False),
        ({"remote.storage.enable": "false"}, 0, False),
        ({}, 0, False),
        # Without a metadata log:
        (None, 0, True),
        (None, 1, True),
        (None, None, False),
    ],
)
def test_tiered_topics_keep_the_snapshot_at_their_first_segment(
    without_first: Path, settings: dict[str, str] | None, checkpoint: int | None, is_tiered: bool
) -> None:
    folder, data = without_first, without_first.parent
    first = f"{min(folder.glob('*.log')).stem}.snapshot"
    if settings is not None:
        configs = [(TOPIC, "orders", name, value) for name, value in settings.items()]
        write_configs(data, *configs, topics=["orders"])
    if checkpoint is not None:
        path = data / "log-start-offset-checkpoint"
        ks.broker_state.write_offset_checkpoint(path, {("orders", 0): checkpoint})
    for path in (folder, data):
        for given, expected in ((None, is_tiered), (["orders"], True), (["other"], False)):
            (planned,) = ks.recover(path, now_ms=NOW, tiered_topics=given).partitions
            assert planned.is_tiered == expected
            deleted = [one.name for one in planned.changes if one.new_size is None]
            assert (first not in deleted) == expected
            if expected:
                assert planned.log_start_offset == (checkpoint or 0)


def test_an_unreadable_partition_does_not_affect_others(tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(KILLED, data)
    (data / "being-written-0" / "leader-epoch-checkpoint").write_bytes(b"nonsense")
    done = ks.recover(data, write=True, truncate=True)
    first, second = done.partitions
    assert isinstance(first.error, ks.format.CorruptCheckpointError)
    assert second.is_in_order
    assert not done.is_in_order
    assert not done.is_marked_clean


def test_the_recovery_point_of_the_checkpoint(damaged: Path) -> None:
    second = sorted(damaged.glob("*.log"))[1]
    checkpoint = damaged.parent / "recovery-point-offset-checkpoint"
    ks.broker_state.write_offset_checkpoint(
        checkpoint, {("orders", 0): int(second.stem) + 1, ("other", 0): 3}
    )
    for log in damaged.glob("*.log"):
        log.with_suffix(".index").write_bytes(b"")
    (partition,) = ks.recover(damaged).partitions
    assert [segment.is_recovered for segment in partition.segments] == [False, True, False]
    (partition,) = ks.recover(damaged, recovery_point=0).partitions
    assert [segment.is_recovered for segment in partition.segments] == [True, True, False]


def test_a_log_under_another_name_prevents_the_clean_mark(tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(KILLED, data)
    (data / "being-written-0").rename(data / "put aside")
    done = ks.recover(data, write=True, truncate=True)
    assert done.is_in_order
    assert not done.is_marked_clean


def test_a_data_dir_without_logs(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=1\nnode.id=1\n")
    shutil.copy(KILLED / "__cluster_metadata-0" / f"{0:020}-{0:010}.checkpoint", tmp_path)
    (tmp_path / f"{0:020}-{0:010}.checkpoint").rename(tmp_path / "bootstrap.checkpoint")
    with pytest.raises(ks.format.NoLogsError, match="no logs to recover"):
        ks.recover(tmp_path, write=True)
    assert not list(tmp_path.glob("*.log"))


def test_an_empty_partition_gets_a_segment(tmp_path: Path) -> None:
    (tmp_path / "orders-0").mkdir()
    (alone,) = ks.recover(tmp_path / "orders-0").partitions
    assert len(alone.changes) == 4


@pytest.mark.parametrize(
    "name",
    [
        "5.log", "9223372036854775807.log", "0000000000000000005.log.swap",
        "09223372036854775808.snapshot", "9223372036854775808.snapshot",
        "99999999999999999999999.log", "10000000000000000000.log", "-5.log", "x.index",
    ],
)  # fmt: skip
def test_unknown_file_names_are_ignored(damaged: Path, name: str) -> None:
    (damaged / name).write_bytes(b"odd")
    done = ks.recover(damaged, write=True, truncate=True, now_ms=NOW)
    assert done.is_in_order


def test_arguments(damaged: Path) -> None:
    with pytest.raises(ValueError, match="needs write"):
        ks.recover(damaged, truncate=True)
    with pytest.raises(ValueError, match="threads"):
        ks.recover(damaged, threads=0)


# ---- logs that no broker loads -------------------------------------------------------------------


def test_an_index_with_a_wrong_position(tmp_path: Path) -> None:
    """Nothing is wrong with the log, and the index is below the recovery point."""
    folder = tmp_path / "orders-0"
    folder.mkdir()
    begun = {"attributes": 0x10, "producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    open_one = batch_of([RecordV2(value=bytes(99))], base_offset=0) + batch_of(
        [RecordV2(value=bytes(99))], base_offset=1, **begun
    )
    (folder / f"{0:020}.log").write_bytes(open_one)
    (folder / f"{0:020}.index").write_bytes(struct.pack(">ii", 1, 70))
    (folder / f"{2:020}.log").write_bytes(batch_of([RecordV2()], base_offset=2))
    before = contents(folder)
    (planned,) = ks.recover(
        folder, write=True, truncate=True, recovery_point=2, now_ms=NOW
    ).partitions
    assert isinstance(planned.error, ks.CorruptIndexError)
    assert planned.error.path == str(folder / f"{0:020}.index")
    assert "Delete the index" in str(planned)
    assert contents(folder) == before
    (folder / f"{0:020}.index").unlink()
    (done,) = ks.recover(folder, write=True, truncate=True, recovery_point=2, now_ms=NOW).partitions
    assert done.is_in_order
    assert not ks.recover(folder, recovery_point=2, now_ms=NOW).partitions[0].changes


@pytest.mark.parametrize(
    ("broken", "length", "entry", "error", "position"),
    [
        pytest.param(1, 5, 70, ks.CorruptBatchError, 70, id="damage at the entry's position"),
        pytest.param(2, 5, 70, ks.CorruptBatchError, 140, id="damage after it"),
        pytest.param(2, 5, 105, ks.CorruptIndexError, 0, id="an entry before the damage"),
        pytest.param(1, 5, 105, ks.CorruptIndexError, 0, id="an entry after the damage"),
        pytest.param(2, 500, 175, ks.CorruptIndexError, 0, id="an entry in an incomplete batch"),
    ],
)
def test_a_failed_lookup_is_an_error_of_the_index_only_if_no_batch_starts_at_its_position(
    tmp_path: Path,
    broken: int,
    length: int,
    entry: int,
    error: type[ks.CorruptLogError],
    position: int,
) -> None:
    """The segment is below the recovery point: it is only searched for the log start offset."""
    folder = tmp_path / "orders-0"
    folder.mkdir()
    log = Rig().batches(3, bytes(9)).set(broken, "batch_length", length)
    assert log.position_of(2) == 140
    (folder / f"{0:020}.log").write_bytes(log.log)
    (folder / f"{0:020}.index").write_bytes(struct.pack(">ii", 1, entry))
    (folder / f"{3:020}.log").write_bytes(batch_of([RecordV2()], base_offset=3))
    (planned,) = ks.recover(folder, recovery_point=3, log_start_offset=2, now_ms=NOW).partitions
    assert type(planned.error) is error
    assert planned.error.position == position


def test_a_last_message_that_brokers_cannot_decompress(tmp_path: Path) -> None:
    """Its checksum is right, and that is all that recovery asks of it; loading asks for more."""
    packed = bytearray(gzip.compress(message_v1(value=b"inner")))
    packed[-1] ^= 1
    wrapper = message_v1(attributes=1, value=bytes(packed))
    folder = tmp_path / "orders-0"
    folder.mkdir()
    (folder / f"{0:020}.log").write_bytes(wrapper)
    (planned,) = ks.recover(folder, write=True, truncate=True, now_ms=NOW).partitions
    assert isinstance(planned.error, ks.InvalidRecordError)
    assert planned.error.position == 0
    assert contents(folder) == {f"{0:020}.log": wrapper}


@pytest.mark.parametrize(
    ("order", "is_loaded"),
    [
        ("b1 b2 e1", True),
        ("b1 b2 e1 e2", False),
        ("b1 e1 b2 e2", True),
        ("b1 b2 e1 b3 e2", True),
        ("b1 b2 e2 e1 b3 e3", False),
    ],
)
@pytest.mark.parametrize("is_recovered", [True, False])
@pytest.mark.parametrize("lowest_id", [0, 1])
def test_transactions_that_begin_at_one_offset(
    tmp_path: Path, order: str, is_loaded: bool, is_recovered: bool, lowest_id: int
) -> None:
    """Kafka identifies them by it; for segments that are not recovered, producers are rebuilt."""
    folder = tmp_path / "orders-0"
    folder.mkdir()
    log = b""
    for number, (what, producer) in enumerate(order.split()):
        id_ = lowest_id + int(producer) - 1
        known = {"producer_id": id_, "producer_epoch": 0, "timestamp_delta": 0}
        if what == "e":
            log += marker(COMMIT, base_offset=10 + number, **known)
        else:
            del known["timestamp_delta"]
            log += batch_of([RecordV2()], base_offset=0, attributes=TRANSACTIONAL,
                            base_sequence=0, **known)  # fmt: skip
    (folder / f"{0:020}.log").write_bytes(log)
    (folder / f"{0:020}.index").touch()
    (folder / f"{50:020}.log").touch()
    (folder / f"{50:020}.index").touch()
    point = 0 if is_recovered else 50
    (planned,) = ks.recover(folder, recovery_point=point, interval_bytes=10**6).partitions
    if is_loaded and (is_recovered or order.count("e") == 1):
        assert planned.error is None
    else:
        assert isinstance(planned.error, ks.InvalidRecordError)
        assert planned.error.symbol == "BAD_CONTROL_RECORD"


@pytest.mark.parametrize("name", ["recovery_point", "log_start_offset"])
def test_offsets_are_checked_before_logs_are_read(name: str) -> None:
    """Otherwise, each partition would have an error of its own."""
    data = GOLDEN / "kafka-4.4.0/data"
    with pytest.raises(ValueError, match=f"{name} must not be negative"):
        ks.recover(data, **{name: -1})
    with pytest.raises(TypeError, match="integer"):
        ks.recover(data, **{name: "0"})  # type: ignore[arg-type]
