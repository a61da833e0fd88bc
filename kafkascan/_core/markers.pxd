"""End transaction markers: the kinds of control batches, and the row of one of them."""

from libc.stdint cimport int8_t, int32_t, int64_t

# The kind of a producer's control batch. ABORT and COMMIT are Kafka's codes.
cpdef enum:
    ABORT = 0
    COMMIT = 1
    NO_RECORD = -1                 # the batch is empty: the cleaner removed the marker
    NO_MARKER = -2                 # another kind of control record, or half of a marker
    UNREADABLE = -3                # the record cannot be read
    UNREAD = -4                    # not of the usual form: to be read record by record

# The dtype MARKER is derived from this struct.
cdef packed struct marker:
    int8_t kind
    int32_t coordinator_epoch
    int64_t timestamp
