"""Index files of a segment: read, write, and build offset and time indexes from batches."""

from __future__ import annotations

import copy
import os
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kafkascan._core import indexes as _core
from kafkascan.batches.columns import BatchTable, join_rows, last_offset, require_batch_table
from kafkascan.broker_state.index_schemas import DEFAULT_INTERVAL_BYTES
from kafkascan.format.arguments import require_integers, require_not_negative
from kafkascan.format.errors import (
    SENTENCES,
    STATUS,
    BatchTableError,
    CorruptIndexError,
    IndexOverflowError,
)
from kafkascan.format.layout import (
    BATCH_DTYPE,
    OFFSET_INDEX_ENTRY,
    TIME_INDEX_ENTRY,
    TRANSACTION_INDEX_ENTRY,
)
from kafkascan.format.shown_places import shown_url
from kafkascan.io.atomic_files import AtomicFile
from kafkascan.io.folders import read_regular
from kafkascan.io.stores.urls import as_path

UNKNOWN_INDEX_LAYOUT = "UNKNOWN_INDEX_LAYOUT"
"""Symbol of the error that an index file is one of a later version, which is not read."""

_WIDE_ENTRIES = "entries of 12 bytes, with positions of 8: a layout that is not known is not read"
_WIDE_ENTRY = np.dtype([("relative_offset", ">i4"), ("position", ">i8")])

IndexEntries: TypeAlias = NDArray[np.void]
"""An array of `OFFSET_INDEX_ENTRY`, `TIME_INDEX_ENTRY` or `TRANSACTION_INDEX_ENTRY`, shape (n,)."""

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
        All batches of a segment, in file order.
    base_offset : int
        Of the segment, as in its file name.
    interval_bytes : int, default 4096
        Kafka's ``index.interval.bytes``: there are more bytes than this between entries.

    Returns
    -------
    ndarray of OFFSET_INDEX_ENTRY
        ``entries.tobytes()`` is the file.

    Raises
    ------
    IndexOverflowError
        If an offset is below the segment's base offset, or an offset or position exceeds the
        start of the segment by 2**31 or more.
    BatchTableError
        If offsets do not ascend.
    ValueError
        If `interval_bytes` or `base_offset` is negative, or needs more than 64 bits.
    TypeError
        If they are not integers.

    Notes
    -----
    ``LogSegment.recover``. A broker that appends writes the same entries, unless it restarts in
    the middle of a segment, or appends several batches together (before KAFKA-806).
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
        See `build_offset_index`.

    Returns
    -------
    ndarray of TIME_INDEX_ENTRY
        Including the entry that is added when a segment is closed.

    Raises
    ------
    As `build_offset_index`.
    """
    return build_indexes(batches, base_offset, interval_bytes)[1]


def require_interval_bytes(interval_bytes: int) -> int:
    """Return `interval_bytes`; raise `ValueError` if it is negative or needs more than 64 bits."""
    require_integers(interval_bytes=interval_bytes)
    require_not_negative(interval_bytes=interval_bytes)
    return interval_bytes


def build_indexes(
    batches: BatchTable, base_offset: int, interval_bytes: int
) -> tuple[IndexEntries, IndexEntries]:
    """Build the entries of both indexes; as `build_offset_index` and `build_time_index`."""
    builder = IndexBuilder(base_offset, interval_bytes)
    builder.add(require_batch_table(batches))
    return builder.finish()


class IndexBuilder:
    """
    Builds the entries of a segment's indexes from its batches, which are added in file order.

    Parameters
    ----------
    base_offset, interval_bytes : int
        See `build_offset_index`.
    path : str, optional
        Of the log, for errors.
    """

    def __init__(self, base_offset: int, interval_bytes: int, path: str | None = None) -> None:
        require_interval_bytes(interval_bytes)
        require_integers(base_offset=base_offset)
        require_not_negative(base_offset=base_offset)
        self._base_offset, self._interval_bytes, self._path = base_offset, interval_bytes, path
        self._offsets, self._times = list[IndexEntries](), list[IndexEntries]()
        self._state = np.array([0, -1, -1, 0, -1, -1], np.int64)
        self._last_position = 0
        self._count = 0

    def copy(self) -> IndexBuilder:
        """Return a builder that goes on by itself."""
        copied = copy.copy(self)
        copied._offsets, copied._times = self._offsets.copy(), self._times.copy()
        copied._state = self._state.copy()
        return copied

    def add(self, batches: BatchTable) -> None:
        """
        Add the next batches.

        Raises
        ------
        As `build_offset_index`; the builder is of no use then, but its `copy` of before is.
        """
        self._build(batches, is_last=False)
        if len(batches):
            self._last_position = int(batches["position"][-1])
        self._count += len(batches)

    def finish(self) -> tuple[IndexEntries, IndexEntries]:
        """Return the entries of the offset index and of the time index, after the last batch."""
        self._build(np.empty(0, BATCH_DTYPE), is_last=True)
        offsets = join_rows(self._offsets, OFFSET_INDEX_ENTRY)
        return offsets, join_rows(self._times, TIME_INDEX_ENTRY)

    def _build(self, batches: BatchTable, *, is_last: bool) -> None:
        offsets = np.empty((len(batches) + 1, 2), np.int64)
        times = np.empty((len(batches) + 1, 2), np.int64)
        status, row, offset_count, time_count = _core.build_into(
            batches, self._base_offset, self._interval_bytes, offsets, times, self._state, is_last
        )
        if status != STATUS["OK"]:
            raise self._error(status, batches, row)
        self._offsets.append(_entries(offsets[:offset_count], OFFSET_INDEX_ENTRY))
        self._times.append(_entries(times[:time_count], TIME_INDEX_ENTRY))

    def _error(
        self, status: int, batches: BatchTable, row: int
    ) -> IndexOverflowError | BatchTableError:
        position, number = None, self._count + row
        if self._path is not None:
            position = int(batches["position"][row]) if len(batches) else self._last_position
        if status == STATUS["OFFSET_OVERFLOW"]:
            below = _below(batches[row], self._base_offset)
            return IndexOverflowError(number, status, self._path, position, below)
        return BatchTableError(self._path or "<batches>", number, status, position)


def _below(batch: np.void, base_offset: int) -> str | None:
    """Return what is wrong with an offset before those of the index, if it is one."""
    last = int(last_offset(np.array([batch]))[0])
    if last >= base_offset:
        return None
    return f"the last offset {last} is below the segment's base offset {base_offset}"


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
        The kind of index is that of the suffix, which ``.deleted``, ``.cleaned`` or ``.swap``
        may follow.

    Returns
    -------
    ndarray of OFFSET_INDEX_ENTRY, TIME_INDEX_ENTRY or TRANSACTION_INDEX_ENTRY
        Without the trailing zeros of a preallocated file, and without an incomplete last entry
        of a ``.txnindex`` file.

    Raises
    ------
    CorruptIndexError
        If the size is not a multiple of the entry size (``OffsetIndex.sanityCheck``), an entry of
        aborted transactions has an unknown version (``AbortedTxn``), or the entries of a ``.index``
        file are those of a later version, with positions of 8 bytes.
    ValueError
        If the name has none of these suffixes.
    OSError
        If the file cannot be read.
    """
    path = as_path(path)
    _kind_of(path)  # a wrong name is reported before a missing file
    return parse_index(read_regular(path), path)


def parse_index(data: bytes, path: str | os.PathLike[str]) -> IndexEntries:
    """Parse the bytes of an index file of this name; as `read_index`."""
    kind = _kind_of(path)
    dtype = _DTYPES[kind]
    if kind == "index" and _has_wide_entries(data):
        raise CorruptIndexError(os.fspath(path), 0, None, _WIDE_ENTRIES, UNKNOWN_INDEX_LAYOUT)
    whole = len(data) - len(data) % dtype.itemsize
    if kind == "txnindex":
        return _known_version(path, np.frombuffer(data[:whole], dtype))
    if whole < len(data):
        raise _corrupt_index(path, whole, "ODD_INDEX_SIZE")
    entries = np.frombuffer(data, dtype)
    used = len(data.rstrip(b"\0"))
    return entries[: -(-used // dtype.itemsize)]


def entries_of(path: str | os.PathLike[str], data: bytes) -> IndexEntries:
    """Return bytes as entries of the kind that the file name gives."""
    return np.frombuffer(data, _DTYPES[_kind_of(path)])


def _has_wide_entries(data: bytes) -> bool:
    """
    Return whether the entries of an offset index have positions of 8 bytes (KIP-1333).

    The file does not say so. Read as entries of 8 bytes, their offsets do not ascend: the upper
    half of a position is among them.
    """
    size = _WIDE_ENTRY.itemsize
    few = np.frombuffer(data[: 2 * size], OFFSET_INDEX_ENTRY) if len(data) >= 2 * size else None
    if few is None or _ascends(few["relative_offset"]):
        return False
    used = -(-len(data.rstrip(b"\0")) // size)
    entries = np.frombuffer(data, _WIDE_ENTRY, count=min(used, len(data) // size))
    # The first entry is near the beginning of the segment.
    return (
        len(entries) > 1
        and 0 <= entries["position"][0] < 2**32
        and entries["relative_offset"][0] >= 0
        and _ascends(entries["relative_offset"])
        and _ascends(entries["position"])
    )


def _ascends(values: NDArray[Any]) -> bool:
    return bool((values[1:] > values[:-1]).all())


def _known_version(path: str | os.PathLike[str], entries: IndexEntries) -> IndexEntries:
    later = np.flatnonzero(entries["version"] != 0)
    if len(later):
        position = int(later[0]) * entries.itemsize
        raise _corrupt_index(path, position, "BAD_TXN_INDEX_VERSION")
    return entries


def _corrupt_index(path: str | os.PathLike[str], position: int, symbol: str) -> CorruptIndexError:
    return CorruptIndexError(os.fspath(path), position, None, SENTENCES[STATUS[symbol]], symbol)


def _kind_of(path: str | os.PathLike[str]) -> str:
    name = os.path.basename(path).lstrip(".")
    for suffix in reversed(name.split(".")[1:]):
        if suffix in _DTYPES:
            return suffix
    raise ValueError(f"{shown_url(str(path))}: the suffix is not .index, .timeindex or .txnindex")


def write_index(path: str | os.PathLike[str], entries: IndexEntries, /) -> None:
    """
    Write a ``.index``, ``.timeindex`` or ``.txnindex`` file atomically.

    An existing file is replaced.

    Parameters
    ----------
    path : path
        The suffix must be that of the entries.
    entries : array of OFFSET_INDEX_ENTRY, TIME_INDEX_ENTRY or TRANSACTION_INDEX_ENTRY

    Raises
    ------
    TypeError
        If the entries are not of the dtype that the suffix requires.
    OSError
        If the file cannot be written; an existing file is unchanged.
    """
    path = Path(path)
    dtype = _DTYPES[_kind_of(path)]
    if not isinstance(entries, np.ndarray) or entries.dtype != dtype or entries.ndim != 1:
        raise TypeError(f"{path} takes a one-dimensional array of {dtype}")
    with AtomicFile(path) as file:
        file.stream.write(entries.tobytes())


# ---- lookups ---------------------------------------------------------------------------------

# Kafka searches the last entries of an index first (``AbstractIndex.warmEntries``).
_WARM_BYTES = 8192


def floor_entry(entries: IndexEntries, field: str, key: int) -> int:
    """
    Return the row of the last entry whose key is not greater, or -1.

    If the keys do not ascend or are equal, the result of a binary search depends on its steps,
    which are those of ``AbstractIndex.largestLowerBoundSlotFor``.
    """
    keys = entries[field]
    if not len(keys):
        return -1
    low, high = 0, len(keys) - 1
    warm = max(0, high - _WARM_BYTES // entries.itemsize)
    if keys[warm] < key:
        low = warm
    elif keys[0] > key:
        return -1
    else:
        high = warm
    while low < high:
        middle = (low + high + 1) // 2
        if keys[middle] > key:
            high = middle - 1
        elif keys[middle] < key:
            low = middle
        else:
            return middle
    return low
