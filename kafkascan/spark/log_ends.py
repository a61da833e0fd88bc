"""Where logs that grow end, and how far a stream may go at once. For the driver; no pyspark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kafkascan.batch_columns import BatchTable, next_offset, size_in_bytes
from kafkascan.checks import verify_rows
from kafkascan.committed import CommittedView
from kafkascan.layout import BATCH_DTYPE, BATCH_HEADER_SIZE
from kafkascan.sources import Source
from kafkascan.spark.damage import logger
from kafkascan.spark.files import NO_BASE_OFFSET, NO_PARTITION, FoundFile, list_files, open_file
from kafkascan.spark.option_values import TopicPartition
from kafkascan.spark.options import Options
from kafkascan.spark.plan import logs_of, select_files
from kafkascan.spark.ranges import RangeWalk
from kafkascan.spark.stable_ends import StableEnds
from kafkascan.walks import BatchWalk, read_bytes

_ROWS = 1 << 14

Positions = dict[TopicPartition, int]
"""Offsets by partition."""


@dataclass(frozen=True)
class FileEnd:
    """
    How far a file was read.

    Attributes
    ----------
    position : int
        Behind the last whole batch.
    next_offset : int
        That follows it.
    last_position : int
        Where that batch starts.
    last_header : bytes
        What stands there: by it the file is known again.
    """

    position: int
    next_offset: int
    last_position: int = 0
    last_header: bytes = b""

    def is_in(self, source: Source) -> bool:
        """Tell whether the file is the same still: a topic may have been made anew."""
        header = read_bytes(source, self.last_position, len(self.last_header))
        return self.position <= source.size and header == self.last_header


class LogEnds:
    """
    Looks at the logs that the options name, again and again.

    What was walked over before is not walked over again.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._ends: dict[str, FileEnd] = {}
        self._stable_ends: StableEnds | None = None
        if options.isolation_level == "read_committed":
            self._stable_ends = StableEnds(options)

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
        if self._stable_ends is not None:
            self._stable_ends.keep(paths)

    def end_of(self, log: Sequence[FoundFile]) -> int:
        """
        Return the offset that a stream may go up to.

        That is the one behind the last whole batch: what is still being written waits, a torn
        end, and a last batch whose checksum is not right yet. With ``read_committed``, it is the
        last stable offset, if that is less: what an open transaction wrote waits for its marker,
        and so does all that follows.
        """
        end = self._file_end(log)
        if self._stable_ends is None:
            return end.next_offset
        stable = self._stable_ends.view(log, end.position).last_stable_offset
        return min(end.next_offset, stable)

    def view_of(self, log: Sequence[FoundFile]) -> CommittedView | None:
        """Return how the transactions of a log ended; None if it does not matter."""
        if self._stable_ends is None:
            return None
        return self._stable_ends.view(log, self._file_end(log).position)

    def written_end_of(self, log: Sequence[FoundFile]) -> int:
        """Return the offset behind the last whole batch."""
        return self._file_end(log).next_offset

    def _file_end(self, log: Sequence[FoundFile]) -> FileEnd:
        file = log[-1]
        try:
            source = open_file(file, self._options)
        except FileNotFoundError:  # as retention deletes it
            return FileEnd(0, file.base_offset)
        known = self._ends.get(file.path)
        if known is None or not known.is_in(source):
            known = FileEnd(0, file.base_offset)
            if self._stable_ends is not None:
                self._stable_ends.forget(file)
        self._ends[file.path] = self._walk_on(source, known)
        return self._ends[file.path]

    def _walk_on(self, source: Source, known: FileEnd) -> FileEnd:
        walk = BatchWalk(source, known.position, source.size)
        table = np.empty(_ROWS, BATCH_DTYPE)
        before, end, last = known, known, table[:0]
        while walk.end is None:
            batches = table[: walk.fill(table)]
            for batch in (batches[-2:-1], batches[-1:]):
                if len(batch):
                    before, end, last = end, _behind(batch), batch.copy()
        if walk.error is not None and self._options.fails_fast:
            raise walk.error
        if walk.error is not None:
            logger.warning("the stream waits at: %s", walk.error)
        whole = end if verify_rows(source, last).all() else before
        if whole is known:
            return known
        return replace(
            whole, last_header=read_bytes(source, whole.last_position, BATCH_HEADER_SIZE)
        )

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


def _behind(batch: BatchTable) -> FileEnd:
    (position,) = batch["position"].tolist()
    (size,) = size_in_bytes(batch).tolist()
    return FileEnd(position + size, int(next_offset(batch)[0]), position)


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
