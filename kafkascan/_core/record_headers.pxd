"""One header of a record."""

from libc.stdint cimport int32_t, uint8_t


cdef extern from "varint.h" nogil:
    const uint8_t *ks_read_varint(const uint8_t *p, const uint8_t *limit, int32_t *number)


cdef struct Header:
    const uint8_t *key
    const uint8_t *value
    int32_t key_size
    int32_t value_size             # -1 for a null


cdef inline const uint8_t *read_header(
    const uint8_t *p, const uint8_t *limit, Header *found
) noexcept nogil:
    """Read the header at an address; return its end, or NULL if it is out of bounds."""
    cdef int32_t size = 0
    p = ks_read_varint(p, limit, &size)
    if p == NULL or size < 0 or size > limit - p:
        return NULL
    found.key, found.key_size = p, size
    p = ks_read_varint(p + size, limit, &size)
    if p == NULL or size > limit - p:
        return NULL
    found.value, found.value_size = p, max(size, -1)
    return p + size if size > 0 else p
