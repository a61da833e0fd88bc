"""Find the schema that each key or value was written with: prefixes and record headers."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kafkascan.io import result_memory
from kafkascan.io.concurrency import group_by_bytes, map_parts
from kafkascan.records.buffers import Gathered
from kafkascan.records.record_table import RecordTable
from kafkascan.schemas.registry import NO_ID, RegisteredSchema, Registry

Part: TypeAlias = Literal["key", "value"]
"""The part of a record whose schema is asked for."""

MessagePath: TypeAlias = tuple[int, ...]
"""Where a message is in its Protobuf file: its number, that of one nested in it, and so on."""

PROTOBUF = "PROTOBUF"

NO_SCHEMA = -1
"""Row of records without a known schema."""

# Bytes of the prefixes: a zero and an id, Apicurio's with 8 bytes, and AWS Glue's.
_CONFLUENT, _APICURIO, _GLUE = 5, 9, 18
_MAGIC, _GLUE_MAGIC = 0, 3
_GLUE_PLAIN, _GLUE_ZLIB = 0, 5
# The end of a prefix or of the value of a header, and ids that are known.
_SHORT_ID, _LONG_ID, _GUID, _ID = ">u4", ">u8", "S16", "u8"
_Rows: TypeAlias = NDArray[np.int64]
_HeaderForms: TypeAlias = tuple[tuple[int, int | None, str], ...]
_APICURIO_HEADER = "apicurio."
# Headers that name a schema; of several, the last one counts. Their values have a size, the first
# byte or None, and an end. Behind those with a first byte, message indexes of Protobuf may follow.
_HEADERS: dict[str, _HeaderForms] = {
    "apicurio.{part}.contentId": ((8, None, _LONG_ID),),
    "apicurio.{part}.globalId": ((8, None, _LONG_ID),),
    "__{part}_schema_id": ((5, 0, _SHORT_ID), (17, 1, _GUID)),
}
# Beside Apicurio's ids of Avro schemas; the other encoding is JSON.
_ENCODING, _BINARY = "apicurio.{part}.encoding", b"BINARY"
# Records whose prefixes are in the CPU's cache together.
_ROWS_AT_ONCE = 1 << 16
# Ids up to here are looked up in a table of 4 bytes each.
_LARGEST_DIRECT_ID = 1 << 20
# Bytes of a header with message indexes, and different messages that headers of a topic name.
_LONGEST_HEADER, _MOST_PATHS = 128, 1 << 12
# Headers of a record that are compared; and of all records at a time.
_MOST_HEADERS = 1_000
_HEADERS_AT_ONCE = 1 << 16


class Framing(IntEnum):
    """How a record names its schema, or why it has none."""

    CONFLUENT = 0
    """A zero byte and 4 bytes of id; message indexes of Protobuf follow."""
    APICURIO = 1
    """A zero byte and 8 bytes of id."""
    GLUE = 2
    """AWS Glue: 3, 0 and the GUID of the version."""
    GLUE_ZLIB = 3
    """The same with 5 instead of 0: what follows is compressed with zlib."""
    HEADER = 4
    """A record header with a GUID or an id; there is no prefix."""
    NULL = 5
    """There is no key or value."""
    NO_PREFIX = 6
    """The first byte is none of a prefix, or too few bytes follow."""
    UNKNOWN_ID = 7
    """The registry does not have the id or GUID, or it is no prefix at all."""
    AMBIGUOUS = 8
    """The registry has the id of 4 bytes, and also the one of 8."""
    BAD_HEADER = 9
    """The record header is none of the known forms."""
    NOT_BINARY = 10
    """A record header says that the Avro value is in another encoding, which is JSON."""


FRAMING_NAMES = tuple(one.name.lower() for one in Framing)


@dataclass(frozen=True, eq=False)
class FramedRecords:
    """
    The schemas of the keys or values of records.

    Attributes
    ----------
    schemas : sequence of RegisteredSchema
        Those of the registry, also ones that no record has.
    schema : ndarray of int32, shape (n,)
        Index into `schemas`; -1 without a known schema.
    skip : ndarray of int32, shape (n,)
        Bytes of the prefix, without the message indexes of Protobuf.
    framing : ndarray of uint8, shape (n,)
        `Framing`: the form, or the reason why there is no schema.
    paths : sequence of tuple of int
        Messages of Protobuf files that headers name, also ones that no record has.
    path : ndarray of int32, shape (n,)
        Index into `paths`; -1 if no header names a message.
    is_confluent : ndarray of bool, shape (n,)
        Whether the prefix or header is in the form of Confluent's serializers.
    """

    schemas: Sequence[RegisteredSchema]
    schema: NDArray[np.int32]
    skip: NDArray[np.int32]
    framing: NDArray[np.uint8]
    paths: Sequence[MessagePath]
    path: NDArray[np.int32]
    is_confluent: NDArray[np.bool_]

    def __getitem__(self, rows: slice) -> FramedRecords:
        """Return a view of some records."""
        names = ("schema", "skip", "framing", "path", "is_confluent")
        return replace(self, **{name: getattr(self, name)[rows] for name in names})

    def path_of(self, row: int) -> MessagePath | None:
        """Return the message that a record's header names; None if none does."""
        path = int(self.path[row])
        return None if path < 0 else self.paths[path]


class FrameReader:
    """
    Finds the schemas of records.

    A prefix counts only if the registry has its id or GUID. A record header comes before a prefix,
    as in Confluent's deserializers. Headers are read if the table has the column ``headers``.

    Parameters
    ----------
    registry : Registry
    context : str, optional
        The context of the ids; by default the default one.

    Attributes
    ----------
    schemas : list of RegisteredSchema
    is_protobuf : ndarray of bool
        By their row; False for -1.
    """

    def __init__(self, registry: Registry, *, context: str = "") -> None:
        self.schemas = registry.schemas
        self.is_protobuf = np.array([*(one.schema_type for one in self.schemas), ""]) == PROTOBUF
        self._paths: dict[MessagePath, int] = {}
        context = "" if context == "." else context
        row_of = {one: row for row, one in enumerate(self.schemas)}
        ids = {one.id: row for one, row in row_of.items()
               if one.context == context and one.id != NO_ID}  # fmt: skip
        self._ids = _Sorted(ids, _ID)
        # Otherwise the first half of an id of 8 bytes is none of 4 bytes that exists.
        self._may_be_ambiguous = any(one == 0 or one >> 32 for one in ids)
        guids = {uuid.UUID(guid).bytes: row_of[one] for guid, one in registry.guids.items()}
        self._guids = _Sorted(guids, _GUID)

    def read(self, table: RecordTable, part: Part = "value", threads: int = 1) -> FramedRecords:
        """Return the schemas of the keys or values of a table."""
        count = len(table)
        schema, skip = (result_memory.empty(count, np.int32) for _ in range(2))
        framing, path = result_memory.empty(count, np.uint8), np.full(count, NO_SCHEMA, np.int32)
        is_confluent = result_memory.empty(count, np.bool_)
        found = FramedRecords(self.schemas, schema, skip, framing, [], path, is_confluent)

        def read_prefixes(rows: slice) -> None:
            piece, part_of = table[rows], found[rows]
            if not self._read_plain(piece, part, part_of):
                self._read_mixed(piece, part, part_of)
            np.equal(part_of.framing, Framing.CONFLUENT, out=part_of.is_confluent)

        firsts = range(0, count, _ROWS_AT_ONCE)
        map_parts([slice(first, first + _ROWS_AT_ONCE) for first in firsts], read_prefixes, threads)
        if "headers_count" in table.columns and table.columns["headers_count"].any():
            self._read_headers(table, part, found)
        return replace(found, paths=list(self._paths))

    # ---- prefixes ----

    def _read_plain(self, table: RecordTable, part: Part, found: FramedRecords) -> bool:
        """Read prefixes if all of them are Confluent's, with known ids; return whether they are."""
        size = table.columns[f"{part}_size"]
        direct = self._ids.direct
        if direct is None or self._may_be_ambiguous or int(size.min()) < _CONFLUENT:
            return False
        sizes = np.full(len(size), _CONFLUENT, np.int32)
        begins = table.gathered(part, sizes).data.reshape(-1, _CONFLUENT)
        ids = _ends(begins, _SHORT_ID).astype(np.intp)
        direct.take(ids, mode="clip", out=found.schema)
        found.skip.fill(_CONFLUENT)
        found.framing.fill(Framing.CONFLUENT)
        return not begins[:, 0].any() and int(found.schema.min()) >= 0

    def _read_mixed(self, table: RecordTable, part: Part, found: FramedRecords) -> None:
        """Read prefixes of several forms."""
        size = table.columns[f"{part}_size"]
        found.schema[:], found.skip[:] = NO_SCHEMA, 0
        found.framing[:] = np.where(size < 0, Framing.NULL, Framing.NO_PREFIX)
        rows = np.flatnonzero(size >= _CONFLUENT)
        begins = _begins(table, part, rows, _CONFLUENT)
        magic = begins[:, 0]
        is_zero = magic == _MAGIC
        numbered = rows[is_zero]
        of_four = self._ids.find(_ends(begins, _SHORT_ID)[is_zero])
        of_eight = np.full(len(numbered), NO_SCHEMA, np.int32)
        may_be_long = (of_four < 0) | self._may_be_ambiguous
        at = np.flatnonzero((size[numbered] >= _APICURIO) & may_be_long)
        long_ids = _ends(_begins(table, part, numbered[at], _APICURIO), _LONG_ID)
        of_eight[at] = self._ids.find(long_ids)
        _set(found, numbered, of_four, Framing.CONFLUENT, _CONFLUENT)
        is_long = of_eight >= 0
        _set(found, numbered[is_long], of_eight[is_long], Framing.APICURIO, _APICURIO)
        both = numbered[is_long & (of_four >= 0)]
        found.schema[both], found.skip[both] = NO_SCHEMA, 0
        found.framing[both] = Framing.AMBIGUOUS
        self._read_glue(table, part, rows[(magic == _GLUE_MAGIC) & (size[rows] >= _GLUE)], found)

    def _read_glue(self, table: RecordTable, part: Part, rows: _Rows, found: FramedRecords) -> None:
        begins = _begins(table, part, rows, _GLUE)
        for compression, form in (_GLUE_PLAIN, Framing.GLUE), (_GLUE_ZLIB, Framing.GLUE_ZLIB):
            at = np.flatnonzero(begins[:, 1] == compression)
            _set(found, rows[at], self._guids.find(_ends(begins[at], _GUID)), form, _GLUE)

    # ---- headers ----

    def _read_headers(self, table: RecordTable, part: Part, found: FramedRecords) -> None:
        names = [name.format(part=part).encode() for name in (*_HEADERS, _ENCODING)]
        counts = np.minimum(table.columns["headers_count"], _MOST_HEADERS)
        for piece in group_by_bytes(counts, _HEADERS_AT_ONCE):
            *named, encodings = table[piece].headers_named(names, _MOST_HEADERS)
            for (rows, values), (name, forms) in zip(named, _HEADERS.items(), strict=True):
                self._set_headers(found[piece], rows, values, forms)
                found.is_confluent[piece][rows] = not name.startswith(_APICURIO_HEADER)
            _set_encodings(found[piece], *encodings)

    def _set_headers(
        self, found: FramedRecords, rows: _Rows, values: Gathered, forms: _HeaderForms
    ) -> None:
        """Set the schemas of records by the values of their headers; nulls have none."""
        sizes = np.diff(values.starts)
        is_there = found.framing[rows] != Framing.NULL
        found.schema[rows], found.skip[rows], found.path[rows] = NO_SCHEMA, 0, NO_SCHEMA
        found.framing[rows[is_there]] = Framing.BAD_HEADER
        is_known_size = is_there & (sizes > 0) & (sizes <= _LONGEST_HEADER)
        for size in np.flatnonzero(np.bincount(sizes[is_known_size])).tolist():
            at = np.flatnonzero((sizes == size) & is_there)
            if len(at) == len(sizes):
                raw = values.data.reshape(-1, size)
            else:
                raw = values.data[values.starts[at][:, None] + np.arange(size)]
            for least, magic, kind in forms:
                if size == least or (size > least and magic is not None):
                    is_form = slice(None) if magic is None else raw[:, 0] == magic
                    self._set_header(found, rows[at[is_form]], raw[is_form], least, kind)

    def _set_header(
        self, found: FramedRecords, rows: _Rows, raw: NDArray[np.uint8], size: int, kind: str
    ) -> None:
        """Set the schemas that headers of one form name, and the messages of what follows it."""
        keys, more = self._guids if kind == _GUID else self._ids, raw.shape[1] - size
        schema = keys.find(_ends(raw[:, :size], kind))
        if more:
            tails, of_row = np.unique(_ends(raw, f"S{more}"), return_inverse=True)
            paths = [self._path_row(one.ljust(more, b"\0")) for one in tails.tolist()]
            path = np.array(paths, np.int32)[of_row]
            is_path = self.is_protobuf[schema] & (path >= 0)
            found.path[rows[is_path]] = path[is_path]
            is_good = is_path | (schema < 0)
            rows, schema = rows[is_good], schema[is_good]
        _set(found, rows, schema, Framing.HEADER, 0)

    def _path_row(self, indexes: bytes) -> int:
        """Return the row of the path that message indexes are; -1 if they are none."""
        path = message_path(indexes)
        if path is None or (path not in self._paths and len(self._paths) == _MOST_PATHS):
            return NO_SCHEMA
        return self._paths.setdefault(path, len(self._paths))


def message_path(data: bytes) -> MessagePath | None:
    """
    Return the message indexes before a Protobuf value, as Confluent's serializers write them.

    Returns
    -------
    tuple of int or None
        ``(0,)`` for the single zero that stands for it; None if there are none.
    """
    numbers, number, shift = list[int](), 0, 0
    for byte in data:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            numbers.append((number >> 1) ^ -(number & 1))
            number = shift = 0
            if numbers[0] < 0:
                return None
            if len(numbers) > numbers[0]:
                return tuple(numbers[1:]) or (0,)
    return None


def _set_encodings(found: FramedRecords, rows: _Rows, values: Gathered) -> None:
    """Take their schemas from records whose header says that they are not in the binary form."""
    is_binary = np.diff(values.starts) == len(_BINARY)
    raw = values.data[values.starts[:-1][is_binary][:, None] + np.arange(len(_BINARY))]
    is_binary[is_binary] = (raw == np.frombuffer(_BINARY, np.uint8)).all(axis=1)
    refused = rows[~is_binary & (found.framing[rows] == Framing.HEADER)]
    found.schema[refused], found.framing[refused] = NO_SCHEMA, Framing.NOT_BINARY


def _set(
    found: FramedRecords, rows: _Rows, schema: NDArray[np.int32], form: Framing, skip: int
) -> None:
    is_known = schema >= 0
    found.schema[rows] = schema
    found.skip[rows] = np.where(is_known, skip, 0)
    found.framing[rows] = np.where(is_known, form, Framing.UNKNOWN_ID)


def _begins(table: RecordTable, part: Part, rows: _Rows, size: int) -> NDArray[np.uint8]:
    """Return the first bytes of the keys or values of some records, which all have as many."""
    batch, position = table.columns["batch"][rows], table.columns[f"{part}_position"][rows]
    sizes = np.full(len(rows), size, np.int32)
    return table.buffers.gather(batch, position, sizes).data.reshape(-1, size)


def _ends(rows: NDArray[np.uint8], kind: str) -> NDArray[Any]:
    """Return the last bytes of each row: big-endian numbers, or GUIDs."""
    rows, dtype = np.ascontiguousarray(rows), np.dtype(kind)
    if not len(rows):
        return np.empty(0, dtype)
    size = rows.shape[1]
    return np.ndarray((len(rows),), dtype, rows.data, size - dtype.itemsize, (size,))


class _Sorted:
    """Rows by keys, which are ids or GUIDs."""

    def __init__(self, rows: Mapping[int, int] | Mapping[bytes, int], dtype: str) -> None:
        keys = np.array(list(rows), dtype)
        order = np.argsort(keys)
        self.keys, self.rows = keys[order], np.array(list(rows.values()), np.int32)[order]
        # The rows by id, with -1 at the end, if the ids are not too large for that.
        self.direct: NDArray[np.int32] | None = None
        if dtype == _ID and not (self.keys > _LARGEST_DIRECT_ID).any():
            self.direct = np.full(int(self.keys.max(initial=0)) + 2, NO_SCHEMA, np.int32)
            self.direct[self.keys.astype(np.int64)] = self.rows

    def find(self, keys: NDArray[Any]) -> NDArray[np.int32]:
        """Return the rows of keys, -1 for unknown ones."""
        if self.direct is not None:
            rows: NDArray[np.int32] = self.direct[np.minimum(keys, len(self.direct) - 1)]
            return rows
        if not len(self.keys) or not len(keys):
            return np.full(len(keys), NO_SCHEMA, np.int32)
        keys = keys.astype(self.keys.dtype, copy=False)
        at = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[at] == keys, self.rows[at], np.int32(NO_SCHEMA))
