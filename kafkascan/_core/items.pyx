"""Keys and values of records: gather their bytes, find their addresses, make views and rows."""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t, uintptr_t
from libc.string cimport memcpy, memset

from kafkascan._core.buffers cimport Buffers, bytes_at
from kafkascan._core.guard cimport run_guarded
from kafkascan._core.layout cimport (
    KS_OK,
    KS_ROW_MISMATCH,
    KS_SOURCE_FAULT,
    KS_TIMESTAMP_TYPE_BIT,
    ks_batch_row,
)


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


@cython.final
cdef class GatheredItems:
    """
    Gathered keys or values as objects: bytes, None for a null.

    Parameters
    ----------
    data : buffer of bytes
    starts : array of int64, shape (n + 1,)
        The start of each item in `data`, and the end of the last one.
    is_null : array of uint8, shape (n,), or None
    """

    cdef const uint8_t[::1] data, is_null
    cdef const int64_t[::1] starts

    def __cinit__(
        self,
        const uint8_t[::1] data not None,
        const int64_t[::1] starts not None,
        const uint8_t[::1] is_null,
    ):
        if is_null is not None and is_null.shape[0] != starts.shape[0] - 1:
            raise ValueError("columns differ in length")
        self.data, self.starts, self.is_null = data, starts, is_null

    def __len__(self):
        return self.starts.shape[0] - 1

    def to_list(self):
        """Return all items."""
        return [self.item(i) for i in range(self.starts.shape[0] - 1)]

    cdef inline object item(self, Py_ssize_t i):
        cdef int64_t first = self.starts[i], last = self.starts[i + 1]
        if self.is_null is not None and self.is_null[i]:
            return None
        if not 0 <= first <= last <= self.data.shape[0]:
            raise ValueError("an item is out of bounds")
        return PyBytes_FromStringAndSize(<const char *>&self.data[0] + first, last - first)


# Without the garbage collector, which would visit thousands of records again and again: only a
# caller that puts a record into a list of headers makes a reference cycle.
@cython.no_gc
@cython.freelist(64)
cdef class Record:
    """
    One record, its bytes copied. It can be unpacked and compared as a tuple of its fields.

    Fields whose column was not requested are None (`headers` is an empty list). `offset` and
    `sequence` are set if one of them was requested.

    Attributes
    ----------
    offset : int or None
    timestamp : int or None
        Milliseconds since the epoch; -1 if the record has none.
    timestamp_type : TimestampType
    key, value : bytes or None
        None for a null.
    headers : list of (bytes, bytes or None)
        In order, including duplicate keys. Kafka reads the keys as UTF-8.
    sequence : int or None
        The producer's sequence number; -1 if there is none.
    batch : int
        Row of `RecordTable.batches`.
    """

    _fields = __match_args__ = (
        "offset", "timestamp", "timestamp_type", "key", "value", "headers", "sequence", "batch",
    )
    # Numbers become objects when they are read.
    cdef int64_t _offset, _timestamp
    cdef int32_t _sequence
    cdef bint _has_offset, _has_timestamp
    cdef readonly int32_t batch
    cdef readonly object timestamp_type, key, value
    cdef list _headers

    def __init__(
        self, offset, timestamp, timestamp_type, key, value, list headers, sequence, int32_t batch
    ):
        self._has_offset, self._has_timestamp = offset is not None, timestamp is not None
        self._offset, self._sequence = (offset, sequence) if self._has_offset else (0, 0)
        self._timestamp = timestamp if self._has_timestamp else 0
        self.timestamp_type, self.key, self.value = timestamp_type, key, value
        self._headers, self.batch = headers, batch

    @property
    def offset(self):
        return self._offset if self._has_offset else None

    @property
    def timestamp(self):
        return self._timestamp if self._has_timestamp else None

    @property
    def headers(self):
        if self._headers is None:
            self._headers = []
        return self._headers

    @property
    def sequence(self):
        return self._sequence if self._has_offset else None

    def __iter__(self):
        return iter(self._values())

    def __len__(self):
        return len(self._fields)

    def __getitem__(self, index):
        return self._values()[index]

    def __eq__(self, other):
        if isinstance(other, Record):
            other = (<Record>other)._values()
        return self._values() == other if isinstance(other, tuple) else NotImplemented

    def __repr__(self):
        fields = (f"{name}={value!r}" for name, value in self._asdict().items())
        return f"Record({', '.join(fields)})"

    def __reduce__(self):
        return Record, self._values()

    def _asdict(self):
        return dict(zip(self._fields, self._values()))

    cdef tuple _values(self):
        return (
            self.offset, self.timestamp, self.timestamp_type, self.key, self.value, self.headers,
            self.sequence, self.batch,
        )


cdef inline int32_t sequence_of(const ks_batch_row *row, int64_t offset) noexcept nogil:
    """Sequence number of a record, as ``DefaultRecord.readFrom`` computes it, with wrap-around."""
    cdef uint64_t base = <uint64_t>row.base_sequence, last = INT32_MAX
    cdef uint64_t delta = <uint64_t>offset - <uint64_t>row.base_offset
    if row.base_sequence < 0:
        return -1
    if row.base_sequence > <int32_t><uint32_t>(last - delta):
        return <int32_t><uint32_t>(delta - (last - base) - 1)
    return <int32_t><uint32_t>(base + delta)


def sequences_into(
    const ks_batch_row[::1] batches not None,
    const int32_t[::1] batch not None,
    const int64_t[::1] offset not None,
    int32_t[::1] out not None,
):
    """
    Fill the sequence numbers of records.

    Parameters
    ----------
    batches : array of BATCH_DTYPE
    batch : array of int32, shape (n,)
        Rows of `batches`.
    offset : array of int64, shape (n,)
    out : array of int32, shape (n,)
        -1 where the batch has no sequence numbers.
    """
    cdef Py_ssize_t i
    if not (batch.shape[0] == offset.shape[0] == out.shape[0]):
        raise ValueError("columns differ in length")
    for i in range(batch.shape[0]):
        if not 0 <= batch[i] < batches.shape[0]:
            raise ValueError("the row of a batch is out of range")
        out[i] = sequence_of(&batches[batch[i]], offset[i])


@cython.final
cdef class RecordRows:
    """
    Iterator over the records of columns of one length; a column that was not requested is None.

    Parameters
    ----------
    batches : array of BATCH_DTYPE
    batch : array of int32
        Rows of `batches`.
    types : tuple of three
        The objects of the timestamp types -1, 0 and 1.
    offset, timestamp : array of int64, or None
    key, value : GatheredItems, or None
    headers : list, or None
    """

    cdef Py_ssize_t next_row
    cdef const ks_batch_row[::1] batches
    cdef const int32_t[::1] batch
    cdef const int64_t[::1] offset, timestamp
    cdef tuple types
    cdef list headers
    cdef GatheredItems key, value

    def __cinit__(
        self,
        const ks_batch_row[::1] batches not None,
        const int32_t[::1] batch not None,
        tuple types not None,
        const int64_t[::1] offset,
        const int64_t[::1] timestamp,
        GatheredItems key,
        GatheredItems value,
        list headers,
    ):
        for column in (offset, timestamp, key, value, headers):
            if column is not None and len(column) != batch.shape[0]:
                raise ValueError("columns differ in length")
        if len(types) != 3:
            raise ValueError("there are three timestamp types")
        self.batches, self.batch, self.types = batches, batch, types
        self.offset, self.timestamp = offset, timestamp
        self.key, self.value, self.headers = key, value, headers

    def __iter__(self):
        return self

    def __next__(self):
        cdef Py_ssize_t i = self.next_row
        cdef const ks_batch_row *row
        cdef Record record
        if i >= self.batch.shape[0]:
            raise StopIteration
        record = Record.__new__(Record)
        record.batch = self.batch[i]
        if not 0 <= record.batch < self.batches.shape[0]:
            raise ValueError("the row of a batch is out of range")
        row = &self.batches[record.batch]
        if row.magic == 0:
            record.timestamp_type = self.types[0]
        else:
            record.timestamp_type = self.types[2 if row.attributes & KS_TIMESTAMP_TYPE_BIT else 1]
        if self.offset is not None:
            record._has_offset, record._offset = True, self.offset[i]
            record._sequence = sequence_of(row, record._offset)
        if self.timestamp is not None:
            record._has_timestamp, record._timestamp = True, self.timestamp[i]
        if self.key is not None:
            record.key = self.key.item(i)
        if self.value is not None:
            record.value = self.value.item(i)
        if self.headers is not None:
            record._headers = self.headers[i]
        self.next_row += 1
        return record


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
