"""One look at rows of the batch table: whether there may be anything worth a closer one."""

from libc.stdint cimport int32_t, int64_t, uint64_t

from kafkascan._core.layout cimport (
    KS_COMPRESSION_MASK,
    KS_CONTROL_BIT,
    KS_DELETE_HORIZON_BIT,
    KS_TRANSACTIONAL_BIT,
    ks_batch_row,
)

cdef enum:
    OFFSETS_ = 1
    EPOCHS_ = 2
    TIMES_ = 4
    SIZES_ = 8
    COUNTS_ = 16
    FORMATS_ = 32
    PRODUCERS_ = 64
    TRANSACTIONS_ = 128
    CONTROL_ = 256

OFFSETS = OFFSETS_
EPOCHS = EPOCHS_
TIMES = TIMES_
SIZES = SIZES_
COUNTS = COUNTS_
FORMATS = FORMATS_
PRODUCERS = PRODUCERS_
TRANSACTIONS = TRANSACTIONS_
CONTROL = CONTROL_


def screen(
    const ks_batch_row[::1] rows not None,
    int64_t next_offset,
    int32_t epoch,
    int64_t earliest,
    int64_t latest,
    int64_t largest,
):
    """
    Tell what there is among some rows.

    Parameters
    ----------
    rows : contiguous array of BATCH_DTYPE
    next_offset : int
        That follows the row before.
    epoch : int
        Leader epoch of the row before.
    earliest, latest : int
        Between which timestamps are plausible.
    largest : int
        Size in bytes that no batch should exceed.

    Returns
    -------
    flags : int
        OFFSETS (they do not go on upwards without a gap), EPOCHS (there is another one), TIMES,
        SIZES (beyond the limits), COUNTS (not as many records as offsets, or a delete horizon),
        FORMATS (magic 0 or 1, or an unknown codec), PRODUCERS, TRANSACTIONS, CONTROL (there
        are batches of theirs).
    """
    cdef const ks_batch_row *row
    cdef int64_t i, n = rows.shape[0]
    cdef int flags = 0
    with nogil:
        for i in range(n):
            row = &rows[i]
            if row.base_offset != next_offset or row.last_offset_delta < 0:
                flags |= OFFSETS_
            next_offset = <int64_t>(
                <uint64_t>row.base_offset + <uint64_t><int64_t>row.last_offset_delta + 1
            )
            if row.magic < 2:
                flags |= FORMATS_ | EPOCHS_
            if row.partition_leader_epoch != epoch:
                flags |= EPOCHS_
                epoch = row.partition_leader_epoch
            if row.max_timestamp < earliest or row.max_timestamp > latest:
                flags |= TIMES_
            if <int64_t>row.batch_length + 12 > largest:
                flags |= SIZES_
            if row.records_count < 1 or row.records_count - 1 != row.last_offset_delta:
                flags |= COUNTS_
            if row.attributes & (KS_DELETE_HORIZON_BIT):
                flags |= COUNTS_
            if row.attributes & KS_COMPRESSION_MASK > 4:
                flags |= FORMATS_
            if row.producer_id >= 0:
                flags |= PRODUCERS_
            if row.attributes & KS_TRANSACTIONAL_BIT:
                flags |= TRANSACTIONS_
            if row.attributes & KS_CONTROL_BIT:
                flags |= CONTROL_
    return flags
