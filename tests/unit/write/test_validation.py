from __future__ import annotations

from typing import Any

import pytest

import kafkascan as ks
from tests.support.log_corpus import GZIP, compress, marker
from tests.support.records import RecordV2, batch_of
from tests.support.segments import T0, Rig, message_v0, message_v1


def found(data: bytes, **options: Any) -> list[tuple[str, str]]:
    options = {"now_ms": T0} | options
    return [(one.symbol, one.exception) for one in ks.validate_batches(data, **options)]


INVALID = "InvalidRecordException"


def test_batches_of_a_producer_are_accepted() -> None:
    data = ks.build_batches(timestamp=[T0] * 3, key=[b"k"] * 3, value=[b"v"] * 3)
    assert found(data, as_append=True, compacted=True) == []


@pytest.mark.parametrize(
    ("fields", "symbol"),
    [
        ({"last_offset_delta": -1}, "BAD_OFFSET_RANGE"),
        ({"last_offset_delta": 3}, "COUNT_MISMATCH"),
        ({"attributes": 0x20}, "CONTROL_BATCH"),
        ({"producer_id": 4}, "BAD_SEQUENCE"),
        ({"producer_id": 0}, "BAD_SEQUENCE"),
    ],
)
def test_headers(fields: dict[str, int], symbol: str) -> None:
    data = batch_of([RecordV2(b"k", b"v")], **fields)
    assert (symbol, INVALID) in found(data)


def test_counts() -> None:
    data = batch_of([], last_offset_delta=0)
    assert found(data) == [("BAD_RECORD_COUNT", INVALID)]
    data = batch_of([RecordV2()], records_count=2, last_offset_delta=1)
    assert found(data) == [("RECORDS_MISSING", INVALID)]


def test_timestamps_and_keys_are_reported_once_per_batch() -> None:
    records = [RecordV2(b"k" if at else None, b"v", [], at, at * 10**6) for at in range(6)]
    data = batch_of(records)
    (time, key) = ks.validate_batches(data, compacted=True, now_ms=T0)
    assert (time.symbol, time.offset, time.count) == ("TIMESTAMP_OUT_OF_RANGE", 4, 2)
    assert (key.symbol, key.offset, key.count) == ("NO_KEY", 0, 1)
    assert str(time).endswith("[TIMESTAMP_OUT_OF_RANGE]")


def test_origins() -> None:
    data = marker(0, "COMMIT", 5)
    assert ("CONTROL_BATCH", INVALID) in found(data)
    assert found(data, origin="coordinator") == []
    batches = Rig().batch(base_offset=5).batch(base_offset=5, partition_leader_epoch=-1).log
    assert found(batches, origin="replication") == [
        ("OUT_OF_ORDER", "OffsetsOutOfOrderException"),
        ("BAD_LEADER_EPOCH", "IllegalArgumentException"),
    ]
    assert found(batches, origin="raft_leader", leader_epoch=3)[0][0] == "WRONG_LEADER_EPOCH"
    later = found(batches, origin="replication", leader_epoch=-1)
    assert later == [("LATER_LEADER_EPOCH", "")]
    with pytest.raises(ValueError, match="origin"):
        ks.validate_batches(data, origin="nobody")  # type: ignore[arg-type]


def test_one_append_is_one_batch() -> None:
    two = ks.build_batches(timestamp=[T0] * 2, value=[b"a", b"b"], max_records=1)
    assert found(two) == []
    assert found(two, as_append=True) == [
        ("BASE_OFFSET_NOT_ZERO", INVALID),
        ("SEVERAL_BATCHES", INVALID),
    ]
    mixed = message_v0() + message_v1(offset=1)
    assert found(mixed, as_append=True) == [("MAGIC_MIX", INVALID)]


@pytest.mark.parametrize("producer_id", [0, 1])
def test_old_formats_do_not_support_producers(producer_id: int) -> None:
    data = ks.build_batches(
        timestamp=[T0], value=[b"v"], producer_id=producer_id, producer_epoch=0, base_sequence=0,
        is_transactional=True,
    )  # fmt: skip
    assert [symbol for symbol, _ in found(data, to_magic=1)] == ["TRANSACTIONAL", "IDEMPOTENT"]


def test_size_and_checksum_and_codec() -> None:
    rig = Rig().batch(b"x" * 100).batch(attributes=7)
    rig.flip(0, 70)
    symbols = [symbol for symbol, _ in found(rig.log, max_message_bytes=100)]
    assert symbols[:3] == ["TOO_LARGE", "CHECKSUM_MISMATCH", "UNSUPPORTED_COMPRESSION"]


def test_inner_messages() -> None:
    inner = message_v1(b"k", b"v") + message_v0(b"k", b"v", offset=1)
    data = message_v1(None, compress(GZIP, 1, inner), offset=1, attributes=GZIP)
    assert found(data) == [("INNER_MAGIC", INVALID)]
    damaged = bytearray(message_v1(b"k", b"v"))
    damaged[-1] ^= 1
    data = message_v1(None, compress(GZIP, 1, bytes(damaged)), attributes=GZIP)
    assert found(data) == [("INNER_CHECKSUM_MISMATCH", "CorruptRecordException")]


def test_ends_of_logs() -> None:
    whole = ks.build_batches(timestamp=[T0], value=[b"v"])
    assert found(whole + whole[:40]) == [("TORN_TAIL", "")]
    assert found(whole + bytes(40)) == [("ZERO_TAIL", "CorruptRecordException")]
    assert found(whole + b"\xff" * 40) == [("BAD_LENGTH", "CorruptRecordException")]
    assert found(b"") == []
