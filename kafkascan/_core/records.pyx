"""Bytes of batches to columns of records, and columns of records to contiguous bytes."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uintptr_t
from libc.string cimport memcmp, memcpy, memset

from kafkascan._core.guard cimport run_guarded
from kafkascan._core.layout cimport (
    KS_OK,
    KS_ROW_MISMATCH,
    KS_ROW_OUT_OF_BOUNDS,
    KS_SOURCE_FAULT,
    ks_batch_row,
    ks_frame_batch,
    ks_header_size,
    ks_read_batch_row,
)


cdef extern from "record.h" nogil:
    ctypedef struct ks_record_columns:
        int32_t *batch
        int64_t *offset
        int64_t *timestamp
        int64_t *key_position
        int32_t *key_size
        int64_t *value_position
        int32_t *value_size
        int64_t *headers_position
        int32_t *headers_count

    ctypedef struct ks_payload:
        const uint8_t *start
        const uint8_t *limit
        const uint8_t *buffer

    int ks_decode_batch(
        const ks_payload *payload, const ks_batch_row *batch, int32_t batch_number,
        int64_t row, int64_t count, int in_full, const ks_record_columns *columns,
        int64_t *done
    )
    int ks_decode_plain_message(
        const ks_payload *payload, const ks_batch_row *batch, int32_t batch_number,
        int64_t row, const ks_record_columns *columns
    )
    int ks_decode_wrapper(
        const ks_payload *payload, const ks_batch_row *batch, int32_t batch_number,
        int64_t row, int64_t count, const ks_record_columns *columns
    )
    int ks_count_entries(const ks_payload *payload, int64_t *count, int64_t *last_offset)


cdef extern from "varint.h" nogil:
    const uint8_t *ks_read_varint(const uint8_t *p, const uint8_t *limit, int32_t *number)


min_record_size = 7


# ---- rows are those of the source --------------------------------------------------------

cdef struct Comparison:
    const uint8_t *source
    int64_t source_size
    const ks_batch_row *rows
    int64_t count
    int64_t row
    int status


cdef int compare_row(const Comparison *job, const ks_batch_row *row) noexcept nogil:
    cdef ks_batch_row actual
    cdef int64_t size = 0
    cdef const uint8_t *p
    if row.position < 0 or row.position > job.source_size:
        return KS_ROW_OUT_OF_BOUNDS
    p = job.source + row.position
    if ks_frame_batch(p, job.source_size - row.position, &size) != KS_OK:
        return KS_ROW_MISMATCH
    # What the magic byte says now, not what it said when the batch was framed.
    memset(&actual, 0, sizeof(actual))
    ks_read_batch_row(p, size, row.position, &actual)
    return KS_OK if memcmp(&actual, row, sizeof(actual)) == 0 else KS_ROW_MISMATCH


cdef void compare_rows(void *context) noexcept nogil:
    cdef Comparison *job = <Comparison *>context
    while job.row < job.count:
        job.status = compare_row(job, &job.rows[job.row])
        if job.status != KS_OK:
            return
        job.row += 1


def check_rows(const uint8_t[::1] source not None, const ks_batch_row[::1] rows not None):
    """
    Compare every field of some rows with the headers at their positions.

    Parameters
    ----------
    source : buffer of bytes
        All of it.
    rows : contiguous array of BATCH_DTYPE

    Returns
    -------
    status : int
    row : int
        The first one that differs.
    fault : int
        Position of the byte that faulted, for KS_SOURCE_FAULT.
    """
    cdef Comparison job
    cdef int64_t fault
    if rows.shape[0] == 0:
        return KS_OK, 0, 0
    job.source = &source[0] if source.shape[0] else NULL
    job.source_size = source.shape[0]
    job.rows = &rows[0]
    job.count = rows.shape[0]
    job.row = 0
    job.status = KS_OK
    with nogil:
        fault = run_guarded(compare_rows, &job, job.source, job.source_size)
    if fault >= 0:
        return KS_SOURCE_FAULT, job.row, fault
    return job.status, job.row, 0


# ---- decoding ----------------------------------------------------------------------------

cdef struct Buffers:
    const uintptr_t *addresses
    const int64_t *sizes
    int64_t count


cdef const uint8_t *bytes_at(
    const Buffers *buffers, int64_t buffer, int64_t position, int64_t size
) noexcept nogil:
    """Where bytes of a buffer lie; NULL if they are not in it."""
    if buffer < 0 or buffer >= buffers.count:
        return NULL
    if position < 0 or size < 0 or size > buffers.sizes[buffer] - position:
        return NULL
    return <const uint8_t *>buffers.addresses[buffer] + position


cdef struct Decoding:
    Buffers buffers
    const int32_t *buffer          # by batch: where its payload lies
    const int64_t *position
    const int64_t *size
    const int64_t *first_record    # by batch, and one more
    const ks_batch_row *rows
    const uint8_t *is_wrapper
    int64_t count
    bint in_full
    ks_record_columns columns
    int64_t capacity
    int64_t batch                  # at work, for the report
    int64_t done                   # records of it
    int status


cdef int decode_batch(Decoding *job, int64_t batch) noexcept nogil:
    cdef const ks_batch_row *row = &job.rows[batch]
    cdef int64_t first = job.first_record[batch]
    cdef int64_t count = job.first_record[batch + 1] - first
    cdef ks_payload payload
    payload.start = bytes_at(
        &job.buffers, job.buffer[batch], job.position[batch], job.size[batch]
    )
    # Columns are written up to here, whatever the row says.
    if payload.start == NULL or count < 0 or first < 0 or first > job.capacity - count:
        return KS_ROW_OUT_OF_BOUNDS
    payload.limit = payload.start + job.size[batch]
    payload.buffer = payload.start - job.position[batch]
    if row.magic == 2:
        if row.records_count != count:
            return KS_ROW_MISMATCH
        return ks_decode_batch(
            &payload, row, batch, first, count, job.in_full, &job.columns, &job.done
        )
    if job.is_wrapper[batch]:
        return ks_decode_wrapper(&payload, row, batch, first, count, &job.columns)
    if count != 1 or job.size[batch] < ks_header_size(row.magic):
        return KS_ROW_MISMATCH
    return ks_decode_plain_message(&payload, row, batch, first, &job.columns)


cdef void decode_batches(void *context) noexcept nogil:
    cdef Decoding *job = <Decoding *>context
    while job.batch < job.count:
        job.done = 0
        job.status = decode_batch(job, job.batch)
        if job.status != KS_OK:
            return
        job.batch += 1


cdef int64_t *longs(object column, int64_t capacity) except? NULL:
    """The storage of an int64 column, or NULL."""
    cdef int64_t[::1] view
    if column is None:
        return NULL
    view = column
    if view.shape[0] != capacity:
        raise ValueError("columns differ in length")
    return &view[0] if capacity else NULL


cdef int32_t *ints(object column, int64_t capacity) except? NULL:
    """The storage of an int32 column, or NULL."""
    cdef int32_t[::1] view
    if column is None:
        return NULL
    view = column
    if view.shape[0] != capacity:
        raise ValueError("columns differ in length")
    return &view[0] if capacity else NULL


def decode_into(
    const uintptr_t[::1] addresses not None,
    const int64_t[::1] sizes not None,
    const ks_batch_row[::1] rows not None,
    const int32_t[::1] payload_buffer not None,
    const int64_t[::1] payload_position not None,
    const int64_t[::1] payload_size not None,
    const uint8_t[::1] is_wrapper not None,
    const int64_t[::1] first_record not None,
    dict columns not None,
    int64_t first_batch,
    int64_t stop_batch,
):
    """
    Decode the records of batches whose bytes are at hand, uncompressed.

    Parameters
    ----------
    addresses, sizes : arrays
        Of the buffers; buffer 0 is the source, which may be a map.
    rows : contiguous array of BATCH_DTYPE, n rows
        Checked against the source.
    payload_buffer, payload_position, payload_size, is_wrapper : arrays of n
        Where each batch's records, message or wrapped messages lie.
    first_record : array of n + 1
        The record of the columns that each batch starts at.
    columns : dict
        ``batch`` (int32), and any of ``offset``, ``timestamp``, ``key_position``,
        ``value_position``, ``headers_position`` (int64), ``key_size``, ``value_size``,
        ``headers_count`` (int32): arrays to be filled.
    first_batch, stop_batch : int
        Which batches to decode; others are left alone.

    Returns
    -------
    status : int
    batch : int
        The one that the status is about.
    record : int
        Its record, counted from 0.
    fault : int
        Position of the byte that faulted, for KS_SOURCE_FAULT.
    """
    cdef Decoding job
    cdef int64_t fault, n = rows.shape[0], capacity = len(columns["batch"])
    if not (
        payload_buffer.shape[0] == payload_position.shape[0] == payload_size.shape[0] == n
        and is_wrapper.shape[0] == n
        and first_record.shape[0] == n + 1
        and addresses.shape[0] == sizes.shape[0] > 0
        and 0 <= first_batch <= stop_batch <= n
    ):
        raise ValueError("arrays differ in length")
    if first_batch == stop_batch:
        return KS_OK, first_batch, 0, 0
    job.buffers.addresses = &addresses[0]
    job.buffers.sizes = &sizes[0]
    job.buffers.count = sizes.shape[0]
    job.buffer = &payload_buffer[0]
    job.position = &payload_position[0]
    job.size = &payload_size[0]
    job.first_record = &first_record[0]
    job.rows = &rows[0]
    job.is_wrapper = &is_wrapper[0]
    job.count = stop_batch
    job.capacity = capacity
    job.columns.batch = ints(columns["batch"], capacity)
    job.columns.offset = longs(columns.get("offset"), capacity)
    job.columns.timestamp = longs(columns.get("timestamp"), capacity)
    job.columns.key_position = longs(columns.get("key_position"), capacity)
    job.columns.key_size = ints(columns.get("key_size"), capacity)
    job.columns.value_position = longs(columns.get("value_position"), capacity)
    job.columns.value_size = ints(columns.get("value_size"), capacity)
    job.columns.headers_position = longs(columns.get("headers_position"), capacity)
    job.columns.headers_count = ints(columns.get("headers_count"), capacity)
    for name in ("key_position", "value_position", "headers_position"):
        pair = name.replace("headers_position", "headers_count").replace("_position", "_size")
        if (columns.get(name) is None) != (columns.get(pair) is None):
            raise ValueError(f"{name} needs {pair}")
    job.in_full = (
        job.columns.key_position != NULL
        or job.columns.value_position != NULL
        or job.columns.headers_position != NULL
    )
    job.batch = first_batch
    job.done = 0
    job.status = KS_OK
    with nogil:
        fault = run_guarded(
            decode_batches, &job, <const uint8_t *>job.buffers.addresses[0], job.buffers.sizes[0]
        )
    if fault >= 0:
        return KS_SOURCE_FAULT, job.batch, job.done, fault
    return job.status, job.batch, job.done, 0


def count_entries(const uint8_t[::1] messages not None):
    """
    Count the messages that a wrapper of magic 0 or 1 holds.

    Returns
    -------
    status : int
    count : int
    """
    cdef ks_payload payload
    cdef int64_t count = 0, last_offset = 0
    cdef int status
    cdef uint8_t nothing = 0
    payload.start = &messages[0] if messages.shape[0] else &nothing
    payload.limit = payload.start + messages.shape[0]
    payload.buffer = payload.start
    with nogil:
        status = ks_count_entries(&payload, &count, &last_offset)
    return status, count


# ---- gathering ---------------------------------------------------------------------------

cdef struct Gathering:
    Buffers buffers
    const int32_t *batch           # by item
    const int32_t *buffer          # by batch; NULL where all is in buffer 0
    int64_t batches
    const int64_t *position
    const int32_t *size
    int64_t count
    uint8_t *out
    int64_t out_size
    int64_t *starts                # of items in `out`, and where the last one ends
    uint8_t *views
    bint failed


cdef inline const uint8_t *item_bytes(const Gathering *job, int64_t i) noexcept nogil:
    cdef int64_t batch = job.batch[i]
    if batch < 0 or batch >= job.batches:
        return NULL
    return bytes_at(&job.buffers, job.buffer[batch], job.position[i], job.size[i])


cdef void gather(void *context) noexcept nogil:
    cdef Gathering *job = <Gathering *>context
    cdef const uint8_t *p
    cdef int64_t i, at = 0, size
    for i in range(job.count):
        job.starts[i] = at
        size = job.size[i]
        if size <= 0:
            continue
        p = item_bytes(job, i)
        if p == NULL or size > job.out_size - at:
            job.failed = True
            return
        memcpy(job.out + at, p, size)
        at += size
    job.starts[job.count] = at


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
        raise ValueError("buffers and their sizes differ in number")
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
    int64_t[::1] starts not None,
):
    """
    Copy items one behind the other.

    Parameters
    ----------
    addresses, sizes : arrays
        Of the buffers; buffer 0 is the source, which may be a map.
    buffer_of_batch : array of int32
    batch, position, size : arrays of n
        Where the items lie; a negative size is a null.
    out : writable buffer of bytes
        Of the size of all items.
    starts : array of n + 1
        Is filled with where each item starts in `out`.

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
    job.out = &out[0] if out.shape[0] else NULL
    job.out_size = out.shape[0]
    job.starts = &starts[0]
    with nogil:
        fault = run_guarded(
            gather, &job, <const uint8_t *>job.buffers.addresses[0], job.buffers.sizes[0]
        )
    if fault >= 0:
        return KS_SOURCE_FAULT, fault
    return (KS_ROW_MISMATCH if job.failed else KS_OK), 0


# ---- Arrow's views -----------------------------------------------------------------------

cdef enum:
    VIEW_SIZE = 16
    INLINE_SIZE = 12


cdef struct Viewing:
    Gathering items
    const int32_t *first_piece     # by buffer: Arrow's number of its first piece
    int piece_bits                 # a piece starts every 2**piece_bits bytes


cdef void make_views(void *context) noexcept nogil:
    cdef Viewing *job = <Viewing *>context
    cdef Gathering *items = &job.items
    cdef const uint8_t *p
    cdef uint8_t *view
    cdef int32_t size, piece, start
    cdef int64_t i, mask = (<int64_t>1 << job.piece_bits) - 1
    for i in range(items.count):
        view = items.views + i * VIEW_SIZE
        memset(view, 0, VIEW_SIZE)
        size = items.size[i]
        if size <= 0:
            continue
        p = item_bytes(items, i)
        if p == NULL:
            items.failed = True
            return
        memcpy(view, &size, 4)
        if size <= INLINE_SIZE:
            memcpy(view + 4, p, size)
            continue
        memcpy(view + 4, p, 4)
        piece = <int32_t>(
            job.first_piece[items.buffer[items.batch[i]]]
            + (items.position[i] >> job.piece_bits)
        )
        start = <int32_t>(items.position[i] & mask)
        memcpy(view + 8, &piece, 4)
        memcpy(view + 12, &start, 4)


def views_into(
    const uintptr_t[::1] addresses not None,
    const int64_t[::1] sizes not None,
    const int32_t[::1] buffer_of_batch not None,
    const int32_t[::1] batch not None,
    const int64_t[::1] position not None,
    const int32_t[::1] size not None,
    const int32_t[::1] first_piece not None,
    int piece_bits,
    uint8_t[:, ::1] views not None,
):
    """
    Fill Arrow's 16-byte views of items.

    Parameters
    ----------
    addresses, sizes, buffer_of_batch, batch, position, size
        As of `gather_into`.
    first_piece : array of int32, one per buffer
        Number of the first of the pieces that Arrow gets of each buffer.
    piece_bits : int
        A piece starts every ``2**piece_bits`` bytes.
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
        raise ValueError("views and items differ in number")
    if first_piece.shape[0] != sizes.shape[0] or not 0 < piece_bits < 31:
        raise ValueError("pieces are not those of the buffers")
    if job.items.count == 0:
        return KS_OK, 0
    job.items.views = &views[0, 0]
    job.first_piece = &first_piece[0]
    job.piece_bits = piece_bits
    with nogil:
        fault = run_guarded(
            make_views, &job,
            <const uint8_t *>job.items.buffers.addresses[0], job.items.buffers.sizes[0],
        )
    if fault >= 0:
        return KS_SOURCE_FAULT, fault
    return (KS_ROW_MISMATCH if job.items.failed else KS_OK), 0


# ---- headers -----------------------------------------------------------------------------

cdef struct HeaderWalk:
    Gathering items                # position and count of the headers of each record
    int32_t *batch                 # of each header
    int64_t *key_position
    int32_t *key_size
    int64_t *value_position
    int32_t *value_size
    int64_t capacity
    int64_t written


cdef const uint8_t *walk_header(
    HeaderWalk *job, const uint8_t *p, const uint8_t *buffer, const uint8_t *limit
) noexcept nogil:
    cdef int64_t at = job.written
    cdef int32_t size = 0
    p = ks_read_varint(p, limit, &size)
    if p == NULL or size < 0 or size > limit - p:
        return NULL
    job.key_position[at] = p - buffer
    job.key_size[at] = size
    p = ks_read_varint(p + size, limit, &size)
    if p == NULL or size > limit - p:
        return NULL
    job.value_position[at] = p - buffer
    job.value_size[at] = -1 if size < 0 else size
    job.written += 1
    return p + size if size > 0 else p


cdef void walk_headers(void *context) noexcept nogil:
    cdef HeaderWalk *job = <HeaderWalk *>context
    cdef Gathering *items = &job.items
    cdef const uint8_t *p
    cdef const uint8_t *buffer
    cdef const uint8_t *limit
    cdef int64_t i
    cdef int32_t batch
    for i in range(items.count):
        if items.size[i] <= 0:
            continue
        batch = items.batch[i]
        # The headers' own size is not known: each is checked against the buffer's end.
        p = NULL
        if 0 <= batch < items.batches:
            p = bytes_at(&items.buffers, items.buffer[batch], items.position[i], 0)
        if p == NULL or items.size[i] > job.capacity - job.written:
            items.failed = True
            return
        buffer = p - items.position[i]
        limit = buffer + items.buffers.sizes[items.buffer[batch]]
        for _ in range(items.size[i]):
            job.batch[job.written] = batch
            p = walk_header(job, p, buffer, limit)
            if p == NULL:
                items.failed = True
                return


def headers_into(
    const uintptr_t[::1] addresses not None,
    const int64_t[::1] sizes not None,
    const int32_t[::1] buffer_of_batch not None,
    const int32_t[::1] batch not None,
    const int64_t[::1] headers_position not None,
    const int32_t[::1] headers_count not None,
    int32_t[::1] header_batch not None,
    int64_t[::1] key_position not None,
    int32_t[::1] key_size not None,
    int64_t[::1] value_position not None,
    int32_t[::1] value_size not None,
):
    """
    Find the keys and values of the headers of records, in order.

    Parameters
    ----------
    addresses, sizes, buffer_of_batch
        As of `gather_into`.
    batch, headers_position, headers_count : arrays of n
        Columns of the records.
    header_batch, key_position, key_size, value_position, value_size : arrays of m
        Filled; m is the sum of the counts.

    Returns
    -------
    status : int
    fault : int
    """
    cdef HeaderWalk job
    cdef int64_t fault
    start_gathering(
        &job.items, addresses, sizes, buffer_of_batch, batch, headers_position, headers_count
    )
    job.capacity = header_batch.shape[0]
    if not (
        key_position.shape[0] == key_size.shape[0] == value_position.shape[0] == job.capacity
        and value_size.shape[0] == job.capacity
    ):
        raise ValueError("columns differ in length")
    if job.capacity == 0:
        return KS_OK, 0
    job.batch = &header_batch[0]
    job.key_position = &key_position[0]
    job.key_size = &key_size[0]
    job.value_position = &value_position[0]
    job.value_size = &value_size[0]
    job.written = 0
    with nogil:
        fault = run_guarded(
            walk_headers, &job,
            <const uint8_t *>job.items.buffers.addresses[0], job.items.buffers.sizes[0],
        )
    if fault >= 0:
        return KS_SOURCE_FAULT, fault
    if job.items.failed or job.written != job.capacity:
        return KS_ROW_MISMATCH, 0
    return KS_OK, 0
