"""The fault guard that all loops over mapped bytes share (see csrc/fault_guard.h)."""

from libc.stdint cimport int64_t, uint8_t

ctypedef void (*job_fn)(void *context) noexcept nogil

cdef int64_t run_guarded(job_fn job, void *context, const uint8_t *data, size_t size) noexcept nogil
