"""Compresses records into the bytes that are handed over: no copy, no object for each block.

The codecs are the libraries'; here is what Kafka puts around their blocks. Those that can
write where they are told to do so; the pieces of the others are copied.
"""

from cpython.object cimport PyObject
from cpython.ref cimport Py_XDECREF
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memcpy

from kafkascan._core.views cimport readable, writable


cdef extern from "Python.h":
    # As pointers: what nobody else has yet may change its size.
    PyObject *PyBytes_FromStringAndSize(const char *data, Py_ssize_t size) except NULL
    char *PyBytes_AS_STRING(PyObject *of) noexcept
    int _PyBytes_Resize(PyObject **of, Py_ssize_t size) except -1
    void Py_SET_SIZE(PyObject *of, Py_ssize_t size) noexcept


cdef extern from *:
    """
    #include <stdint.h>
    #include <sys/mman.h>

    /* Fresh memory costs a fault for each of its pages, which takes longer than writing them. */
    static void ks_want_large_pages(void *start, size_t size) {
    #ifdef MADV_HUGEPAGE
        const uintptr_t page = 4096, worth_it = 1 << 22;
        uintptr_t first = ((uintptr_t)start + page - 1) & ~(page - 1);
        uintptr_t last = ((uintptr_t)start + size) & ~(page - 1);
        if (size >= worth_it) madvise((void *)first, last - first, MADV_HUGEPAGE);
    #else
        (void)start;
        (void)size;
    #endif
    }
    """
    void ks_want_large_pages(void *start, size_t size) noexcept nogil


cdef extern from "batch_row.h" nogil:
    void ks_store_u32(uint8_t *p, uint32_t number)


cdef enum:
    # A part of the room, in bits. Less is left as it is: pages that nobody touched cost nothing,
    # and the allocator hands memory out again for what asks for as much, not more.
    WORTH_SHRINKING = 3


cdef class Output:
    """
    Bytes that grow, and are not copied when they are done.

    Parameters
    ----------
    expected : int
        Room at first; what is not used costs no memory.

    Attributes
    ----------
    size : int
    """

    def __cinit__(self, int64_t expected):
        self._room = max(1, expected)
        self._bytes = PyBytes_FromStringAndSize(NULL, self._room)
        ks_want_large_pages(PyBytes_AS_STRING(self._bytes), self._room)

    def __dealloc__(self):
        Py_XDECREF(self._bytes)

    cdef uint8_t *at(self, int64_t position) noexcept:
        """Return where a byte lies, until there is more room."""
        return <uint8_t *>PyBytes_AS_STRING(self._bytes) + position

    cdef uint8_t *reserve(self, int64_t more) except NULL:
        """Return where so many bytes may be written, to be noted afterwards."""
        if self._bytes == NULL:
            raise ValueError("the bytes are gone")
        if more > self._room - self.size:
            self._resize(max(self.size + more, self._room + self._room // 2))
        return self.at(self.size)

    def expect(self, int64_t size):
        """Make room for so many bytes in all, if there is less."""
        self.reserve(0)
        if size > self._room:
            self._resize(size)

    cdef int _resize(self, int64_t room) except -1:
        self._room = 0
        _PyBytes_Resize(&self._bytes, room)
        self._room = room
        ks_want_large_pages(PyBytes_AS_STRING(self._bytes), room)
        return 0

    cdef int note(self, int64_t more) except -1:
        """Take what was written where there was room for it."""
        if not 0 <= more <= self._room - self.size:
            raise ValueError("there was no room for so many bytes")
        self.size += more
        return 0

    cdef int shorten(self, int64_t size) except -1:
        """Forget what lies behind."""
        if not 0 <= size <= self.size:
            raise ValueError("there are not so many bytes")
        self.size = size
        return 0

    cdef int put(self, const uint8_t[::1] data) except -1:
        """Copy bytes."""
        cdef uint8_t *to = self.reserve(data.shape[0])
        if data.shape[0]:
            memcpy(to, &data[0], data.shape[0])
        return self.note(data.shape[0])

    def take(self):
        """
        Hand the bytes over, once.

        Returns
        -------
        bytes
        """
        self.reserve(0)
        self._fit()
        taken = <object>self._bytes
        Py_XDECREF(self._bytes)
        self._bytes = NULL
        self._room = self.size = 0
        return taken

    cdef int _fit(self) except -1:
        """Give the bytes the size that they have."""
        if self.size == 0 or self._room - self.size > self._room >> WORTH_SHRINKING:
            return self._resize(self.size)
        Py_SET_SIZE(self._bytes, self.size)
        self.at(self.size)[0] = 0  # as behind all bytes objects
        return 0


cdef class Packer:
    """Compresses the records of a batch, or the messages of a wrapper."""

    cdef int pack(self, const uint8_t *data, int64_t size, Output out) except -1:
        raise NotImplementedError

    def compress(self, const uint8_t[::1] data not None):
        """
        Compress what is one batch's.

        Returns
        -------
        bytes
        """
        cdef Output out = Output(data.shape[0])
        self.pack(&data[0] if data.shape[0] else <const uint8_t *>b"", data.shape[0], out)
        return out.take()


cdef class PiecePacker(Packer):
    """
    A codec that returns what it makes.

    Parameters
    ----------
    compress : callable
        ``(data) -> bytes-like objects``
    """

    cdef object _compress

    def __init__(self, compress):
        self._compress = compress

    cdef int pack(self, const uint8_t *data, int64_t size, Output out) except -1:
        for piece in self._compress(readable(data, size)):
            out.put(piece)
        return 0


cdef enum:
    BEFORE_BLOCK = 4               # bytes that tell a block's size
    LZ4_STORED = 0x80000000


cdef class BlockPacker(Packer):
    """
    A codec of blocks, which it writes where it is told to.

    Parameters
    ----------
    compress_into : callable
        ``(block, room) -> size``
    header : bytes
        What stands before the blocks.
    block_size : int
        Bytes of each but the last one, before compression.
    """

    cdef object _compress_into
    cdef const uint8_t[::1] _header
    cdef int64_t _block_size

    def __init__(self, compress_into, bytes header not None, int64_t block_size):
        if not 0 < block_size < 1 << 30:
            raise ValueError("no such blocks")
        self._compress_into = compress_into
        self._header = header
        self._block_size = block_size

    cdef int pack(self, const uint8_t *data, int64_t size, Output out) except -1:
        cdef int64_t at = 0, count
        out.put(self._header)
        while at < size:
            count = min(self._block_size, size - at)
            self.pack_block(data + at, count, out)
            at += count
        return self.finish(out)

    cdef int pack_block(self, const uint8_t *data, int64_t size, Output out) except -1:
        raise NotImplementedError

    cdef int finish(self, Output out) except -1:
        return 0

    cdef int64_t fill(self, const uint8_t *data, int64_t size, uint8_t *to, int64_t room) except -1:
        cdef int64_t count = self._compress_into(readable(data, size), writable(to, room))
        if not 0 < count <= room:
            raise ValueError("a codec returned a size that cannot be")
        return count


cdef class SnappyPacker(BlockPacker):
    """Blocks behind their sizes, as snappy-java's stream has them."""

    cdef int pack_block(self, const uint8_t *data, int64_t size, Output out) except -1:
        # snappy's own bound of what a block may take.
        cdef int64_t count, room = 32 + size + size // 6
        cdef uint8_t *to = out.reserve(BEFORE_BLOCK + room)
        count = self.fill(data, size, to + BEFORE_BLOCK, room)
        ks_store_u32(to, <uint32_t>count)
        return out.note(BEFORE_BLOCK + count)


cdef class Lz4Packer(BlockPacker):
    """Blocks of a frame; what does not shrink is stored."""

    cdef int pack_block(self, const uint8_t *data, int64_t size, Output out) except -1:
        # LZ4's own bound of what a block may take.
        cdef int64_t count, room = size + size // 255 + 16
        cdef uint8_t *to = out.reserve(BEFORE_BLOCK + room)
        count = self.fill(data, size, to + BEFORE_BLOCK, room)
        if count < size:
            store_little(to, <uint32_t>count)
        else:
            count = size
            store_little(to, <uint32_t>count | LZ4_STORED)
            memcpy(to + BEFORE_BLOCK, data, count)
        return out.note(BEFORE_BLOCK + count)

    cdef int finish(self, Output out) except -1:
        store_little(out.reserve(BEFORE_BLOCK), 0)
        return out.note(BEFORE_BLOCK)


cdef inline void store_little(uint8_t *p, uint32_t number) noexcept nogil:
    p[0], p[1] = <uint8_t>number, <uint8_t>(number >> 8)
    p[2], p[3] = <uint8_t>(number >> 16), <uint8_t>(number >> 24)
