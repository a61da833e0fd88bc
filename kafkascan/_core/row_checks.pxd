"""Compare a row of the batch table with the bytes at its position."""

from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcmp, memset

from kafkascan._core.layout cimport (
    KS_OK,
    KS_ROW_MISMATCH,
    KS_ROW_OUT_OF_BOUNDS,
    ks_batch_row,
    ks_frame_batch,
    ks_read_batch_row,
)


cdef inline int compare_row(
    const uint8_t *source, int64_t source_size, const ks_batch_row *row
) noexcept nogil:
    cdef ks_batch_row actual
    cdef int64_t size = 0
    cdef const uint8_t *p
    if row.position < 0 or row.position > source_size:
        return KS_ROW_OUT_OF_BOUNDS
    p = source + row.position
    if ks_frame_batch(p, source_size - row.position, &size) != KS_OK:
        return KS_ROW_MISMATCH
    # The magic byte is read again, and may have changed since the batch was framed.
    memset(&actual, 0, sizeof(actual))
    ks_read_batch_row(p, size, row.position, &actual)
    return KS_OK if memcmp(&actual, row, sizeof(actual)) == 0 else KS_ROW_MISMATCH
