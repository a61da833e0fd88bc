"""Bytes to rows of the batch table."""

from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memchr

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
    ks_read_batch_row,
)


cdef struct Chaining:
    bint is_wanted             # several walks at once, where that serves
    int64_t steps              # batches that a chain goes over before rows are read
    int64_t first_steps        # taken plainly, to learn the size of batches
    int64_t smallest_batch     # on average, in bytes
    int64_t largest_batch      # of which a start is guessed
    const int64_t *known       # positions where batches are said to start, ascending
    int64_t known_count


cdef struct Walk:
    const uint8_t *window      # the bytes at hand …
    int64_t window_start       # … from this position of the source …
    int64_t window_stop        # … to this one
    int64_t source_size
    int64_t stop               # batches that start here or later are not ours
    ks_batch_row *rows
    int64_t capacity
    int64_t count              # rows written
    int64_t position           # of the next batch
    int status
    Chaining chaining


cdef void walk_batches(void *context) noexcept nogil:
    """Walks from `position` until something other than a batch is met."""
    cdef Walk *walk = <Walk *>context
    if walk.chaining.is_wanted:
        walk_in_chains(walk)
    else:
        walk_plainly(walk, walk.stop, walk.capacity)


cdef void walk_plainly(Walk *walk, int64_t stop, int64_t capacity) noexcept nogil:
    """Walks from batch to batch, up to a position or a number of rows."""
    cdef const uint8_t *p
    cdef int64_t position = walk.position, size = 0, left, at_hand
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
        at_hand = walk.window_stop - position
        if at_hand < KS_SIZE_UP_TO_MAGIC and at_hand < left:
            status = KS_NEED_WINDOW
            break
        p = walk.window + (position - walk.window_start)
        status = ks_frame_batch(p, left, &size)
        if status != KS_OK:
            break
        if at_hand < ks_header_size(<signed char>p[KS_AT_magic]):
            status = KS_NEED_WINDOW
            break
        ks_read_batch_row(p, at_hand, position, &walk.rows[count])
        count += 1
        position += size
    walk.count = count
    walk.position = position
    walk.status = status


# ---- many walks at once ---------------------------------------------------------------
#
# The address of the next header stands in the current one, so one walk waits for memory
# at every step. Here several walks take steps in turn. Where they start is taken from an
# index, or guessed; each but the first counts only if the one before it arrives exactly at
# its start. Then all of its steps are those that a plain walk takes, because a step depends
# on nothing but the bytes from there on. Chains note positions only; rows are read in order
# afterwards, from headers that are in the cache by then and whose addresses are known.

cdef extern from "batch_chains.h" nogil:
    const int KS_CHAINS
    const int KS_MAX_CHAIN_STEPS
    ctypedef struct ks_chains:
        int count
        int64_t *start
        int64_t *position
        int64_t *steps
        int64_t[1][512] noted
    void ks_walk_chains(
        ks_chains *chains, const uint8_t *source, int64_t source_size, int64_t max_steps
    )


cdef enum:
    MAX_STEPS_WITHOUT = 1 << 20
    GUESS_DEPTH = 3            # plausible headers in a row that make a guess
    MAX_CANDIDATES = 64        # looked at before a guess is given up


cdef int64_t guess_start(
    const Walk *walk, int64_t position, int64_t limit, int64_t last_offset
) noexcept nogil:
    """Position of the first likely batch in [position, limit), or -1."""
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
    """The first position in [position, limit) where a batch is said to start, or -1."""
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
    """Where a chain may start, at a position or not far behind it; -1 if nowhere."""
    cdef const uint8_t *p = walk.window + (walk.position - walk.window_start)
    cdef int64_t end = walk.source_size - KS_BATCH_HEADER_SIZE
    cdef int64_t start = known_start(walk, target, min(target + spacing, end))
    if start < 0 and can_guess:
        end = min(target + min(spacing, 4 * batch_size), end)
        start = guess_start(walk, target, end, ks_load_i64(p))
    return start


cdef bint place_chains(const Walk *walk, ks_chains *chains, int64_t batch_size) noexcept nogil:
    """Spreads chains over what lies ahead; False if that is too little."""
    cdef const uint8_t *p = walk.window + (walk.position - walk.window_start)
    cdef int64_t ahead = walk.stop - walk.position
    cdef int64_t room = (walk.capacity - walk.count) // KS_CHAINS
    # Chains are placed as if batches were a little larger than they were: some are.
    cdef int64_t steps = min(walk.chaining.steps, room) * 7 // 8
    cdef int64_t spacing = min(ahead // KS_CHAINS, batch_size * steps)
    cdef int64_t start
    cdef bint can_guess
    cdef int i
    if batch_size < walk.chaining.smallest_batch:
        return False
    if spacing < batch_size * (walk.chaining.steps // 16) or spacing < KS_BATCH_HEADER_SIZE:
        return False
    # There is a header's room behind p. Of magic 0 and 1, no start can be guessed.
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
    for i in range(chains.count):
        chains.position[i] = chains.start[i]
        chains.steps[i] = 0
    return chains.start[chains.count - 1] < chains.start[chains.count]


cdef int64_t read_chains(Walk *walk, const ks_chains *chains) noexcept nogil:
    """Reads the rows of the chains that count; returns how many of them were won by a guess.

    A plain walk fills the gaps: behind a chain that ran out of steps, and where a guess
    was wrong. It stops at the first thing that is no batch, and that ends the walk.
    """
    cdef int64_t steps, rows = 0
    cdef bint is_full
    cdef int i
    for i in range(chains.count):
        if walk.position < chains.start[i]:
            walk_plainly(walk, chains.start[i], walk.capacity)
            if walk.status != KS_AT_STOP:
                return rows
        if walk.position > chains.start[i]:
            continue
        steps = min(chains.steps[i], walk.capacity - walk.count)
        read_noted(walk, &chains.noted[i][0], steps)
        if i > 0:
            rows += steps
        if steps < chains.steps[i]:
            walk.position = chains.noted[i][steps]
            walk.status = KS_OUTPUT_FULL
            return rows
        walk.position = chains.position[i]
    is_full = walk.count == walk.capacity and walk.position < walk.stop
    walk.status = KS_OUTPUT_FULL if is_full else KS_AT_STOP
    return rows


cdef void read_noted(Walk *walk, const int64_t *positions, int64_t count) noexcept nogil:
    """Reads rows whose positions are known: no row waits for the one before it."""
    cdef const uint8_t *source = walk.window - walk.window_start
    cdef ks_batch_row *rows = walk.rows + walk.count
    cdef int64_t i
    for i in range(count):
        ks_read_batch_row(
            source + positions[i], walk.source_size - positions[i], positions[i], &rows[i]
        )
    walk.count += count


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
        while place_chains(walk, &chains, batch_size):
            start, before = walk.position, walk.count
            ks_walk_chains(&chains, source, walk.source_size, walk.chaining.steps)
            rows = read_chains(walk, &chains)
            if walk.status != KS_AT_STOP or walk.position >= walk.stop:
                return
            if rows == 0 or 2 * rows < walk.count - before:
                break
            plain_steps = walk.chaining.first_steps
            batch_size = (walk.position - start) // (walk.count - before)
        # Guessing does not serve here: try again later, and later each time.
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
    int64_t smallest_batch=512,
    int64_t largest_batch=1 << 16,
    const int64_t[::1] known_starts=None,
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
        Walk several chains at once; only if the window reaches to the source's end.
    chain_steps, first_steps, smallest_batch, largest_batch : int, optional
        How chains are used, see Chaining; measured, and of no consequence for the rows.
        The CPU's prefetchers serve small batches well; guessing a start reads half a
        batch, which is much of a large one.
    known_starts : contiguous array of int64, optional
        Positions where batches are said to start, ascending: where chains start. A lie
        costs time, and is of no consequence for the rows either.

    Returns
    -------
    status : int
    count : int
        Rows written.
    position : int
        Of the batch that the walk stopped at, or of the byte that faulted.
    """
    cdef Walk walk
    cdef int64_t fault
    cdef const uint8_t *data = &window[0] if window.shape[0] else NULL
    if not (
        0 <= window_start <= position
        and window_start + window.shape[0] <= source_size
        and stop <= source_size
    ):
        raise ValueError("window and positions do not lie within the source")
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
    with nogil:
        fault = run_guarded(walk_batches, &walk, data, window.shape[0])
    if fault >= 0:
        return KS_SOURCE_FAULT, 0, window_start + fault
    return walk.status, walk.count, walk.position


cdef struct Search:
    Walk walk
    int64_t limit
    int64_t last_offset
    int64_t found


cdef void search(void *context) noexcept nogil:
    cdef Search *search = <Search *>context
    search.found = guess_start(
        &search.walk, search.walk.position, search.limit, search.last_offset
    )


def guess(
    const uint8_t[::1] source not None, int64_t position, int64_t limit, int64_t last_offset
):
    """
    Find what looks like the start of a batch of magic 2.

    Parameters
    ----------
    source : buffer of bytes
    position, limit : int
        Where to look: 0 <= position, and up to here or a header before the end.
    last_offset : int
        Offsets of the batch and its followers are higher.

    Returns
    -------
    int
        The position, or -1.
    """
    cdef Search context
    cdef int64_t size = source.shape[0], fault
    limit = min(limit, size - KS_BATCH_HEADER_SIZE)
    if not 0 <= position < limit:
        return -1
    context.walk.window = &source[0]
    context.walk.window_start = 0
    context.walk.source_size = size
    context.walk.position = position
    context.limit = limit
    context.last_offset = last_offset
    context.found = -1
    with nogil:
        fault = run_guarded(search, &context, &source[0], size)
    return -1 if fault >= 0 else context.found
