"""The read_committed views of logs: of growing ones on the driver, of others in tasks."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from kafkascan.batches.columns import rows_from
from kafkascan.batches.walks import BatchWalk
from kafkascan.format.layout import BATCH_DTYPE
from kafkascan.io.sources import Source
from kafkascan.logs.read_committed import CommittedView, CommittedViewBuilder
from kafkascan.spark.options.reader_options import Options
from kafkascan.spark.planning.planned_logs import (
    PlannedLog,
    PlannedSegment,
    open_current,
    open_file,
)

_ROWS = 1 << 14
_LOGS_KEPT = 4


@dataclass
class ReadLog:
    """
    A log whose transactions were read up to a position.

    Attributes
    ----------
    path : str
        The file that was read last; empty before the first one.
    position : int
        The position in this file after the last batch that was read.
    builder : CommittedViewBuilder
    """

    path: str = ""
    position: int = 0
    builder: CommittedViewBuilder = field(default_factory=CommittedViewBuilder)


class CommittedViews:
    """
    Reads the transactions of growing logs, from their first header on.

    A stream reads all headers of its logs when it starts, and then only those of appended
    batches.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._logs: dict[str, ReadLog] = {}

    def forget(self, file: PlannedSegment) -> None:
        """Forget the log of a file, if this file was read last; it is then read again."""
        known = self._logs.get(file.folder)
        if known is not None and known.path == file.path:
            del self._logs[file.folder]

    def keep(self, paths: set[str]) -> None:
        """Forget the logs whose last read file is not among these paths."""
        self._logs = {folder: known for folder, known in self._logs.items() if known.path in paths}

    def view(self, log: PlannedLog, end: int) -> CommittedView:
        """
        Return the read_committed view of a log.

        Parameters
        ----------
        log : PlannedLog
        end : int
            Position in the last file up to which the log is read.

        Raises
        ------
        CorruptBatchError
            If the log is damaged before `end`: open transactions are not known.
        """
        files, last = log.segments, log.segments[-1]
        known = self._logs.pop(log.folder, None) or ReadLog()  # kept again if nothing is raised
        if known.path == last.path and known.position > end:
            known = ReadLog()
        paths = [file.path for file in files]
        first = paths.index(known.path) if known.path in paths else 0
        for file in files[first:]:
            start = known.position if file.path == known.path else 0
            # Only the last file may still be truncated: by a broker that follows another one.
            opened = open_current if file is last else open_file
            try:
                source = opened(file, self._options)
            except FileNotFoundError:  # retention deleted it
                continue
            stop = end if file is last else source.size
            known.position = _read_on(known.builder, file, source, start, stop)
            known.path = file.path
        self._logs[log.folder] = known
        return known.builder.view(last.base_offset)


def committed_view(log: PlannedLog, options: Options) -> CommittedView:
    """Return the read_committed view of all segments of a log, as `CommittedViews.view` does."""
    if log not in _views:
        while len(_views) >= _LOGS_KEPT:
            del _views[next(iter(_views))]
        _views[log] = CommittedViews(options).view(log, log.segments[-1].size)
    return _views[log]


# A worker reads the ranges of a log one after another, and needs the same view for each.
_views: dict[PlannedLog, CommittedView] = {}


def _read_on(
    builder: CommittedViewBuilder, file: PlannedSegment, source: Source, start: int, stop: int
) -> int:
    """Add the batches that start in a range; return the position after the last one."""
    walk = BatchWalk(source, start, stop)
    while walk.end is None:
        table = np.empty(_ROWS, BATCH_DTYPE)
        builder.add(source, rows_from(table[: walk.fill(table)], file.first_offset))
    if walk.error is not None:
        raise walk.error
    return walk.position
