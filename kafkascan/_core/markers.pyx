"""Read end transaction markers from the bytes of control batches."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkascan._core.guard cimport run_guarded
from kafkascan._core.layout cimport (
    KS_COMPRESSION_MASK,
    KS_CONTROL_BIT,
    KS_END_MARKER_SIZE,
    KS_LOG_OVERHEAD,
    KS_MARKER_AT_coordinator_epoch,
    KS_MARKER_AT_headers_count,
    KS_MARKER_AT_key_size,
    KS_MARKER_AT_key_type,
    KS_MARKER_AT_key_version,
    KS_MARKER_AT_offset_delta,
    KS_MARKER_AT_record_length,
    KS_MARKER_AT_timestamp_delta,
    KS_MARKER_AT_value_size,
    KS_MARKER_AT_value_version,
    KS_OK,
    KS_SOURCE_FAULT,
    KS_TIMESTAMP_TYPE_BIT,
    ks_batch_row,
    ks_load_u32,
    ks_prefetch,
)
from kafkascan._core.row_checks cimport compare_row

cdef enum:
    MARKERS_AHEAD = 8

cdef marker _marker

# One row, from which Python derives the dtype MARKER.
marker_row = <marker[:1]> &_marker

cdef struct Job:
    const uint8_t *source
    int64_t source_size
    const ks_batch_row *rows
    int64_t count
    int64_t *found
    marker *markers
    int64_t found_count


cdef inline bint is_usual(const uint8_t *p) noexcept nogil:
    """Return whether a batch of the size of a marker has a marker's record (sizes are zigzag)."""
    return (
        p[KS_MARKER_AT_record_length] == 2 * (KS_END_MARKER_SIZE - KS_MARKER_AT_record_length - 1)
        and p[KS_MARKER_AT_timestamp_delta] < 0x80
        and p[KS_MARKER_AT_offset_delta] == 0
        and p[KS_MARKER_AT_key_size] == 2 * (KS_MARKER_AT_value_size - KS_MARKER_AT_key_version)
        and p[KS_MARKER_AT_key_version] < 0x80
        and p[KS_MARKER_AT_key_type] == 0
        and p[KS_MARKER_AT_key_type + 1] in (ABORT, COMMIT)
        and p[KS_MARKER_AT_value_size]
        == 2 * (KS_MARKER_AT_headers_count - KS_MARKER_AT_value_version)
        and p[KS_MARKER_AT_value_version] < 0x80
        and p[KS_MARKER_AT_headers_count] == 0
    )


cdef void read_one(const Job *job, const ks_batch_row *row, marker *out) noexcept nogil:
    cdef const uint8_t *p
    cdef int64_t delta
    out.kind = UNREAD
    out.coordinator_epoch = 0
    out.timestamp = 0
    if (
        row.batch_length != KS_END_MARKER_SIZE - KS_LOG_OVERHEAD
        or row.records_count != 1
        or row.attributes & KS_COMPRESSION_MASK
        or compare_row(job.source, job.source_size, row) != KS_OK
    ):
        return
    p = job.source + row.position
    if not is_usual(p):
        return
    delta = p[KS_MARKER_AT_timestamp_delta]
    delta = (delta >> 1) ^ -(delta & 1)
    out.kind = p[KS_MARKER_AT_key_type + 1]
    out.coordinator_epoch = <int32_t>ks_load_u32(p + KS_MARKER_AT_coordinator_epoch)
    if row.attributes & KS_TIMESTAMP_TYPE_BIT:
        out.timestamp = row.max_timestamp
    else:
        out.timestamp = <int64_t>(<unsigned long long>row.base_timestamp + delta)


cdef void read_all(void *context) noexcept nogil:
    cdef Job *job = <Job *>context
    cdef const ks_batch_row *row
    cdef int64_t i, ahead
    for i in range(job.count):
        row = &job.rows[i]
        if row.magic >= 2 and row.attributes & KS_CONTROL_BIT and row.producer_id >= 0:
            job.found[job.found_count] = i
            job.found_count += 1
    for i in range(job.found_count):
        # The scan of the headers is far ahead by now, so that each marker is a cache miss.
        ahead = i + MARKERS_AHEAD
        if ahead < job.found_count:
            row = &job.rows[job.found[ahead]]
            if 0 <= row.position <= job.source_size - KS_END_MARKER_SIZE:
                ks_prefetch(job.source + row.position)
                ks_prefetch(job.source + row.position + KS_END_MARKER_SIZE - 1)
        read_one(job, &job.rows[job.found[i]], &job.markers[i])


def read_into(
    const uint8_t[::1] source not None,
    const ks_batch_row[::1] rows not None,
    int64_t[::1] found not None,
    marker[::1] markers not None,
):
    """
    Find the control batches of producers, and read the markers of the usual form.

    Parameters
    ----------
    source : buffer of bytes
        The whole source.
    rows : contiguous array of BATCH_DTYPE, shape (n,)
    found : writable array of int64, shape (n,)
        Output: the rows of control batches.
    markers : writable array of MARKER, shape (n,)
        Output: their markers; the kind is UNREAD if a batch is not of the usual form.

    Returns
    -------
    status : int
        SOURCE_FAULT if the source cannot be read.
    count : int
    fault : int
        Position of the byte that faulted.
    """
    cdef Job job
    cdef int64_t fault
    if found.shape[0] < rows.shape[0] or markers.shape[0] < rows.shape[0]:
        raise ValueError("found and markers must be as long as rows")
    if rows.shape[0] == 0:
        return KS_OK, 0, 0
    job.source = &source[0] if source.shape[0] else NULL
    job.source_size = source.shape[0]
    job.rows, job.count = &rows[0], rows.shape[0]
    job.found, job.markers, job.found_count = &found[0], &markers[0], 0
    with nogil:
        fault = run_guarded(read_all, &job, job.source, job.source_size)
    if fault >= 0:
        return KS_SOURCE_FAULT, 0, fault
    return KS_OK, job.found_count, 0
