/* Statuses: the numbers that the loops return to Python.
 *
 * Each status has a number (stable, in families with gaps), a greppable symbol and one
 * sentence. Only kafkascan/format/errors.py turns statuses into exceptions.
 */
#ifndef KAFKASCAN_STATUS_H
#define KAFKASCAN_STATUS_H

/* X(symbol, number, sentence) */
#define KS_STATUSES(X) \
    X(OK, 0, "done") \
    /* 1-9: a pause: the caller provides rows or bytes and calls again */ \
    X(OUTPUT_FULL, 1, "the output rows are full") \
    X(NEED_WINDOW, 2, "the next header is outside the window") \
    /* 10-19: how a walk ends */ \
    X(AT_STOP, 10, "the walk reached its stop position") \
    X(TORN_TAIL, 11, "the last batch is incomplete") \
    /* 20-29: damage found while framing batches */ \
    X(BAD_LENGTH, 20, "batch_length is out of range") \
    X(BAD_MAGIC, 21, "the magic byte is not 0, 1 or 2") \
    /* 30-39: a batch table that does not belong to the source */ \
    X(ROW_OUT_OF_BOUNDS, 30, "a row points outside the source") \
    X(ROW_MISMATCH, 31, "a row differs from the batch at its position") \
    /* 40-49: the source itself */ \
    X(SOURCE_FAULT, 40, "mapped bytes could not be read") \
    /* 50-69: damage found while decoding records */ \
    X(BAD_RECORD_COUNT, 50, "the number of records is negative") \
    X(RECORDS_MISSING, 51, "the batch ends before its last record") \
    X(RECORDS_LEFT, 52, "bytes remain after the last record of the batch") \
    X(BAD_RECORD_SIZE, 53, "the length of a record exceeds the rest of its batch") \
    X(RECORD_SIZE_MISMATCH, 54, "the fields of a record do not fill its length") \
    X(BAD_RECORD, 55, "the fields of a record exceed its length") \
    X(BAD_HEADER_COUNT, 56, "the number of headers of a record is out of range") \
    X(BAD_HEADER_KEY, 57, "the key of a header has a negative size") \
    X(BAD_COMPRESSED_DATA, 58, "the records could not be decompressed") \
    X(OUTPUT_TOO_LARGE, 59, "the decompressed records exceed max_decompressed_size") \
    X(NULL_WRAPPER, 60, "a compressed message has no value") \
    X(NO_INNER_MESSAGES, 61, "a compressed message contains no messages") \
    X(INNER_TOO_SMALL, 62, "an inner message is smaller than the minimum size of a message") \
    X(INNER_COMPRESSED, 63, "an inner message is itself compressed") \
    X(BAD_WRAPPER_OFFSET, 64, \
      "the offset of a compressed message is below the offset of its last inner message") \
    X(UNSUPPORTED_COMPRESSION, 65, "the format does not support the codec") \
    X(CHECKSUM_MISMATCH, 66, "the stored checksum differs from the checksum of the bytes") \
    X(BAD_CONTROL_RECORD, 67, "Kafka would reject the control record") \
    /* 70-79: batches that an index cannot hold, invalid entries */ \
    X(OFFSET_OVERFLOW, 70, "the offset or position exceeds the 31 bits of an index entry") \
    X(OFFSETS_NOT_ASCENDING, 71, \
      "the last offset of a batch is not greater than the earlier last offsets") \
    X(ODD_INDEX_SIZE, 72, "the size of the file is not a multiple of the entry size") \
    /* 80-89: invalid side files */ \
    X(BAD_SNAPSHOT_VERSION, 80, "the version of the producer snapshot is not 1") \
    X(BAD_SNAPSHOT_SIZE, 81, "the size of the snapshot differs from the size of its entries") \
    X(BAD_SNAPSHOT_CRC, 82, "the checksum of the snapshot differs from the checksum of its bytes") \
    X(BAD_CHECKPOINT, 83, "the file does not have the format that Kafka writes") \
    X(BAD_TXN_INDEX_VERSION, 84, "the version of a transaction index entry is not 0") \
    /* 90-99: logs that Kafka does not load */ \
    X(NO_END_MARKER, 90, "the control batch of a producer contains no transaction marker") \
    X(TRANSACTION_LEFT, 91, "a producer wrote a batch outside of its open transaction") \
    /* 100-109: records that cannot be written */ \
    X(RECORD_TOO_LARGE, 100, "a record and its batch must not exceed 2**31 - 1 bytes") \
    X(OFFSET_NOT_ABOVE, 101, "offsets must increase from record to record") \
    X(OFFSET_DELTA_TOO_LARGE, 102, \
      "an offset must not exceed the first one of its batch by more than 2**31 - 1") \
    X(NEGATIVE_TIMESTAMP, 103, "a timestamp must be -1 or not negative") \
    X(NULL_HEADER_KEY, 104, "the key of a header must not be null") \
    X(HEADERS_NOT_SUPPORTED, 105, "messages of magic 0 and 1 have no headers") \
    X(OFFSET_OUT_OF_RANGE, 106, "an offset must be between 0 and 2**63 - 2") \
    X(TIMESTAMP_TOO_LARGE, 107, "a timestamp must not exceed 2**63 - 1") \
    /* 110-119: decisions of salvage */ \
    X(NESTED, 110, "batches inside damage that do not belong to the log") \
    /* 120-139: values that do not fit their schema */ \
    X(VALUE_TOO_SHORT, 120, "the value ends before its last field") \
    X(VALUE_BYTES_LEFT, 121, "bytes remain after the last field of the value") \
    X(BAD_VALUE_NUMBER, 122, "a number is longer or larger than its type allows") \
    X(BAD_VALUE_SIZE, 123, "a size is negative, or exceeds the rest of the value") \
    X(BAD_VALUE_CHOICE, 124, "the schema has no such symbol, branch or truth value") \
    X(BAD_VALUE_TEXT, 125, "a text is not UTF-8") \
    X(UNRESOLVED_VALUE, 126, "the schema of the column has no type for the value") \
    X(DECIMAL_TOO_LARGE, 127, "a decimal has more digits than its precision") \
    X(TOO_MANY_ITEMS, 128, \
      "the items of its lists take more than 128 KiB and 2,048 bytes for each byte of the value " \
      "(64 for each beyond 1 MiB), or more than 2 GiB in a column") \
    X(VALUE_TOO_DEEP, 129, "values are nested too deeply") \
    X(BAD_VALUE_TAG, 130, "a field has no valid number or wire type, or a group ends wrongly") \
    X(TIME_OUT_OF_RANGE, 131, "a time does not fit 64 bits of nanoseconds, or is not normalized") \
    X(DEFAULTS_TOO_LARGE, 132, \
      "defaults and items of lists take more than 128 KiB and 2,048 bytes for each byte of the " \
      "value (64 for each beyond 1 MiB)") \
    X(BAD_JSON, 136, "a text is not JSON") \
    X(BAD_VALUE_TYPE, 137, "a value has another type than the schema gives its column") \
    /* 140-149: values that are decoded, but are not exactly what was written */ \
    X(REPEATED_KEYS, 140, "a map has a key more than once, of which the last one counts") \
    X(ROUNDED_INTEGER, 141, "an integer is rounded to the nearest double")

enum ks_status {
#define KS_ENUM(symbol, number, sentence) KS_##symbol = number,
    KS_STATUSES(KS_ENUM)
#undef KS_ENUM
};

#endif /* KAFKASCAN_STATUS_H */
