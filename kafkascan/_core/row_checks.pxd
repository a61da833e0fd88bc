"""Compare a row of the batch table with the bytes at its position."""

from libc.stdint cimport int64_t, uint8_t

from kafkascan._core.layout cimport (
    KS_OK,
    KS_ROW_MISMATCH,
    KS_ROW_OUT_OF_BOUNDS,
    ks_batch_row,
    ks_frame_batch,
    ks_is_row_of,
)


cdef inline int compare_row(
    const uint8_t *source, int64_t source_size, const ks_batch_row *row
) noexcept nogil:
    cdef int64_t size = 0
    cdef const uint8_t *p
    if row.position < 0 or row.position > source_size:
        return KS_ROW_OUT_OF_BOUNDS
    p = source + row.position
    if ks_frame_batch(p, source_size - row.position, &size) != KS_OK:
        return KS_ROW_MISMATCH
    return KS_OK if ks_is_row_of(p, size, row) else KS_ROW_MISMATCH
