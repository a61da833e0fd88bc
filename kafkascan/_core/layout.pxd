"""Declarations of the C headers for Cython."""

from libc.stdint cimport (int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t)


cdef extern from "kafka_status.h" nogil:
    int KS_OK
    int KS_OUTPUT_FULL
    int KS_NEED_WINDOW
    int KS_AT_STOP
    int KS_TORN_TAIL
    int KS_ROW_OUT_OF_BOUNDS
    int KS_ROW_MISMATCH
    int KS_SOURCE_FAULT
    int KS_OFFSET_OVERFLOW
    int KS_OFFSETS_NOT_ASCENDING
    int KS_NO_END_MARKER
    int KS_TRANSACTION_LEFT
    int KS_RECORD_TOO_LARGE


cdef extern from "kafka_layout.h" nogil:
    const int KS_SIZE_UP_TO_MAGIC
    const int KS_LOG_OVERHEAD
    const int KS_BATCH_HEADER_SIZE
    const int KS_CRC_START_V2
    const int KS_CRC_START_LEGACY
    const int KS_AT_magic
    const int KS_AT_crc
    const int KS_V0_AT_crc

    # All fields, so that a buffer is accepted as rows only if its dtype is BATCH_DTYPE.
    ctypedef packed struct ks_batch_row:
        int64_t position
        int64_t base_offset
        int32_t batch_length
        int32_t partition_leader_epoch
        int8_t magic
        uint32_t crc
        int16_t attributes
        int32_t last_offset_delta
        int64_t base_timestamp
        int64_t max_timestamp
        int64_t producer_id
        int16_t producer_epoch
        int32_t base_sequence
        int32_t records_count

    ctypedef packed struct ks_producer_entry:
        int64_t producer_id
        int16_t producer_epoch
        int32_t last_sequence
        int64_t last_offset
        int32_t offset_delta
        int64_t timestamp
        int32_t coordinator_epoch
        int64_t current_txn_first_offset

    const int KS_AT_base_offset
    const int KS_AT_partition_leader_epoch
    const int KS_AT_attributes
    const int KS_AT_max_timestamp
    const int KS_V0_AT_attributes
    const int KS_V1_AT_timestamp
    const int KS_MIN_RECORD_SIZE
    const int KS_OFFSET_INDEX_ENTRY_SIZE
    const int KS_OFFSET_INDEX_AT_relative_offset
    const int KS_OFFSET_INDEX_AT_position
    const int KS_TIME_INDEX_ENTRY_SIZE
    const int KS_TIME_INDEX_AT_timestamp
    const int KS_TIME_INDEX_AT_relative_offset

    const int KS_END_MARKER_SIZE
    const int KS_MARKER_AT_record_length
    const int KS_MARKER_AT_timestamp_delta
    const int KS_MARKER_AT_offset_delta
    const int KS_MARKER_AT_key_size
    const int KS_V0_AT_key_size
    const int KS_V1_AT_key_size
    const int KS_MARKER_AT_key_version
    const int KS_MARKER_AT_key_type
    const int KS_MARKER_AT_value_size
    const int KS_MARKER_AT_value_version
    const int KS_MARKER_AT_coordinator_epoch
    const int KS_MARKER_AT_headers_count

    const int KS_COMPRESSION_MASK
    const int KS_TIMESTAMP_TYPE_BIT
    const int KS_TRANSACTIONAL_BIT
    const int KS_CONTROL_BIT
    const int KS_DELETE_HORIZON_BIT

    uint32_t ks_load_u32(const uint8_t *p)
    int64_t ks_load_i64(const uint8_t *p)
    void ks_store_u16(uint8_t *p, uint16_t value)
    void ks_store_u32(uint8_t *p, uint32_t value)
    void ks_store_u64(uint8_t *p, uint64_t value)


cdef extern from "batch_row.h" nogil:
    int ks_frame_batch(const uint8_t *p, int64_t left, int64_t *size)
    int64_t ks_header_size(int8_t magic)
    bint ks_is_plausible_batch(const uint8_t *p, int64_t left, int64_t *last_offset, int64_t *size)
    bint ks_is_row_of(const uint8_t *p, int64_t available, const ks_batch_row *row)
    void ks_prefetch_ahead(const uint8_t *p, int64_t size)
    void ks_read_batch_row(const uint8_t *p, int64_t available, int64_t position, ks_batch_row *row)


cdef extern from *:
    """
    #define ks_prefetch(p) __builtin_prefetch(p)
    """
    void ks_prefetch(const void *p) noexcept nogil
