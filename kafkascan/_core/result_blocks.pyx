"""Blocks of memory for large results; see `csrc/result_blocks.h`."""

from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdint cimport int64_t, uint8_t, uintptr_t


cdef extern from "result_blocks.h" nogil:
    uint8_t *ks_take_block(int64_t size)
    void ks_give_back_block(uint8_t *start, int64_t size)
    void ks_forget_rest(uint8_t *start, int64_t size, int64_t used)
    int64_t ks_bytes_of_free_blocks()
    void ks_drop_free_blocks()
    int ks_start_blocks()


cdef extern from "Python.h":
    int PyTraceMalloc_Track(unsigned int domain, uintptr_t address, size_t size) noexcept
    int PyTraceMalloc_Untrack(unsigned int domain, uintptr_t address) noexcept


# NumPy's domain in `tracemalloc`: results are arrays, whatever memory they are in.
cdef enum:
    TRACED_DOMAIN = 389047


cdef class Block:
    """
    Memory that becomes free when neither this object nor a view of it is left.

    Made by `take_block`; supports the buffer protocol.
    """

    cdef uint8_t *_start
    cdef int64_t _size

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self._start, self._size, False, flags)

    def __dealloc__(self):
        if self._start != NULL:
            PyTraceMalloc_Untrack(TRACED_DOMAIN, <uintptr_t>self._start)
            with nogil:
                ks_give_back_block(self._start, self._size)

    def forget_rest(self, int64_t used):
        """Give back the memory after the first bytes; it remains readable, with any content."""
        if not 0 <= used <= self._size:
            raise ValueError("used exceeds the block")
        with nogil:
            ks_forget_rest(self._start, self._size, used)


def take_block(int64_t size):
    """
    Return a block with undefined content.

    Parameters
    ----------
    size : int
        In bytes.

    Returns
    -------
    Block or None
        None where the system has no large pages or no memory, or under an address sanitizer.
    """
    cdef Block block = Block.__new__(Block)
    with nogil:
        block._start = ks_take_block(size)
    if block._start == NULL:
        return None
    block._size = size
    PyTraceMalloc_Track(TRACED_DOMAIN, <uintptr_t>block._start, size)
    return block


def free_bytes():
    """Return the size of all free blocks that are kept to be used again."""
    return ks_bytes_of_free_blocks()


def drop_free_blocks():
    """Give the memory of all free blocks back to the system."""
    ks_drop_free_blocks()


if ks_start_blocks() != 0:
    raise MemoryError
