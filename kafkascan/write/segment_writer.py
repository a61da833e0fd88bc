"""Write batches to the files of a partition, as a broker that appends them does."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from kafkascan.broker_state.checkpoints import PartitionMetadata, partition_metadata_file
from kafkascan.broker_state.index_schemas import DEFAULT_INTERVAL_BYTES
from kafkascan.format.errors import SegmentWriterError
from kafkascan.io.atomic_files import adopt_folder
from kafkascan.io.sources import SourceLike, borrowed_source
from kafkascan.io.staged_folders import StagedFolder, stage_folder
from kafkascan.logs.data_dir_lock import data_dirs_of, locked
from kafkascan.write.appended_log import AppendedLog, SegmentLimits
from kafkascan.write.batch_planning import require_number

DEFAULT_SEGMENT_BYTES = 1 << 30
"""Kafka's ``segment.bytes``."""

DEFAULT_SEGMENT_MS = 7 * 24 * 3600 * 1000
"""Kafka's ``segment.ms``."""

DEFAULT_MAX_INDEX_BYTES = 10 << 20
"""Kafka's ``segment.index.bytes``."""


class SegmentWriter:
    """
    Writes the files of a partition: segments, indexes, producer snapshots, leader epochs.

    The folder is written under a temporary name and renamed when the writer is closed, so it
    appears complete and durable, or not at all. It contains the same segments, index entries and
    snapshots as the folder of a broker that appended the same batches one by one and stopped.

    An error of any call ends the writer: it removes its files, and every later call except
    `discard` raises a `SegmentWriterError`. So does the end of the ``with`` block, unless the
    block ends with an error. The files of a killed process do not prevent a broker from starting,
    and the next writer in the same parent folder removes them.

    Parameters
    ----------
    partition_dir : path
        Such as ``orders-0``; it must not exist, or be empty.
    base_offset : int, optional
        Start offset of the log; by default that of the first batch.
    segment_bytes : int, default 1 GiB
        Kafka's ``segment.bytes``: maximum size of a segment.
    segment_ms : int, default 7 days
        Kafka's ``segment.ms``: maximum difference between the timestamp of a batch and that of
        its segment's first batch.
    interval_bytes : int, default 4096
        Kafka's ``index.interval.bytes``.
    max_index_bytes : int, default 10 MiB
        Kafka's ``segment.index.bytes``: a segment ends when one of its indexes is full.
    topic_id : str, optional
        Topic id for ``partition.metadata``, 22 characters of base64; KRaft brokers need it.
    verify : bool, default True
        Verify checksums, as a broker does before it appends.
    ignore_lock : bool, default False
        Also write if a broker holds the lock of the data directory. A running broker reads the
        new folder when it restarts, or when it creates that partition.

    Attributes
    ----------
    partition_dir : Path

    Raises
    ------
    ValueError
        If a limit, the base offset or the topic id is out of range.
    FileExistsError, LogDirInUseError
        At the begin of the ``with`` block, or of the first call. See `append`.
    """

    def __init__(
        self,
        partition_dir: str | os.PathLike[str],
        /,
        *,
        base_offset: int | None = None,
        segment_bytes: int = DEFAULT_SEGMENT_BYTES,
        segment_ms: int = DEFAULT_SEGMENT_MS,
        interval_bytes: int = DEFAULT_INTERVAL_BYTES,
        max_index_bytes: int = DEFAULT_MAX_INDEX_BYTES,
        topic_id: str | None = None,
        verify: bool = True,
        ignore_lock: bool = False,
    ) -> None:
        self.partition_dir = Path(os.path.abspath(partition_dir))
        require_number("base_offset", base_offset or 0, 64, least=0)
        self._base_offset = base_offset
        self._limits = SegmentLimits(segment_bytes, segment_ms, interval_bytes, max_index_bytes)
        self._metadata = (
            None if topic_id is None else partition_metadata_file(PartitionMetadata(0, topic_id))
        )
        self._verify = verify
        self._ignore_lock = ignore_lock
        self._locks = contextlib.ExitStack()
        self._log: AppendedLog | None = None
        self._staged: StagedFolder | None = None
        self._is_closed = False
        self._failure: str | None = None

    @property
    def base_offsets(self) -> list[int]:
        """Base offsets of the segments so far."""
        return [] if self._log is None else self._log.base_offsets

    @property
    def next_offset(self) -> int | None:
        """Lowest possible base offset of the next batch."""
        return self._base_offset if self._log is None else self._log.next_offset

    def append(self, batches: SourceLike, /) -> int:
        """
        Append batches, as if one by one.

        Parameters
        ----------
        batches : path, bytes-like, Source or SegmentFile
            Complete batches, such as the result of `build_batches` or a segment.

        Returns
        -------
        int
            Number of appended batches.

        Raises
        ------
        CorruptBatchError, InvalidRecordError
            If a batch is invalid, a checksum is wrong, or Kafka would reject a marker.
        BatchTableError
            If offsets do not increase or are out of range, or a batch is larger than a segment.
        FileExistsError
            If `partition_dir` is not an empty folder.
        LogDirInUseError
            If its parent is the data directory of a running broker.
        SegmentWriterError
            If the writer is closed, or an earlier call failed.
        """
        # Not closed here: an error's traceback may hold a table that views it.
        with (
            self._discarding_after_errors() as (log, _),
            borrowed_source(batches, close=False) as source,
        ):
            return log.append(source)

    def close(self) -> None:
        """
        Complete the files, and rename the folder to `partition_dir`.

        Raises
        ------
        FileExistsError
            If `partition_dir` has been created in the meantime and is not empty.
        OSError
            If the files cannot be written.
        SegmentWriterError
            If an earlier call failed; there is no folder then.
        """
        if self._is_closed and self._failure is None:
            return
        with self._discarding_after_errors() as (log, staged):
            log.finish(self._metadata)
            adopt_folder(staged.path, like=staged.target.parent)
            staged.publish()
            self._staged = None
        self._is_closed = True
        self._locks.close()

    def discard(self) -> None:
        """Remove the files, unless the writer is closed. This is allowed after an error, too."""
        self._is_closed, self._failure = True, None
        self._remove_files()

    def __enter__(self) -> Self:
        with self._discarding_after_errors():
            return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()

    def __del__(self) -> None:
        if getattr(self, "_staged", None) is not None:
            self.discard()

    @contextlib.contextmanager
    def _discarding_after_errors(self) -> Iterator[tuple[AppendedLog, StagedFolder]]:
        """
        Return the log and its folder; after an error, remove the files and refuse other calls.

        Batches before the error may be in the log, in the state of producers, or in neither.
        """
        self._require_usable()
        try:
            yield self._open()
        except BaseException as error:
            self._is_closed, self._failure = True, f"{type(error).__name__}: {error}"
            self._remove_files()
            raise

    def _require_usable(self) -> None:
        path = os.fspath(self.partition_dir)
        if self._failure is not None:
            reason = f"an earlier call failed, and nothing is written ({self._failure})"
            raise SegmentWriterError(path, reason, "WRITER_FAILED")
        if self._is_closed:
            raise SegmentWriterError(path, "the writer is closed", "WRITER_CLOSED")

    def _open(self) -> tuple[AppendedLog, StagedFolder]:
        """Create the temporary folder when it is first used."""
        if self._log is None or self._staged is None:
            if self.partition_dir.exists() and any(self.partition_dir.iterdir()):
                raise FileExistsError(f"{self.partition_dir} is not empty")
            if not self._ignore_lock:
                data_dirs = data_dirs_of(self.partition_dir)
                self._locks.enter_context(locked(*data_dirs, shared=True))
            self._staged = stage_folder(self.partition_dir)
            self._log = AppendedLog(
                self._staged.path, self._limits, base_offset=self._base_offset, verify=self._verify
            )
        return self._log, self._staged

    def _remove_files(self) -> None:
        if self._log is not None:
            self._log.abandon()
        if self._staged is not None:
            self._staged.discard()
            self._staged = None
        self._locks.close()
