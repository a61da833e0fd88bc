"""Guarded access to bytes that may be a map of a file that shrinks.

`run_guarded` runs a loop and returns the byte that faulted, if any. The guard is one module
because its signal handler must exist once in the process, whichever loops run. Its simplest
users are here, too: copies, and the search for zeros.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcpy

from kafkascan._core.layout cimport KS_OK, KS_SOURCE_FAULT


cdef extern from "fault_guard.h" nogil:
    int64_t ks_run_guarded(job_fn job, void *context, const uint8_t *data, size_t size)


cdef int64_t run_guarded(
    job_fn job, void *context, const uint8_t *data, size_t size
) noexcept nogil:
    return ks_run_guarded(job, context, data, size)


cdef struct Copy:
    const uint8_t *data
    uint8_t *out
    size_t size


cdef void make_copy(void *context) noexcept nogil:
    cdef Copy *copy = <Copy *>context
    memcpy(copy.out, copy.data, copy.size)


def copy_bytes(const uint8_t[::1] data not None):
    """
    Copy bytes that may be mapped.

    Returns
    -------
    status : int
    copy : bytes
    fault : int
        Offset into `data` of the byte that faulted.
    """
    cdef bytes out = PyBytes_FromStringAndSize(NULL, data.shape[0])
    # No other code has a reference to the new object yet.
    cdef int64_t fault = copy_to(<uint8_t *>PyBytes_AS_STRING(out), data)
    if fault >= 0:
        return KS_SOURCE_FAULT, b"", fault
    return KS_OK, out, 0


def copy_into(uint8_t[::1] out not None, const uint8_t[::1] data not None):
    """
    Copy bytes that may be mapped into a buffer.

    Returns
    -------
    status : int
    fault : int
        Offset into `data` of the byte that faulted.
    """
    cdef int64_t fault
    if out.shape[0] < data.shape[0]:
        raise ValueError("out is smaller than data")
    if data.shape[0] == 0:
        return KS_OK, 0
    fault = copy_to(&out[0], data)
    if fault >= 0:
        return KS_SOURCE_FAULT, fault
    return KS_OK, 0


cdef int64_t copy_to(uint8_t *out, const uint8_t[::1] data):
    """Return the offset of the byte that faulted, or -1."""
    cdef Copy copy
    cdef int64_t fault
    if data.shape[0] == 0:
        return -1
    copy.data, copy.out, copy.size = &data[0], out, data.shape[0]
    with nogil:
        fault = run_guarded(make_copy, &copy, copy.data, copy.size)
    return fault


cdef struct Pieces:
    const uint8_t *data
    uint8_t *out
    const int64_t *starts
    const int64_t *sizes
    const int64_t *places
    int64_t count


cdef void copy_all(void *context) noexcept nogil:
    cdef Pieces *job = <Pieces *>context
    cdef int64_t i
    for i in range(job.count):
        memcpy(job.out + job.places[i], job.data + job.starts[i], job.sizes[i])


def copy_pieces(
    uint8_t[::1] out not None,
    const uint8_t[::1] data not None,
    const int64_t[::1] starts not None,
    const int64_t[::1] sizes not None,
    const int64_t[::1] places not None,
):
    """
    Copy pieces of bytes that may be mapped to places in a buffer.

    Returns
    -------
    status : int
    fault : int
        Offset into `data` of the byte that faulted.
    """
    cdef Pieces job
    cdef int64_t i, fault
    job.count = starts.shape[0]
    if sizes.shape[0] != job.count or places.shape[0] != job.count:
        raise ValueError("the arrays differ in length")
    for i in range(job.count):
        if not (0 <= sizes[i] and 0 <= starts[i] <= data.shape[0] - sizes[i]
                and 0 <= places[i] <= out.shape[0] - sizes[i]):
            raise ValueError("a piece exceeds the data or the buffer")
    if data.shape[0] == 0 or out.shape[0] == 0 or job.count == 0:
        return KS_OK, 0
    job.data, job.out = &data[0], &out[0]
    job.starts, job.sizes, job.places = &starts[0], &sizes[0], &places[0]
    with nogil:
        fault = run_guarded(copy_all, &job, job.data, data.shape[0])
    if fault >= 0:
        return KS_SOURCE_FAULT, fault
    return KS_OK, 0


cdef struct ZeroSearch:
    const uint8_t *data
    size_t size
    int all_zero


cdef void search_non_zero(void *context) noexcept nogil:
    cdef ZeroSearch *search = <ZeroSearch *>context
    cdef size_t i = 0
    cdef const uint8_t *p = search.data
    cdef uint8_t seen
    cdef size_t k
    # The compiler vectorizes blocks of a fixed size.
    while i + 256 <= search.size:
        seen = 0
        for k in range(256):
            seen |= p[i + k]
        if seen:
            search.all_zero = 0
            return
        i += 256
    while i < search.size:
        if p[i]:
            search.all_zero = 0
            return
        i += 1
    search.all_zero = 1


def all_zero(const uint8_t[::1] data not None):
    """
    Check whether all bytes are zero.

    Returns
    -------
    status : int
    verdict : bool
    fault : int
        Offset into `data` of the byte that faulted.
    """
    cdef ZeroSearch search
    cdef int64_t fault
    if data.shape[0] == 0:
        return KS_OK, True, 0
    search.data = &data[0]
    search.size = data.shape[0]
    search.all_zero = 0
    with nogil:
        fault = run_guarded(search_non_zero, &search, search.data, search.size)
    if fault >= 0:
        return KS_SOURCE_FAULT, False, fault
    return KS_OK, bool(search.all_zero), 0
