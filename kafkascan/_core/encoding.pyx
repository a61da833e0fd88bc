"""Writes batches from columns: where they end, their records, what stands around them."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uintptr_t

from kafkascan._core.checksums cimport crc32_kernel, crc32c_kernel, ks_crc_fn
from kafkascan._core.guard cimport run_guarded
from kafkascan._core.layout cimport (
    KS_OK,
    KS_OUTPUT_FULL,
    KS_RECORD_TOO_LARGE,
    KS_SOURCE_FAULT,
    ks_batch_row,
    ks_read_batch_row,
)
from kafkascan._core.packing cimport Output, Packer


cdef extern from "write_batch.h" nogil:
    ctypedef struct ks_items:
        const uint8_t *const *data
        const int32_t *size

    ctypedef struct ks_records:
        const int64_t *offset
        const int64_t *timestamp
        ks_items key
        ks_items value
        const int64_t *header_starts
        ks_items header_key
        ks_items header_value

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
    int64_t ks_size_before_records(int8_t magic, bint is_compressed)
    bint ks_is_compressed(const ks_batch_row *batch)
    uint8_t *ks_write_records(
        uint8_t *p, const uint8_t *limit, const ks_records *records, int64_t first, int64_t last,
        const ks_batch_row *batch, ks_crc_fn crc32
    )
    int64_t ks_delta(int64_t number, int64_t base)
    int64_t ks_size_of_sized(int32_t size)
    int64_t ks_size_of_varlong(int64_t n)
    int64_t ks_size_of_body(int64_t content, int64_t timestamp_delta, int64_t offset_delta)
    int64_t ks_size_of_record(int64_t body)
    int64_t ks_size_of_message(int8_t magic, int32_t key_size, int32_t value_size)
    void ks_seal_batch(
        uint8_t *start, const uint8_t *end, ks_batch_row *batch, ks_crc_fn crc32c
    )
    void ks_seal_wrapper(
        uint8_t *start, const uint8_t *end, const ks_batch_row *batch, ks_crc_fn crc32
    )


cdef class Records:
    """
    Records in columns.

    Parameters
    ----------
    offset, timestamp : arrays of int64, shape (n,)
    key, value : (array of uintp, array of int32), each of shape (n,), or None
        Where each item lies, and its size; a negative size is a null. None if all are null.
    header_starts : array of int64, shape (n + 1,), or None
        The first header of each record; None if none has any.
    header_key, header_value : (array of uintp, array of int32), each of shape (m,), or None
    owners : object
        Keeps the bytes alive that the addresses point to.
    source : buffer of bytes, optional
        A map among those bytes, whose file may shrink.
    """

    cdef ks_records columns
    cdef readonly int64_t count
    cdef const uint8_t *source
    cdef size_t source_size
    cdef list _arrays

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
            raise ValueError("header_starts must begin with 0, and have one more than records")
        for i in range(self.count):
            if starts[i] > starts[i + 1]:
                raise ValueError("header_starts must not decrease")
        count = starts[self.count]
        self.columns.header_key = self.items(key, count)
        self.columns.header_value = self.items(value, count)
        if count:
            self.columns.header_starts = &starts[0]
        return 0


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
    Find where batches end.

    Parameters
    ----------
    records : Records
    magic : int
    is_compressed : bool
    batch_size : int
        Bytes that a batch may have before compression, its header included; its first record
        is taken whatever its size.
    batch_records : int
        Records that a batch may have.
    base_timestamp : int or None
        What timestamps count from; None for each batch's first one.
    starts, sizes : arrays of n + 1 and n
        Filled: the first record of each batch, and of none behind the last one; bytes of its
        records before compression.

    Returns
    -------
    status : int
    record : int
        That the status is about.
    batches : int
    """
    cdef ks_plan how
    cdef int64_t first = 0, last = 0, batches = 0, n = records.count
    cdef int status = KS_OK
    if starts.shape[0] != n + 1 or sizes.shape[0] != n:
        raise ValueError("arrays differ in length")
    if batch_records < 1 or not 0 <= magic <= 2:
        raise ValueError("no such batches")
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
    Compute the bytes, before compression, of the records of batches that are given.

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
        That the status is about.
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
    """Whether the starts are sound that say where the rows before `last` are."""
    cdef int64_t row
    if starts.shape[0] != rows + 1:
        raise ValueError("there must be one start more than batches")
    if not 0 <= first <= last <= rows:
        raise ValueError("no such rows")
    if starts[first] < 0 or starts[last] > records.count:
        raise ValueError("starts must lie within the records")
    for row in range(first, last):
        if starts[row] > starts[row + 1]:
            raise ValueError("starts must not decrease")
    return 0


cdef enum:
    # Bytes that are still in the cache when the codec gets them.
    WRITTEN_AT_ONCE = 1 << 17


cdef struct Writing:
    const ks_records *records
    ks_batch_row *rows
    const int64_t *starts
    const int64_t *sizes           # of each batch's records
    int64_t row, last_row
    uint8_t *out
    uint8_t *limit
    uint8_t *at
    int64_t position               # of `out` in what is written in all
    ks_crc_fn crc32c
    ks_crc_fn crc32
    bint is_full


cdef void write_rows(void *context) noexcept nogil:
    """Batches that are not compressed, sealed while they are in the cache."""
    cdef Writing *job = <Writing *>context
    cdef ks_batch_row *row
    cdef uint8_t *start
    cdef uint8_t *end
    while job.row < job.last_row:
        row = &job.rows[job.row]
        start = job.at + ks_size_before_records(row.magic, False)
        if start > job.limit:
            job.is_full = True
            return
        end = ks_write_records(
            start, job.limit, job.records, job.starts[job.row], job.starts[job.row + 1], row,
            job.crc32,
        )
        if end == NULL:
            job.is_full = True
            return
        if row.magic == 2:
            ks_seal_batch(job.at, end, row, job.crc32c)
        # As whoever scans it will find it.
        ks_read_batch_row(job.at, end - job.at, job.position + (job.at - job.out), row)
        job.at = end
        job.row += 1


cdef void write_payloads(void *context) noexcept nogil:
    """The records of batches as they are before compression, one batch behind the other."""
    cdef Writing *job = <Writing *>context
    cdef uint8_t *limit
    while job.row < job.last_row:
        limit = job.at + job.sizes[job.row]
        job.at = ks_write_records(
            job.at, limit, job.records, job.starts[job.row], job.starts[job.row + 1],
            &job.rows[job.row], job.crc32,
        )
        if job.at != limit:
            job.is_full = True
            return
        job.row += 1


cdef Writing start_writing(
    Records records,
    ks_batch_row[::1] rows,
    const int64_t[::1] starts,
    const int64_t[::1] sizes,
    int64_t first,
    int64_t last,
) except *:
    cdef Writing job
    check_starts(records, starts, rows.shape[0], first, last)
    if sizes.shape[0] != rows.shape[0]:
        raise ValueError("arrays differ in length")
    job.row, job.last_row = first, last
    job.records = &records.columns
    job.rows = &rows[0] if rows.shape[0] else NULL
    job.starts = &starts[0]
    job.sizes = &sizes[0] if rows.shape[0] else NULL
    job.crc32c, job.crc32 = crc32c_kernel, crc32_kernel
    job.is_full = False
    job.position = 0
    return job


cdef int give_room(Writing *job, uint8_t *out, int64_t size) except -1:
    job.out = job.at = out
    job.limit = out + size
    return 0


def write_batches(
    Records records not None,
    ks_batch_row[::1] rows not None,
    const int64_t[::1] starts not None,
    const int64_t[::1] sizes not None,
    int64_t first,
    int64_t last,
    int64_t position,
    Output out not None,
):
    """
    Write batches that are not compressed, one behind the other.

    Parameters
    ----------
    records : Records
    rows : array of BATCH_DTYPE, shape (m,)
        What the headers say. Those that are written become what a scan would find.
    starts : array of int64, shape (m + 1,)
        The first record of each batch, and of none behind the last one.
    sizes : array of int64, shape (m,)
        Bytes of each batch's records.
    first, last : int
        The rows to write are those before `last`. A message of magic 0 or 1 is a batch of
        one record.
    position : int
        Of the output's first byte in the rows.
    out : Output

    Returns
    -------
    status : int
        KS_OUTPUT_FULL if the records are not of their sizes.
    fault : int
        For KS_SOURCE_FAULT, the offset in the source of the byte that faulted.
    """
    cdef Writing job = start_writing(records, rows, starts, sizes, first, last)
    cdef int64_t row, fault, size = 0
    for row in range(first, last):
        if ks_is_compressed(&rows[row]) or not 0 <= rows[row].magic <= 2:
            raise ValueError("a batch is compressed")
        if rows[row].magic < 2 and starts[row + 1] - starts[row] != 1:
            raise ValueError("a message is one record")
        size += ks_size_before_records(rows[row].magic, False) + sizes[row]
    give_room(&job, out.reserve(size), size)
    job.position = position + out.size
    with nogil:
        fault = run_guarded(write_rows, &job, records.source, records.source_size)
    if fault >= 0:
        return KS_SOURCE_FAULT, fault
    if job.is_full or job.at != job.limit:
        return KS_OUTPUT_FULL, 0
    out.note(size)
    return KS_OK, 0


def compress_batches(
    Records records not None,
    ks_batch_row[::1] rows not None,
    const int64_t[::1] starts not None,
    const int64_t[::1] sizes not None,
    int64_t first,
    int64_t last,
    int64_t position,
    Output out not None,
    Packer packer not None,
):
    """
    Write compressed batches.

    Parameters
    ----------
    records, rows, starts, sizes, first, last, position, out
        As of `write_batches`; sizes are those before compression.
    packer : Packer

    Returns
    -------
    status : int
        KS_OUTPUT_FULL if the records of a batch are not of its size, KS_RECORD_TOO_LARGE if
        they are too large once they are compressed.
    which : int
        For KS_SOURCE_FAULT, the offset in the source of the byte that faulted; for
        KS_RECORD_TOO_LARGE, the row.
    """
    cdef Writing job = start_writing(records, rows, starts, sizes, first, last)
    cdef int64_t row, fault, at, together, size = 0, largest = 1
    cdef bytes scratch
    for row in range(first, last):
        if not ks_is_compressed(&rows[row]) or not 0 <= rows[row].magic <= 2:
            raise ValueError("a batch is not compressed")
        if not 0 <= sizes[row] <= 0x7fffffff:
            raise ValueError("a batch cannot have this size")
        size += sizes[row]
        largest = max(largest, sizes[row])
    scratch = PyBytes_FromStringAndSize(NULL, max(largest, min(size, WRITTEN_AT_ONCE)))
    while first < last:
        size, together = sizes[first], first + 1
        while together < last and size + sizes[together] <= WRITTEN_AT_ONCE:
            size += sizes[together]
            together += 1
        job.row, job.last_row = first, together
        give_room(&job, <uint8_t *>PyBytes_AS_STRING(scratch), size)
        with nogil:
            fault = run_guarded(write_payloads, &job, records.source, records.source_size)
        if fault >= 0:
            return KS_SOURCE_FAULT, fault
        if job.is_full:
            return KS_OUTPUT_FULL, 0
        at = 0
        for row in range(first, together):
            if not pack_batch(&rows[row], job.out + at, sizes[row], position, out, packer):
                return KS_RECORD_TOO_LARGE, row
            at += sizes[row]
        first = together
    return KS_OK, 0


cdef bint pack_batch(
    ks_batch_row *row, const uint8_t *data, int64_t size, int64_t position, Output out,
    Packer packer,
) except -1:
    """Compress records behind what stands before them; False if there are too many bytes."""
    cdef int64_t first = out.size, before = ks_size_before_records(row.magic, True)
    cdef uint8_t *start
    cdef uint8_t *end
    out.reserve(before)
    out.note(before)
    packer.pack(data, size, out)
    if out.size - first > 0x7fffffff:
        out.shorten(first)
        return False
    start, end = out.at(first), out.at(out.size)
    with nogil:
        if row.magic == 2:
            ks_seal_batch(start, end, row, crc32c_kernel)
        else:
            ks_seal_wrapper(start, end, row, crc32_kernel)
        ks_read_batch_row(start, end - start, position + first, row)
    return True


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
    Bytes of a record before compression; a negative size is a null.

    Parameters
    ----------
    header_sizes : list of int
        Of each header's key and value.
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
    """Bytes of a batch before its records, or before a wrapper's value."""
    if not 0 <= magic <= 2:
        raise ValueError("no such magic")
    return ks_size_before_records(magic, is_compressed)
