/* Statuses: the numbers that cross from the loops to Python.
 *
 * C and Cython say numbers, Python says sentences: each status has a number
 * (stable, in families with gaps), a greppable symbol and one sentence.
 * kafkascan/errors.py turns them into exceptions, and nothing else does.
 */
#ifndef KAFKASCAN_STATUS_H
#define KAFKASCAN_STATUS_H

/* X(symbol, number, sentence) */
#define KS_STATUSES(X) \
    X(OK, 0, "done") \
    /* 1-9: a pause, the caller supplies something and calls again */ \
    X(OUTPUT_FULL, 1, "the output rows are full") \
    X(NEED_WINDOW, 2, "the next header is outside of the window of bytes at hand") \
    /* 10-19: how a walk ends */ \
    X(AT_STOP, 10, "the walk arrived at its stop position") \
    X(TORN_TAIL, 11, "the last batch is incomplete") \
    /* 20-29: damage found while framing batches */ \
    X(BAD_LENGTH, 20, "the batch length cannot be that of a batch") \
    X(BAD_MAGIC, 21, "the magic byte is not 0, 1 or 2") \
    /* 30-39: a batch table that does not belong to the source */ \
    X(ROW_OUT_OF_BOUNDS, 30, "a row points outside of the source") \
    X(ROW_MISMATCH, 31, "a row differs from the batch at its position") \
    /* 40-49: the source itself */ \
    X(SOURCE_FAULT, 40, "mapped bytes could not be read") \
    /* 50-69: damage found while decoding records */ \
    X(BAD_RECORD_COUNT, 50, "the number of records is negative") \
    X(RECORDS_MISSING, 51, "the batch ends before the last of its records") \
    X(RECORDS_LEFT, 52, "bytes remain behind the last record of the batch") \
    X(BAD_RECORD_SIZE, 53, "a record is longer than what is left of its batch") \
    X(RECORD_SIZE_MISMATCH, 54, "the fields of a record do not fill its length") \
    X(BAD_RECORD, 55, "the fields of a record do not fit into it") \
    X(BAD_HEADER_COUNT, 56, "a record cannot have that many headers") \
    X(BAD_HEADER_KEY, 57, "a header's key has a negative size") \
    X(BAD_COMPRESSED_DATA, 58, "the records could not be decompressed") \
    X(OUTPUT_TOO_LARGE, 59, "the decompressed records exceed max_decompressed_size") \
    X(NULL_WRAPPER, 60, "a compressed message has no value") \
    X(NO_INNER_MESSAGES, 61, "a compressed message holds no messages") \
    X(INNER_TOO_SMALL, 62, "a message inside of a compressed one is too small to be one") \
    X(INNER_COMPRESSED, 63, "a message inside of a compressed one is compressed itself") \
    X(BAD_WRAPPER_OFFSET, 64, "a compressed message's offset is below its last message's") \
    X(UNSUPPORTED_COMPRESSION, 65, "the codec is not one of this format") \
    X(CHECKSUM_MISMATCH, 66, "the stored checksum is not that of the bytes") \
    X(BAD_CONTROL_RECORD, 67, "a control record is not one that Kafka would accept") \
    /* 70-79: batches that an index cannot hold, entries that cannot be */ \
    X(OFFSET_OVERFLOW, 70, \
      "an index counts offsets and positions in 31 bits from the segment's start") \
    X(OFFSETS_NOT_ASCENDING, 71, \
      "a batch ends with an offset that is not above the ones before it") \
    X(ODD_INDEX_SIZE, 72, "the size of the file is not that of whole entries") \
    /* 80-89: files beside the log that are not what Kafka writes */ \
    X(BAD_SNAPSHOT_VERSION, 80, "a snapshot of producers must have version 1") \
    X(BAD_SNAPSHOT_SIZE, 81, "the size of the snapshot is not that of its entries") \
    X(BAD_SNAPSHOT_CRC, 82, "the checksum of the snapshot is not that of its bytes") \
    X(BAD_CHECKPOINT, 83, "the file is not what Kafka writes") \
    X(BAD_TXN_INDEX_VERSION, 84, "an entry of a transaction index must have version 0") \
    /* 90-99: logs that Kafka refuses to load */ \
    X(NO_END_MARKER, 90, "a producer's control record must end a transaction") \
    X(TRANSACTION_LEFT, 91, "a producer with an open transaction wrote outside of it") \
    /* 100-109: records that cannot be written */ \
    X(RECORD_TOO_LARGE, 100, "a record, and the batch around it, must fit into 2**31 - 1 bytes") \
    X(OFFSET_NOT_ABOVE, 101, "offsets must increase from record to record") \
    X(OFFSET_DELTA_TOO_LARGE, 102, "an offset must lie within 2**31 - 1 of its batch's first one") \
    X(NEGATIVE_TIMESTAMP, 103, "a timestamp must not be negative, unless it is -1") \
    X(NULL_HEADER_KEY, 104, "the key of a header must not be null") \
    X(HEADERS_NOT_SUPPORTED, 105, "messages of magic 0 and 1 have no headers") \
    /* 110-119: what salvage decides */ \
    X(NESTED, 110, "batches in damage that are not the log's own, by all that is around them")

enum ks_status {
#define KS_ENUM(symbol, number, sentence) KS_##symbol = number,
    KS_STATUSES(KS_ENUM)
#undef KS_ENUM
};

#endif /* KAFKASCAN_STATUS_H */
