"""Write batches from record columns: records, compression, headers and checksums."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int64_t, uint8_t

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
from kafkascan._core.record_columns cimport (
    Records,
    check_starts,
    ks_records,
    ks_size_before_records,
)


cdef extern from "write_batch.h" nogil:
    bint ks_is_compressed(const ks_batch_row *batch)
    uint8_t *ks_write_records(
        uint8_t *p, const uint8_t *limit, const ks_records *records, int64_t first, int64_t last,
        const ks_batch_row *batch, ks_crc_fn crc32
    )
    void ks_seal_batch(uint8_t *start, const uint8_t *end, ks_batch_row *batch, ks_crc_fn crc32c)
    void ks_seal_wrapper(
        uint8_t *start, const uint8_t *end, const ks_batch_row *batch, ks_crc_fn crc32
    )


cdef enum:
    # Bytes that are still in the CPU cache when the codec reads them.
    CACHED_SIZE = 1 << 17


cdef struct Writing:
    const ks_records *records
    ks_batch_row *rows
    const int64_t *starts
    const int64_t *sizes           # of each batch's records
    int64_t row, last_row
    uint8_t *out
    uint8_t *limit
    uint8_t *at
    int64_t position               # of the first byte of `out` in the complete output
    ks_crc_fn crc32c
    ks_crc_fn crc32
    bint is_full


cdef void write_rows(void *context) noexcept nogil:
    """Write uncompressed batches, and seal each while it is in the CPU cache."""
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
        # The row becomes what a scan of the output returns.
        ks_read_batch_row(job.at, end - job.at, job.position + (job.at - job.out), row)
        job.at = end
        job.row += 1


cdef void write_payloads(void *context) noexcept nogil:
    """Write the records of batches before compression, one batch after the other."""
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


cdef void set_output(Writing *job, uint8_t *out, int64_t size) noexcept:
    job.out = job.at = out
    job.limit = out + size


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
    Write uncompressed batches, one after the other.

    Parameters
    ----------
    records : Records
    rows : array of BATCH_DTYPE, shape (m,)
        Headers of the batches. The written rows become what a scan of the output returns.
    starts : array of int64, shape (m + 1,)
        First record of each batch, and the end of the last batch.
    sizes : array of int64, shape (m,)
        Bytes of each batch's records.
    first, last : int
        Range of the rows to write. A message of magic 0 or 1 is a batch of one record.
    position : int
        Position of the output's first byte, as the rows count.
    out : Output

    Returns
    -------
    status : int
        KS_OUTPUT_FULL if the records do not have the given sizes.
    fault : int
        For KS_SOURCE_FAULT, the offset in the source of the byte that faulted.
    """
    cdef Writing job = start_writing(records, rows, starts, sizes, first, last)
    cdef int64_t row, fault, size = 0
    for row in range(first, last):
        if ks_is_compressed(&rows[row]) or not 0 <= rows[row].magic <= 2:
            raise ValueError("a batch is compressed")
        if rows[row].magic < 2 and starts[row + 1] - starts[row] != 1:
            raise ValueError("a message of magic 0 or 1 must have one record")
        size += ks_size_before_records(rows[row].magic, False) + sizes[row]
    set_output(&job, out.reserve(size), size)
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
    Write batches and compress their records.

    Parameters
    ----------
    records, rows, starts, sizes, first, last, position, out
        As of `write_batches`; sizes are the ones before compression.
    packer : Packer

    Returns
    -------
    status : int
        KS_OUTPUT_FULL if the records of a batch do not have its size, KS_RECORD_TOO_LARGE if
        they are too large after compression.
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
            raise ValueError("the size of a batch is out of range")
        size += sizes[row]
        largest = max(largest, sizes[row])
    scratch = PyBytes_FromStringAndSize(NULL, max(largest, min(size, CACHED_SIZE)))
    while first < last:
        PyErr_CheckSignals()
        size, together = sizes[first], first + 1
        while together < last and size + sizes[together] <= CACHED_SIZE:
            size += sizes[together]
            together += 1
        job.row, job.last_row = first, together
        set_output(&job, <uint8_t *>PyBytes_AS_STRING(scratch), size)
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
    """
    Write the bytes before the records, then compress them.

    Returns False if they are too large; the output is of no use then.
    """
    cdef int64_t first = out.size, before = ks_size_before_records(row.magic, True)
    cdef uint8_t *start
    cdef uint8_t *end
    out.reserve(before)
    out.note(before)
    packer.pack(data, size, out)
    if out.size - first > 0x7fffffff:
        return False
    start, end = out.at(first), out.at(out.size)
    with nogil:
        if row.magic == 2:
            ks_seal_batch(start, end, row, crc32c_kernel)
        else:
            ks_seal_wrapper(start, end, row, crc32_kernel)
        ks_read_batch_row(start, end - start, position + first, row)
    return True
