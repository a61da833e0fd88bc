"""Rewrite header fields of batches in place, and the checksums that cover them."""

from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from kafkascan._core.checksums cimport crc32_kernel, crc32c_kernel
from kafkascan._core.guard cimport run_guarded
from kafkascan._core.layout cimport (
    KS_AT_attributes,
    KS_AT_base_offset,
    KS_AT_crc,
    KS_AT_magic,
    KS_AT_max_timestamp,
    KS_AT_partition_leader_epoch,
    KS_COMPRESSION_MASK,
    KS_CONTROL_BIT,
    KS_CRC_START_LEGACY,
    KS_CRC_START_V2,
    KS_DELETE_HORIZON_BIT,
    KS_LOG_OVERHEAD,
    KS_OK,
    KS_ROW_MISMATCH,
    KS_ROW_OUT_OF_BOUNDS,
    KS_SOURCE_FAULT,
    KS_TIMESTAMP_TYPE_BIT,
    KS_TRANSACTIONAL_BIT,
    KS_V0_AT_attributes,
    KS_V0_AT_crc,
    KS_V1_AT_timestamp,
    ks_batch_row,
    ks_frame_batch,
    ks_header_size,
    ks_load_u32,
    ks_prefetch,
    ks_store_u16,
    ks_store_u32,
    ks_store_u64,
)


cdef struct Stamping:
    uint8_t *data
    int64_t size
    ks_batch_row *rows
    int64_t count
    const int64_t *last_offsets      # NULL leaves a field unchanged
    const int32_t *leader_epochs
    const int64_t *max_timestamps
    const int8_t *timestamp_types
    int64_t row                      # the current row
    int status


cdef int locate(const Stamping *job, const ks_batch_row *row, int64_t *size) noexcept nogil:
    """Compare a row with the bytes at its position, as verification does."""
    cdef uint8_t *batch
    cdef int crc_at
    if row.position < 0 or row.position > job.size:
        return KS_ROW_OUT_OF_BOUNDS
    batch = job.data + row.position
    if ks_frame_batch(batch, job.size - row.position, size) != KS_OK:
        return KS_ROW_MISMATCH
    crc_at = KS_AT_crc if batch[KS_AT_magic] == 2 else KS_V0_AT_crc
    if (
        size[0] != <int64_t>row.batch_length + KS_LOG_OVERHEAD
        or <signed char>batch[KS_AT_magic] != row.magic
        or size[0] < ks_header_size(row.magic)   # the magic byte was read again
        or ks_load_u32(batch + crc_at) != row.crc
    ):
        return KS_ROW_MISMATCH
    return KS_OK


cdef void stamp_offset(uint8_t *batch, ks_batch_row *row, int64_t last_offset) noexcept nogil:
    """Write the first offset of a batch, or the offset of a message; no checksum covers it."""
    cdef int64_t base = last_offset
    if row.magic == 2:
        base = <int64_t>(<uint64_t>last_offset - <uint64_t><int64_t>row.last_offset_delta)
    ks_store_u64(batch + KS_AT_base_offset, <uint64_t>base)
    row.base_offset = base


cdef void stamp_epoch(uint8_t *batch, ks_batch_row *row, int32_t epoch) noexcept nogil:
    ks_store_u32(batch + KS_AT_partition_leader_epoch, <uint32_t>epoch)
    row.partition_leader_epoch = epoch


cdef uint16_t attributes_of(const ks_batch_row *row, int8_t timestamp_type) noexcept nogil:
    """Return the attributes as Kafka writes them: unused bits are cleared."""
    cdef int known = KS_COMPRESSION_MASK
    if row.magic == 2:
        known |= KS_TRANSACTIONAL_BIT | KS_CONTROL_BIT | KS_DELETE_HORIZON_BIT
    return <uint16_t>(
        (row.attributes & known) | (KS_TIMESTAMP_TYPE_BIT if timestamp_type == 1 else 0)
    )


cdef void stamp_time(
    uint8_t *batch, ks_batch_row *row, int64_t size, int64_t timestamp, int8_t timestamp_type
) noexcept nogil:
    """Write timestamp and type, unless both are unchanged (``setMaxTimestamp``)."""
    cdef uint16_t attributes
    cdef bint was_log_append_time = (row.attributes & KS_TIMESTAMP_TYPE_BIT) != 0
    if row.max_timestamp == timestamp and was_log_append_time == (timestamp_type == 1):
        return
    attributes = attributes_of(row, timestamp_type)
    if row.magic == 2:
        ks_store_u16(batch + KS_AT_attributes, attributes)
        ks_store_u64(batch + KS_AT_max_timestamp, <uint64_t>timestamp)
        row.crc = crc32c_kernel(0, batch + KS_CRC_START_V2, size - KS_CRC_START_V2)
        ks_store_u32(batch + KS_AT_crc, row.crc)
    else:
        batch[KS_V0_AT_attributes] = <uint8_t>attributes
        ks_store_u64(batch + KS_V1_AT_timestamp, <uint64_t>timestamp)
        row.crc = crc32_kernel(0, batch + KS_CRC_START_LEGACY, size - KS_CRC_START_LEGACY)
        ks_store_u32(batch + KS_V0_AT_crc, row.crc)
        if not row.attributes & KS_COMPRESSION_MASK:
            row.base_timestamp = timestamp
    row.attributes = <short>attributes
    row.max_timestamp = timestamp


cdef void stamp_rows(void *context) noexcept nogil:
    cdef Stamping *job = <Stamping *>context
    cdef ks_batch_row *row
    cdef uint8_t *batch
    cdef int64_t size = 0, i, timestamp
    cdef int8_t timestamp_type
    while job.row < job.count:
        i = job.row
        row = &job.rows[i]
        job.status = locate(job, row, &size)
        if job.status != KS_OK:
            return
        batch = job.data + row.position
        ks_prefetch(batch + size)
        if job.last_offsets != NULL:
            stamp_offset(batch, row, job.last_offsets[i])
        if job.leader_epochs != NULL and row.magic == 2:
            stamp_epoch(batch, row, job.leader_epochs[i])
        if (job.max_timestamps != NULL or job.timestamp_types != NULL) and row.magic > 0:
            timestamp, timestamp_type = row.max_timestamp, 0
            if row.attributes & KS_TIMESTAMP_TYPE_BIT:
                timestamp_type = 1
            if job.max_timestamps != NULL:
                timestamp = job.max_timestamps[i]
            if job.timestamp_types != NULL:
                timestamp_type = job.timestamp_types[i]
            stamp_time(batch, row, size, timestamp, timestamp_type)
        job.row += 1


def restamp_into(
    uint8_t[::1] data not None,
    ks_batch_row[::1] rows not None,
    const int64_t[::1] last_offsets,
    const int32_t[::1] leader_epochs,
    const int64_t[::1] max_timestamps,
    const int8_t[::1] timestamp_types,
):
    """
    Rewrite header fields of batches, and the checksums that cover them.

    Parameters
    ----------
    data : writable buffer of bytes
    rows : writable contiguous array of BATCH_DTYPE
        Updated to the new headers.
    last_offsets, leader_epochs, max_timestamps, timestamp_types : arrays, or None
        A value for each row; None leaves the field unchanged. Leader epochs of messages and
        timestamps of magic 0 are skipped: their formats do not have these fields.

    Returns
    -------
    status : int
    row : int
        Number of completed rows, and the row that the status is about.
    position : int
        Position of the byte that faulted, for KS_SOURCE_FAULT.
    """
    cdef Stamping job
    cdef int64_t fault
    cdef int64_t count = rows.shape[0]
    if (
        (last_offsets is not None and last_offsets.shape[0] != count)
        or (leader_epochs is not None and leader_epochs.shape[0] != count)
        or (max_timestamps is not None and max_timestamps.shape[0] != count)
        or (timestamp_types is not None and timestamp_types.shape[0] != count)
    ):
        raise ValueError("rows and values differ in length")
    if count == 0:
        return KS_OK, 0, 0
    job.data = &data[0] if data.shape[0] else NULL
    job.size = data.shape[0]
    job.rows = &rows[0]
    job.count = count
    job.last_offsets = NULL
    if last_offsets is not None:
        job.last_offsets = &last_offsets[0]
    job.leader_epochs = NULL
    if leader_epochs is not None:
        job.leader_epochs = &leader_epochs[0]
    job.max_timestamps = NULL
    if max_timestamps is not None:
        job.max_timestamps = &max_timestamps[0]
    job.timestamp_types = NULL
    if timestamp_types is not None:
        job.timestamp_types = &timestamp_types[0]
    job.row = 0
    job.status = KS_OK
    with nogil:
        fault = run_guarded(stamp_rows, &job, job.data, job.size)
    if fault >= 0:
        return KS_SOURCE_FAULT, job.row, fault
    return job.status, job.row, 0
