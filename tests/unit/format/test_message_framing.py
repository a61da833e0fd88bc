"""Frames of the metadata log's messages."""

from __future__ import annotations

import pytest

from kafkascan.format.schemas.message_decoder import SchemaError, read_message_frame


@pytest.mark.parametrize(
    ("value", "frame"),
    [
        (b"\x01\x02\x00rest", (2, 0, 3)),
        # Kafka accepts varints that are longer than necessary.
        (b"\x81\x00\x82\x80\x00\x83\x01", (2, 131, 7)),
        (b"\x01\xff\xff\x01\x00", (32767, 0, 5)),
        # The fifth byte's upper bits are lost; of a negative int, the lower 16 bits count.
        (b"\x81\x80\x80\x80\x10\x0c\x00", (12, 0, 7)),
        (b"\x81\x80\x80\x80\x0f\x0c\x00", (12, 0, 7)),
        (b"\x01\xff\xff\xff\xff\x0f\x00", (-1, 0, 7)),
        # Kafka reads version -1 with the fields of version 0.
        (b"\x01\x0c\xff\xff\xff\xff\x0f", (12, 0, 7)),
        (b"\x01\x0c\x82\x80\x80\x80\x08", (12, 2, 7)),
    ],
)
def test_frames(value: bytes, frame: tuple[int, int, int]) -> None:
    assert read_message_frame(value) == frame


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "the frame version needs 1 bytes at byte 0"),
        (b"\x01\x02", "the version needs 1 bytes at byte 2"),
        (b"\x01\x02\x80", "the version needs 1 bytes at byte 3"),
        (b"\x01\xff\xff\xff\xff\xff\x01", "the type: varint is too long at byte 6"),
        (b"\x00\x02\x00", "frame version is 0, not 1"),
        (b"\x02\x02\x00", "frame version is 2, not 1"),
        (b"\x01\x80\x80\x02\x00", "the type 32768 exceeds"),
        (b"\x01\x02\x80\x80\x02", "the version 32768 exceeds"),
    ],
)
def test_invalid_frames(value: bytes, reason: str) -> None:
    with pytest.raises(SchemaError, match=reason):
        read_message_frame(value)
