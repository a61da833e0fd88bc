"""Files to rows of the view ``segments``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kafkascan.arrow import require_pyarrow
from kafkascan.batch_columns import BatchTable
from kafkascan.checks import verify_rows
from kafkascan.errors import CorruptBatchError
from kafkascan.layout import ScanEnd
from kafkascan.sources import Source
from kafkascan.spark.batch_rows import BAD_CHECKSUM, STATUS_OK, place_of
from kafkascan.spark.files import FoundFile
from kafkascan.spark.index_state import UNKNOWN, IndexStates
from kafkascan.spark.options import Options
from kafkascan.spark.plan import ScanRange
from kafkascan.spark.ranges import RangeWalk
from kafkascan.spark.schemas import Column, arrow_schema, arrow_type
from kafkascan.summary import BatchSummary

# Small enough for a table's batches to be in the cache still when they are verified.
_ROWS = 8192
# Columns that cost no look at more than a header's frame.
_NEED_NO_SUMS = {
    "topic", "partition", "segment", "path", "size", "modified", "batches", "endState",
    "validBytes", "trailingBytes", "badChecksums", "indexState", "timeIndexState", "status",
    "error",
}  # fmt: skip


@dataclass
class SegmentScan:
    """
    What a whole segment says.

    Attributes
    ----------
    summary : BatchSummary
    end : ScanEnd
    valid_bytes, trailing_bytes : int
    bad_checksums : int or None
        None if they were not compared.
    error : CorruptBatchError or None
        What ends the log, or the first checksum that is wrong.
    """

    summary: BatchSummary = field(default_factory=BatchSummary)
    end: ScanEnd = ScanEnd.CLEAN
    valid_bytes: int = 0
    trailing_bytes: int = 0
    bad_checksums: int | None = None
    first_bad: np.void | None = None
    error: CorruptBatchError | None = None

    @property
    def status(self) -> str:
        """``OK``, or the symbol of what is wrong."""
        if self.error is not None:
            return self.error.symbol
        return BAD_CHECKSUM if self.bad_checksums else STATUS_OK


def scan_segment(
    source: Source,
    *,
    verifies: bool = False,
    sums: bool = True,
    look: Callable[[BatchTable], None] | None = None,
    is_last: bool = True,
) -> SegmentScan:
    """Walk over all headers of a segment; verify, sum up and look at them as asked for."""
    found = SegmentScan(bad_checksums=0 if verifies else None)
    walk = RangeWalk(source, 0, source.size)
    for table in walk.tables(_ROWS):
        if sums:
            found.summary.add(table)
        else:
            found.summary.batches += len(table)
        if look is not None:
            look(table)
        if verifies:
            verdicts = verify_rows(source, table)
            found.bad_checksums = (found.bad_checksums or 0) + int((~verdicts).sum())
            if found.first_bad is None and not verdicts.all():
                found.first_bad = table[~verdicts][0]
    assert walk.end is not None
    found.end, found.error = walk.end, walk.damage(is_last=is_last)
    found.valid_bytes, found.trailing_bytes = walk.position, walk.trailing_bytes
    source.require_unshrunk()
    return found


def segment_row(one: ScanRange, source: Source, options: Options) -> dict[str, Any]:
    """Return the row of a whole file, by columns."""
    file = one.file
    names = {column.name for column in options.schema()}
    indexes = None
    if names & {"indexState", "timeIndexState"} and file.is_local:
        indexes = IndexStates(file.path, file.base_offset)
    found = scan_segment(
        source,
        verifies=options.verifies,
        sums=not names <= _NEED_NO_SUMS,
        look=None if indexes is None else indexes.add,
        is_last=one.is_last,
    )
    summary = found.summary
    states = (UNKNOWN, UNKNOWN) if indexes is None else indexes.of(source)
    return place_of(file) | {
        "size": source.size,
        "modified": None if file.modified_ns is None else file.modified_ns // 1000,
        "batches": summary.batches,
        "records": summary.records,
        "uncountedBatches": summary.uncounted_batches,
        "firstOffset": summary.first_offset,
        "lastOffset": summary.last_offset,
        "minTimestampMs": summary.min_timestamp,
        "maxTimestampMs": summary.max_timestamp,
        "codecs": dict(summary.codecs),
        "magics": dict(summary.magics),
        "transactionalBatches": summary.transactional_batches,
        "controlBatches": summary.control_batches,
        "endState": str(found.end),
        "validBytes": found.valid_bytes,
        "trailingBytes": found.trailing_bytes,
        "badChecksums": found.bad_checksums,
        "indexState": states[0],
        "timeIndexState": states[1],
        "status": found.status,
        "error": _message(file, found),
    }


def _message(file: FoundFile, found: SegmentScan) -> str | None:
    if found.error is not None:
        return str(found.error)
    if found.bad_checksums and found.first_bad is not None:
        row = found.first_bad
        return (
            f"{file.path}: position {row['position']} (base_offset {row['base_offset']}):"
            f" the first of {found.bad_checksums} wrong checksums [{BAD_CHECKSUM}]"
        )
    return None


def unreadable_row(file: FoundFile, error: Exception) -> dict[str, Any]:
    """Return the row of a file that cannot be read."""
    counts = ("batches", "records", "uncountedBatches", "transactionalBatches", "controlBatches")
    return (
        place_of(file)
        | dict.fromkeys(counts, 0)
        | {
            "size": file.size,
            "modified": None if file.modified_ns is None else file.modified_ns // 1000,
            "codecs": {},
            "magics": {},
            "endState": UNKNOWN,
            "validBytes": 0,
            "trailingBytes": file.size,
            "indexState": UNKNOWN,
            "timeIndexState": UNKNOWN,
            "status": "UNREADABLE",
            "error": str(error) if str(file.path) in str(error) else f"{file.path}: {error}",
        }
    )


def segment_batches(
    rows: Iterator[dict[str, Any]], columns: Sequence[Column], most: int
) -> Iterator[Any]:
    """Yield RecordBatches of so many rows."""
    kept: list[dict[str, Any]] = []
    for row in rows:
        kept.append(row)
        if len(kept) == most:
            yield to_batch(kept, columns)
            kept = []
    if kept:
        yield to_batch(kept, columns)


def to_batch(rows: Sequence[dict[str, Any]], columns: Sequence[Column]) -> Any:
    """Return rows, given by columns, as a RecordBatch."""
    pa = require_pyarrow()
    arrays = []
    for one in columns:
        values = [row.get(one.name) for row in rows]
        if one.type.startswith("map<"):
            values = [None if value is None else list(value.items()) for value in values]
        arrays.append(pa.array(values, arrow_type(one.type)))
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(columns))
