"""Read the frame of a metadata record, as ``AbstractApiMessageSerde`` does.

The metadata log and ``__remote_log_metadata`` contain a frame version, the type of the message
and its version, all as unsigned varints, and then the message.
"""

from __future__ import annotations

from typing import NamedTuple

from kafkascan.format.schemas.message_decoder import SchemaError

_FRAME_VERSION = 1
_MAX_UVARINT_SIZE = 5
_MAX_SHORT = 2**15 - 1


class MessageFrame(NamedTuple):
    """
    Type and version of a message.

    Attributes
    ----------
    type : int
        Kafka's number of the type.
    version : int
    size : int
        Bytes in front of the message.
    """

    type: int
    version: int
    size: int


def read_message_frame(value: bytes) -> MessageFrame:
    """
    Read the frame of a message.

    Parameters
    ----------
    value : bytes
        Value of a record.

    Returns
    -------
    MessageFrame

    Raises
    ------
    SchemaError
        If the frame is incomplete, its version is not 1, or a number exceeds an int16.
    """
    frame_version, at = _uvarint(value, 0)
    if frame_version != _FRAME_VERSION:
        raise SchemaError(f"the frame version is {frame_version}, not {_FRAME_VERSION}")
    code, at = _uvarint(value, at)
    version, at = _uvarint(value, at)
    if max(code, version) > _MAX_SHORT:
        raise SchemaError(f"type {code} or version {version} exceeds {_MAX_SHORT}")
    return MessageFrame(code, version, at)


def _uvarint(data: bytes, at: int) -> tuple[int, int]:
    number = 0
    for index, byte in enumerate(data[at : at + _MAX_UVARINT_SIZE]):
        number |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return number & 0xFFFFFFFF, at + index + 1
    raise SchemaError(f"a varint does not end at byte {at}")
