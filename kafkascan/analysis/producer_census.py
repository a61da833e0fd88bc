"""Per-producer statistics: bytes, batches, linger, compression, sequence gaps."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from kafkascan._core import census as _core, producers as _producers
from kafkascan.analysis.analysis_schemas import PRODUCER_SCHEMA
from kafkascan.batches.columns import BatchTable, compression_type, is_control, join_rows
from kafkascan.broker_state.markers import ControlRows
from kafkascan.broker_state.producer_state import (
    PRODUCER_EXPIRATION_MS,
    PRODUCER_ORDER,
    ProducerState,
    empty_slots,
)
from kafkascan.format.arguments import require_integers, require_not_negative
from kafkascan.format.errors import STATUS, CorruptBatchError, KafkaScanError
from kafkascan.format.file_names import BROKERS_TOPICS
from kafkascan.format.findings import Severity
from kafkascan.format.layout import BATCH_HEADER_SIZE, LOG_OVERHEAD, CompressionType
from kafkascan.logs.log_finding import PartitionFilter
from kafkascan.logs.opened_logs import LogsLike, LogView, at_one_moment, selected_logs
from kafkascan.logs.segment import SegmentFile
from kafkascan.logs.walking.log_walk import ControlInspector, LogSlice, LogWalk, producers_before
from kafkascan.records.payloads import load_payloads
from kafkascan.records.read_options import DEFAULT_MAX_DECOMPRESSED_SIZE
from kafkascan.tables.schema import Schema
from kafkascan.tables.table import NO_PROBLEMS, AnyTable, Column, Problems


class CompressionSample:
    """
    Samples compressed batches of each producer, and decompresses them for their ratios.

    Parameters
    ----------
    per_producer : int
        Largest number of batches per producer and log.
    """

    def __init__(self, per_producer: int) -> None:
        if per_producer < 0:
            raise ValueError("sample must not be negative")
        self._most = per_producer
        # By log and producer: (segment, batch), spread over the log by halving.
        self._chosen: dict[tuple[int, int], list[tuple[int, BatchTable]]] = {}
        self._every: dict[tuple[int, int], int] = {}
        self._seen: dict[tuple[int, int], int] = {}

    def add(self, log_slice: LogSlice) -> None:
        """Sample the next batches."""
        batches = log_slice.batches
        if not self._most or not len(batches):
            return
        is_one = (compression_type(batches) != 0) & (batches["magic"] >= 2)
        is_one &= (batches["records_count"] > 0) & ~is_control(batches)
        rows = np.flatnonzero(is_one)
        ids = batches["producer_id"][rows]
        for producer_id in np.unique(ids).tolist():
            self._choose(log_slice, producer_id, rows[ids == producer_id])

    def _choose(self, log_slice: LogSlice, producer_id: int, rows: NDArray[np.intp]) -> None:
        key = log_slice.log, producer_id
        chosen = self._chosen.setdefault(key, [])
        every, seen = self._every.get(key, 1), self._seen.get(key, 0)
        wanted = rows[(-seen) % every :: every]
        step = 1
        while len(chosen) + -(-len(wanted) // step) > 2 * self._most:
            if len(chosen) > self._most:
                del chosen[1::2]
            step *= 2
        every *= step
        for row in wanted[::step].tolist():
            segment = int(log_slice.chunk.segment[row])
            chosen.append((segment, log_slice.batches[row : row + 1].copy()))
        self._every[key], self._seen[key] = every, seen + len(rows)

    def ratios(
        self,
        walk: LogWalk[Any, Any],
        log: NDArray[np.int32],
        counts: NDArray[np.void],
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """
        Return the compression ratio of each row, and its number of sampled batches.

        A sampled batch that cannot be read is a problem of the walk.
        """
        ratios = np.where(counts["compressed_batches"] > 0, np.nan, 1.0)
        ratios[counts["batches"] == 0] = np.nan
        sampled = np.zeros(len(counts), np.int64)
        for row in np.flatnonzero(np.isnan(ratios)).tolist() if self._most else ():
            key = int(log[row]), int(counts["producer_id"][row])
            chosen = self._chosen.get(key, [])
            stored = plain = 0
            for segment, batch in chosen[:: max(1, len(chosen) // self._most)][: self._most]:
                file = walk.segments[segment][1]
                try:
                    plain += _decompressed_size(file, batch)
                except (KafkaScanError, OSError) as error:
                    reason = f"a sampled batch of {file.file_name} cannot be read: {error}"
                    walk.add_guess(key[0], "NOT_SAMPLED", reason, Severity.WARNING)
                    continue
                stored += int(batch["batch_length"][0]) + LOG_OVERHEAD - BATCH_HEADER_SIZE
                sampled[row] += 1
            if stored:
                ratios[row] = plain / stored
        return ratios, sampled


def _decompressed_size(segment: SegmentFile, batch: BatchTable) -> int:
    with segment.borrow() as source:
        return int(load_payloads(source, batch, DEFAULT_MAX_DECOMPRESSED_SIZE).size[0])


PRODUCER_COUNTS = np.dtype(
    [*PRODUCER_ORDER.descr, *np.asarray(_core.producer_amount_row).dtype.descr]
)
"""The counts of a producer in a log, in numbers of eight bytes each.

``producer_id`` is -1 for batches without a producer id and messages of magic 0 and 1.
``producer_epoch`` and ``last_sequence`` are the last ones; ``records`` does not include the
records in compressed messages of magic 0 and 1; timestamps are the earliest and the latest of the
batches, in milliseconds. ``codecs`` has a bit for each `CompressionType`.

By the rules of a partition leader (``ProducerAppendInfo``), which does not check the sequence
numbers of coordinators (`BROKERS_TOPICS`): ``epoch_bumps``; ``wraps`` of sequence numbers from
2147483647 to 0; ``sequence_gaps`` with ``missing_records``, ``duplicates`` (repeated
sequence numbers), ``fenced`` (an epoch below an earlier one), each with the base offset of the
first such batch, or -1; ``forgotten`` counts harmless jumps of the sequence: earlier batches are
gone from the log, or the producer had expired.

``spanning_batches`` are batches of several records with timestamps of the producer;
``span_ms_total`` and ``span_ms_max`` are the times between their first and last timestamps."""

_FIRST_CAPACITY = 64


@dataclass(frozen=True, eq=False, repr=False)
class ProducerCensus(AnyTable):
    """
    The producers of logs; result of `read_producers`.

    Attributes
    ----------
    logs : list of LogView
    log : ndarray of int32, shape (n,)
        Index into `logs`; ascending.
    counts : ndarray of PRODUCER_COUNTS, shape (n,)
        By log; in a log in the order of their first batches.
    compression_ratios : ndarray of float64, shape (n,)
        Uncompressed size of records by their size in the log: exactly 1 for producers that do
        not compress; otherwise that of a sample of their batches, NaN without a sample.
    sampled_batches : ndarray of int64, shape (n,)
        Number of batches that were decompressed for the ratio.
    problems : Problems
        What is not counted, and segments with the same offsets: each offset is counted once, from
        the first of them.
    """

    schema: ClassVar[Schema] = PRODUCER_SCHEMA

    logs: list[LogView]
    log: NDArray[np.int32]
    counts: NDArray[np.void]
    compression_ratios: NDArray[np.float64]
    sampled_batches: NDArray[np.int64]
    problems: Problems = NO_PROBLEMS

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def mean_batch_size(self) -> NDArray[np.float64]:
        """Mean size of a batch in bytes; NaN for producers with only markers in the log."""
        return _ratio(self.counts["size_in_bytes"], self.counts["batches"])

    @property
    def mean_span_ms(self) -> NDArray[np.float64]:
        """
        Mean time between the first and the last timestamp of a batch.

        It is close to ``linger.ms`` if that completes batches, rather than ``batch.size``. NaN
        if no batch has several records with timestamps of the producer.
        """
        return _ratio(self.counts["span_ms_total"], self.counts["spanning_batches"])

    @property
    def distinct_producers(self) -> int:
        """Number of distinct producer ids in all logs."""
        ids = self.counts["producer_id"]
        return len(np.unique(ids[ids >= 0]))

    def to_columns(self) -> dict[str, Column]:
        """Return the values of each column."""
        counts = self.counts
        numbers = self.log.tolist()
        derived: dict[str, Column] = {
            "topic": [self.logs[number].partition.topic for number in numbers],
            "partition": [self.logs[number].partition.partition for number in numbers],
            "codecs": [_codec_names(bits) for bits in counts["codecs"].tolist()],
            "mean_batch_size": _rounded(self.mean_batch_size),
            "mean_span_ms": _rounded(self.mean_span_ms),
            "compression_ratio": _rounded(self.compression_ratios),
            "sampled_batches": self.sampled_batches,
        }
        return {
            name: derived[name] if name in derived else counts[name]
            for name in PRODUCER_SCHEMA.names
        }

    def _summary_lines(self) -> list[str]:
        producers = f"{self.distinct_producers:,} producers in {len(self.logs):,} logs"
        return [f"<ProducerCensus: {producers}>"]


def _rounded(values: NDArray[np.float64]) -> list[float | None]:
    return [None if np.isnan(one) else round(one, 3) for one in values.tolist()]


def _ratio(total: NDArray[np.int64], count: NDArray[np.int64]) -> NDArray[np.float64]:
    result = np.full(len(total), np.nan)
    np.divide(total, count, out=result, where=count > 0)
    return result


def _codec_names(bits: int) -> str:
    return "+".join(CompressionType.name_of(code) for code in range(8) if bits >> code & 1)


def read_producers(
    logs: LogsLike,
    /,
    *,
    topics: Collection[str] | None = None,
    partitions: Collection[int] | None = None,
    sample: int = 0,
    expiration_ms: int = PRODUCER_EXPIRATION_MS,
    log_start_offset: int | None = None,
    threads: int | None = None,
) -> ProducerCensus:
    """
    Count the batches of each producer, from batch headers and markers.

    Parameters
    ----------
    logs : path, LogDir, PartitionDir, bytes-like, Source or SegmentFile
        See `read_transactions`.
    topics : collection of str, optional
        Topics to read of a directory or an archive; by default all.
    partitions : collection of int, optional
        Numbers of the partitions to read; by default all.
    sample : int, default 0
        Number of compressed batches per producer that are decompressed to estimate the
        compression ratio; they are spread over the log.
    expiration_ms : int, default one day
        The broker's ``producer.id.expiration.ms``: a producer that was idle for longer may
        continue with any sequence number.
    log_start_offset : int, optional
        First offset of each log; see `read_transactions`. Batches that end before it are not
        counted.
    threads : int, optional
        Segments that are read concurrently; by default one per CPU. Small segments are read
        sequentially.

    Returns
    -------
    ProducerCensus

    Raises
    ------
    NotALogError
        If `logs` is a file of another kind, such as a text or an index.
    As `open_log_dir`.

    Notes
    -----
    Memory: about 280 bytes per producer and log.
    """
    require_integers(sample=sample, expiration_ms=expiration_ms)
    require_not_negative(sample=sample, expiration_ms=expiration_ms)

    def read(opened: Sequence[LogView]) -> ProducerCensus:
        walk = LogWalk(opened, threads, ControlInspector)
        counter = CensusCounter(walk, sample, expiration_ms)
        for log_slice in walk:
            counter.add(log_slice)
        return counter.census()

    logs = selected_logs(logs, PartitionFilter.of(topics, partitions))
    return at_one_moment(logs, read, log_start_offset)


class CensusCounter:
    """
    Counts the batches of each producer, slice by slice of a walk, which receives the errors.

    Parameters
    ----------
    walk : LogWalk
    sample, expiration_ms : int
        See `read_producers`.
    """

    def __init__(
        self,
        walk: LogWalk[Any, Any],
        sample: int = 0,
        expiration_ms: int = PRODUCER_EXPIRATION_MS,
    ) -> None:
        self._walk = walk
        self._expiration_ms = expiration_ms
        self._sampler = CompressionSample(sample)
        self._counters: dict[int, ProducerCounter] = {}
        self._done: list[tuple[int, NDArray[np.void]]] = []
        # By log: the first error of its markers, and how many are not counted.
        self._unread: dict[int, tuple[CorruptBatchError, int]] = {}

    def add(self, log_slice: LogSlice) -> None:
        """Count the next batches."""
        number = log_slice.log
        counter = self._counters.get(number)
        if counter is None:
            of_clients = self._walk.logs[number].partition.topic not in BROKERS_TOPICS
            counter = ProducerCounter(self._expiration_ms, of_clients=of_clients)
            self._counters[number] = counter
        counter.add(log_slice.served_batches, log_slice.served_control)
        self._note_unread(log_slice)
        self._sampler.add(log_slice)
        if log_slice.is_last:
            self._done.append((number, self._counters.pop(number).counts()))
            self._report_unread(number)

    def _note_unread(self, log_slice: LogSlice) -> None:
        control = log_slice.served_control
        unread = control.unread
        if not len(unread):
            return
        first, number = int(unread[0]), log_slice.log
        row = log_slice.start.row + int(control.rows[first])
        segment = self._walk.segments[int(log_slice.chunk.segment[row])][1]
        error, count = self._unread.get(number) or (
            control.error_at(first, str(segment.path), log_slice.batches[row]), 0
        )  # fmt: skip
        self._unread[number] = error, count + len(unread)

    def _report_unread(self, number: int) -> None:
        if number not in self._unread:
            return
        error, count = self._unread.pop(number)
        left_out = "the marker is" if count == 1 else f"{count:,} such markers are"
        reason = f"{error.reason}; {left_out} not counted"
        self._walk.add_error(
            number,
            CorruptBatchError(error.path, error.position, error.base_offset, reason, error.symbol),
        )

    def census(self) -> ProducerCensus:
        """Return the producers of the logs, after the end of the walk."""
        walk = self._walk
        counts = join_rows([found for _, found in self._done], PRODUCER_COUNTS)
        numbers = np.array([number for number, _ in self._done], np.int32)
        log = np.repeat(numbers, [len(found) for _, found in self._done])
        ratios, sampled = self._sampler.ratios(walk, log, counts)
        return ProducerCensus(walk.logs, log, counts, ratios, sampled, walk.problems)


class ProducerCounter:
    """
    Counts the batches of each producer of one log, table by table.

    Parameters
    ----------
    expiration_ms : int
        The broker's ``producer.id.expiration.ms``.
    of_clients : bool, default True
        See `ProducerState`.
    """

    def __init__(
        self, expiration_ms: int = PRODUCER_EXPIRATION_MS, *, of_clients: bool = True
    ) -> None:
        self._cursor = _producers.LogCursor(expiration_ms, of_clients)
        self._used = 0
        self._counts = np.empty(0, PRODUCER_COUNTS)
        self._grow(_FIRST_CAPACITY)

    def __len__(self) -> int:
        return self._used

    def _grow(self, capacity: int) -> None:
        counts = np.empty(capacity, PRODUCER_COUNTS)
        counts.view(np.uint8)[: self._used * counts.itemsize] = self._counts[: self._used].view(
            np.uint8
        )
        self._counts = counts
        self._slots = empty_slots(capacity)
        _core.index_counts(self._counts, self._used, self._slots)

    def add(self, batches: BatchTable, control: ControlRows) -> None:
        """Add the next batches."""
        kinds = np.full(len(batches), -1, np.int8)
        kinds[control.rows] = control.markers["kind"]
        row, status = 0, STATUS["OUTPUT_FULL"]
        while status == STATUS["OUTPUT_FULL"]:
            status, rows, self._used = _core.count_into(
                batches[row:], kinds[row:], self._counts, self._used, self._slots, self._cursor
            )
            row += rows
            if status == STATUS["OUTPUT_FULL"]:
                self._grow(2 * len(self._counts))

    def counts(self) -> NDArray[np.void]:
        """Return the counts of the batches that were added."""
        return self._counts[: self._used].copy()


def read_producer_state(log: LogsLike, /) -> NDArray[np.void]:
    """
    Read the producer state at the end of a log, as a broker holds it.

    Parameters
    ----------
    log : path, PartitionDir, bytes-like, Source or SegmentFile
        The directory of one partition; or a source, which counts as a whole log.

    Returns
    -------
    ndarray of PRODUCER_ENTRY
        As in the ``.snapshot`` that a broker would write now, and as ``kafka-transactions
        describe-producers`` prints it; but idle producers that a broker has forgotten are
        included. The state starts with the snapshot at the log's first offset, if it exists.

    Raises
    ------
    ValueError
        If `log` contains several logs, or none.
    CorruptLogError
        If the log is damaged, or Kafka would refuse it.
    OSError
    """
    return at_one_moment(log, _entries_of)


def _entries_of(opened: Sequence[LogView]) -> NDArray[np.void]:
    if len(opened) != 1:
        raise ValueError(f"expected one log, found {len(opened)}")
    state = ProducerState(producers_before(opened[0]))
    # A broker also replays offsets that an earlier segment contains.
    walk = LogWalk(opened, None, ControlInspector, once=False)
    for log_slice in walk:
        state.apply_read(log_slice.batches, log_slice.control, opened[0].name).require_accepted()
        walk.require_complete()
    return state.entries()
