"""The files of a segment: a log, and the entries of its indexes as a broker writes them."""

from __future__ import annotations

import itertools
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import kafkascan as ks

Steps = Iterator[None]
"""Makes the next change each time that it is advanced."""

KINDS = (".log", ".index", ".timeindex", ".txnindex")
"""In the order in which a broker renames them."""
_PREALLOCATED = {".index": 8 * 12, ".timeindex": 12 * 12}
_INTERVAL_BYTES = 200


@dataclass(frozen=True)
class AbortedTransaction:
    """An entry of a ``.txnindex``."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int

    def encode(self) -> bytes:
        """Return the bytes of the entry."""
        return struct.pack(
            ">hqqqq",
            0,
            self.producer_id,
            self.first_offset,
            self.last_offset,
            self.last_stable_offset,
        )


TRANSACTION_ENTRY_SIZE = len(AbortedTransaction(0, 0, 0, 0).encode())


def files_of(path: Path) -> list[Path]:
    """Return the files of a segment that exist."""
    return [file for kind in KINDS if (file := path.with_suffix(kind)).exists()]


def append(path: Path, batch: bytes, cut: int) -> Steps:
    """Write a batch, in two writes if it is cut, and then the entries of its indexes."""
    with path.open("ab", buffering=0) as file:
        if cut:
            file.write(batch[:cut])
            yield
        file.write(batch[cut:])
    yield
    yield from write_entries(path)


def preallocate(path: Path) -> Steps:
    """Make the indexes of an active segment as large as a broker keeps them, by zeros."""
    for kind, size in _PREALLOCATED.items():
        file = path.with_suffix(kind)
        if not file.exists() or file.stat().st_size != size:
            file.touch()
            os.truncate(file, size)
            yield


def write_entries(path: Path) -> Steps:
    """Write the entries that the preallocated indexes lack, in place."""
    yield from _write(path, index_entries(path))


def is_full(path: Path) -> bool:
    """Return whether an index of an active segment has no room for two more entries."""
    return any(
        len(entries) + 24 > _PREALLOCATED[kind] for kind, entries in index_entries(path).items()
    )


def trim(path: Path) -> Steps:
    """Add the last entry of the time index, and cut off what was preallocated."""
    entries = index_entries(path, is_closed=True)
    yield from _write(path, entries)
    for kind, content in entries.items():
        file = path.with_suffix(kind)
        if file.stat().st_size > len(content):
            os.truncate(file, len(content))
            yield


def truncate(path: Path, position: int, end_offset: int) -> Steps:
    """Cut off the entries of indexes from an offset on, make the indexes active, cut the log."""
    transactions = path.with_suffix(".txnindex")
    kept = path.read_bytes()[:position]
    if transactions.exists():
        content = transactions.read_bytes()
        entries = struct.iter_unpack(">hqqqq", content)
        count = sum(last_offset < end_offset for _, _, _, last_offset, _ in entries)
        if count * TRANSACTION_ENTRY_SIZE < len(content):
            os.truncate(transactions, count * TRANSACTION_ENTRY_SIZE)
            yield
    valid = entries_of(kept, int(path.stem))
    for kind, size in _PREALLOCATED.items():
        file = path.with_suffix(kind)
        if file.exists() and file.stat().st_size != size:
            os.truncate(file, len(valid[kind]))
            os.truncate(file, size)
            yield
    os.truncate(path, position)
    yield


def _write(path: Path, indexes: dict[str, bytes]) -> Steps:
    for kind, entries in indexes.items():
        with path.with_suffix(kind).open("r+b", buffering=0) as file:
            if not file.read().startswith(entries):
                file.seek(0)
                file.write(entries)
                yield


def index_entries(path: Path, *, is_closed: bool = False) -> dict[str, bytes]:
    """Return the entries that a broker has written for a segment."""
    return entries_of(path.read_bytes(), int(path.name.partition(".")[0]), is_closed=is_closed)


def entries_of(log: bytes, base_offset: int, *, is_closed: bool = False) -> dict[str, bytes]:
    """Return the entries that a broker has written for the bytes of a log, as `LogSegment`."""
    offsets, times, unindexed = [], [(-1, 0)], 0
    newest = (-1, 0)
    for row in ks.scan_batches(log).batches:
        size = int(row["batch_length"]) + 12
        last = int(row["base_offset"]) + int(row["last_offset_delta"]) - base_offset
        if row["max_timestamp"] > newest[0]:
            newest = (int(row["max_timestamp"]), last)
        if unindexed > _INTERVAL_BYTES:
            offsets.append((last, int(row["position"])))
            if newest[0] > times[-1][0]:
                times.append(newest)
            unindexed = 0
        unindexed += size
    if is_closed and newest[0] > times[-1][0]:
        times.append(newest)
    return {
        ".index": b"".join(itertools.starmap(struct.Struct(">ii").pack, offsets)),
        ".timeindex": b"".join(itertools.starmap(struct.Struct(">qi").pack, times[1:])),
    }
