"""Records dropped from batches, by the rules that a broker's cleaner has for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kafkascan.batch_columns import (
    BatchTable,
    is_control,
    require_batch_table,
    size_in_bytes,
)
from kafkascan.batch_fates import BatchFates, BatchRetention
from kafkascan.batches import scan_batches
from kafkascan.codecs import DEFAULT_MAX_DECOMPRESSED_SIZE
from kafkascan.decoding import decode_first
from kafkascan.record_table import RecordTable
from kafkascan.rewriting import Buffer, encoded, in_order, sound_groups
from kafkascan.sources import Source, SourceLike, borrowed_source

Keep: TypeAlias = "Callable[[RecordTable], NDArray[np.bool_]] | NDArray[np.bool_]"
"""Which records stay: a mask over all of them, or what gives one for each table of some."""

_COLUMNS = ("offset", "timestamp", "key", "value", "headers")


@dataclass
class FilterReport:
    """
    What was dropped, and what was kept.

    Attributes
    ----------
    batches, copied, rewritten, emptied, dropped : int
        Batches that were read; those of them that stayed as they were, were written anew, of
        which the header alone is left, and of which nothing is.
    records, kept_records : int
        Records that were read, control records included, and those of them that were kept.
    size, kept_size : int
        Bytes of the batches before and after.
    dropped_offsets : ndarray of int64
        Of the records that were dropped, in their order; not of those in batches that went
        without being read (`BatchRetention.DELETE`).
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
    dropped_offsets: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))


@dataclass(frozen=True)
class FilteredRecords:
    """
    A log without some of its records.

    Attributes
    ----------
    data : bytes
        The batches that are left, one behind the other.
    report : FilterReport
    """

    data: bytes
    report: FilterReport


def filter_records(
    source: SourceLike,
    batches: BatchTable | None = None,
    /,
    *,
    keep: Keep,
    retention: ArrayLike | None = None,
    new_delete_horizon_ms: int | None = None,
    ends_empty_transaction: ArrayLike | None = None,
    threads: int | None = None,
    max_decompressed_size: int = DEFAULT_MAX_DECOMPRESSED_SIZE,
) -> FilteredRecords:
    """
    Drop records from batches, as compaction does.

    A batch keeps its first and last offset, its producer's sequence numbers and its codec;
    batches that lose nothing are copied as they are. Messages of magic 0 and 1 become batches
    of magic 2, as brokers do it since Kafka 4.

    Parameters
    ----------
    source : path, bytes-like, Source or Segment
    batches : array of BATCH_DTYPE, optional
        Rows of the source, in offset order; all of it by default.
    keep : mask or callable
        Which records stay. A mask of bool is over all of them, as `read_records` gives them, but
        for those in batches that go unread (`BatchRetention.DELETE`). A callable gets tables of
        some records at a time, with their offset, timestamp, key, value and headers, and
        returns a mask over each. Control records are not asked about: they stay.
    retention : BatchRetention, or array of it of shape (n,), optional
        What becomes of batches that end up empty. By default the last batch of each producer
        and the last of all stay as headers, the others go.
    new_delete_horizon_ms : int, optional
        Set this horizon (KIP-534) on batches that have none and keep a tombstone, as the
        cleaner does: milliseconds since the epoch, now and the topic's ``delete.retention.ms``.
        By default no horizon is set.
    ends_empty_transaction : array of bool, shape (n,), optional
        Control batches of transactions that have no records left: they get the horizon, too.
    threads : int, optional
        As of `read_records`.
    max_decompressed_size : int, default 256 MiB
        As of `read_records`.

    Returns
    -------
    FilteredRecords

    Raises
    ------
    ValueError
        If a mask does not fit the records, or `retention` keeps the header of an empty message.
    ChecksumMismatchError
        If a checksum is wrong: what is damaged is not signed anew.
    As `read_records`.

    Notes
    -----
    ``MemoryRecords.filterTo`` of Kafka 4.4: its bytes, where nothing is compressed. The default
    of `retention` is the rule of its ``Cleaner``. Where that one would refuse, the empty header
    of a message of magic 0 or 1 is one of magic 2.
    """
    with borrowed_source(source, close=False) as owner:
        if batches is None:
            batches = scan_batches(owner).batches
        job = RecordFilter(
            owner, batches, keep=keep, retention=retention,
            new_delete_horizon_ms=new_delete_horizon_ms,
            ends_empty_transaction=ends_empty_transaction, threads=threads,
            max_decompressed_size=max_decompressed_size,
        )  # fmt: skip
        data = b"".join(job)
    return FilteredRecords(data, job.report)


class RecordFilter:
    """
    The batches that are left when records are dropped, piece by piece.

    Parameters
    ----------
    As of `filter_records`.

    Attributes
    ----------
    report : FilterReport
        Of what was yielded so far.
    """

    def __init__(
        self,
        source: Source,
        batches: BatchTable,
        *,
        keep: Keep,
        retention: ArrayLike | None = None,
        new_delete_horizon_ms: int | None = None,
        ends_empty_transaction: ArrayLike | None = None,
        threads: int | None = None,
        max_decompressed_size: int = DEFAULT_MAX_DECOMPRESSED_SIZE,
    ) -> None:
        self._source, self._batches = source, require_batch_table(batches)
        count = len(self._batches)
        self._keep = _Asked(keep)
        self._retention = _retentions(self._batches, retention)
        self._horizon = new_delete_horizon_ms
        ends = False if ends_empty_transaction is None else ends_empty_transaction
        self._ends_empty = np.broadcast_to(np.asarray(ends, np.bool_), (count,))
        self._threads, self._max_size = threads, max_decompressed_size
        self._dropped: list[NDArray[np.int64]] = []
        self.report = FilterReport()

    def __iter__(self) -> Iterator[Buffer]:
        self.report.batches = len(self._batches)
        self.report.size = int(size_in_bytes(self._batches).sum())
        for part in sound_groups(self._source, self._batches, self._threads):
            for piece in self._filtered(part):
                self.report.kept_size += len(piece)
                yield piece
        self._keep.require_all_used()
        self.report.dropped_offsets = np.concatenate([np.empty(0, np.int64), *self._dropped])

    def _filtered(self, part: slice) -> Iterator[Buffer]:
        is_read = self._retention[part] != BatchRetention.DELETE
        self.report.dropped += int(np.count_nonzero(~is_read))
        chosen = np.flatnonzero(is_read) + part.start
        while len(chosen):
            records = decode_first(
                self._source, self._batches.take(chosen), columns=_COLUMNS,
                max_decompressed_size=self._max_size,
            )  # fmt: skip
            count = len(records.batches)
            yield from self._kept(chosen[:count], records)
            chosen = chosen[count:]

    def _kept(self, chosen: NDArray[np.intp], records: RecordTable) -> Iterator[Buffer]:
        rows, kept = records.batches, self._keep.mask(records)
        fates = BatchFates(
            records, kept, self._retention[chosen], self._horizon, self._ends_empty[chosen]
        )
        self._count(fates, records, kept)
        is_written = fates.is_rewritten | fates.is_emptied
        written = encoded(
            records[np.flatnonzero(kept & fates.is_rewritten[records.columns["batch"]])],
            fates.new_rows()[is_written],
            fates.kept[is_written],
        )
        yield from in_order(
            self._source, rows, fates.is_copied, is_written.astype(np.int64), iter(written)
        )

    def _count(self, fates: BatchFates, records: RecordTable, kept: NDArray[np.bool_]) -> None:
        report = self.report
        report.copied += int(np.count_nonzero(fates.is_copied))
        report.rewritten += int(np.count_nonzero(fates.is_rewritten))
        report.emptied += int(np.count_nonzero(fates.is_emptied))
        report.dropped += int(np.count_nonzero(fates.is_dropped))
        report.records += len(records)
        report.kept_records += int(np.count_nonzero(kept))
        self._dropped.append(records.columns["offset"][~kept])


class _Asked:
    """Asks which records stay, and checks the answers."""

    def __init__(self, keep: Keep) -> None:
        self._keep = keep
        self._used = 0
        if not callable(keep):
            _require_mask(keep, None)

    def mask(self, records: RecordTable) -> NDArray[np.bool_]:
        """Return a mask over the records of a table; control records stay."""
        is_data = ~is_control(records.batches)[records.columns["batch"]]
        asked = records if is_data.all() else records[np.flatnonzero(is_data)]
        mask = np.ones(len(records), np.bool_)
        if callable(self._keep):
            answer = self._keep(asked) if len(asked) else np.empty(0, np.bool_)
        else:
            answer = self._keep[self._used : self._used + len(asked)]
        _require_mask(answer, len(asked))
        self._used += len(asked)
        mask[is_data] = answer
        return mask

    def require_all_used(self) -> None:
        """Raise if a mask is longer than there are records."""
        if not callable(self._keep) and self._used != len(self._keep):
            raise ValueError(
                f"the mask is of {len(self._keep)} records, but there are {self._used}"
            )


def _require_mask(mask: object, count: int | None) -> None:
    if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_ or mask.ndim != 1:
        raise ValueError("which records to keep is said by a one-dimensional array of bool")
    if count is not None and len(mask) != count:
        raise ValueError(f"the mask is of {len(mask)} records, but there are {count} to ask about")


def _retentions(batches: BatchTable, given: ArrayLike | None) -> NDArray[np.int8]:
    if given is None:
        return _cleaners_retention(batches)
    values = np.asarray(given)
    if not np.isin(values, list(BatchRetention)).all():
        raise ValueError("retention must be of BatchRetention")
    result = np.broadcast_to(values.astype(np.int8), (len(batches),))
    is_kept = result == BatchRetention.RETAIN_EMPTY
    if (is_kept & (batches["magic"] < 2)).any():
        raise ValueError("Empty batches are only supported for magic v2 and above")
    return result


def _cleaners_retention(batches: BatchTable) -> NDArray[np.int8]:
    """Keep what tells the last sequence of each producer, and where the log ends."""
    result = np.full(len(batches), BatchRetention.DELETE_EMPTY, np.int8)
    for is_marker in (False, True):
        of_producer = (batches["producer_id"] >= 0) & (is_control(batches) == is_marker)
        rows = np.flatnonzero(of_producer)[::-1]
        _, last = np.unique(batches["producer_id"][rows], return_index=True)
        result[rows[last]] = BatchRetention.RETAIN_EMPTY
    result[-1:] = BatchRetention.RETAIN_EMPTY
    return result
