"""Record columns in C: what planning and writing of batches share."""

from libc.stdint cimport int32_t, int64_t, uint8_t


cdef extern from "write_batch.h" nogil:
    ctypedef struct ks_items:
        const uint8_t *const *data
        const int32_t *size

    ctypedef struct ks_records:
        const int64_t *offset
        const int64_t *timestamp
        ks_items key
        ks_items value
        const int64_t *header_starts
        ks_items header_key
        ks_items header_value

    int64_t ks_size_before_records(signed char magic, bint is_compressed)


cdef class Records:
    cdef ks_records columns
    cdef readonly int64_t count
    cdef const uint8_t *source
    cdef size_t source_size
    cdef list _arrays

    cdef ks_items items(self, column, int64_t count) except *
    cdef int take_headers(self, const int64_t[::1] starts, key, value) except -1


cdef int check_starts(
    Records records, const int64_t[::1] starts, int64_t rows, int64_t first, int64_t last
) except -1
