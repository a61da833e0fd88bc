"""Entries of indexes held against rows, in one loop: whether all of them are as they should be."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkascan._core.layout cimport ks_batch_row, ks_load_i64, ks_load_u32
from kafkascan._core.producer_ids cimport last_offset, plus

cdef enum:
    never = 0x7FFFFFFFFFFFFFFF

# Entries as they stand in the files: relative offset and position; timestamp and relative offset.
cdef enum:
    offset_entry_size = 8
    time_entry_size = 12

# How far a segment has been gone through, in numbers of eight bytes each.
cdef struct Progress:
    int64_t last                   # offset of the rows so far
    int64_t latest                 # timestamp of the rows so far
    int64_t by_position            # entries of offsets whose positions were met
    int64_t by_offset              # entries of offsets whose offsets were met
    int64_t times                  # entries of times that were met
    int64_t are_offsets_odd
    int64_t are_times_odd

PROGRESS_SIZE = sizeof(Progress) // sizeof(int64_t)

cdef struct Entries:
    const uint8_t *offsets
    int64_t offset_count
    const uint8_t *times
    int64_t time_count
    int64_t base_offset


cdef inline int64_t number(const uint8_t *p) noexcept nogil:
    return <int32_t>ks_load_u32(p)


cdef inline int64_t position_at(const Entries *of, int64_t i) noexcept nogil:
    return never if i >= of.offset_count else number(of.offsets + i * offset_entry_size + 4)


cdef inline int64_t offset_at(const Entries *of, int64_t i) noexcept nogil:
    if i >= of.offset_count:
        return never
    return plus(of.base_offset, number(of.offsets + i * offset_entry_size))


cdef inline int64_t time_offset_at(const Entries *of, int64_t i) noexcept nogil:
    if i >= of.time_count:
        return never
    return plus(of.base_offset, number(of.times + i * time_entry_size + 8))


cdef bint leads_to(
    const Entries *of, int64_t i, const ks_batch_row *row, int64_t last_before
) noexcept nogil:
    """Whether an entry of offsets is above the one before it, and leads to a row and no further."""
    cdef int64_t offset = offset_at(of, i)
    if position_at(of, i) != row.position or offset < row.base_offset or offset <= last_before:
        return False
    if i == 0:
        return offset >= of.base_offset
    return offset > offset_at(of, i - 1) and row.position > position_at(of, i - 1)


cdef bint is_latest(
    const Entries *of, int64_t i, const ks_batch_row *row, int64_t latest_before
) noexcept nogil:
    """Whether an entry of times is above the one before it, and its time that of a row first."""
    cdef int64_t time = ks_load_i64(of.times + i * time_entry_size)
    if time != row.max_timestamp or time <= latest_before:
        return False
    if i == 0:
        return time >= 0 and time_offset_at(of, i) >= of.base_offset
    return (
        time > ks_load_i64(of.times + (i - 1) * time_entry_size)
        and time_offset_at(of, i) >= time_offset_at(of, i - 1)
    )


cdef void hold_against(
    const Entries *of, const ks_batch_row *rows, int64_t count, Progress *at
) noexcept nogil:
    cdef int64_t next_position = position_at(of, at.by_position)
    cdef int64_t next_offset = offset_at(of, at.by_offset)
    cdef int64_t next_time = time_offset_at(of, at.times)
    cdef const ks_batch_row *row
    cdef int64_t i, last
    for i in range(count):
        row = &rows[i]
        last = last_offset(row)
        if row.base_offset <= at.last or last < row.base_offset:
            # What an offset leads to is not told by the rows around it.
            at.are_offsets_odd = at.are_times_odd = True
            return
        while next_position <= row.position:
            if not leads_to(of, at.by_position, row, at.last):
                at.are_offsets_odd = True
            at.by_position += 1
            next_position = position_at(of, at.by_position)
        while next_offset <= last:
            if next_offset != row.base_offset and next_offset != last:
                at.are_offsets_odd = True
            at.by_offset += 1
            next_offset = offset_at(of, at.by_offset)
        while next_time <= last:
            if not is_latest(of, at.times, row, at.latest):
                at.are_times_odd = True
            at.times += 1
            next_time = time_offset_at(of, at.times)
        at.last = last
        if row.max_timestamp > at.latest:
            at.latest = row.max_timestamp


def screen_entries(
    const ks_batch_row[::1] rows not None,
    const uint8_t[::1] offsets not None,
    const uint8_t[::1] times not None,
    int64_t base_offset,
    int64_t[::1] progress not None,
):
    """
    Hold the entries of a segment's indexes against the rows that follow.

    Parameters
    ----------
    rows : contiguous array of BATCH_DTYPE
        In file order.
    offsets, times : buffers of bytes
        Whole entries, as they stand in ``.index`` and ``.timeindex``.
    base_offset : int
        Of the segment.
    progress : writable array of int64, shape (PROGRESS_SIZE,)
        How far all has come: ``-1, -1, 0, 0, 0, 0, 0`` in the beginning.

    Returns
    -------
    are_offsets_right, are_times_right : bool
        Whether all entries were met so far, and nothing is odd about them.
    latest : int
        The latest timestamp.
    """
    cdef Entries entries
    cdef Progress *at
    if progress.shape[0] != <int64_t>(sizeof(Progress) // sizeof(int64_t)):
        raise ValueError("progress is of another size")
    at = <Progress *>&progress[0]
    if at.by_position < 0 or at.by_offset < 0 or at.times < 0:
        raise ValueError("there is nothing before the first entry")
    entries.offsets = &offsets[0] if offsets.shape[0] else NULL
    entries.offset_count = offsets.shape[0] // offset_entry_size
    entries.times = &times[0] if times.shape[0] else NULL
    entries.time_count = times.shape[0] // time_entry_size
    entries.base_offset = base_offset
    if rows.shape[0]:
        with nogil:
            hold_against(&entries, &rows[0], rows.shape[0], at)
    return (
        not at.are_offsets_odd
        and at.by_position >= entries.offset_count
        and at.by_offset >= entries.offset_count,
        not at.are_times_odd and at.times >= entries.time_count,
        at.latest,
    )
