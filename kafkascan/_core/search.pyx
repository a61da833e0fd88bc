"""Search for valid batches in damaged bytes, and selection of ascending offset ranges."""

from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint32_t

from kafkascan._core.checksums cimport crc32_kernel, crc32c_kernel, ks_crc_fn
from kafkascan._core.guard cimport run_guarded
from kafkascan._core.layout cimport KS_OK, KS_SOURCE_FAULT, ks_batch_row


cdef extern from "damaged_ranges.h" nogil:
    const int KS_SUM_STEP
    const int KS_DAMAGED_IN_A_ROW
    const uint32_t KS_CASTAGNOLI_REVERSED
    const uint32_t KS_IEEE_REVERSED
    ctypedef struct ks_crc_shifts:
        pass
    ctypedef struct ks_crc_sums:
        ks_crc_fn run
        const ks_crc_shifts *shifts
        const uint8_t *data
        uint32_t *sums
        int64_t start
        int64_t count
    ctypedef struct ks_search:
        const uint8_t *data
        int64_t size
        int64_t size_after
        int64_t position
        int64_t limit
        int64_t lowest
        int64_t highest
        int any_header
        ks_crc_sums crc32c
        ks_crc_sums crc32
    ctypedef packed struct ks_damaged_range:
        int64_t start
        int64_t stop
        int64_t base_offset
        int32_t batch_length
        int8_t magic
        uint8_t status
        uint8_t is_framed
    ctypedef struct ks_skipping:
        ks_search search
        int64_t stop
        int64_t least_reach
        int64_t most_reach
        int verifies_all
        int64_t position
        int64_t last_damage
        ks_batch_row *rows
        int64_t row_count
        int64_t row_capacity
        ks_damaged_range *ranges
        int64_t range_count
        int64_t range_capacity
    void ks_skip_runs(ks_skipping *skipping)
    void ks_fill_shifts(ks_crc_shifts *shifts, uint32_t polynomial)
    int ks_find_batch(ks_search *search)
    uint32_t ks_crc_of_range(ks_crc_sums *sums, int64_t first, int64_t last)
    void ks_start_sums(ks_crc_sums *sums, int64_t position)


cdef ks_crc_shifts castagnoli_shifts, ieee_shifts
ks_fill_shifts(&castagnoli_shifts, KS_CASTAGNOLI_REVERSED)
ks_fill_shifts(&ieee_shifts, KS_IEEE_REVERSED)

SUM_STEP = KS_SUM_STEP
DAMAGED_IN_A_ROW = KS_DAMAGED_IN_A_ROW


cdef struct Job:
    ks_search search
    int status


cdef void run_search(void *context) noexcept nogil:
    cdef Job *job = <Job *>context
    job.status = ks_find_batch(&job.search)


cdef void skip_runs(void *context) noexcept nogil:
    ks_skip_runs(<ks_skipping *>context)


cdef class Searcher:
    """
    Search of one window of bytes after the other; not thread-safe.

    Searches in the same window share their checksum sums, so that all of them together take the
    time of one pass over the window.

    Parameters
    ----------
    sums, legacy_sums : contiguous writable array of uint32
        Buffers of at least `sums_for` items for the largest window.
    """

    cdef ks_search search
    cdef uint32_t[::1] sums
    cdef uint32_t[::1] legacy_sums
    cdef int64_t window_start

    def __init__(self, uint32_t[::1] sums not None, uint32_t[::1] legacy_sums not None):
        self.sums = sums
        self.legacy_sums = legacy_sums
        self.window_start = -1
        self.search.crc32c.run = crc32c_kernel
        self.search.crc32c.shifts = &castagnoli_shifts
        self.search.crc32.run = crc32_kernel
        self.search.crc32.shifts = &ieee_shifts

    def find(
        self,
        const uint8_t[::1] window not None,
        int64_t window_start,
        int64_t source_size,
        int64_t position,
        int64_t limit,
        int64_t lowest,
        int64_t highest, bint any_header=False,
    ):
        """
        Find the first valid batch that starts in [position, limit).

        Parameters
        ----------
        window : buffer of bytes
            Bytes of the source, from `window_start` on.
        window_start, source_size, position, limit : int
            Positions in the source; `position` is in the window.
        lowest, highest : int
            Range of the batch's offsets, inclusive.
        any_header : bool
            Accept any framed header whose checksum is valid.

        Returns
        -------
        status : int
            KS_OK: it starts at the position. KS_AT_STOP: there is none. KS_NEED_WINDOW: the
            candidate at the position ends after the window.
        position : int
            For KS_SOURCE_FAULT, the position of the byte that faulted.
        """
        cdef Job job
        cdef int64_t fault
        self._open(&job.search, window, window_start, source_size)
        if not window_start <= position <= window_start + window.shape[0] or limit > source_size:
            raise ValueError("positions exceed the window or the source")
        job.search.position = position - window_start
        job.search.limit = limit - window_start
        job.search.lowest = lowest
        job.search.highest = highest
        job.search.any_header = any_header
        with nogil:
            fault = run_guarded(run_search, &job, job.search.data, job.search.size)
        if self._close(&job.search, window_start, fault):
            return KS_SOURCE_FAULT, window_start + fault
        return job.status, window_start + job.search.position

    def skip_damage(
        self,
        const uint8_t[::1] source not None,
        int64_t position,
        int64_t last_damage,
        int64_t stop,
        int64_t lowest,
        int64_t highest,
        bint verifies_all,
        int64_t least_reach,
        int64_t most_reach,
        ks_batch_row[::1] rows not None,
        ks_damaged_range[::1] ranges not None,
    ):
        """
        Skip damaged ranges whose extent is clear, from a position on.

        Parameters
        ----------
        source : buffer of bytes
            All bytes of the source.
        position, last_damage, stop : int
            Batches that start before the stop are valid; damage before the position ended at
            `last_damage`.
        lowest, highest : int
            Range of their offsets, inclusive.
        verifies_all : bool
            Verify all checksums, not only those beside damage and gaps in the offsets.
        least_reach, most_reach : int
            Bytes for which headers are trusted after damage.
        rows : writable contiguous array of BATCH_DTYPE
        ranges : writable contiguous array of DAMAGED_DTYPE

        Returns
        -------
        status : int
            KS_OK or KS_SOURCE_FAULT.
        row_count, range_count : int
            Number of rows and ranges written.
        position, last_damage : int
            Positions after them, and after the last damage; or of the byte that faulted.
        """
        cdef ks_skipping job
        cdef int64_t fault
        self._open(&job.search, source, 0, source.shape[0])
        if not (0 <= last_damage <= position <= source.shape[0] and stop <= source.shape[0]):
            raise ValueError("positions exceed the source")
        job.search.lowest = lowest
        job.search.highest = highest
        job.search.any_header = False
        job.position, job.last_damage = position, last_damage
        job.stop = stop
        job.verifies_all = verifies_all
        job.least_reach = max(least_reach, 0)
        job.most_reach = max(most_reach, 0)
        job.rows, job.row_count, job.row_capacity = NULL, 0, rows.shape[0]
        job.ranges, job.range_count, job.range_capacity = NULL, 0, ranges.shape[0]
        if job.row_capacity:
            job.rows = &rows[0]
        if job.range_capacity:
            job.ranges = &ranges[0]
        with nogil:
            fault = run_guarded(skip_runs, &job, job.search.data, job.search.size)
        if self._close(&job.search, 0, fault):
            return KS_SOURCE_FAULT, 0, 0, fault, 0
        return KS_OK, job.row_count, job.range_count, job.position, job.last_damage

    cdef _open(
        self, ks_search *search, const uint8_t[::1] window, int64_t window_start,
        int64_t source_size,
    ):
        """Begin a search in a window, with the sums of the last one if it is the same."""
        cdef int64_t size = window.shape[0]
        if not (
            0 <= window_start <= window_start + size <= source_size
            and sums_for(size) <= min(self.sums.shape[0], self.legacy_sums.shape[0])
        ):
            raise ValueError("window, positions and sums are inconsistent")
        search[0] = self.search
        if window_start != self.window_start:
            search.crc32c.count = search.crc32.count = 0
        search.data = search.crc32c.data = search.crc32.data = &window[0] if size else NULL
        search.crc32c.sums = &self.sums[0]
        search.crc32.sums = &self.legacy_sums[0]
        search.size = size
        search.size_after = source_size - window_start - size

    cdef bint _close(self, const ks_search *search, int64_t window_start, int64_t fault):
        """End it; return whether a byte faulted."""
        self.search = search[0]
        self.window_start = -1 if fault >= 0 else window_start
        return fault >= 0


def sums_for(int64_t size):
    """Return the number of sums for a window of a size in bytes."""
    return size // KS_SUM_STEP + 2


cdef struct Range:
    ks_crc_sums sums
    int64_t first
    int64_t last
    uint32_t crc


def crc_of_range(const uint8_t[::1] data not None, int64_t start, int64_t first, int64_t last,
                 uint32_t[::1] room not None, bint is_legacy=False):
    """Return the CRC of [first, last), computed from sums from `start` on; for tests."""
    cdef ks_crc_sums sums
    if not 0 <= start <= first <= last <= data.shape[0] or room.shape[0] < sums_for(last):
        raise ValueError("positions are outside of the data")
    sums.run = crc32_kernel if is_legacy else crc32c_kernel
    sums.shifts = &ieee_shifts if is_legacy else &castagnoli_shifts
    sums.data = &data[0] if data.shape[0] else NULL
    sums.sums = &room[0]
    sums.count = 0
    ks_start_sums(&sums, start)
    return ks_crc_of_range(&sums, first, last)


# ---- ascending offset ranges ----------------------------------------------------------


def heaviest_ascending(
    const int64_t[::1] below not None,
    const int64_t[::1] rank not None,
    const int64_t[::1] weight not None,
    const int64_t[::1] link not None,
    int64_t[::1] best not None,
    int64_t[::1] chosen not None,
    int64_t[::1] before not None,
    int64_t[::1] total not None,
    uint8_t[::1] keep not None,
):
    """
    Select ascending, disjoint ranges with the greatest total weight.

    Parameters
    ----------
    below : array of int64, shape (n,)
        Number of sorted ends that are below the start of each range.
    rank : array of int64, shape (n,)
        Index of the end of each range among the sorted ends.
    weight : array of int64, shape (n,)
        Not negative; the sum must fit into int64.
    link : array of int64, shape (n,)
        Weight that a range adds if the range before it is selected, too; 0 if it does not start
        after the end of that range.
    best, chosen : writable arrays of int64, of one more than the number of ranks
        Buffers for a Fenwick tree over the ranks: the greatest weight of a selection that ends
        there, and its last range.
    before : writable array of int64, shape (n,)
        Buffer for the previous range of each selection.
    total : writable array of int64, shape (n,)
        Buffer for the weight of the best selection that ends with each range.
    keep : writable array of bytes, shape (n,)
        Set to 1 where a range is selected, else 0.
    """
    cdef int64_t n = below.shape[0], ranks = best.shape[0] - 1, i, j, weight_here, found
    if not (n == rank.shape[0] == weight.shape[0] == link.shape[0] == before.shape[0]
            == total.shape[0] == keep.shape[0] and ranks == chosen.shape[0] - 1):
        raise ValueError("the arrays differ in length")
    for i in range(n):
        if not (0 <= below[i] <= ranks and 0 <= rank[i] < ranks):
            raise ValueError("a rank is out of range")
        if link[i] > 0 and (i == 0 or rank[i - 1] >= below[i]):
            raise ValueError("linked ranges do not ascend")
    with nogil:
        for i in range(ranks + 1):
            best[i] = 0
            chosen[i] = -1
        for i in range(n):
            keep[i] = 0
            weight_here, found, j = 0, -1, below[i]
            while j > 0:
                if best[j] > weight_here:
                    weight_here, found = best[j], chosen[j]
                j -= j & -j
            if i > 0 and link[i] > 0 and total[i - 1] + link[i] > weight_here:
                weight_here, found = total[i - 1] + link[i], i - 1
            before[i] = found
            weight_here += weight[i]
            total[i] = weight_here
            j = rank[i] + 1
            while j <= ranks:
                if weight_here > best[j]:
                    best[j], chosen[j] = weight_here, i
                j += j & -j
        weight_here, found, j = 0, -1, ranks
        while j > 0:
            if best[j] > weight_here:
                weight_here, found = best[j], chosen[j]
            j -= j & -j
        while found >= 0:
            keep[found] = 1
            found = before[found]
