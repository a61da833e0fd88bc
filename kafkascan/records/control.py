"""Control records: transaction markers, and the records that KRaft writes into its log."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kafkascan.batches.columns import BatchTable, require_batch_table
from kafkascan.batches.scan import iter_open_batches
from kafkascan.format.errors import record_error
from kafkascan.format.layout import NamedCode
from kafkascan.format.schemas.message_decoder import MessageSchema, SchemaError, decode
from kafkascan.format.schemas.message_encoder import encode
from kafkascan.format.schemas.message_files import read_messages
from kafkascan.io.sources import Source, SourceLike, borrowed_source
from kafkascan.records.decoding import iter_decoded_tables
from kafkascan.records.read_options import ReadOptions

_KEY = struct.Struct(">hh")
_VERSION = struct.Struct(">h")


class ControlRecordType(NamedCode):
    """Type of a control record (``ControlRecordType`` in Kafka)."""

    UNKNOWN = -1
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


_SCHEMAS: dict[ControlRecordType, MessageSchema] = {
    ControlRecordType(code): schema for code, schema in read_messages("control")
}
_SCHEMAS[ControlRecordType.COMMIT] = _SCHEMAS[ControlRecordType.ABORT]


def control_schema(kind: ControlRecordType) -> MessageSchema:
    """Return the schema of a type's values; UNKNOWN has none."""
    return _SCHEMAS[kind]


@dataclass(frozen=True)
class ControlRecord:
    """
    One control record.

    Attributes
    ----------
    offset, timestamp : int
        Timestamp in milliseconds since the epoch.
    producer_id, producer_epoch : int
        The producer whose transaction a marker ends; -1 for KRaft's control records.
    partition_leader_epoch : int
    position : int
        Byte position of the batch in its source.
    type : ControlRecordType
        UNKNOWN for a type of a later Kafka version; consumers skip it.
    type_code : int
        The number in the key.
    version : int
        The version of the key.
    value : dict or None
        The fields of the message, named in snake case: ``coordinator_epoch``; ``leader_id``,
        ``voters``, ``granting_voters``; … None if the type is UNKNOWN.
    """

    offset: int
    timestamp: int
    producer_id: int
    producer_epoch: int
    partition_leader_epoch: int
    position: int
    type: ControlRecordType
    type_code: int
    version: int
    value: dict[str, Any] | None


def decode_control_record(
    key: bytes | None, value: bytes | None
) -> tuple[ControlRecordType, int, int, dict[str, Any] | None]:
    """
    Decode the key and the value of a control record.

    Returns
    -------
    type : ControlRecordType
    type_code : int
    version : int
        The version of the key; higher versions are decoded as version 0.
    value : dict or None
        None if the type is UNKNOWN.

    Raises
    ------
    ValueError
        If Kafka would reject them.
    """
    kind, code, version = decode_control_key(key)
    if kind is ControlRecordType.UNKNOWN:
        return kind, code, version, None
    if value is None:
        raise SchemaError(f"a {kind.name} record has no value")
    return kind, code, version, _decode_value(kind, value)


_CODES = {kind.value for kind in _SCHEMAS}


def decode_control_key(key: bytes | None) -> tuple[ControlRecordType, int, int]:
    """Decode the key of a control record; see `decode_control_record`."""
    if key is None or len(key) < _KEY.size:
        raise SchemaError(f"the key of a control record has fewer than {_KEY.size} bytes")
    version, code = _KEY.unpack_from(key)
    if version < 0:
        raise SchemaError(f"the key of a control record has version {version}")
    kind = ControlRecordType(code) if code in _CODES else ControlRecordType.UNKNOWN
    return kind, code, version


def _decode_value(kind: ControlRecordType, value: bytes) -> dict[str, Any]:
    """Decode a message as of its version or, as Kafka reads all of them, as of version 0."""
    layout = 0
    if len(value) >= _VERSION.size:
        (version,) = _VERSION.unpack_from(value)
        if version < 0:
            raise SchemaError(f"a {kind.name} record has version {version}")
        layout = min(version, _SCHEMAS[kind].newest)
    try:
        return decode(_SCHEMAS[kind], value, layout)
    except SchemaError:
        if layout == 0:
            raise
        return decode(_SCHEMAS[kind], value, 0)


def encode_control_record(
    kind: ControlRecordType, value: Mapping[str, Any] | bytes
) -> tuple[bytes, bytes]:
    """
    Encode the key and the value of a control record.

    Parameters
    ----------
    kind : ControlRecordType
        Not UNKNOWN.
    value : mapping or bytes
        The message as `decode_control_record` returns it, with a default of 0 for ``version``;
        or its bytes.

    Raises
    ------
    ValueError
        If the type is UNKNOWN, or the message does not fit its schema.
    """
    if kind not in _SCHEMAS:
        raise SchemaError(f"Cannot append record with unknown control record type {kind}")
    key = _KEY.pack(0, kind)
    if not isinstance(value, Mapping):
        return key, bytes(value)
    message = {"version": 0, **value}
    layout = min(int(message["version"]), _SCHEMAS[kind].newest)
    return key, encode(_SCHEMAS[kind], message, layout)


def read_control_records(
    source: SourceLike, batches: BatchTable | None = None, /
) -> list[ControlRecord]:
    """
    Decode the control records of a log.

    Parameters
    ----------
    source : path, bytes-like, Source or SegmentFile
    batches : array of BATCH_DTYPE, optional
        Rows of the source, by default all; batches of data records are skipped.

    Returns
    -------
    list of ControlRecord
        In the order of the batches.

    Raises
    ------
    InvalidRecordError
        If Kafka would reject a control record.
    As `read_records`.
    """
    # Not closed here: an error's traceback may hold a table that views it.
    with borrowed_source(source, close=False) as owner:
        return _read(owner, batches)


def _read(source: Source, batches: BatchTable | None) -> list[ControlRecord]:
    found = []
    given = None if batches is None else [require_batch_table(batches)]
    headers = iter_open_batches(source) if given is None else given
    for table in iter_decoded_tables(source, headers, ReadOptions(control="only")):
        for record in table:
            batch = table.batches[record.batch]
            try:
                kind, code, version, value = decode_control_record(record.key, record.value)
            except SchemaError as error:
                raise record_error("BAD_CONTROL_RECORD", source.path, batch, str(error)) from error
            assert record.offset is not None
            assert record.timestamp is not None
            found.append(
                ControlRecord(
                    offset=record.offset,
                    timestamp=record.timestamp,
                    producer_id=int(batch["producer_id"]),
                    producer_epoch=int(batch["producer_epoch"]),
                    partition_leader_epoch=int(batch["partition_leader_epoch"]),
                    position=int(batch["position"]),
                    type=kind,
                    type_code=code,
                    version=version,
                    value=value,
                )
            )
    return found
