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
    X(SOURCE_FAULT, 40, "mapped bytes could not be read")

enum ks_status {
#define KS_ENUM(symbol, number, sentence) KS_##symbol = number,
    KS_STATUSES(KS_ENUM)
#undef KS_ENUM
};

#endif /* KAFKASCAN_STATUS_H */
