"""``isolationLevel=read_committed`` on Spark: the library's view of a log, kept by each worker."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from kafkascan.committed import CommittedView, TransactionsFollowed
from kafkascan.spark.files import FoundFile, open_file
from kafkascan.spark.options import Options
from kafkascan.spark.ranges import RangeWalk

_ROWS = 1 << 14
_LOGS_KEPT = 4


def committed_view(log: Sequence[FoundFile], options: Options) -> CommittedView:
    """
    Read the transactions of a log, from its headers and markers.

    Parameters
    ----------
    log : sequence of FoundFile
        All of its segments, in order.
    options : Options

    Raises
    ------
    CorruptBatchError
        If the log is damaged: what ends there, or was open, cannot be known.
    """
    key = tuple(log)
    if key not in _views:
        _views[key] = _read(key, options)
        while len(_views) > _LOGS_KEPT:
            _views.popitem(last=False)
    return _views[key]


# A worker gets the ranges of a log one after the other.
_views: OrderedDict[tuple[FoundFile, ...], CommittedView] = OrderedDict()


def _read(log: Sequence[FoundFile], options: Options) -> CommittedView:
    followed = TransactionsFollowed()
    for file in log:
        source = open_file(file, options)
        walk = RangeWalk(source, 0, source.size)
        for table in walk.tables(_ROWS):
            followed.add(source, table)
        if walk.error is not None:
            raise walk.error
    return followed.view()
