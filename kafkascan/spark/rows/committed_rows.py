"""The read_committed view of logs on a Spark worker, cached per log."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from kafkascan.logs.log_chunks import rows_from
from kafkascan.logs.read_committed import CommittedView, CommittedViewBuilder
from kafkascan.spark.options.reader_options import Options
from kafkascan.spark.planning.file_listing import FoundFile, open_file
from kafkascan.spark.planning.range_walk import RangeWalk

_ROWS = 1 << 14
_LOGS_KEPT = 4


def committed_view(log: Sequence[FoundFile], options: Options) -> CommittedView:
    """
    Read the transactions of a log from its batch headers and markers.

    Parameters
    ----------
    log : sequence of FoundFile
        All segments of the log, in order.
    options : Options

    Raises
    ------
    CorruptBatchError
        If the log is damaged: transactions that end after the damage are not known.
    """
    key = tuple(log)
    if key not in _views:
        _views[key] = _read(key, options)
        while len(_views) > _LOGS_KEPT:
            _views.popitem(last=False)
    return _views[key]


# A worker reads the ranges of a log one after another, and needs the same view for each.
_views: OrderedDict[tuple[FoundFile, ...], CommittedView] = OrderedDict()


def _read(log: Sequence[FoundFile], options: Options) -> CommittedView:
    builder = CommittedViewBuilder()
    for file in log:
        source = open_file(file, options)
        walk = RangeWalk(source, 0, source.size)
        for table in walk.tables(_ROWS):
            builder.add(source, rows_from(table, file.first_offset))
        if walk.error is not None:
            raise walk.error
    return builder.view()
