"""The buffers that contain the bytes of records."""

from libc.stdint cimport int64_t, uint8_t, uintptr_t


cdef struct Buffers:
    const uintptr_t *addresses
    const int64_t *sizes
    int64_t count


cdef inline const uint8_t *bytes_at(
    const Buffers *buffers, int64_t buffer, int64_t position, int64_t size
) noexcept nogil:
    """Address of bytes of a buffer; NULL if they are out of bounds."""
    if buffer < 0 or buffer >= buffers.count:
        return NULL
    if position < 0 or size < 0 or size > buffers.sizes[buffer] - position:
        return NULL
    return <const uint8_t *>buffers.addresses[buffer] + position
