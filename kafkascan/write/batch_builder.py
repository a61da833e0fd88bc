"""Build one batch record by record, with the rules of Kafka's ``MemoryRecordsBuilder``."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from kafkascan._core import record_columns as _core
from kafkascan.format.errors import STATUS, RecordInputError
from kafkascan.format.layout import (
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    CompressionType,
    TimestampType,
)
from kafkascan.format.times import TimeLike, to_milliseconds
from kafkascan.records.control import ControlRecordType, encode_control_record
from kafkascan.write.batch_encoder import BatchPlan, encode_batches, measure_batches
from kafkascan.write.batch_planning import BatchFields, require_number
from kafkascan.write.record_columns import columns_of

_MAX_INT = 2**31 - 1
_MAX_LONG = 2**63 - 1
# As Kafka, expect output that is larger than estimated by this factor.
_ESTIMATION_FACTOR = np.float32(1.05)

BytesLike: TypeAlias = bytes | bytearray | memoryview | str | None
"""A key or value; text is encoded as UTF-8."""

HeadersLike: TypeAlias = Iterable[tuple[Any, Any]] | Mapping[Any, Any]
"""Headers of a record: pairs of key and value, or a mapping; each a `BytesLike`."""


class RecordsInfo(NamedTuple):
    """
    The entry that an append of the batch adds to the time index (``MemoryRecordsBuilder.info``).

    Attributes
    ----------
    max_timestamp : int
    shallow_offset_of_max_timestamp : int
        The last offset of the first batch with this timestamp; -1 if no record has a timestamp.
    """

    max_timestamp: int
    shallow_offset_of_max_timestamp: int


class BatchBuilder:
    """
    Builds one batch, or uncompressed messages of magic 0 or 1, record by record.

    Parameters
    ----------
    magic : int, default 2
    compression_type : CompressionType or str or int, default NONE
    compression_level : int, optional
        By default Kafka's default for the codec: -1 for gzip, 9 for lz4, 3 for zstd.
    timestamp_type : TimestampType, default CREATE_TIME
    base_offset : int, default 0
    log_append_time : int, default -1
        Timestamp of all records with LOG_APPEND_TIME, in milliseconds since the epoch.
    producer_id, producer_epoch, base_sequence : int, default -1
    is_transactional, is_control : bool, default False
    partition_leader_epoch : int, default -1
    delete_horizon_ms : int, optional
        Delete horizon of a compacted batch with tombstones or markers (KIP-534).
    write_limit : int, default 2**31 - 1
        Bytes that the batch should not exceed; `has_room_for` and `is_full` compare with it.
    estimated_compression_ratio : float, default 1.0
        Compression ratio that `has_room_for` assumes.

    Raises
    ------
    ValueError
        If the fields contradict each other, as in ``MemoryRecordsBuilder``.
    """

    def __init__(
        self,
        *,
        magic: int = 2,
        compression_type: CompressionType | str | int = CompressionType.NONE,
        compression_level: int | None = None,
        timestamp_type: TimestampType | int = TimestampType.CREATE_TIME,
        base_offset: int = 0,
        log_append_time: int = NO_TIMESTAMP,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        is_transactional: bool = False,
        is_control: bool = False,
        partition_leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
        delete_horizon_ms: int | None = None,
        write_limit: int = _MAX_INT,
        estimated_compression_ratio: float = 1.0,
    ) -> None:
        self._fields = BatchFields(
            magic=magic,
            compression_type=compression_type,
            compression_level=compression_level,
            timestamp_type=timestamp_type,
            log_append_time=log_append_time,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            is_transactional=is_transactional,
            is_control=is_control,
            partition_leader_epoch=partition_leader_epoch,
            delete_horizon_ms=delete_horizon_ms,
        )
        require_number("base_offset", base_offset, 64, least=0)
        self.base_offset = base_offset
        self.write_limit = write_limit
        self.estimated_compression_ratio = estimated_compression_ratio
        self._header_size = _core.size_before_records(magic, self._fields.is_compressed)
        self._offsets: list[int] = []
        self._timestamps: list[int] = []
        self._keys: list[bytes | None] = []
        self._values: list[bytes | None] = []
        self._headers: list[list[tuple[bytes, bytes | None]]] = []
        self._records_size = 0
        self._base_timestamp = self._fields.delete_horizon_ms
        self._max_timestamp = NO_TIMESTAMP
        self._offset_of_max_timestamp = -1
        self._last_offset: int | None = None
        self._built: bytes | None = None

    # ---- state ---------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def next_offset(self) -> int:
        """The default offset of the next record."""
        return self.base_offset if self._last_offset is None else self._last_offset + 1

    @property
    def uncompressed_size(self) -> int:
        """Bytes of the header and of the records before compression."""
        return self._header_size + self._records_size

    @property
    def estimated_size(self) -> int:
        """Estimated bytes of the batch; the exact number after `build`."""
        return self._estimate() if self._built is None else len(self._built)

    @property
    def is_full(self) -> bool:
        """Whether the batch is built, or its estimated size has reached `write_limit`."""
        if self._built is not None:
            return True
        return bool(self._offsets) and self.write_limit <= self._estimate()

    @property
    def info(self) -> RecordsInfo:
        """The entry that an append of the batch adds to the time index."""
        is_one_batch = self._fields.is_compressed or self._fields.magic == 2
        last = -1 if self._last_offset is None else self._last_offset
        if self._fields.timestamp_type == TimestampType.LOG_APPEND_TIME:
            shallow = last if is_one_batch else self.base_offset
            return RecordsInfo(self._fields.log_append_time, shallow)
        if self._max_timestamp == NO_TIMESTAMP:
            return RecordsInfo(NO_TIMESTAMP, -1)
        return RecordsInfo(
            self._max_timestamp, last if is_one_batch else self._offset_of_max_timestamp
        )

    def has_room_for(
        self, timestamp: TimeLike, key: BytesLike, value: BytesLike, headers: HeadersLike = ()
    ) -> bool:
        """Whether the batch with this record is estimated to fit; the first record always fits."""
        if self.is_full:
            return False
        if not self._offsets:
            return True
        time, items = _milliseconds(timestamp), (_as_bytes(key), _as_bytes(value))
        size = self._size_of(self.next_offset, time, *items, _as_pairs(headers))
        return self.write_limit >= self._estimate() + size

    def _estimate(self) -> int:
        if not self._fields.is_compressed:
            return self._header_size + self._records_size
        ratio = np.float32(self.estimated_compression_ratio)
        expected = np.float32(self._records_size) * ratio * _ESTIMATION_FACTOR
        return self._header_size + min(int(expected), _MAX_INT)

    def _size_of(
        self,
        offset: int,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: list[tuple[bytes, bytes | None]],
    ) -> int:
        base = timestamp if self._base_timestamp is None else self._base_timestamp
        sizes = [_size(item) for pair in headers for item in pair]
        return _core.size_of_record(
            self._fields.magic, timestamp, base, offset - self.base_offset,
            _size(key), _size(value), sizes,
        )  # fmt: skip

    # ---- append --------------------------------------------------------------------------

    def append(
        self,
        timestamp: TimeLike,
        key: BytesLike,
        value: BytesLike,
        headers: HeadersLike = (),
        *,
        offset: int | None = None,
    ) -> int:
        """
        Add a record.

        Parameters
        ----------
        timestamp : int, datetime, numpy.datetime64 or str
            Milliseconds since the epoch or -1, or a time (UTC without a zone).
        key, value : bytes-like or str or None
            None is null; a str is written as UTF-8.
        headers : iterable of (key, value), or mapping
        offset : int, optional
            Must exceed the last one; by default `next_offset`.

        Returns
        -------
        int
            The record's offset.

        Raises
        ------
        RecordInputError
            If the record cannot be written: the offset does not exceed the last one, is out of
            range or 2**31 away from the base offset, the timestamp is below -1 or exceeds
            2**63 - 1, a header key is null, the batch would exceed 2**31 - 1 bytes, or a record
            of magic 0 or 1 has headers.
        ValueError
            If the batch is a control batch, or is built already.
        """
        if self._fields.is_control:
            raise ValueError("a control batch contains control records only")
        time = _milliseconds(timestamp)
        return self._append(offset, time, _as_bytes(key), _as_bytes(value), _as_pairs(headers))

    def append_control_record(
        self,
        timestamp: TimeLike,
        kind: ControlRecordType,
        value: Mapping[str, Any] | bytes,
        *,
        offset: int | None = None,
    ) -> int:
        """
        Add a control record.

        Parameters
        ----------
        timestamp : int
        kind : ControlRecordType
            ABORT or COMMIT, which end a transaction, or a type of KRaft's control records.
        value : mapping or bytes
            The message as `decode_control_record` returns it, such as
            ``{"coordinator_epoch": 3}``, or its bytes.
        offset : int, optional

        Returns
        -------
        int
            The record's offset.

        Raises
        ------
        ValueError
            If the batch is not a control batch, lacks the producer that a marker needs or the
            leader epoch that a LEADER_CHANGE record needs, or the message does not fit the type.
        As `append`.
        """
        if not self._fields.is_control:
            raise ValueError("control records need is_control=True")
        self._require_context(kind)
        key, data = encode_control_record(kind, value)
        return self._append(offset, _milliseconds(timestamp), key, data, [])

    def _require_context(self, kind: ControlRecordType) -> None:
        if kind in (ControlRecordType.ABORT, ControlRecordType.COMMIT):
            if self._fields.producer_id == NO_PRODUCER_ID:
                raise ValueError("a transaction marker needs a producer_id")
            if not self._fields.is_transactional:
                raise ValueError("a transaction marker needs is_transactional=True")
        if kind is ControlRecordType.LEADER_CHANGE and self._fields.partition_leader_epoch < 0:
            raise ValueError("a LEADER_CHANGE record needs a partition_leader_epoch")

    def _append(
        self,
        offset: int | None,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: list[tuple[bytes, bytes | None]],
    ) -> int:
        if self._built is not None:
            raise ValueError("the batch is already built")
        offset = self.next_offset if offset is None else offset
        self._require_writable(offset, timestamp, headers)
        size = self._size_of(offset, timestamp, key, value, headers)
        if size > _MAX_INT - self._header_size - self._records_size:
            raise self._refused("RECORD_TOO_LARGE")
        self._offsets.append(offset)
        self._timestamps.append(timestamp)
        self._keys.append(key)
        self._values.append(value)
        self._headers.append(headers)
        self._records_size += size
        self._last_offset = offset
        if self._base_timestamp is None:
            self._base_timestamp = timestamp
        self._update_max_timestamp(offset, timestamp)
        return offset

    def _update_max_timestamp(self, offset: int, timestamp: int) -> None:
        is_append_time = self._fields.timestamp_type == TimestampType.LOG_APPEND_TIME
        if self._fields.magic < 2 and is_append_time:
            timestamp = self._fields.log_append_time
        if self._fields.magic > 0 and timestamp > self._max_timestamp:
            self._max_timestamp, self._offset_of_max_timestamp = timestamp, offset

    def _require_writable(
        self, offset: int, timestamp: int, headers: list[tuple[bytes, bytes | None]]
    ) -> None:
        if self._last_offset is not None and offset <= self._last_offset:
            raise self._refused("OFFSET_NOT_ABOVE")
        self._require_offset(offset)
        if timestamp < NO_TIMESTAMP:
            raise self._refused("NEGATIVE_TIMESTAMP")
        if timestamp > _MAX_LONG:
            raise self._refused("TIMESTAMP_TOO_LARGE")
        if self._fields.magic < 2 and headers:
            raise self._refused("HEADERS_NOT_SUPPORTED")
        if any(key is None for key, _ in headers):
            raise self._refused("NULL_HEADER_KEY")

    def _require_offset(self, offset: int) -> None:
        if not 0 <= offset < _MAX_LONG:
            raise self._refused("OFFSET_OUT_OF_RANGE")
        if not -_MAX_INT <= offset - self.base_offset <= _MAX_INT:
            raise self._refused("OFFSET_DELTA_TOO_LARGE")

    def _refused(self, symbol: str) -> RecordInputError:
        return RecordInputError(len(self), STATUS[symbol])

    def set_producer_state(
        self, producer_id: int, producer_epoch: int, base_sequence: int, is_transactional: bool
    ) -> None:
        """Set the producer of the batch, before it is built."""
        if self._built is not None:
            raise ValueError("the batch is already built")
        self._fields = dataclasses.replace(
            self._fields,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            is_transactional=is_transactional,
        )

    def override_last_offset(self, offset: int) -> None:
        """
        Set a last offset that differs from the last record's, as compaction does.

        Raises
        ------
        RecordInputError
            If the offset is out of range, or 2**31 away from the base offset.
        ValueError
            If the batch is already built.
        """
        if self._built is not None:
            raise ValueError("the batch is already built")
        self._require_offset(offset)
        self._last_offset = offset

    # ---- build ---------------------------------------------------------------------------

    def build(self) -> bytes:
        """
        Encode the batch; records can no longer be added.

        Returns
        -------
        bytes
            Empty if there is no record.

        Raises
        ------
        ValueError
            If a transaction has no producer, a producer has no epoch or sequence, or the format
            does not support producers.
        """
        if self._built is None:
            self._fields.require_producer()
            self._built = encode_batches(self._plan()).data if self._offsets else b""
        return self._built

    def _plan(self) -> BatchPlan:
        records = columns_of(
            np.array(self._offsets, np.int64),
            np.array(self._timestamps, np.int64),
            self._keys,
            self._values,
            self._headers if any(self._headers) else None,
        )
        is_one_batch = self._fields.is_compressed or self._fields.magic == 2
        count = len(records)
        starts = np.array([0, count]) if is_one_batch else np.arange(count + 1)
        rows = self._fields.rows(records, starts)
        if is_one_batch:
            assert self._last_offset is not None
            rows["base_offset"] = self.base_offset
            rows["last_offset_delta"] = self._last_offset - self.base_offset
        sizes = measure_batches(records, rows, starts)
        return BatchPlan(records, rows, starts, sizes, self._fields.compression_level)


def _milliseconds(time: TimeLike) -> int:
    return time if isinstance(time, int) else to_milliseconds(time, "timestamp", rounds_up=False)


def _as_bytes(item: BytesLike) -> bytes | None:
    if item is None or type(item) is bytes:
        return item
    return item.encode() if isinstance(item, str) else bytes(item)


def _as_pairs(headers: HeadersLike) -> list[tuple[bytes, bytes | None]]:
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    # `append` refuses null keys later, with a RecordInputError.
    return [(_as_bytes(key), _as_bytes(value)) for key, value in pairs]  # type: ignore[misc]


def _size(item: bytes | None) -> int:
    return -1 if item is None else len(item)
