"""Damage handling by the option ``mode``, as in Spark's file sources: fail, keep rows or drop."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from kafkascan.format.errors import CorruptBatchError
from kafkascan.spark.options.reader_options import Options

logger = logging.getLogger("kafkascan.spark")


class DamageHandler:
    """
    Handle the damaged batches of one range of a file as the option ``mode`` demands.

    Parameters
    ----------
    options : Options

    Attributes
    ----------
    dropped : int
        Number of damaged batches that were dropped.
    """

    def __init__(self, options: Options) -> None:
        self._fails_fast = options.fails_fast
        self._drops = options.mode == "DROPMALFORMED"
        self._kept: list[CorruptBatchError] = []
        self.dropped = 0

    def handle(self, error: CorruptBatchError) -> None:
        """Raise the error (FAILFAST), keep it (PERMISSIVE), or log and count it (DROPMALFORMED)."""
        if self._fails_fast:
            raise error
        if self._drops:
            self.dropped += 1
            logger.warning("dropped: %s", error)
        else:
            self._kept.append(error)

    def take_kept(self) -> list[CorruptBatchError]:
        """Return the errors kept since the last call."""
        errors, self._kept = self._kept, []
        return errors


def log_dropped(handlers: Iterable[DamageHandler]) -> None:
    """Log how many damaged batches a task dropped."""
    dropped = sum(handler.dropped for handler in handlers)
    if dropped:
        logger.warning("dropped %d damaged batches in this task", dropped)
