"""One fault guard for all of the compiled floor.

It lives in a module of its own because its signal handler must exist once in the
process, whichever loops are running.
"""


cdef extern from "fault_guard.h" nogil:
    int64_t ks_run_guarded(job_fn job, void *context, const uint8_t *data, size_t size)


cdef int64_t run_guarded(
    job_fn job, void *context, const uint8_t *data, size_t size
) noexcept nogil:
    return ks_run_guarded(job, context, data, size)
