"""Read the batches that a broker appends to a log, through rolls, retention and truncations."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kafkascan.batches.columns import BatchTable, rows_from
from kafkascan.batches.scan import iter_batches
from kafkascan.batches.verify import verify_rows
from kafkascan.format.arguments import require_not_negative
from kafkascan.format.errors import CHANGED_WHILE_READ, SourceReadError, record_error
from kafkascan.format.layout import BATCH_HEADER_SIZE, ScanEnd
from kafkascan.io.folders import DiskFolder
from kafkascan.io.sources import Source, read_bytes
from kafkascan.logs.log_chunks import end_of
from kafkascan.logs.log_dir import PartitionDir
from kafkascan.logs.log_finding import partition_dir
from kafkascan.logs.log_problems import CUT_SEGMENT, OFFSET_OUT_OF_SEGMENT
from kafkascan.logs.read_committed import CommittedViewBuilder
from kafkascan.logs.record_scan import Isolation, require_isolation
from kafkascan.logs.segment import SegmentFile
from kafkascan.logs.walking.batch_offsets import below_name, misplaced_batch

_ROWS = 8192
# Calls of `poll` without progress after which bytes at the end of a log count as damage. A batch
# in a preallocated file has a wrong checksum, or no valid header, until all of it is written.
_PATIENCE = 50


@dataclass(frozen=True)
class FollowedBatches:
    """
    New batches of a log; `LogFollower.poll` yields them.

    Attributes
    ----------
    segment : SegmentFile
        The segment that contains them.
    source : Source
        Its bytes, for `read_records` and others that take a source and batches.
    batches : array of BATCH_DTYPE, shape (n,)
    """

    segment: SegmentFile
    source: Source
    batches: BatchTable


@dataclass(frozen=True)
class _LastBatch:
    """
    The batch that was read last.

    Attributes
    ----------
    position : int
    header : bytes
        Empty if no batch of the current segment was read.
    leader_epoch : int
        Of all batches that were read, the latest.
    """

    position: int = 0
    header: bytes = b""
    leader_epoch: int = -1

    def is_in(self, source: Source) -> bool:
        """Return whether a file still has the batch where it was."""
        return read_bytes(source, self.position, len(self.header)) == self.header


class LogFollower:
    """
    Reads the batches of a log, and on every call of `poll` those that were appended since.

    It goes on through rolled, deleted and compacted segments, and waits for the rest of an
    incomplete batch. What a new leader truncates and writes again is read again, with a message.

    Parameters
    ----------
    partition : path or PartitionDir
        The folder of a partition on disk.
    from_offset : int, default 0
        Batches that end before this offset are left out; so are segments before the one that
        contains it. ``PartitionDir.find_end_offset`` returns the end of the log now.
    isolation : {"read_uncommitted", "read_committed"}
        "read_committed" withholds batches until no transaction before them is open, and drops
        those of aborted transactions; transactions are followed from `from_offset` on.
    memory_map : bool, default True
        As in `Source`.
    verify : bool, default True
        Verify the checksums of all batches. A batch with a wrong one is left out, with a message.

    Attributes
    ----------
    messages : list of str
        What happened to the log, such as the deletion of offsets before they were read. The caller
        removes them.
    is_ended : bool
        Whether the log has been removed, or is damaged at its end: nothing more will be read.

    Raises
    ------
    ValueError
        If the folder is not on disk: the objects of a store do not grow.

    Notes
    -----
    The end of a leader's log may not be replicated yet: a consumer gets these records later. A
    follower is for one thread at a time.
    """

    def __init__(
        self,
        partition: str | os.PathLike[str] | PartitionDir,
        /,
        *,
        from_offset: int = 0,
        isolation: Isolation = "read_uncommitted",
        memory_map: bool = True,
        verify: bool = True,
    ) -> None:
        if not isinstance(partition, PartitionDir):
            partition = partition_dir(partition)
        if not isinstance(partition.folder, DiskFolder):
            raise ValueError(f"{partition.path} is not on a disk, and does not grow")
        require_not_negative(from_offset=from_offset)
        require_isolation(isolation)
        self.messages: list[str] = []
        self.is_ended = False
        self._partition = partition
        self._from_offset = from_offset
        self._committed = _CommittedFollower() if isolation == "read_committed" else None
        self._memory_map = memory_map
        self._verify = verify
        self._base: int | None = None
        self._position = 0
        self._next_offset: int | None = None
        self._stalled = 0
        self._is_misplaced = False
        self._last = _LastBatch()

    def poll(self) -> Iterator[FollowedBatches]:
        """
        Yield the batches that have not been read so far, up to the end of the log now.

        Raises
        ------
        SourceReadError
            If a segment cannot be read, repeatedly; with "read_committed", also if batches were
            truncated and written again: which transactions are open is not known any more.
        CorruptBatchError
            If a transaction marker cannot be read, with "read_committed".
        OSError
            If the folder cannot be listed.
        """
        for followed in self._poll():
            if self._committed is None:
                yield followed
            else:
                self._committed.add(followed)
                yield from self._committed.take()

    def _poll(self) -> Iterator[FollowedBatches]:
        while not self.is_ended:
            # A broker appends to the last segment only: one that has a successor is complete.
            segments = self._list()
            current = self._find(segments)
            if current is None:
                return
            following = [one for one in segments if _base_of(one) > _base_of(current)]
            try:
                source = current.open(memory_map=self._memory_map)
                yield from self._read(current, source, is_last=not following)
            except FileNotFoundError as error:
                self._stalled += 1  # retention has deleted it since it was listed
                if self._stalled >= _PATIENCE:
                    self._end(f"{current.path}: {error.strerror}")
                return
            except SourceReadError:
                self._stalled += 1  # a broker truncates a preallocated file when it rolls
                if self._stalled >= _PATIENCE:
                    raise
                return
            if not following:
                return
            self._begin(following[0])

    def _list(self) -> list[SegmentFile]:
        try:
            return self._partition.log_segments
        except FileNotFoundError:
            self._end(f"{self._partition.path}: the folder has been removed")
            return []

    def _end(self, message: str) -> None:
        self.messages.append(message)
        self.is_ended = True

    def _begin(self, segment: SegmentFile) -> None:
        self._base, self._position, self._stalled = _base_of(segment), 0, 0
        self._is_misplaced = False
        self._last = replace(self._last, position=0, header=b"")

    def _find(self, segments: Sequence[SegmentFile]) -> SegmentFile | None:
        """Return the segment to go on with: the current one, or the one that has replaced it."""
        if not segments:
            return None
        for one in segments:
            if _base_of(one) == self._base:
                return one
        expected = self._from_offset if self._next_offset is None else self._next_offset
        reaching = [one for one in segments if _base_of(one) <= expected]
        found = reaching[-1] if reaching else segments[0]
        is_expected = self._next_offset is not None or self._from_offset > 0
        if is_expected and _base_of(found) > expected:
            self.messages.append(
                f"{self._partition.path}: the offsets {expected} to {_base_of(found) - 1} were"
                " deleted before they were read"
            )
        self._begin(found)
        return found

    def _read(
        self, segment: SegmentFile, source: Source, *, is_last: bool
    ) -> Iterator[FollowedBatches]:
        is_read_before = self._position == 0 and _base_of(segment) < (self._next_offset or 0)
        if source.size < self._position or is_read_before or not self._last.is_in(source):
            self._rewind(segment, source, is_last=is_last)
        if source.size == self._position:
            return
        before = self._position
        headers = iter_batches(source, rows=_ROWS, start=self._position, on_corrupt="stop")
        for table in headers:
            self._compare_with_name(segment, table)
            settled = self._settled(source, table) if is_last else table
            is_whole = len(settled) == len(table)
            end = headers.position if is_whole else int(table["position"][len(settled)])
            rows = rows_from(settled, self._next_offset or 0)
            if len(rows):
                complete = self._open_first(segment, end)
                self._last = self._last_of(complete, rows)
                self._next_offset, self._position = end_of(rows), end
                rows = rows_from(rows, self._from_offset)
                rows = self._verified(complete, rows) if self._verify else rows
                if len(rows):
                    yield FollowedBatches(segment, complete, rows)
            self._position = end
            if not is_whole:
                self._stalled += 1
                return
        self._stalled = 0 if self._position > before else self._stalled + 1
        self._note_end(segment, headers.end, headers.error, is_last=is_last)

    def _compare_with_name(self, segment: SegmentFile, table: BatchTable) -> None:
        found = None if self._is_misplaced else misplaced_batch(segment, table)
        if found is not None:
            self._is_misplaced = True
            offset, position = found
            self.messages.append(
                f"{segment.path}: position {position}: {below_name(offset)}"
                f" [{OFFSET_OUT_OF_SEGMENT}]"
            )

    def _open_first(self, segment: SegmentFile, size: int) -> Source:
        """
        Open the first bytes of a segment.

        A file that is truncated behind them meanwhile is no error for who reads their records.
        """
        source = segment.open(memory_map=self._memory_map, max_size=size)
        if source.size < size:
            raise source.fault_error(source.size)
        return source

    def _settled(self, source: Source, table: BatchTable) -> BatchTable:
        """Return a table without its last batch, if a broker may still be writing that."""
        if self._stalled >= _PATIENCE or verify_rows(source, table[-1:]).all():
            return table
        return table[:-1]

    def _verified(self, source: Source, rows: BatchTable) -> BatchTable:
        """Return the batches with valid checksums."""
        are_valid = verify_rows(source, rows)
        if are_valid.all():
            return rows
        for row in rows[~are_valid]:
            self.messages.append(str(record_error("CHECKSUM_MISMATCH", source.path, row)))
        return rows.take(np.flatnonzero(are_valid))

    def _note_end(
        self, segment: SegmentFile, end: ScanEnd | None, error: Exception | None, *, is_last: bool
    ) -> None:
        if is_last:
            if end is ScanEnd.CORRUPT and self._stalled >= _PATIENCE:
                self._end(str(error))
        elif end is ScanEnd.CORRUPT:
            self.messages.append(str(error))
        elif end is not None and end is not ScanEnd.CLEAN:
            self.messages.append(
                f"{segment.path}: position {self._position}: the last batch is incomplete, and the"
                f" log goes on in the next segment [{CUT_SEGMENT}]"
            )

    def _last_of(self, source: Source, rows: BatchTable) -> _LastBatch:
        position = int(rows["position"][-1])
        epoch = max(self._last.leader_epoch, int(rows["partition_leader_epoch"].max()))
        return _LastBatch(position, read_bytes(source, position, BATCH_HEADER_SIZE), epoch)

    def _rewind(self, segment: SegmentFile, source: Source, *, is_last: bool) -> None:
        """Go back in a segment that was truncated, compacted or written again."""
        self._begin(segment)
        if self._read_again_what_was_rewritten(segment, source) or not is_last:
            return
        headers = iter_batches(source, rows=_ROWS, on_corrupt="stop")
        end = _base_of(segment)
        for table in headers:
            end = end_of(table) or end
        if end >= (self._next_offset or 0):
            self.messages.append(
                f"{segment.path}: the file was replaced; records before offset"
                f" {self._next_offset} may differ from those that were read"
            )
            return
        self._go_back(headers.position, end)
        self.messages.append(
            f"{segment.path}: position {self._position}: the log was truncated to offset"
            f" {self._next_offset}"
        )

    def _read_again_what_was_rewritten(self, segment: SegmentFile, source: Source) -> bool:
        """
        Go back to the first batch that a later leader wrote over offsets that were read.

        A follower of a new leader truncates its log, and writes the leader's batches there.
        """
        expected = self._next_offset or 0
        for table in iter_batches(source, rows=_ROWS, on_corrupt="stop"):
            is_other = table["partition_leader_epoch"] > self._last.leader_epoch
            rows = table[is_other & (table["base_offset"] < expected)]
            if len(rows):
                self._go_back(int(rows["position"][0]), int(rows["base_offset"][0]))
                self.messages.append(
                    f"{segment.path}: position {self._position}: the log was truncated to offset"
                    f" {self._next_offset} and written again by the leader of epoch"
                    f" {rows['partition_leader_epoch'][0]}"
                )
                return True
        return False

    def _go_back(self, position: int, offset: int) -> None:
        """Continue at an earlier position, whose records are yielded again."""
        self._position, self._next_offset = position, offset
        self._from_offset = min(self._from_offset, offset)


def _base_of(segment: SegmentFile) -> int:
    return segment.base_offset or 0


class _CommittedFollower:
    """
    Withholds batches until no transaction before them is open, and drops the aborted ones.

    The headers of the batches after the first offset of an open transaction stay in memory.
    """

    def __init__(self) -> None:
        self._builder = CommittedViewBuilder()
        self._withheld: deque[FollowedBatches] = deque()
        self._end_offset = 0

    def add(self, followed: FollowedBatches) -> None:
        """
        Add the next batches of the log.

        Raises
        ------
        CorruptBatchError
            If a marker cannot be read.
        SourceReadError
            If the batches replace some that were added: a transaction may have begun there.
        """
        first = followed.batches[0]
        if first["base_offset"] < self._end_offset:
            reason = (
                f"offsets from {first['base_offset']} on were truncated and written again, so open"
                " transactions are not known any more; follow the log again"
            )
            position = int(first["position"])
            raise SourceReadError(followed.source.path, position, reason, CHANGED_WHILE_READ)
        self._end_offset = end_of(followed.batches) or self._end_offset
        self._builder.add(followed.source, followed.batches)
        self._withheld.append(followed)

    def take(self) -> Iterator[FollowedBatches]:
        """Yield the batches that a consumer gets now, once."""
        view = self._builder.view()
        while self._withheld:
            followed = self._withheld.popleft()
            batches = followed.batches
            count = int(np.count_nonzero(view.are_stable(batches)))
            stable = batches[:count]
            visible = stable.take(np.flatnonzero(view.mask(stable)))
            if len(visible):
                yield replace(followed, batches=visible)
            if count < len(batches):
                self._withheld.appendleft(replace(followed, batches=batches[count:]))
                return
