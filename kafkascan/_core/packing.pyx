"""Compress records directly into the output bytes, without an object for each block.

Libraries implement the codecs; this module writes the framing that Kafka puts around their blocks.
Codecs that support it write into the output; the output of others is copied.
"""

from cpython.object cimport PyObject
from cpython.ref cimport Py_XDECREF
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memcpy

from kafkascan._core.views cimport readable, writable


cdef extern from "Python.h":
    # As pointers: an object without other references may be resized.
    PyObject *PyBytes_FromStringAndSize(const char *data, Py_ssize_t size) except NULL
    char *PyBytes_AS_STRING(PyObject *of) noexcept
    int _PyBytes_Resize(PyObject **of, Py_ssize_t size) except -1
    void Py_SET_SIZE(PyObject *of, Py_ssize_t size) noexcept


cdef extern from "large_pages.h" nogil:
    int ks_want_large_pages(void *start, size_t size)


cdef extern from "batch_row.h" nogil:
    void ks_store_u32(uint8_t *p, uint32_t number)


cdef enum:
    # Shrink the output if more than 1/8 of its capacity (3 bits) is unused. Otherwise the rest is
    # kept: untouched pages cost nothing, and the allocator can reuse the block for the same size.
    WORTH_SHRINKING = 3


cdef class Output:
    """
    A growing buffer that becomes a `bytes` object without a copy.

    Parameters
    ----------
    expected : int
        Initial capacity; unused pages cost no memory.

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
        """Return the address of a byte, which is valid until the capacity grows."""
        return <uint8_t *>PyBytes_AS_STRING(self._bytes) + position

    cdef uint8_t *reserve(self, int64_t more) except NULL:
        """Return where so many bytes may be written; `note` adds them afterwards."""
        if self._bytes == NULL:
            raise ValueError("the output was taken")
        if more > self._room - self.size:
            self._resize(max(self.size + more, self._room + self._room // 2))
        return self.at(self.size)

    def expect(self, int64_t size):
        """Grow the capacity to so many bytes, if it is smaller."""
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
        """Add bytes that were written after `reserve`."""
        if not 0 <= more <= self._room - self.size:
            raise ValueError("more bytes than were reserved")
        self.size += more
        return 0

    cdef int put(self, const uint8_t[::1] data) except -1:
        """Append a copy of bytes."""
        cdef uint8_t *to = self.reserve(data.shape[0])
        if data.shape[0]:
            memcpy(to, &data[0], data.shape[0])
        return self.note(data.shape[0])

    def take(self):
        """
        Return the bytes, once.

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
        """Set the size of the object to the size of its content."""
        if self.size == 0 or self._room - self.size > self._room >> WORTH_SHRINKING:
            return self._resize(self.size)
        Py_SET_SIZE(self._bytes, self.size)
        self.at(self.size)[0] = 0  # the terminator of all bytes objects
        return 0


cdef class Packer:
    """Compressor for the records of a batch, or the messages of a wrapper."""

    cdef int pack(self, const uint8_t *data, int64_t size, Output out) except -1:
        raise NotImplementedError

    def compress(self, const uint8_t[::1] data not None):
        """
        Compress the records of one batch.

        Returns
        -------
        bytes
        """
        cdef Output out = Output(data.shape[0])
        self.pack(&data[0] if data.shape[0] else <const uint8_t *>b"", data.shape[0], out)
        return out.take()


cdef class PiecePacker(Packer):
    """
    A codec that returns its output.

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
    BEFORE_BLOCK = 4               # bytes of the size of a block
    LZ4_STORED = 0x80000000


cdef class BlockPacker(Packer):
    """
    A codec of blocks that writes into a given buffer.

    Parameters
    ----------
    compress_into : callable
        ``(block, room) -> size``
    header : bytes
        Bytes before the blocks.
    block_size : int
        Uncompressed size of each block but the last one.
    """

    cdef object _compress_into
    cdef const uint8_t[::1] _header
    cdef int64_t _block_size

    def __init__(self, compress_into, bytes header not None, int64_t block_size):
        if not 0 < block_size < 1 << 30:
            raise ValueError("block_size is out of range")
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
            raise ValueError("a codec returned an impossible size")
        return count


cdef class SnappyPacker(BlockPacker):
    """Blocks after their sizes, as in the stream of snappy-java."""

    cdef int pack_block(self, const uint8_t *data, int64_t size, Output out) except -1:
        # snappy's own bound of the compressed size.
        cdef int64_t count, room = 32 + size + size // 6
        cdef uint8_t *to = out.reserve(BEFORE_BLOCK + room)
        count = self.fill(data, size, to + BEFORE_BLOCK, room)
        ks_store_u32(to, <uint32_t>count)
        return out.note(BEFORE_BLOCK + count)


cdef class Lz4Packer(BlockPacker):
    """Blocks of an LZ4 frame; a block that does not shrink is stored uncompressed."""

    cdef int pack_block(self, const uint8_t *data, int64_t size, Output out) except -1:
        # LZ4's own bound of the compressed size.
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
