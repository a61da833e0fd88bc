"""What there is among batches at all, told by one quick look."""

from __future__ import annotations

from kafkascan._core import screening as _core
from kafkascan.batch_columns import BatchTable

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
    Tell what there is among some batches.

    Parameters
    ----------
    batches : contiguous array of BATCH_DTYPE, shape (n,)
    next_offset, epoch : int, optional
        The offset that is to follow, and the leader epoch before; by default those of the
        first batch.
    earliest, latest : int
        Between which timestamps are plausible, in milliseconds.
    largest : int
        Bytes that no batch should exceed.

    Returns
    -------
    int
        Flags: ``OFFSETS`` (they do not go on without a gap), ``EPOCHS`` (there is another
        one), ``TIMES``, ``SIZES`` (beyond the limits), ``COUNTS`` (not as many records as
        offsets, or a delete horizon), ``FORMATS`` (magic 0 or 1, or an unknown codec),
        ``PRODUCERS``, ``TRANSACTIONS``, ``CONTROL`` (there are batches of theirs).
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
