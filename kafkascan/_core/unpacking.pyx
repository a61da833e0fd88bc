"""Decompresses batches that are as Kafka's writers leave them, many in one loop.

What lies around compressed blocks is read here without a Python object; the blocks themselves
are the libraries'. All that is unusual, or wrong, is left to `kafkascan.codecs`, which decides:
what is unpacked here is what it would have returned.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
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

    ctypedef enum ks_block_found:
        KS_BLOCK_FOUND

    const int KS_LZ4_DESCRIPTOR_AT
    const int KS_LZ4_LARGEST_HEADER

    bint ks_gzip_member(const uint8_t *data, int64_t size, int64_t *hint, int64_t *most)
    bint ks_snappy_blocks(const uint8_t *data, int64_t size, ks_blocks *blocks)
    bint ks_lz4_blocks(const uint8_t *data, int64_t size, ks_blocks *blocks)
    bint ks_zstd_frame(const uint8_t *data, int64_t size, int64_t *most, int64_t *window)
    int64_t ks_room_of_blocks(ks_blocks blocks)
    ks_block_found ks_next_block(ks_blocks *blocks, ks_block *block)
    uint32_t ks_load_little(const uint8_t *p, int size)


# Bytes are put into pieces of this size: large enough for large pages of the system, small
# enough for the allocator to hand out the same memory again.
PIECE_SIZE = 1 << 23
cdef int64_t _PIECE = PIECE_SIZE
cdef int64_t _SMALLEST_PIECE = 1 << 12

# Of isal's igzip_lib: DECOMP_GZIP and MAX_HIST_BITS.
cdef object _GZIP_FORMAT = 1
cdef object _WINDOW_BITS = 15

cdef enum:
    NONE, GZIP, SNAPPY, LZ4, ZSTD


cdef class Arena:
    """
    Room for bytes that are not in the source, of which about so many are expected.

    Parameters
    ----------
    expected : int
    take : callable
        Gives an array of uint8 of at least some size.
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
        """Copy bytes; returns the piece, the position in it, and the size."""
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
        """Return where so many bytes may be written, to be noted afterwards."""
        cdef uint8_t[::1] view
        if size > self._room - self._used or not self.pieces:
            usual = min(_PIECE, max(_SMALLEST_PIECE, self._expected, self.size))
            view = piece = self._take(max(size, usual))
            self.pieces.append(piece)
            self._start, self._used, self._room = &view[0], 0, view.shape[0]
        return self._start + self._used

    cdef int64_t note(self, int64_t size):
        """Return the position of bytes that were written where there was room for them."""
        cdef int64_t at = self._used
        self._used += size
        self.size += size
        return at


cdef class Unpacker:
    """
    The libraries' functions, for one thread.

    Parameters
    ----------
    gunzip : callable
        ``(data, format, window bits, size at first) -> bytes``, as isal's; ignores what
        follows the first member.
    snappy_into : callable
        ``(block, output) -> size``
    lz4_into : callable
        ``(block, output, len(output)) -> size``
    unzstd : callable
        ``(frame, max_output_size) -> bytes``
    xxh32 : callable
    """

    cdef object _gunzip, _snappy_into, _lz4_into, _unzstd, _xxh32
    # The LZ4 header whose checksum was compared last: mostly all are the same.
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
        Decompress the records of batches of magic 2, up to one that is not usual.

        Parameters
        ----------
        data : bytes-like
        starts, sizes, codecs : arrays of n
            Where in `data` compressed records lie. A codec that is none is not usual.
        arena : Arena
            Where the output goes.
        limit : int
            Bytes that one batch may decompress to.
        enough : int
            Stop once the arena has so many bytes.
        piece, position, size : arrays of n
            Are filled: where in the arena the output lies.

        Returns
        -------
        int
            How many were decompressed.
        """
        cdef int64_t row, count, n = starts.shape[0]
        if not (
            sizes.shape[0] == codecs.shape[0] == n
            and piece.shape[0] == position.shape[0] == size.shape[0] == n
        ):
            raise ValueError("arrays differ in length")
        for row in range(n):
            if arena.size >= enough:
                return row
            if not 0 <= starts[row] <= starts[row] + sizes[row] <= data.shape[0]:
                raise ValueError("data does not hold all of it")
            if sizes[row] == 0:
                return row
            try:
                count = self._unpack(codecs[row], &data[starts[row]], sizes[row], arena, limit)
            except Exception:  # whatever a library does not like
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
        """Write the output to the arena; returns its size, or 0 if the data is not usual."""
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
            return kept(output, arena)
        if codec == ZSTD:
            if not ks_zstd_frame(data, size, &most, &window) or most > limit:
                return 0
            output = self._unzstd(readable(data, size), most)
            # Frames that reach back beyond their window are read in another way there.
            return kept(output, arena) if PyBytes_GET_SIZE(output) <= window else 0
        if codec == SNAPPY:
            ks_snappy_blocks(data, size, &blocks)
            return self._unpack_blocks(self._snappy_into, blocks, arena, limit)
        if codec == LZ4:
            if ks_lz4_blocks(data, size, &blocks) and self._is_header(data, blocks.at - data):
                return self._unpack_blocks(self._lz4_into, blocks, arena, limit)
        return 0

    cdef bint _is_header(self, const uint8_t *data, int64_t size) except -1:
        """Tell whether the checksum of an LZ4 frame's header is right."""
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
        self, object decompress_into, ks_blocks blocks, Arena arena, int64_t limit
    ) except -1:
        cdef int64_t count, total = 0, room = ks_room_of_blocks(blocks)
        cdef bint is_snappy = decompress_into is self._snappy_into
        cdef uint8_t *to
        cdef ks_block block
        if room == 0 or room > limit or room > _PIECE:
            return 0
        to = arena.reserve(room)
        while ks_next_block(&blocks, &block) == KS_BLOCK_FOUND:
            data = readable(block.data, block.size)
            if block.checksum != NULL:
                if <uint32_t>self._xxh32(data) != ks_load_little(block.checksum, 4):
                    return 0
            if block.is_stored:
                memcpy(to + total, block.data, block.size)
                count = block.size
            elif is_snappy:
                count = decompress_into(data, writable(to + total, block.room))
            else:
                count = decompress_into(data, writable(to + total, block.room), block.room)
            # A block that holds nothing has a meaning of its own.
            if not 0 < count <= block.room:
                return 0
            total += count
        return total


cdef int64_t kept(bytes output, Arena arena) except -1:
    """Copy a library's output."""
    cdef int64_t size = PyBytes_GET_SIZE(output)
    memcpy(arena.reserve(size), PyBytes_AS_STRING(output), size)
    return size
