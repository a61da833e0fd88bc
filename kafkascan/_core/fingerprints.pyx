"""Fingerprints of batch rows, and pairs of same batches in two tables of fingerprints."""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint32_t

from kafkascan._core.layout cimport KS_LOG_OVERHEAD, KS_OK, KS_OUTPUT_FULL, ks_batch_row
from kafkascan._core.producer_ids cimport last_offset

cdef packed struct fingerprint:
    int64_t first_offset
    int64_t last_offset
    int64_t size
    uint32_t crc
    int32_t records_count
    int32_t leader_epoch
    int16_t attributes
    int8_t magic

# NumPy reads the dtype from the buffer of this one row.
cdef fingerprint _blank
blank_fingerprint = <fingerprint[:1]>&_blank


# Neighbouring rows that are the same in both tables.
cdef struct run:
    int64_t left
    int64_t right
    int64_t count


def take_into(const ks_batch_row[::1] rows not None, fingerprint[::1] out not None):
    """
    Write the fingerprints of batches.

    Parameters
    ----------
    rows : contiguous array of BATCH_DTYPE, n rows
    out : contiguous writable array of FINGERPRINT, n rows
    """
    cdef const ks_batch_row *row
    cdef fingerprint *one
    cdef int64_t i, n = rows.shape[0]
    if out.shape[0] != n:
        raise ValueError("out and rows differ in length")
    with nogil:
        for i in range(n):
            row, one = &rows[i], &out[i]
            one.first_offset = row.base_offset
            one.last_offset = last_offset(row)
            one.size = <int64_t>row.batch_length + KS_LOG_OVERHEAD
            one.crc = row.crc
            one.records_count = row.records_count
            one.leader_epoch = row.partition_leader_epoch
            one.attributes = row.attributes
            one.magic = row.magic


cdef inline bint are_same(const fingerprint *one, const fingerprint *other) noexcept nogil:
    return (
        one.crc == other.crc
        and one.size == other.size
        and one.first_offset == other.first_offset
        and one.magic == other.magic
    )


def pair_by_offset(
    const fingerprint[::1] left not None,
    const fingerprint[::1] right not None,
    int64_t left_row,
    int64_t right_row,
    int64_t[:, ::1] runs not None,
):
    """
    Pair batches that have the same last offset and the same content.

    Parameters
    ----------
    left, right : contiguous arrays of FINGERPRINT
        Last offsets ascend in both.
    left_row, right_row : int
        Rows to begin with.
    runs : writable array of int64, shape (capacity, 3)
        Filled: a row of each table, and how many rows from there on are the same.

    Returns
    -------
    status : int
        OUTPUT_FULL if another run does not fit.
    count : int
        Runs written.
    left_row, right_row : int
        Rows to continue with.
    epoch_changes : int
        Number of pairs with different leader epochs.
    """
    cdef const fingerprint *one
    cdef const fingerprint *other
    cdef run *found = NULL
    cdef int64_t n = left.shape[0], m = right.shape[0], capacity = runs.shape[0]
    cdef int64_t i = left_row, j = right_row, count = 0, changes = 0
    cdef int status = KS_OK
    if i < 0 or j < 0 or runs.shape[1] != 3:
        raise ValueError("rows must not be negative, and runs must have three columns")
    with nogil:
        while i < n and j < m:
            one, other = &left[i], &right[j]
            if one.last_offset < other.last_offset:
                i += 1
                continue
            if one.last_offset > other.last_offset:
                j += 1
                continue
            if are_same(one, other):
                if count and found.left + found.count == i and found.right + found.count == j:
                    found.count += 1
                elif count < capacity:
                    found = <run *>&runs[count, 0]
                    found.left, found.right, found.count = i, j, 1
                    count += 1
                else:
                    status = KS_OUTPUT_FULL
                    break
                changes += one.leader_epoch != other.leader_epoch
            i += 1
            j += 1
    return status, count, i, j, changes


def are_ascending(const fingerprint[::1] rows not None):
    """Check whether the last offsets ascend."""
    cdef int64_t i, n = rows.shape[0]
    cdef bint found = True
    with nogil:
        for i in range(1, n):
            if rows[i].last_offset <= rows[i - 1].last_offset:
                found = False
                break
    return found
