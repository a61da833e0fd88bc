"""Memoryviews of C memory, valid during one call of a Python library."""

from cpython.buffer cimport PyBUF_READ, PyBUF_WRITE
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport int64_t, uint8_t


cdef inline object readable(const uint8_t *data, int64_t size):
    return PyMemoryView_FromMemory(<char *>data, size, PyBUF_READ)


cdef inline object writable(uint8_t *data, int64_t size):
    return PyMemoryView_FromMemory(<char *>data, size, PyBUF_WRITE)
