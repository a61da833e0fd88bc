"""What a broker knows of producers: built from batches, read from and written to snapshots."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kafkascan._core import producers as _core
from kafkascan.batch_columns import (
    BatchTable,
    is_control,
    is_transactional,
    require_batch_table,
)
from kafkascan.batches import scan_batches
from kafkascan.checksums import crc32c
from kafkascan.errors import (
    SENTENCES,
    STATUS,
    CorruptBatchError,
    CorruptSnapshotError,
    record_error,
)
from kafkascan.files import AtomicFile
from kafkascan.layout import PRODUCER_ENTRY, SNAPSHOT_HEADER, TRANSACTION_INDEX_ENTRY
from kafkascan.sources import Source, SourceLike, borrowed_source
from kafkascan.transactions import TRANSACTION, ControlRows, read_control_rows

PRODUCER_EXPIRATION_MS = 86_400_000
"""Kafka's ``producer.id.expiration.ms``: an idle producer is forgotten after this time."""

COMPLETED_TRANSACTION = np.dtype(
    [
        ("row", "=i8"),
        ("producer_id", "=i8"),
        ("first_offset", "=i8"),
        ("last_offset", "=i8"),
        ("last_stable_offset", "=i8"),
        ("is_aborted", "=i1"),
    ]
)
"""A transaction that a marker ended: ``row`` is that of the marker's batch, ``last_offset`` its
offset, ``last_stable_offset`` where the first transaction of another producer that was still
open began, or what follows the marker."""

PRODUCER_ORDER = np.dtype(
    [
        (name, "=i8")
        for name in (
            "producer_id", "producer_epoch", "last_sequence", "holes_before", "last_seen_ms",
            "first_epoch", "wraps", "epoch_bumps", "sequence_gaps", "missing_records",
            "first_gap", "duplicates", "first_duplicate", "fenced", "first_fenced", "forgotten",
        )
    ]
)  # fmt: skip
"""In which order the batches of a producer came; the names are those of `PRODUCER_COUNTS`."""

LOG_PLACE = np.dtype([("next_offset", "=i8"), ("holes", "=i8"), ("expiration_ms", "=i8")])
"""Where a log has been followed to, and how many times offsets were missing before."""

# Kafka takes records that it cannot read for the end of a log, but not what its codecs throw.
_FATAL = ("UNSUPPORTED_COMPRESSION", "BAD_COMPRESSED_DATA", "OUTPUT_TOO_LARGE")
_SNAPSHOT_VERSION = 1
_SNAPSHOT_ENTRY = PRODUCER_ENTRY.newbyteorder(">")
_FIRST_ROOM = 64
_FEW = 1 << 14
_FIRST_BUCKETS = 16
_NO_PRODUCERS = np.empty(0, PRODUCER_ENTRY)
_NO_SLOTS = np.empty(0, np.int32)
_OPEN_TRANSACTION = np.dtype([("first_offset", "=i8"), ("entry", "=i8")])
_NONE_OPEN = np.empty(0, _OPEN_TRANSACTION)
_NO_SPANS = np.empty(0, TRANSACTION)
_NO_ORDERS = np.empty(0, PRODUCER_ORDER)
_NO_PLACE = np.empty(0, LOG_PLACE)
_NONE_ABORTED = np.empty(0, TRANSACTION_INDEX_ENTRY)
_NONE_COMPLETED = np.empty(0, COMPLETED_TRANSACTION)


def empty_slots(capacity: int) -> NDArray[np.int32]:
    """
    Return room to note where so many producers are found, by hash.

    Where they are few, there is room enough for hardly any to be found beside its place: a
    branch that is guessed wrong takes as long as all the rest that is done for a batch.
    """
    spread = 8 if capacity <= _FEW else 2
    return np.full(1 << (spread * capacity - 1).bit_length(), -1, np.int32)


class RefusedBatchError(Exception):
    """
    A batch at which Kafka stops to read a segment, or refuses the log.

    Attributes
    ----------
    row : int
    error : CorruptBatchError
    is_fatal : bool
        Whether Kafka refuses the log; otherwise the segment is cut behind the batch.
    completed : ndarray of COMPLETED_TRANSACTION
        Transactions that ended before.
    """

    def __init__(
        self, row: int, error: CorruptBatchError, completed: NDArray[np.void], *, is_fatal: bool
    ) -> None:
        super().__init__(row, error)
        self.row = row
        self.error = error
        self.completed = completed
        self.is_fatal = is_fatal


class ProducerState:
    """
    The producers of a partition, as ``ProducerStateManager`` holds them.

    Parameters
    ----------
    entries : array of PRODUCER_ENTRY, optional
        What a snapshot says, in its order.
    """

    def __init__(self, entries: NDArray[np.void] | None = None) -> None:
        self._entries = _NO_PRODUCERS if entries is None else _last_of_each(entries)
        self._count = len(self._entries)
        # Where producers are found; made when there are some to look for.
        self._slots = _NO_SLOTS
        self._opened, self._open_count = _NONE_OPEN, -1
        # What `ProducerTrails` asks for besides.
        self._spans, self._orders, self._place = _NO_SPANS, _NO_ORDERS, _NO_PLACE
        self._is_known = True

    def __len__(self) -> int:
        return self._count

    def _make_room(self, capacity: int) -> None:
        """Make room for some producers, and notes of where they are found."""
        if len(self._slots) and capacity <= len(self._entries):
            return
        known, capacity = self._entries[: self._count], max(capacity, _FIRST_ROOM)
        self._entries = np.empty(capacity, PRODUCER_ENTRY)
        self._entries[: len(known)] = known
        self._slots = empty_slots(capacity)
        _core.index_entries(self._entries, len(known), self._slots)
        # Twice as many: those that have ended are looked through once in so many others.
        self._opened, self._open_count = np.empty(2 * capacity, _OPEN_TRANSACTION), -1

    def apply(self, source: Source, batches: BatchTable) -> NDArray[np.void]:
        """
        Apply batches one after the other, as recovery does (``LogSegment.recover``).

        Parameters
        ----------
        source : Source
            Read for control batches only.
        batches : array of BATCH_DTYPE, shape (n,)
            In log order.

        Returns
        -------
        ndarray of COMPLETED_TRANSACTION

        Raises
        ------
        RefusedBatchError
            At a batch that Kafka refuses. Those before it have been applied.
        """
        if not (batches["producer_id"] >= 0).any():
            return _NONE_COMPLETED
        return self.apply_read(batches, read_control_rows(source, batches), source.path)

    def apply_read(self, batches: BatchTable, control: ControlRows, path: str) -> NDArray[np.void]:
        """
        Apply batches whose control records have been read; as `apply`.

        Parameters
        ----------
        batches : array of BATCH_DTYPE, shape (n,)
        control : ControlRows
            Of these batches.
        path : str
            Of their source, for errors.
        """
        self._make_room(self._count)
        markers, errors = control.markers, control.errors
        stop = int(control.rows[min(errors)]) if errors else len(batches)
        completed = np.empty(len(markers), COMPLETED_TRANSACTION)
        spans = np.empty(len(markers) if len(self._spans) else 0, TRANSACTION)
        row = said = ended = emptied = 0
        status = STATUS["OUTPUT_FULL"]
        while status == STATUS["OUTPUT_FULL"]:
            (
                status, rows, markers_read, now_ended, now_emptied, self._count, self._open_count
            ) = _core.apply_into(
                batches[row:stop], markers[said:], self._entries, self._count, self._slots,
                self._opened, self._open_count, completed[ended:], self._spans, spans[emptied:],
                self._orders, self._place, self._is_known,
            )  # fmt: skip
            completed["row"][ended : ended + now_ended] += row
            row, said = row + rows, said + markers_read
            ended, emptied = ended + now_ended, emptied + now_emptied
            if status == STATUS["OUTPUT_FULL"]:
                self._make_room(2 * len(self._entries))
        self._take_spans(spans[:emptied])
        if status != STATUS["OK"]:
            error = record_error(status, path, batches[row])
            raise RefusedBatchError(row, error, completed[:ended], is_fatal=True)
        if errors:
            unreadable = errors[min(errors)]
            is_fatal = unreadable.symbol in _FATAL
            raise RefusedBatchError(stop, unreadable, completed[:ended], is_fatal=is_fatal)
        return completed[:ended]

    def _take_spans(self, spans: NDArray[np.void]) -> None:
        """Take what was in the transactions that ended; see `ProducerTrails`."""

    def apply_at_once(self, source: Source, batches: BatchTable) -> NDArray[np.void]:
        """
        Apply batches, then make new producers known in the order of a Java ``HashMap``.

        That is what a broker does for segments that are read without being recovered
        (``UnifiedLog.loadProducersFromRecords``).

        Parameters
        ----------
        source, batches
            As of `apply`.

        Returns
        -------
        ndarray of COMPLETED_TRANSACTION

        Raises
        ------
        RefusedBatchError
        """
        writers = batches["producer_id"][batches["producer_id"] >= 0]
        ids, first = np.unique(writers, return_index=True)
        ids = ids[np.argsort(first, kind="stable")]
        news = ProducerState(self._without_batches(ids))
        completed = news.apply(source, batches)
        # It knows of all that have begun, by their offsets, and then of those that have ended.
        again = _repeated(completed["first_offset"])
        if again is not None:
            row = int(completed["row"][again])
            error = _not_begun(source.path, batches[row])
            raise RefusedBatchError(row, error, completed[:again], is_fatal=True)
        order = np.argsort(ids)
        found = news._entries[: news._count]
        found = found[np.argsort(found["producer_id"])][np.argsort(order)]
        # Each batch asks for its producer, and only then does the map see that it is full.
        asked_before = int((first < len(writers) - 1).sum())
        order = java_hash_order(ids[::-1], buckets_for=asked_before)
        self._make_room(self._count + len(found))
        self._count = _core.merge_into(
            found[::-1].take(order), self._entries, self._count, self._slots
        )
        self._open_count = -1
        return completed

    def _without_batches(self, ids: NDArray[np.int64]) -> NDArray[np.void]:
        """Return what is known of some producers but for their last batches."""
        known = self._entries[: self._count]
        known = known[np.isin(known["producer_id"], ids)]
        known["last_sequence"] = known["last_offset"] = -1
        known["offset_delta"] = 0
        return known

    def open_transactions(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the producers that have open transactions, and the first offsets of these."""
        known = self._entries[: self._count]
        first = known["current_txn_first_offset"]
        rows = np.flatnonzero(first >= 0)
        return known["producer_id"][rows], first[rows]

    def entries(self) -> NDArray[np.void]:
        """
        Return what is known of each producer.

        Returns
        -------
        ndarray of PRODUCER_ENTRY
            In the order of a snapshot: that of the broker's ``HashMap``.
        """
        if not self._count:
            return _NO_PRODUCERS
        known = self._entries[: self._count]
        return known.take(java_hash_order(known["producer_id"]))


def _last_of_each(entries: NDArray[np.void]) -> NDArray[np.void]:
    """Leave out what a map would forget: entries of which another one follows."""
    ids = entries["producer_id"]
    _, last = np.unique(ids[::-1], return_index=True)
    return entries if len(last) == len(ids) else entries.take(np.sort(len(ids) - 1 - last))


def require_begun(
    path: str,
    batches: BatchTable,
    completed: NDArray[np.void],
    open_before: tuple[NDArray[np.int64], NDArray[np.int64]],
) -> None:
    """
    Fail where Kafka fails: it knows transactions by their first offsets, of which there is one.

    Where batches are repeated, two producers may have begun at the same one. The first that
    ends takes both away.

    Parameters
    ----------
    path : str
        Of the source, for errors.
    batches : array of BATCH_DTYPE, shape (n,)
        That were applied one after the other.
    completed : array of COMPLETED_TRANSACTION
        What came of it.
    open_before : tuple of ndarray
        What `ProducerState.open_transactions` said before.

    Raises
    ------
    RefusedBatchError
    """
    if _repeated(completed["first_offset"]) is None:
        return
    producers, offsets = (one.tolist() for one in open_before)
    current, ongoing = dict(zip(producers, offsets, strict=True)), set(offsets)
    ended = {row: number for number, row in enumerate(completed["row"].tolist())}
    rows = np.flatnonzero(is_transactional(batches) & (batches["producer_id"] >= 0))
    is_marker = is_control(batches)
    for row in rows.tolist():
        producer, offset = int(batches["producer_id"][row]), int(batches["base_offset"][row])
        if row in ended:
            first = current.pop(producer, None)
            if first not in ongoing:
                error = _not_begun(path, batches[row])
                raise RefusedBatchError(row, error, completed[: ended[row]], is_fatal=True)
            ongoing.remove(first)
        elif not is_marker[row] and producer not in current:
            current[producer] = offset
            ongoing.add(offset)


def _repeated(values: NDArray[np.int64]) -> int | None:
    """Return where a value stands for the second time, if one does."""
    known = values.tolist()
    if len(set(known)) == len(known):
        return None
    seen: set[int] = set()
    for row, value in enumerate(known):
        if value in seen:
            return row
        seen.add(value)
    return None


def _not_begun(path: str, batch: np.void) -> CorruptBatchError:
    detail = "another transaction began at the same offset, and Kafka does not know of this one"
    return record_error("BAD_CONTROL_RECORD", path, batch, detail)


def java_hash_order(ids: NDArray[np.int64], *, buckets_for: int | None = None) -> NDArray[np.intp]:
    """
    Return the order in which a ``java.util.HashMap<Long, …>`` goes through its keys.

    Parameters
    ----------
    ids : ndarray of int64
        Distinct, in the order in which they were put there. (``computeIfAbsent`` puts them
        before others, so that the order is the reverse one.)
    buckets_for : int, optional
        For how many keys the map has made room; by default for all of them.

    Notes
    -----
    By bucket, and in a bucket as they came. Buckets double when three quarters are used.
    """
    count = len(ids) if buckets_for is None else buckets_for
    buckets = _FIRST_BUCKETS
    while count > buckets * 3 // 4:
        buckets *= 2
    unsigned = ids.astype(np.uint64)
    hashes = (unsigned ^ unsigned >> np.uint64(32)).astype(np.uint32)
    hashes ^= hashes >> np.uint32(16)
    return np.argsort(hashes & np.uint32(buckets - 1), kind="stable")


def build_producer_snapshot(
    source: SourceLike,
    batches: BatchTable | None = None,
    /,
    *,
    prior: NDArray[np.void] | None = None,
) -> NDArray[np.void]:
    """
    Build the entries of a ``.snapshot`` file, as Kafka's recovery would.

    Parameters
    ----------
    source : path, bytes-like, Source or Segment
        A segment.
    batches : array of BATCH_DTYPE, optional
        Rows of the source, in file order; all of it by default.
    prior : array of PRODUCER_ENTRY, optional
        What was known before: the entries of the snapshot at the start of the segment.

    Returns
    -------
    ndarray of PRODUCER_ENTRY
        In Kafka's order.

    Raises
    ------
    InvalidRecordError, UnsupportedCompressionError
        If Kafka would refuse a control record, or the log.
    As `scan_batches`, if `batches` is not given.
    """
    return _applied(source, batches, prior)[0].entries()


def build_transaction_index(
    source: SourceLike,
    batches: BatchTable | None = None,
    /,
    *,
    prior: NDArray[np.void] | None = None,
) -> NDArray[np.void]:
    """
    Build the entries of a ``.txnindex`` file, as Kafka's recovery would.

    Parameters
    ----------
    source, batches, prior
        As of `build_producer_snapshot`: transactions may have begun in segments before.

    Returns
    -------
    ndarray of TRANSACTION_INDEX_ENTRY
        Aborted transactions whose marker is in these batches, in order of the markers. Kafka
        has no such file where there are none.

    Raises
    ------
    As `build_producer_snapshot`.
    """
    return transaction_index_entries(_applied(source, batches, prior)[1])


def transaction_index_entries(completed: NDArray[np.void]) -> NDArray[np.void]:
    """Return the entries that aborted transactions have in a ``.txnindex`` file."""
    if not len(completed):
        return _NONE_ABORTED
    aborted = completed[completed["is_aborted"] == 1]
    entries = np.zeros(len(aborted), TRANSACTION_INDEX_ENTRY)
    for name in ("producer_id", "first_offset", "last_offset", "last_stable_offset"):
        entries[name] = aborted[name]
    return entries


def _applied(
    source: SourceLike, batches: BatchTable | None, prior: NDArray[np.void] | None
) -> tuple[ProducerState, NDArray[np.void]]:
    state = ProducerState(prior)
    # Not closed here: an error's traceback may hold a table that views it.
    with borrowed_source(source, close=False) as owner:
        if batches is None:
            batches = scan_batches(owner).batches
        try:
            return state, state.apply(owner, require_batch_table(batches))
        except RefusedBatchError as refused:
            raise refused.error from None


# ---- files -----------------------------------------------------------------------------------

_AT = {name: field[1] for name, field in (SNAPSHOT_HEADER.fields or {}).items()}
_AT_CRC, _AT_COUNT = _AT["crc"], _AT["producer_count"]


def read_producer_snapshot(path: str | os.PathLike[str], /) -> NDArray[np.void]:
    """
    Read a ``.snapshot`` file.

    Returns
    -------
    ndarray of PRODUCER_ENTRY
        In the order of the file.

    Raises
    ------
    CorruptSnapshotError
        If Kafka would refuse the file (``ProducerStateManager.readSnapshot``).
    OSError
    """
    return parse_producer_snapshot(Path(path).read_bytes(), os.fspath(path))


def parse_producer_snapshot(data: bytes, path: str) -> NDArray[np.void]:
    """Return the entries that the bytes of a snapshot hold; as `read_producer_snapshot`."""
    if len(data) < SNAPSHOT_HEADER.itemsize:
        raise _snapshot_error(path, 0, "BAD_SNAPSHOT_SIZE")
    header = np.frombuffer(data, SNAPSHOT_HEADER, 1)[0]
    if header["version"] != _SNAPSHOT_VERSION:
        raise _snapshot_error(path, 0, "BAD_SNAPSHOT_VERSION")
    size = len(data) - SNAPSHOT_HEADER.itemsize
    # Behind the last entry anything may follow, as long as the checksum knows of it.
    if not 0 <= header["producer_count"] <= size // _SNAPSHOT_ENTRY.itemsize:
        raise _snapshot_error(path, _AT_COUNT, "BAD_SNAPSHOT_SIZE")
    if crc32c(memoryview(data)[_AT_COUNT:]) != header["crc"]:
        raise _snapshot_error(path, _AT_CRC, "BAD_SNAPSHOT_CRC")
    count, start = int(header["producer_count"]), SNAPSHOT_HEADER.itemsize
    return np.frombuffer(data, _SNAPSHOT_ENTRY, count, start).astype(PRODUCER_ENTRY)


def _snapshot_error(path: str, position: int, symbol: str) -> CorruptSnapshotError:
    return CorruptSnapshotError(path, position, None, SENTENCES[STATUS[symbol]], symbol)


def write_producer_snapshot(path: str | os.PathLike[str], entries: NDArray[np.void], /) -> None:
    """
    Write a ``.snapshot`` file; what was there before is replaced at once.

    Parameters
    ----------
    path : path
        Kafka's name of it is the offset that the state covers all before of.
    entries : array of PRODUCER_ENTRY, shape (n,)

    Raises
    ------
    TypeError
        If the entries are none.
    OSError
        If the file cannot be written; then nothing has changed.
    """
    data = snapshot_file(entries)
    with AtomicFile(Path(path)) as file:
        file.stream.write(data)


def snapshot_file(entries: NDArray[np.void]) -> bytes:
    """Return the bytes of a ``.snapshot`` file."""
    if not isinstance(entries, np.ndarray) or entries.dtype != PRODUCER_ENTRY or entries.ndim != 1:
        raise TypeError("a snapshot takes a one-dimensional array of PRODUCER_ENTRY")
    header = np.zeros((), SNAPSHOT_HEADER)
    header["version"] = _SNAPSHOT_VERSION
    header["producer_count"] = len(entries)
    covered = header.tobytes()[_AT_COUNT:]
    if len(entries):
        covered += entries.astype(_SNAPSHOT_ENTRY).tobytes()
    header["crc"] = crc32c(covered)
    return header.tobytes()[:_AT_COUNT] + covered


def unexpired(entries: NDArray[np.void], now_ms: int, expiration_ms: int) -> NDArray[np.void]:
    """
    Leave out producers that a broker forgets when it loads a snapshot.

    Those are idle for a time, without an open transaction (``isProducerExpired``).
    """
    if not len(entries):
        return entries
    idle = now_ms - entries["timestamp"] >= expiration_ms
    return entries[~(idle & (entries["current_txn_first_offset"] < 0))]
