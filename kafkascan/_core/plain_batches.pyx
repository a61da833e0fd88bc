"""Decode plain batches (magic 2, not compressed, all bytes in memory) in one pass.

Where a batch has few records, the time is spent on the batch: each pass over the rows and headers
reads them again. So one loop compares a row with its header, locates the records and decodes
them. It leaves everything else, also all errors, to `kafkascan._core.records`, the only judge of
errors: both accept the same batches, with the same records
(tests/property/records/test_plain_batches.py).
"""

from libc.stdint cimport int64_t, uint8_t

from kafkascan._core.decoded_columns cimport (
    are_read_in_full,
    ks_decode_batch,
    ks_payload,
    ks_record_columns,
    take_columns,
)
from kafkascan._core.guard cimport run_guarded
from kafkascan._core.layout cimport (
    KS_BATCH_HEADER_SIZE,
    KS_COMPRESSION_MASK,
    KS_LOG_OVERHEAD,
    KS_MIN_RECORD_SIZE,
    KS_OK,
    ks_batch_row,
    ks_frame_batch,
    ks_is_row_of,
    ks_prefetch_ahead,
)


cdef inline int64_t size_of_records(const ks_batch_row *row) noexcept nogil:
    return <int64_t>row.batch_length + KS_LOG_OVERHEAD - KS_BATCH_HEADER_SIZE


cdef inline bint is_plain(const ks_batch_row *row) noexcept nogil:
    """Whether a batch is plain, and its bytes may hold as many records as it counts."""
    cdef int64_t count = row.records_count
    return (
        row.magic == 2
        and row.attributes & KS_COMPRESSION_MASK == 0
        and 0 <= count * KS_MIN_RECORD_SIZE <= size_of_records(row)
    )


def count_plain_records(const ks_batch_row[::1] rows not None, int64_t source_size):
    """
    Count the records of plain batches.

    Parameters
    ----------
    rows : contiguous array of BATCH_DTYPE
        They may be wrong.
    source_size : int
        Bytes of the source.

    Returns
    -------
    int
        -1 if a batch is not plain, or if the source cannot hold so many records.
    """
    cdef int64_t count = 0
    if rows.shape[0]:
        with nogil:
            count = count_records(&rows[0], rows.shape[0], source_size)
    return count


cdef int64_t count_records(const ks_batch_row *rows, int64_t n, int64_t source_size) noexcept nogil:
    cdef int64_t i, count = 0, size = 0
    for i in range(n):
        if not is_plain(&rows[i]):
            return -1
        count += rows[i].records_count
        size += size_of_records(&rows[i])
    return count if size <= source_size else -1


cdef struct Run:
    const uint8_t *source
    int64_t source_size
    const ks_batch_row *rows
    int64_t row                # the next one …
    int64_t stop               # … up to this one
    int64_t record             # the next one …
    int64_t enough             # … up to about this one
    int64_t capacity
    bint in_full
    ks_record_columns columns
    bint is_plain


cdef bint decode_row(Run *run) noexcept nogil:
    """Decode a batch; False if it must be left to others."""
    # Another thread may change the table, and another process the bytes of a map. So what bounds
    # reads and writes is read once: the position and count of the row, the size from the header.
    # (A copy of the row would be slower: the CPU waits for its writes before it compares them.)
    cdef const ks_batch_row *row = &run.rows[run.row]
    cdef int64_t position = row.position, count = row.records_count, size = 0, done = 0
    cdef const uint8_t *p
    cdef ks_payload payload
    if not is_plain(row) or not 0 <= count <= run.capacity - run.record:
        return False
    if not 0 <= position <= run.source_size:
        return False
    p = run.source + position
    if ks_frame_batch(p, run.source_size - position, &size) != KS_OK:
        return False
    if size < KS_BATCH_HEADER_SIZE or not ks_is_row_of(p, size, row):
        return False
    payload.buffer = run.source
    payload.start = p + KS_BATCH_HEADER_SIZE
    payload.limit = p + size
    ks_prefetch_ahead(p, size)
    if ks_decode_batch(
        &payload, row, run.row, run.record, count, run.in_full, &run.columns, &done
    ) != KS_OK:
        return False
    run.record += count
    return True


cdef void decode_run(void *context) noexcept nogil:
    cdef Run *run = <Run *>context
    cdef int64_t first = run.row
    while run.row < run.stop:
        if run.row > first and run.rows[run.row].records_count > run.enough - run.record:
            return
        if not decode_row(run):
            run.is_plain = False
            return
        run.row += 1


def decode_plain(
    const uint8_t[::1] source not None,
    const ks_batch_row[::1] rows not None,
    dict columns not None,
    int64_t row,
    int64_t stop,
    int64_t record,
    int64_t enough,
):
    """
    Decode the records of plain batches.

    Parameters
    ----------
    source : buffer of bytes
        All bytes of the source, which may be a map.
    rows : contiguous array of BATCH_DTYPE
        They may be wrong.
    columns : dict of arrays
        As in `kafkascan._core.records.decode_into`.
    row, stop : int
        Range of batches to decode.
    record : int
        Index of the first record.
    enough : int
        Stop after the first batch at the latest, unless so many records are not exceeded.

    Returns
    -------
    row, record : int
        The next ones.
    is_plain : bool
        False if the batch of `row` is not plain, does not equal its row, or is damaged.
    """
    cdef Run run
    cdef int64_t fault
    run.capacity = len(columns["batch"])
    if not (0 <= row <= stop <= rows.shape[0] and 0 <= record <= run.capacity and enough >= 0):
        raise ValueError("rows or records out of range")
    take_columns(columns, run.capacity, &run.columns)
    if row == stop:
        return row, record, True
    run.source = &source[0] if source.shape[0] else NULL
    run.source_size = source.shape[0]
    run.rows = &rows[0]
    run.row = row
    run.stop = stop
    run.record = record
    run.enough = record + enough
    run.in_full = are_read_in_full(&run.columns)
    run.is_plain = True
    with nogil:
        fault = run_guarded(decode_run, &run, run.source, run.source_size)
    return run.row, run.record, run.is_plain and fault < 0
