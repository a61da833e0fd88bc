"""Build rows of the view ``segments`` from whole files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import fields
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from kafkascan.batches.batch_schemas import SEGMENT_SCHEMA
from kafkascan.batches.collecting import collect
from kafkascan.batches.columns import BatchTable, offset_before
from kafkascan.batches.summary import BatchSummary
from kafkascan.batches.verify import verify_rows
from kafkascan.batches.walks import BatchWalk
from kafkascan.broker_state.index_checks import IndexScreen, check_entries, parse_index_file
from kafkascan.broker_state.indexes import IndexEntries
from kafkascan.format.errors import CorruptBatchError, CorruptIndexError
from kafkascan.format.file_names import OFFSETS, sibling_name
from kafkascan.format.findings import Severity
from kafkascan.io.folders import DiskFolder
from kafkascan.io.sources import Source
from kafkascan.logs.log_problems import OFFSET_OVERLAP
from kafkascan.logs.segment import position_after
from kafkascan.spark.options.reader_options import Options
from kafkascan.spark.options.view_schemas import VIEWS, Row
from kafkascan.spark.planning.range_walk import RangeWalk
from kafkascan.spark.planning.task_plan import ScanRange
from kafkascan.spark.rows.arrow_columns import record_batch_of_rows
from kafkascan.spark.rows.batch_rows import BAD_CHECKSUM, intact_status
from kafkascan.spark.rows.range_offsets import RangeOffsets
from kafkascan.tables.schema import Field

if TYPE_CHECKING:
    import pyarrow as pa

OK, MISSING, DAMAGED, WRONG, UNKNOWN = "OK", "MISSING", "DAMAGED", "WRONG", "UNKNOWN"
KINDS = ("index", "timeindex")


class IndexStates:
    """
    Compare the ``.index`` and ``.timeindex`` files of a segment with its batches.

    Parameters
    ----------
    base_offset : int
        The segment's base offset.
    entries : dict
        Index entries by kind, of the files that could be read.
    known : dict
        States by kind, of the other files.
    """

    def __init__(
        self, base_offset: int, entries: dict[str, IndexEntries], known: dict[str, str]
    ) -> None:
        self._base_offset = base_offset
        self._entries = entries
        self._known = known
        self._screen = IndexScreen(entries, base_offset) if entries else None

    @classmethod
    def read(cls, path: str, base_offset: int) -> IndexStates:
        """
        Read the index files of a ``.log`` file.

        Call this before the log is scanned: a broker may be appending to both, and an index must
        not have entries for batches that the scan did not see.
        """
        found = {kind: _read_index(path, kind) for kind in KINDS}
        entries = {kind: one for kind, one in found.items() if not isinstance(one, str)}
        known = {kind: one for kind, one in found.items() if isinstance(one, str)}
        return cls(base_offset, entries, known)

    def add(self, batches: BatchTable) -> None:
        """Check the next batches of the segment."""
        if self._screen is not None:
            self._screen.add(batches)

    def states(self, source: Source) -> tuple[str, str]:
        """
        Return the states of both files, after all batches were added.

        Parameters
        ----------
        source : Source
            The segment. It is walked again if an index looks wrong, because the exact findings
            need all batches in one table.

        Returns
        -------
        tuple of str
            For each file: OK; MISSING; DAMAGED, if it is not a sequence of complete entries;
            WRONG, if `check_index` finds an error; UNKNOWN, if it cannot be read. An index need
            not have an entry for every batch, and the active segment's may end with zeros.
        """
        offsets, times = (self._state(kind, source) for kind in KINDS)
        return offsets, times

    def _state(self, kind: str, source: Source) -> str:
        if kind in self._known:
            return self._known[kind]
        assert self._screen is not None
        if self._screen.findings(kind) is not None:  # notes
            return OK
        batches = collect(BatchWalk(source, 0, source.size))
        checks = check_entries(self._entries[kind], batches, self._base_offset)
        return WRONG if checks.wrong else OK


def _read_index(path: str, kind: str) -> IndexEntries | str:
    """Return the entries of an index file, or its state if it has none to check."""
    folder, name = os.path.split(path)
    sibling = sibling_name(name, kind)
    if sibling is None:
        return MISSING
    try:
        data = DiskFolder(folder).read(sibling)
        if data is None:
            return MISSING
        entries, findings = parse_index_file(data, Path(folder, sibling))
    except OSError:  # also raised for a FIFO, which is not opened
        return UNKNOWN
    except CorruptIndexError:
        return DAMAGED
    if any(one.severity is Severity.ERROR for one in findings):
        return DAMAGED
    return entries


# Small enough that the batches of a table are still in the CPU cache when they are verified.
SCAN_ROWS = 8192
_TABLE_BYTES = 3 << 20
_OF_SUMMARY = {one.name for one in fields(BatchSummary)}.intersection(SEGMENT_SCHEMA.names)
# Columns that need a summary of all batches.
_NEED_SUMMARY = _OF_SUMMARY - {"batches", "last_offset"}


def segment_row(one: ScanRange, source: Source, options: Options, offsets: RangeOffsets) -> Row:
    """Scan a whole file and return its row."""
    file, verifies = one.file, options.verifies
    names = {column.name for column in options.schema()}
    sums = bool(names & _NEED_SUMMARY)
    indexes = None
    # A name from 2**63 on is no offset, to which entries of an index could be relative.
    has_indexes = file.is_local and file.base_offset < OFFSETS
    if names & {"index_state", "time_index_state"} and has_indexes:
        indexes = IndexStates.read(file.path, file.base_offset)
    summary, bad_checksums, first_bad = BatchSummary(), 0, None
    # Bytes that are not in memory should be verified before later ones replace them.
    table_bytes = _TABLE_BYTES if verifies and not source.is_in_memory else None
    walk = RangeWalk(source, 0, source.size, table_bytes, on_batches=offsets.add)
    for table in walk.tables(SCAN_ROWS):
        if sums:
            summary.add(table)
        else:
            summary.batches += len(table)
        if indexes is not None:
            indexes.add(table)
        if verifies:
            bad = table[~verify_rows(source, table)]
            bad_checksums += len(bad)
            first_bad = bad[0] if first_bad is None and len(bad) else first_bad
    damage = walk.damage(is_last=one.is_last)
    source.require_unshrunk()
    states = (UNKNOWN, UNKNOWN) if indexes is None else indexes.states(source)
    wrong = list(offsets.errors(walk, is_whole=damage is None))
    status, error = _verdict(one, walk, damage, wrong, first_bad, bad_checksums)
    return one.file_values | {
        "size": source.size,
        "modified": _modified(one),
        **{name: getattr(summary, name) for name in _OF_SUMMARY},
        "last_offset": None if walk.next_offset is None else offset_before(walk.next_offset),
        "end": str(walk.end),
        "valid_bytes": walk.position,
        "trailing_bytes": walk.trailing_bytes,
        "bad_checksums": bad_checksums if verifies else None,
        "index_state": states[0],
        "time_index_state": states[1],
        "status": status or intact_status(verifies),
        "error": error,
    }


def _verdict(
    one: ScanRange,
    walk: RangeWalk,
    damage: CorruptBatchError | None,
    wrong: Sequence[CorruptBatchError],
    first_bad: np.void | None,
    bad_checksums: int,
) -> tuple[str | None, str | None]:
    """Return the symbol and the message of what is wrong with a segment."""
    if damage is not None:
        return damage.symbol, str(damage)
    if first_bad is not None:
        return BAD_CHECKSUM, (
            f"{one.file.path}: position {first_bad['position']}"
            f" (base_offset {first_bad['base_offset']}):"
            f" the first of {bad_checksums} wrong checksums [{BAD_CHECKSUM}]"
        )
    if wrong:
        return wrong[0].symbol, str(wrong[0])
    end = position_after(0, one.file.base_offset, walk.next_offset)
    if one.next_base is None or end <= one.next_base:
        return None, None
    return OFFSET_OVERLAP, (
        f"{one.file.path}: offsets {one.next_base} to {end - 1} may also be in the next segments:"
        f" one of them is stale [{OFFSET_OVERLAP}]"
    )


def _modified(one: ScanRange) -> int | None:
    """Return the time of modification in milliseconds since the epoch."""
    time = one.file.modified_ns
    return None if time is None else time // 1_000_000


def unreadable_row(one: ScanRange, error: Exception) -> Row:
    """Return the row of a file that cannot be read."""
    size, path = one.file.size, one.file.path
    columns = [column for column in VIEWS["segments"] if not column.nullable]
    counts = [column.name for column in columns if column.type == "int64"]
    return (
        one.file_values
        | dict.fromkeys(counts, 0)
        | {
            "size": size,
            "modified": _modified(one),
            "codecs": {},
            "magics": {},
            "end": UNKNOWN,
            "trailing_bytes": size,
            "index_state": UNKNOWN,
            "time_index_state": UNKNOWN,
            "status": "UNREADABLE",
            "error": str(error) if path in str(error) else f"{path}: {error}",
        }
    )


def segment_batches(
    rows: Iterator[Row], columns: Sequence[Field], max_rows: int
) -> Iterator[pa.RecordBatch]:
    """Yield record batches of at most `max_rows` rows."""
    while kept := list(islice(rows, max_rows)):
        yield record_batch_of_rows(kept, columns)
