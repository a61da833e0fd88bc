"""Checksums of bytes, and verification of the checksums of batch tables."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int64_t, uint8_t, uint32_t

from kafkascan._core.guard cimport run_guarded
from kafkascan._core.layout cimport (
    KS_AT_crc,
    KS_AT_magic,
    KS_BATCH_HEADER_SIZE,
    KS_CRC_START_LEGACY,
    KS_CRC_START_V2,
    KS_LOG_OVERHEAD,
    KS_NEED_WINDOW,
    KS_OK,
    KS_ROW_MISMATCH,
    KS_ROW_OUT_OF_BOUNDS,
    KS_SOURCE_FAULT,
    KS_V0_AT_crc,
    ks_batch_row,
    ks_frame_batch,
    ks_load_u32,
    ks_prefetch,
)


cdef extern from "crc32c.h" nogil:
    ctypedef struct ks_crc_kernel:
        const char *name
        ks_crc_fn run
        int (*is_supported)() noexcept nogil
    const ks_crc_kernel *ks_crc32c_kernels
    const int ks_crc32c_kernel_count
    void ks_crc_init()
    const ks_crc_kernel *ks_crc32_kernels
    const int ks_crc32_kernel_count
    int ks_crc32c_answers_correctly(ks_crc_fn run)
    int ks_crc32_answers_correctly(ks_crc_fn run)


crc32c_kernel = NULL
crc32_kernel = NULL
cdef str crc32c_name = ""


cdef dict supported_kernels(const ks_crc_kernel *kernels, int count):
    """Return the indexes of the kernels that the CPU supports, by name, slowest first."""
    return {kernels[i].name.decode(): i for i in range(count) if kernels[i].is_supported()}


def implementations():
    """Return the names of the CRC-32C kernels that the build and the CPU support, slowest first."""
    return tuple(supported_kernels(ks_crc32c_kernels, ks_crc32c_kernel_count))


def crc32_implementations():
    """Return the names of the supported CRC-32 kernels, slowest first."""
    return tuple(supported_kernels(ks_crc32_kernels, ks_crc32_kernel_count))


def implementation():
    """Return the name of the CRC-32C kernel in use."""
    return crc32c_name


cdef ks_crc_fn crc32c_kernel_named(str name) except? NULL:
    supported = supported_kernels(ks_crc32c_kernels, ks_crc32c_kernel_count)
    if name not in supported:
        raise ValueError(
            f"CRC-32C implementation {name!r} is not supported by this build and CPU;"
            f" supported are: {', '.join(supported)}"
        )
    return ks_crc32c_kernels[<int>supported[name]].run


def choose(name):
    """
    Choose the CRC-32C kernel of the process.

    Parameters
    ----------
    name : str or None
        None chooses the fastest one. A kernel that returns wrong values is rejected.
    """
    global crc32c_kernel, crc32c_name
    if name is None:
        *_, name = implementations()
    cdef ks_crc_fn kernel = crc32c_kernel_named(name)
    if not ks_crc32c_answers_correctly(kernel):
        raise RuntimeError(f"CRC-32C implementation {name!r} returns wrong values on this CPU")
    crc32c_kernel = kernel
    crc32c_name = name


cdef ks_crc_fn fastest_crc32() except? NULL:
    *_, index = supported_kernels(ks_crc32_kernels, ks_crc32_kernel_count).values()
    cdef ks_crc_fn kernel = ks_crc32_kernels[<int>index].run
    if not ks_crc32_answers_correctly(kernel):
        raise RuntimeError("the CRC-32 implementation returns wrong values on this CPU")
    return kernel


def crc32c(data, uint32_t value, name=None):
    """
    Return the CRC-32C of `data` after bytes whose CRC-32C is `value`.

    Returns
    -------
    value : int
    fault : int
        Offset into `data` of a byte that could not be read, or -1.
    """
    return run_kernel(crc32c_kernel if name is None else crc32c_kernel_named(name), data, value)


def crc32(data, uint32_t value, name=None):
    """Return the CRC-32 (as zlib's) of `data` after bytes whose CRC-32 is `value`, as `crc32c`."""
    if name is None:
        return run_kernel(crc32_kernel, data, value)
    index = supported_kernels(ks_crc32_kernels, ks_crc32_kernel_count)[name]
    return run_kernel(ks_crc32_kernels[<int>index].run, data, value)


cdef struct Sum:
    ks_crc_fn kernel
    const uint8_t *data
    size_t size
    uint32_t value


cdef void run_sum(void *context) noexcept nogil:
    cdef Sum *job = <Sum *>context
    job.value = job.kernel(job.value, job.data, job.size)


cdef enum:
    WORTH_RELEASING = 4096     # bytes from which on releasing the GIL pays off


cdef tuple run_kernel(ks_crc_fn kernel, data, uint32_t value):
    # A plain buffer: creating a typed memoryview costs as much as summing kilobytes.
    cdef Py_buffer view
    cdef int64_t fault = -1
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    cdef Sum job = Sum(kernel, <const uint8_t *>view.buf, view.len, value)
    try:
        if isinstance(data, bytes) and job.size < WORTH_RELEASING:
            run_sum(&job)
        elif isinstance(data, bytes):
            with nogil:
                run_sum(&job)
        else:
            with nogil:
                fault = run_guarded(run_sum, &job, job.data, job.size)
    finally:
        PyBuffer_Release(&view)
    return job.value, fault


cdef struct Ranges:
    ks_crc_fn kernel
    const uint8_t *data
    const int64_t *starts
    const int64_t *stops
    uint32_t *sums
    int64_t count


cdef void sum_all(void *context) noexcept nogil:
    cdef Ranges *job = <Ranges *>context
    cdef int64_t i
    for i in range(job.count):
        job.sums[i] = job.kernel(0, job.data + job.starts[i], job.stops[i] - job.starts[i])


def sum_ranges(
    const uint8_t[::1] data not None,
    const int64_t[::1] starts not None,
    const int64_t[::1] stops not None,
    uint32_t[::1] sums not None,
    bint is_legacy,
):
    """
    Write the checksum of each of these ranges of the data: CRC-32, or CRC-32C if not legacy.

    Returns
    -------
    int
        Offset into the data of a byte that could not be read, or -1.
    """
    cdef Ranges job
    cdef int64_t i, fault
    job.count = starts.shape[0]
    if not (stops.shape[0] == sums.shape[0] == job.count):
        raise ValueError("the arrays differ in length")
    for i in range(job.count):
        if not 0 <= starts[i] <= stops[i] <= data.shape[0]:
            raise ValueError("a range exceeds the data")
    if not job.count or not data.shape[0]:
        sums[:] = 0
        return -1
    job.kernel = crc32_kernel if is_legacy else crc32c_kernel
    job.data, job.starts, job.stops, job.sums = &data[0], &starts[0], &stops[0], &sums[0]
    with nogil:
        fault = run_guarded(sum_all, &job, job.data, data.shape[0])
    return fault


cdef struct Batch:
    const uint8_t *data
    int64_t size
    uint32_t crc           # as stored
    bint is_legacy


cdef struct Verification:
    ks_crc_fn crc32c
    ks_crc_fn crc32
    const uint8_t *window
    int64_t window_start
    int64_t window_size
    int64_t source_size
    const ks_batch_row *rows
    int64_t count
    uint8_t *verdicts
    int64_t row            # the current row
    int64_t left           # bytes until the pause
    int status


cdef int locate_row(const Verification *job, const ks_batch_row *row, Batch *batch) noexcept nogil:
    """
    Find the batch of a row in the window, and compare it with the row.

    Rows come from the caller and may be edited, stale or of another file. The range that is summed
    later depends on the size in the bytes, which is read once, not on the row.
    """
    cdef int64_t position = row.position, at
    cdef int status
    if position < 0 or position > job.source_size:
        return KS_ROW_OUT_OF_BOUNDS
    at = position - job.window_start
    if at < 0 or job.window_size - at < min(job.source_size - position, KS_BATCH_HEADER_SIZE):
        return KS_NEED_WINDOW
    batch.data = job.window + at
    status = ks_frame_batch(batch.data, job.source_size - position, &batch.size)
    if status != KS_OK:
        return KS_ROW_MISMATCH
    batch.is_legacy = batch.data[KS_AT_magic] != 2
    batch.crc = ks_load_u32(batch.data + (KS_V0_AT_crc if batch.is_legacy else KS_AT_crc))
    if (
        batch.size != <int64_t>row.batch_length + KS_LOG_OVERHEAD
        or <signed char>batch.data[KS_AT_magic] != row.magic
        or batch.crc != row.crc
    ):
        return KS_ROW_MISMATCH
    return KS_OK if batch.size <= job.window_size - at else KS_NEED_WINDOW


cdef void verify_rows(void *context) noexcept nogil:
    cdef Verification *job = <Verification *>context
    cdef Batch batch
    cdef uint32_t crc
    while job.row < job.count and job.left > 0:
        job.status = locate_row(job, &job.rows[job.row], &batch)
        if job.status != KS_OK:
            return
        job.left -= batch.size
        ks_prefetch(batch.data + batch.size)
        if batch.is_legacy:
            crc = job.crc32(0, batch.data + KS_CRC_START_LEGACY, batch.size - KS_CRC_START_LEGACY)
        else:
            crc = job.crc32c(0, batch.data + KS_CRC_START_V2, batch.size - KS_CRC_START_V2)
        job.verdicts[job.row] = crc == batch.crc
        job.row += 1


def verify_into(
    const uint8_t[::1] window not None,
    int64_t window_start,
    int64_t source_size,
    const ks_batch_row[::1] rows not None,
    uint8_t[::1] verdicts not None,
    int64_t most,
):
    """
    Compare stored and computed checksums, row by row, of about `most` bytes.

    Stops with KS_NEED_WINDOW at a row whose batch is not completely in the window. If it is the
    first row and the window starts at its batch, the row matches the header in the window.

    Parameters
    ----------
    window : buffer of bytes
        Bytes of the source from `window_start` on.
    window_start, source_size : int
    rows : contiguous array of BATCH_DTYPE
    verdicts : writable buffer of bytes
        One byte per row: 1 if the checksums agree, else 0.
    most : int
        Pause after the batch that reaches so many bytes.

    Returns
    -------
    status : int
    row : int
        Number of verified rows, and the row that the status is about.
    position : int
        Position in the source of the byte that faulted, for KS_SOURCE_FAULT.
    """
    cdef Verification job
    cdef int64_t fault
    if verdicts.shape[0] != rows.shape[0]:
        raise ValueError("rows and verdicts differ in length")
    if not (0 <= window_start and window_start + window.shape[0] <= source_size):
        raise ValueError("the window exceeds the source")
    if rows.shape[0] == 0:
        return KS_OK, 0, 0
    job.crc32c = crc32c_kernel
    job.crc32 = crc32_kernel
    job.window = &window[0] if window.shape[0] else NULL
    job.window_start = window_start
    job.window_size = window.shape[0]
    job.source_size = source_size
    job.rows = &rows[0]
    job.count = rows.shape[0]
    job.verdicts = &verdicts[0]
    job.row = 0
    job.left = most
    job.status = KS_OK
    with nogil:
        fault = run_guarded(verify_rows, &job, job.window, job.window_size)
    if fault >= 0:
        return KS_SOURCE_FAULT, job.row, window_start + fault
    return job.status, job.row, 0


ks_crc_init()
crc32_kernel = fastest_crc32()
choose(None)
