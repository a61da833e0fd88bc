"""The lines of records."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kafkascan.batches.columns import is_control
from kafkascan.dump_log.batch_lines import timestamp_types
from kafkascan.dump_log.dump_options import DumpOptions
from kafkascan.dump_log.record_decoders import java_text
from kafkascan.format.schemas.message_decoder import Schema
from kafkascan.format.schemas.message_json import jackson_text, json_of
from kafkascan.records.control import (
    ControlRecordType,
    control_schema,
    decode_control_record,
)
from kafkascan.records.record_table import RecordTable

_MAGIC_V2 = 2


def record_lines(table: RecordTable, options: DumpOptions) -> list[str]:
    """
    Return the lines of records, without their ends.

    Parameters
    ----------
    table : RecordTable
        With offsets, timestamps, keys, values and headers.
    options : DumpOptions

    Returns
    -------
    list of str
        Empty lines where nothing is printed.
    """
    keys, values = table.items("key"), table.items("value")
    lines = [""] * len(table) if options.skips_metadata else _metadata(table, keys, values)
    if options.prints_data:
        is_data = ~is_control(table.batches)[table.columns["batch"]]
        prefix = "| " if options.skips_metadata else " "
        offsets = table.columns["offset"].tolist()
        for row in np.flatnonzero(is_data).tolist():
            text = options.decode(offsets[row], keys[row], values[row])
            lines[row] += _contents(text.key, text.value, prefix)
    return lines


def _contents(key: str | None, value: str | None, prefix: str) -> str:
    if key is None:
        return "" if value is None else f"{prefix}payload: {value}"
    return f"{prefix}key: {key}" + ("" if value is None else f" payload: {value}")


def _metadata(
    table: RecordTable, keys: list[bytes | None], values: list[bytes | None]
) -> list[str]:
    columns, batches = table.columns, table.batches
    row_types = timestamp_types(batches)
    lines = [
        f"| offset: {offset} {row_types[batch]}: {timestamp} keySize: {key} valueSize: {value}"
        for offset, batch, timestamp, key, value in zip(
            columns["offset"].tolist(),
            columns["batch"].tolist(),
            columns["timestamp"].tolist(),
            columns["key_size"].tolist(),
            columns["value_size"].tolist(),
            strict=True,
        )
    ]
    is_v2 = (batches["magic"] >= _MAGIC_V2)[columns["batch"]]
    _extend(lines, np.flatnonzero(is_v2), _sequence_texts(table))
    _extend(lines, np.flatnonzero(~is_v2), lambda row: _checksum_text(table, row))
    controls = np.flatnonzero(is_control(batches)[columns["batch"]])
    _extend(lines, controls, lambda row: control_text(keys[row], values[row]))
    return lines


def _extend(lines: list[str], rows: NDArray[np.intp], text_of: Callable[[int], str]) -> None:
    for row in rows.tolist():
        lines[row] += text_of(row)


def _sequence_texts(table: RecordTable) -> Callable[[int], str]:
    sequences = table["sequence"].tolist()
    if not table.columns["headers_count"].any():
        return lambda row: f" sequence: {sequences[row]} headerKeys: []"
    headers = table.to_numpy()["headers"]

    def text(row: int) -> str:
        names = ",".join(java_text(key) for key, _ in headers[row])
        return f" sequence: {sequences[row]} headerKeys: [{names}]"

    return text


# ---- messages of magic 0 and 1 ---------------------------------------------------------------

# In front of the key: the CRC of what follows, magic, attributes, in magic 1 the timestamp, and
# the size of the key.
_BEFORE_KEY = {0: 4 + 1 + 1 + 4, 1: 4 + 1 + 1 + 8 + 4}
_CRC = struct.Struct(">I")
_SIZE = 4


def _checksum_text(table: RecordTable, row: int) -> str:
    """Return the checksum of a message, also of one in a compressed wrapper."""
    columns, buffers = table.columns, table.buffers
    batch = int(columns["batch"][row])
    key, key_size = int(columns["key_position"][row]), max(0, int(columns["key_size"][row]))
    value_size = max(0, int(columns["value_size"][row]))
    start = key - _BEFORE_KEY[int(table.batches["magic"][batch])]
    data = buffers.bytes_of(batch, start, key - start + key_size + _SIZE + value_size) or b""
    (stored,) = _CRC.unpack_from(data)
    is_valid = zlib.crc32(data[_CRC.size :]) == stored
    return f" isValid: {str(is_valid).lower()} crc: {stored}"


# ---- control records -------------------------------------------------------------------------

_MARKERS = (ControlRecordType.ABORT, ControlRecordType.COMMIT)
_NAMES = {
    ControlRecordType.LEADER_CHANGE: "LeaderChange:",
    ControlRecordType.SNAPSHOT_HEADER: "SnapshotHeader",
    ControlRecordType.SNAPSHOT_FOOTER: "SnapshotFooter",
    ControlRecordType.KRAFT_VERSION: "KRaftVersion",
    ControlRecordType.KRAFT_VOTERS: "KRaftVoters",
}


def control_text(key: bytes | None, value: bytes | None) -> str:
    """Return what a control record says."""
    kind, code, _, fields = decode_control_record(key, value)
    if fields is None:
        return f" controlType: {ControlRecordType.UNKNOWN.name}({code})"
    if kind in _MARKERS:
        return f" endTxnMarker: {kind.name} coordinatorEpoch: {fields['coordinator_epoch']}"
    return f" {_NAMES[kind]} {_json_text(control_schema(kind), fields)}"


def _json_text(schema: Schema, fields: dict[str, Any]) -> str:
    return jackson_text(json_of(schema, fields, min(fields["version"], schema.newest)))
