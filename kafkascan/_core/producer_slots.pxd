"""Producers in arrays: a hash table by producer id, and a heap of open transactions."""

from libc.stdint cimport int32_t, int64_t, uint64_t

from kafkascan._core.layout cimport ks_producer_entry
from kafkascan._core.producer_ids cimport hashed
from kafkascan._core.producer_orders cimport begin_order, log_cursor, producer_order
from kafkascan._core.transaction_spans cimport NO_TRANSACTION, transaction

cdef enum:
    RECENT = 1024
    # The id in an order until its producer has written a batch.
    NO_PRODUCER = -1

# An item of the heap. It is stale once the entry has no open transaction, or a later one; a
# stale item is removed when it comes to the top. The dtype OPEN_TRANSACTION is derived from this.
cdef struct open_transaction:
    int64_t first_offset
    int64_t entry

cdef struct producer_slots:
    ks_producer_entry *entries
    transaction *spans             # by entry; NULL: not recorded
    producer_order *orders         # by entry; NULL: not recorded
    log_cursor *cursor             # NULL: not recorded
    int64_t count
    int64_t capacity
    int32_t *slots                 # hash table of indexes into entries; -1: free
    uint64_t mask
    uint64_t secret
    open_transaction *opened       # heap, smallest first offset on top
    int64_t opened_count           # -1: to be rebuilt from the entries
    int64_t opened_capacity
    int32_t recent[RECENT]         # index into entries, by the last bits of the producer id


cdef inline void forget_batches(ks_producer_entry *entry) noexcept nogil:
    entry.last_sequence = -1
    entry.last_offset = -1
    entry.offset_delta = 0


cdef inline void index_entries(producer_slots *known) noexcept nogil:
    """Fill the hash table, whose slots must be free."""
    cdef uint64_t at
    cdef int64_t i
    for i in range(known.count):
        at = hashed(known.entries[i].producer_id, known.secret) & known.mask
        while (
            known.slots[at] >= 0
            and known.entries[known.slots[at]].producer_id != known.entries[i].producer_id
        ):
            at = (at + 1) & known.mask
        known.slots[at] = <int32_t>i


cdef inline ks_producer_entry *find_or_add(
    producer_slots *known, int64_t producer_id
) noexcept nogil:
    """Return the entry of a producer, a new one if there is none; NULL if there is no room."""
    cdef uint64_t at = hashed(producer_id, known.secret) & known.mask
    cdef ks_producer_entry *entry
    while known.slots[at] >= 0:
        entry = &known.entries[known.slots[at]]
        if entry.producer_id == producer_id:
            return entry
        at = (at + 1) & known.mask
    if known.count == known.capacity:
        return NULL
    known.slots[at] = <int32_t>known.count
    entry = &known.entries[known.count]
    known.count += 1
    entry.producer_id = producer_id
    entry.producer_epoch = -1
    forget_batches(entry)
    entry.timestamp = -1
    entry.coordinator_epoch = -1
    entry.current_txn_first_offset = -1
    if known.spans != NULL:
        known.spans[known.count - 1].state = NO_TRANSACTION
    if known.orders != NULL:
        begin_order(&known.orders[known.count - 1], NO_PRODUCER)
    return entry


cdef inline ks_producer_entry *entry_of(producer_slots *known, int64_t producer_id) noexcept nogil:
    """As `find_or_add`; active producers rarely share the last bits of their sequential ids."""
    cdef int64_t place = producer_id & (RECENT - 1)
    cdef ks_producer_entry *entry = known.entries + known.recent[place]
    # An unused place refers to the first entry, which is compared like any other.
    if known.count and entry.producer_id == producer_id:
        return entry
    entry = find_or_add(known, producer_id)
    if entry != NULL:
        known.recent[place] = <int32_t>(entry - known.entries)
    return entry


cdef inline void sift_down(producer_slots *known) noexcept nogil:
    """Restore the heap after its top was replaced."""
    cdef open_transaction *heap = known.opened
    cdef open_transaction moved = heap[0]
    cdef int64_t at = 0, child = 1
    while child < known.opened_count:
        if child + 1 < known.opened_count:
            if heap[child + 1].first_offset < heap[child].first_offset:
                child += 1
        if heap[child].first_offset >= moved.first_offset:
            break
        heap[at] = heap[child]
        at, child = child, 2 * child + 1
    if known.opened_count > 0:
        heap[at] = moved


cdef inline void push_opened(producer_slots *known, int64_t entry) noexcept nogil:
    cdef open_transaction *heap = known.opened
    cdef int64_t offset = known.entries[entry].current_txn_first_offset
    cdef int64_t at = known.opened_count, parent
    known.opened_count += 1
    while at > 0:
        parent = (at - 1) >> 1
        if heap[parent].first_offset <= offset:
            break
        heap[at] = heap[parent]
        at = parent
    heap[at].first_offset, heap[at].entry = offset, entry


cdef inline void rebuild_heap(producer_slots *known) noexcept nogil:
    cdef int64_t i
    known.opened_count = 0
    for i in range(known.count):
        if known.entries[i].current_txn_first_offset >= 0:
            push_opened(known, i)


cdef inline void add_opened(producer_slots *known, int64_t entry) noexcept nogil:
    """Add an open transaction; a full heap is rebuilt without its stale items."""
    if known.opened_count == known.opened_capacity:
        rebuild_heap(known)
    else:
        push_opened(known, entry)


cdef inline int64_t first_open_offset(producer_slots *known) noexcept nogil:
    """Return the first offset of the earliest open transaction; -1 if none is open."""
    cdef open_transaction *first = known.opened
    while known.opened_count > 0:
        if known.entries[first.entry].current_txn_first_offset == first.first_offset:
            return first.first_offset
        known.opened_count -= 1
        first[0] = first[known.opened_count]
        sift_down(known)
    return -1
