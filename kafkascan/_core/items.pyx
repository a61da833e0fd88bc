"""Keys and values of records: gather their bytes, find their addresses, make views."""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uintptr_t
from libc.string cimport memcpy, memset

from kafkascan._core.buffers cimport Buffers, bytes_at
from kafkascan._core.guard cimport run_guarded
from kafkascan._core.layout cimport KS_OK, KS_ROW_MISMATCH, KS_SOURCE_FAULT


ctypedef fused Start:
    int32_t
    int64_t


cdef struct Gathering:
    Buffers buffers
    const int32_t *batch           # by item
    const int32_t *buffer          # by batch
    int64_t batches
    const int64_t *position
    const int32_t *size
    int64_t count
    uint8_t *out
    int64_t out_size
    int32_t *narrow_starts         # of items in `out`, and the end of the last one …
    int64_t *wide_starts           # … or these
    uint8_t *views
    bint failed


cdef inline const uint8_t *item_bytes(const Gathering *job, int64_t i, int64_t size) noexcept nogil:
    """Address of an item of a size, which the caller has read once: columns may change."""
    cdef int64_t batch = job.batch[i]
    if batch < 0 or batch >= job.batches:
        return NULL
    return bytes_at(&job.buffers, job.buffer[batch], job.position[i], size)


cdef inline bint copy_items(Gathering job, Start *starts) noexcept nogil:
    """Copy items; False if one is out of bounds. The job is passed by value, so that it stays in
    registers: the compiler need not assume that a write to `starts` changes it."""
    cdef const uint8_t *p
    cdef int64_t i, at = starts[0], size
    for i in range(job.count):
        starts[i] = <Start>at
        size = job.size[i]
        if size <= 0:
            continue
        p = item_bytes(&job, i, size)
        if p == NULL or size > job.out_size - at:
            return False
        memcpy(job.out + at, p, size)
        at += size
    starts[job.count] = <Start>at
    return True


cdef void gather(void *context) noexcept nogil:
    cdef Gathering *job = <Gathering *>context
    cdef bint is_done
    if job.narrow_starts != NULL:
        is_done = copy_items(job[0], job.narrow_starts)
    else:
        is_done = copy_items(job[0], job.wide_starts)
    job.failed = not is_done


def measure_items(const int32_t[::1] size not None):
    """
    Return the total size of items, and how many of them are null.

    Parameters
    ----------
    size : array of n
        A negative size is a null.
    """
    cdef int64_t i, total = 0, nulls = 0
    with nogil:
        for i in range(size.shape[0]):
            total += size[i] if size[i] > 0 else 0
            nulls += size[i] < 0
    return total, nulls


cdef int start_gathering(
    Gathering *job,
    const uintptr_t[::1] addresses,
    const int64_t[::1] sizes,
    const int32_t[::1] buffer_of_batch,
    const int32_t[::1] batch,
    const int64_t[::1] position,
    const int32_t[::1] size,
) except -1:
    if not (batch.shape[0] == position.shape[0] == size.shape[0]):
        raise ValueError("columns differ in length")
    if sizes.shape[0] == 0 or addresses.shape[0] != sizes.shape[0]:
        raise ValueError("addresses and sizes differ in length")
    job.buffers.addresses = &addresses[0]
    job.buffers.sizes = &sizes[0]
    job.buffers.count = sizes.shape[0]
    job.buffer = &buffer_of_batch[0] if buffer_of_batch.shape[0] else NULL
    job.batches = buffer_of_batch.shape[0]
    job.count = batch.shape[0]
    job.batch = &batch[0] if job.count else NULL
    job.position = &position[0] if job.count else NULL
    job.size = &size[0] if job.count else NULL
    job.failed = False
    return 0


def gather_into(
    const uintptr_t[::1] addresses not None,
    const int64_t[::1] sizes not None,
    const int32_t[::1] buffer_of_batch not None,
    const int32_t[::1] batch not None,
    const int64_t[::1] position not None,
    const int32_t[::1] size not None,
    uint8_t[::1] out not None,
    Start[::1] starts not None,
):
    """
    Copy items, one after the other, into one buffer.

    Parameters
    ----------
    addresses, sizes : arrays
        Of the buffers; buffer 0 is the source, which may be a map.
    buffer_of_batch : array of int32
    batch, position, size : arrays of n
        Location of each item; a negative size is a null.
    out : writable buffer of bytes
        Has room for all items.
    starts : array of int32 or int64, shape (n + 1,)
        The first one is where `out` is filled from. The others are filled: the start of each
        item in `out`, and the end of the last one. Of int32 only for at most 2**31 - 1 bytes.

    Returns
    -------
    status : int
    fault : int
        Position of the byte that faulted, for KS_SOURCE_FAULT.
    """
    cdef Gathering job
    cdef int64_t fault
    start_gathering(&job, addresses, sizes, buffer_of_batch, batch, position, size)
    if starts.shape[0] != job.count + 1:
        raise ValueError("columns differ in length")
    if not 0 <= starts[0] <= out.shape[0]:
        raise ValueError("the first start exceeds the output")
    if Start is int32_t and out.shape[0] > INT32_MAX:
        raise ValueError("the output is too large for starts of 32 bits")
    job.out = &out[0] if out.shape[0] else NULL
    job.out_size = out.shape[0]
    job.narrow_starts = NULL
    if Start is int32_t:
        job.narrow_starts = &starts[0]
    else:
        job.wide_starts = &starts[0]
    with nogil:
        fault = run_guarded(
            gather, &job, <const uint8_t *>job.buffers.addresses[0], job.buffers.sizes[0]
        )
    if fault >= 0:
        return KS_SOURCE_FAULT, fault
    return (KS_ROW_MISMATCH if job.failed else KS_OK), 0


def bytes_of_items(
    const uint8_t[::1] data not None,
    const Start[::1] starts not None,
    const uint8_t[::1] is_null,
):
    """
    Return gathered items as objects: a list of bytes, None for a null.

    Parameters
    ----------
    data : buffer of bytes
    starts : array of int32 or int64, shape (n + 1,)
        The start of each item in `data`, and the end of the last one.
    is_null : array of uint8, shape (n,), or None
    """
    cdef Py_ssize_t count = starts.shape[0] - 1, i
    cdef int64_t first, last = starts[0]
    cdef list found = [None] * count
    if is_null is not None and is_null.shape[0] != count:
        raise ValueError("columns differ in length")
    for i in range(count):
        first, last = last, starts[i + 1]
        if not 0 <= first <= last <= data.shape[0]:
            raise ValueError("an item is out of bounds")
        if is_null is None or not is_null[i]:
            found[i] = PyBytes_FromStringAndSize(<const char *>&data[0] + first, last - first)
    return found


cdef bint find_addresses(Gathering job, uintptr_t *out) noexcept nogil:
    """Fill addresses. The job is passed by value, so that it stays in registers: the compiler
    need not assume that a write to `out` changes it."""
    cdef const uint8_t *p
    cdef int64_t i, size
    for i in range(job.count):
        size = job.size[i]
        p = NULL
        if size > 0:
            p = item_bytes(&job, i, size)
            if p == NULL:
                return False
        out[i] = <uintptr_t>p
    return True


def addresses_into(
    const uintptr_t[::1] addresses not None,
    const int64_t[::1] sizes not None,
    const int32_t[::1] buffer_of_batch not None,
    const int32_t[::1] batch not None,
    const int64_t[::1] position not None,
    const int32_t[::1] size not None,
    uintptr_t[::1] out not None,
):
    """
    Find the addresses of items in memory; an item without bytes has address 0.

    Parameters
    ----------
    addresses, sizes, buffer_of_batch, batch, position, size
        As of `gather_into`.
    out : array of uintp, shape (n,)

    Returns
    -------
    status : int
    fault : int
        0: the bytes of items are not read.
    """
    cdef Gathering job
    cdef bint is_found
    start_gathering(&job, addresses, sizes, buffer_of_batch, batch, position, size)
    if out.shape[0] != job.count:
        raise ValueError("columns differ in length")
    if job.count == 0:
        return KS_OK, 0
    with nogil:
        is_found = find_addresses(job, &out[0])
    return (KS_OK if is_found else KS_ROW_MISMATCH), 0


# ---- Arrow's views -----------------------------------------------------------------------

cdef enum:
    VIEW_SIZE = 16
    INLINE_SIZE = 12


cdef struct Viewing:
    Gathering items
    const int32_t *first_block     # by buffer: Arrow's number of its first block
    int block_bits                 # a block starts every 2**block_bits bytes


cdef bint fill_views(Viewing job, uint8_t *view) noexcept nogil:
    """Fill views; False if an item is out of bounds. The job is passed by value, as by
    `copy_items`."""
    cdef const uint8_t *p
    cdef int32_t size, block, start
    cdef int64_t i, mask = (<int64_t>1 << job.block_bits) - 1
    for i in range(job.items.count):
        memset(view, 0, VIEW_SIZE)
        size = job.items.size[i]
        if size > 0:
            p = item_bytes(&job.items, i, size)
            if p == NULL:
                return False
            memcpy(view, &size, 4)
            if size <= INLINE_SIZE:
                memcpy(view + 4, p, size)
            else:
                memcpy(view + 4, p, 4)
                block = <int32_t>(
                    job.first_block[job.items.buffer[job.items.batch[i]]]
                    + (job.items.position[i] >> job.block_bits)
                )
                start = <int32_t>(job.items.position[i] & mask)
                memcpy(view + 8, &block, 4)
                memcpy(view + 12, &start, 4)
        view += VIEW_SIZE
    return True


cdef void make_views(void *context) noexcept nogil:
    cdef Viewing *job = <Viewing *>context
    job.items.failed = not fill_views(job[0], job.items.views)


def views_into(
    const uintptr_t[::1] addresses not None,
    const int64_t[::1] sizes not None,
    const int32_t[::1] buffer_of_batch not None,
    const int32_t[::1] batch not None,
    const int64_t[::1] position not None,
    const int32_t[::1] size not None,
    const int32_t[::1] first_block not None,
    int block_bits,
    uint8_t[:, ::1] views not None,
):
    """
    Fill Arrow's 16-byte views of items.

    Parameters
    ----------
    addresses, sizes, buffer_of_batch, batch, position, size
        As of `gather_into`.
    first_block : array of int32, one per buffer
        Arrow's number of the first block of each buffer.
    block_bits : int
        A block starts every ``2**block_bits`` bytes.
    views : array of uint8, shape (n, 16)

    Returns
    -------
    status : int
    fault : int
    """
    cdef Viewing job
    cdef int64_t fault
    start_gathering(&job.items, addresses, sizes, buffer_of_batch, batch, position, size)
    if views.shape[0] != job.items.count or views.shape[1] != VIEW_SIZE:
        raise ValueError("views and items differ in length")
    if first_block.shape[0] != sizes.shape[0] or not 0 < block_bits < 31:
        raise ValueError("first_block or block_bits is out of range")
    if job.items.count == 0:
        return KS_OK, 0
    job.items.views = &views[0, 0]
    job.first_block = &first_block[0]
    job.block_bits = block_bits
    with nogil:
        fault = run_guarded(
            make_views, &job,
            <const uint8_t *>job.items.buffers.addresses[0], job.items.buffers.sizes[0],
        )
    if fault >= 0:
        return KS_SOURCE_FAULT, fault
    return (KS_ROW_MISMATCH if job.items.failed else KS_OK), 0
