"""Control records: what brokers write into logs between the records of producers."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kafkascan.batch_columns import BatchTable
from kafkascan.decoding import iter_decoded
from kafkascan.errors import record_error
from kafkascan.layout import NamedCode
from kafkascan.schemas import control as schemas
from kafkascan.schemas.decoder import Schema, SchemaError, decode
from kafkascan.schemas.encoder import encode
from kafkascan.sources import Source, SourceLike, borrowed_source

_KEY = struct.Struct(">hh")
_VERSION = struct.Struct(">h")


class ControlRecordType(NamedCode):
    """What a control record says (``ControlRecordType`` in Kafka)."""

    UNKNOWN = -1
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6

    @property
    def display_name(self) -> str:
        """Kafka's name of the type."""
        return self.name


_SCHEMAS: dict[ControlRecordType, Schema] = {
    ControlRecordType.ABORT: schemas.END_TXN_MARKER,
    ControlRecordType.COMMIT: schemas.END_TXN_MARKER,
    ControlRecordType.LEADER_CHANGE: schemas.LEADER_CHANGE,
    ControlRecordType.SNAPSHOT_HEADER: schemas.SNAPSHOT_HEADER,
    ControlRecordType.SNAPSHOT_FOOTER: schemas.SNAPSHOT_FOOTER,
    ControlRecordType.KRAFT_VERSION: schemas.KRAFT_VERSION,
    ControlRecordType.KRAFT_VOTERS: schemas.KRAFT_VOTERS,
}
# Of the messages whose `version` field also says how they are laid out.
_LAID_OUT_BY_VERSION = {ControlRecordType.LEADER_CHANGE: 1}


@dataclass(frozen=True)
class ControlRecord:
    """
    One control record.

    Attributes
    ----------
    offset, timestamp : int
        Timestamp in milliseconds since the epoch.
    producer_id, producer_epoch : int
        Whose transaction a marker ends; -1 for KRaft's own records.
    partition_leader_epoch : int
    position : int
        Byte position of the batch in its source.
    type : ControlRecordType
        UNKNOWN for a type that came later; consumers skip it.
    type_code : int
        As it stands in the key.
    version : int
        Of the key.
    value : dict or None
        The message, by field names in snake case: ``coordinator_epoch``; ``leader_id``,
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
        Of the key; higher ones are read as the one that is known.
    value : dict or None
        None if the type is UNKNOWN.

    Raises
    ------
    ValueError
        If Kafka would not accept them.
    """
    kind, code, version = decode_control_key(key)
    if kind is ControlRecordType.UNKNOWN:
        return kind, code, version, None
    if value is None:
        raise SchemaError(f"a {kind.name} record without a value")
    return kind, code, version, _decode_value(kind, value)


_CODES = {kind.value for kind in _SCHEMAS}


def decode_control_key(key: bytes | None) -> tuple[ControlRecordType, int, int]:
    """Decode the key of a control record alone; as `decode_control_record`."""
    if key is None or len(key) < _KEY.size:
        raise SchemaError(f"a control record's key needs {_KEY.size} bytes")
    version, code = _KEY.unpack_from(key)
    if version < 0:
        raise SchemaError(f"version {version} of a control record's key")
    kind = ControlRecordType(code) if code in _CODES else ControlRecordType.UNKNOWN
    return kind, code, version


def _decode_value(kind: ControlRecordType, value: bytes) -> dict[str, Any]:
    layout = 0
    if len(value) >= _VERSION.size:
        (version,) = _VERSION.unpack_from(value)
        if version < 0:
            raise SchemaError(f"version {version} of a {kind.name} record")
        layout = min(version, _LAID_OUT_BY_VERSION.get(kind, 0))
    return decode(_SCHEMAS[kind], value, layout)


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
        The message as `decode_control_record` gives it, ``version`` being 0 if it is left out;
        or its bytes.

    Raises
    ------
    ValueError
        If Kafka has no such record, or the message is not one.
    """
    if kind not in _SCHEMAS:
        raise SchemaError(f"Cannot append record with unknown control record type {kind}")
    key = _KEY.pack(0, kind)
    if not isinstance(value, Mapping):
        return key, bytes(value)
    message = {"version": 0, **value}
    layout = min(int(message["version"]), _LAID_OUT_BY_VERSION.get(kind, 0))
    return key, encode(_SCHEMAS[kind], message, layout)


def read_control_records(
    source: SourceLike, batches: BatchTable | None = None, /
) -> list[ControlRecord]:
    """
    Decode the control records of a log.

    Parameters
    ----------
    source : path, bytes-like, Source or Segment
    batches : array of BATCH_DTYPE, optional
        Rows of the source; those of other records are passed over.

    Returns
    -------
    list of ControlRecord
        In the order of the batches.

    Raises
    ------
    InvalidRecordError
        If a control record is not one that Kafka would accept.
    As `read_records`.
    """
    # Not closed here: an error's traceback may hold a table that views it.
    with borrowed_source(source, close=False) as owner:
        return _read(owner, batches)


def _read(source: Source, batches: BatchTable | None) -> list[ControlRecord]:
    found = []
    for table in iter_decoded(source, batches, control="only"):
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
