"""Decompress batches of the form that Kafka's writers produce, many in one loop.

The framing of compressed blocks is parsed here without Python objects; libraries decompress the
blocks, except small ones of snappy, for which a call takes longer than the work. Unusual data
(several members or frames, dependent blocks, magic 0 and 1) and damaged data are left to
`kafkascan.records.decompression`, the only judge of errors. For usual data, both return the same
bytes (tests/property/records/test_unpacking.py).
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcmp, memcpy

from kafkascan._core.views cimport readable, writable


cdef extern from "compressed.h" nogil:
    ctypedef struct ks_block:
        const uint8_t *data
        const uint8_t *checksum
        int64_t size
        int64_t room
        bint is_stored

    ctypedef struct ks_blocks:
        const uint8_t *at
        const uint8_t *limit
        int64_t lz4_block_size
        uint8_t lz4_flags
        bint is_one_block

    ctypedef enum ks_block_found:
        KS_BLOCK_FOUND

    const int KS_LZ4_DESCRIPTOR_AT

    bint ks_gzip_member(const uint8_t *data, int64_t size, int64_t *hint, int64_t *most)
    bint ks_snappy_blocks(const uint8_t *data, int64_t size, ks_blocks *blocks)
    bint ks_lz4_blocks(const uint8_t *data, int64_t size, ks_blocks *blocks)
    bint ks_zstd_frame(const uint8_t *data, int64_t size, int64_t *most, int64_t *window)
    int64_t ks_room_of_blocks(ks_blocks blocks)
    ks_block_found ks_next_block(ks_blocks *blocks, ks_block *block)
    uint32_t ks_load_little(const uint8_t *p, int size)
    int ks_zstd_bounds(const uint8_t *data, int64_t size, int64_t *least, int64_t *most)
    const int KS_ZSTD_LARGEST_BLOCK


cdef extern from "small_blocks.h" nogil:
    const int KS_SMALL_BLOCK
    const int KS_SMALL_OUTPUT
    int64_t ks_decode_small_snappy(const uint8_t *data, int64_t size, uint8_t *out, int64_t room)


# Size of the pieces of an arena: large enough for large pages, small enough for the allocator to
# reuse the same memory.
PIECE_SIZE = 1 << 23
cdef int64_t _PIECE = PIECE_SIZE
cdef int64_t _SMALLEST_PIECE = 1 << 12

# Constants of isal's igzip_lib: DECOMP_GZIP and MAX_HIST_BITS.
cdef object _GZIP_FORMAT = 1
cdef object _WINDOW_BITS = 15

# Below the 128 KiB from which on glibc maps memory for each call; threads then wait for each other.
cdef int64_t _SMALL_ZSTD_BLOCK = 100_000

cdef enum:
    NONE, GZIP, SNAPPY, LZ4, ZSTD

cdef class Arena:
    """
    A growing buffer in pieces, for bytes that are not in the source.

    Parameters
    ----------
    expected : int
        Expected total size.
    take : callable
        ``size -> array of uint8`` of at least this size.
    """

    cdef readonly list pieces
    cdef readonly int64_t size
    cdef object _take
    cdef int64_t _expected, _used, _room
    cdef uint8_t *_start

    def __init__(self, expected, take):
        self.pieces = []
        self._expected = expected
        self._take = take

    def put(self, list parts):
        """Append a copy of bytes; return number of the piece, position in it, and size."""
        cdef int64_t size = 0
        cdef uint8_t *to
        cdef const uint8_t[::1] view
        for part in parts:
            size += len(part)
        to = self.reserve(size)
        for part in parts:
            view = part
            if view.shape[0]:
                memcpy(to, &view[0], view.shape[0])
            to += view.shape[0]
        return len(self.pieces) - 1, self.note(size), size

    cdef uint8_t *reserve(self, int64_t size) except NULL:
        """Return where so many bytes may be written; `note` adds them afterwards."""
        cdef uint8_t[::1] view
        if size > self._room - self._used or not self.pieces:
            usual = min(_PIECE, max(_SMALLEST_PIECE, self._expected, self.size))
            view = piece = self._take(max(size, usual))
            self.pieces.append(piece)
            self._start, self._used, self._room = &view[0], 0, view.shape[0]
        return self._start + self._used

    cdef int64_t note(self, int64_t size):
        """Add bytes that were written after `reserve`; return their position."""
        cdef int64_t at = self._used
        self._used += size
        self.size += size
        return at


cdef class Unpacker:
    """
    Decompressor of one thread, which calls the functions of libraries.

    Parameters
    ----------
    gunzip : callable
        ``(data, format, window bits, initial size) -> bytes``, as isal's; ignores bytes after
        the first member.
    snappy_into : callable
        ``(block, output) -> size``
    lz4_into : callable
        ``(block, output, len(output)) -> size``
    unzstd : callable
        ``(frame, max_output_size) -> bytes``
    xxh32 : callable
    """

    cdef object _gunzip, _snappy_into, _lz4_into, _unzstd, _xxh32
    cdef bint _has_large_blocks
    # The LZ4 header whose checksum was verified last: usually all headers are equal.
    cdef uint8_t[16] _header
    cdef int64_t _header_size

    def __init__(self, gunzip, snappy_into, lz4_into, unzstd, xxh32):
        self._gunzip = gunzip
        self._snappy_into = snappy_into
        self._lz4_into = lz4_into
        self._unzstd = unzstd
        self._xxh32 = xxh32

    def unpack(
        self,
        const uint8_t[::1] data not None,
        const int64_t[::1] starts not None,
        const int64_t[::1] sizes not None,
        const uint8_t[::1] codecs not None,
        Arena arena not None,
        int64_t limit,
        int64_t enough,
        int32_t[::1] piece not None,
        int64_t[::1] position not None,
        int64_t[::1] size not None,
    ):
        """
        Decompress the records of batches of magic 2, up to the first one with unusual data.

        Parameters
        ----------
        data : bytes-like
        starts, sizes, codecs : arrays of n
            Ranges of compressed records in `data`, and their codecs. An unknown codec counts as
            unusual.
        arena : Arena
            Receives the output.
        limit : int
            Largest decompressed size of a batch.
        enough : int
            Stop as soon as the arena has so many bytes.
        piece, position, size : arrays of n
            Filled: location of the output in the arena.

        Returns
        -------
        int
            Number of decompressed batches.
        """
        cdef int64_t row, count, n = starts.shape[0]
        if not (
            sizes.shape[0] == codecs.shape[0] == n
            and piece.shape[0] == position.shape[0] == size.shape[0] == n
        ):
            raise ValueError("arrays differ in length")
        for row in range(n):
            PyErr_CheckSignals()
            if arena.size >= enough:
                return row
            if not 0 <= starts[row] <= starts[row] + sizes[row] <= data.shape[0]:
                raise ValueError("starts and sizes exceed data")
            if sizes[row] == 0:
                return row
            try:
                count = self._unpack(codecs[row], &data[starts[row]], sizes[row], arena, limit)
            except Exception:  # any error of a library: unusual data
                return row
            if not 0 < count <= limit:
                return row
            position[row] = arena.note(count)
            size[row] = count
            piece[row] = <int32_t>(len(arena.pieces) - 1)
        return n

    cdef int64_t _unpack(
        self, uint8_t codec, const uint8_t *data, int64_t size, Arena arena, int64_t limit
    ) except -1:
        """Write the output to the arena; return its size, or 0 if the data is unusual."""
        cdef int64_t most = 0, hint = 0, window = 0
        cdef ks_blocks blocks
        cdef bytes output
        if codec == NONE:
            memcpy(arena.reserve(size), data, size)
            return size
        if codec == GZIP:
            if not ks_gzip_member(data, size, &hint, &most) or most > limit:
                return 0
            output = self._gunzip(readable(data, size), _GZIP_FORMAT, _WINDOW_BITS, hint + 1)
            return copy_output(output, arena)
        if codec == ZSTD:
            if not ks_zstd_frame(data, size, &most, &window) or most > limit:
                return 0
            output = self._unpack_zstd(readable(data, size), most)
            # kafkascan.records.decompression reads content beyond the window in another way.
            return copy_output(output, arena) if PyBytes_GET_SIZE(output) <= window else 0
        if codec == SNAPPY:
            ks_snappy_blocks(data, size, &blocks)
            return self._unpack_blocks(False, blocks, arena, limit)
        if codec == LZ4:
            if ks_lz4_blocks(data, size, &blocks) and self._is_header(data, blocks.at - data):
                return self._unpack_blocks(True, blocks, arena, limit)
        return 0

    cdef bytes _unpack_zstd(self, object frame, int64_t most):
        """Decompress a frame into small memory, if it has one block and most blocks are small."""
        if most == KS_ZSTD_LARGEST_BLOCK and not self._has_large_blocks:
            try:
                return self._unzstd(frame, _SMALL_ZSTD_BLOCK)
            except Exception:  # the library does not say whether memory or data is the reason
                self._has_large_blocks = True
        return self._unzstd(frame, most)

    cdef bint _is_header(self, const uint8_t *data, int64_t size) except -1:
        """Verify the checksum of the header of an LZ4 frame."""
        cdef object descriptor
        if size == self._header_size and memcmp(data, self._header, size) == 0:
            return True
        descriptor = readable(data + KS_LZ4_DESCRIPTOR_AT, size - KS_LZ4_DESCRIPTOR_AT - 1)
        if data[size - 1] != <uint32_t>self._xxh32(descriptor) >> 8 & 0xff:
            return False
        memcpy(self._header, data, size)
        self._header_size = size
        return True

    cdef int64_t _unpack_blocks(
        self, bint is_lz4, ks_blocks blocks, Arena arena, int64_t limit
    ) except -1:
        cdef int64_t count, total = 0, room = ks_room_of_blocks(blocks)
        cdef uint8_t *to
        cdef ks_block block
        if room == 0 or room > limit or room > _PIECE:
            return 0
        to = arena.reserve(room)
        while ks_next_block(&blocks, &block) == KS_BLOCK_FOUND:
            count = self._unpack_block(&block, is_lz4, to + total)
            # An empty block has a special meaning.
            if not 0 < count <= block.room:
                return 0
            total += count
        return total

    cdef int64_t _unpack_block(self, const ks_block *block, bint is_lz4, uint8_t *to) except -1:
        """Decompress a block of LZ4 or snappy; return its size, or 0 if its checksum is wrong."""
        cdef int64_t count
        if block.checksum != NULL:
            found = self._xxh32(readable(block.data, block.size))
            if <uint32_t>found != ks_load_little(block.checksum, 4):
                return 0
        count = decode_small(block, is_lz4, to)
        if count >= 0:
            return count
        data = readable(block.data, block.size)
        if is_lz4:
            return self._lz4_into(data, writable(to, block.room), block.room)
        return self._snappy_into(data, writable(to, block.room))


cdef int64_t decode_small(const ks_block *block, bint is_lz4, uint8_t *to) noexcept nogil:
    """Decompress a stored block or a small one of snappy; return -1 if a library must do it."""
    if block.is_stored:
        memcpy(to, block.data, block.size)
        return block.size
    if is_lz4 or block.size > KS_SMALL_BLOCK or block.room > KS_SMALL_OUTPUT:
        return -1
    return ks_decode_small_snappy(block.data, block.size, to, block.room)


def zstd_bounds(const uint8_t[::1] data not None):
    """
    Return the sizes that the output of Zstandard frames may have, without decompressing them.

    Returns
    -------
    status : int
        0, or the row of the reason in `kafkascan.records.decompression`.
    least, most : int
    """
    cdef int64_t least = 0, most = 0
    cdef int status = 0
    if data.shape[0]:
        status = ks_zstd_bounds(&data[0], data.shape[0], &least, &most)
    return status, least, most


cdef int64_t copy_output(bytes output, Arena arena) except -1:
    """Copy the output of a library into the arena; return its size."""
    cdef int64_t size = PyBytes_GET_SIZE(output)
    memcpy(arena.reserve(size), PyBytes_AS_STRING(output), size)
    return size
