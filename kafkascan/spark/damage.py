"""What happens where a log is damaged: by the option ``mode``, as Spark's file sources have it."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from kafkascan.errors import CorruptBatchError
from kafkascan.spark.options import Options

logger = logging.getLogger("kafkascan.spark")


class Damage:
    """
    The damage that is met in one range of a file.

    Attributes
    ----------
    errors : list of CorruptBatchError
        That rows are to be made of.
    dropped : int
        How many were left out instead.
    """

    def __init__(self, options: Options) -> None:
        self._fails = options.fails_fast
        self._drops = options.mode == "DROPMALFORMED"
        self.errors: list[CorruptBatchError] = []
        self.dropped = 0

    def meet(self, error: CorruptBatchError) -> None:
        """Raise, keep or count an error."""
        if self._fails:
            raise error
        if self._drops:
            self.dropped += 1
            logger.warning("dropped: %s", error)
        else:
            self.errors.append(error)

    def take(self) -> list[CorruptBatchError]:
        """Return the errors that were kept since, and forget them."""
        errors, self.errors = self.errors, []
        return errors


def tell_dropped(met: Iterable[Damage]) -> None:
    """Say how much a task has dropped."""
    dropped = sum(one.dropped for one in met)
    if dropped:
        logger.warning("dropped %d damaged batches in this task", dropped)
