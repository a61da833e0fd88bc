"""Read batch headers of files one by one, where a map is slower.

Of a file that is not in the page cache, a map, and any read with the system's read-ahead, fetches
everything between headers. Here each header is read by itself, and many are requested ahead: at
positions from the ``.index`` file, or by following several chains of batches whose starts are
guessed. Both are hints. Rows are read by a plain walk from batch to batch, so that they are the
same with any hints.

Of a cached file, a new map of it costs a page fault each few headers, which may take longer than a
read of each.
"""

from __future__ import annotations

import os

import numpy as np
from numpy.typing import NDArray

from kafkascan._core.cold_reads import LogFile
from kafkascan.batches.columns import BatchTable
from kafkascan.format.file_names import sibling_name
from kafkascan.format.layout import OFFSET_INDEX_ENTRY
from kafkascan.io.page_cache import SelectiveReads, open_selective
from kafkascan.io.sources import Source
from kafkascan.io.worker_threads import ChunkSizer

# Bytes below which an object is read in order: a few requests fetch all of it.
_SMALLEST_OBJECT = 1 << 22
# Headers that are requested ahead: at first, and then.
_FIRST_REQUESTED, _REQUESTED = 16, 1024
# An index is dense if it contains at least 2 of 3 batches: a walk waits for each of the others.
_BATCHES_PER_HINT = 1.5


class StoredHeaders:
    """
    Requests headers at positions from the ``.index`` of a log, which are hints.

    The walk reads the rows from batch to batch, so that they are the same with any hints.

    Parameters
    ----------
    source : Source
    """

    def __init__(self, source: Source) -> None:
        self._ahead = source.ahead if source.size >= _SMALLEST_OBJECT else None
        self._hints: NDArray[np.int64] | None = None
        self._requested_to = -1
        self._again_from = 0
        self._count = _FIRST_REQUESTED
        self._batches_left = 0  # more batches before `_again_from` than that: a sparse index

    def request(self, position: int, stop: int) -> None:
        """Request the next headers of a walk that is at a position."""
        if self._ahead is None or position < self._again_from:
            return
        if self._hints is None:
            self._hints = _positions_in(self._ahead.read_index())
        first, last = np.searchsorted(self._hints, (position, stop)).tolist()
        found = self._hints[first : min(last, first + self._count)]
        if len(found) < 2 or not self._ahead.should_skip_gap(
            int(found[-1] - found[0]) // len(found)
        ):
            self._ahead = None
            return
        self._ahead.request(found[found > self._requested_to].tolist())
        self._requested_to = int(found[-1])
        self._again_from = int(found[len(found) // 2])
        self._batches_left = int(_BATCHES_PER_HINT * (len(found) // 2)) + 2
        self._count = _REQUESTED

    def note(self, batches: int) -> None:
        """Take the number of batches that the walk found."""
        self._batches_left -= batches
        if self._batches_left < 0:
            self._ahead = None


def _positions_in(index: bytes | None) -> NDArray[np.int64]:
    count = 0 if index is None else len(index) // OFFSET_INDEX_ENTRY.itemsize
    return starts_of(np.frombuffer(index or b"", OFFSET_INDEX_ENTRY, count))


# Entries that are read of an index: more than Kafka's default segment.index.bytes holds.
_MAX_INDEX_ENTRIES = 1 << 21


def known_starts(log_path: str | os.PathLike[str]) -> NDArray[np.int64] | None:
    """
    Read batch positions from the ``.index`` file beside a log, as hints.

    A walk checks each position against the bytes of the log, so a stale, damaged or forged index
    costs time but does not change the result.

    Parameters
    ----------
    log_path : path

    Returns
    -------
    ndarray of int64, shape (n,), or None
        Ascending; None if no index can be read.
    """
    folder, name = os.path.split(os.fspath(log_path))
    index = sibling_name(name, "index")
    if index is None:
        return None
    try:
        entries = np.fromfile(os.path.join(folder, index), OFFSET_INDEX_ENTRY, _MAX_INDEX_ENTRIES)
    except OSError:
        return None
    return starts_of(entries)


def starts_of(entries: NDArray[np.void]) -> NDArray[np.int64]:
    """Return the positions in entries of an offset index, ascending."""
    # A preallocated index ends with zeros; a forged one may not be sorted.
    positions = entries["position"].astype(np.int64)
    positions = positions[: np.count_nonzero(positions) + 1]
    is_ascending = bool((positions[1:] > positions[:-1]).all())
    return positions if is_ascending else np.unique(positions)


def scan_cached(source: Source, position: int, stop: int, rows: BatchTable) -> tuple[int, int, int]:
    """Fill rows with headers that are read one by one; return what `scan_into` does."""
    with source.borrowed_descriptor() as descriptor:
        file = LogFile(descriptor, source.file_start, source.size)
        return file.scan_into(position, stop, rows)


# Bytes below which a piece is read as if it were cached: a few requests fetch all of it.
_SMALLEST_PIECE = 1 << 20
# Bytes after which the page cache is sampled again: of a cached piece, and of a cold one.
_CACHED_PIECE, _COLD_PIECE = 1 << 30, 1 << 26
# Headers of a cold file may be cached, so a few pages are sampled.
_BYTES_PER_SAMPLE, _FEWEST_SAMPLES = 1 << 28, 3
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


class ColdHeaders:
    """
    Chooses by pieces of a file how a walk reads its headers, and reads them if they are cold.

    Parameters
    ----------
    source : Source

    Attributes
    ----------
    is_cold : bool
        Whether the piece that was checked last is not cached.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._reads: SelectiveReads | None = None
        self.is_cold = False
        self._checked_to = -1  # what is cached was sampled up to there
        self._hinted_to = -1  # headers from the index
        self._followed_to = 0  # headers of all chains
        self._batch_size = 0  # of the last batches, on average; 0 if unknown
        self._hints = np.empty(0, np.int64)  # positions of batches, from the index
        self._guess_from, self._guess_pause = 0, 1

    def is_for(self, position: int, end: int) -> bool:
        """
        Whether to read the next headers with `scan`.

        Parameters
        ----------
        position : int
            Of the next batch.
        end : int
            Where the walk ends.
        """
        # Pages that were read to guess would make a piece look cached.
        if position >= max(self._checked_to, self._followed_to):
            self._check(position, end)
        smallest = _LARGE_BATCH if len(self._hints) else _LARGE_GUESSED_BATCH
        return self.is_cold and not 0 < self._batch_size < smallest

    def note(self, batches: int, size: int) -> None:
        """Take number and bytes of the batches that were walked over."""
        if batches:
            self._batch_size = max(1, size // batches)

    def scan(self, position: int, stop: int, rows: BatchTable) -> tuple[int, int, int]:
        """
        Fill rows with headers; return status, number of rows and position, as `scan_into` does.

        Parameters
        ----------
        position, stop : int
            Of the whole walk: headers are requested up to there, if the rows have room for them.
        rows : ndarray of BATCH_DTYPE
            Not all of them may be filled: it pauses to handle signals.
        """
        assert self._reads is not None
        with self._reads.open() as file:
            if self._batch_size == 0:
                rows = rows[:_FIRST_ROWS]
            else:
                stop = self._request(file, position, stop, len(rows))
            return file.scan_into(position, stop, rows[:_ROWS_AT_ONCE])

    def _check(self, position: int, stop: int) -> None:
        """Sample whether the next piece is cached: a large one if it is, else a smaller one."""
        large = min(stop, position + _CACHED_PIECE)
        samples = _FEWEST_SAMPLES + (large - position) // _BYTES_PER_SAMPLE
        if large - position < _SMALLEST_PIECE or self._source.is_cached(position, large, samples):
            self.is_cold, self._checked_to = False, large
            return
        self._checked_to = min(stop, position + _COLD_PIECE)
        self.is_cold = not self._source.is_cached(position, self._checked_to, 1 + _FEWEST_SAMPLES)
        if self.is_cold and self._reads is None:
            self._open()

    def _open(self) -> None:
        self._reads = open_selective(self._source)
        self.is_cold = self._reads is not None
        known = known_starts(self._source.path) if self._source.is_file else None
        if known is not None:
            self._hints = known
            if self._batch_size == 0 and len(known) >= _FEWEST_HINTS:
                # Batches are at most as far apart; this is corrected after the first ones.
                self._batch_size = int(known[-1] - known[0]) // (len(known) - 1)

    def _request(self, file: LogFile, position: int, stop: int, rows: int) -> int:
        """Request the next headers; return the position up to which to walk over them."""
        if position < self._followed_to:
            return min(stop, self._followed_to)
        stop = min(stop, position + rows * self._batch_size)
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
        if expected > _BATCHES_PER_HINT * len(now):
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
                self._followed_to, self._guess_pause = stop, 1
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
