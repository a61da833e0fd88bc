"""The tables of the C headers as Python data: fields, sizes, bits and statuses."""

cdef extern from *:
    """
    #include "kafka_layout.h"
    #include "kafka_status.h"

    #define KS_AS_FIELD(name, type, offset) {#name, #type, offset},
    static const ks_field ks_batch_header_fields[] = {KS_BATCH_HEADER(KS_AS_FIELD)};
    static const ks_field ks_message_v0_fields[] = {KS_MESSAGE_V0(KS_AS_FIELD)};
    static const ks_field ks_message_v1_fields[] = {KS_MESSAGE_V1(KS_AS_FIELD)};
    static const ks_field ks_offset_index_fields[] = {KS_OFFSET_INDEX_ENTRY(KS_AS_FIELD)};
    static const ks_field ks_time_index_fields[] = {KS_TIME_INDEX_ENTRY(KS_AS_FIELD)};
    static const ks_field ks_txn_index_fields[] = {KS_TRANSACTION_INDEX_ENTRY(KS_AS_FIELD)};
    static const ks_field ks_snapshot_fields[] = {KS_SNAPSHOT_HEADER(KS_AS_FIELD)};
    static const ks_field ks_producer_fields[] = {KS_PRODUCER_ENTRY(KS_AS_FIELD)};
    static const ks_field ks_end_marker_fields[] = {KS_END_MARKER(KS_AS_FIELD)};
    #define KS_COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

    typedef struct ks_status_text { const char *symbol; int number; const char *sentence; }
        ks_status_text;
    #define KS_AS_TEXT(symbol, number, sentence) {#symbol, number, sentence},
    static const ks_status_text ks_status_texts[] = {KS_STATUSES(KS_AS_TEXT)};
    """
    ctypedef struct ks_field:
        const char *name
        const char *type
        int offset

    ctypedef struct ks_status_text:
        const char *symbol
        int number
        const char *sentence

    const ks_field *ks_batch_header_fields
    const ks_field *ks_message_v0_fields
    const ks_field *ks_message_v1_fields
    const ks_field *ks_offset_index_fields
    const ks_field *ks_time_index_fields
    const ks_field *ks_txn_index_fields
    const ks_field *ks_snapshot_fields
    const ks_field *ks_producer_fields
    const ks_field *ks_end_marker_fields
    const ks_status_text *ks_status_texts
    int BATCH_HEADER_COUNT "KS_COUNT(ks_batch_header_fields)"
    int MESSAGE_V0_COUNT "KS_COUNT(ks_message_v0_fields)"
    int MESSAGE_V1_COUNT "KS_COUNT(ks_message_v1_fields)"
    int TIME_INDEX_COUNT "KS_COUNT(ks_time_index_fields)"
    int OFFSET_INDEX_COUNT "KS_COUNT(ks_offset_index_fields)"
    int TRANSACTION_INDEX_COUNT "KS_COUNT(ks_txn_index_fields)"
    int SNAPSHOT_HEADER_COUNT "KS_COUNT(ks_snapshot_fields)"
    int PRODUCER_COUNT "KS_COUNT(ks_producer_fields)"
    int END_MARKER_COUNT "KS_COUNT(ks_end_marker_fields)"
    int STATUS_COUNT "KS_COUNT(ks_status_texts)"

    const int KS_MIN_LENGTH_V0
    const int KS_MIN_LENGTH_V1
    const int KS_MIN_LENGTH_V2


cdef tuple _fields(const ks_field *fields, int count):
    return tuple(
        (fields[i].name.decode(), fields[i].type.decode(), fields[i].offset) for i in range(count)
    )


batch_header = _fields(ks_batch_header_fields, BATCH_HEADER_COUNT)
message_v0 = _fields(ks_message_v0_fields, MESSAGE_V0_COUNT)
message_v1 = _fields(ks_message_v1_fields, MESSAGE_V1_COUNT)
time_index_entry = _fields(ks_time_index_fields, TIME_INDEX_COUNT)
offset_index_entry = _fields(ks_offset_index_fields, OFFSET_INDEX_COUNT)
transaction_index_entry = _fields(ks_txn_index_fields, TRANSACTION_INDEX_COUNT)
snapshot_header = _fields(ks_snapshot_fields, SNAPSHOT_HEADER_COUNT)
producer_entry = _fields(ks_producer_fields, PRODUCER_COUNT)
end_marker = _fields(ks_end_marker_fields, END_MARKER_COUNT)

row_size = sizeof(ks_batch_row)
log_overhead = KS_LOG_OVERHEAD
size_up_to_magic = KS_SIZE_UP_TO_MAGIC
batch_header_size = KS_BATCH_HEADER_SIZE
min_lengths = (KS_MIN_LENGTH_V0, KS_MIN_LENGTH_V1, KS_MIN_LENGTH_V2)
crc_starts = (KS_CRC_START_LEGACY, KS_CRC_START_LEGACY, KS_CRC_START_V2)

compression_mask = KS_COMPRESSION_MASK
timestamp_type_bit = KS_TIMESTAMP_TYPE_BIT
transactional_bit = KS_TRANSACTIONAL_BIT
control_bit = KS_CONTROL_BIT
delete_horizon_bit = KS_DELETE_HORIZON_BIT

statuses = tuple(
    (
        ks_status_texts[i].symbol.decode(),
        ks_status_texts[i].number,
        ks_status_texts[i].sentence.decode(),
    )
    for i in range(STATUS_COUNT)
)
