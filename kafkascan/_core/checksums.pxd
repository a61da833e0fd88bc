"""The kernels in use, for loops of other modules."""

from libc.stdint cimport uint8_t, uint32_t


cdef extern from "crc32c.h" nogil:
    ctypedef uint32_t (*ks_crc_fn)(uint32_t crc, const uint8_t *data, size_t size) noexcept nogil


cdef ks_crc_fn crc32c_kernel
cdef ks_crc_fn crc32_kernel
