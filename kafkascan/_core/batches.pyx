"""Scan batch headers into rows of the batch table."""

from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memchr, memmove

from kafkascan._core.guard cimport run_guarded
from kafkascan._core.layout cimport (
    KS_AT_magic,
    KS_AT_STOP,
    KS_BATCH_HEADER_SIZE,
    KS_NEED_WINDOW,
    KS_OK,
    KS_OUTPUT_FULL,
    KS_SIZE_UP_TO_MAGIC,
    KS_SOURCE_FAULT,
    ks_batch_row,
    ks_frame_batch,
    ks_header_size,
    ks_is_plausible_batch,
    ks_load_i64,
    ks_prefetch_ahead,
    ks_read_batch_row,
)


cdef struct Chaining:
    bint is_wanted             # whether to walk in chains where that is faster
    int64_t steps              # batches of a chain before rows are read
    int64_t first_steps        # batches that a plain walk measures first
    int64_t smallest_batch     # on average, in bytes
    int64_t largest_batch      # for which starts are guessed
    const int64_t *known       # batch positions of an index, ascending
    int64_t known_count


cdef struct Walk:
    const uint8_t *window      # bytes of the source …
    int64_t window_start       # … from this position …
    int64_t window_stop        # … to this one
    int64_t source_size
    int64_t stop               # batches that start here or later are left out
    ks_batch_row *rows
    int64_t capacity
    int64_t count              # rows written
    int64_t position           # of the next batch
    int status
    Chaining chaining


cdef void walk_batches(void *context) noexcept nogil:
    """Walk from `position` to the stop, or to bytes that are not a batch."""
    cdef Walk *walk = <Walk *>context
    if walk.chaining.is_wanted:
        walk_in_chains(walk)
    else:
        walk_plainly(walk, walk.stop, walk.capacity)


cdef void walk_plainly(Walk *walk, int64_t stop, int64_t capacity) noexcept nogil:
    """Walk from batch to batch, up to a position or a number of rows."""
    cdef const uint8_t *p
    cdef int64_t position = walk.position, size = 0, left, available
    cdef int64_t count = walk.count
    cdef int status = KS_OK
    while True:
        if position >= stop:
            status = KS_AT_STOP
            break
        if count >= capacity:
            status = KS_OUTPUT_FULL
            break
        left = walk.source_size - position
        available = walk.window_stop - position
        if available < KS_SIZE_UP_TO_MAGIC and available < left:
            status = KS_NEED_WINDOW
            break
        p = walk.window + (position - walk.window_start)
        status = ks_frame_batch(p, left, &size)
        if status != KS_OK:
            break
        if available < ks_header_size(<signed char>p[KS_AT_magic]):
            status = KS_NEED_WINDOW
            break
        ks_read_batch_row(p, available, position, &walk.rows[count])
        ks_prefetch_ahead(p, size)
        count += 1
        position += size
    walk.count = count
    walk.position = position
    walk.status = status


# ---- interleaved walks ----------------------------------------------------------------
#
# The address of the next header depends on the current one, so a walk waits for memory at
# every step. Here several walks take their steps alternately. Their starts come from an index
# or are guessed. A walk is used only if the walk before it arrives exactly at its start: then
# all of its steps equal the steps of a plain walk, because a step depends only on the bytes
# from its position on. Each chain writes its rows where they are if all chains take as many steps
# as they may; the rows are then moved together.

cdef extern from "batch_chains.h" nogil:
    const int KS_CHAINS
    const int KS_MAX_CHAIN_STEPS
    ctypedef struct ks_chains:
        int count
        int64_t max_steps
        int64_t *start
        int64_t *position
        int64_t *steps
        ks_batch_row **rows
    void ks_walk_chains(ks_chains *chains, const uint8_t *source, int64_t source_size)


cdef enum:
    MAX_STEPS_WITHOUT = 1 << 20
    STEPS_OF_SMALL = 1 << 12   # before the size of small batches is measured again
    GUESS_DEPTH = 3            # consecutive plausible headers that make a guess
    # Positions that are tried for a guess: one byte in 256 of compressed records looks like a
    # magic, and a guess reads up to four batches of 64 KB.
    MAX_CANDIDATES = 1024


cdef int64_t guess_start(
    const Walk *walk, int64_t position, int64_t limit, int64_t last_offset
) noexcept nogil:
    """Return the position of the first plausible batch in [position, limit), or -1."""
    cdef const uint8_t *p
    cdef const uint8_t *found
    for _ in range(MAX_CANDIDATES):
        if position >= limit:
            return -1
        p = walk.window + (position - walk.window_start)
        found = <const uint8_t *>memchr(p + KS_AT_magic, 2, limit - position)
        if found == NULL:
            return -1
        position += found - (p + KS_AT_magic)
        if is_likely_chain(walk, position, last_offset):
            return position
        position += 1
    return -1


cdef bint is_likely_chain(const Walk *walk, int64_t position, int64_t last_offset) noexcept nogil:
    cdef int64_t size = 0
    for _ in range(GUESS_DEPTH):
        if not ks_is_plausible_batch(
            walk.window + (position - walk.window_start),
            walk.source_size - position,
            &last_offset,
            &size,
        ):
            return False
        position += size
    return True


cdef int64_t known_start(const Walk *walk, int64_t position, int64_t limit) noexcept nogil:
    """Return the first batch position of the index in [position, limit), or -1."""
    cdef const int64_t *known = walk.chaining.known
    cdef int64_t first = 0, last = walk.chaining.known_count, middle
    while first < last:
        middle = (first + last) // 2
        if known[middle] < position:
            first = middle + 1
        else:
            last = middle
    if first < walk.chaining.known_count and known[first] < limit:
        return known[first]
    return -1


cdef int64_t find_start(
    const Walk *walk, int64_t target, int64_t spacing, int64_t batch_size, bint can_guess
) noexcept nogil:
    """Return where a chain may start, at a position or shortly after it; -1 if nowhere."""
    cdef const uint8_t *p = walk.window + (walk.position - walk.window_start)
    cdef int64_t end = walk.source_size - KS_BATCH_HEADER_SIZE
    cdef int64_t start = known_start(walk, target, min(target + spacing, end))
    if start < 0 and can_guess:
        end = min(target + min(spacing, 4 * batch_size), end)
        start = guess_start(walk, target, end, ks_load_i64(p))
    return start


cdef bint place_chains(const Walk *walk, ks_chains *chains, int64_t batch_size) noexcept nogil:
    """Distribute chains over the next bytes; False if there are too few."""
    cdef const uint8_t *p = walk.window + (walk.position - walk.window_start)
    cdef int64_t ahead = walk.stop - walk.position
    cdef int64_t room = (walk.capacity - walk.count) // KS_CHAINS
    cdef int64_t steps = min(walk.chaining.steps, room)
    # The spacing allows for batches that are a little smaller than before.
    cdef int64_t spacing = min(ahead // KS_CHAINS, batch_size * (steps * 7 // 8))
    cdef int64_t start
    cdef bint can_guess
    cdef int i
    if spacing < batch_size * (walk.chaining.steps // 16) or spacing < KS_BATCH_HEADER_SIZE:
        return False
    # There are bytes for a header at p. Starts can be guessed for magic 2 only.
    can_guess = p[KS_AT_magic] == 2 and batch_size <= walk.chaining.largest_batch
    if not can_guess and walk.chaining.known_count == 0:
        return False
    chains.count = 1
    chains.start[0] = walk.position
    for i in range(1, KS_CHAINS):
        start = find_start(walk, walk.position + i * spacing, spacing, batch_size, can_guess)
        if start > chains.start[chains.count - 1]:
            chains.start[chains.count] = start
            chains.count += 1
    chains.start[chains.count] = min(walk.stop, walk.position + KS_CHAINS * spacing)
    chains.max_steps = steps
    for i in range(chains.count):
        chains.position[i] = chains.start[i]
        chains.steps[i] = 0
        chains.rows[i] = walk.rows + walk.count + i * steps
    return chains.start[chains.count - 1] < chains.start[chains.count]


cdef int64_t join_chains(Walk *walk, const ks_chains *chains) noexcept nogil:
    """
    Move the rows of the connected chains together; return how many later chains contributed.

    A plain walk fills the gaps after a chain without further steps and after a wrong guess. It
    stops at the first bytes that are not a batch, which end the walk. If it needs the rows of the
    next chain, that chain is walked again.
    """
    cdef int64_t rows = 0
    cdef ks_batch_row *free
    cdef bint is_full
    cdef int i
    for i in range(chains.count):
        if walk.position < chains.start[i]:
            walk_plainly(walk, chains.start[i], walk.capacity)
            if walk.status != KS_AT_STOP:
                return rows
        free = walk.rows + walk.count
        if walk.position > chains.start[i] or free > chains.rows[i]:
            continue
        memmove(free, chains.rows[i], chains.steps[i] * sizeof(ks_batch_row))
        walk.count += chains.steps[i]
        walk.position = chains.position[i]
        if i > 0:
            rows += chains.steps[i]
    is_full = walk.count == walk.capacity and walk.position < walk.stop
    walk.status = KS_OUTPUT_FULL if is_full else KS_AT_STOP
    return rows


cdef void walk_in_chains(Walk *walk) noexcept nogil:
    cdef const uint8_t *source = walk.window - walk.window_start
    cdef ks_chains chains
    cdef int64_t start, before, batch_size, rows, plain_steps = walk.chaining.first_steps
    while True:
        start, before = walk.position, walk.count
        walk_plainly(walk, walk.stop, min(walk.capacity, walk.count + plain_steps))
        if walk.status != KS_OUTPUT_FULL or walk.count == walk.capacity:
            return
        batch_size = (walk.position - start) // (walk.count - before)
        if batch_size < walk.chaining.smallest_batch:
            plain_steps = STEPS_OF_SMALL
            continue
        while place_chains(walk, &chains, batch_size):
            start, before = walk.position, walk.count
            ks_walk_chains(&chains, source, walk.source_size)
            rows = join_chains(walk, &chains)
            if walk.status != KS_AT_STOP or walk.position >= walk.stop:
                return
            if rows == 0 or 2 * rows < walk.count - before:
                break
            plain_steps = walk.chaining.first_steps
            batch_size = (walk.position - start) // (walk.count - before)
        # Guesses fail here: try again later, after increasing intervals.
        plain_steps = min(4 * plain_steps, MAX_STEPS_WITHOUT)


def scan_into(
    const uint8_t[::1] window not None,
    int64_t window_start,
    int64_t source_size,
    int64_t position,
    int64_t stop,
    ks_batch_row[::1] rows not None,
    bint in_chains=False,
    int64_t chain_steps=KS_MAX_CHAIN_STEPS,
    int64_t first_steps=64,
    int64_t smallest_batch=384,
    int64_t largest_batch=1 << 16,
    const int64_t[::1] known_starts=None,
    bint keeps_gil=False,
):
    """
    Fill rows with the headers of the batches from `position` on.

    Parameters
    ----------
    window : buffer of bytes
        Bytes of the source from `window_start` on.
    window_start, source_size, position, stop : int
        Positions in the source; 0 <= window_start <= position, and
        window_start + len(window) <= source_size.
    rows : writable contiguous array of BATCH_DTYPE
    in_chains : bool, default False
        Walk in interleaved chains; ignored unless the window ends at the source's end.
    chain_steps, first_steps, smallest_batch, largest_batch : int, optional
        Parameters of chains, see Chaining. They were measured, and do not affect the rows. A plain
        walk over small batches is faster, because it prefetches all bytes; guessing a start reads
        half a batch, which is expensive for large ones.
    known_starts : contiguous array of int64, optional
        Batch positions of an index, ascending, for the starts of chains. Wrong positions cost
        time but do not affect the rows.
    keeps_gil : bool, default False
        Keep the GIL, for a window of some KiB in memory: where many threads receive answers of a
        store, waiting for it again takes longer than the scan.

    Returns
    -------
    status : int
    count : int
        Number of rows written.
    position : int
        Position at which the walk stopped, or of the byte that faulted.
    """
    cdef Walk walk
    cdef int64_t fault
    cdef const uint8_t *data = &window[0] if window.shape[0] else NULL
    if not (
        0 <= window_start <= position
        and window_start + window.shape[0] <= source_size
        and stop <= source_size
    ):
        raise ValueError("window or positions exceed the source")
    if window.shape[0] == 0 or window_start + window.shape[0] < source_size:
        in_chains = False
    walk.window = data
    walk.window_start = window_start
    walk.window_stop = window_start + window.shape[0]
    walk.source_size = source_size
    walk.position = position
    walk.stop = stop
    walk.rows = &rows[0] if rows.shape[0] else NULL
    walk.capacity = rows.shape[0]
    walk.count = 0
    walk.status = KS_OK
    walk.chaining.is_wanted = in_chains
    walk.chaining.steps = min(max(chain_steps, 16), KS_MAX_CHAIN_STEPS)
    walk.chaining.first_steps = max(first_steps, 1)
    walk.chaining.smallest_batch = smallest_batch
    walk.chaining.largest_batch = largest_batch
    walk.chaining.known_count = 0
    if known_starts is not None and known_starts.shape[0] > 0:
        walk.chaining.known = &known_starts[0]
        walk.chaining.known_count = known_starts.shape[0]
    if keeps_gil:
        fault = run_guarded(walk_batches, &walk, data, window.shape[0])
    else:
        with nogil:
            fault = run_guarded(walk_batches, &walk, data, window.shape[0])
    if fault >= 0:
        return KS_SOURCE_FAULT, 0, window_start + fault
    return walk.status, walk.count, walk.position


def rows_of_headers(
    const uint8_t[:, ::1] headers not None,
    const int64_t[::1] left not None,
    ks_batch_row[::1] rows not None,
    uint8_t[::1] are_framed not None,
):
    """
    Read headers into rows, all but their positions.

    Parameters
    ----------
    headers : contiguous array of bytes, shape (n, 61)
    left : array of int64, shape (n,)
        Bytes from each header to the end of those that its batch may have.
    rows : writable contiguous array of BATCH_DTYPE, shape (n,)
    are_framed : writable array of bytes, shape (n,)
        Set to 1 where the header frames a batch, else 0.
    """
    cdef int64_t i, size = 0, n = headers.shape[0]
    if headers.shape[1] != KS_BATCH_HEADER_SIZE or not (
        n == left.shape[0] == rows.shape[0] == are_framed.shape[0]
    ):
        raise ValueError("the arrays differ in length")
    for i in range(n):
        are_framed[i] = ks_frame_batch(&headers[i, 0], left[i], &size) == KS_OK
        if are_framed[i]:
            ks_read_batch_row(&headers[i, 0], KS_BATCH_HEADER_SIZE, 0, &rows[i])


cdef struct Search:
    Walk walk
    int64_t limit
    int64_t last_offset
    int64_t found


cdef void search(void *context) noexcept nogil:
    cdef Search *search = <Search *>context
    search.found = guess_start(&search.walk, search.walk.position, search.limit, search.last_offset)


def guess(const uint8_t[::1] source not None, int64_t position, int64_t limit, int64_t last_offset):
    """
    Find a plausible start of a batch of magic 2.

    Parameters
    ----------
    source : buffer of bytes
    position, limit : int
        Range to search; it ends at `limit` or one header before the end.
    last_offset : int
        The batch must have higher offsets.

    Returns
    -------
    int
        The position, or -1.
    """
    cdef Search context
    cdef int64_t size = source.shape[0]
    limit = min(limit, size - KS_BATCH_HEADER_SIZE)
    if not 0 <= position < limit:
        return -1
    context.walk.window = &source[0]
    context.walk.window_start = 0
    context.walk.source_size = size
    context.walk.position = position
    context.limit = limit
    context.last_offset = last_offset
    context.found = -1  # also the result of a search that meets a fault
    with nogil:
        run_guarded(search, &context, &source[0], size)
    return context.found
