"""Producer snapshots and transaction indexes: build them from batches, read and write the files."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kafkascan.batches.columns import BatchTable, require_batch_table
from kafkascan.batches.scan import scan_batches
from kafkascan.broker_state.producer_state import ProducerState
from kafkascan.format.checksums import crc32c
from kafkascan.format.errors import SENTENCES, STATUS, CorruptSnapshotError
from kafkascan.format.layout import PRODUCER_ENTRY, SNAPSHOT_HEADER, TRANSACTION_INDEX_ENTRY
from kafkascan.io.atomic_files import AtomicFile
from kafkascan.io.folders import read_regular
from kafkascan.io.sources import SourceLike, borrowed_source

_SNAPSHOT_VERSION = 1
_SNAPSHOT_ENTRY = PRODUCER_ENTRY.newbyteorder(">")
_AT = {name: field[1] for name, field in (SNAPSHOT_HEADER.fields or {}).items()}
_AT_CRC, _AT_COUNT = _AT["crc"], _AT["producer_count"]
_NONE_ABORTED = np.empty(0, TRANSACTION_INDEX_ENTRY)


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
    source : path, bytes-like, Source or SegmentFile
        A segment.
    batches : array of BATCH_DTYPE, optional
        Rows of the source, in file order; all batches by default.
    prior : array of PRODUCER_ENTRY, optional
        Entries of the snapshot at the start of the segment.

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
        See `build_producer_snapshot`; transactions may have begun in earlier segments.

    Returns
    -------
    ndarray of TRANSACTION_INDEX_ENTRY
        Aborted transactions whose marker is in these batches, in the order of the markers. If
        there are none, Kafka does not create the file.

    Raises
    ------
    As `build_producer_snapshot`.
    """
    return transaction_index_entries(_applied(source, batches, prior)[1])


def transaction_index_entries(completed: NDArray[np.void]) -> NDArray[np.void]:
    """Return the ``.txnindex`` entries of the aborted ones among completed transactions."""
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
    # Not closed here: the traceback of an error may hold a table that views the source.
    with borrowed_source(source, close=False) as owner:
        if batches is None:
            batches = scan_batches(owner).batches
        applied = state.apply(owner, require_batch_table(batches))
    return state, applied.require_accepted()


# ---- files -----------------------------------------------------------------------------------


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
    return parse_producer_snapshot(read_regular(path), os.fspath(path))


def parse_producer_snapshot(data: bytes, path: str) -> NDArray[np.void]:
    """Parse the bytes of a ``.snapshot`` file; as `read_producer_snapshot`."""
    if len(data) < SNAPSHOT_HEADER.itemsize:
        raise _snapshot_error(path, 0, "BAD_SNAPSHOT_SIZE")
    version, crc, count = np.frombuffer(data, SNAPSHOT_HEADER, 1).item()
    if version != _SNAPSHOT_VERSION:
        raise _snapshot_error(path, 0, "BAD_SNAPSHOT_VERSION")
    size = len(data) - SNAPSHOT_HEADER.itemsize
    # Any bytes may follow the last entry; the checksum covers them.
    if not 0 <= count <= size // _SNAPSHOT_ENTRY.itemsize:
        raise _snapshot_error(path, _AT_COUNT, "BAD_SNAPSHOT_SIZE")
    if crc32c(memoryview(data)[_AT_COUNT:]) != crc:
        raise _snapshot_error(path, _AT_CRC, "BAD_SNAPSHOT_CRC")
    entries = np.frombuffer(data, _SNAPSHOT_ENTRY, count, SNAPSHOT_HEADER.itemsize)
    return entries.astype(PRODUCER_ENTRY)


def _snapshot_error(path: str, position: int, symbol: str) -> CorruptSnapshotError:
    return CorruptSnapshotError(path, position, None, SENTENCES[STATUS[symbol]], symbol)


def write_producer_snapshot(path: str | os.PathLike[str], entries: NDArray[np.void], /) -> None:
    """
    Write a ``.snapshot`` file atomically; an existing file is replaced.

    Parameters
    ----------
    path : path
        Kafka names the file by the offset after the last batch that the state covers.
    entries : array of PRODUCER_ENTRY, shape (n,)

    Raises
    ------
    TypeError
        If `entries` is not a one-dimensional array of PRODUCER_ENTRY.
    OSError
        If the file cannot be written; an existing file is unchanged.
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
    Drop the producers that a broker forgets when it loads a snapshot.

    They have been idle for `expiration_ms`, and have no open transaction (``isProducerExpired``).
    """
    if not len(entries):
        return entries
    idle = now_ms - entries["timestamp"] >= expiration_ms
    return entries[~(idle & (entries["current_txn_first_offset"] < 0))]
