"""Record columns to be written: pointers and sizes of items, and the batches they fill."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_ITEM
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uintptr_t

from kafkascan._core.layout cimport KS_OK, ks_batch_row, ks_prefetch


cdef extern from "write_batch.h" nogil:
    ctypedef struct ks_plan:
        int8_t magic
        bint is_compressed
        int64_t batch_size
        int64_t batch_records
        bint has_base_timestamp
        int64_t base_timestamp

    int ks_plan_batch(
        const ks_plan *plan, const ks_records *records, int64_t first, int64_t count,
        int64_t *last, int64_t *size
    )
    int ks_measure_batch(
        const ks_records *records, int64_t first, int64_t end, const ks_batch_row *batch,
        int64_t *last, int64_t *size
    )
    int64_t ks_delta(int64_t number, int64_t base)
    int64_t ks_size_of_sized(int32_t size)
    int64_t ks_size_of_varlong(int64_t n)
    int64_t ks_size_of_body(int64_t content, int64_t timestamp_delta, int64_t offset_delta)
    int64_t ks_size_of_record(int64_t body)
    int64_t ks_size_of_message(int8_t magic, int32_t key_size, int32_t value_size)


ctypedef fused offset_t:
    int32_t
    int64_t


cdef enum:
    PREFETCH_AHEAD = 8             # objects


cdef class Records:
    """
    Records in columns.

    Parameters
    ----------
    offset, timestamp : arrays of int64, shape (n,)
    key, value : (array of uintp, array of int32), each of shape (n,), or None
        Address and size of each item; a negative size is a null. None if all are null.
    header_starts : array of int64, shape (n + 1,), or None
        The first header of each record; None if none has any.
    header_key, header_value : (array of uintp, array of int32), each of shape (m,), or None
    owners : object
        Keeps the bytes that the addresses point to alive.
    source : buffer of bytes, optional
        Those bytes among them that are a map, whose file may shrink.
    """

    def __init__(
        self,
        const int64_t[::1] offset not None,
        const int64_t[::1] timestamp not None,
        key,
        value,
        const int64_t[::1] header_starts,
        header_key,
        header_value,
        owners,
        const uint8_t[::1] source=None,
    ):
        self._arrays = [offset, timestamp, header_starts, owners, source]
        self.count = offset.shape[0]
        if timestamp.shape[0] != self.count:
            raise ValueError("columns differ in length")
        self.columns.offset = &offset[0] if self.count else NULL
        self.columns.timestamp = &timestamp[0] if self.count else NULL
        self.columns.key = self.items(key, self.count)
        self.columns.value = self.items(value, self.count)
        self.columns.header_starts = NULL
        if header_starts is not None:
            self.take_headers(header_starts, header_key, header_value)
        self.source = NULL
        self.source_size = 0
        if source is not None and source.shape[0]:
            self.source = &source[0]
            self.source_size = source.shape[0]

    cdef ks_items items(self, column, int64_t count) except *:
        cdef const uintptr_t[::1] data
        cdef const int32_t[::1] size
        cdef ks_items items
        items.data = NULL
        items.size = NULL
        if column is None:
            return items
        data, size = column
        if data.shape[0] != count or size.shape[0] != count:
            raise ValueError("columns differ in length")
        self._arrays.append((data, size))
        if count:
            items.data = <const uint8_t *const *>&data[0]
            items.size = &size[0]
        return items

    cdef int take_headers(self, const int64_t[::1] starts, key, value) except -1:
        cdef int64_t i, count
        if starts.shape[0] != self.count + 1 or starts[0] != 0:
            raise ValueError("header_starts must begin with 0 and have one entry more than records")
        for i in range(self.count):
            if starts[i] > starts[i + 1]:
                raise ValueError("header_starts must not decrease")
        count = starts[self.count]
        self.columns.header_key = self.items(key, count)
        self.columns.header_value = self.items(value, count)
        if count:
            self.columns.header_starts = &starts[0]
        return 0


# ---- addresses of items ------------------------------------------------------------------

def addresses_of_offsets(
    const offset_t[::1] offsets not None,
    uintptr_t start,
    int64_t size,
    uintptr_t[::1] addresses not None,
    int32_t[::1] sizes not None,
):
    """
    Fill the addresses and sizes of items that follow each other in one buffer.

    Parameters
    ----------
    offsets : array of int32 or int64, shape (n + 1,)
        Start of each item in the buffer, and the end of the last one.
    start, size : int
        Address of the buffer, and its size in bytes.
    addresses, sizes : arrays of n
        Filled.

    Returns
    -------
    bool
        Whether all items are within the buffer, and none exceeds 2**31 - 1 bytes.
    """
    cdef int64_t i, first, last, n = sizes.shape[0]
    cdef bint is_sound = True
    if offsets.shape[0] != n + 1 or addresses.shape[0] != n:
        raise ValueError("columns differ in length")
    with nogil:
        first = offsets[0]
        is_sound = first >= 0
        for i in range(n):
            last = offsets[i + 1]
            is_sound &= first <= last and last - first <= 0x7fffffff
            addresses[i] = start + <uintptr_t>first
            sizes[i] = <int32_t>(last - first)
            first = last
    return is_sound and first <= size


def addresses_of_bytes(list items not None, uintptr_t[::1] addresses not None,
                       int32_t[::1] sizes not None):
    """
    Fill the addresses and sizes of bytes objects; None has size -1.

    Parameters
    ----------
    items : list of bytes or None
        The caller keeps the objects alive as long as it uses the addresses.
    addresses, sizes : arrays of n
        Filled.

    Returns
    -------
    int
        The first item of another type, or that is too large; n if there is none.
    """
    cdef int64_t i, n = len(items)
    cdef object item
    if addresses.shape[0] != n or sizes.shape[0] != n:
        raise ValueError("columns differ in length")
    for i in range(n):
        if i + PREFETCH_AHEAD < n:
            ks_prefetch(<const void *>PyList_GET_ITEM(items, i + PREFETCH_AHEAD))
        item = items[i]
        if item is None:
            addresses[i], sizes[i] = 0, -1
        elif PyBytes_CheckExact(item) and PyBytes_GET_SIZE(item) <= 0x7fffffff:
            addresses[i] = <uintptr_t>PyBytes_AS_STRING(item)
            sizes[i] = <int32_t>PyBytes_GET_SIZE(item)
        else:
            return i
    return n


# ---- where batches end, and sizes --------------------------------------------------------

def plan(
    Records records not None,
    int8_t magic,
    bint is_compressed,
    int64_t batch_size,
    int64_t batch_records,
    base_timestamp,
    int64_t[::1] starts not None,
    int64_t[::1] sizes not None,
):
    """
    Find the records that each batch holds.

    Parameters
    ----------
    records : Records
    magic : int
    is_compressed : bool
    batch_size : int
        Largest size of a batch before compression, its header included; a batch has at least
        one record, whatever its size.
    batch_records : int
        Largest number of records of a batch.
    base_timestamp : int or None
        Timestamp that deltas count from; None for the first one of each batch.
    starts, sizes : arrays of n + 1 and n
        Filled: the first record of each batch, and the end of the last batch; bytes of the
        records of each batch before compression.

    Returns
    -------
    status : int
    record : int
        The record that the status is about.
    batches : int
    """
    cdef ks_plan how
    cdef int64_t first = 0, last = 0, batches = 0, n = records.count
    cdef int status = KS_OK
    if starts.shape[0] != n + 1 or sizes.shape[0] != n:
        raise ValueError("arrays differ in length")
    if batch_records < 1 or not 0 <= magic <= 2:
        raise ValueError("batch_records or magic is out of range")
    how.magic, how.is_compressed = magic, is_compressed
    how.batch_size, how.batch_records = batch_size, batch_records
    how.has_base_timestamp = base_timestamp is not None
    how.base_timestamp = base_timestamp or 0
    with nogil:
        while first < n:
            starts[batches] = first
            status = ks_plan_batch(&how, &records.columns, first, n, &last, &sizes[batches])
            if status != KS_OK:
                break
            batches += 1
            first = last
        starts[batches] = first
    return status, last, batches


def measure(
    Records records not None,
    const ks_batch_row[::1] rows not None,
    const int64_t[::1] starts not None,
    int64_t[::1] sizes not None,
):
    """
    Compute the sizes of the records of given batches, before compression.

    Parameters
    ----------
    records : Records
    rows : array of BATCH_DTYPE, shape (m,)
    starts : array of int64, shape (m + 1,)
    sizes : array of int64, shape (m,)
        Filled.

    Returns
    -------
    status : int
    record : int
        The record that the status is about.
    """
    cdef int64_t row, last = 0, m = rows.shape[0]
    cdef int status = KS_OK
    check_starts(records, starts, m, 0, m)
    if sizes.shape[0] != m:
        raise ValueError("arrays differ in length")
    with nogil:
        for row in range(m):
            status = ks_measure_batch(
                &records.columns, starts[row], starts[row + 1], &rows[row], &last, &sizes[row]
            )
            if status != KS_OK:
                break
    return status, last


cdef int check_starts(
    Records records, const int64_t[::1] starts, int64_t rows, int64_t first, int64_t last
) except -1:
    """Raise `ValueError` if starts do not describe ranges of the records."""
    cdef int64_t row
    if starts.shape[0] != rows + 1:
        raise ValueError("starts must have one entry more than there are batches")
    if not 0 <= first <= last <= rows:
        raise ValueError("first and last must be a range of rows")
    if starts[first] < 0 or starts[last] > records.count:
        raise ValueError("starts must be within the records")
    for row in range(first, last):
        if starts[row] > starts[row + 1]:
            raise ValueError("starts must not decrease")
    return 0


def size_of_record(
    int8_t magic,
    int64_t timestamp,
    int64_t base_timestamp,
    int64_t offset_delta,
    int32_t key_size,
    int32_t value_size,
    list header_sizes not None,
):
    """
    Return the bytes of a record before compression; a negative size is a null.

    Parameters
    ----------
    header_sizes : list of int
        Sizes of each header's key and value, alternating.
    """
    cdef int64_t content, timestamp_delta = ks_delta(timestamp, base_timestamp)
    if magic < 2:
        return ks_size_of_message(1 if magic == 1 else 0, key_size, value_size)
    content = ks_size_of_sized(key_size) + ks_size_of_sized(value_size)
    content += ks_size_of_varlong(len(header_sizes) // 2)
    for size in header_sizes:
        content += ks_size_of_sized(size)
    return ks_size_of_record(ks_size_of_body(content, timestamp_delta, offset_delta))


def size_before_records(int8_t magic, bint is_compressed):
    """Return the bytes of a batch before its records, or before a wrapper's value."""
    if not 0 <= magic <= 2:
        raise ValueError("magic must be 0, 1 or 2")
    return ks_size_before_records(magic, is_compressed)
