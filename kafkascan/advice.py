"""What other codecs and levels would make of the batches of a log: samples, compressed anew."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from kafkascan import arrow
from kafkascan.batch_columns import BatchTable, compression_type, is_control, size_in_bytes
from kafkascan.codecs import DEFAULT_MAX_DECOMPRESSED_SIZE, CodecError, decompress
from kafkascan.compression import LEVELS, Compression, compression
from kafkascan.errors import KafkaScanError
from kafkascan.layout import BATCH_HEADER_SIZE, CompressionType
from kafkascan.log_chunks import ChunkTables, LogChunk, group_segments, read_chunks
from kafkascan.logs import LogsLike, open_logs
from kafkascan.ordered import in_order
from kafkascan.sources import borrowed_source
from kafkascan.walks import read_bytes

if TYPE_CHECKING:
    import pyarrow as pa

By: TypeAlias = Literal["topic", "producer"]

DEFAULT_CHOICES = (
    "none", "gzip:1", "gzip:6", "snappy", "lz4", "zstd:1", "zstd:3", "zstd:9",
)  # fmt: skip
"""What `advise` tries: codecs, and levels behind a colon."""

# Of one sampled batch, no more than this is compressed anew.
_LARGEST = 1 << 24
_MOST_GROUPS = 10_000
_SMALLEST_SPEED_TIME = 1e-9


@dataclass(frozen=True)
class CodecTrial:
    """
    What a codec makes of a sample.

    Attributes
    ----------
    topic : str or None
    producer_id : int or None
        None if the sample is of all producers of a topic.
    codec : str
        Kafka's name.
    level : int or None
        None where the codec has no levels.
    batches : int
        In the sample.
    records_bytes : int
        Of the sample, not compressed, without the headers of batches.
    stored_bytes : int
        Of the sample as it is in the log, with those headers.
    compressed_bytes : int
        Of the sample in this codec, with those headers.
    compress_mb_per_s, decompress_mb_per_s : float or None
        Records in MB (10**6 bytes) per second, by one thread, in the libraries that kafkascan
        uses; those of other clients are others. None without compression.
    """

    topic: str | None
    producer_id: int | None
    codec: str
    level: int | None
    batches: int
    records_bytes: int
    stored_bytes: int
    compressed_bytes: int
    compress_mb_per_s: float | None
    decompress_mb_per_s: float | None

    @property
    def ratio(self) -> float:
        """How many times smaller than not compressed."""
        headers = self.batches * BATCH_HEADER_SIZE
        return (self.records_bytes + headers) / self.compressed_bytes

    @property
    def saving(self) -> float:
        """Part of what is stored now that would be saved; negative if it would grow."""
        return 1 - self.compressed_bytes / self.stored_bytes


ADVICE_COLUMNS = (
    "topic", "producer_id", "codec", "level", "batches", "records_bytes", "stored_bytes",
    "compressed_bytes", "ratio", "saving", "compress_mb_per_s", "decompress_mb_per_s",
    "total_batches", "total_bytes", "stored_codecs",
)  # fmt: skip
"""Columns of `Advice.to_columns`."""


@dataclass
class SampledGroup:
    """
    A topic, or a producer of it.

    Attributes
    ----------
    topic : str or None
    producer_id : int or None
    total_batches, total_bytes : int
        In the logs; those of magic 2, without control batches.
    stored_codecs : dict of str to int
        Batches by codec.
    unreadable : int
        Sampled batches that could not be decompressed.
    trials : list of CodecTrial
    """

    topic: str | None
    producer_id: int | None
    total_batches: int = 0
    total_bytes: int = 0
    stored_codecs: dict[str, int] = field(default_factory=dict)
    unreadable: int = 0
    trials: list[CodecTrial] = field(default_factory=list)

    @property
    def smallest(self) -> CodecTrial | None:
        """The trial that needs the fewest bytes."""
        return min(self.trials, key=lambda one: one.compressed_bytes, default=None)


@dataclass
class Advice:
    """
    What codecs would make of logs; what `advise` returns.

    Attributes
    ----------
    groups : list of SampledGroup
        By size, largest first.
    skipped_batches : int
        Of magic 0 and 1, which are not sampled, and of groups beyond the first 10 000.
    damage : list of str
        Logs that could not be read, or to their end.
    """

    groups: list[SampledGroup]
    skipped_batches: int = 0
    damage: list[str] = field(default_factory=list)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield a row for each trial."""
        for group in self.groups:
            of_group = {name: getattr(group, name) for name in ADVICE_COLUMNS[-3:-1]}
            codecs = ", ".join(f"{name} {count}" for name, count in group.stored_codecs.items())
            for one in group.trials:
                row = {name: getattr(one, name) for name in ADVICE_COLUMNS[:-3]}
                row |= {name: round(row[name], 3) for name in _FLOATS if row[name] is not None}
                yield row | of_group | {"stored_codecs": codecs}

    def to_columns(self) -> dict[str, list[Any]]:
        """Return the trials as a table."""
        rows = list(self.rows())
        return {name: [row[name] for row in rows] for name in ADVICE_COLUMNS}

    def to_arrow(self) -> pa.Table:
        """Return the trials as Arrow's table."""
        return arrow.table_of(self.to_columns(), texts=("topic", "codec", "stored_codecs"))


_FLOATS = ("ratio", "saving", "compress_mb_per_s", "decompress_mb_per_s")


def advise(
    logs: LogsLike,
    /,
    *,
    choices: Iterable[str] = DEFAULT_CHOICES,
    by: By = "topic",
    sample: int = 100,
    seed: int = 0,
    threads: int | None = None,
) -> Advice:
    """
    Sample batches, compress them anew with other codecs, and tell what that would save.

    Parameters
    ----------
    logs : path, LogDir, PartitionDir, bytes-like, Source or Segment
        A broker's data dir, the folder of a partition, a tar of them, or a segment.
    choices : iterable of str
        Kafka's names of codecs, and levels behind a colon: ``"zstd:9"``.
    by : {"topic", "producer"}
        What is sampled by itself: each topic, or each producer of each topic.
    sample : int, default 100
        Batches of each of them, at random.
    seed : int
        Of that chance: the same logs and seed give the same sample.
    threads : int, optional
        Segments whose headers are read at once. Codecs are timed in one thread.

    Returns
    -------
    Advice

    Raises
    ------
    ValueError
        If there is no such codec or level.
    As `open_log_dir`.

    Notes
    -----
    Batches are compressed as they are: larger ones, as of a producer that lingers, compress
    better. The compressed bytes are of the kind that Kafka's own clients write.
    """
    if by not in ("topic", "producer"):
        raise ValueError(f"by must be 'topic' or 'producer', not {by!r}")
    if sample < 1:
        raise ValueError("sample must be at least 1")
    codecs = [_choice(one) for one in choices]
    sampling = _Sampling(logs, by, sample, seed, threads)
    result = Advice([], sampling.skipped_batches, sampling.damage)
    for group, rows in sampling.groups():
        payloads = list(sampling.payloads(group, rows))
        stored = sum(size for size, _ in payloads)
        for codec in codecs:
            if payloads:
                group.trials.append(_try(group, codec, stored, [data for _, data in payloads]))
        result.groups.append(group)
    result.groups.sort(key=lambda one: -one.total_bytes)
    return result


def _choice(text: str) -> Compression:
    name, _, level = text.partition(":")
    try:
        return compression(name, int(level) if level else None)
    except ValueError as error:
        raise ValueError(f"{text!r}: {error}") from None


def _try(
    group: SampledGroup, codec: Compression, stored: int, payloads: Sequence[bytes]
) -> CodecTrial:
    packed, compressing, unpacking = 0, 0.0, 0.0
    codec.compress(memoryview(payloads[0]), 2)  # what is made once is not counted
    for data in payloads:
        start = time.perf_counter()
        output = b"".join(codec.compress(memoryview(data), 2))
        middle = time.perf_counter()
        if codec.codec is not CompressionType.NONE:
            decompress(codec.codec, 2, output, len(data))
        end = time.perf_counter()
        packed += len(output) + BATCH_HEADER_SIZE
        compressing += middle - start
        unpacking += end - middle
    size = sum(map(len, payloads))
    return CodecTrial(
        topic=group.topic,
        producer_id=group.producer_id,
        codec=codec.codec.display_name,
        level=codec.level if codec.codec in LEVELS else None,
        batches=len(payloads),
        records_bytes=size,
        stored_bytes=stored,
        compressed_bytes=packed,
        compress_mb_per_s=_speed(codec, size, compressing),
        decompress_mb_per_s=_speed(codec, size, unpacking),
    )


def _speed(codec: Compression, size: int, seconds: float) -> float | None:
    if codec.codec is CompressionType.NONE:
        return None
    return size / max(seconds, _SMALLEST_SPEED_TIME) / 1e6


class _Sampling:
    """One pass over headers, that leaves some batches of each group."""

    def __init__(self, logs: LogsLike, by: By, sample: int, seed: int, threads: int | None) -> None:
        self._by_producer = by == "producer"
        self._sample = sample
        self._random = np.random.default_rng(seed)
        self._groups: dict[tuple[str | None, int], _Reservoir] = {}
        self.skipped_batches = 0
        self.damage: list[str] = []
        found = [(log.partition, segment) for log in open_logs(logs) for segment in log.segments]
        self._segments = [segment for _, segment in found]
        topics = [partition.topic for partition, _ in found]

        jobs = group_segments(found, 0, len(found))
        tables = ChunkTables()
        for chunk in in_order(jobs, lambda job: read_chunks(found, job, tables), threads):
            self._note_ends(chunk)
            bounds = np.flatnonzero(np.diff(chunk.segment)) + 1
            for rows in np.split(np.arange(len(chunk)), bounds):
                if len(rows):
                    index = int(chunk.segment[rows[0]])
                    batches = chunk.batches[rows[0] : rows[-1] + 1]
                    self._add(topics[index], index, batches)

    def _note_ends(self, chunk: LogChunk) -> None:
        self.damage += [str(end.error) for end in chunk.ends if end.error is not None]

    def _add(self, topic: str | None, index: int, batches: BatchTable) -> None:
        wanted = batches[(batches["magic"] == 2) & ~is_control(batches)]
        self.skipped_batches += int((batches["magic"] != 2).sum())
        if not self._by_producer:
            self._add_group((topic, -1), index, wanted)
            return
        order = np.argsort(wanted["producer_id"], kind="stable")
        ids, starts = np.unique(wanted["producer_id"][order], return_index=True)
        bounds = [*starts.tolist(), len(order)]
        for producer, (start, stop) in zip(ids.tolist(), itertools.pairwise(bounds), strict=True):
            self._add_group((topic, producer), index, wanted[order[start:stop]])

    def _add_group(self, key: tuple[str | None, int], index: int, batches: BatchTable) -> None:
        if key not in self._groups:
            if len(self._groups) >= _MOST_GROUPS:
                self.skipped_batches += len(batches)
                return
            producer = key[1] if self._by_producer else None
            self._groups[key] = _Reservoir(SampledGroup(key[0], producer), self._sample)
        self._groups[key].add(index, batches, self._random)

    def groups(self) -> Iterator[tuple[SampledGroup, list[tuple[int, np.void]]]]:
        """Yield each group and the batches that were chosen, with their segments."""
        for one in self._groups.values():
            one.group.stored_codecs = {
                CompressionType.name_of(code): int(count)
                for code, count in enumerate(one.codecs)
                if count
            }
            yield one.group, one.chosen

    def payloads(
        self, group: SampledGroup, rows: list[tuple[int, np.void]]
    ) -> Iterator[tuple[int, bytes]]:
        """Yield size in the log and decompressed records of each batch that can be read."""
        for index, chosen in itertools.groupby(sorted(rows, key=_place), key=lambda one: one[0]):
            segment = self._segments[index]
            with borrowed_source(segment.folder.source(segment.path.name)) as source:
                for _, row in chosen:
                    size = int(row["batch_length"]) + 12
                    start = int(row["position"]) + BATCH_HEADER_SIZE
                    try:
                        data = read_bytes(source, start, size - BATCH_HEADER_SIZE)
                        yield size, _decompressed(int(row["attributes"]) & 7, data)
                    except (CodecError, KafkaScanError):
                        group.unreadable += 1


def _decompressed(codec: int, data: bytes) -> bytes:
    if codec == CompressionType.NONE:
        return data
    if codec not in set(CompressionType):
        raise CodecError(f"codec {codec} is not known")
    limit = min(_LARGEST, DEFAULT_MAX_DECOMPRESSED_SIZE)
    return b"".join(bytes(piece) for piece in decompress(codec, 2, data, limit))


def _place(chosen: tuple[int, np.void]) -> tuple[int, int]:
    return chosen[0], int(chosen[1]["position"])


class _Reservoir:
    """So many batches of a group, each as likely as any other."""

    def __init__(self, group: SampledGroup, room: int) -> None:
        self.group = group
        self.codecs = np.zeros(8, np.int64)
        self.chosen: list[tuple[int, np.void]] = []
        self._draws = np.empty(0)
        self._room = room

    def add(self, index: int, batches: BatchTable, random: np.random.Generator) -> None:
        sizes = size_in_bytes(batches)
        self.group.total_batches += len(batches)
        self.group.total_bytes += int(sizes.sum())
        self.codecs += np.bincount(compression_type(batches), minlength=8)
        draws = random.random(len(batches))
        fits = np.flatnonzero((sizes > BATCH_HEADER_SIZE) & (sizes <= _LARGEST))
        best = fits[np.argsort(draws[fits])[: self._room]]
        chosen = [*self.chosen, *((index, batches[row].copy()) for row in best.tolist())]
        draws = np.append(self._draws, draws[best])
        order = np.argsort(draws, kind="stable")[: self._room]
        self.chosen = [chosen[place] for place in order.tolist()]
        self._draws = draws[order]
