"""Output buffers and compressors in C."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t


cdef class Output:
    cdef PyObject *_bytes
    cdef int64_t _room
    cdef readonly int64_t size

    cdef uint8_t *at(self, int64_t position) noexcept
    cdef uint8_t *reserve(self, int64_t more) except NULL
    cdef int _resize(self, int64_t room) except -1
    cdef int _fit(self) except -1
    cdef int put(self, const uint8_t[::1] data) except -1
    cdef int note(self, int64_t more) except -1


cdef class Packer:
    cdef int pack(self, const uint8_t *data, int64_t size, Output out) except -1
