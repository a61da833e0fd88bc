"""Fields of records that are cut off, and counts of wrapped messages that do not match."""

from __future__ import annotations

import gzip
import struct
import zlib

import numpy as np
import pytest

import kafkascan as ks
from kafkascan._core.records import decode_into
from kafkascan.format.errors import STATUS
from tests.support.records import RecordV2, varint
from tests.support.segments import T0, batch_v2, message_v0, message_v1

GZIP, LOG_APPEND_TIME = 1, 8
UNFINISHED = b"\x80"  # a varint whose next byte is missing


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"\0" + UNFINISHED, id="timestamp delta"),
        pytest.param(b"\0\0" + UNFINISHED, id="offset delta"),
        pytest.param(b"\0\0\0" + UNFINISHED, id="key size"),
        pytest.param(b"\0\0\0\1\1" + varint(1) + UNFINISHED, id="size of a header key"),
    ],
)
def test_a_varint_does_not_continue_after_its_record(body: bytes) -> None:
    """Although bytes of the next record follow."""
    records = varint(len(body)) + body + RecordV2().encode()
    with pytest.raises(ks.InvalidRecordError) as caught:
        ks.read_records(batch_v2(records, records_count=2, last_offset_delta=1))
    assert caught.value.symbol == "BAD_RECORD"


def test_columns_of_messages_without_their_offsets_and_timestamps() -> None:
    log = message_v0(b"k", b"one") + message_v1(b"k", b"two", offset=1)
    records = ks.read_records(log, columns=["value"])
    assert records.items("value") == [b"one", b"two"]


def signed(message: bytes) -> bytes:
    return message[:12] + struct.pack(">I", zlib.crc32(message[16:])) + message[16:]


def test_a_key_that_leaves_no_room_for_the_size_of_the_value() -> None:
    message = message_v1(b"key", b"value")
    longer = struct.pack(">i", len(b"key") + 4 + len(b"value") - 3)
    with pytest.raises(ks.InvalidRecordError) as caught:
        ks.read_records(signed(message[:26] + longer + message[30:]))
    assert caught.value.symbol == "BAD_RECORD"


def wrapper(inner: bytes, attributes: int = GZIP) -> bytes:
    return message_v1(None, gzip.compress(inner), attributes=attributes)


def test_an_inner_message_of_magic_1_in_the_size_of_magic_0() -> None:
    inner = bytearray(message_v0(None, b"abc"))
    inner[16] = 1
    with pytest.raises(ks.InvalidRecordError) as caught:
        ks.read_records(wrapper(bytes(inner)))
    assert caught.value.symbol == "INNER_TOO_SMALL"


def test_inner_messages_of_unknown_magic_keep_their_timestamps() -> None:
    """Kafka gives the wrapper's append time to inner messages of magic 1 only."""
    inner = bytearray(message_v1(None, b"abc", timestamp=T0 + 7))
    inner[16] = 3
    for data, expected in ((bytes(inner), T0 + 7), (message_v1(timestamp=T0 + 7), T0)):
        (record,) = ks.read_records(wrapper(data, GZIP | LOG_APPEND_TIME))
        assert record.timestamp == expected


# ---- the number of wrapped messages, which is counted before they are decoded --------------------


def decode(inner: bytes, count: int) -> int:
    """Decode the messages of a wrapper into so many rows; return the status."""
    data = np.frombuffer(inner, np.uint8)
    rows = np.zeros(1, ks.BATCH_DTYPE)
    rows["magic"] = 1
    one, zero = np.ones(1, np.uint8), np.zeros(1, np.int64)
    status, batch, done, _ = decode_into(
        np.array([data.ctypes.data], np.uintp),
        np.array([len(data)]),
        rows,
        zero.astype(np.int32),
        zero,
        np.array([len(data)]),
        one,
        np.array([0, count]),
        {"batch": np.zeros(count, np.int32)},
        0,
        1,
    )
    assert (batch, done) == (int(status == 0), 0)
    return status


def test_another_number_of_wrapped_messages_is_a_mismatch() -> None:
    inner = message_v1() + message_v1(offset=1)
    assert decode(inner, 2) == STATUS["OK"]
    for count in (1, 3):
        assert decode(inner, count) == STATUS["ROW_MISMATCH"]


def test_wrapped_messages_are_checked_again_when_they_are_decoded() -> None:
    inner = bytearray(message_v1())
    inner[17] = GZIP
    assert decode(bytes(inner), 1) == STATUS["INNER_COMPRESSED"]
