"""Check the order of a producer's batches as a partition leader does before it appends them."""

from libc.stdint cimport int64_t, uint64_t

from kafkascan._core.layout cimport ks_batch_row
from kafkascan._core.producer_ids cimport last_offset, last_sequence, plus

cdef enum:
    # Sequence numbers wrap around to 0 after this one.
    largest_sequence = 0x7FFFFFFF
    # A sequence number this far ahead is taken for one that went back.
    half_of_all = 0x40000000

# The fields that every batch needs come first: they share a cache line. The dtypes
# PRODUCER_ORDER and PRODUCER_COUNTS are derived from this struct.
cdef struct producer_order:
    int64_t producer_id
    int64_t producer_epoch
    int64_t last_sequence
    int64_t holes_before           # gaps in the offsets of the log up to the last data batch
    int64_t last_seen_ms
    int64_t first_epoch
    int64_t wraps
    int64_t epoch_bumps
    int64_t sequence_gaps
    int64_t missing_records
    int64_t first_gap
    int64_t duplicates
    int64_t first_duplicate
    int64_t fenced
    int64_t first_fenced
    int64_t forgotten

# How far a log was read.
cdef struct log_cursor:
    int64_t next_offset            # -1 at the start of the log
    int64_t holes                  # gaps in the offsets so far
    int64_t expiration_ms          # producer.id.expiration.ms
    bint of_clients                # whether clients append to the log, not coordinators


cdef inline void begin_order(producer_order *order, int64_t producer_id) noexcept nogil:
    order.producer_id = producer_id
    order.producer_epoch = order.last_sequence = order.first_epoch = order.last_seen_ms = -1
    order.holes_before = order.wraps = order.epoch_bumps = 0
    order.sequence_gaps = order.missing_records = order.duplicates = 0
    order.fenced = order.forgotten = 0
    order.first_gap = order.first_duplicate = order.first_fenced = -1


cdef inline void advance(log_cursor *cursor, const ks_batch_row *row) noexcept nogil:
    """Move the cursor past a batch; batches may be missing where offsets are."""
    cdef bint is_wrapper = row.magic < 2 and row.records_count < 0
    if not is_wrapper and cursor.next_offset >= 0 and row.base_offset != cursor.next_offset:
        cursor.holes += 1
    elif row.magic >= 2 and row.records_count >= 0 and row.records_count <= row.last_offset_delta:
        cursor.holes += 1
    cursor.next_offset = plus(last_offset(row), 1)


cdef inline void enter(producer_order *order, const ks_batch_row *row) noexcept nogil:
    if order.first_epoch < 0:
        order.first_epoch = row.producer_epoch
    if order.producer_epoch != row.producer_epoch:
        order.producer_epoch = row.producer_epoch
        order.last_sequence = -1
    order.last_seen_ms = row.max_timestamp


cdef inline void check_marker(producer_order *order, const ks_batch_row *row) noexcept nogil:
    if row.producer_epoch > order.producer_epoch and order.producer_epoch >= 0:
        order.epoch_bumps += 1
    enter(order, row)


cdef inline void count_jump(
    const log_cursor *cursor, producer_order *order, const ks_batch_row *row, int64_t expected
) noexcept nogil:
    """
    Count a batch whose sequence number is not the one that a leader expects of clients.

    Offset commits in transactions all have sequence 0: a coordinator appends them.
    """
    cdef int64_t idle = 0, ahead = (<int64_t>row.base_sequence - expected) & largest_sequence
    if not cursor.of_clients:
        return
    if row.max_timestamp >= 0 and order.last_seen_ms >= 0:
        idle = <int64_t>(<uint64_t>row.max_timestamp - <uint64_t>order.last_seen_ms)
    if idle >= cursor.expiration_ms or cursor.holes != order.holes_before:
        order.forgotten += 1
    elif ahead < half_of_all:
        order.sequence_gaps += 1
        order.missing_records += ahead
        if order.first_gap < 0:
            order.first_gap = row.base_offset
    else:
        order.duplicates += 1
        if order.first_duplicate < 0:
            order.first_duplicate = row.base_offset


cdef inline void check_order(
    const log_cursor *cursor, producer_order *order, const ks_batch_row *row
) noexcept nogil:
    """ProducerAppendInfo.checkProducerEpoch and checkSequence, which a leader calls."""
    cdef int64_t known = order.last_sequence, expected = -1
    cdef int64_t last = last_sequence(row)
    if order.producer_epoch == row.producer_epoch:
        if known >= 0:
            expected = (known + 1) & largest_sequence
    elif order.producer_epoch >= 0:
        if row.producer_epoch < order.producer_epoch:
            order.fenced += 1
            if order.first_fenced < 0:
                order.first_fenced = row.base_offset
            return
        order.epoch_bumps += 1
        expected = 0
    if row.base_sequence >= 0:
        if expected >= 0 and row.base_sequence != expected:
            count_jump(cursor, order, row, expected)
        if last < row.base_sequence or (row.base_sequence == 0 and known == largest_sequence):
            order.wraps += 1
    enter(order, row)
    order.holes_before = cursor.holes
    order.last_sequence = last
