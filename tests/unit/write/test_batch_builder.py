"""BatchBuilder: bytes of Kafka's builder, size estimates, and refused input."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

import kafkascan as ks
from kafkascan.records.control import ControlRecordType

T0 = 1_714_000_000_000


def _hello(**options: Any) -> str:
    builder = ks.BatchBuilder(**options)
    builder.append(T0, None, b"hello")
    builder.append(T0, None, "world")
    return builder.build().hex()


# Written by Kafka's MemoryRecordsBuilder.
_KAFKAS = {
    "none": "000000000000000000000049ffffffff02dbda21c90000000000010000018f125c74000000018f125c740"
    "0ffffffffffffffffffffffffffff0000000216000000010a68656c6c6f0016000002010a776f726c6400",
    "gzip": "00000000000000000000005dffffffff0274d92c860001000000010000018f125c74000000018f125c740"
    "0ffffffffffffffffffffffffffff000000021f8b08000000000000ff1363606060e4ca48cdc9c9671063606062"
    "e42acf2fca496100006985f36918000000",
    "lz4": "000000000000000000000058ffffffff023906bdb10003000000010000018f125c74000000018f125c7400"
    "ffffffffffffffffffffffffffff0000000204224d186040821800008016000000010a68656c6c6f001600000201"
    "0a776f726c640000000000",
    "zstd": "000000000000000000000055ffffffff0211b0e8140004000000010000018f125c74000000018f125c740"
    "0ffffffffffffffffffffffffffff0000000228b52ffd0058c0000016000000010a68656c6c6f0016000002010a"
    "776f726c6400010000",
}


@pytest.mark.parametrize("codec", _KAFKAS)
def test_a_batch_in_each_codec(codec: str) -> None:
    assert _hello(compression_type=codec) == _KAFKAS[codec]


def test_log_append_time() -> None:
    built = _hello(timestamp_type=ks.TimestampType.LOG_APPEND_TIME, log_append_time=T0 + 999)
    assert built == (
        "000000000000000000000049ffffffff02e17c1fbe0008000000010000018f125c74000000018f125c77e7"
        "ffffffffffffffffffffffffffff0000000216000000010a68656c6c6f0016000002010a776f726c6400"
    )


def test_all_fields() -> None:
    builder = ks.BatchBuilder(
        base_offset=100, partition_leader_epoch=7, producer_id=9, producer_epoch=2,
        base_sequence=2**31 - 2, is_transactional=True,
    )  # fmt: skip
    builder.append(T0, b"", None, [("h1", b"x"), (b"h2", None), (b"", b"")])
    assert builder.append(T0 - 5, None, b"") == 101
    assert builder.append(T0 + 70, None, None, offset=103) == 103
    rows = ks.scan_batches(builder.build()).batches
    assert ks.batches.last_sequence(rows).tolist() == [1]
    table = ks.read_records(builder.build())
    assert table["sequence"].tolist() == [2**31 - 2, 2**31 - 1, 1]
    assert table["timestamp"].tolist() == [T0, T0 - 5, T0 + 70]
    assert table[0].headers == [(b"h1", b"x"), (b"h2", None), (b"", b"")]
    assert (rows["base_timestamp"][0], rows["max_timestamp"][0]) == (T0, T0 + 70)


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_the_first_record_may_be_after_the_base_offset(codec: str) -> None:
    builder = ks.BatchBuilder(base_offset=100, compression_type=codec)
    builder.append(T0, None, b"a", offset=103)
    builder.append(T0, None, b"b", offset=107)
    data = builder.build()
    (batch,) = ks.scan_batches(data).batches
    assert (batch["base_offset"], batch["last_offset_delta"]) == (100, 7)
    assert ks.read_records(data)["offset"].tolist() == [103, 107]


def test_a_delete_horizon_is_the_base_timestamp() -> None:
    builder = ks.BatchBuilder(delete_horizon_ms=T0 + 1000)
    builder.append(T0, b"k", None)
    assert builder.build().hex() == (
        "00000000000000000000003affffffff023ff051890040000000000000018f125c77e80000018f125c7400"
        "ffffffffffffffffffffffffffff000000011000cf0f00026b0100"
    )


@pytest.mark.parametrize(
    ("magic", "codec", "expected"),
    [
        (0, "none", "0000000000000000000000101fecd70a0000000000016b0000000176"),
        (1, "none", "000000000000000000000018894cdfd901000000018f125c7400000000016b0000000176"),
    ],
)
def test_a_message(magic: int, codec: str, expected: str) -> None:
    builder = ks.BatchBuilder(magic=magic, compression_type=codec)
    builder.append(T0, "k", "v")
    assert builder.build().hex() == expected


@pytest.mark.parametrize(
    ("magic", "stamp", "expected"),
    [
        (
            0,
            None,
            "000000000000000b000000424f4aef7f0001ffffffff000000341f8b08000000000000ff636000032e2016"
            "083baf100fe631268208438814033748ce3388d91b229704228c008bea495c38000000",
        ),
        (
            1,
            None,
            "000000000000000b00000052e9f4971e01010000018f125c7405ffffffff0000003c1f8b08000000000000"
            "ff636080038903f91a3d8c400663bf504c0948843111441842e5415212eb962ebf0557c30a622481082300"
            "a0c0a09a48000000",
        ),
        (
            1,
            T0 + 77,
            "000000000000000b00000052e1736cbc01090000018f125c744dffffffff0000003c1f8b08000000000000"
            "ff63608003892b42890f1939181818fb85624a7c81228c8920c2102acf085273badfe92baa9a24106104"
            "008fb5df6d48000000",
        ),
    ],
)
def test_a_compressed_message(magic: int, stamp: int | None, expected: str) -> None:
    builder = ks.BatchBuilder(
        magic=magic, compression_type="gzip", base_offset=10,
        timestamp_type=ks.TimestampType.CREATE_TIME if stamp is None else 1,
        log_append_time=-1 if stamp is None else stamp,
    )  # fmt: skip
    builder.append(T0, "a", "1")
    builder.append(T0 + 5, "b", "2")
    assert builder.build().hex() == expected


def test_an_end_of_a_transaction() -> None:
    builder = ks.BatchBuilder(
        base_offset=10, partition_leader_epoch=7, producer_id=9, producer_epoch=2,
        is_transactional=True, is_control=True,
    )  # fmt: skip
    builder.append_control_record(T0, ControlRecordType.COMMIT, {"coordinator_epoch": 5})
    assert builder.build().hex() == (
        "000000000000000a00000042000000070298bf00e50030000000000000018f125c74000000018f125c7400"
        "00000000000000090002ffffffff000000012000000008000000010c00000000000500"
    )


def test_krafts_control_records() -> None:
    directory = uuid.UUID(int=(1 << 64) + 2)
    endpoint = {"name": "CONTROLLER", "host": "localhost", "port": 9093}
    versions = {"min_supported_version": 0, "max_supported_version": 1}
    voter = {"voter_id": 1, "voter_directory_id": directory, "endpoints": [endpoint],
             "k_raft_version_feature": versions}  # fmt: skip
    one, two = {"voter_id": 1}, {"voter_id": 2}
    change = {"leader_id": 1, "voters": [one, two], "granting_voters": [one]}
    builder = ks.BatchBuilder(is_control=True, partition_leader_epoch=3)
    for kind, value in (
        (ControlRecordType.LEADER_CHANGE, change),
        (ControlRecordType.SNAPSHOT_HEADER, {"last_contained_log_timestamp": T0}),
        (ControlRecordType.KRAFT_VERSION, {"k_raft_version": 1}),
        (ControlRecordType.KRAFT_VOTERS, {"voters": [voter]}),
        (ControlRecordType.SNAPSHOT_FOOTER, {}),
    ):  # fmt: skip
        builder.append_control_record(T0, kind, value)
    assert builder.build().hex() == (
        "0000000000000000000000cb0000000302a76df48c0020000000040000018f125c74000000018f125c7400"
        "ffffffffffffffffffffffffffff0000000544000000080000000230000000000001030000000100000000"
        "020002000000010000002a00000208000000031600000000018f125c740000001e00000408000000050a00"
        "0000010000820100000608000000066e0000020000000100000000000000010000000000000002020b434f"
        "4e54524f4c4c45520a6c6f63616c686f737423850000000001000000001a00000808000000040600000000"
    )
    decoded = ks.records.read_control_records(builder.build())
    assert decoded[3].value == {"version": 0, "voters": [voter]}


def test_invalid_control_messages_are_refused() -> None:
    builder = ks.BatchBuilder(is_control=True, partition_leader_epoch=3)
    kinds = ControlRecordType
    for kind, value, why in (
        (kinds.KRAFT_VERSION, {"k_raft_version": 70_000}, "k_raft_version cannot be 70000"),
        (kinds.KRAFT_VERSION, {}, "k_raft_version is missing"),
        (kinds.SNAPSHOT_FOOTER, {"voters": []}, "no field 'voters'"),
        (kinds.KRAFT_VOTERS, {"voters": [{"voter_id": 1, "voter_directory_id": 7}]}, "uuid.UUID"),
        (kinds.UNKNOWN, {}, "unknown control record type"),
        (kinds.COMMIT, {"coordinator_epoch": 1}, "needs a producer_id"),
    ):
        with pytest.raises(ValueError, match=why):
            builder.append_control_record(T0, kind, value)
    assert builder.build() == b""


def test_the_first_record_always_fits() -> None:
    builder = ks.BatchBuilder(write_limit=80)
    assert builder.has_room_for(T0, None, bytes(1000))
    builder.append(T0, None, b"v")
    assert not builder.is_full
    assert builder.has_room_for(T0, None, b"v")
    assert not builder.has_room_for(T0, None, b"a longer value")
    builder.append(T0, None, b"a longer value")
    assert builder.is_full
    assert not builder.has_room_for(T0, None, None)
    assert len(builder) == 2
    assert builder.estimated_size == builder.uncompressed_size == len(builder.build())


def test_the_estimated_size_uses_the_compression_ratio() -> None:
    sizes = []
    for ratio in (1.0, 0.5):
        builder = ks.BatchBuilder(compression_type="zstd", estimated_compression_ratio=ratio)
        builder.append(T0, None, bytes(1000))
        sizes.append(builder.estimated_size)
    assert sizes == [61 + int(1009 * 1.05), 61 + int(1009 * 0.525)]


@pytest.mark.parametrize(
    ("append", "symbol"),
    [
        (lambda b: b.append(T0, b"k", b"v", offset=7), "OFFSET_NOT_ABOVE"),
        (lambda b: b.append(-2, b"k", b"v"), "NEGATIVE_TIMESTAMP"),
        (lambda b: b.append(T0, b"k", b"v", [(None, b"")]), "NULL_HEADER_KEY"),
        (lambda b: b.append(T0, b"k", b"v", offset=7 + 2**31), "OFFSET_DELTA_TOO_LARGE"),
        (lambda b: b.append(T0, b"k", b"v", offset=2**63), "OFFSET_OUT_OF_RANGE"),
        (lambda b: b.append(2**63, b"k", b"v"), "TIMESTAMP_TOO_LARGE"),
        (lambda b: b.override_last_offset(2**40), "OFFSET_DELTA_TOO_LARGE"),
        (lambda b: b.override_last_offset(-1), "OFFSET_OUT_OF_RANGE"),
    ],
)
def test_invalid_records_are_refused(append: Any, symbol: str) -> None:
    builder = ks.BatchBuilder(base_offset=7)
    builder.append(T0, None, None)
    with pytest.raises(ks.format.RecordInputError, match=symbol) as caught:
        append(builder)
    assert (caught.value.record, caught.value.symbol) == (1, symbol)
    assert builder.append(T0, None, None) == 8
    assert len(ks.read_records(builder.build())) == 2


def test_the_highest_offset_leaves_room_for_the_log_end() -> None:
    builder = ks.BatchBuilder(base_offset=2**63 - 2)
    assert builder.append(T0, None, None) == 2**63 - 2
    with pytest.raises(ks.format.RecordInputError, match="OFFSET_OUT_OF_RANGE"):
        builder.append(T0, None, None)


def test_a_field_must_be_an_int() -> None:
    for options in ({"producer_id": 1.5}, {"base_offset": "7"}):
        with pytest.raises(TypeError, match="must be an int"):
            ks.BatchBuilder(**options)


def test_headers_are_refused_below_magic_2() -> None:
    with pytest.raises(ks.format.RecordInputError, match="HEADERS_NOT_SUPPORTED"):
        ks.BatchBuilder(magic=1).append(T0, b"k", b"v", {"h": b""})


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"magic": 3}, "not 3"),
        ({"magic": 1, "is_transactional": True}, "does not support transactions"),
        ({"magic": 1, "is_control": True}, "does not support control records"),
        ({"magic": 0, "delete_horizon_ms": 5}, "does not support delete horizons"),
        ({"magic": 1, "compression_type": "zstd"}, "does not support zstd"),
        ({"timestamp_type": -1}, "needs a timestamp_type"),
        ({"delete_horizon_ms": -5}, "at least 0"),
        ({"base_offset": -10}, "at least 0"),
        ({"base_offset": 2**63}, "64 bits"),
        ({"producer_id": -2}, "at least -1"),
        ({"producer_epoch": -2}, "at least -1"),
        ({"base_sequence": -2}, "at least -1"),
        ({"partition_leader_epoch": -2}, "at least -1"),
        ({"log_append_time": -2}, "at least -1"),
    ],
)
def test_contradicting_fields_are_refused(options: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        ks.BatchBuilder(**options)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"is_transactional": True}, "needs a producer_id"),
        ({"producer_id": 1}, "needs a producer_epoch"),
        ({"producer_id": 1, "producer_epoch": 0}, "needs a base_sequence"),
        (
            {"magic": 1, "producer_id": 1, "producer_epoch": 0, "base_sequence": 0},
            "does not support producers",
        ),
    ],
)
def test_producers_are_checked_when_the_batch_is_built(options: dict[str, Any], why: str) -> None:
    builder = ks.BatchBuilder(**options)
    builder.append(T0, None, None)
    with pytest.raises(ValueError, match=why):
        builder.build()


def test_the_producer_can_be_set_later() -> None:
    builder = ks.BatchBuilder()
    builder.append(T0, None, None)
    builder.set_producer_state(5, 1, 10, True)
    rows = ks.scan_batches(builder.build()).batches
    assert (rows["producer_id"][0], rows["base_sequence"][0]) == (5, 10)
    assert ks.batches.is_transactional(rows).all()


def test_a_built_batch_refuses_records() -> None:
    builder = ks.BatchBuilder()
    builder.append(T0, None, None)
    assert builder.build() is builder.build()
    for change in (
        lambda: builder.append(T0, None, None),
        lambda: builder.set_producer_state(1, 1, 1, False),
        lambda: builder.override_last_offset(9),
    ):
        with pytest.raises(ValueError, match="the batch is already built"):
            change()


def test_the_last_offset_can_be_overridden() -> None:
    builder = ks.BatchBuilder(base_offset=50)
    builder.append(T0, None, None)
    builder.override_last_offset(59)
    assert ks.batches.last_offset(ks.scan_batches(builder.build()).batches).tolist() == [59]
