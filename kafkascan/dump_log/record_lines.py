"""The lines of records."""

from __future__ import annotations

import struct
import zlib
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafkascan._core.text_lines import HEADER_KEYS, JAVA_JSON, NOTHING, TEXT, LineForm
from kafkascan.batches.columns import is_control
from kafkascan.dump_log.batch_lines import (
    Lines,
    Part,
    name_part,
    number_part,
    timestamp_type_part,
)
from kafkascan.dump_log.dump_options import (
    DumpOptions,
    RecordDecoder,
    RecordText,
    UndecodableRecordError,
)
from kafkascan.format.schemas.message_decoder import MessageSchema, SchemaError
from kafkascan.format.schemas.message_json import jackson_text, json_of
from kafkascan.records.control import (
    ControlRecordType,
    control_schema,
    decode_control_record,
)
from kafkascan.records.record_table import RecordTable
from kafkascan.tables.text_columns import located

UNDECODABLE = (SchemaError, UndecodableRecordError)
"""Errors of records that can be read, but not printed."""
_MAGIC_V2 = 2
# The forms of lines with metadata, and without.
_V2, _CONTROL, _LEGACY = 0, 1, 2
_WITH_KEY, _WITHOUT_KEY, _EMPTY = 0, 1, 2


def record_lines(table: RecordTable, options: DumpOptions) -> Lines:
    """
    Return the lines of records.

    Parameters
    ----------
    table : RecordTable
        With offsets, timestamps, keys, values and headers.
    options : DumpOptions

    Returns
    -------
    Lines
        Empty lines where nothing is printed.

    Raises
    ------
    SchemaError, UndecodableRecordError
        If a record cannot be printed.
    """
    is_of_control = is_control(table.batches)[table.columns["batch"]]
    key, value = _items(table, options, ~is_of_control) if options.prints_data else (None, None)
    if options.is_json:
        return _json_lines(table, is_of_control, key, value)
    if options.skips_metadata:
        return _lines_of_data(len(table), is_of_control, key, value)
    contents: list[Part] = []
    if key is not None and value is not None:
        contents = [key.part(b" key: "), value.part(b" payload: ")]
    metadata = _metadata(table)
    is_legacy = (table.batches["magic"] < _MAGIC_V2)[table.columns["batch"]]
    sequences = [number_part(b" sequence: ", table["sequence"]), *_header_keys(table)]
    forms = (
        LineForm([*metadata, *sequences, *contents]),
        LineForm([*metadata, *sequences, _texts(_control_texts(table, is_of_control)).part(b" ")]),
        LineForm([*metadata, *_checksums(table, is_legacy), *contents]),
    )
    return forms, _form_of(is_legacy, is_of_control)


def _json_lines(
    table: RecordTable, is_of_control: NDArray[np.bool_], key: _Items | None, value: _Items | None
) -> Lines:
    """Return lines of JSON."""
    columns = table.columns
    metadata = [
        number_part(b'{"kind": "record", "offset": ', columns["offset"]),
        number_part(b', "timestamp": ', columns["timestamp"]),
        number_part(b', "keySize": ', _printed_sizes(table, "key")),
        number_part(b', "valueSize": ', _printed_sizes(table, "value")),
        number_part(b', "sequence": ', table["sequence"]),
        (HEADER_KEYS, b', "headerKeys": ', *table.header_places(), table),
    ]
    contents: list[Part] = []
    if key is not None and value is not None:
        contents = [key.part(b', "key": '), value.part(b', "payload": ')]
    is_legacy = (table.batches["magic"] < _MAGIC_V2)[columns["batch"]]
    checksums = _checksums(table, is_legacy, (b', "isValid": ', b', "crc": '))
    control = _texts(_control_texts(table, is_of_control)).part(b', "control": ')
    forms = ([*metadata, *contents], [*metadata, control], [*metadata, *checksums, *contents])
    return (
        tuple(LineForm(parts, JAVA_JSON, b"}\n") for parts in forms),
        _form_of(is_legacy, is_of_control),
    )


def _form_of(is_legacy: NDArray[np.bool_], is_of_control: NDArray[np.bool_]) -> NDArray[np.uint8]:
    return np.where(is_legacy, _LEGACY, np.where(is_of_control, _CONTROL, _V2)).astype(np.uint8)


class _Items(NamedTuple):
    """Keys or values as they are printed: kind of a part, addresses, sizes, and their owner."""

    kind: int
    addresses: NDArray[np.uintp]
    sizes: NDArray[np.int32]
    owner: object

    def part(self, literal: bytes) -> Part:
        return self.kind, literal, self.addresses, self.sizes, self.owner


def _lines_of_data(
    count: int, is_of_control: NDArray[np.bool_], key: _Items | None, value: _Items | None
) -> Lines:
    """Return lines without metadata: the bar is before what is printed first."""
    empty = LineForm([])
    if key is None or value is None:
        return (empty,), np.zeros(count, np.uint8)
    forms = (
        LineForm([key.part(b"| key: "), value.part(b" payload: ")]),
        LineForm([value.part(b"| payload: ")]),
        empty,
    )
    form_of = np.where(is_of_control, _EMPTY, np.where(key.sizes < 0, _WITHOUT_KEY, _WITH_KEY))
    return forms, form_of.astype(np.uint8)


def _items(
    table: RecordTable, options: DumpOptions, is_data: NDArray[np.bool_]
) -> tuple[_Items, _Items]:
    """Return keys and values of records of data as they are printed."""
    if options.decode is not None:
        return _decoded_items(table, options.decode, is_data)
    found = []
    for name, decoder in (("key", options.key), ("value", options.value)):
        addresses, sizes = table.addresses(name)
        decoder.require_decodable(sizes[is_data])
        found.append(_Items(decoder.kind, addresses, decoder.printed_sizes(sizes), table))
    return found[0], found[1]


def _decoded_items(
    table: RecordTable, decode: RecordDecoder, is_data: NDArray[np.bool_]
) -> tuple[_Items, _Items]:
    keys, values = table.items("key"), table.items("value")
    texts = [RecordText(None, None)] * len(table)
    offsets = table.columns["offset"].tolist()
    for row in np.flatnonzero(is_data).tolist():
        texts[row] = decode(offsets[row], keys[row], values[row])
    return _texts([one.key for one in texts]), _texts([one.value for one in texts])


def _texts(texts: list[str | None]) -> _Items:
    """Return texts as items; None is a null."""
    encoded = [None if one is None else one.encode("utf-8", "replace") for one in texts]
    return _Items(TEXT, *located(encoded))


def _metadata(table: RecordTable) -> list[Part]:
    columns = table.columns
    return [
        number_part(b"| offset: ", columns["offset"]),
        timestamp_type_part(table.batches, columns["batch"]),
        number_part(b": ", columns["timestamp"]),
        number_part(b" keySize: ", _printed_sizes(table, "key")),
        number_part(b" valueSize: ", _printed_sizes(table, "value")),
    ]


def _header_keys(table: RecordTable) -> list[Part]:
    if not table.columns["headers_count"].any():
        return [(NOTHING, b" headerKeys: []")]
    return [
        (HEADER_KEYS, b" headerKeys: [", *table.header_places(), table),
        (NOTHING, b"]"),
    ]


# ---- messages of magic 0 and 1 ---------------------------------------------------------------

# In front of the key: the CRC of what follows, magic, attributes, in magic 1 the timestamp, and
# the size of the key.
_BEFORE_KEY = {0: 4 + 1 + 1 + 4, 1: 4 + 1 + 1 + 8 + 4}
_CRC = struct.Struct(">I")
_SIZE = 4


def _checksums(
    table: RecordTable,
    is_legacy: NDArray[np.bool_],
    literals: tuple[bytes, bytes] = (b" isValid: ", b" crc: "),
) -> list[Part]:
    """Return the checksums of messages, also of those in compressed wrappers."""
    stored, computed = np.zeros((2, len(table)), np.int64)
    for row in np.flatnonzero(is_legacy).tolist():
        stored[row], computed[row] = _message_checksums(table, row)
    return [
        name_part(literals[0], stored == computed, (b"false", b"true")),
        number_part(literals[1], stored),
    ]


def _printed_sizes(table: RecordTable, name: str) -> NDArray[np.int32]:
    """Return sizes of keys or values; of messages of magic 0 and 1, also negative ones."""
    sizes: NDArray[np.int32] = table.columns[f"{name}_size"]
    stored = np.flatnonzero((sizes < 0) & (table["magic"] < _MAGIC_V2))
    if not len(stored):
        return sizes
    sizes = sizes.copy()
    for row in stored.tolist():
        batch = int(table.columns["batch"][row])
        start = int(table.columns[f"{name}_position"][row]) - _SIZE
        data = table.buffers.bytes_of(batch, start, _SIZE) or b""
        sizes[row] = int.from_bytes(data, "big", signed=True)
    return sizes


def _message_checksums(table: RecordTable, row: int) -> tuple[int, int]:
    """Return the stored and the computed checksum of a message of magic 0 or 1."""
    columns, buffers = table.columns, table.buffers
    batch = int(columns["batch"][row])
    start = int(columns["key_position"][row]) - _BEFORE_KEY[int(table.batches["magic"][batch])]
    size = int.from_bytes(buffers.bytes_of(batch, start - _SIZE, _SIZE) or b"", "big")
    data = buffers.bytes_of(batch, start, size) or b""
    (stored,) = _CRC.unpack_from(data)
    return stored, zlib.crc32(data[_CRC.size :])


# ---- control records -------------------------------------------------------------------------

_MARKERS = (ControlRecordType.ABORT, ControlRecordType.COMMIT)
_NAMES = {
    ControlRecordType.LEADER_CHANGE: "LeaderChange:",
    ControlRecordType.SNAPSHOT_HEADER: "SnapshotHeader",
    ControlRecordType.SNAPSHOT_FOOTER: "SnapshotFooter",
    ControlRecordType.KRAFT_VERSION: "KRaftVersion",
    ControlRecordType.KRAFT_VOTERS: "KRaftVoters",
}


def _control_texts(table: RecordTable, is_of_control: NDArray[np.bool_]) -> list[str | None]:
    """Return what control records say; None for the others."""
    texts: list[str | None] = [None] * len(table)
    rows = np.flatnonzero(is_of_control)
    controls = table[rows]
    items = zip(rows.tolist(), controls.items("key"), controls.items("value"), strict=True)
    for row, key, value in items:
        texts[row] = _control_text(key, value)
    return texts


def _control_text(key: bytes | None, value: bytes | None) -> str:
    """Return what a control record says."""
    kind, code, _, fields = decode_control_record(key, value)
    if fields is None:
        return f"controlType: {ControlRecordType.UNKNOWN.name}({code})"
    if kind in _MARKERS:
        return f"endTxnMarker: {kind.name} coordinatorEpoch: {fields['coordinator_epoch']}"
    return f"{_NAMES[kind]} {_json_text(control_schema(kind), fields)}"


def _json_text(schema: MessageSchema, fields: dict[str, Any]) -> str:
    return jackson_text(json_of(schema, fields, min(fields["version"], schema.newest)))
