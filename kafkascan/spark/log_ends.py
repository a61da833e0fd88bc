"""Where logs that grow end, and how far a stream may go at once. For the driver; no pyspark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kafkascan.batch_columns import BatchTable, next_offset, size_in_bytes
from kafkascan.checks import verify_rows
from kafkascan.layout import BATCH_DTYPE, ScanEnd
from kafkascan.sources import Source
from kafkascan.spark.damage import logger
from kafkascan.spark.files import NO_BASE_OFFSET, NO_PARTITION, FoundFile, list_files, open_file
from kafkascan.spark.option_values import TopicPartition
from kafkascan.spark.options import Options
from kafkascan.spark.plan import logs_of, select_files
from kafkascan.spark.ranges import RangeWalk
from kafkascan.walks import BatchWalk

_ROWS = 1 << 14

Positions = dict[TopicPartition, int]
"""Offsets by partition."""


@dataclass(frozen=True)
class FileEnd:
    """How far a file was read, and the offset that follows."""

    position: int
    next_offset: int


class LogEnds:
    """
    Looks at the logs that the options name, again and again.

    What was walked over before is not walked over again.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._ends: dict[str, FileEnd] = {}

    def logs(self) -> dict[TopicPartition, tuple[FoundFile, ...]]:
        """
        List the logs there are now.

        Raises
        ------
        ValueError
            If a partition lies in two folders, or a file in none that tells its partition.
        """
        found: dict[TopicPartition, tuple[FoundFile, ...]] = {}
        files = list_files(self._options.but(ignore_missing_files=True))
        for folder, log in logs_of(select_files(files, self._options)).items():
            partition = (log[0].topic, log[0].partition)
            if log[0].partition == NO_PARTITION or log[0].base_offset == NO_BASE_OFFSET:
                raise ValueError(f"{log[0].path}: a stream needs folders named topic-partition")
            if partition in found:
                other = found[partition][0].folder
                raise ValueError(f"{partition[0]}-{partition[1]} is in {other} and in {folder}")
            found[partition] = log
        self._forget({file.path for log in found.values() for file in log})
        return found

    def _forget(self, paths: set[str]) -> None:
        self._ends = {path: end for path, end in self._ends.items() if path in paths}

    def end_of(self, log: Sequence[FoundFile]) -> int:
        """
        Return the offset that follows the last whole batch.

        What is still being written waits: a torn end, and a last batch whose checksum is not
        right yet.
        """
        file = log[-1]
        try:
            source = open_file(file, self._options)
        except FileNotFoundError:  # as retention deletes it
            return file.base_offset
        known = self._ends.get(file.path, FileEnd(0, file.base_offset))
        if known.position > source.size:
            known = FileEnd(0, file.base_offset)
        self._ends[file.path] = self._walk_on(source, known, file.base_offset)
        return self._ends[file.path].next_offset

    def _walk_on(self, source: Source, known: FileEnd, base_offset: int) -> FileEnd:
        walk = BatchWalk(source, known.position, source.size)
        table = np.empty(_ROWS, BATCH_DTYPE)
        last, before_last = None, known
        while walk.end is None:
            count = walk.fill(table)
            if count:
                last = table[count - 1 : count].copy()
                offset = int(next_offset(table[count - 2 : count - 1])[0]) if count > 1 else None
                offset = known.next_offset if offset is None else offset
                before_last = FileEnd(int(last["position"][0]), offset)
                known = FileEnd(walk.position, int(next_offset(last)[0]))
        if walk.end is ScanEnd.CORRUPT and walk.start > 0:
            # Another file may have taken the name since: a topic that was made anew.
            return self._walk_on(source, FileEnd(0, base_offset), base_offset)
        if walk.error is not None and self._options.fails_fast:
            raise walk.error
        if walk.error is not None:
            logger.warning("the stream waits at: %s", walk.error)
        is_whole = last is None or bool(verify_rows(source, last)[0])
        return known if is_whole else before_last

    def offset_after(self, log: Sequence[FoundFile], start: int, size: int) -> int:
        """Return how far a number of bytes reaches from an offset on: at least one batch."""
        for batches in self._batches_from(log, start):
            sizes = np.cumsum(size_in_bytes(batches))
            row = int(np.searchsorted(sizes, size))
            if row < len(batches):
                return int(next_offset(batches[row : row + 1])[0])
            size -= int(sizes[-1])
        return 2**63 - 1

    def _batches_from(self, log: Sequence[FoundFile], start: int) -> Iterator[BatchTable]:
        for file, follower in zip(log, [*log[1:], None], strict=True):
            if follower is not None and follower.base_offset <= start:
                continue
            source = open_file(file, self._options)
            for table in RangeWalk(source, 0, source.size).tables(_ROWS):
                batches = table[next_offset(table) > start]
                if len(batches):
                    yield batches


def shared_out(limit: int, start: Mapping[TopicPartition, int], end: Positions) -> Positions:
    """
    Return how far each partition may go so that all take so many offsets, about.

    Each gets its share of what waits, as in Spark's Kafka source, and at least one.
    """
    sizes = {partition: end[partition] - start[partition] for partition in end}
    total = sum(size for size in sizes.values() if size > 0)
    if total <= limit:
        return dict(end)
    return {
        partition: start[partition] + min(size, max(1, limit * size // total))
        if size > 0
        else end[partition]
        for partition, size in sizes.items()
    }
