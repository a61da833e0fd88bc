"""Indexes of a segment: read, written, and those of offsets and times built from batches."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kafkascan._core import indexes as _core
from kafkascan.batch_columns import BatchTable, require_batch_table
from kafkascan.errors import (
    SENTENCES,
    STATUS,
    BatchTableError,
    CorruptIndexError,
    IndexOverflowError,
)
from kafkascan.files import AtomicFile
from kafkascan.layout import OFFSET_INDEX_ENTRY, TIME_INDEX_ENTRY, TRANSACTION_INDEX_ENTRY

IndexEntries: TypeAlias = "NDArray[np.void]"
"""Array of `OFFSET_INDEX_ENTRY`, `TIME_INDEX_ENTRY` or `TRANSACTION_INDEX_ENTRY`, shape (n,)."""

DEFAULT_INTERVAL_BYTES = 4096
"""Kafka's ``index.interval.bytes``."""

_LARGEST_INTERVAL = 2**63 - 1
_DTYPES = {
    "index": OFFSET_INDEX_ENTRY,
    "timeindex": TIME_INDEX_ENTRY,
    "txnindex": TRANSACTION_INDEX_ENTRY,
}


def build_offset_index(
    batches: BatchTable, /, *, base_offset: int, interval_bytes: int = DEFAULT_INTERVAL_BYTES
) -> IndexEntries:
    """
    Build the entries of a ``.index`` file, as Kafka's recovery would.

    Parameters
    ----------
    batches : array of BATCH_DTYPE, shape (n,)
        All of a segment, in file order.
    base_offset : int
        Of the segment: its file's name.
    interval_bytes : int, default 4096
        Kafka's ``index.interval.bytes``: an entry stands for more bytes than this.

    Returns
    -------
    ndarray of OFFSET_INDEX_ENTRY
        ``entries.tobytes()`` is the file.

    Raises
    ------
    IndexOverflowError
        If an offset lies before the segment's, or an offset or position 2**31 behind it.
    BatchTableError
        If offsets do not ascend.
    ValueError
        If `interval_bytes` is negative, or has more than 64 bits.

    Notes
    -----
    ``LogSegment.recover``. Brokers that append write the same entries, as long as they do not
    start anew in the middle of a segment, and append batch by batch (all do since KAFKA-806).
    """
    return build_indexes(batches, base_offset, interval_bytes)[0]


def build_time_index(
    batches: BatchTable, /, *, base_offset: int, interval_bytes: int = DEFAULT_INTERVAL_BYTES
) -> IndexEntries:
    """
    Build the entries of a ``.timeindex`` file, as Kafka's recovery would.

    Parameters
    ----------
    batches, base_offset, interval_bytes
        As of `build_offset_index`.

    Returns
    -------
    ndarray of TIME_INDEX_ENTRY
        With the entry that is added when a segment is closed.

    Raises
    ------
    As `build_offset_index`.
    """
    return build_indexes(batches, base_offset, interval_bytes)[1]


def require_interval_bytes(interval_bytes: int) -> int:
    """Return it; raise `ValueError` if it is negative, or has more than 64 bits."""
    if interval_bytes < 0:
        raise ValueError("interval_bytes must not be negative")
    if interval_bytes > _LARGEST_INTERVAL:
        raise ValueError(f"interval_bytes has 64 bits, too few for {interval_bytes}")
    return interval_bytes


def build_indexes(
    batches: BatchTable, base_offset: int, interval_bytes: int, path: str | None = None
) -> tuple[IndexEntries, IndexEntries]:
    """
    Build the entries of both indexes; as `build_offset_index` and `build_time_index`.

    Errors name the log if its `path` is given.
    """
    batches = require_batch_table(batches)
    require_interval_bytes(interval_bytes)
    offsets = np.empty((len(batches) + 1, 2), np.int64)
    times = np.empty((len(batches) + 1, 2), np.int64)
    status, row, offset_count, time_count = _core.build_into(
        batches, base_offset, interval_bytes, offsets, times
    )
    if status != STATUS["OK"]:
        position = None if path is None else int(batches["position"][row])
        if status == STATUS["OFFSET_OVERFLOW"]:
            raise IndexOverflowError(row, status, path, position)
        raise BatchTableError(path or "<batches>", row, status, position)
    return (
        _entries(offsets[:offset_count], OFFSET_INDEX_ENTRY),
        _entries(times[:time_count], TIME_INDEX_ENTRY),
    )


def _entries(values: NDArray[np.int64], dtype: np.dtype[Any]) -> IndexEntries:
    entries = np.empty(len(values), dtype)
    for column, name in enumerate(dtype.names or ()):
        entries[name] = values[:, column]
    return entries


def read_index(path: str | os.PathLike[str], /) -> IndexEntries:
    """
    Read a ``.index``, ``.timeindex`` or ``.txnindex`` file.

    Parameters
    ----------
    path : path
        Its name says which of them it is; ``.deleted``, ``.cleaned`` and ``.swap`` may follow.

    Returns
    -------
    ndarray of OFFSET_INDEX_ENTRY, TIME_INDEX_ENTRY or TRANSACTION_INDEX_ENTRY
        Without the zeros that a preallocated file ends with, and without a last entry of a
        ``.txnindex`` file that is cut off.

    Raises
    ------
    CorruptIndexError
        If the file is not made of whole entries (``OffsetIndex.sanityCheck``), or an entry
        of aborted transactions has a version that Kafka does not know (``AbortedTxn``).
    ValueError
        If the name is that of neither.
    OSError
        If the file cannot be read.
    """
    path = Path(path)
    _kind_of(path)  # before it is looked for
    return parse_index(path.read_bytes(), path)


def parse_index(data: bytes, path: Path) -> IndexEntries:
    """Return the entries that the bytes of a file of this name hold; as `read_index`."""
    kind = _kind_of(path)
    dtype = _DTYPES[kind]
    whole = len(data) - len(data) % dtype.itemsize
    if kind == "txnindex":
        return _known_version(path, np.frombuffer(data[:whole], dtype))
    if whole < len(data):
        raise _corrupt_index(path, whole, "ODD_INDEX_SIZE")
    entries = np.frombuffer(data, dtype)
    used = len(data.rstrip(b"\0"))
    return entries[: -(-used // dtype.itemsize)]


def entries_of(path: Path, data: bytes) -> IndexEntries:
    """Return bytes as entries of the kind that a file's name says."""
    return np.frombuffer(data, _DTYPES[_kind_of(path)])


def _known_version(path: Path, entries: IndexEntries) -> IndexEntries:
    later = np.flatnonzero(entries["version"] != 0)
    if len(later):
        position = int(later[0]) * entries.itemsize
        raise _corrupt_index(path, position, "BAD_TXN_INDEX_VERSION")
    return entries


def _corrupt_index(path: Path, position: int, symbol: str) -> CorruptIndexError:
    return CorruptIndexError(str(path), position, None, SENTENCES[STATUS[symbol]], symbol)


def _kind_of(path: Path) -> str:
    for suffix in path.suffixes[::-1]:
        if suffix[1:] in _DTYPES:
            return suffix[1:]
    raise ValueError(f"{path}: not named as an index of offsets, times or transactions")


def write_index(path: str | os.PathLike[str], entries: IndexEntries, /) -> None:
    """
    Write a ``.index``, ``.timeindex`` or ``.txnindex`` file.

    What was there before is replaced at once.

    Parameters
    ----------
    path : path
        Its name must say which of them it is.
    entries : array of OFFSET_INDEX_ENTRY, TIME_INDEX_ENTRY or TRANSACTION_INDEX_ENTRY

    Raises
    ------
    TypeError
        If the entries are those of another file.
    OSError
        If the file cannot be written; then nothing has changed.
    """
    path = Path(path)
    dtype = _DTYPES[_kind_of(path)]
    if not isinstance(entries, np.ndarray) or entries.dtype != dtype or entries.ndim != 1:
        raise TypeError(f"{path} takes a one-dimensional array of {dtype}")
    with AtomicFile(path) as file:
        file.stream.write(entries.tobytes())
