"""Who wrote logs: every producer, how much and how it wrote, and whether in the right order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kafkascan import arrow
from kafkascan._core import census as _core
from kafkascan.batch_columns import BatchTable, join_rows
from kafkascan.compression_sample import CompressionSample
from kafkascan.errors import STATUS
from kafkascan.layout import CompressionType
from kafkascan.logs import Log, LogsLike, LogWalk, open_logs, producers_before
from kafkascan.producers import (
    PRODUCER_EXPIRATION_MS,
    PRODUCER_ORDER,
    ProducerState,
    RefusedBatchError,
    empty_slots,
)
from kafkascan.transactions import ControlRows

if TYPE_CHECKING:
    import pyarrow as pa

_NAMES = (
    "producer_id", "first_epoch", "producer_epoch", "last_sequence", "batches", "records",
    "size_in_bytes", "largest_batch", "first_offset", "last_offset", "first_timestamp",
    "last_timestamp", "transactional_batches", "markers", "codecs", "compressed_batches",
    "epoch_bumps", "wraps", "sequence_gaps", "missing_records", "first_gap", "duplicates",
    "first_duplicate", "fenced", "first_fenced", "forgotten", "spanning_batches", "span_ms_max",
)  # fmt: skip
_AMOUNTS = (
    "batches", "records", "size_in_bytes", "largest_batch", "first_offset", "last_offset",
    "first_timestamp", "last_timestamp", "transactional_batches", "markers", "codecs",
    "compressed_batches", "spanning_batches", "span_ms_total", "span_ms_max",
)  # fmt: skip

PRODUCER_COUNTS = np.dtype([(name, "=i8") for name in (*(PRODUCER_ORDER.names or ()), *_AMOUNTS)])
"""What is said of a producer in a log, in numbers of eight bytes each.

``producer_id`` is -1 for all batches of no producer, and of messages of magic 0 and 1.
``producer_epoch`` and ``last_sequence`` are the last ones; ``records`` does not count what
compressed messages of magic 0 and 1 hold; timestamps are the least and the greatest one of its
batches, in milliseconds. ``codecs`` has a bit for each `CompressionType`.

As a leader would judge it (``ProducerAppendInfo``): ``epoch_bumps``; ``wraps`` of sequence
numbers from 2147483647 to 0; ``sequence_gaps`` with ``missing_records``, ``duplicates`` (a
sequence number comes again), ``fenced`` (an epoch lower than one before), each with the base
offset of the first such batch, or -1; ``forgotten`` counts jumps of the sequence behind which
nothing is wrong: batches before are gone from the log, or the producer had expired.

``spanning_batches`` are those of several records whose times the producer set;
``span_ms_total`` and ``span_ms_max`` are the times between the first and the last of them."""

_FIRST_ROOM = 64


@dataclass(frozen=True, eq=False)
class ProducerCensus:
    """
    The producers of some logs; what `read_producers` returns.

    Attributes
    ----------
    logs : list of Log
    log : ndarray of int32, shape (n,)
        Index into `logs`; ascending.
    counts : ndarray of PRODUCER_COUNTS, shape (n,)
        In a log, in the order in which they first wrote.
    compression_ratios : ndarray of float64, shape (n,)
        What records take without compression, by what they take: exactly 1 for producers that
        do not compress; for others of some of their batches, which were decompressed for that,
        or NaN if none were.
    sampled_batches : ndarray of int64, shape (n,)
        How many batches a ratio is of; 0 where nothing had to be decompressed.
    errors : dict of int to Exception
        By log: what ends what is known of it.
    """

    logs: list[Log]
    log: NDArray[np.int32]
    counts: NDArray[np.void]
    compression_ratios: NDArray[np.float64]
    sampled_batches: NDArray[np.int64]
    errors: dict[int, Exception]

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def mean_batch_size(self) -> NDArray[np.float64]:
        """Bytes of a batch on average; NaN for producers of which only markers are left."""
        return _ratio(self.counts["size_in_bytes"], self.counts["batches"])

    @property
    def mean_span_ms(self) -> NDArray[np.float64]:
        """
        Time between the first and the last record of a batch, on average.

        It says how long batches are filled: ``linger.ms`` is about as long if it ends them
        rather than ``batch.size``. NaN where no batch tells it.
        """
        return _ratio(self.counts["span_ms_total"], self.counts["spanning_batches"])

    @property
    def distinct_producers(self) -> int:
        """How many producer ids there are over all logs."""
        ids = self.counts["producer_id"]
        return len(np.unique(ids[ids >= 0]))

    def to_columns(self) -> dict[str, list[Any]]:
        """Return the table as lists."""
        counts = self.counts
        numbers = self.log.tolist()
        columns: dict[str, list[Any]] = {
            "topic": [self.logs[number].partition.topic for number in numbers],
            "partition": [self.logs[number].partition.partition for number in numbers],
        }
        for name in _NAMES:
            if name == "codecs":
                columns[name] = [_codec_names(bits) for bits in counts[name].tolist()]
            else:
                columns[name] = counts[name].tolist()
        for name, values in (
            ("mean_batch_size", self.mean_batch_size),
            ("mean_span_ms", self.mean_span_ms),
            ("compression_ratio", self.compression_ratios),
        ):
            columns[name] = [None if np.isnan(one) else round(one, 3) for one in values.tolist()]
        columns["sampled_batches"] = self.sampled_batches.tolist()
        return columns

    def to_arrow(self) -> pa.Table:
        """Return the table as Arrow's; timestamps become ``timestamp[ms, tz=UTC]``."""
        pa = arrow.require_pyarrow()
        types = {"topic": pa.string(), "partition": pa.int32(), "codecs": pa.string()}
        columns: dict[str, Any] = {}
        for name, values in self.to_columns().items():
            is_real = name in ("mean_batch_size", "mean_span_ms", "compression_ratio")
            columns[name] = pa.array(values, types.get(name, pa.float64() if is_real else None))
        for name in ("first_timestamp", "last_timestamp"):
            columns[name] = arrow.timestamp_column(self.counts[name])
        return pa.table(columns)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Arrow's PyCapsule stream of `to_arrow`."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        return f"<ProducerCensus: {self.distinct_producers:,} producers in {len(self.logs):,} logs>"


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
    sample: int = 0,
    expiration_ms: int = PRODUCER_EXPIRATION_MS,
    threads: int | None = None,
) -> ProducerCensus:
    """
    Count what each producer wrote, from batch headers and markers.

    Parameters
    ----------
    logs : path, LogDir, PartitionDir, bytes-like, Source or Segment
        As of `read_transactions`.
    sample : int, default 0
        How many compressed batches of each producer are decompressed to tell how well they
        are compressed; spread over the log.
    expiration_ms : int, default one day
        The broker's ``producer.id.expiration.ms``: a producer that was idle for longer may go
        on with any sequence number.
    threads : int, optional
        Segments that are read at once; by default one per CPU. Small ones are read in turn.

    Returns
    -------
    ProducerCensus

    Raises
    ------
    As `open_log_dir`.

    Notes
    -----
    Memory: about 280 bytes for each producer of each log.
    """
    opened = open_logs(logs)
    counters: dict[int, ProducerCounter] = {}
    done: list[tuple[int, NDArray[np.void]]] = []
    errors: dict[int, Exception] = {}
    sampler = CompressionSample(sample)
    walk = LogWalk(opened, threads)
    for piece in walk:
        counter = counters.setdefault(piece.log, ProducerCounter(expiration_ms))
        counter.add(piece.batches, piece.control)
        sampler.add(piece)
        for end in piece.chunk.ends:
            if end.error is not None:
                errors.setdefault(piece.log, end.error)
        if piece.is_last:
            done.append((piece.log, counters.pop(piece.log).counts()))
    counts = join_rows([found for _, found in done], PRODUCER_COUNTS)
    log = np.repeat(
        np.array([number for number, _ in done], np.int32), [len(found) for _, found in done]
    )
    ratios, sampled = sampler.ratios(walk.segments, log, counts)
    return ProducerCensus(opened, log, counts, ratios, sampled, errors)


class ProducerCounter:
    """
    Counts the producers of one log, piece by piece.

    Parameters
    ----------
    expiration_ms : int
        The broker's ``producer.id.expiration.ms``.
    """

    def __init__(self, expiration_ms: int = PRODUCER_EXPIRATION_MS) -> None:
        self._expiration_ms = expiration_ms
        self._used = 0
        self._next_offset, self._holes = -1, 0
        self._counts = np.empty(0, PRODUCER_COUNTS)
        self._make_room(_FIRST_ROOM)

    def __len__(self) -> int:
        return self._used

    def _make_room(self, capacity: int) -> None:
        counts = np.empty(capacity, PRODUCER_COUNTS)
        counts.view(np.uint8)[: self._used * counts.itemsize] = self._counts[: self._used].view(
            np.uint8
        )
        self._counts = counts
        self._slots = empty_slots(capacity)
        _core.index_counts(self._counts, self._used, self._slots)

    def add(self, batches: BatchTable, control: ControlRows) -> None:
        """Add the batches that follow."""
        kinds = np.full(len(batches), -1, np.int8)
        kinds[control.rows] = control.markers["kind"]
        row, status = 0, STATUS["OUTPUT_FULL"]
        while status == STATUS["OUTPUT_FULL"]:
            status, rows, self._used, self._next_offset, self._holes = _core.count_into(
                batches[row:], kinds[row:], self._counts, self._used, self._slots,
                self._next_offset, self._holes, self._expiration_ms,
            )  # fmt: skip
            row += rows
            if status == STATUS["OUTPUT_FULL"]:
                self._make_room(2 * len(self._counts))

    def counts(self) -> NDArray[np.void]:
        """Return what was counted so far."""
        return self._counts[: self._used].copy()


def read_producer_state(log: LogsLike, /) -> NDArray[np.void]:
    """
    Read what a broker knows of the producers of a log at its end.

    Parameters
    ----------
    log : path, PartitionDir, bytes-like, Source or Segment
        The folder of one partition; or a source, which is taken as all there is of its log.

    Returns
    -------
    ndarray of PRODUCER_ENTRY
        As the ``.snapshot`` that a broker would write now, and as ``kafka-transactions
        describe-producers`` prints it; but for producers that it has forgotten because they
        were idle. What a snapshot at the log's first offset says of what is gone is believed.

    Raises
    ------
    ValueError
        If it stands for several logs.
    CorruptLogError
        If the log is damaged, or Kafka would refuse it.
    OSError
    """
    opened = open_logs(log)
    if len(opened) != 1:
        raise ValueError(f"{len(opened)} logs are there, and not one")
    state = ProducerState(producers_before(opened[0]))
    for piece in LogWalk(opened, None):
        try:
            state.apply_read(piece.batches, piece.control, opened[0].name)
        except RefusedBatchError as refused:
            raise refused.error from None
        for end in piece.chunk.ends:
            if end.error is not None:
                raise end.error
    return state.entries()
