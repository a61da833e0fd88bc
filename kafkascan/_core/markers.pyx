"""Bytes of control batches to what they say, where they look as coordinators write them."""

from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t

from kafkascan._core.guard cimport run_guarded
from kafkascan._core.layout cimport (
    KS_COMPRESSION_MASK,
    KS_CONTROL_BIT,
    KS_OK,
    KS_SOURCE_FAULT,
    KS_TIMESTAMP_TYPE_BIT,
    ks_batch_row,
    ks_prefetch,
)
from kafkascan._core.row_checks cimport compare_row

# The record of a marker: its length, attributes and two deltas, a key of four bytes (version,
# type), a value of six (version, epoch of the coordinator), and no headers. Sizes are zigzag.
cdef enum:
    HEADER = 61
    RECORD_LENGTH = 61
    TIMESTAMP_DELTA = 63
    OFFSET_DELTA = 64
    KEY_SIZE = 65
    KEY_VERSION = 66
    KEY_TYPE = 68
    VALUE_SIZE = 70
    VALUE_VERSION = 71
    COORDINATOR_EPOCH = 73
    HEADERS_COUNT = 77
    MARKER_BATCH = 78

cdef enum:
    UNREAD_ = -4

cdef enum:
    MARKERS_AHEAD = 8

UNREAD = UNREAD_

cdef packed struct marker:
    int8_t kind
    int32_t coordinator_epoch
    int64_t timestamp

cdef struct Job:
    const uint8_t *source
    int64_t source_size
    const ks_batch_row *rows
    int64_t count
    int64_t *found
    marker *markers
    int64_t found_count


cdef inline bint is_usual(const ks_batch_row *row, const uint8_t *p) noexcept nogil:
    return (
        p[RECORD_LENGTH] == 2 * (MARKER_BATCH - HEADER - 1)
        and p[TIMESTAMP_DELTA] < 0x80
        and p[OFFSET_DELTA] == 0
        and p[KEY_SIZE] == 2 * 4
        and p[KEY_VERSION] < 0x80
        and p[KEY_TYPE] == 0
        and p[KEY_TYPE + 1] <= 1
        and p[VALUE_SIZE] == 2 * 6
        and p[VALUE_VERSION] < 0x80
        and p[HEADERS_COUNT] == 0
    )


cdef void read_one(const Job *job, const ks_batch_row *row, marker *out) noexcept nogil:
    cdef const uint8_t *p
    cdef int64_t delta
    out.kind = UNREAD_
    out.coordinator_epoch = 0
    out.timestamp = 0
    if (
        row.batch_length != MARKER_BATCH - 12
        or row.records_count != 1
        or row.attributes & KS_COMPRESSION_MASK
        or compare_row(job.source, job.source_size, row) != KS_OK
    ):
        return
    p = job.source + row.position
    if not is_usual(row, p):
        return
    delta = (p[TIMESTAMP_DELTA] >> 1) ^ -<int64_t>(p[TIMESTAMP_DELTA] & 1)
    out.kind = <int8_t>p[KEY_TYPE + 1]
    out.coordinator_epoch = <int32_t>(
        <unsigned int>p[COORDINATOR_EPOCH] << 24
        | <unsigned int>p[COORDINATOR_EPOCH + 1] << 16
        | <unsigned int>p[COORDINATOR_EPOCH + 2] << 8
        | <unsigned int>p[COORDINATOR_EPOCH + 3]
    )
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
        # The scan that was here is far ahead: each marker would be waited for by itself.
        ahead = i + MARKERS_AHEAD
        if ahead < job.found_count:
            row = &job.rows[job.found[ahead]]
            if 0 <= row.position <= job.source_size - MARKER_BATCH:
                ks_prefetch(job.source + row.position)
                ks_prefetch(job.source + row.position + MARKER_BATCH - 1)
        read_one(job, &job.rows[job.found[i]], &job.markers[i])


def read_into(
    const uint8_t[::1] source not None,
    const ks_batch_row[::1] rows not None,
    int64_t[::1] found not None,
    marker[::1] markers not None,
):
    """
    Find the control batches of producers, and read those that look as they usually do.

    Parameters
    ----------
    source : buffer of bytes
        All of it.
    rows : contiguous array of BATCH_DTYPE, shape (n,)
    found : writable array of int64, shape (n,)
        Gets the rows of control batches.
    markers : writable array of MARKER, shape (n,)
        Gets what they say; the kind is UNREAD where something else has to read it.

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
        raise ValueError("there must be room for every row")
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
