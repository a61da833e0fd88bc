"""Decode the records of batches into columns."""

from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint64_t, uintptr_t

from kafkascan._core.buffers cimport Buffers, bytes_at
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
    KS_CONTROL_BIT,
    KS_LOG_OVERHEAD,
    KS_MIN_RECORD_SIZE,
    KS_OK,
    KS_ROW_MISMATCH,
    KS_ROW_OUT_OF_BOUNDS,
    KS_SOURCE_FAULT,
    ks_batch_row,
    ks_header_size,
    ks_prefetch,
    ks_prefetch_ahead,
)
from kafkascan._core.row_checks cimport compare_row


cdef extern from "record.h" nogil:
    int ks_decode_plain_message(
        const ks_payload *payload, const ks_batch_row *batch, int32_t batch_number,
        int64_t row, const ks_record_columns *columns
    )
    int ks_decode_wrapper(
        const ks_payload *payload, const ks_batch_row *batch, int32_t batch_number,
        int64_t row, int64_t count, const ks_record_columns *columns
    )


min_record_size = KS_MIN_RECORD_SIZE


# ---- comparing rows with the source ------------------------------------------------------

cdef struct Comparison:
    const uint8_t *source
    int64_t source_size
    const ks_batch_row *rows
    int64_t count
    int64_t row
    int status


cdef enum:
    ROWS_AHEAD = 16            # whose headers are prefetched


cdef inline void prefetch_header(const uint8_t *source, int64_t position) noexcept nogil:
    """Prefetch a header at a position that was not checked; a prefetch never faults."""
    cdef uintptr_t address = <uintptr_t>source + <uintptr_t>position
    ks_prefetch(<const void *>address)
    ks_prefetch(<const void *>(address + KS_BATCH_HEADER_SIZE - 1))


cdef void compare_rows(void *context) noexcept nogil:
    cdef Comparison *job = <Comparison *>context
    while job.row < job.count:
        if job.row < job.count - ROWS_AHEAD:
            prefetch_header(job.source, job.rows[job.row + ROWS_AHEAD].position)
        job.status = compare_row(job.source, job.source_size, &job.rows[job.row])
        if job.status != KS_OK:
            return
        job.row += 1


def check_rows(const uint8_t[::1] source not None, const ks_batch_row[::1] rows not None):
    """
    Compare every field of rows with the headers at their positions.

    Parameters
    ----------
    source : buffer of bytes
        All bytes of the source.
    rows : contiguous array of BATCH_DTYPE

    Returns
    -------
    status : int
    row : int
        The first row that differs.
    fault : int
        Position of the byte that faulted, for KS_SOURCE_FAULT.
    """
    cdef Comparison job
    cdef int64_t fault
    if rows.shape[0] == 0:
        return KS_OK, 0, 0
    job.source = &source[0] if source.shape[0] else NULL
    job.source_size = source.shape[0]
    job.rows = &rows[0]
    job.count = rows.shape[0]
    job.row = 0
    job.status = KS_OK
    with nogil:
        fault = run_guarded(compare_rows, &job, job.source, job.source_size)
    if fault >= 0:
        return KS_SOURCE_FAULT, job.row, fault
    return job.status, job.row, 0


# ---- groups of rows ----------------------------------------------------------------------

def end_of_group(
    const ks_batch_row[::1] rows not None, int64_t first, int64_t most_bytes, int64_t most_records
):
    """
    Return the end of a group of rows: after the row with which it reaches a limit.

    Parameters
    ----------
    rows : contiguous array of BATCH_DTYPE
    first : int
        First row of the group; it has at least one, unless there is none.
    most_bytes, most_records : int
        Limits. A batch counts as one record at least, because the header of a wrapper has no
        count of records.
    """
    cdef int64_t row = first, size = 0, records = 0
    with nogil:
        while row < rows.shape[0] and size < most_bytes and records < most_records:
            size += max(<int64_t>rows[row].batch_length + KS_LOG_OVERHEAD, 0)
            records += max(rows[row].records_count, 1)
            row += 1
    return row


def has_control_batches(const ks_batch_row[::1] rows not None):
    """
    Return whether control batches are among rows.

    Parameters
    ----------
    rows : contiguous array of BATCH_DTYPE
    """
    cdef int64_t i
    cdef int bits = 0
    with nogil:
        for i in range(rows.shape[0]):
            bits |= rows[i].attributes & -(rows[i].magic == 2)
    return bits & KS_CONTROL_BIT != 0


# ---- locations of records ----------------------------------------------------------------

def locate_payloads(
    const ks_batch_row[::1] rows not None,
    int64_t[::1] position not None,
    int64_t[::1] size not None,
    int64_t[::1] count not None,
    uint8_t[::1] is_wrapper not None,
    int8_t[::1] codec not None,
):
    """
    Fill columns with the locations of record bytes, compressed ones included.

    Parameters
    ----------
    rows : contiguous array of BATCH_DTYPE, n rows
    position, size : writable arrays of n
        Of the records (magic 2) or the message, in the source.
    count : writable array of n
        Number of records; 1 for a message, compressed ones included.
    is_wrapper : writable array of n
        Whether the batch is a compressed message of magic 0 or 1.
    codec : writable array of n
    """
    cdef int64_t i, header, n = rows.shape[0]
    cdef bint is_legacy
    cdef const ks_batch_row *row
    if not (
        position.shape[0] == size.shape[0] == count.shape[0] == n
        and is_wrapper.shape[0] == codec.shape[0] == n
    ):
        raise ValueError("arrays differ in length")
    with nogil:
        for i in range(n):
            row = &rows[i]
            is_legacy = row.magic < 2
            header = 0 if is_legacy else KS_BATCH_HEADER_SIZE
            # The position of a row that was not checked may be any number.
            position[i] = <int64_t>(<uint64_t>row.position + <uint64_t>header)
            size[i] = <int64_t>row.batch_length + KS_LOG_OVERHEAD - header
            count[i] = 1 if is_legacy else row.records_count
            codec[i] = row.attributes & KS_COMPRESSION_MASK
            is_wrapper[i] = is_legacy and codec[i] != 0


# ---- decoding ----------------------------------------------------------------------------

cdef struct Decoding:
    Buffers buffers
    const int32_t *buffer          # by batch: location of its payload
    const int64_t *position
    const int64_t *size
    const int64_t *first_record    # by batch, and the end
    const ks_batch_row *rows
    const uint8_t *is_wrapper
    int64_t count
    bint in_full
    ks_record_columns columns
    int64_t capacity
    int64_t batch                  # the current one
    int64_t done                   # decoded records of it
    int status


cdef int decode_batch(Decoding *job, int64_t batch) noexcept nogil:
    cdef const ks_batch_row *row = &job.rows[batch]
    cdef int64_t first = job.first_record[batch]
    cdef int64_t count = job.first_record[batch + 1] - first
    cdef ks_payload payload
    payload.start = bytes_at(&job.buffers, job.buffer[batch], job.position[batch], job.size[batch])
    # Bounds of the writes to columns, which do not depend on the row.
    if payload.start == NULL or count < 0 or first < 0 or first > job.capacity - count:
        return KS_ROW_OUT_OF_BOUNDS
    payload.limit = payload.start + job.size[batch]
    payload.buffer = payload.start - job.position[batch]
    ks_prefetch_ahead(payload.start, job.size[batch])
    if row.magic == 2:
        if row.records_count != count:
            return KS_ROW_MISMATCH
        return ks_decode_batch(
            &payload, row, batch, first, count, job.in_full, &job.columns, &job.done
        )
    if job.is_wrapper[batch]:
        return ks_decode_wrapper(&payload, row, batch, first, count, &job.columns)
    if count != 1 or job.size[batch] < ks_header_size(row.magic):
        return KS_ROW_MISMATCH
    return ks_decode_plain_message(&payload, row, batch, first, &job.columns)


cdef void decode_batches(void *context) noexcept nogil:
    cdef Decoding *job = <Decoding *>context
    while job.batch < job.count:
        job.done = 0
        job.status = decode_batch(job, job.batch)
        if job.status != KS_OK:
            return
        job.batch += 1


def decode_into(
    const uintptr_t[::1] addresses not None,
    const int64_t[::1] sizes not None,
    const ks_batch_row[::1] rows not None,
    const int32_t[::1] payload_buffer not None,
    const int64_t[::1] payload_position not None,
    const int64_t[::1] payload_size not None,
    const uint8_t[::1] is_wrapper not None,
    const int64_t[::1] first_record not None,
    dict columns not None,
    int64_t first_batch,
    int64_t stop_batch,
):
    """
    Decode the records of batches from uncompressed bytes.

    Parameters
    ----------
    addresses, sizes : arrays
        Of the buffers; buffer 0 is the source, which may be a map.
    rows : contiguous array of BATCH_DTYPE, n rows
        Checked against the source.
    payload_buffer, payload_position, payload_size, is_wrapper : arrays of n
        Location of the records, the message or the wrapped messages of each batch.
    first_record : array of n + 1
        Index of the first record of each batch, and the end.
    columns : dict
        ``batch`` (int32), and any of ``offset``, ``timestamp``, ``key_position``,
        ``value_position``, ``headers_position`` (int64), ``key_size``, ``value_size``,
        ``headers_count`` (int32): arrays that are filled.
    first_batch, stop_batch : int
        Range of batches to decode.

    Returns
    -------
    status : int
    batch : int
        The batch that the status is about.
    record : int
        The record of that batch, counted from 0.
    fault : int
        Position of the byte that faulted, for KS_SOURCE_FAULT.
    """
    cdef Decoding job
    cdef int64_t fault, n = rows.shape[0], capacity = len(columns["batch"])
    if not (
        payload_buffer.shape[0] == payload_position.shape[0] == payload_size.shape[0] == n
        and is_wrapper.shape[0] == n
        and first_record.shape[0] == n + 1
        and addresses.shape[0] == sizes.shape[0] > 0
        and 0 <= first_batch <= stop_batch <= n
    ):
        raise ValueError("arrays differ in length")
    if first_batch == stop_batch:
        return KS_OK, first_batch, 0, 0
    job.buffers.addresses = &addresses[0]
    job.buffers.sizes = &sizes[0]
    job.buffers.count = sizes.shape[0]
    job.buffer = &payload_buffer[0]
    job.position = &payload_position[0]
    job.size = &payload_size[0]
    job.first_record = &first_record[0]
    job.rows = &rows[0]
    job.is_wrapper = &is_wrapper[0]
    job.count = stop_batch
    job.capacity = capacity
    take_columns(columns, capacity, &job.columns)
    job.in_full = are_read_in_full(&job.columns)
    job.batch = first_batch
    job.done = 0
    job.status = KS_OK
    with nogil:
        fault = run_guarded(
            decode_batches, &job, <const uint8_t *>job.buffers.addresses[0], job.buffers.sizes[0]
        )
    if fault >= 0:
        return KS_SOURCE_FAULT, job.batch, job.done, fault
    return job.status, job.batch, job.done, 0
