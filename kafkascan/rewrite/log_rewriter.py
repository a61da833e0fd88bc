"""Apply a rewrite to the files of a log: into a new folder or file, or in place."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Generic

from kafkascan.batches.columns import BatchTable
from kafkascan.batches.scan import BatchIterator, iter_batches, iter_open_batches
from kafkascan.batches.verify import verify_crcs
from kafkascan.broker_state.checkpoints import (
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_CHECKPOINT,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
)
from kafkascan.broker_state.index_schemas import DEFAULT_INTERVAL_BYTES
from kafkascan.broker_state.indexes import IndexBuilder, require_interval_bytes, write_index
from kafkascan.broker_state.offset_checkpoints import read_offsets
from kafkascan.format.errors import (
    CorruptBatchError,
    FileChangedError,
    RewriteError,
    record_error,
)
from kafkascan.format.file_names import (
    REWRITE_MARK,
    REWRITE_SUFFIX,
    parse_segment_name,
    sibling_name,
)
from kafkascan.format.layout import ScanEnd
from kafkascan.io.atomic_files import (
    AtomicFile,
    give_to_owner_of,
    sync_folder,
)
from kafkascan.io.file_identity import FileIdentity, require_missing
from kafkascan.io.folders import DiskFolder
from kafkascan.io.sources import Source, read_bytes
from kafkascan.io.staged_folders import stage_folder
from kafkascan.io.stores.urls import disk_path
from kafkascan.logs.data_dir_lock import as_data_dir, data_dirs_of, locked, locked_folder
from kafkascan.logs.log_finding import no_logs, partition_dir
from kafkascan.logs.segment import segment_file
from kafkascan.logs.walking.batch_offsets import BatchOffsets, SegmentOffsets
from kafkascan.logs.walking.segment_tails import describe_end, intact_batches
from kafkascan.recovery.crash_recovery import recover
from kafkascan.rewrite.batch_stream import Buffer
from kafkascan.rewrite.rewrite_reports import (
    LogRewrite,
    Report,
    SegmentRewrite,
    completed_findings,
    leftover_findings,
    link_findings,
    log_end_findings,
    offset_findings,
    stale_findings,
    tail_findings,
)

_COMPARED_SIZE = 1 << 22
# Positions in an index are int32.
_LARGEST_SEGMENT = 1 << 31
_PARTITION_FILE = re.compile(
    rf"\d{{20}}\..+|{re.escape(LEADER_EPOCH_CHECKPOINT)}|{re.escape(PARTITION_METADATA)}"
)
# Brokers ignore such files.
_PARTITION_MARK = f".partition{REWRITE_SUFFIX}"


@dataclass(frozen=True)
class _PendingRewrite:
    """
    The mark of a rewrite in place: an empty file.

    It is written before side files of the old logs are removed, and removed when those of the new
    logs are complete. In between, some logs are new, and any side file that exists is valid.

    Attributes
    ----------
    folder : Path
    log : str or None
        Name of the log that is rewritten; None for all logs of the partition.
    """

    folder: Path
    log: str | None

    def is_interrupted(self) -> bool:
        """Return whether an earlier rewrite of these logs did not end."""
        names = os.listdir(self.folder)
        if self.log is None:
            return any(map(REWRITE_MARK.fullmatch, names))
        return self._name in names or _PARTITION_MARK in names

    def begin(self) -> None:
        """Write the mark, and make it durable."""
        (self.folder / self._name).touch()
        sync_folder(self.folder)

    def end(self) -> None:
        """Remove the mark, and for a partition those of single logs."""
        for name in os.listdir(self.folder):
            if name == self._name or (self.log is None and REWRITE_MARK.fullmatch(name)):
                os.unlink(self.folder / name)
        sync_folder(self.folder)

    @property
    def _name(self) -> str:
        return _PARTITION_MARK if self.log is None else f".{self.log}{REWRITE_SUFFIX}"


@dataclass(frozen=True)
class LogRewriter(Generic[Report]):
    """
    Applies a rewrite of batches to the files of a log.

    Attributes
    ----------
    rewrite : callable
        Takes a segment, the tables of its batches and an empty report. Yields the new bytes, and
        has filled the report when the last of them is yielded.
    new_report : callable
        Returns an empty report.
    check : callable, optional
        Takes a new segment and the filled report, and raises if the segment is not as it should
        be.
    offset_shift : int
        Added to the base offsets in file names.
    interval_bytes : int or None
        Kafka's ``index.interval.bytes``; None for the default of `recover`.
    producer_expiration_ms : int or None
        Kafka's ``producer.id.expiration.ms``; None for the default of `recover`.
    keeps_epochs : bool
        Whether the rewrite keeps leader epochs, so that the epoch checkpoint remains valid.
    keeps_producers : bool
        Whether it keeps producers and transactions, so that snapshots remain valid.
    """

    rewrite: Callable[[Source, Iterable[BatchTable], Report], Iterator[Buffer]]
    new_report: Callable[[], Report]
    check: Callable[[Source, Report], None] | None = None
    offset_shift: int = 0
    interval_bytes: int | None = None
    producer_expiration_ms: int | None = None
    keeps_epochs: bool = True
    keeps_producers: bool = True

    def run(
        self,
        path: str | os.PathLike[str],
        target: str | os.PathLike[str] | None,
        *,
        in_place: bool,
    ) -> LogRewrite[Report]:
        """
        Rewrite a log, or all logs of a partition.

        Parameters
        ----------
        path : path
            A ``.log`` file, or the folder of a partition.
        target : path or None
            A file or folder that does not exist yet. For a file, also the folder to write it to.
        in_place : bool
            Replace the files of `path`; `target` must be None then.
        """
        path, target = disk_path(path), None if target is None else disk_path(target)
        if in_place == (target is not None):
            raise ValueError("give either a target or in_place")
        if in_place and self.offset_shift:
            raise ValueError("an offset shift changes file names and cannot be done in place")
        if self.interval_bytes is not None:
            require_interval_bytes(self.interval_bytes)
        if target is None:
            return self._rewrite_in_place(path)
        if path.is_dir():
            return self._rewrite_folder(path, target)
        return self._rewrite_file(path, target)

    # ---- to a target ---------------------------------------------------------------------

    def _rewrite_folder(self, folder: Path, target: Path) -> LogRewrite[Report]:
        """Build the new folder under a temporary name, and rename it when it is complete."""
        _require_outside(folder, target)
        _require_missing(target)
        result: LogRewrite[Report] = LogRewrite(folder, target)
        target = Path(os.path.abspath(target))
        with locked(*data_dirs_of(target), shared=True), stage_folder(target) as building:
            _require_no_cleaner_files(folder, ("swap",))
            _require_regular_files(folder)
            for path in _live_logs(folder):
                name = self._new_name(path)
                with AtomicFile(building / name, like=path) as file:
                    self._rewrite_segment(path, target / name, file, result)
            for path in self._side_files_to_keep(folder):
                with AtomicFile(building / path.name, like=path) as file:
                    file.stream.write(DiskFolder(folder).read(path.name) or b"")
            result.findings += offset_findings(result)
            self._rebuild_side_files(building)
            _copy_owner_and_mode(folder, building)
        return result

    def _side_files_to_keep(self, folder: Path) -> list[Path]:
        """Return side files that remain valid and hold state that the logs do not contain."""
        found = [folder / PARTITION_METADATA]
        if self.keeps_epochs:
            found.append(folder / LEADER_EPOCH_CHECKPOINT)
        if self.keeps_producers and not self.offset_shift:
            found += folder.glob("*.snapshot")
        return [path for path in found if path.exists()]

    def _rewrite_file(self, path: Path, target: Path) -> LogRewrite[Report]:
        if target.is_dir():
            target = target / self._new_name(path)
        _require_missing(target)
        result: LogRewrite[Report] = LogRewrite(path, target)
        with locked(*data_dirs_of(target.parent), shared=True):
            with AtomicFile(target, like=path) as file:
                self._rewrite_segment(path, target, file, result)
            self._write_indexes(target)
        result.findings += stale_findings(target)
        return result

    def _new_name(self, path: Path) -> str:
        name = parse_segment_name(path.name)
        if not self.offset_shift or name is None or name.base_offset is None:
            return path.name
        base_offset = name.base_offset + self.offset_shift
        if base_offset < 0:
            raise ValueError(f"{path}: the new base offset {base_offset} is negative")
        return f"{base_offset:020}{path.name[path.name.index('.') :]}"

    # ---- in place ------------------------------------------------------------------------

    def _rewrite_in_place(self, path: Path) -> LogRewrite[Report]:
        is_folder = path.is_dir()
        folder = path if is_folder else path.parent
        logs = _live_logs(folder) if is_folder else [path]
        result: LogRewrite[Report] = LogRewrite(path, path)
        pending = _PendingRewrite(folder, None if is_folder else path.name)
        with contextlib.ExitStack() as opened:
            for data_dir in _data_dirs(folder, logs):
                opened.enter_context(locked(data_dir))
                if is_folder:
                    _require_readable_checkpoints(data_dir)
            opened.enter_context(locked_folder(folder))
            _require_no_cleaner_files(folder, ("swap", "cleaned"))
            if is_folder:
                _require_regular_files(folder)
            is_interrupted = pending.is_interrupted()
            as_read = [FileIdentity.of(log) for log in logs]
            changed: list[tuple[Path, AtomicFile]] = []
            for log, identity in zip(logs, as_read, strict=True):
                file = AtomicFile(log, like=log, made_from=identity).__enter__()
                opened.callback(file.discard)
                if self._rewrite_segment(log, log, file, result).is_changed:
                    file.sync()
                    file.close()
                    changed.append((log, file))
                else:
                    file.discard()
            _require_unchanged(as_read, folder if is_folder else None)
            if changed or is_interrupted:
                pending.begin()
                result.findings += link_findings(log for log, _ in changed)
                self._replace(folder, logs, changed, is_folder=is_folder)
                pending.end()
                result.findings += [] if is_folder else stale_findings(path)
                result.findings += completed_findings(path) if is_interrupted else []
        result.findings += offset_findings(result) if is_folder else []
        result.findings += leftover_findings(folder)
        return result

    def _replace(
        self,
        folder: Path,
        logs: list[Path],
        changed: list[tuple[Path, AtomicFile]],
        *,
        is_folder: bool,
    ) -> None:
        """
        Replace logs by their rewritten files, and rebuild their side files.

        A log that changed since `_require_unchanged` is not replaced. The mark stays then, so that
        the next run rebuilds the side files that were removed.
        """
        self._remove_side_files(folder, logs, [log for log, _ in changed], is_folder=is_folder)
        for count, (_, file) in enumerate(changed):
            try:
                file.put_in_place()
            except FileChangedError as error:
                error.others = (
                    f"{count} of {len(changed)} logs are replaced and side files are removed; the"
                    " next run completes that"
                )
                raise
        for one in {file.folder for _, file in changed}:
            sync_folder(one)
        if is_folder:
            self._rebuild_side_files(folder)
        else:
            self._write_indexes(*logs)

    def _remove_side_files(
        self, folder: Path, logs: list[Path], changed: list[Path], *, is_folder: bool
    ) -> None:
        """
        Remove side files of the old logs, before the logs are replaced.

        A broker rebuilds missing indexes but trusts existing ones. So after an interruption
        every existing index belongs to its log. Where it rebuilds no index, it does not find
        leader epochs, either.
        """
        kinds = ["index", "timeindex"]
        stale: list[Path] = []
        if is_folder and not self.keeps_producers:
            kinds.append("txnindex")
            stale += folder.glob("*.snapshot")
        if is_folder and not self.keeps_epochs:
            changed = logs
            stale.append(folder / LEADER_EPOCH_CHECKPOINT)
        names = [(log, sibling_name(log.name, kind)) for log in changed for kind in kinds]
        stale += [log.with_name(name) for log, name in names if name is not None]
        for path in stale:
            path.unlink(missing_ok=True)
        sync_folder(folder)

    # ---- one segment ---------------------------------------------------------------------

    def _rewrite_segment(
        self, path: Path, target: Path, file: AtomicFile, result: LogRewrite[Report]
    ) -> SegmentRewrite[Report]:
        """Write the new bytes of a segment, verify them, and add the segment to the result."""
        # Sources are not closed here: an error's traceback may hold a table that views them.
        source = Source(path)
        headers = iter_open_batches(source)
        offsets = SegmentOffsets(segment_file(path, DiskFolder(path.parent)))
        # A larger segment may become small enough.
        index = self._index_builder(path) if source.size < _LARGEST_SEGMENT else None
        report = self.new_report()
        tables = _added(headers, offsets, index)
        size = sum(map(file.stream.write, self.rewrite(source, tables, report)))
        file.stream.flush()
        _require_no_hidden_batches(source, headers, offsets)
        if target == path:
            _require_batches(source, offsets)
        is_changed = size != source.size or not _are_equal(source, file.written)
        end_offset = self._verified(Source(file.written), target, report)
        result.findings += tail_findings(path, headers)
        result.findings += log_end_findings(path, offsets.end_offset, end_offset, self.offset_shift)
        offsets.is_whole = headers.end is ScanEnd.CLEAN
        segment = SegmentRewrite(path, target, report, source.size, size, is_changed, offsets)
        result.segments.append(segment)
        return segment

    def _verified(self, written: Source, target: Path, report: Report) -> int | None:
        """Read and check a new segment; return the offset after its last batch."""
        offsets = BatchOffsets()
        # Raises if a position exceeds what an index holds.
        for table in _added(iter_open_batches(written), offsets, self._index_builder(target)):
            for row in (~verify_crcs(written, table)).nonzero()[0][:1]:
                raise record_error("CHECKSUM_MISMATCH", written.path, table[row])
        if self.check is not None:
            self.check(written, report)
        return offsets.end_offset

    def _index_builder(self, log: Path) -> IndexBuilder | None:
        """Return a builder of the offset and time index; None if the name is not a log's."""
        name = parse_segment_name(log.name)
        if name is None or name.base_offset is None or name.kind != "log":
            return None
        given = self.interval_bytes
        interval_bytes = DEFAULT_INTERVAL_BYTES if given is None else given
        return IndexBuilder(name.base_offset, interval_bytes, str(log))

    def _write_indexes(self, log: Path) -> None:
        builder = self._index_builder(log)
        if builder is None:
            return
        for table in iter_batches(log):
            builder.add(table)
        for kind, entries in zip(("index", "timeindex"), builder.finish(), strict=True):
            write_index(log.with_name(str(sibling_name(log.name, kind))), entries)

    def _rebuild_side_files(self, folder: Path) -> None:
        """Rebuild indexes, snapshots and leader epochs, as a broker does when it loads the log."""
        (outcome,) = recover(
            folder, write=True, backup=False, mark_clean=False, recovery_point=0,
            interval_bytes=self.interval_bytes, producer_expiration_ms=self.producer_expiration_ms,
        ).partitions  # fmt: skip
        if outcome.error is not None:
            raise outcome.error
        if not outcome.is_in_order:
            raise RewriteError(f"{folder}: a broker would change the rewritten logs")


def _added(
    tables: Iterable[BatchTable], offsets: BatchOffsets, index: IndexBuilder | None
) -> Iterator[BatchTable]:
    """Yield tables of batches after they were added to offsets, and to the indexes to build."""
    for table in tables:
        offsets.add(table)
        if index is not None:
            index.add(table)
        yield table
    if index is not None:
        index.finish()


def _require_unchanged(as_read: list[FileIdentity], folder: Path | None) -> None:
    """Raise an error if a log has changed since it was read, or the folder has a new one."""
    for identity in as_read:
        identity.require_unchanged()
    known = {identity.path for identity in as_read}
    for log in () if folder is None else _live_logs(folder):
        if str(log) not in known:
            require_missing(log)


def _require_missing(target: Path) -> None:
    if target.exists():
        raise FileExistsError(errno.EEXIST, "the target already exists", str(target))


def _live_logs(folder: Path) -> list[Path]:
    partition = partition_dir(folder)
    found = [segment.path for segment in partition.segments if segment.name.is_live]
    if not found:
        raise no_logs(folder, [partition])
    return found


def _copy_owner_and_mode(folder: Path, copy: Path) -> None:
    shutil.copymode(folder, copy)
    descriptor = os.open(copy, os.O_RDONLY)
    try:
        give_to_owner_of(folder, descriptor)
    finally:
        os.close(descriptor)


def _data_dirs(folder: Path, logs: list[Path]) -> set[Path]:
    """Return the data directories of files, links resolved and not."""
    partitions = {os.path.abspath(folder), os.path.realpath(folder)}
    partitions |= {os.path.dirname(os.path.realpath(log)) for log in logs}
    found = {as_data_dir(Path(partition).parent) for partition in partitions}
    return {Path(os.path.realpath(data_dir)) for data_dir in found if data_dir is not None}


def _are_equal(source: Source, other: Path) -> bool:
    """Whether a file of the same size has the same bytes as a source."""
    with open(other, "rb") as file:
        return all(
            read_bytes(source, position, _COMPARED_SIZE) == file.read(_COMPARED_SIZE)
            for position in range(0, source.size, _COMPARED_SIZE)
        )


# ---- logs that cannot be rewritten without a loss --------------------------------------------


def _require_readable_checkpoints(data_dir: Path) -> None:
    """Raise what `recover` would raise of a data dir after the logs were replaced."""
    for name in (RECOVERY_POINT_CHECKPOINT, LOG_START_CHECKPOINT):
        read_offsets(DiskFolder(data_dir), name)


def _require_outside(folder: Path, target: Path) -> None:
    """Refuse a target inside the folder: a broker would read it as part of the log."""
    if Path(os.path.realpath(target)).is_relative_to(os.path.realpath(folder)):
        raise ValueError(f"{target} is inside {folder}, which is to be rewritten")


def _require_batches(source: Source, offsets: SegmentOffsets) -> None:
    """Refuse to replace a file without batches: the new one would be empty."""
    if source.size and offsets.end_offset is None:
        reason = "the file contains no batch, and would be replaced by an empty one"
        raise RewriteError(f"{source.path}: position 0: {reason} [NO_BATCHES]")


def _require_regular_files(folder: Path) -> None:
    """Refuse a partition with a FIFO or a folder in place of a file: it cannot be copied."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if _PARTITION_FILE.fullmatch(entry.name) and not entry.is_file():
                raise OSError(errno.EINVAL, "not a regular file", entry.path)


def _require_no_cleaner_files(folder: Path, states: tuple[str, ...]) -> None:
    """
    Refuse a folder with files of an interrupted cleaner: a broker would complete its work.

    Records may exist in a ``.swap`` file only, so such a folder is not read, either.
    """
    for segment in partition_dir(folder).segments:
        if segment.name.state in states:
            raise ValueError(
                f"{segment.path}: left by an interrupted cleaner; recover the log first"
            )


def _require_no_hidden_batches(
    source: Source, headers: BatchIterator, offsets: SegmentOffsets
) -> None:
    """
    Refuse a tail that contains valid batches: after a damaged length, a scan reports a torn tail.

    An incomplete batch at the end is left out of the new log; batches after damage must not be.
    """
    hidden = intact_batches(headers, source, offsets.end_offset)
    if len(hidden):
        reason, symbol = describe_end(headers, hidden), str(ScanEnd.TORN_TAIL)
        raise CorruptBatchError(source.path, headers.position, None, reason, symbol)
