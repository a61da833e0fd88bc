"""The lines of batches."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kafkascan._core.text_lines import NAME, NUMBER, LineForm
from kafkascan.batches.columns import (
    BatchTable,
    compression_type,
    delete_horizon_ms,
    is_control,
    is_transactional,
    last_offset,
    last_sequence,
    size_in_bytes,
    timestamp_type,
)
from kafkascan.batches.verify import crc_of_bytes, verify_rows
from kafkascan.batches.walks import read_bytes
from kafkascan.dump_log.log_frames import Frame
from kafkascan.format.layout import (
    BATCH_HEADER_SIZE,
    NO_TIMESTAMP,
    CompressionType,
    TimestampType,
)
from kafkascan.io.sources import Source

_TIMESTAMP_TYPES = tuple(kind.display_name.encode() for kind in TimestampType)
_CODECS = tuple(kind.display_name.encode() for kind in CompressionType)
BOOLEANS = (b"false", b"true")
_MAGIC_V2 = 2
# The checksum of a batch of magic 2 covers what follows it.
_COVERED_FROM, _CRC_SIZE = 21, 4

Part = tuple[object, ...]
Lines = tuple[tuple[LineForm, ...], NDArray[np.uint8]]
"""Forms of lines, and the form of each line."""


def number_part(literal: bytes, values: NDArray[np.generic]) -> Part:
    """Return a part that prints a column of numbers."""
    return NUMBER, literal, values.astype(np.int64)


def name_part(literal: bytes, values: NDArray[np.generic], names: tuple[bytes, ...]) -> Part:
    """Return a part that prints one of some names for each number."""
    return NAME, literal, values.astype(np.int64), names


def timestamp_type_part(batches: BatchTable, of_line: NDArray[np.int32] | None = None) -> Part:
    """Return a part that prints the timestamp types of batches, or of each line's batch."""
    kinds = timestamp_type(batches) - min(TimestampType)
    return name_part(b" ", kinds if of_line is None else kinds[of_line], _TIMESTAMP_TYPES)


def batch_lines(source: Source, batches: BatchTable, frame: Frame | None = None) -> Lines:
    """
    Return the lines of batches.

    Parameters
    ----------
    source : Source
    batches : array of BATCH_DTYPE, shape (n,)
    frame : Frame, optional
        Of a single batch that no scan accepts, see `framed_batches`.

    Returns
    -------
    Lines
    """
    magic = batches["magic"] if frame is None else np.array([frame.magic])
    valid = verify_rows(source, batches) if frame is None else np.array([_is_valid(source, frame)])
    common = [
        number_part(b" position: ", batches["position"]),
        timestamp_type_part(batches),
        number_part(b": ", batches["max_timestamp"]),
        number_part(b" size: ", size_in_bytes(batches)),
        number_part(b" magic: ", magic),
        name_part(b" compresscodec: ", compression_type(batches), _CODECS),
        number_part(b" crc: ", batches["crc"]),
        name_part(b" isvalid: ", valid, BOOLEANS),
    ]
    legacy = [number_part(b"offset: ", last_offset(batches))]
    forms = LineForm(legacy + common), LineForm(_v2_parts(batches) + common)
    return forms, (batches["magic"] >= _MAGIC_V2).astype(np.uint8)


def _is_valid(source: Source, frame: Frame) -> bool:
    if frame.size < BATCH_HEADER_SIZE:
        return False
    start, stop = frame.position + _COVERED_FROM, frame.position + frame.size
    stored = int.from_bytes(read_bytes(source, start - _CRC_SIZE, _CRC_SIZE), "big")
    return crc_of_bytes(source, start, stop, _MAGIC_V2) == stored


def _v2_parts(batches: BatchTable) -> list[Part]:
    horizons = delete_horizon_ms(batches)
    # Few batches have one.
    found, horizon_of = np.unique(horizons, return_inverse=True)
    texts = tuple(optional_long(one).encode() for one in found.tolist())
    return [
        number_part(b"baseOffset: ", batches["base_offset"]),
        number_part(b" lastOffset: ", last_offset(batches)),
        number_part(b" count: ", batches["records_count"]),
        number_part(b" baseSequence: ", batches["base_sequence"]),
        number_part(b" lastSequence: ", last_sequence(batches)),
        number_part(b" producerId: ", batches["producer_id"]),
        number_part(b" producerEpoch: ", batches["producer_epoch"]),
        number_part(b" partitionLeaderEpoch: ", batches["partition_leader_epoch"]),
        name_part(b" isTransactional: ", is_transactional(batches), BOOLEANS),
        name_part(b" isControl: ", is_control(batches), BOOLEANS),
        name_part(b" deleteHorizonMs: ", horizon_of, texts),
    ]


def optional_long(value: int) -> str:
    """Return the text of Java's ``OptionalLong``; -1 is none."""
    return "OptionalLong.empty" if value == NO_TIMESTAMP else f"OptionalLong[{value}]"
