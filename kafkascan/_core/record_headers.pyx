"""Keys and values of record headers: count, copy or find them."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uintptr_t
from libc.string cimport memcpy

from kafkascan._core.buffers cimport Buffers, bytes_at
from kafkascan._core.guard cimport job_fn, run_guarded
from kafkascan._core.layout cimport KS_OK, KS_ROW_MISMATCH, KS_SOURCE_FAULT


cdef struct HeaderJob:
    Buffers buffers
    const int32_t *buffer          # by batch
    int64_t batches
    const int32_t *batch           # by record
    const int64_t *position        # of its headers
    const int32_t *count
    int64_t records
    bint failed
    int64_t record                 # the current one
    int32_t left                   # headers of it that were not read
    const uint8_t *at              # the next of them
    const uint8_t *limit
    int64_t most                   # headers until the pause
    int64_t done                   # headers before it
    int64_t capacity
    int64_t key_bytes              # of all headers before it
    int64_t value_bytes
    int64_t nulls
    uint8_t *key_starts
    uint8_t *value_starts
    size_t key_width
    size_t value_width
    uint8_t *keys
    uint8_t *values
    int64_t keys_room
    int64_t values_room
    uint8_t *is_null
    uintptr_t *key_addresses
    uintptr_t *value_addresses
    int32_t *key_sizes
    int32_t *value_sizes


cdef bint find_record(HeaderJob *job) noexcept nogil:
    """Find the headers of the current record."""
    cdef int64_t position = job.position[job.record]
    cdef int32_t buffer, batch = job.batch[job.record]
    cdef const uint8_t *start
    if not 0 <= batch < job.batches:
        return False
    buffer = job.buffer[batch]
    start = bytes_at(&job.buffers, buffer, position, 0)
    if start == NULL:
        return False
    # The size of all headers is not stored: each one is checked against the buffer's end.
    job.limit = start + (job.buffers.sizes[buffer] - position)
    job.at = start
    return True


cdef inline int next_header(HeaderJob *job, Header *found) noexcept nogil:
    """Read the next header; return 1, 0 after the last one, -1 if it is out of bounds."""
    while job.left == 0:
        job.record += 1
        if job.record >= job.records:
            return 0
        job.left = job.count[job.record]
        if job.left < 0 or (job.left > 0 and not find_record(job)):
            return -1
    job.at = read_header(job.at, job.limit, found)
    if job.at == NULL:
        return -1
    job.left -= 1
    return 1


cdef void measure_headers(void *context) noexcept nogil:
    cdef HeaderJob *job = <HeaderJob *>context
    cdef Header found
    cdef int step
    cdef int64_t stop = job.done + job.most
    while job.done < stop:
        step = next_header(job, &found)
        if step <= 0:
            job.failed = step < 0
            job.most = 0
            return
        job.key_bytes += found.key_size
        if found.value_size < 0:
            job.nulls += 1
        else:
            job.value_bytes += found.value_size
        job.done += 1


cdef inline void put_start(
    uint8_t *starts, size_t width, int64_t row, int64_t start
) noexcept nogil:
    cdef int32_t narrow = <int32_t>start
    if width == sizeof(narrow):
        memcpy(starts + row * <int64_t>sizeof(narrow), &narrow, sizeof(narrow))
    else:
        memcpy(starts + row * <int64_t>sizeof(start), &start, sizeof(start))


cdef void copy_headers(void *context) noexcept nogil:
    cdef HeaderJob *job = <HeaderJob *>context
    cdef Header found
    cdef int step
    cdef int64_t stop = job.done + job.most
    while job.done < stop:
        step = next_header(job, &found)
        if step <= 0:
            # All starts are filled only if the bytes are those that were measured.
            job.failed = step < 0 or job.done != job.capacity
            job.most = 0
            return
        if (
            job.done >= job.capacity
            or found.key_size > job.keys_room - job.key_bytes
            or found.value_size > job.values_room - job.value_bytes
            or (found.value_size < 0 and job.is_null == NULL)
        ):
            job.failed = True
            return
        if found.key_size > 0:
            memcpy(job.keys + job.key_bytes, found.key, found.key_size)
            job.key_bytes += found.key_size
        if found.value_size > 0:
            memcpy(job.values + job.value_bytes, found.value, found.value_size)
            job.value_bytes += found.value_size
        if job.is_null != NULL:
            job.is_null[job.done] = found.value_size < 0
        job.done += 1
        put_start(job.key_starts, job.key_width, job.done, job.key_bytes)
        put_start(job.value_starts, job.value_width, job.done, job.value_bytes)


cdef void locate_headers(void *context) noexcept nogil:
    cdef HeaderJob *job = <HeaderJob *>context
    cdef Header found
    cdef int step
    cdef int64_t stop = job.done + job.most
    while job.done < stop:
        step = next_header(job, &found)
        if step <= 0 or job.done >= job.capacity:
            job.failed = step != 0 or job.done != job.capacity
            job.most = 0
            return
        job.key_addresses[job.done] = <uintptr_t>found.key if found.key_size else 0
        job.key_sizes[job.done] = found.key_size
        job.value_addresses[job.done] = <uintptr_t>found.value if found.value_size > 0 else 0
        job.value_sizes[job.done] = found.value_size
        job.done += 1


cdef class HeaderWalk:
    """
    Walk over the headers of records, in order, with pauses.

    Parameters
    ----------
    addresses, sizes, buffer_of_batch
        As of `gather_into`. The walk refers to them and to the columns.
    batch, headers_position, headers_count : arrays of n
        Columns of the records.

    Attributes
    ----------
    done : int
        Headers before the pause.
    key_bytes, value_bytes : int
        Sizes of their keys and values.
    nulls : int
        Number of values that are null; counted by `measure`.
    is_finished : bool
        Whether there are no more headers.
    """

    cdef HeaderJob _job
    cdef tuple _arrays
    cdef readonly bint is_finished

    def __init__(
        self,
        const uintptr_t[::1] addresses not None,
        const int64_t[::1] sizes not None,
        const int32_t[::1] buffer_of_batch not None,
        const int32_t[::1] batch not None,
        const int64_t[::1] headers_position not None,
        const int32_t[::1] headers_count not None,
    ):
        cdef HeaderJob *job = &self._job
        cdef int64_t records = batch.shape[0]
        if not (records == headers_position.shape[0] == headers_count.shape[0]):
            raise ValueError("columns differ in length")
        if sizes.shape[0] == 0 or addresses.shape[0] != sizes.shape[0]:
            raise ValueError("addresses and sizes differ in length")
        self._arrays = addresses, sizes, buffer_of_batch, batch, headers_position, headers_count
        job.buffers.addresses = &addresses[0]
        job.buffers.sizes = &sizes[0]
        job.buffers.count = sizes.shape[0]
        job.batches = buffer_of_batch.shape[0]
        job.buffer = &buffer_of_batch[0] if job.batches else NULL
        job.records = records
        job.batch = &batch[0] if records else NULL
        job.position = &headers_position[0] if records else NULL
        job.count = &headers_count[0] if records else NULL
        job.record = -1

    @property
    def done(self):
        return self._job.done

    @property
    def key_bytes(self):
        return self._job.key_bytes

    @property
    def value_bytes(self):
        return self._job.value_bytes

    @property
    def nulls(self):
        return self._job.nulls

    cdef tuple _run(self, job_fn work, int64_t most):
        cdef HeaderJob *job = &self._job
        cdef int64_t fault
        if most < 1:
            raise ValueError("most must be at least 1")
        job.most = most
        with nogil:
            fault = run_guarded(
                work, job,
                <const uint8_t *>job.buffers.addresses[0], job.buffers.sizes[0],
            )
        self.is_finished = job.most == 0
        if fault >= 0:
            return KS_SOURCE_FAULT, fault
        return (KS_ROW_MISMATCH if job.failed else KS_OK), 0

    def measure(self, int64_t most):
        """
        Count at most so many headers more, their bytes and nulls.

        Returns
        -------
        status : int
        fault : int
            Position of the byte that faulted, for KS_SOURCE_FAULT.
        """
        return self._run(measure_headers, most)

    def copy(
        self,
        int64_t most,
        uint8_t[:, ::1] key_starts not None,
        uint8_t[::1] keys not None,
        uint8_t[:, ::1] value_starts not None,
        uint8_t[::1] values not None,
        uint8_t[::1] is_null,
    ):
        """
        Copy the keys and values of at most so many headers more.

        Parameters
        ----------
        most : int
        key_starts, value_starts : arrays of uint8, shape (m + 1, 4) or (m + 1, 8)
            Integers of 4 or 8 bytes: the start of each item, and the end of the last one. The
            first one must be 0. m is the number of all headers.
        keys, values : writable buffers of bytes
            Have room for all headers.
        is_null : array of m bytes, optional
            Set where a value is null; None if there are no nulls.

        Returns
        -------
        status, fault : int
            See `measure`.
        """
        cdef HeaderJob *job = &self._job
        cdef int64_t count = key_starts.shape[0] - 1
        if count < 0 or value_starts.shape[0] != count + 1:
            raise ValueError("starts differ in length")
        if is_null is not None and is_null.shape[0] != count:
            raise ValueError("is_null and starts differ in length")
        for width in (key_starts.shape[1], value_starts.shape[1]):
            if width not in (4, 8):
                raise ValueError("starts must have 4 or 8 bytes")
        job.capacity = count
        job.key_starts, job.key_width = &key_starts[0, 0], key_starts.shape[1]
        job.value_starts, job.value_width = &value_starts[0, 0], value_starts.shape[1]
        job.keys, job.keys_room = (&keys[0] if keys.shape[0] else NULL), keys.shape[0]
        job.values, job.values_room = (&values[0] if values.shape[0] else NULL), values.shape[0]
        job.is_null = NULL
        if is_null is not None and count:
            job.is_null = &is_null[0]
        return self._run(copy_headers, most)

    def locate(
        self,
        int64_t most,
        uintptr_t[::1] key_addresses not None,
        int32_t[::1] key_sizes not None,
        uintptr_t[::1] value_addresses not None,
        int32_t[::1] value_sizes not None,
    ):
        """
        Find the addresses of the keys and values of at most so many headers more.

        Parameters
        ----------
        most : int
        key_addresses, value_addresses : arrays of uintp, shape (m,)
            0 for an item without bytes. m is the number of all headers.
        key_sizes, value_sizes : arrays of int32, shape (m,)
            -1 for a null.

        Returns
        -------
        status, fault : int
            See `measure`.
        """
        cdef HeaderJob *job = &self._job
        job.capacity = key_addresses.shape[0]
        if not (
            key_sizes.shape[0] == value_addresses.shape[0] == job.capacity
            and value_sizes.shape[0] == job.capacity
        ):
            raise ValueError("arrays differ in length")
        if job.capacity:
            job.key_addresses, job.key_sizes = &key_addresses[0], &key_sizes[0]
            job.value_addresses, job.value_sizes = &value_addresses[0], &value_sizes[0]
        return self._run(locate_headers, most)
