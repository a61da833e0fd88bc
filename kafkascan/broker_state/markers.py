"""End transaction markers, which coordinators write into logs: read them from control batches."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kafkascan._core import layout as _layout, markers as _core, producers as _producers
from kafkascan.batches.columns import BatchTable, is_control
from kafkascan.batches.scan import scan_batches
from kafkascan.batches.screening import CONTROL, screen
from kafkascan.format.errors import STATUS, CorruptBatchError, detached, record_error
from kafkascan.format.layout import BATCH_HEADER_SIZE, COMPRESSION_MASK, LOG_OVERHEAD, NamedCode
from kafkascan.format.schemas.message_decoder import SchemaError
from kafkascan.io.sources import Source, read_bytes
from kafkascan.records.buffers import Gathered
from kafkascan.records.control import ControlRecordType, decode_control_key, decode_control_record
from kafkascan.records.decoding import decode_records, iter_decoded
from kafkascan.records.read_options import ReadOptions
from kafkascan.records.record_table import RecordTable

MARKER = np.asarray(_core.marker_row).dtype
"""An end transaction marker: ``kind`` (0 for ABORT, 1 for COMMIT, or a code below),
``coordinator_epoch`` and ``timestamp``."""

NO_RECORD = _core.NO_RECORD
"""The batch is empty: the cleaner removed the marker, and the transaction before it."""
NO_MARKER = _core.NO_MARKER
"""Another kind of control record, or half of a marker: Kafka refuses to load the log."""
UNREADABLE = _core.UNREADABLE
"""The record cannot be read: for Kafka, the valid part of the log ends there."""

TRANSACTION = np.asarray(_producers.transaction_row).dtype
"""A transaction in one log: ``log`` (index into `Transactions.logs`), ``producer_id``,
``producer_epoch`` and ``state`` (a `TransactionState`); ``first_offset`` and ``last_offset`` of its
records (-1 if it has none), ``marker_offset`` (-1 if it is open), ``last_stable_offset`` of the log
after the marker (-1 if it is open or empty); ``first_timestamp`` and ``last_timestamp`` of its
batches, in milliseconds; ``batches``, ``records`` and ``size_in_bytes`` without the marker; and
``coordinator_epoch`` of the marker. If a transaction began before the log does and is known from a
snapshot, ``first_timestamp`` is -1, and the batches before the log are not counted."""


class TransactionState(NamedCode):
    """State of a transaction in a log."""

    ABORTED = 0
    COMMITTED = 1
    OPEN = 2

    @property
    def display_name(self) -> str:
        """The name in lower case."""
        return self.name.lower()


_WIRE = {name: offset for name, _, offset in _layout.batch_header}
_KEY = np.dtype([("version", ">i2"), ("type", ">i2")])
_VERSION_SIZE, _SIGN = 2, 0x80
_VALUE = np.dtype([("version", ">i2"), ("coordinator_epoch", ">i4")])


@dataclass(frozen=True, eq=False)
class ControlRows:
    """
    The control batches of producers in a table, and their markers.

    Attributes
    ----------
    rows : ndarray of int, shape (n,)
        Rows of the table.
    markers : ndarray of MARKER, shape (n,)
    errors : dict of int to CorruptBatchError
        By index into `rows`: why a record could not be read.
    """

    rows: NDArray[np.intp]
    markers: NDArray[np.void]
    errors: dict[int, CorruptBatchError]

    def between(self, start: int, stop: int) -> ControlRows:
        """Return the control batches of a range of rows, for a table of this range."""
        if not len(self.rows):
            return self
        first, last = np.searchsorted(self.rows, (start, stop)).tolist()
        errors = {at - first: error for at, error in self.errors.items() if first <= at < last}
        return ControlRows(self.rows[first:last] - start, self.markers[first:last], errors)

    @property
    def unread(self) -> NDArray[np.intp]:
        """Indices into `rows` of the batches that contain no marker, or one that cannot be read."""
        return np.flatnonzero(np.isin(self.markers["kind"], (NO_MARKER, UNREADABLE)))

    def error_at(self, index: int, path: str, batch: np.void) -> CorruptBatchError:
        """Return the error of an `unread` batch."""
        return self.errors.get(index) or record_error("NO_END_MARKER", path, batch)


NO_CONTROL = ControlRows(np.empty(0, np.intp), np.empty(0, MARKER), {})


def read_control_rows(source: Source, batches: BatchTable, flags: int | None = None) -> ControlRows:
    """Read the control batches of producers in a table; `flags` are those of `screen`."""
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
    """Return the rows of producers' control batches, and the markers of the usual form."""
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
    Decode the markers of producers' control batches: the first record of each, as Kafka does.

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

    def add_error(error: CorruptBatchError) -> None:
        errors[row_at[error.position]] = detached(error)

    options = ReadOptions(
        columns=("timestamp", "key", "value"), control="only", on_damage=add_error
    )
    for table in iter_decoded(source, batches, options):
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
            if row in errors:
                markers["kind"][row] = UNREADABLE
    return markers, errors


def _first_record(source: Source, batch: np.void) -> RecordTable | None:
    """Decode only the first record of a damaged batch; None if it cannot be decoded alone."""
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
        options = ReadOptions(columns=("timestamp", "key", "value"), control="only")
        return decode_records(alone, scan_batches(alone).batches, options)
    except CorruptBatchError:
        return None


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a varint and the position after it; -1 if it is not valid."""
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
    """Decode records: those of the usual sizes together, the others one by one."""
    found = np.zeros(len(records), MARKER)
    found["timestamp"] = records.columns["timestamp"]
    keys, values = records.gathered("key"), records.gathered("value")
    usual = (np.diff(keys.starts) == _KEY.itemsize) & (np.diff(values.starts) == _VALUE.itemsize)
    alike = np.flatnonzero(usual)
    key, value = _take_items(keys, alike, _KEY), _take_items(values, alike, _VALUE)
    known = np.isin(key["type"], (ControlRecordType.ABORT, ControlRecordType.COMMIT))
    usual[alike] = known & (key["version"] >= 0) & (value["version"] >= 0)
    found["kind"][alike] = key["type"].astype(np.int8)
    found["coordinator_epoch"][alike] = value["coordinator_epoch"]
    for row in np.flatnonzero(~usual).tolist():
        try:
            found[["kind", "coordinator_epoch"]][row] = _decode_one(
                records[row].key, records[row].value
            )
        except SchemaError as error:
            batch = records.batches[records.columns["batch"][row]]
            errors[int(rows[row])] = record_error(
                "BAD_CONTROL_RECORD", source.path, batch, str(error)
            )
    return found


def _take_items(values: Gathered, rows: NDArray[np.intp], dtype: np.dtype[Any]) -> NDArray[np.void]:
    """Return the values of some rows, each as long as an item of `dtype`."""
    data = values.data
    if len(rows) < len(values.starts) - 1:
        data = data[values.starts[rows][:, np.newaxis] + np.arange(dtype.itemsize)].ravel()
    found: NDArray[np.void] = data.view(dtype)
    return found


def _decode_one(key: bytes | None, value: bytes | None) -> tuple[int, int]:
    if key is None:
        return NO_MARKER, -1  # Kafka throws a NullPointerException, here and below
    kind, _, _ = decode_control_key(key)
    if kind not in (ControlRecordType.ABORT, ControlRecordType.COMMIT) or value is None:
        return NO_MARKER, -1
    try:
        _, _, _, marker = decode_control_record(key, value)
    except SchemaError:
        if len(value) >= _VERSION_SIZE and value[0] & _SIGN:
            raise
        return NO_MARKER, -1  # too short: a BufferUnderflowException
    assert marker is not None
    return kind.value, marker["coordinator_epoch"]
