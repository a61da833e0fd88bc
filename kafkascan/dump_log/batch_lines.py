"""The lines of batches."""

from __future__ import annotations

import numpy as np

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

_TIMESTAMP_TYPES = {kind.value: kind.display_name for kind in TimestampType}
_CODECS = {kind.value: kind.display_name for kind in CompressionType}
_BOOLEANS = {False: "false", True: "true"}
_MAGIC_V2 = 2
# The checksum of a batch of magic 2 covers what follows it.
_COVERED_FROM, _CRC_SIZE = 21, 4


def timestamp_types(batches: BatchTable) -> list[str]:
    """Return the names of timestamp types."""
    return [_TIMESTAMP_TYPES[kind] for kind in timestamp_type(batches).tolist()]


def batch_lines(source: Source, batches: BatchTable, frame: Frame | None = None) -> list[str]:
    """
    Return the lines of batches, without their ends.

    Parameters
    ----------
    source : Source
    batches : array of BATCH_DTYPE, shape (n,)
    frame : Frame, optional
        Of a single batch that no scan accepts, see `framed_batches`.

    Returns
    -------
    list of str
    """
    heads = _legacy_heads(batches)
    is_v2 = batches["magic"] >= _MAGIC_V2
    if is_v2.any():
        rows = np.flatnonzero(is_v2)
        for row, head in zip(rows.tolist(), _v2_heads(batches[rows]), strict=True):
            heads[row] = head
    return [
        f"{head} position: {position} {kind}: {timestamp} size: {size} magic: {magic}"
        f" compresscodec: {_CODECS[codec]} crc: {crc} isvalid: {_BOOLEANS[valid]}"
        for head, position, kind, timestamp, size, magic, codec, crc, valid in zip(
            heads,
            batches["position"].tolist(),
            timestamp_types(batches),
            batches["max_timestamp"].tolist(),
            size_in_bytes(batches).tolist(),
            batches["magic"].tolist() if frame is None else [frame.magic],
            compression_type(batches).tolist(),
            batches["crc"].tolist(),
            verify_rows(source, batches).tolist() if frame is None else [_is_valid(source, frame)],
            strict=True,
        )
    ]


def _is_valid(source: Source, frame: Frame) -> bool:
    if frame.size < BATCH_HEADER_SIZE:
        return False
    start, stop = frame.position + _COVERED_FROM, frame.position + frame.size
    stored = int.from_bytes(read_bytes(source, start - _CRC_SIZE, _CRC_SIZE), "big")
    return crc_of_bytes(source, start, stop, _MAGIC_V2) == stored


def _legacy_heads(batches: BatchTable) -> list[str]:
    return [f"offset: {offset}" for offset in last_offset(batches).tolist()]


def _v2_heads(batches: BatchTable) -> list[str]:
    return [
        f"baseOffset: {base} lastOffset: {last} count: {count} baseSequence: {sequence}"
        f" lastSequence: {last_of} producerId: {producer} producerEpoch: {producer_epoch}"
        f" partitionLeaderEpoch: {epoch} isTransactional: {_BOOLEANS[transactional]}"
        f" isControl: {_BOOLEANS[control]} deleteHorizonMs: {optional_long(horizon)}"
        for (
            base, last, count, sequence, last_of, producer, producer_epoch, epoch, transactional,
            control, horizon,
        ) in zip(
            batches["base_offset"].tolist(),
            last_offset(batches).tolist(),
            batches["records_count"].tolist(),
            batches["base_sequence"].tolist(),
            last_sequence(batches).tolist(),
            batches["producer_id"].tolist(),
            batches["producer_epoch"].tolist(),
            batches["partition_leader_epoch"].tolist(),
            is_transactional(batches).tolist(),
            is_control(batches).tolist(),
            delete_horizon_ms(batches).tolist(),
            strict=True,
        )
    ]  # fmt: skip


def optional_long(value: int) -> str:
    """Return the text of Java's ``OptionalLong``; -1 is none."""
    return "OptionalLong.empty" if value == NO_TIMESTAMP else f"OptionalLong[{value}]"
