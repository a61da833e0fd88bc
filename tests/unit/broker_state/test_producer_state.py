"""Producer state, snapshots and transaction indexes, compared with a slow, obvious broker."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

import kafkascan as ks
from kafkascan._core import producers as core
from kafkascan.broker_state.markers import MARKER, TransactionState
from kafkascan.broker_state.producer_snapshots import unexpired
from kafkascan.broker_state.producer_state import (
    COMPLETED_TRANSACTION,
    ProducerState,
    java_hash_order,
)
from tests.support.logs import ABORT, COMMIT, CONTROL, TRANSACTIONAL, WrittenLog, marker
from tests.support.paths import GOLDEN
from tests.support.records import RecordV2, batch_of
from tests.support.segments import T0, message_v1


def rows(log: WrittenLog) -> list[tuple[int, ...]]:
    """The entries of a snapshot, in the order in which producers became known."""
    return [
        (
            producer_id, known.epoch, known.last_sequence, known.last_offset,
            known.offset_delta, known.timestamp, known.coordinator_epoch, known.first_offset,
        )
        for producer_id, known in log.producers.items()
    ]  # fmt: skip


@pytest.mark.parametrize("seed", range(40))
def test_state_and_aborted_transactions(seed: int) -> None:
    choice = random.Random(seed)
    ids = [choice.choice([choice.randrange(300), choice.randrange(2**62)]) for _ in range(seed + 1)]
    log = WrittenLog(choice, base_offset=choice.randrange(10**12)).write(300, ids)
    found = ks.broker_state.build_producer_snapshot(log.log)
    expected = rows(log)
    order = java_hash_order(np.array([row[0] for row in expected]))
    assert [tuple(row) for row in found.tolist()] == [expected[place] for place in order]
    aborted = ks.broker_state.build_transaction_index(log.log)
    assert [tuple(entry)[1:] for entry in aborted.tolist()] == log.aborted
    scan = ks.scan_batches(log.log)
    assert [tuple(one) for one in ks.broker_state.build_leader_epochs(scan.batches)] == log.epochs


@pytest.mark.parametrize("seed", range(10))
def test_a_log_in_two_segments(seed: int) -> None:
    choice = random.Random(seed)
    log = WrittenLog(choice).write(200, list(range(70)))
    cut = choice.randrange(1, len(log.batches))
    first, second = b"".join(log.batches[:cut]), b"".join(log.batches[cut:])
    prior = ks.broker_state.build_producer_snapshot(first)
    whole, parts = (
        ks.broker_state.build_producer_snapshot(log.log),
        ks.broker_state.build_producer_snapshot(second, prior=prior),
    )
    assert sorted(whole.tolist()) == sorted(parts.tolist())
    aborted = [
        *ks.broker_state.build_transaction_index(first).tolist(),
        *ks.broker_state.build_transaction_index(second, prior=prior).tolist(),
    ]
    assert [tuple(entry)[1:] for entry in aborted] == log.aborted
    epochs = ks.broker_state.build_leader_epochs(ks.scan_batches(first).batches)
    epochs = ks.broker_state.build_leader_epochs(ks.scan_batches(second).batches, prior=epochs)
    assert [tuple(one) for one in epochs] == log.epochs
    loaded = ProducerState(prior)
    loaded.load(ks.Source(second), ks.scan_batches(second).batches)
    assert sorted(loaded.entries().tolist()) == sorted(whole.tolist())


def test_more_producers_than_the_first_capacity() -> None:
    ids = [n * 7919 for n in range(5000)]
    log = b"".join(
        batch_of([RecordV2()], base_offset=n, producer_id=id_, producer_epoch=0, base_sequence=0)
        for n, id_ in enumerate(ids)
    )
    found = ks.broker_state.build_producer_snapshot(log)
    assert sorted(found["producer_id"].tolist()) == ids
    assert (np.sort(found["last_offset"]) == np.arange(5000)).all()


def test_open_transactions_and_orders_survive_growth() -> None:
    ids = [n * 31 for n in range(300)]
    log = b"".join(
        batch_of([RecordV2()], base_offset=n, producer_id=id_, producer_epoch=0,
                 base_sequence=sequence, attributes=TRANSACTIONAL)
        for n, (sequence, id_) in enumerate((sequence, id_) for sequence in (0, 2) for id_ in ids)
    )  # fmt: skip
    state = ProducerState(records_transactions=True, expiration_ms=1000)
    applied = state.apply(ks.Source(log), ks.scan_batches(log).batches)
    assert applied.refused is None
    assert len(applied.spans) == 0
    spans = state.open_spans()
    assert spans["producer_id"].tolist() == ids
    assert spans["first_offset"].tolist() == [*range(300)]
    assert (spans["batches"] == 2).all()
    assert (spans["state"] == TransactionState.OPEN).all()
    assert state.first_open_offset() == 0
    orders = state.orders()
    assert (orders["sequence_gaps"] == 1).all()
    assert orders["first_gap"].tolist() == [*range(300, 600)]


def test_the_loop_rejects_arrays_that_are_too_short() -> None:
    entries, slots = np.zeros(2, ks.format.PRODUCER_ENTRY), np.full(4, -1, np.int32)
    opened = np.empty(3, np.asarray(core.open_transaction_row).dtype)
    with pytest.raises(ValueError, match="slots"):
        core.ProducerTable(entries, 0, slots[:2], opened)
    with pytest.raises(ValueError, match="opened"):
        core.ProducerTable(entries, 0, slots, opened[:2])
    with pytest.raises(ValueError, match="count"):
        core.ProducerTable(entries, 3, slots, opened)
    with pytest.raises(ValueError, match="together"):
        core.ProducerTable(entries, 0, slots, opened, cursor=core.LogCursor(0))
    table = core.ProducerTable(entries, 0, slots, opened)
    rows, markers = ks.scan_batches(marker(COMMIT)).batches, np.zeros(1, MARKER)
    with pytest.raises(ValueError, match="as long as the markers"):
        core.apply_into(table, rows, markers, core.Results(np.empty(0, COMPLETED_TRANSACTION)))
    done = core.Results(np.empty(1, COMPLETED_TRANSACTION))
    assert core.apply_into(table, rows, markers, done) == 0
    with pytest.raises(ValueError, match="more rows"):
        core.apply_into(table, rows[:0], markers, done)
    with pytest.raises(ValueError, match="room"):
        core.merge_into(table, np.zeros(2, ks.format.PRODUCER_ENTRY))


def test_order_of_a_hash_map() -> None:
    def ordered(*ids: int) -> list[int]:
        return np.array(ids)[java_hash_order(np.array(ids, np.int64))].tolist()

    assert ordered(17, 1, 33) == [17, 1, 33]  # one bucket of 16: as they came
    assert ordered(2**32, 1, 5) == [2**32, 1, 5]  # 2**32 has the hash of 1
    assert ordered(*range(12, -1, -1)) == list(range(13))  # thirteen take 32 buckets
    assert ordered(16, 0) == [16, 0]
    assert ordered(*range(16, 0, -1)) == list(range(1, 17))
    assert ordered() == []


def test_messages_of_magic_0_and_1_have_no_producers() -> None:
    assert len(ks.broker_state.build_producer_snapshot(message_v1(attributes=CONTROL))) == 0


def control(key: bytes, value: bytes = b"\0\0\0\0\0\0", **fields: int) -> bytes:
    fields = {"producer_id": 4, "producer_epoch": 0, "attributes": CONTROL} | fields
    return batch_of([RecordV2(key=key, value=value)], **fields)


@pytest.mark.parametrize(
    ("batch", "symbol", "is_fatal"),
    [
        (control(b"\0\0\0\2", b"\0\0\0"), "NO_END_MARKER", True),
        (control(b"\0"), "BAD_CONTROL_RECORD", False),
        (control(b"\0\0\0\0", b"\0\0\0"), "NO_END_MARKER", True),
        (control(b"\0\0\0\0", b"\xff\xff\0"), "BAD_CONTROL_RECORD", False),
        (control(b"\0\0\0\x09"), "NO_END_MARKER", True),
        (
            batch_of([RecordV2()], base_offset=1, producer_id=5, producer_epoch=0),
            "TRANSACTION_LEFT",
            True,
        ),
    ],
)
def test_batches_that_kafka_refuses(batch: bytes, symbol: str, is_fatal: bool) -> None:
    opened = batch_of(
        [RecordV2()], producer_id=5, producer_epoch=0, attributes=TRANSACTIONAL, base_sequence=0
    )
    log = opened + batch + opened
    state = ProducerState()
    refused = state.apply(ks.Source(log), ks.scan_batches(log).batches).refused
    assert refused is not None
    assert refused.row == 1
    assert refused.is_fatal == is_fatal
    assert refused.error.symbol == symbol
    assert 5 in state.entries()["producer_id"]
    with pytest.raises(ks.InvalidRecordError, match=symbol):
        ks.broker_state.build_producer_snapshot(log)


@pytest.mark.parametrize("first_offsets", ["ascending", "descending", "any"])
def test_the_last_stable_offset_among_many_transactions(first_offsets: str) -> None:
    """A hanging transaction keeps the transactions that ended after it in the heap."""
    choice = random.Random(7)
    offsets = list(range(10, 3000))
    if first_offsets == "descending":
        offsets.reverse()
    elif first_offsets == "any":
        choice.shuffle(offsets)
    log, opened, expected = [], {}, []

    def begin(producer: int, offset: int) -> None:
        opened[producer] = offset
        log.append(batch_of([RecordV2()], producer_id=producer, producer_epoch=0, base_sequence=0,
                            attributes=TRANSACTIONAL, base_offset=offset))  # fmt: skip

    begin(1000, 5)
    for offset in offsets:
        producer = choice.randrange(90)
        if len(log) == 2000:
            log.append(marker(COMMIT, producer_id=1000, base_offset=offset))
            del opened[1000]
            expected.append(min(opened.values(), default=offset + 1))
        elif producer in opened:
            del opened[producer]
            log.append(marker(ABORT, producer_id=producer, base_offset=offset))
            expected.append(min(opened.values(), default=offset + 1))
        else:
            begin(producer, offset)
    data = b"".join(log)
    batches = ks.scan_batches(data).batches
    completed = ProducerState().apply(ks.Source(data), batches).completed
    assert completed["last_stable_offset"].tolist() == expected
    assert len(set(expected)) > 3


def test_the_last_entry_of_a_producer_in_a_snapshot_counts() -> None:
    entries = np.zeros(3, ks.format.PRODUCER_ENTRY)
    entries["producer_id"] = [4, 5, 4]
    entries["current_txn_first_offset"] = [7, -1, -1]
    entries["last_sequence"] = [1, 2, 3]
    known = ProducerState(entries).entries()
    assert sorted(known[["producer_id", "last_sequence"]].tolist()) == [(4, 3), (5, 2)]


@pytest.mark.parametrize("memory_map", [True, False])
def test_the_first_producer_of_a_cluster_has_the_id_0(tmp_path: Path, memory_map: bool) -> None:
    fields = {"producer_id": 0, "producer_epoch": 3}
    path = tmp_path / f"{0:020}.log"
    path.write_bytes(
        batch_of([RecordV2()], base_sequence=5, attributes=TRANSACTIONAL, **fields)
        + marker(ABORT, base_offset=1, coordinator_epoch=2, **fields)
    )
    with ks.Source(path, memory_map=memory_map) as source:
        (entry,) = ks.broker_state.build_producer_snapshot(source)
        (aborted,) = ks.broker_state.build_transaction_index(source)
        (marked,) = ks.records.read_control_records(source)
    names = ("producer_id", "producer_epoch", "last_sequence", "coordinator_epoch")
    assert [entry[name] for name in names] == [0, 3, 5, 2]
    assert aborted.tolist()[1:] == (0, 0, 1, 2)
    assert (marked.producer_id, marked.type.name) == (0, "ABORT")
    (span,) = ks.read_transactions(path).spans
    assert (span["producer_id"], span["first_offset"], span["last_offset"]) == (0, 0, 0)
    assert ks.read_producers(path).counts["producer_id"].tolist() == [0]


def test_a_transaction_that_a_snapshot_leaves_open_has_its_producer() -> None:
    entries = np.array(
        [(4, 7, -1, -1, 0, T0, -1, -1), (9, 3, 12, 40, 2, T0 + 1, 5, 38)], ks.format.PRODUCER_ENTRY
    )
    (span,) = ProducerState(entries, records_transactions=True).open_spans()
    assert (span["producer_id"], span["producer_epoch"], span["coordinator_epoch"]) == (9, 3, 5)
    assert (span["first_offset"], span["last_offset"]) == (38, 40)
    assert span["last_timestamp"] == T0 + 1
    for unknown in ("marker_offset", "last_stable_offset", "first_timestamp"):
        assert span[unknown] == -1


def test_an_empty_marker_makes_its_producer_known() -> None:
    log = batch_of([], producer_id=9, producer_epoch=3, attributes=CONTROL | TRANSACTIONAL)
    assert ks.broker_state.build_producer_snapshot(log).tolist() == [(9, -1, -1, -1, 0, -1, -1, -1)]


def test_markers_without_a_transaction() -> None:
    log = marker(ABORT, producer_id=3) + marker(COMMIT, producer_id=3, coordinator_epoch=2)
    assert len(ks.broker_state.build_transaction_index(log)) == 0
    assert ks.broker_state.build_producer_snapshot(log).tolist() == [(3, 0, -1, -1, 0, T0, 2, -1)]


def test_snapshots_are_read_and_written(tmp_path: Path) -> None:
    paths = [path for path in GOLDEN.glob("*/data/*/*.snapshot") if path.stat().st_size > 10]
    assert len(paths) >= 6
    for path in paths:
        entries = ks.broker_state.read_producer_snapshot(path)
        assert len(entries) == (path.stat().st_size - 10) // 46
        ks.broker_state.write_producer_snapshot(tmp_path / path.name, entries)
        assert (tmp_path / path.name).read_bytes() == path.read_bytes()
    with pytest.raises(TypeError):
        ks.broker_state.write_producer_snapshot(tmp_path / "other", np.zeros(3, np.int64))


@pytest.mark.parametrize(
    ("change", "symbol", "position"),
    [
        (lambda data: b"", "BAD_SNAPSHOT_SIZE", 0),
        (lambda data: data[:9], "BAD_SNAPSHOT_SIZE", 0),
        (lambda data: b"\0\2" + data[2:], "BAD_SNAPSHOT_VERSION", 0),
        (lambda data: data[:-1], "BAD_SNAPSHOT_SIZE", 6),
        (lambda data: data[:20] + b"x" + data[21:], "BAD_SNAPSHOT_CRC", 2),
        (lambda data: data[:6] + b"\x7f" + data[7:], "BAD_SNAPSHOT_SIZE", 6),
        (lambda data: data[:6] + b"\xff" + data[7:], "BAD_SNAPSHOT_SIZE", 6),
        (lambda data: data + b"tail", "BAD_SNAPSHOT_CRC", 2),
    ],
)
def test_damaged_snapshots(tmp_path: Path, change: object, symbol: str, position: int) -> None:
    data = (GOLDEN / "kafka-4.4.0/data/transactions-0/00000000000000000041.snapshot").read_bytes()
    path = tmp_path / "00000000000000000041.snapshot"
    path.write_bytes(change(data))  # type: ignore[operator]
    with pytest.raises(
        ks.format.CorruptSnapshotError, match=rf"position {position}: .*\[{symbol}\]"
    ):
        ks.broker_state.read_producer_snapshot(path)


def test_idle_producers_are_forgotten() -> None:
    entries = np.zeros(3, ks.format.PRODUCER_ENTRY)
    entries["timestamp"] = 1000, 2000, 1000
    entries["current_txn_first_offset"] = -1, -1, 7
    assert unexpired(entries, 1999, 1000).tolist() == entries.tolist()
    assert unexpired(entries, 2000, 1000).tolist() == entries[1:].tolist()
