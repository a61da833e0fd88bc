"""Build the entries of a segment's indexes from batch rows, and compare entries with rows."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from kafkascan._core.layout cimport (
    KS_OFFSET_INDEX_AT_position,
    KS_OFFSET_INDEX_AT_relative_offset,
    KS_OFFSET_INDEX_ENTRY_SIZE,
    KS_OFFSET_OVERFLOW,
    KS_OFFSETS_NOT_ASCENDING,
    KS_OK,
    KS_TIME_INDEX_AT_relative_offset,
    KS_TIME_INDEX_AT_timestamp,
    KS_TIME_INDEX_ENTRY_SIZE,
    ks_batch_row,
    ks_load_i64,
    ks_load_u32,
)
from kafkascan._core.producer_ids cimport last_offset, plus


# The state between two calls, in numbers of eight bytes each.
cdef struct Indexed:
    int64_t position               # of the last entry of the offset index
    int64_t relative               # its relative offset, or -1
    int64_t latest                 # latest timestamp of the rows so far
    int64_t latest_relative
    int64_t time                   # of the last entry of the time index
    int64_t time_relative          # its relative offset, or -1

INDEXED_SIZE = sizeof(Indexed) // sizeof(int64_t)


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


cdef int append_time(Building *job, Indexed *state) noexcept nogil:
    """TimeIndex.maybeAppend: add an entry if it is later than the last one."""
    if state.latest_relative < state.time_relative:
        return KS_OFFSETS_NOT_ASCENDING
    if state.latest > state.time:
        job.times[job.time_count][0] = state.time = state.latest
        job.times[job.time_count][1] = state.time_relative = state.latest_relative
        job.time_count += 1
    return KS_OK


cdef int build(Building *job, Indexed *state) noexcept nogil:
    """The index entries that LogSegment.recover writes."""
    cdef const ks_batch_row *row
    cdef int64_t relative
    while job.row < job.count:
        row = &job.rows[job.row]
        relative = <int64_t>(
            <uint64_t>row.base_offset
            + <uint64_t><int64_t>row.last_offset_delta
            - <uint64_t>job.base_offset
        )
        if relative < 0 or relative > 0x7FFFFFFF:
            return KS_OFFSET_OVERFLOW
        if row.max_timestamp > state.latest:
            state.latest = row.max_timestamp
            state.latest_relative = relative
        if row.position - state.position > job.interval:
            if relative <= state.relative:
                return KS_OFFSETS_NOT_ASCENDING
            job.offsets[job.offset_count][0] = state.relative = relative
            job.offsets[job.offset_count][1] = state.position = row.position
            job.offset_count += 1
            if append_time(job, state) != KS_OK:
                return KS_OFFSETS_NOT_ASCENDING
        job.row += 1
    return KS_OK


def build_into(
    const ks_batch_row[::1] rows not None,
    int64_t base_offset,
    int64_t interval,
    int64_t[:, ::1] offsets not None,
    int64_t[:, ::1] times not None,
    int64_t[::1] indexed not None,
    bint is_last,
):
    """
    Compute the next entries of the offset index and the time index.

    Parameters
    ----------
    rows : contiguous array of BATCH_DTYPE, n rows
        The next ones in file order.
    base_offset, interval : int
    offsets, times : writable arrays of int64, shape (n + 1, 2)
    indexed : writable array of int64, shape (INDEXED_SIZE,)
        State between calls: ``0, -1, -1, 0, -1, -1`` before the first one.
    is_last : bool
        Whether the segment ends here: its latest timestamp gets an entry then.

    Returns
    -------
    status : int
    row : int
        The row that the status is about.
    offset_count, time_count : int
        Entries written.
    """
    cdef Building job
    cdef Indexed *state
    cdef int status
    if offsets.shape[0] <= rows.shape[0] or times.shape[0] <= rows.shape[0]:
        raise ValueError("offsets and times need one entry more than there are rows")
    if offsets.shape[1] != 2 or times.shape[1] != 2:
        raise ValueError("offsets and times must have two columns")
    if indexed.shape[0] != <int64_t>(sizeof(Indexed) // sizeof(int64_t)):
        raise ValueError("indexed has a wrong size")
    state = <Indexed *>&indexed[0]
    job.rows = &rows[0] if rows.shape[0] else NULL
    job.count = rows.shape[0]
    job.base_offset = base_offset
    job.interval = interval
    job.offsets = <int64_t[2] *>&offsets[0, 0]
    job.times = <int64_t[2] *>&times[0, 0]
    job.offset_count = job.time_count = job.row = 0
    with nogil:
        status = build(&job, state)
        if status == KS_OK and is_last:
            status = append_time(&job, state)
    return status, job.row, job.offset_count, job.time_count


# ---- comparing entries with rows --------------------------------------------------------

cdef enum:
    # The position or offset that follows the last entry. A batch may have it, too.
    NEVER = 0x7FFFFFFFFFFFFFFF


# The state between two calls, in numbers of eight bytes each.
cdef struct Progress:
    int64_t last                   # last offset of the rows so far
    int64_t latest                 # latest timestamp of the rows so far
    int64_t by_position            # entries of the offset index whose positions were passed
    int64_t by_offset              # entries of the offset index whose offsets were passed
    int64_t times                  # entries of the time index whose offsets were passed
    int64_t are_offsets_wrong
    int64_t are_times_wrong

PROGRESS_SIZE = sizeof(Progress) // sizeof(int64_t)


cdef struct Entries:
    const uint8_t *offsets         # big-endian, as in the files
    int64_t offset_count
    const uint8_t *times
    int64_t time_count
    int64_t base_offset


cdef inline const uint8_t *offset_entry(const Entries *entries, int64_t i) noexcept nogil:
    return entries.offsets + i * KS_OFFSET_INDEX_ENTRY_SIZE


cdef inline const uint8_t *time_entry(const Entries *entries, int64_t i) noexcept nogil:
    return entries.times + i * KS_TIME_INDEX_ENTRY_SIZE


cdef inline int64_t load_i32(const uint8_t *p) noexcept nogil:
    return <int32_t>ks_load_u32(p)


cdef inline int64_t position_at(const Entries *entries, int64_t i) noexcept nogil:
    if i >= entries.offset_count:
        return NEVER
    return load_i32(offset_entry(entries, i) + KS_OFFSET_INDEX_AT_position)


cdef inline int64_t offset_at(const Entries *entries, int64_t i) noexcept nogil:
    if i >= entries.offset_count:
        return NEVER
    return plus(
        entries.base_offset,
        load_i32(offset_entry(entries, i) + KS_OFFSET_INDEX_AT_relative_offset),
    )


cdef inline int64_t time_at(const Entries *entries, int64_t i) noexcept nogil:
    return ks_load_i64(time_entry(entries, i) + KS_TIME_INDEX_AT_timestamp)


cdef inline int64_t time_offset_at(const Entries *entries, int64_t i) noexcept nogil:
    if i >= entries.time_count:
        return NEVER
    return plus(
        entries.base_offset,
        load_i32(time_entry(entries, i) + KS_TIME_INDEX_AT_relative_offset),
    )


cdef bint is_right_offset(
    const Entries *entries, int64_t i, const ks_batch_row *row, int64_t previous_offset
) noexcept nogil:
    """Whether an entry of the offset index exceeds the one before it and points at the row."""
    cdef int64_t offset = offset_at(entries, i)
    if (
        position_at(entries, i) != row.position
        or offset < row.base_offset
        or offset <= previous_offset
    ):
        return False
    if i == 0:
        return offset >= entries.base_offset
    return offset > offset_at(entries, i - 1) and row.position > position_at(entries, i - 1)


cdef bint is_right_time(
    const Entries *entries, int64_t i, const ks_batch_row *row, int64_t previous_latest
) noexcept nogil:
    """Whether an entry of the time index exceeds the one before it, and the row has its time
    as the first of all rows."""
    cdef int64_t time = time_at(entries, i)
    if time != row.max_timestamp or time <= previous_latest:
        return False
    if i == 0:
        return time >= 0 and time_offset_at(entries, i) >= entries.base_offset
    return (
        time > time_at(entries, i - 1)
        and time_offset_at(entries, i) >= time_offset_at(entries, i - 1)
    )


cdef void compare(
    const Entries *entries, const ks_batch_row *rows, int64_t count, Progress *progress
) noexcept nogil:
    cdef int64_t next_position = position_at(entries, progress.by_position)
    cdef int64_t next_offset = offset_at(entries, progress.by_offset)
    cdef int64_t next_time = time_offset_at(entries, progress.times)
    cdef const ks_batch_row *row
    cdef int64_t i, last
    for i in range(count):
        row = &rows[i]
        last = last_offset(row)
        if row.base_offset <= progress.last or last < row.base_offset:
            # Offsets that do not ascend need the exact checks of Python.
            progress.are_offsets_wrong = progress.are_times_wrong = True
            return
        while next_position <= row.position and progress.by_position < entries.offset_count:
            if not is_right_offset(entries, progress.by_position, row, progress.last):
                progress.are_offsets_wrong = True
            progress.by_position += 1
            next_position = position_at(entries, progress.by_position)
        while next_offset <= last and progress.by_offset < entries.offset_count:
            if next_offset != row.base_offset and next_offset != last:
                progress.are_offsets_wrong = True
            progress.by_offset += 1
            next_offset = offset_at(entries, progress.by_offset)
        while next_time <= last and progress.times < entries.time_count:
            if not is_right_time(entries, progress.times, row, progress.latest):
                progress.are_times_wrong = True
            progress.times += 1
            next_time = time_offset_at(entries, progress.times)
        progress.last = last
        if row.max_timestamp > progress.latest:
            progress.latest = row.max_timestamp


def screen_entries(
    const ks_batch_row[::1] rows not None,
    const uint8_t[::1] offsets not None,
    const uint8_t[::1] times not None,
    int64_t base_offset,
    int64_t[::1] progress not None,
):
    """
    Compare the entries of a segment's indexes with the next rows of the segment.

    Parameters
    ----------
    rows : contiguous array of BATCH_DTYPE
        In file order.
    offsets, times : buffers of bytes
        Complete entries of ``.index`` and ``.timeindex``, big-endian.
    base_offset : int
        Base offset of the segment.
    progress : writable array of int64, shape (PROGRESS_SIZE,)
        State between calls: ``-1, -1, 0, 0, 0, 0, 0`` before the first one.

    Returns
    -------
    are_offsets_right, are_times_right : bool
        Whether the rows so far cover all entries, and all entries are right.
    latest : int
        The latest timestamp of the rows so far.
    """
    cdef Entries entries
    cdef Progress *state
    if progress.shape[0] != <int64_t>(sizeof(Progress) // sizeof(int64_t)):
        raise ValueError("progress has a wrong size")
    state = <Progress *>&progress[0]
    if state.by_position < 0 or state.by_offset < 0 or state.times < 0:
        raise ValueError("progress has a negative count")
    entries.offsets = &offsets[0] if offsets.shape[0] else NULL
    entries.offset_count = offsets.shape[0] // KS_OFFSET_INDEX_ENTRY_SIZE
    entries.times = &times[0] if times.shape[0] else NULL
    entries.time_count = times.shape[0] // KS_TIME_INDEX_ENTRY_SIZE
    entries.base_offset = base_offset
    if rows.shape[0]:
        with nogil:
            compare(&entries, &rows[0], rows.shape[0], state)
    return (
        not state.are_offsets_wrong
        and state.by_position >= entries.offset_count
        and state.by_offset >= entries.offset_count,
        not state.are_times_wrong and state.times >= entries.time_count,
        state.latest,
    )
