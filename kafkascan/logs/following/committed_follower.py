"""Follow a log up to its last stable offset, without the batches of aborted transactions."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from kafkascan.format.errors import SourceReadError
from kafkascan.logs.following.log_follower import FollowedBatches
from kafkascan.logs.log_chunks import end_of
from kafkascan.logs.read_committed import CommittedViewBuilder


class CommittedFollower:
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
            raise SourceReadError(followed.source.path, int(first["position"]), reason)
        self._end_offset = end_of(followed.batches) or self._end_offset
        self._builder.add(followed.source, followed.batches)
        self._withheld.append(followed)

    def take(self) -> Iterator[FollowedBatches]:
        """Yield the batches that a consumer gets now, once."""
        view = self._builder.view()
        while self._withheld:
            followed = self._withheld.popleft()
            batches = followed.batches
            count = int(np.count_nonzero(batches["base_offset"] < view.last_stable_offset))
            stable = batches[:count]
            yield replace(followed, batches=stable.take(np.flatnonzero(view.mask(stable))))
            if count < len(batches):
                self._withheld.appendleft(replace(followed, batches=batches[count:]))
                return
