"""Bytes to records: whole batches of every format, decoded into columns.

Nothing of this runs for those who look at batch headers only. The doors to it are in
`records`.
"""

from __future__ import annotations

import itertools
import operator
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kafkascan._core import records as _core
from kafkascan.batch_columns import BatchTable, is_control, require_batch_table, size_in_bytes
from kafkascan.batches import iter_batches, scan_batches
from kafkascan.checks import verify_crcs
from kafkascan.codecs import DEFAULT_MAX_DECOMPRESSED_SIZE
from kafkascan.columns import Buffers
from kafkascan.copies import PiecePool
from kafkascan.errors import STATUS, CorruptBatchError, record_error
from kafkascan.payloads import Payloads, load_payloads
from kafkascan.record_table import DEFAULT_RECORD_COLUMNS, RecordTable, stored_columns
from kafkascan.sources import Source, SourceLike, borrowed_source

Control: TypeAlias = Literal["skip", "only", "include"]
OnDamage: TypeAlias = Callable[[CorruptBatchError], object]
Visible: TypeAlias = "Callable[[BatchTable], NDArray[np.bool_]]"

_NARROW_COLUMNS = ("batch", "key_size", "value_size", "headers_count")

# A thread is worth starting for this many bytes of batches.
_BYTES_PER_THREAD = 1 << 22
# iter_records decompresses this many bytes for a table, and at most one batch more.
ENOUGH_DECOMPRESSED = 1 << 25
# It reads this many bytes of batches for a table, and at most one batch more.
_BYTES_AT_ONCE = 1 << 24


def decode_records(
    source: SourceLike,
    batches: BatchTable | None,
    *,
    columns: Sequence[str] | None = None,
    control: Control = "skip",
    verify: bool = False,
    threads: int | None = None,
    max_decompressed_size: int = DEFAULT_MAX_DECOMPRESSED_SIZE,
    visible: Visible | None = None,
) -> RecordTable:
    """
    Decode records; as `read_records`, of the batches that a mask leaves.

    Parameters
    ----------
    source, batches, columns, control, verify, threads, max_decompressed_size
        As of `read_records`.
    visible : callable, optional
        Tells of a table which batches there are for the reader.
    """
    names, wanted = _wanted(columns)
    limit = _require_options(control, threads, max_decompressed_size)
    with _kept_source(source) as owner:
        if batches is None:
            batches = scan_batches(owner, threads=threads).batches
        batches = _selected(require_batch_table(batches), control, visible)
        if verify:
            _require_checksums(owner, batches, threads)
        parts = _load_parts(owner, batches, limit, threads)
        return _decode(owner, parts, names, wanted)


def decode_first(
    source: Source,
    batches: BatchTable,
    *,
    columns: Sequence[str] | None = None,
    max_decompressed_size: int = DEFAULT_MAX_DECOMPRESSED_SIZE,
) -> RecordTable:
    """
    Decode the records, also control records, of as many first batches as memory is meant for.

    Returns
    -------
    RecordTable
        Its `batches` says how many they are; at least one, if there is one.
    """
    names, wanted = _wanted(columns)
    limit = _require_options("include", None, max_decompressed_size)
    loaded = load_payloads(source, batches, limit, enough=ENOUGH_DECOMPRESSED)
    return _decode(source, [loaded], names, wanted)


def iter_decoded(
    source: SourceLike,
    batches: BatchTable | None,
    *,
    columns: Sequence[str] | None = None,
    control: Control = "skip",
    verify: bool = False,
    threads: int | None = None,
    max_decompressed_size: int = DEFAULT_MAX_DECOMPRESSED_SIZE,
    batch_size: int = 65_536,
    on_damage: OnDamage | None = None,
    visible: Visible | None = None,
) -> Iterator[RecordTable]:
    """Decode records in tables of bounded size; as `iter_records`, and `decode_records`."""
    names, wanted = _wanted(columns)
    limit = _require_options(control, threads, max_decompressed_size)
    if batch_size < 1:
        raise ValueError("batch_size must be at least 1")
    given = None if batches is None else require_batch_table(batches)

    def select(table: BatchTable) -> BatchTable:
        return _selected(table, control, visible)

    return _iter_tables(
        source, given, names, wanted, select, verify, threads or 1, limit, batch_size, on_damage
    )


def _iter_tables(
    source: SourceLike,
    batches: BatchTable | None,
    names: tuple[str, ...],
    wanted: list[str],
    select: Callable[[BatchTable], BatchTable],
    verify: bool,
    threads: int,
    max_decompressed_size: int,
    batch_size: int,
    on_damage: OnDamage | None,
) -> Iterator[RecordTable]:
    with _kept_source(source) as owner:
        pool = PiecePool()

        def read_first(rows: BatchTable) -> tuple[int, RecordTable]:
            if verify:
                _require_checksums(owner, rows, threads)
            loaded = load_payloads(
                owner, rows, max_decompressed_size, enough=ENOUGH_DECOMPRESSED, pool=pool
            )
            return len(loaded.batches), _decode(owner, [loaded], names, wanted, pool)

        for table in iter_batches(owner) if batches is None else [batches]:
            for group in _groups(select(table), batch_size):
                for records in _read_group(group, read_first, on_damage):
                    if len(records):
                        yield records


def _read_group(
    batches: BatchTable,
    read_first: Callable[[BatchTable], tuple[int, RecordTable]],
    on_damage: OnDamage | None,
) -> Iterator[RecordTable]:
    """Read all of a few batches at once or, if one of them is damaged, each for itself."""
    at_once = len(batches)
    first = 0
    while first < len(batches):
        try:
            done, records = read_first(batches[first : first + at_once])
        except CorruptBatchError as error:
            if at_once > 1:
                at_once = 1
            elif on_damage is None:
                raise
            else:
                on_damage(error)
                first += 1
        else:
            yield records
            first += done


def _groups(batches: BatchTable, batch_size: int) -> Iterator[BatchTable]:
    """Cut a table into pieces of about as many records."""
    # A wrapper does not say how many it holds; one of them is not many.
    records_up_to = np.cumsum(np.maximum(batches["records_count"], 1), dtype=np.int64)
    bytes_up_to = np.cumsum(np.maximum(size_in_bytes(batches), 0))
    first = 0
    while first < len(batches):
        records, size = (records_up_to[first - 1], bytes_up_to[first - 1]) if first else (0, 0)
        last = 1 + min(
            int(np.searchsorted(records_up_to, records + batch_size)),
            int(np.searchsorted(bytes_up_to, size + _BYTES_AT_ONCE)),
        )
        yield batches[first:last]
        first = last


def _wanted(columns: Sequence[str] | None) -> tuple[tuple[str, ...], list[str]]:
    if isinstance(columns, str):
        raise TypeError("columns must be a sequence of names, not one name")
    names = DEFAULT_RECORD_COLUMNS if columns is None else tuple(dict.fromkeys(columns))
    return names, stored_columns(names)


def _require_options(control: str, threads: int | None, max_decompressed_size: int) -> int:
    """Return the limit, as far as codecs can count."""
    if control not in ("skip", "only", "include"):
        raise ValueError(f"control must be 'skip', 'only' or 'include', not {control!r}")
    if threads is not None and threads < 1:
        raise ValueError("threads must be at least 1")
    if max_decompressed_size < 1:
        raise ValueError("max_decompressed_size must be at least 1")
    return min(operator.index(max_decompressed_size), sys.maxsize - 1)


def _kept_source(source: SourceLike) -> borrowed_source:
    """Borrow a source; one that is opened here lives as long as the table that views it."""
    return borrowed_source(source, close=False)


def _selected(batches: BatchTable, control: Control, visible: Visible | None) -> BatchTable:
    if control == "include" and visible is None:
        return batches
    is_wanted = np.ones(len(batches), np.bool_) if visible is None else visible(batches)
    if control != "include":
        is_wanted = is_wanted & (is_control(batches) == (control == "only"))
    return batches if is_wanted.all() else batches.take(np.flatnonzero(is_wanted))


def _require_checksums(source: Source, batches: BatchTable, threads: int | None) -> None:
    wrong = np.flatnonzero(~verify_crcs(source, batches, threads=threads))
    if len(wrong):
        raise record_error("CHECKSUM_MISMATCH", source.path, batches[wrong[0]])


def _load_parts(
    source: Source, batches: BatchTable, max_decompressed_size: int, threads: int | None
) -> list[Payloads]:
    """Find the bytes of all batches, with several threads where that is worth it."""
    bounds = _bounds(batches, threads)

    def load(first: int, last: int) -> Payloads:
        return load_payloads(source, batches[first:last], max_decompressed_size, first_row=first)

    if len(bounds) == 2:
        return [load(*bounds)]
    with ThreadPoolExecutor(len(bounds) - 1) as pool:
        return list(pool.map(load, bounds[:-1], bounds[1:]))


def _bounds(batches: BatchTable, threads: int | None) -> list[int]:
    """Cut a table into parts of about the same number of bytes, one for each thread."""
    if threads is None:
        threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    bytes_up_to = np.cumsum(np.maximum(size_in_bytes(batches), 0))
    total = int(bytes_up_to[-1]) if len(batches) else 0
    parts = max(1, min(threads, total // _BYTES_PER_THREAD))
    cuts = np.searchsorted(bytes_up_to, total * np.arange(1, parts) // parts)
    return [0, *cuts.tolist(), len(batches)]


def _decode(
    source: Source,
    parts: list[Payloads],
    names: tuple[str, ...],
    wanted: list[str],
    pool: PiecePool | None = None,
) -> RecordTable:
    """Decode what was loaded; each part in a thread of its own."""
    loaded = _joined(parts)
    first_record = np.zeros(len(loaded.batches) + 1, np.int64)
    np.cumsum(loaded.count, out=first_record[1:])
    total = int(first_record[-1])
    columns: dict[str, NDArray[Any]] = {
        name: np.empty(total, np.int32 if name in _NARROW_COLUMNS else np.int64) for name in wanted
    }
    give_back = None if pool is None else pool.give_back
    buffers = Buffers(source, loaded.pieces, loaded.buffer, give_back)

    def decode(first: int, last: int) -> None:
        status, batch, record, fault = _core.decode_into(
            buffers.addresses, buffers.sizes, loaded.batches,
            loaded.buffer, loaded.position, loaded.size, loaded.is_wrapper,
            first_record, columns, first, last,
        )  # fmt: skip
        if status == STATUS["SOURCE_FAULT"]:
            raise source.fault_error(fault)
        if status != STATUS["OK"]:
            source.require_unshrunk()
            raise record_error(status, source.path, loaded.batches[batch], f"record {record}")

    bounds = np.cumsum([0, *(len(part.batches) for part in parts)]).tolist()
    if len(parts) == 1:
        decode(*bounds)
    else:
        with ThreadPoolExecutor(len(parts)) as threads:
            list(threads.map(decode, bounds[:-1], bounds[1:]))
    source.require_unshrunk()
    return RecordTable(loaded.batches, names, columns, buffers)


def _joined(parts: list[Payloads]) -> Payloads:
    if len(parts) == 1:
        return parts[0]
    shifts = itertools.accumulate((len(part.pieces) for part in parts), initial=0)
    buffer: list[NDArray[np.int32]] = [
        np.where(part.buffer > 0, part.buffer + shift, 0).astype(np.int32)
        for part, shift in zip(parts, shifts, strict=False)
    ]
    return Payloads(
        batches=np.concatenate([part.batches.view(np.uint8) for part in parts]).view(
            parts[0].batches.dtype
        ),
        pieces=[piece for part in parts for piece in part.pieces],
        buffer=np.concatenate(buffer),
        position=np.concatenate([part.position for part in parts]),
        size=np.concatenate([part.size for part in parts]),
        is_wrapper=np.concatenate([part.is_wrapper for part in parts]),
        count=np.concatenate([part.count for part in parts]),
    )
