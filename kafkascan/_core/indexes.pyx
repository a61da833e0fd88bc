"""Rows of the batch table to entries of a segment's indexes."""

from libc.stdint cimport int64_t, uint64_t

from kafkascan._core.layout cimport (
    KS_OFFSET_OVERFLOW,
    KS_OFFSETS_NOT_ASCENDING,
    KS_OK,
    ks_batch_row,
)


cdef struct Building:
    const ks_batch_row *rows
    int64_t count
    int64_t base_offset
    int64_t interval
    int64_t[2] *offsets            # relative offset and position, of each entry
    int64_t[2] *times              # timestamp and relative offset
    int64_t offset_count
    int64_t time_count
    int64_t row


cdef int note_time(Building *job, int64_t timestamp, int64_t relative) noexcept nogil:
    """TimeIndex.maybeAppend: only what is later than the last entry, and never before it."""
    cdef int64_t last = job.times[job.time_count - 1][0] if job.time_count else -1
    if job.time_count and relative < job.times[job.time_count - 1][1]:
        return KS_OFFSETS_NOT_ASCENDING
    if timestamp > last:
        job.times[job.time_count][0] = timestamp
        job.times[job.time_count][1] = relative
        job.time_count += 1
    return KS_OK


cdef int build(Building *job) noexcept nogil:
    """LogSegment.recover, as far as the two indexes go."""
    cdef const ks_batch_row *row
    cdef int64_t indexed_position = 0, latest = -1, latest_relative = 0
    cdef int64_t relative, indexed = -1
    while job.row < job.count:
        row = &job.rows[job.row]
        relative = <int64_t>(
            <uint64_t>row.base_offset
            + <uint64_t><int64_t>row.last_offset_delta
            - <uint64_t>job.base_offset
        )
        if relative < 0 or relative > 0x7FFFFFFF:
            return KS_OFFSET_OVERFLOW
        if row.max_timestamp > latest:
            latest = row.max_timestamp
            latest_relative = relative
        if row.position - indexed_position > job.interval:
            if relative <= indexed:
                return KS_OFFSETS_NOT_ASCENDING
            indexed = relative
            job.offsets[job.offset_count][0] = relative
            job.offsets[job.offset_count][1] = row.position
            job.offset_count += 1
            if note_time(job, latest, latest_relative) != KS_OK:
                return KS_OFFSETS_NOT_ASCENDING
            indexed_position = row.position
        job.row += 1
    return note_time(job, latest, latest_relative)


def build_into(
    const ks_batch_row[::1] rows not None,
    int64_t base_offset,
    int64_t interval,
    int64_t[:, ::1] offsets not None,
    int64_t[:, ::1] times not None,
):
    """
    Compute the entries of both indexes.

    Parameters
    ----------
    rows : contiguous array of BATCH_DTYPE, n rows
        In file order, from the start of the segment.
    base_offset, interval : int
    offsets, times : writable arrays of int64, shape (n + 1, 2)

    Returns
    -------
    status : int
    row : int
        The one that the status is about.
    offset_count, time_count : int
        Entries written.
    """
    cdef Building job
    cdef int status
    if offsets.shape[0] <= rows.shape[0] or times.shape[0] <= rows.shape[0]:
        raise ValueError("there must be room for an entry more than there are rows")
    if offsets.shape[1] != 2 or times.shape[1] != 2:
        raise ValueError("entries have two fields")
    job.rows = &rows[0] if rows.shape[0] else NULL
    job.count = rows.shape[0]
    job.base_offset = base_offset
    job.interval = interval
    job.offsets = <int64_t[2] *>&offsets[0, 0]
    job.times = <int64_t[2] *>&times[0, 0]
    job.offset_count = job.time_count = job.row = 0
    with nogil:
        status = build(&job)
    return status, job.row, job.offset_count, job.time_count
