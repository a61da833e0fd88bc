"""Logs on disk written anew: into another folder, or in place where that is asked for."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from kafkascan.batch_columns import BatchTable
from kafkascan.batches import BatchScan, scan_batches
from kafkascan.checks import verify_crcs
from kafkascan.data_dir_lock import as_data_dir, locked
from kafkascan.errors import RewriteError, record_error
from kafkascan.files import AtomicFile, give_to_owner_of, sync_folder
from kafkascan.findings import Finding, Severity
from kafkascan.indexes import (
    DEFAULT_INTERVAL_BYTES,
    IndexEntries,
    build_indexes,
    require_interval_bytes,
    write_index,
)
from kafkascan.layout import ScanEnd
from kafkascan.log_dir import partition_dir
from kafkascan.names import parse_segment_name, sibling_name
from kafkascan.recovery import recover
from kafkascan.rewrite_reports import (
    LogRewrite,
    SegmentRewrite,
    left_out,
    moved_end,
    note_leftovers,
    note_links,
    note_stale,
)
from kafkascan.rewriting import Buffer
from kafkascan.sources import Source
from kafkascan.walks import read_bytes

_METADATA, _EPOCHS = "partition.metadata", "leader-epoch-checkpoint"


class Work(Protocol):
    """What becomes of one segment: its new bytes, and once they are yielded, a report."""

    report: Any

    def __iter__(self) -> Iterator[Buffer]:
        """Yield the new bytes, in order."""


MakeWork = Callable[[Source, BatchTable], Work]
Check = Callable[[Source, BatchTable, Any], None]


@dataclass(frozen=True)
class Rewriting:
    """
    How logs are written anew.

    Attributes
    ----------
    work : callable
        Makes what gives the new bytes of a segment.
    check : callable
        Looks at a new log before it is put in place, and raises if it is not what it should be.
    offset_shift : int
        What is added to the base offsets in the names of files.
    interval_bytes : int or None
        Kafka's ``index.interval.bytes``; None for what `recover` finds.
    keeps_epochs : bool
        Whether batches keep their leader epochs, so that what is known of those holds.
    keeps_producers : bool
        The same of their producers and transactions.
    """

    work: MakeWork
    check: Check | None = None
    offset_shift: int = 0
    interval_bytes: int | None = None
    keeps_epochs: bool = True
    keeps_producers: bool = True

    def run(self, path: Path, target: Path | None, *, in_place: bool) -> LogRewrite:
        """
        Write a log, or all logs of a partition's folder, anew.

        Parameters
        ----------
        path : Path
            A ``.log`` file, or the folder of a partition.
        target : Path or None
            A file or a folder that is not there yet; a file may also be named by its folder.
        in_place : bool
            Replace what is there; `target` must be None then.
        """
        if in_place == (target is not None):
            raise ValueError("either name a target, or ask for it in place")
        if in_place and self.offset_shift:
            raise ValueError("other offsets make other names of files: write them to a folder")
        if self.interval_bytes is not None:
            require_interval_bytes(self.interval_bytes)
        if target is not None and path.is_dir():
            _require_outside(path, target)
        result = LogRewrite(path, path if target is None else target)
        if target is None:
            self._in_place(result)
        elif path.is_dir():
            self._to_folder(result)
        else:
            self._to_file(result)
        return result

    # ---- elsewhere -----------------------------------------------------------------------

    def _to_folder(self, result: LogRewrite) -> None:
        """Build the folder beside its place, and put it there when it is whole."""
        target = Path(os.path.abspath(result.target))
        if target.exists():
            raise FileExistsError(errno.EEXIST, "there is something already", str(target))
        building = Path(
            tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent)
        )
        try:
            _require_settled(result.path, ("swap",))
            _make_like(building, result.path)
            for path in _live_logs(result.path):
                segment = self._written(result, path, building / self._name(path))
                segment.target = target / segment.target.name
            for path in self._carried_over(result.path):
                with AtomicFile(building / path.name, like=path) as file:
                    file.stream.write(path.read_bytes())
            self._put_in_order(building)
            os.rename(building, target)
            sync_folder(target.parent)
        except BaseException:
            shutil.rmtree(building, ignore_errors=True)
            raise

    def _carried_over(self, folder: Path) -> list[Path]:
        """Return the files that hold for the new logs, too, and may know more than those say."""
        found = [folder / _METADATA]
        if self.keeps_epochs:
            found.append(folder / _EPOCHS)
        if self.keeps_producers and not self.offset_shift:
            found += folder.glob("*.snapshot")
        return [path for path in found if path.exists()]

    def _to_file(self, result: LogRewrite) -> None:
        if result.target.is_dir():
            result.target = result.target / self._name(result.path)
        if result.target.exists():
            raise FileExistsError(errno.EEXIST, "there is something already", str(result.target))
        self._written(result, result.path, result.target)
        self._write_indexes(result.target)
        note_stale(result)

    def _written(self, result: LogRewrite, path: Path, target: Path) -> SegmentRewrite:
        with AtomicFile(target, like=path) as file:
            return self._write(result, path, target, file)

    def _name(self, path: Path) -> str:
        name = parse_segment_name(path.name)
        if not self.offset_shift or name is None or name.base_offset is None:
            return path.name
        base_offset = name.base_offset + self.offset_shift
        if base_offset < 0:
            raise ValueError(f"{path}: its base offset would be {base_offset}")
        return f"{base_offset:020}{path.name[path.name.index('.') :]}"

    # ---- in place ------------------------------------------------------------------------

    def _in_place(self, result: LogRewrite) -> None:
        is_folder = result.path.is_dir()
        folder = result.path if is_folder else result.path.parent
        logs = _live_logs(folder) if is_folder else [result.path]
        with contextlib.ExitStack() as opened:
            for data_dir in _data_dirs(folder, logs):
                opened.enter_context(locked(data_dir))
            _require_settled(folder, ("swap", "cleaned"))
            changed: list[tuple[Path, AtomicFile]] = []
            for path in logs:
                file = AtomicFile(path, like=path).__enter__()
                opened.callback(file.discard)
                if self._write(result, path, path, file).is_changed:
                    file.sync()
                    changed.append((path, file))
                else:
                    file.discard()
            if not changed:
                _note_what_is_left(result, folder)
                return
            note_links(result, [path for path, _ in changed])
            self._drop_siblings(folder, [path for path, _ in changed], is_folder=is_folder)
            for _, file in changed:
                file.put_in_place()
            sync_folder(folder)
            for path, _ in changed:
                self._write_indexes(path)
            if is_folder:
                # The lock is taken twice, and given back once: there is nothing to do behind it.
                self._put_in_order(folder)
            else:
                note_stale(result)
        _note_what_is_left(result, folder)

    def _drop_siblings(self, folder: Path, logs: list[Path], *, is_folder: bool) -> None:
        """
        Take away what belongs to the logs before.

        A broker builds indexes that are missing, but believes those that are there: however a
        rewriting ends, none that is there is of another log.
        """
        kinds = ["index", "timeindex"]
        doomed: list[Path] = []
        if is_folder and not self.keeps_producers:
            kinds.append("txnindex")
            doomed += folder.glob("*.snapshot")
        if is_folder and not self.keeps_epochs:
            doomed.append(folder / _EPOCHS)
        names = [(log, sibling_name(log.name, kind)) for log in logs for kind in kinds]
        doomed += [log.with_name(name) for log, name in names if name is not None]
        for path in doomed:
            path.unlink(missing_ok=True)
        sync_folder(folder)

    # ---- one segment ---------------------------------------------------------------------

    def _write(
        self, result: LogRewrite, path: Path, target: Path, file: AtomicFile
    ) -> SegmentRewrite:
        """Write the new bytes of a segment, and look at them before anybody else does."""
        # Sources are not closed here: an error's traceback may hold a table that views them.
        source = Source(path)
        scan = scan_batches(source)
        _require_nothing_behind(source, scan)
        if target == path:
            _require_batches(source, scan)
        work = self.work(source, scan.batches)
        size = sum(file.stream.write(piece) for piece in work)
        file.stream.flush()
        report = work.report
        is_changed = size != source.size or not _are_alike(source, file.written)
        result.findings += left_out(scan)
        written = Source(file.written)
        batches = scan_batches(written).batches
        for row in (~verify_crcs(written, batches)).nonzero()[0][:1]:
            raise record_error("CHECKSUM_MISMATCH", written.path, batches[row])
        self._entries(target, batches)  # raises if positions are beyond what an index holds
        if self.check is not None:
            self.check(written, batches, report)
        result.findings += moved_end(path, scan.batches, batches, self.offset_shift)
        segment = SegmentRewrite(path, target, report, scan.source_size, size, is_changed)
        result.segments.append(segment)
        return segment

    def _entries(self, log: Path, batches: BatchTable) -> tuple[IndexEntries, ...]:
        """Return what its indexes of offsets and times hold, if the log is named as one."""
        name = parse_segment_name(log.name)
        if name is None or name.base_offset is None or name.kind != "log":
            return ()
        given = self.interval_bytes
        interval_bytes = DEFAULT_INTERVAL_BYTES if given is None else given
        return build_indexes(batches, name.base_offset, interval_bytes, str(log))

    def _write_indexes(self, log: Path) -> None:
        entries = self._entries(log, scan_batches(log).batches)
        for kind, found in zip(("index", "timeindex"), entries, strict=False):
            write_index(log.with_name(str(sibling_name(log.name, kind))), found)

    def _put_in_order(self, folder: Path) -> None:
        """Build all that belongs to a partition's logs, as a broker does when it loads them."""
        (outcome,) = recover(
            folder, write=True, backup=False, mark_clean=False, recovery_point=0,
            interval_bytes=self.interval_bytes,
        ).partitions  # fmt: skip
        if outcome.error is not None:
            raise outcome.error
        if not outcome.is_in_order:
            raise RewriteError(f"{folder}: a broker would change the logs that were written")


def _note_what_is_left(result: LogRewrite, folder: Path) -> None:
    note_leftovers(result, folder)
    # The partition may have other folders: those that are being moved, or dropped.
    whole = Path(os.path.abspath(folder))
    here = partition_dir(whole)
    for entry in sorted(os.scandir(whole.parent), key=lambda one: one.name):
        other = partition_dir(entry.path)
        is_namesake = (other.topic, other.partition) == (here.topic, here.partition)
        if here.topic is not None and is_namesake and entry.name != whole.name and entry.is_dir():
            message = f"{entry.path}: may still hold what the log held before"
            result.findings.append(Finding("LEFTOVER", Severity.WARNING, message))


def _require_outside(folder: Path, target: Path) -> None:
    """A log's folder holds what a broker knows; a copy in it would be read as part of it."""
    if Path(os.path.realpath(target)).is_relative_to(os.path.realpath(folder)):
        raise ValueError(f"{target}: lies inside of {folder}, which is to be written anew")


def _require_batches(source: Source, scan: BatchScan) -> None:
    """Refuse to replace what is no log: nothing of it would be left."""
    if source.size and not len(scan.batches):
        reason = "no batch is in it, and nothing of it would be left"
        raise RewriteError(f"{source.path}: position 0: {reason} [NO_BATCHES]")


def _live_logs(folder: Path) -> list[Path]:
    found = [one.path for one in partition_dir(folder).segments if one.name.is_live]
    if not found:
        raise FileNotFoundError(errno.ENOENT, "no logs in this folder", str(folder))
    return found


def _make_like(folder: Path, like: Path) -> None:
    shutil.copymode(like, folder)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        give_to_owner_of(like, descriptor)
    finally:
        os.close(descriptor)


def _require_settled(folder: Path, states: tuple[str, ...]) -> None:
    """
    Refuse where a broker would bring back what a cleaner left.

    Records may be in a ``.swap`` alone by now, so what is read has none, either.
    """
    for one in partition_dir(folder).segments:
        if one.name.state in states:
            raise ValueError(f"{one.path}: left by a cleaner that was stopped; recover it first")


def _require_nothing_behind(source: Source, scan: BatchScan) -> None:
    """
    Refuse a tail that batches stand in: a damaged length looks like the log's end.

    What a writer left half done is left out; what damage hides is not.
    """
    if scan.end is ScanEnd.TORN_TAIL:
        found = scan_batches(source, on_corrupt="resync")
        if len(found.batches) > len(scan.batches):
            raise found.gaps[0].error


def _data_dirs(folder: Path, logs: list[Path]) -> set[Path]:
    """Return the data dirs that files lie in, also by way of links."""
    partitions = {os.path.abspath(folder), os.path.realpath(folder)}
    partitions |= {os.path.dirname(os.path.realpath(log)) for log in logs}
    found = {as_data_dir(Path(one).parent) for one in partitions}
    return {Path(os.path.realpath(one)) for one in found if one is not None}


def _are_alike(source: Source, other: Path) -> bool:
    """Tell whether a file has the bytes of a source that is as long."""
    at_once = 1 << 22
    with open(other, "rb") as file:
        return all(
            read_bytes(source, position, at_once) == file.read(at_once)
            for position in range(0, source.size, at_once)
        )
