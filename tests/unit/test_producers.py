"""What is known of producers, against a slow, obvious broker."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

import kafkascan as ks
from kafkascan.producers import ProducerState, RefusedBatchError, java_hash_order, unexpired
from tests.support.logs import ABORT, COMMIT, CONTROL, TRANSACTIONAL, WrittenLog, marker
from tests.support.records import RecordV2, batch_of
from tests.support.segments import T0, message_v1

GOLDEN = Path(__file__).parents[1] / "golden"


def rows(log: WrittenLog) -> list[tuple[int, ...]]:
    """What a snapshot holds, in the order in which producers became known."""
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
    found = ks.build_producer_snapshot(log.log)
    expected = rows(log)
    order = java_hash_order(np.array([row[0] for row in expected]))
    assert [tuple(row) for row in found.tolist()] == [expected[place] for place in order]
    aborted = ks.build_transaction_index(log.log)
    assert [tuple(entry)[1:] for entry in aborted.tolist()] == log.aborted
    scan = ks.scan_batches(log.log)
    assert [tuple(one) for one in ks.build_leader_epochs(scan.batches)] == log.epochs


@pytest.mark.parametrize("seed", range(10))
def test_a_log_in_two_segments(seed: int) -> None:
    choice = random.Random(seed)
    log = WrittenLog(choice).write(200, list(range(70)))
    cut = choice.randrange(1, len(log.batches))
    first, second = b"".join(log.batches[:cut]), b"".join(log.batches[cut:])
    prior = ks.build_producer_snapshot(first)
    whole, parts = (
        ks.build_producer_snapshot(log.log),
        ks.build_producer_snapshot(second, prior=prior),
    )
    assert sorted(whole.tolist()) == sorted(parts.tolist())
    aborted = [
        *ks.build_transaction_index(first).tolist(),
        *ks.build_transaction_index(second, prior=prior).tolist(),
    ]
    assert [tuple(entry)[1:] for entry in aborted] == log.aborted
    epochs = ks.build_leader_epochs(ks.scan_batches(first).batches)
    epochs = ks.build_leader_epochs(ks.scan_batches(second).batches, prior=epochs)
    assert [tuple(one) for one in epochs] == log.epochs
    at_once = ProducerState(prior)
    at_once.apply_at_once(ks.Source(second), ks.scan_batches(second).batches)
    assert sorted(at_once.entries().tolist()) == sorted(whole.tolist())


def test_more_producers_than_there_was_room_for() -> None:
    ids = [n * 7919 for n in range(5000)]
    log = b"".join(
        batch_of([RecordV2()], base_offset=n, producer_id=id_, producer_epoch=0, base_sequence=0)
        for n, id_ in enumerate(ids)
    )
    found = ks.build_producer_snapshot(log)
    assert sorted(found["producer_id"].tolist()) == ids
    assert (np.sort(found["last_offset"]) == np.arange(5000)).all()


def test_order_of_a_hash_map() -> None:
    def ordered(*ids: int) -> list[int]:
        return np.array(ids)[java_hash_order(np.array(ids, np.int64))].tolist()

    assert ordered(17, 1, 33) == [17, 1, 33]  # one bucket of 16: as they came
    assert ordered(2**32, 1, 5) == [2**32, 1, 5]  # 2**32 has the hash of 1
    assert ordered(*range(12, -1, -1)) == list(range(13))  # thirteen take 32 buckets
    assert ordered(16, 0) == [16, 0]
    assert ordered(*range(16, 0, -1)) == list(range(1, 17))
    assert ordered() == []


def test_messages_of_old_formats_have_no_producers() -> None:
    assert len(ks.build_producer_snapshot(message_v1(attributes=CONTROL))) == 0


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
def test_what_kafka_refuses(batch: bytes, symbol: str, is_fatal: bool) -> None:
    opened = batch_of(
        [RecordV2()], producer_id=5, producer_epoch=0, attributes=TRANSACTIONAL, base_sequence=0
    )
    log = opened + batch + opened
    state = ProducerState()
    with pytest.raises(RefusedBatchError) as refused:
        state.apply(ks.Source(log), ks.scan_batches(log).batches)
    assert refused.value.row == 1
    assert refused.value.is_fatal == is_fatal
    assert refused.value.error.symbol == symbol
    assert 5 in state.entries()["producer_id"]
    with pytest.raises(ks.InvalidRecordError, match=symbol):
        ks.build_producer_snapshot(log)


@pytest.mark.parametrize("first_offsets", ["ascending", "descending", "any"])
def test_the_last_stable_offset_among_many_transactions(first_offsets: str) -> None:
    """One that hangs lets those that have ended pile up behind it."""
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
    completed = ProducerState().apply(ks.Source(data), batches)
    assert completed["last_stable_offset"].tolist() == expected
    assert len(set(expected)) > 3


def test_of_a_producer_that_a_snapshot_names_twice_the_last_entry_counts() -> None:
    entries = np.zeros(3, ks.PRODUCER_ENTRY)
    entries["producer_id"] = [4, 5, 4]
    entries["current_txn_first_offset"] = [7, -1, -1]
    entries["last_sequence"] = [1, 2, 3]
    known = ProducerState(entries).entries()
    assert sorted(known[["producer_id", "last_sequence"]].tolist()) == [(4, 3), (5, 2)]


def test_an_empty_marker_makes_its_producer_known() -> None:
    log = batch_of([], producer_id=9, producer_epoch=3, attributes=CONTROL | TRANSACTIONAL)
    assert ks.build_producer_snapshot(log).tolist() == [(9, -1, -1, -1, 0, -1, -1, -1)]


def test_markers_that_end_nothing() -> None:
    log = marker(ABORT, producer_id=3) + marker(COMMIT, producer_id=3, coordinator_epoch=2)
    assert len(ks.build_transaction_index(log)) == 0
    assert ks.build_producer_snapshot(log).tolist() == [(3, 0, -1, -1, 0, T0, 2, -1)]


def test_snapshots_are_read_and_written(tmp_path: Path) -> None:
    paths = [path for path in GOLDEN.glob("*/data/*/*.snapshot") if path.stat().st_size > 10]
    assert len(paths) >= 6
    for path in paths:
        entries = ks.read_producer_snapshot(path)
        assert len(entries) == (path.stat().st_size - 10) // 46
        ks.write_producer_snapshot(tmp_path / path.name, entries)
        assert (tmp_path / path.name).read_bytes() == path.read_bytes()
    with pytest.raises(TypeError):
        ks.write_producer_snapshot(tmp_path / "other", np.zeros(3, np.int64))


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
    with pytest.raises(ks.CorruptSnapshotError, match=rf"position {position}: .*\[{symbol}\]"):
        ks.read_producer_snapshot(path)


def test_idle_producers_are_forgotten() -> None:
    entries = np.zeros(3, ks.PRODUCER_ENTRY)
    entries["timestamp"] = 1000, 2000, 1000
    entries["current_txn_first_offset"] = -1, -1, 7
    assert unexpired(entries, 1999, 1000).tolist() == entries.tolist()
    assert unexpired(entries, 2000, 1000).tolist() == entries[1:].tolist()
