"""One pass over a batch table that flags which properties need a closer check."""

from __future__ import annotations

from kafkascan._core import screening as _core
from kafkascan.batches.columns import BatchTable

OFFSETS, EPOCHS, TIMES = _core.OFFSETS, _core.EPOCHS, _core.TIMES
SIZES, COUNTS, FORMATS = _core.SIZES, _core.COUNTS, _core.FORMATS
PRODUCERS, TRANSACTIONS, CONTROL = _core.PRODUCERS, _core.TRANSACTIONS, _core.CONTROL

_LEAST, _GREATEST = -(2**63), 2**63 - 1


def screen(
    batches: BatchTable,
    *,
    next_offset: int | None = None,
    epoch: int | None = None,
    earliest: int = _LEAST,
    latest: int = _GREATEST,
    largest: int = _GREATEST,
) -> int:
    """
    Flag the properties that occur in a batch table.

    Parameters
    ----------
    batches : contiguous array of BATCH_DTYPE, shape (n,)
    next_offset, epoch : int, optional
        The expected base offset of the first batch, and the leader epoch before it; by default
        the first batch's own.
    earliest, latest : int
        Range of plausible timestamps, in milliseconds.
    largest : int
        Largest expected size of a batch, in bytes.

    Returns
    -------
    int
        Flags: ``OFFSETS`` (a gap, or offsets that do not ascend), ``EPOCHS`` (another leader
        epoch), ``TIMES``, ``SIZES`` (out of range), ``COUNTS`` (fewer or more records than
        offsets, or a delete horizon), ``FORMATS`` (magic 0 or 1, or an unknown codec),
        ``PRODUCERS``, ``TRANSACTIONS``, ``CONTROL`` (there are such batches).
    """
    if not len(batches):
        return 0
    first = batches[0]
    return _core.screen(
        batches,
        int(first["base_offset"]) if next_offset is None else next_offset,
        int(first["partition_leader_epoch"]) if epoch is None else epoch,
        max(earliest, _LEAST),
        min(latest, _GREATEST),
        min(largest, _GREATEST),
    )
