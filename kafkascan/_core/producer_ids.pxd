"""Hash of producer ids, and Java arithmetic on offsets and sequence numbers."""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

from kafkascan._core.layout cimport ks_batch_row


cdef inline uint64_t hashed(int64_t producer_id, uint64_t secret) noexcept nogil:
    """The finalizer of SplitMix64 (Steele, Lea and Flood 2014), which is a bijection.

    Producers choose their ids; the secret prevents them from choosing ids that collide.
    """
    cdef uint64_t h = <uint64_t>producer_id ^ secret
    h = (h ^ (h >> 30)) * <uint64_t>0xBF58476D1CE4E5B9
    h = (h ^ (h >> 27)) * <uint64_t>0x94D049BB133111EB
    return h ^ (h >> 31)


cdef inline int64_t plus(int64_t a, int64_t b) noexcept nogil:
    """Add as Java does: the sum wraps around."""
    return <int64_t>(<uint64_t>a + <uint64_t>b)


cdef inline int64_t last_offset(const ks_batch_row *row) noexcept nogil:
    return plus(row.base_offset, <int64_t>row.last_offset_delta)


cdef inline int32_t last_sequence(const ks_batch_row *row) noexcept nogil:
    """DefaultRecordBatch.incrementSequence, in Java's arithmetic: it wraps around."""
    cdef uint32_t largest = 0x7FFFFFFF
    cdef int32_t base = row.base_sequence
    cdef int32_t room = <int32_t>(largest - <uint32_t>row.last_offset_delta)
    if base == -1:
        return -1
    if base > room:
        return <int32_t>(<uint32_t>row.last_offset_delta - (largest - <uint32_t>base) - 1)
    return <int32_t>(<uint32_t>base + <uint32_t>row.last_offset_delta)
