"""Message sets in compressed messages of magic 0 and 1: locate them, count their messages."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uintptr_t

from kafkascan._core.buffers cimport Buffers, bytes_at
from kafkascan._core.layout cimport (
    KS_OK,
    KS_ROW_OUT_OF_BOUNDS,
    KS_V0_AT_key_size,
    KS_V1_AT_key_size,
    ks_load_u32,
)


cdef extern from "record.h" nogil:
    ctypedef struct ks_payload:
        const uint8_t *start
        const uint8_t *limit
        const uint8_t *buffer

    int ks_count_entries(const ks_payload *payload, int64_t *count, int64_t *last_offset)


def locate_wrapped(
    const uint8_t[::1] data not None,
    const uint8_t[::1] magic not None,
    int64_t[::1] start not None,
    int64_t[::1] size not None,
):
    """
    Locate the values of compressed messages, which contain the compressed messages.

    Parameters
    ----------
    data : buffer of bytes
    magic : array of n
        2 for rows that are no compressed messages; they are left as they are.
    start, size : writable arrays of n
        Range of each message in `data`; changed to the range of its value, but to a size of 0 if
        its key or value does not fit, or the value is null.
    """
    cdef int64_t row, at, limit, n = start.shape[0]
    cdef int32_t field = 0
    cdef int part
    if not magic.shape[0] == size.shape[0] == n:
        raise ValueError("arrays differ in length")
    for row in range(n):
        if not 0 <= start[row] <= start[row] + size[row] <= data.shape[0]:
            raise ValueError("start and size exceed data")
    with nogil:
        for row in range(n):
            if magic[row] >= 2:
                continue
            limit = start[row] + size[row]
            at = start[row] + (KS_V1_AT_key_size if magic[row] == 1 else KS_V0_AT_key_size)
            size[row] = 0
            for part in range(2):
                if limit - at < 4:
                    break
                field = <int32_t>ks_load_u32(&data[at])
                at += 4
                if field > limit - at:
                    break
                if part == 1 and field > 0:
                    start[row] = at
                    size[row] = field
                at += max(field, 0)


def count_wrapped(
    const uintptr_t[::1] addresses not None,
    const int64_t[::1] sizes not None,
    const int32_t[::1] buffer not None,
    const int64_t[::1] position not None,
    const int64_t[::1] size not None,
    const uint8_t[::1] is_wrapper not None,
    int64_t[::1] count not None,
):
    """
    Count the messages in wrappers of magic 0 or 1.

    Parameters
    ----------
    addresses, sizes : arrays
        Of the buffers of decompressed bytes; none of them is a map.
    buffer, position, size, is_wrapper : arrays of n
        Location of the messages of each batch; only those of wrappers are used.
    count : writable array of n
        Filled for wrappers.

    Returns
    -------
    status : int
    row : int
        The row that the status is about.
    """
    cdef Buffers buffers
    cdef ks_payload payload
    cdef int64_t last_offset = 0, row = 0, n = count.shape[0]
    cdef int status = KS_OK
    if not (
        buffer.shape[0] == position.shape[0] == size.shape[0] == is_wrapper.shape[0] == n
        and addresses.shape[0] == sizes.shape[0] > 0
    ):
        raise ValueError("arrays differ in length")
    buffers.addresses = &addresses[0]
    buffers.sizes = &sizes[0]
    buffers.count = addresses.shape[0]
    with nogil:
        for row in range(n):
            if not is_wrapper[row]:
                continue
            payload.start = bytes_at(&buffers, buffer[row], position[row], size[row])
            if payload.start == NULL:
                status = KS_ROW_OUT_OF_BOUNDS
            else:
                payload.limit = payload.start + size[row]
                payload.buffer = payload.start
                status = ks_count_entries(&payload, &count[row], &last_offset)
            if status != KS_OK:
                break
    return status, row
