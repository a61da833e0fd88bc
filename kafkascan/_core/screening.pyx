"""One pass over batch rows that flags which properties need a closer check, or adds them up."""

from libc.stdint cimport INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint64_t

from kafkascan._core.layout cimport (
    KS_COMPRESSION_MASK,
    KS_CONTROL_BIT,
    KS_DELETE_HORIZON_BIT,
    KS_LOG_OVERHEAD,
    KS_TIMESTAMP_TYPE_BIT,
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
    Flag the properties that occur in rows.

    Parameters
    ----------
    rows : contiguous array of BATCH_DTYPE
    next_offset : int
        Expected base offset of the first row.
    epoch : int
        Leader epoch of the previous row.
    earliest, latest : int
        Range of plausible timestamps.
    largest : int
        Largest expected size of a batch, in bytes.

    Returns
    -------
    flags : int
        OFFSETS (a gap, or offsets that do not ascend), EPOCHS (another leader epoch), TIMES,
        SIZES (out of range), COUNTS (fewer or more records than offsets, or a delete horizon),
        FORMATS (magic 0 or 1, or an unknown codec), PRODUCERS, TRANSACTIONS, CONTROL (there are
        such batches).
    """
    # Without branches per row: twelve of them take twice as long.
    cdef const ks_batch_row *row
    cdef int64_t i, n = rows.shape[0]
    cdef uint64_t expected = <uint64_t>next_offset, other_offsets = 0
    cdef int64_t negative_deltas = 0, missing_counts = 0, old_magics = 0, no_producers = -1
    cdef int64_t other_counts = 0, first_time = latest, last_time = earliest
    cdef int32_t other_epochs = 0, attributes = 0, unknown_codecs = 0
    cdef int32_t greatest_length
    cdef int flags = 0
    if not n:
        return 0
    greatest_length = rows[0].batch_length
    with nogil:
        for i in range(n):
            row = &rows[i]
            other_offsets |= <uint64_t>row.base_offset ^ expected
            negative_deltas |= row.last_offset_delta
            expected = <uint64_t>row.base_offset + <uint64_t><int64_t>row.last_offset_delta + 1
            other_epochs |= row.partition_leader_epoch ^ epoch
            old_magics |= row.magic - 2
            first_time = row.max_timestamp if row.max_timestamp < first_time else first_time
            last_time = row.max_timestamp if row.max_timestamp > last_time else last_time
            greatest_length = (
                row.batch_length if row.batch_length > greatest_length else greatest_length
            )
            missing_counts |= <int64_t>row.records_count - 1
            other_counts |= (<int64_t>row.records_count - 1) ^ row.last_offset_delta
            no_producers &= row.producer_id
            attributes |= row.attributes
            unknown_codecs |= row.attributes >> 2 & (row.attributes >> 1 | row.attributes)
    if other_offsets or negative_deltas < 0:
        flags |= OFFSETS_
    if other_epochs:
        flags |= EPOCHS_
    if old_magics < 0:
        flags |= FORMATS_ | EPOCHS_
    if first_time < earliest or last_time > latest:
        flags |= TIMES_
    if <int64_t>greatest_length + KS_LOG_OVERHEAD > largest:
        flags |= SIZES_
    if missing_counts < 0 or other_counts or attributes & KS_DELETE_HORIZON_BIT:
        flags |= COUNTS_
    if unknown_codecs & 1:  # codes 5, 6 and 7
        flags |= FORMATS_
    if no_producers >= 0:
        flags |= PRODUCERS_
    if attributes & KS_TRANSACTIONAL_BIT:
        flags |= TRANSACTIONS_
    if attributes & KS_CONTROL_BIT:
        flags |= CONTROL_
    return flags


cdef packed struct Totals:
    int64_t records
    int64_t uncounted_batches
    int64_t transactional_batches
    int64_t control_batches
    int64_t timed_batches
    int64_t first_timestamp
    int64_t max_timestamp
    int64_t[8] codecs
    int64_t[8] codec_sizes
    int64_t[256] magics

TOTAL_COUNT = sizeof(Totals) // sizeof(int64_t)


def add_up(const ks_batch_row[::1] rows not None, int64_t[::1] out not None):
    """
    Write totals of rows.

    Parameters
    ----------
    rows : contiguous array of BATCH_DTYPE
    out : writable contiguous array of int64, shape (TOTAL_COUNT,)
        Records, uncounted, transactional and control batches; batches with a timestamp, their
        first and latest one; batches and bytes by codec; batches by the byte of their magic.
    """
    if out.shape[0] != TOTAL_COUNT:
        raise ValueError("out has another size")
    cdef const ks_batch_row *row
    cdef Totals *totals = <Totals *>&out[0]
    cdef int64_t i, first
    cdef int code
    out[:] = 0
    totals.first_timestamp, totals.max_timestamp = INT64_MAX, INT64_MIN
    with nogil:
        for i in range(rows.shape[0]):
            row = &rows[i]
            totals.records += row.records_count if row.records_count > 0 else 0
            totals.uncounted_batches += row.records_count < 0 and row.magic < 2
            totals.magics[<uint8_t>row.magic] += 1
            code = row.attributes & KS_COMPRESSION_MASK
            totals.codecs[code] += 1
            totals.codec_sizes[code] += <int64_t>row.batch_length + KS_LOG_OVERHEAD
            first = row.max_timestamp
            if row.magic == 2:
                totals.transactional_batches += row.attributes & KS_TRANSACTIONAL_BIT != 0
                totals.control_batches += row.attributes & KS_CONTROL_BIT != 0
                if (
                    not row.attributes & (KS_TIMESTAMP_TYPE_BIT | KS_DELETE_HORIZON_BIT)
                    and row.base_timestamp != -1
                ):
                    first = row.base_timestamp
            if row.max_timestamp != -1:
                totals.timed_batches += 1
                totals.first_timestamp = min(totals.first_timestamp, first)
                totals.max_timestamp = max(totals.max_timestamp, row.max_timestamp)
