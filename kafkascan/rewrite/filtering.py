"""Drop records from batches, with the rules of a broker's log cleaner."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kafkascan.batches.columns import (
    BatchTable,
    is_control,
    require_batch_table,
    size_in_bytes,
)
from kafkascan.batches.scan import scan_batches
from kafkascan.format.times import TimeLike, to_milliseconds
from kafkascan.io.sources import Source, SourceLike, borrowed_source
from kafkascan.records.decoding import decode_first
from kafkascan.records.read_options import DEFAULT_MAX_DECOMPRESSED_SIZE, ReadOptions
from kafkascan.records.record_table import RecordTable
from kafkascan.rewrite.batch_stream import Buffer, merge_in_order, plan_records, verified_groups
from kafkascan.rewrite.retention import BatchRetention, BatchRetentionPlan, plan_retention
from kafkascan.write.batch_encoder import iter_encoded_batches

Keep: TypeAlias = Callable[[RecordTable], NDArray[np.bool_]] | NDArray[np.bool_]
"""A mask over all records, or a function that returns the mask of a table of records."""

Item = TypeVar("Item", bound=np.generic)

OfBatches: TypeAlias = Callable[[BatchTable], NDArray[Item]]
"""A function of the next batches that returns a value for each of them."""

_COLUMNS = ("offset", "timestamp", "key", "value", "headers")


@dataclass
class FilterReport:
    """
    Counts of a filter.

    Attributes
    ----------
    batches : int
        Batches that were read.
    copied, rewritten, emptied, dropped : int
        Batches that were copied, that were encoded again, that were reduced to their headers,
        and that were dropped.
    records, kept_records : int
        Records that were read, and those that were kept; both include control records.
    size, kept_size : int
        Bytes of the batches before and after.
    dropped_offsets : ndarray of int64
        Offsets of the dropped records, in order. Records of batches that were dropped unread
        (`BatchRetention.DELETE`) are missing.
    """

    batches: int = 0
    copied: int = 0
    rewritten: int = 0
    emptied: int = 0
    dropped: int = 0
    records: int = 0
    kept_records: int = 0
    size: int = 0
    kept_size: int = 0
    dropped_offsets: NDArray[np.int64] = field(
        default_factory=lambda: np.empty(0, np.int64), repr=False
    )


@dataclass(frozen=True)
class FilteredRecords:
    """
    Filtered batches; returned by `filter_records`.

    Attributes
    ----------
    data : bytes
        The remaining batches.
    report : FilterReport
    """

    data: bytes
    report: FilterReport

    def __repr__(self) -> str:
        return f"<FilteredRecords: {len(self.data):,} bytes, {self.report}>"


def filter_records(
    source: SourceLike,
    batches: BatchTable | None = None,
    /,
    *,
    keep: Keep,
    retention: ArrayLike | None = None,
    new_delete_horizon_ms: TimeLike | None = None,
    ends_empty_transaction: ArrayLike | None = None,
    threads: int | None = None,
    max_decompressed_size: int = DEFAULT_MAX_DECOMPRESSED_SIZE,
) -> FilteredRecords:
    """
    Drop records from batches, as compaction does.

    A batch keeps its first and last offset, its producer's sequence numbers and its codec.
    Batches that lose no record are copied. Messages of magic 0 and 1 become batches of magic 2,
    as in brokers since Kafka 4.

    Parameters
    ----------
    source : path, bytes-like, Source or SegmentFile
    batches : array of BATCH_DTYPE, optional
        Rows of the source, in offset order; all of it by default.
    keep : mask or callable
        Which records to keep. A mask of bool covers all records, as `read_records` returns them,
        except those of batches that are dropped unread (`BatchRetention.DELETE`). A callable
        gets tables of a bounded number of records, with their offset, timestamp, key, value and
        headers, and returns a mask over each. Control records are always kept; `keep` does not
        cover them.
    retention : BatchRetention, or array of it of shape (n,), optional
        What to do with batches that end up empty. By default the last batch of each producer
        and the last batch of the log keep their headers, and other empty batches are dropped.
    new_delete_horizon_ms : int, datetime, numpy.datetime64 or str, optional
        Set this delete horizon (KIP-534) on batches that have none and keep a tombstone, as the
        cleaner does: milliseconds since the epoch, the current time plus the topic's
        ``delete.retention.ms``. By default no horizon is set.
    ends_empty_transaction : array of bool, shape (n,), optional
        Control batches of transactions without remaining records: they get the horizon, too.
    threads : int, optional
        See `read_records`.
    max_decompressed_size : int, default 256 MiB
        See `read_records`.

    Returns
    -------
    FilteredRecords

    Raises
    ------
    ValueError
        If a mask does not fit the records, or `retention` keeps the header of an empty message.
    ChecksumMismatchError
        If a checksum is wrong: damaged batches do not get a new checksum.
    As `read_records`.

    Notes
    -----
    Where nothing is compressed, the result is byte for byte that of ``MemoryRecords.filterTo``
    of Kafka 4.4. The default of `retention` is the rule of its ``Cleaner``. By default, the
    header of an empty message of magic 0 or 1 is kept as an empty batch of magic 2, where
    ``filterTo`` refuses it.
    """
    options = FilterOptions(
        keep=keep,
        new_delete_horizon_ms=None
        if new_delete_horizon_ms is None
        else to_milliseconds(new_delete_horizon_ms, "new_delete_horizon_ms", rounds_up=False),
        threads=threads,
        max_decompressed_size=max_decompressed_size,
    )
    report = FilterReport()
    with borrowed_source(source, close=False) as owner:
        batches = scan_batches(owner).batches if batches is None else require_batch_table(batches)
        rules = (
            default_retention([batches])
            if retention is None
            else _given_retention(batches, retention)
        )
        ends_empty = False if ends_empty_transaction is None else ends_empty_transaction
        are_empty_ends = _BatchValues(
            np.broadcast_to(np.asarray(ends_empty, np.bool_), len(batches))
        )
        data = b"".join(iter_filtered(owner, [batches], options, report, rules, are_empty_ends))
    return FilteredRecords(data, report)


@dataclass(frozen=True, kw_only=True)
class FilterOptions:
    """Options of `filter_records`."""

    keep: Keep
    new_delete_horizon_ms: int | None = None
    threads: int | None = None
    max_decompressed_size: int = DEFAULT_MAX_DECOMPRESSED_SIZE

    def __post_init__(self) -> None:
        if not callable(self.keep):
            _require_mask(self.keep)


def iter_filtered(
    source: Source,
    tables: Iterable[BatchTable],
    options: FilterOptions,
    report: FilterReport,
    retention: OfBatches[np.int8],
    ends_empty: OfBatches[np.bool_],
) -> Iterator[Buffer]:
    """
    Filter batches in bounded memory.

    Parameters
    ----------
    source : Source
    tables : iterable of arrays of BATCH_DTYPE
        Its batches, in order.
    options : FilterOptions
    report : FilterReport
        Counts what has been yielded so far; `dropped_offsets` is set at the end.
    retention, ends_empty : callable
        Return a `BatchRetention`, and whether it ends an empty transaction, of each of the next
        batches.

    Yields
    ------
    bytes-like
        The new log, in order.
    """
    keep = _KeepMask(options.keep)
    decoding = ReadOptions(columns=_COLUMNS, max_decompressed_size=options.max_decompressed_size)
    dropped: list[NDArray[np.int64]] = []
    for group in verified_groups(source, tables, options.threads):
        report.batches += len(group)
        report.size += int(size_in_bytes(group).sum())
        rules, are_empty_ends = retention(group), ends_empty(group)
        is_read = rules != BatchRetention.DELETE
        report.dropped += int(np.count_nonzero(~is_read))
        rows = np.flatnonzero(is_read)
        while len(rows):
            records = decode_first(source, group.take(rows), decoding)
            done, rows = np.split(rows, [len(records.batches)])
            is_kept = keep.mask(records)
            plan = plan_retention(
                records, is_kept, rules[done], options.new_delete_horizon_ms, are_empty_ends[done]
            )
            _count(plan, report)
            dropped.append(records.columns["offset"][~is_kept])
            for data in _iter_kept(source, plan):
                report.kept_size += len(data)
                yield data
    keep.require_all_used()
    report.dropped_offsets = np.concatenate([report.dropped_offsets, *dropped])


def _count(plan: BatchRetentionPlan, report: FilterReport) -> None:
    report.copied += int(np.count_nonzero(plan.is_copied))
    report.rewritten += int(np.count_nonzero(plan.is_rewritten))
    report.emptied += int(np.count_nonzero(plan.is_emptied))
    report.dropped += int(np.count_nonzero(plan.is_dropped))
    report.records += len(plan.records)
    report.kept_records += int(np.count_nonzero(plan.is_kept))


def _iter_kept(source: Source, plan: BatchRetentionPlan) -> Iterator[Buffer]:
    """Yield the batches that remain."""
    records = plan.records
    is_encoded = plan.is_rewritten | plan.is_emptied
    kept = np.flatnonzero(plan.is_kept & plan.is_rewritten[records.columns["batch"]])
    encoded = iter_encoded_batches(
        plan_records(records[kept], plan.new_rows()[is_encoded], plan.kept[is_encoded])
    )
    return merge_in_order(
        source, records.batches, plan.is_copied, is_encoded.astype(np.int64), encoded
    )


class _KeepMask:
    """Evaluates `keep` for one table after the other, and checks the masks."""

    def __init__(self, keep: Keep) -> None:
        self._keep = keep
        self._used = 0

    def mask(self, records: RecordTable) -> NDArray[np.bool_]:
        """Return a mask over the records of a table; control records are kept."""
        is_data = ~is_control(records.batches)[records.columns["batch"]]
        data = records if is_data.all() else records[np.flatnonzero(is_data)]
        mask = np.ones(len(records), np.bool_)
        if callable(self._keep):
            kept = self._keep(data) if len(data) else np.empty(0, np.bool_)
        else:
            kept = self._keep[self._used : self._used + len(data)]
        _require_mask(kept, len(data))
        self._used += len(data)
        mask[is_data] = kept
        return mask

    def require_all_used(self) -> None:
        """Raise if a mask is longer than there are records."""
        if not callable(self._keep) and self._used != len(self._keep):
            raise ValueError(
                f"the mask has {len(self._keep)} values, but there are {self._used} records"
            )


def _require_mask(mask: object, count: int | None = None) -> None:
    if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_ or mask.ndim != 1:
        raise ValueError("keep must be, or return, a one-dimensional array of bool")
    if count is not None and len(mask) != count:
        raise ValueError(f"the mask has {len(mask)} values, but there are {count} records")


class _BatchValues(Generic[Item]):
    """Values that were given for each batch of a table, in its order."""

    def __init__(self, values: NDArray[Item]) -> None:
        self._values = values
        self._used = 0

    def __call__(self, batches: BatchTable) -> NDArray[Item]:
        """Return the values of the next batches."""
        first, self._used = self._used, self._used + len(batches)
        return self._values[first : self._used]


def _given_retention(batches: BatchTable, given: ArrayLike) -> OfBatches[np.int8]:
    values = np.asarray(given)
    if not np.isin(values, list(BatchRetention)).all():
        raise ValueError("retention must be of BatchRetention")
    result = np.broadcast_to(values.astype(np.int8), (len(batches),))
    is_kept = result == BatchRetention.RETAIN_EMPTY
    if (is_kept & (batches["magic"] < 2)).any():
        raise ValueError("Empty batches are only supported for magic v2 and above")
    return _BatchValues(result)


def no_batch(batches: BatchTable) -> NDArray[np.bool_]:
    """Return a mask of none of the batches."""
    return np.zeros(len(batches), np.bool_)


def default_retention(tables: Iterable[BatchTable]) -> OfBatches[np.int8]:
    """
    Return the rule of the cleaner: keep each producer's last sequence and the log end.

    Parameters
    ----------
    tables : iterable of arrays of BATCH_DTYPE
        All batches of the log, in order.
    """
    last_positions: dict[tuple[bool, int] | None, int] = {}
    for batches in tables:
        for is_marker in (False, True):
            of_producer = (batches["producer_id"] >= 0) & (is_control(batches) == is_marker)
            rows = np.flatnonzero(of_producer)[::-1]
            producers, last = np.unique(batches["producer_id"][rows], return_index=True)
            positions = batches["position"][rows[last]].tolist()
            keys = ((is_marker, producer) for producer in producers.tolist())
            last_positions.update(zip(keys, positions, strict=True))
        if len(batches):
            last_positions[None] = int(batches["position"][-1])
    retained = np.unique(np.array([*last_positions.values()], np.int64))

    def rule(batches: BatchTable) -> NDArray[np.int8]:
        is_retained = np.isin(batches["position"], retained)
        rules = np.where(is_retained, BatchRetention.RETAIN_EMPTY, BatchRetention.DELETE_EMPTY)
        return rules.astype(np.int8)

    return rule
