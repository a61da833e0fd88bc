"""Transactions, and what ends them: the markers that coordinators write into logs."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kafkascan._core import layout as _layout
from kafkascan._core import markers as _core
from kafkascan.batch_columns import BatchTable, is_control
from kafkascan.columns import Gathered
from kafkascan.control import ControlRecordType, decode_control_key, decode_control_record
from kafkascan.decoding import decode_records, iter_decoded
from kafkascan.errors import STATUS, CorruptBatchError, detached, record_error
from kafkascan.layout import BATCH_HEADER_SIZE, COMPRESSION_MASK, LOG_OVERHEAD, NamedCode
from kafkascan.record_table import RecordTable
from kafkascan.schemas.decoder import SchemaError
from kafkascan.screening import CONTROL, screen
from kafkascan.sources import Source
from kafkascan.walks import read_bytes

MARKER = np.dtype([("kind", "=i1"), ("coordinator_epoch", "=i4"), ("timestamp", "=i8")])
"""What a control batch says of its producer's transaction; ``kind`` is 0 for ABORT, 1 for
COMMIT, or one of the codes below."""

NO_RECORD = -1
"""The batch is empty: the cleaner has removed the marker, and the transaction before it."""
NO_MARKER = -2
"""The batch holds another kind of control record, or half of one: Kafka refuses to load the log."""
UNREADABLE = -3
"""The record cannot be read: Kafka takes it for the end of what is valid."""

TRANSACTION = np.dtype(
    [
        ("log", "=i4"),
        ("producer_id", "=i8"),
        ("producer_epoch", "=i2"),
        ("state", "=i1"),
        ("first_offset", "=i8"),
        ("last_offset", "=i8"),
        ("marker_offset", "=i8"),
        ("last_stable_offset", "=i8"),
        ("first_timestamp", "=i8"),
        ("last_timestamp", "=i8"),
        ("batches", "=i8"),
        ("records", "=i8"),
        ("size_in_bytes", "=i8"),
        ("coordinator_epoch", "=i4"),
    ]
)
"""A transaction in one log: ``log`` counts `Transactions.logs`; ``first_offset`` and
``last_offset`` are those of its records (-1 if there are none), ``marker_offset`` that of what
ended it (-1 if it is open); ``last_stable_offset`` is that of the log when it ended (-1 if it is
open or empty); timestamps are those of its batches, in milliseconds; ``batches``, ``records`` and
``size_in_bytes`` do not count the marker. Of one that began before the log does, as a snapshot
says, ``first_timestamp`` is -1, and what was written before is not counted."""


class TransactionState(NamedCode):
    """How a transaction ended."""

    ABORTED = 0
    COMMITTED = 1
    OPEN = 2

    @property
    def display_name(self) -> str:
        """The name in small letters."""
        return self.name.lower()


_WIRE = {name: offset for name, _, offset in _layout.batch_header}
_KEY = np.dtype([("version", ">i2"), ("type", ">i2")])
_VERSION_SIZE, _SIGN = 2, 0x80
_VALUE = np.dtype([("version", ">i2"), ("coordinator_epoch", ">i4")])


@dataclass(frozen=True, eq=False)
class ControlRows:
    """
    The control batches of producers in a table, and what they say.

    Attributes
    ----------
    rows : ndarray of int, shape (n,)
        Of the table.
    markers : ndarray of MARKER, shape (n,)
    errors : dict of int to CorruptBatchError
        By index into `rows`: why a record could not be read.
    """

    rows: NDArray[np.intp]
    markers: NDArray[np.void]
    errors: dict[int, CorruptBatchError]

    def between(self, start: int, stop: int) -> ControlRows:
        """Return those of some rows of the table, for a table of these rows."""
        first, last = np.searchsorted(self.rows, (start, stop)).tolist()
        errors = {at - first: error for at, error in self.errors.items() if first <= at < last}
        return ControlRows(self.rows[first:last] - start, self.markers[first:last], errors)


NO_CONTROL = ControlRows(np.empty(0, np.intp), np.empty(0, MARKER), {})


def read_control_rows(source: Source, batches: BatchTable, flags: int | None = None) -> ControlRows:
    """Read what the control batches of producers in a table say; `screen` may know of none."""
    if not (screen(batches) if flags is None else flags) & CONTROL:
        return NO_CONTROL
    rows, markers = _usual_markers(source, batches)
    unread = np.flatnonzero(markers["kind"] == _core.UNREAD)
    if not len(unread):
        return ControlRows(rows, markers, {})
    markers[unread], errors = read_markers(source, batches.take(rows[unread]))
    return ControlRows(rows, markers, {int(unread[at]): one for at, one in errors.items()})


def _usual_markers(
    source: Source, batches: BatchTable
) -> tuple[NDArray[np.intp], NDArray[np.void]]:
    """Return the rows of producers' control batches, and what those say that look as usual."""
    if not source.is_in_memory:
        rows = np.flatnonzero(is_control(batches) & (batches["producer_id"] >= 0))
        markers = np.zeros(len(rows), MARKER)
        markers["kind"] = _core.UNREAD
        return rows, markers
    rows, markers = np.empty(len(batches), np.int64), np.empty(len(batches), MARKER)
    with source.window(0, source.size) as window:
        status, count, fault = _core.read_into(window, batches, rows, markers)
    if status == STATUS["SOURCE_FAULT"]:
        raise source.fault_error(fault)
    source.require_unshrunk()
    return rows[:count].copy(), markers[:count].copy()


def read_markers(
    source: Source, batches: BatchTable
) -> tuple[NDArray[np.void], dict[int, CorruptBatchError]]:
    """
    Read what producers' control batches say; of each its first record, as Kafka does.

    Parameters
    ----------
    source : Source
    batches : array of BATCH_DTYPE, shape (n,)
        Control batches.

    Returns
    -------
    markers : ndarray of MARKER, shape (n,)
    errors : dict of int to CorruptBatchError
        By row: why a record could not be read.
    """
    markers = np.zeros(len(batches), MARKER)
    markers["kind"] = NO_RECORD
    errors: dict[int, CorruptBatchError] = {}
    if not len(batches):
        return markers, errors
    row_at = dict(zip(batches["position"].tolist(), range(len(batches)), strict=True))

    def note(error: CorruptBatchError) -> None:
        errors[row_at[error.position]] = detached(error)

    columns = ("timestamp", "key", "value")
    for table in iter_decoded(source, batches, columns=columns, control="only", on_damage=note):
        batch = table.columns["batch"]
        first = table[np.flatnonzero(np.diff(batch, prepend=np.int32(-1)))]
        positions = table.batches["position"][first.columns["batch"]].tolist()
        rows = np.array([row_at[position] for position in positions], np.intp)
        markers[rows] = _decoded(source, first, rows, errors)
    for row in sorted(errors):
        alone = _first_record(source, batches[row])
        if alone is None:
            markers["kind"][row] = UNREADABLE
        else:
            del errors[row]
            markers[row] = _decoded(source, alone, np.array([row]), errors)[0]
    return markers, errors


def _first_record(source: Source, batch: np.void) -> RecordTable | None:
    """Read no more than the first record of a damaged batch, if it has others."""
    if batch["records_count"] < 2 or batch["attributes"] & COMPRESSION_MASK:
        return None
    size = LOG_OVERHEAD + int(batch["batch_length"])
    data = read_bytes(source, int(batch["position"]), size)
    length, start = _varint(data, BATCH_HEADER_SIZE)
    if not 0 <= length <= size - start:
        return None
    alone = bytearray(data[: start + length])
    struct.pack_into(">i", alone, _WIRE["batch_length"], len(alone) - LOG_OVERHEAD)
    struct.pack_into(">i", alone, _WIRE["records_count"], 1)
    try:
        columns = ("timestamp", "key", "value")
        return decode_records(bytes(alone), None, columns=columns, control="only")
    except CorruptBatchError:
        return None


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number and the position behind it; -1 if there is none."""
    number = 0
    for shift, byte in zip(range(0, 35, 7), data[at : at + 5], strict=False):
        number |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
    return -1, at


def _decoded(
    source: Source,
    records: RecordTable,
    rows: NDArray[np.intp],
    errors: dict[int, CorruptBatchError],
) -> NDArray[np.void]:
    """Decode records: almost all of them are alike, and are decoded at once."""
    found = np.zeros(len(records), MARKER)
    found["timestamp"] = records.columns["timestamp"]
    keys, values = records.gathered("key"), records.gathered("value")
    usual = (np.diff(keys.starts) == _KEY.itemsize) & (np.diff(values.starts) == _VALUE.itemsize)
    alike = np.flatnonzero(usual)
    key, value = _taken(keys, alike, _KEY), _taken(values, alike, _VALUE)
    known = np.isin(key["type"], (ControlRecordType.ABORT, ControlRecordType.COMMIT))
    usual[alike] = known & (key["version"] >= 0) & (value["version"] >= 0)
    found["kind"][alike] = key["type"].astype(np.int8)
    found["coordinator_epoch"][alike] = value["coordinator_epoch"]
    for row in np.flatnonzero(~usual).tolist():
        try:
            found[["kind", "coordinator_epoch"]][row] = _one(records[row].key, records[row].value)
        except SchemaError as error:
            batch = records.batches[records.columns["batch"][row]]
            errors[int(rows[row])] = record_error(
                "BAD_CONTROL_RECORD", source.path, batch, str(error)
            )
    return found


def _taken(texts: Gathered, rows: NDArray[np.intp], dtype: np.dtype[Any]) -> NDArray[np.void]:
    """Return the texts of some rows, each of which is as long as a value of `dtype`."""
    data = texts.data
    if len(rows) < len(texts.starts) - 1:
        data = data[texts.starts[rows][:, np.newaxis] + np.arange(dtype.itemsize)].ravel()
    found: NDArray[np.void] = data.view(dtype)
    return found


def _one(key: bytes | None, value: bytes | None) -> tuple[int, int]:
    if key is None:
        return NO_MARKER, -1  # Kafka ends with a NullPointerException, here and below
    kind, _, _ = decode_control_key(key)
    if kind not in (ControlRecordType.ABORT, ControlRecordType.COMMIT) or value is None:
        return NO_MARKER, -1
    try:
        _, _, _, said = decode_control_record(key, value)
    except SchemaError:
        if len(value) >= _VERSION_SIZE and value[0] & _SIGN:
            raise
        return NO_MARKER, -1  # too short: a BufferUnderflowException
    assert said is not None
    return kind.value, said["coordinator_epoch"]
