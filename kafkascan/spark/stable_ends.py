"""How far the transactions of logs that grow are decided. For the driver; no pyspark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from kafkascan.committed import CommittedView, TransactionsFollowed
from kafkascan.layout import BATCH_DTYPE
from kafkascan.sources import Source
from kafkascan.spark.files import FoundFile, open_file
from kafkascan.spark.options import Options
from kafkascan.walks import BatchWalk

_ROWS = 1 << 14


@dataclass
class Followed:
    """
    A log, as far as its transactions are known.

    Attributes
    ----------
    path : str
        The file that was read last; empty before the first one.
    position : int
        In it, behind what was read.
    transactions : TransactionsFollowed
    """

    path: str = ""
    position: int = 0
    transactions: TransactionsFollowed = field(default_factory=TransactionsFollowed)


class StableEnds:
    """
    Follows the transactions of logs, from the first header that is there on.

    What was read before is not read again: a stream that starts reads all headers of its
    logs, and then those that are appended.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._followed: dict[str, Followed] = {}

    def forget(self, file: FoundFile) -> None:
        """Read the log of a file anew, if it was the file that was read last."""
        known = self._followed.get(file.folder)
        if known is not None and known.path == file.path:
            del self._followed[file.folder]

    def keep(self, paths: set[str]) -> None:
        """Read logs anew of which the file that was read last is gone."""
        self._followed = {
            folder: known for folder, known in self._followed.items() if known.path in paths
        }

    def view(self, log: Sequence[FoundFile], end: int) -> CommittedView:
        """
        Return how the transactions of a log ended.

        Parameters
        ----------
        log : sequence of FoundFile
        end : int
            Position in the last file; what stands behind it is not there yet.

        Raises
        ------
        CorruptBatchError
            If the log is damaged before that: what is open there cannot be known.
        """
        folder = log[-1].folder
        known = self._followed.pop(folder, None) or Followed()  # back again if nothing is raised
        if known.path == log[-1].path and known.position > end:
            known = Followed()
        paths = [file.path for file in log]
        first = paths.index(known.path) if known.path in paths else 0
        for file in log[first:]:
            start = known.position if file.path == known.path else 0
            try:
                source = open_file(file, self._options)
            except FileNotFoundError:  # as retention deletes it
                continue
            stop = end if file is log[-1] else source.size
            known.position = _add(known.transactions, source, start, stop)
            known.path = file.path
        self._followed[folder] = known
        return known.transactions.view()


def _add(transactions: TransactionsFollowed, source: Source, start: int, stop: int) -> int:
    """Add the batches that start in a range; return where they end."""
    walk = BatchWalk(source, start, stop)
    while walk.end is None:
        table = np.empty(_ROWS, BATCH_DTYPE)
        transactions.add(source, table[: walk.fill(table)])
    if walk.error is not None:
        raise walk.error
    return walk.position
