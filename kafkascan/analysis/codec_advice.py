"""Estimate the savings of other codecs and levels: recompress sampled batches and measure."""

from __future__ import annotations

import itertools
import operator
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np

from kafkascan.analysis.analysis_schemas import ADVICE_SCHEMA, DEFAULT_CHOICES
from kafkascan.batches.columns import BatchTable, compression_type, is_control, size_in_bytes
from kafkascan.format.arguments import require_integers, require_items
from kafkascan.format.errors import KafkaScanError
from kafkascan.format.findings import Severity
from kafkascan.format.layout import (
    BATCH_HEADER_SIZE,
    COMPRESSION_MASK,
    LOG_OVERHEAD,
    CompressionType,
)
from kafkascan.format.texts import few_lines
from kafkascan.io.sources import borrowed_source, read_bytes
from kafkascan.logs.log_chunks import LogChunk, Segments
from kafkascan.logs.log_finding import PartitionFilter
from kafkascan.logs.log_problems import LogProblems
from kafkascan.logs.opened_logs import LogsLike, open_logs, selected_logs
from kafkascan.logs.walking.served_chunks import read_chunks, read_segments
from kafkascan.records.compression import LEVELS, Compression, compression
from kafkascan.records.decompression import CodecError, decompress
from kafkascan.records.read_options import DEFAULT_MAX_DECOMPRESSED_SIZE
from kafkascan.tables.schema import Schema
from kafkascan.tables.table import NO_PROBLEMS, AnyTable, Column, Problem, Problems

# Bytes of the largest batch that is sampled.
_LARGEST = 1 << 24
_MOST_GROUPS = 10_000
# Batches of a sample by default: of each group, of all groups, and at least of each of many groups.
_OF_GROUP, _OF_ALL_GROUPS, _OF_MANY_GROUPS = 100, 5_000, 3
_SMALLEST_SPEED_TIME = 1e-9
_OF_CHOSEN = ("position", "batch_length", "attributes")


@dataclass(frozen=True)
class CodecTrial:
    """
    The result of one codec and level for the sample of a group.

    Attributes
    ----------
    topic : str or None
    producer_id : int or None
        None if the group is a topic with all of its producers.
    codec : str
        Kafka's name of the codec.
    level : int or None
        None if the codec has no levels.
    batches : int
        Number of batches in the sample.
    records_bytes : int
        Uncompressed size of the sample, without batch headers.
    stored_bytes : int
        Size of the sample in the log, with batch headers.
    compressed_bytes : int
        Size of the sample in this codec, with batch headers.
    compress_mb_per_s, decompress_mb_per_s : float or None
        Uncompressed records in MB (10**6 bytes) per second, in one thread, with the libraries
        that kafkascan uses; other clients use other libraries. None without compression.
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
        """Compression ratio: uncompressed size divided by compressed size."""
        headers = self.batches * BATCH_HEADER_SIZE
        return (self.records_bytes + headers) / self.compressed_bytes

    @property
    def saving(self) -> float:
        """Fraction of the stored bytes that the codec would save; negative if they would grow."""
        return 1 - self.compressed_bytes / self.stored_bytes


@dataclass
class SampledGroup:
    """
    A topic, or one producer of a topic, with its totals and trials.

    Attributes
    ----------
    topic : str or None
    producer_id : int or None
    total_batches, total_bytes : int
        Batches of magic 2 in the logs, without control batches.
    stored_codecs : dict of str to int
        Number of batches by codec.
    unreadable : int
        Number of sampled batches that could not be decompressed.
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
        """The trial with the smallest output."""
        return min(self.trials, key=lambda one: one.compressed_bytes, default=None)


@dataclass(repr=False)
class Advice(AnyTable):
    """
    The trials of all groups, a row per trial; returned by `advise`.

    Attributes
    ----------
    groups : list of SampledGroup
        Largest first, by bytes in the logs.
    skipped_batches : int
        Batches that are not sampled: of magic 0 and 1, and of groups beyond the first 10 000.
    problems : Problems
        What was not read, and segments with the same offsets: each offset is counted once, from
        the first of them.
    """

    schema: ClassVar[Schema] = ADVICE_SCHEMA

    groups: list[SampledGroup]
    skipped_batches: int = 0
    problems: Problems = NO_PROBLEMS

    def __len__(self) -> int:
        return sum(len(group.trials) for group in self.groups)

    def to_columns(self) -> dict[str, Column]:
        """Return the values of each column."""
        rows = list(self._trials())
        return {name: [row[name] for row in rows] for name in ADVICE_SCHEMA.names}

    def _trials(self) -> Iterator[dict[str, Any]]:
        for group in self.groups:
            codecs = ", ".join(f"{name} {count}" for name, count in group.stored_codecs.items())
            for one in group.trials:
                row = vars(one) | {"ratio": one.ratio, "saving": one.saving}
                row |= {name: round(row[name], 3) for name in _FLOATS if row[name] is not None}
                row |= {"total_batches": group.total_batches, "total_bytes": group.total_bytes}
                yield row | {"stored_codecs": codecs}

    def _summary_lines(self) -> list[str]:
        title = f"<Advice: {len(self.groups):,} groups>"
        return few_lines(title, (f"  {_sentence(one)}" for one in self.groups)).split("\n")


def _sentence(group: SampledGroup) -> str:
    producer = "" if group.producer_id is None else f", producer {group.producer_id}"
    best = group.smallest
    if best is None:
        advice = "nothing was sampled"
    else:
        level = "" if best.level is None else f":{best.level}"
        advice = f"{best.codec}{level} is the smallest and saves {best.saving:.1%}"
    return f"{group.topic or 'log'}{producer}: {group.total_bytes:,} bytes; {advice}"


_FLOATS = ("ratio", "saving", "compress_mb_per_s", "decompress_mb_per_s")


def advise(
    logs: LogsLike,
    /,
    *,
    topics: Collection[str] | None = None,
    partitions: Collection[int] | None = None,
    choices: Iterable[str] = DEFAULT_CHOICES,
    by: Literal["topic", "producer"] = "topic",
    sample: int | None = None,
    seed: int = 0,
    log_start_offset: int | None = None,
    threads: int | None = None,
) -> Advice:
    """
    Recompress sampled batches with other codecs, and estimate what that would save.

    Parameters
    ----------
    logs : path, LogDir, PartitionDir, bytes-like, Source or SegmentFile
        A data directory, a partition directory, a tar archive of them, or a segment.
    topics : collection of str, optional
        Topics to read of a directory or an archive; by default all.
    partitions : collection of int, optional
        Numbers of the partitions to read; by default all.
    choices : iterable of str
        Kafka's names of codecs, with the level after a colon: ``"zstd:9"``.
    by : {"topic", "producer"}
        The groups: each topic, or each producer of each topic.
    sample : int, optional
        Number of batches that are sampled at random from each group. By default 100; of more than
        50 groups fewer, 5 000 in all, but 3 of each. A note in `Advice.problems` says how many.
    seed : int
        Seed of the random selection: the same logs and seed give the same sample.
    log_start_offset : int, optional
        First offset of each log; see `read_transactions`. Batches that end before it are omitted.
    threads : int, optional
        Number of segments whose headers are read in parallel. Codecs run in one thread.

    Returns
    -------
    Advice

    Raises
    ------
    ValueError
        If a codec or level does not exist.
    NotALogError
        If `logs` is a file of another kind, such as a text or an index.
    As `open_log_dir`.

    Notes
    -----
    Batches keep their size: larger batches, as of a producer with a longer ``linger.ms``, would
    compress better. The compressed format is the one that Kafka's own clients write.
    """
    if by not in ("topic", "producer"):
        raise ValueError(f"by must be 'topic' or 'producer', not {by!r}")
    most = _OF_GROUP if sample is None else sample
    require_integers(sample=most)
    if most < 1:
        raise ValueError("sample must be at least 1")
    choices = list(choices) if isinstance(choices, Iterator) else choices
    require_items(str, choices=choices)
    codecs = [_choice(one) for one in choices]
    for codec in codecs:  # the first use creates it, and is not timed
        codec.compress(memoryview(b"record"), 2)
    sampler = _Sampler(by, most, seed)
    groups = []
    logs = selected_logs(logs, PartitionFilter.of(topics, partitions))
    opened = open_logs(logs, log_start_offset)
    problems, segments = LogProblems(opened), read_segments(opened)
    for chunk in read_chunks(opened, segments, problems, threads):
        sampler.add_chunk(chunk, segments)
    samples = list(sampler.samples())
    if sample is None and len(samples) * _OF_GROUP > _OF_ALL_GROUPS:
        most = max(_OF_ALL_GROUPS // len(samples), _OF_MANY_GROUPS)
        message = f"{most} batches of each {by} are sampled, of which there are {len(samples):,}"
        one = opened[0].partition
        path = str(one.path if len(opened) == 1 else one.folder.parent.path)
        problems.add(Problem("SMALL_SAMPLE", message, path, Severity.NOTE, rows_missing=False))
    for group, chosen in samples:
        payloads = list(_payloads(group, chosen[:most], segments, problems))
        stored = sum(size for size, _ in payloads)
        for codec in codecs if payloads else ():
            group.trials.append(_try(group, codec, stored, [data for _, data in payloads]))
        groups.append(group)
    groups.sort(key=lambda one: -one.total_bytes)
    if sampler.skipped_groups:
        message, one = f"groups beyond {_MOST_GROUPS:,} are not sampled", opened[0].partition
        problems.add_missing(one, "LIMIT", message, one.path, severity=Severity.WARNING)
    return Advice(groups, sampler.skipped_batches, problems.found)


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


# Number of the segment; position, length and attributes of the batch.
_Chosen: TypeAlias = "tuple[int, int, int, int]"


class _Sampler:
    """A random sample of the batches of each group, filled segment by segment."""

    def __init__(self, by: Literal["topic", "producer"], sample: int, seed: int) -> None:
        self.skipped_batches = 0
        self.skipped_groups = False
        self._by_producer = by == "producer"
        self._sample = sample
        self._random = np.random.default_rng(seed)
        self._groups: dict[tuple[str | None, int], _Reservoir] = {}

    def add_chunk(self, chunk: LogChunk, segments: Segments) -> None:
        """Add the next batches of logs."""
        bounds = [0, *(np.flatnonzero(np.diff(chunk.segment)) + 1).tolist(), len(chunk)]
        for start, stop in itertools.pairwise(bounds if len(chunk) else ()):
            number = int(chunk.segment[start])
            self._add(segments[number][0].topic, number, chunk.batches[start:stop])

    def _add(self, topic: str | None, segment: int, batches: BatchTable) -> None:
        is_new = batches["magic"] == 2
        self.skipped_batches += len(batches) - int(np.count_nonzero(is_new))
        is_wanted = is_new & ~is_control(batches)
        wanted = batches if is_wanted.all() else batches[is_wanted]
        if not self._by_producer:
            self._add_group((topic, -1), segment, wanted)
            return
        order = np.argsort(wanted["producer_id"], kind="stable")
        ids, starts = np.unique(wanted["producer_id"][order], return_index=True)
        bounds = [*starts.tolist(), len(order)]
        for producer, (start, stop) in zip(ids.tolist(), itertools.pairwise(bounds), strict=True):
            self._add_group((topic, producer), segment, wanted[order[start:stop]])

    def _add_group(self, key: tuple[str | None, int], segment: int, batches: BatchTable) -> None:
        if key not in self._groups:
            if len(self._groups) >= _MOST_GROUPS:
                self.skipped_batches += len(batches)
                self.skipped_groups = True
                return
            producer = key[1] if self._by_producer else None
            self._groups[key] = _Reservoir(SampledGroup(key[0], producer), self._sample)
        self._groups[key].add(segment, batches, self._random)

    def samples(self) -> Iterator[tuple[SampledGroup, list[_Chosen]]]:
        """Yield each group and its sample, whose first batches are a smaller sample."""
        for one in self._groups.values():
            one.group.stored_codecs = {
                CompressionType.name_of(code): int(count)
                for code, count in enumerate(one.codecs)
                if count
            }
            yield one.group, one.chosen


def _payloads(
    group: SampledGroup, chosen: list[_Chosen], segments: Segments, problems: LogProblems
) -> Iterator[tuple[int, bytes]]:
    """Yield the stored size and the decompressed records of each batch that can be read."""
    for number, of_segment in itertools.groupby(sorted(chosen), key=operator.itemgetter(0)):
        partition, segment = segments[number]
        try:
            with borrowed_source(segment.folder.source(segment.file_name)) as source:
                for _, position, length, attributes in of_segment:
                    size = length + LOG_OVERHEAD
                    start = position + BATCH_HEADER_SIZE
                    try:
                        data = read_bytes(source, start, size - BATCH_HEADER_SIZE)
                        yield size, _decompressed(attributes & COMPRESSION_MASK, data)
                    except (CodecError, KafkaScanError) as error:
                        group.unreadable += 1
                        message = f"a sampled batch cannot be decompressed: {error}"
                        place = segment.path, position
                        problems.add_guess(partition, "BAD_RECORDS", message, *place)
        except OSError as error:
            problems.add_error(partition, segment.path, error)


def _decompressed(codec: int, data: bytes) -> bytes:
    if codec == CompressionType.NONE:
        return data
    if codec not in set(CompressionType):
        raise CodecError(f"unknown codec {codec}")
    limit = min(_LARGEST, DEFAULT_MAX_DECOMPRESSED_SIZE)
    return b"".join(bytes(part) for part in decompress(codec, 2, data, limit))


class _Reservoir:
    """A uniform random sample of the batches of one group, of a fixed size."""

    def __init__(self, group: SampledGroup, size: int) -> None:
        self.group = group
        self.codecs = np.zeros(COMPRESSION_MASK + 1, np.int64)
        self.chosen: list[_Chosen] = []
        self._draws = np.empty(0)
        self._size = size

    def add(self, segment: int, batches: BatchTable, random: np.random.Generator) -> None:
        sizes = size_in_bytes(batches)
        self.group.total_batches += len(batches)
        self.group.total_bytes += int(sizes.sum())
        self.codecs += np.bincount(compression_type(batches), minlength=len(self.codecs))
        draws = random.random(len(batches))
        fits = np.flatnonzero((sizes > BATCH_HEADER_SIZE) & (sizes <= _LARGEST))
        best = fits[np.argsort(draws[fits])[: self._size]]
        fields = (batches[name][best].tolist() for name in _OF_CHOSEN)
        chosen = [*self.chosen, *zip(itertools.repeat(segment), *fields)]
        draws = np.append(self._draws, draws[best])
        order = np.argsort(draws, kind="stable")[: self._size]
        self.chosen = [chosen[place] for place in order.tolist()]
        self._draws = draws[order]
