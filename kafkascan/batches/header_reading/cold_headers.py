"""Read the batch headers of a cold file one by one, many of them in flight.

Of a file that is not in the page cache, a map, and any read with the system's read-ahead, fetches
everything between headers. Here each header is read by itself, and many are requested ahead: at
positions from the ``.index`` file, or by following several chains of batches whose starts are
guessed. Both are hints. Rows are read by a plain walk from batch to batch, so that they are the
same with any hints.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kafkascan._core.cold_reads import LogFile
from kafkascan.batches.columns import BatchTable
from kafkascan.batches.header_reading.known_starts import BATCHES_PER_HINT, known_starts
from kafkascan.io.page_cache import SelectiveReads, open_selective
from kafkascan.io.sources import Source
from kafkascan.io.worker_threads import ChunkSizer

# Average size from which on batches are read by header. Pages for each smaller batch would be most
# of the file, in many more requests: the system's own read-ahead is faster.
_LARGE_BATCH = 1 << 13
# The same without an index: fewer reads are in flight, and some of them are for guesses.
_LARGE_GUESSED_BATCH = 1 << 15
# Headers that are read to learn the size of batches.
_FIRST_ROWS = 8
# Rows after which a walk over requested headers, and one that waits for each, handles signals.
_ROWS_AT_ONCE = 1 << 14
_WAITS_AT_ONCE = 1 << 8
# Headers from an index that are requested together; as many more are requested meanwhile.
_HINTS_AT_ONCE = 512
# Entries from which on an index tells the size of batches before any of them is read.
_FEWEST_HINTS = 4
# Chains in flight, the steps of each that pay for its guess, and the bytes to divide at a time.
_CHAINS = 32
_SMALLEST_CHAIN = 8
_CHAINED_BYTES = 1 << 30
# Bytes that a header costs, and the share of them that guesses may cost in addition.
_HEADER_COST = 4_160
_GUESS_SHARE = 0.4
# Bytes of a guess, in batches: on average, and at most. It reads them in steps.
_GUESS_COST, _GUESS_LIMIT = 0.55, 3
_GUESS_STEP = 1 << 17


def open_cold_headers(source: Source, walk_stop: int) -> ColdHeaders | None:
    """Return a reader of cold headers; None if the system provides no single reads."""
    reads = open_selective(source)
    return None if reads is None else ColdHeaders(reads, known_starts(source), walk_stop)


class ColdHeaders:
    """Headers of a cold file, read one by one and requested ahead; a `HeaderReader`."""

    def __init__(self, reads: SelectiveReads, hints: NDArray[np.int64], walk_stop: int) -> None:
        self._reads, self._hints, self._walk_stop = reads, hints, walk_stop
        self._hinted_to = -1  # headers from the index
        self.followed_to = 0  # headers of all chains
        self._batch_size = 0  # of the last batches, on average; 0 if unknown
        self._guess_from, self._guess_pause = 0, 1

    def is_for(self, batch_size: int) -> bool:
        """Take the average size of batches, 0 if unknown; return whether it is large enough."""
        if batch_size == 0 and len(self._hints) >= _FEWEST_HINTS:
            # Batches are at most as far apart; this is corrected after the first ones.
            batch_size = int(self._hints[-1] - self._hints[0]) // (len(self._hints) - 1)
        self._batch_size = batch_size
        smallest = _LARGE_BATCH if len(self._hints) else _LARGE_GUESSED_BATCH
        return not 0 < batch_size < smallest

    def fill(self, position: int, stop: int, rows: BatchTable) -> tuple[int, int, int]:
        """See `HeaderReader`: it pauses after a number of headers, not at `stop`."""
        with self._reads.open() as file:
            if self._batch_size == 0:
                rows, stop = rows[:_FIRST_ROWS], self._walk_stop
            else:
                stop = self._request(file, position, len(rows))
            return file.scan_into(position, stop, rows[:_ROWS_AT_ONCE])

    def _request(self, file: LogFile, position: int, rows: int) -> int:
        """Request the next headers; return the position up to which to walk over them."""
        if position < self.followed_to:
            return self.followed_to
        stop = min(self._walk_stop, position + rows * self._batch_size)
        first, last = np.searchsorted(self._hints, (position, stop), "right").tolist()
        # One hint is the header at the position, or follows the last one of a stale index.
        if last - first > 1:
            return self._request_hints(file, position, stop, self._hints[first:last])
        return self._request_guesses(file, position, stop)

    def _request_hints(
        self, file: LogFile, position: int, stop: int, hints: NDArray[np.int64]
    ) -> int:
        now, ahead = hints[:_HINTS_AT_ONCE], hints[: 2 * _HINTS_AT_ONCE]
        # The later ones are read while the walk waits for the first ones.
        file.request_headers(ahead[np.searchsorted(ahead, self._hinted_to, "right") :])
        self._hinted_to = max(self._hinted_to, int(ahead[-1]))
        stop = int(ahead[len(now)]) if len(ahead) > len(now) else min(stop, int(now[-1]) + 1)
        expected = (stop - position) // self._batch_size
        if expected > BATCHES_PER_HINT * len(now):
            _follow(file, now, stop, expected)
        return stop

    def _request_guesses(self, file: LogFile, position: int, stop: int) -> int:
        stop = min(stop, position + _CHAINED_BYTES)
        expected = (stop - position) // self._batch_size
        affordable = _GUESS_SHARE * expected * _HEADER_COST / (_GUESS_COST * self._batch_size)
        chains = min(_CHAINS, 1 + int(affordable), expected // _SMALLEST_CHAIN)
        if chains > 1 and position >= self._guess_from:
            starts = self._guess(file, position, (stop - position) // chains, chains)
            if 2 * len(starts) > chains:
                _follow(file, starts, stop, expected)
                self.followed_to, self._guess_pause = stop, 1
                return stop
            # Guesses fail here: try again later, after increasing intervals.
            self._guess_pause *= 4
            self._guess_from = position + self._guess_pause * (stop - position)
        return min(stop, position + _WAITS_AT_ONCE * self._batch_size)

    def _guess(self, file: LogFile, position: int, spacing: int, chains: int) -> NDArray[np.int64]:
        """Return the starts of chains: the position, and plausible batches after it."""
        starts = [position]
        offset = file.offset_of(position)
        if offset is None:  # starts can be guessed for magic 2 only
            return np.array(starts, np.int64)
        buffer = np.empty(min(max(self._batch_size, _HEADER_COST), _GUESS_STEP), np.uint8)
        targets = [position + spacing * chain for chain in range(1, chains)]
        for target in targets:
            file.request(target, len(buffer))
        for target in targets:
            limit = target + min(spacing, _GUESS_LIMIT * self._batch_size)
            found = file.guess(target, limit, offset, buffer)
            if found > starts[-1]:
                starts.append(found)
        return np.array(starts, np.int64)


def _follow(file: LogFile, starts: NDArray[np.int64], stop: int, expected: int) -> None:
    """Read headers from several starts alternately, each up to the next start."""
    positions = starts.copy()
    stops = np.append(starts[1:], stop)
    steps, pace = 2 * expected, ChunkSizer(_HINTS_AT_ONCE)
    # Wrong starts lead to chains of any length.
    while steps > 0 and (taken := file.follow_chains(positions, stops, pace.next_size())):
        steps -= taken
