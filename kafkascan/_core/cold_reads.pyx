"""Batch headers of a file that is not in the page cache, read one by one, many in flight."""

from libc.stdint cimport int64_t, uint8_t

from kafkascan._core.layout cimport (
    KS_AT_base_offset,
    KS_AT_magic,
    KS_BATCH_HEADER_SIZE,
    KS_SOURCE_FAULT,
    ks_batch_row,
    ks_load_i64,
)


cdef extern from "cold_reads.h" nogil:
    ctypedef struct ks_log_file:
        int descriptor
        int64_t start
        int64_t size
    int64_t ks_read_at(const ks_log_file *file, int64_t position, uint8_t *out, int64_t size)
    void ks_request(const ks_log_file *file, int64_t position, int64_t size)
    void ks_request_batch(const ks_log_file *file, const ks_batch_row *row)
    int ks_is_cached(const ks_log_file *file, int64_t position)
    int64_t ks_count_cached(const ks_log_file *file, int64_t position, int64_t size)
    int ks_scan_file(
        const ks_log_file *file, int64_t stop, ks_batch_row *rows, int64_t capacity,
        int64_t *position, int64_t *count
    )
    int64_t ks_follow_chains(
        const ks_log_file *file, int64_t *positions, const int64_t *stops, int64_t count,
        int64_t max_steps
    )
    int64_t ks_guess_in_file(
        const ks_log_file *file, int64_t position, int64_t limit, int64_t last_offset,
        uint8_t *buffer, int64_t capacity
    )


cdef class LogFile:
    """
    A log in an open file; borrows the descriptor.

    Parameters
    ----------
    descriptor : int
    start : int
        Position of the log's first byte in the file.
    size : int
        Size of the log in bytes.
    """

    cdef ks_log_file file

    def __init__(self, int descriptor, int64_t start, int64_t size):
        if start < 0 or size < 0:
            raise ValueError("start and size must not be negative")
        self.file.descriptor = descriptor
        self.file.start = start
        self.file.size = size

    def is_cached(self, int64_t start, int64_t stop, int samples):
        """Return whether all sampled pages of a range are in the page cache, or nobody knows."""
        cdef int64_t step = (stop - start) // max(samples, 1)
        cdef int answer = 1, i
        if not 0 <= start <= stop <= self.file.size:
            raise ValueError("positions exceed the log")
        with nogil:
            for i in range(samples):
                answer = ks_is_cached(&self.file, start + i * step + step // 2)
                if answer != 1:
                    break
        return answer != 0

    def count_cached(self, int64_t position, int64_t size):
        """Return the number of cached pages of a range; -1 if the system does not say."""
        cdef int64_t count
        with nogil:
            count = ks_count_cached(&self.file, position, size)
        return count

    def request(self, int64_t position, int64_t size):
        """Request a range of bytes, without waiting for them."""
        with nogil:
            ks_request(&self.file, position, size)

    def request_batches(self, const ks_batch_row[::1] rows not None):
        """Request the bytes of batches, without waiting for them."""
        cdef int64_t i
        with nogil:
            for i in range(rows.shape[0]):
                ks_request_batch(&self.file, &rows[i])

    def request_headers(self, const int64_t[::1] positions not None):
        """Request the headers at positions, without waiting for them."""
        cdef int64_t i
        with nogil:
            for i in range(positions.shape[0]):
                ks_request(&self.file, positions[i], KS_BATCH_HEADER_SIZE)

    def scan_into(self, int64_t position, int64_t stop, ks_batch_row[::1] rows not None):
        """
        Fill rows with the headers of the batches from `position` on.

        Returns
        -------
        status, count, position : int
            As `batches.scan_into` returns them.
        """
        cdef int64_t count = 0
        cdef int status
        cdef ks_batch_row *first = &rows[0] if rows.shape[0] else NULL
        if not 0 <= position <= stop <= self.file.size:
            raise ValueError("positions exceed the log")
        with nogil:
            status = ks_scan_file(&self.file, stop, first, rows.shape[0], &position, &count)
        return status, 0 if status == KS_SOURCE_FAULT else count, position

    def follow_chains(
        self, int64_t[::1] positions not None, const int64_t[::1] stops not None, int64_t max_steps
    ):
        """
        Read batch headers from several positions, alternately, so that they are cached.

        Parameters
        ----------
        positions : contiguous array of int64, not negative
            The next batch of each chain; updated.
        stops : contiguous array of int64
            A chain ends there, at most at the end of the log.
        max_steps : int
            Number of headers after which this pauses.

        Returns
        -------
        int
            Number of headers that were read: 0 if all chains have ended.
        """
        cdef int64_t count = positions.shape[0], i
        if stops.shape[0] != count:
            raise ValueError("there must be as many stops as positions")
        for i in range(count):
            if not (0 <= positions[i] and stops[i] <= self.file.size):
                raise ValueError("positions exceed the log")
        if count == 0:
            return 0
        with nogil:
            count = ks_follow_chains(&self.file, &positions[0], &stops[0], count, max_steps)
        return count

    def offset_of(self, int64_t position):
        """Return the base offset of the batch at a position; None unless it has magic 2."""
        cdef uint8_t[64] header
        cdef int64_t available
        if not 0 <= position <= self.file.size:
            raise ValueError("position exceeds the log")
        with nogil:
            available = ks_read_at(&self.file, position, header, KS_BATCH_HEADER_SIZE)
        if available < KS_BATCH_HEADER_SIZE or header[KS_AT_magic] != 2:
            return None
        return ks_load_i64(header + KS_AT_base_offset)

    def guess(
        self, int64_t position, int64_t limit, int64_t last_offset, uint8_t[::1] buffer not None
    ):
        """
        Find a plausible start of a batch of magic 2.

        Parameters
        ----------
        position, limit : int
            Range to search; it ends at `limit` or one header before the end.
        last_offset : int
            The batch must have higher offsets.
        buffer : writable buffer of bytes
            Memory for the bytes that are searched; its size is the size of a read.

        Returns
        -------
        int
            The position, or -1.
        """
        cdef int64_t capacity = buffer.shape[0]
        if capacity < 2 * KS_BATCH_HEADER_SIZE:
            raise ValueError("the buffer is too small")
        if not 0 <= position <= self.file.size:
            raise ValueError("position exceeds the log")
        with nogil:
            position = ks_guess_in_file(
                &self.file, position, limit, last_offset, &buffer[0], capacity
            )
        return position
