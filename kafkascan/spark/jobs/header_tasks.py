"""Tasks of the jobs that need batch headers only: producer statistics, implausible timestamps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kafkascan.batches.columns import (
    BatchTable,
    first_timestamp,
    is_transactional,
    last_offset,
    size_in_bytes,
)
from kafkascan.spark.options.reader_options import Options
from kafkascan.spark.options.view_schemas import FILE_COLUMNS, Column, Row, arrow_schema, arrow_type
from kafkascan.spark.planning.task_plan import ScanTask, concurrent_files
from kafkascan.spark.rows.arrow_columns import record_batch_of_rows, single_row
from kafkascan.spark.rows.batch_rows import file_values
from kafkascan.spark.rows.task_scan import OpenRange, checked_batches, scan_ranges
from kafkascan.tables.schema import require_pyarrow

if TYPE_CHECKING:
    import pyarrow as pa

ERROR = Column("error", "string", nullable=True)
"""Damage, in a row of its own: the driver reports it apart from the results."""

PRODUCER_COLUMNS = (
    Column("topic", "string"),
    Column("partition", "int"),
    Column("producerId", "bigint"),
    Column("batches", "bigint"),
    Column("records", "bigint"),
    Column("bytes", "bigint"),
    Column("transactionalBatches", "bigint"),
    Column("firstEpoch", "int"),
    Column("lastEpoch", "int"),
    Column("firstOffset", "bigint"),
    Column("lastOffset", "bigint"),
    Column("minTimestampMs", "bigint"),
    Column("maxTimestampMs", "bigint"),
    ERROR,
)
PRODUCER_KEYS = ("topic", "partition", "producerId")
PRODUCER_AGGREGATES = {
    "batches": "sum",
    "records": "sum",
    "bytes": "sum",
    "transactionalBatches": "sum",
    "firstEpoch": "min",
    "lastEpoch": "max",
    "firstOffset": "min",
    "lastOffset": "max",
    "minTimestampMs": "min",
    "maxTimestampMs": "max",
}


def producers_task(task: ScanTask, options: Options) -> Iterator[pa.RecordBatch]:
    """Aggregate the batches of each producer; the driver merges these partial results."""
    files = concurrent_files(task, options)
    return scan_ranges(task, options, _producer_batches, files)


def _producer_batches(opened: OpenRange) -> Iterator[pa.RecordBatch]:
    pa = require_pyarrow()
    schema = arrow_schema(PRODUCER_COLUMNS)
    file = opened.range.file
    constants: Row = {"topic": file.topic, "partition": file.partition, ERROR.name: None}
    for batches in _sound_batches(opened):
        sums = _by_producer(batches)
        count = len(sums["producerId"])
        arrays = [
            pa.repeat(pa.scalar(constants[c.name], arrow_type(c.type)), count)
            if c.name in constants
            else pa.array(sums[c.name].astype(np.int32 if c.type == "int" else np.int64))
            for c in PRODUCER_COLUMNS
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)
    for error in opened.damage.take_kept():
        yield single_row(schema, PRODUCER_COLUMNS, constants | {ERROR.name: str(error)})


def _sound_batches(opened: OpenRange) -> Iterator[BatchTable]:
    """Yield the batches of a range; those with wrong checksums are damage, if they are verified."""
    for batches, verdicts in checked_batches(opened, opened.walk(None)):
        if verdicts is not None:
            opened.report_bad(batches, verdicts)
            batches = batches[verdicts]
        if len(batches):
            yield batches


def _by_producer(batches: BatchTable) -> dict[str, NDArray[Any]]:
    order = np.argsort(batches["producer_id"], kind="stable")
    ids = batches["producer_id"][order]
    firsts = np.flatnonzero(np.append(True, ids[1:] != ids[:-1]))

    def reduced(values: NDArray[Any], how: np.ufunc) -> NDArray[Any]:
        result: NDArray[Any] = how.reduceat(values[order], firsts)
        return result

    counts = np.maximum(batches["records_count"], 0).astype(np.int64)
    epochs = batches["producer_epoch"]
    return {
        "producerId": ids[firsts],
        "batches": np.diff(np.append(firsts, len(ids))),
        "records": reduced(counts, np.add),
        "bytes": reduced(size_in_bytes(batches), np.add),
        "transactionalBatches": reduced(is_transactional(batches).astype(np.int64), np.add),
        "firstEpoch": reduced(epochs, np.minimum),
        "lastEpoch": reduced(epochs, np.maximum),
        "firstOffset": reduced(batches["base_offset"], np.minimum),
        "lastOffset": reduced(last_offset(batches), np.maximum),
        "minTimestampMs": reduced(first_timestamp(batches), np.minimum),
        "maxTimestampMs": reduced(batches["max_timestamp"], np.maximum),
    }


TIMESTAMP_COLUMNS = (
    *FILE_COLUMNS,
    Column("batches", "bigint"),
    Column("lateBatches", "bigint"),
    Column("earlyBatches", "bigint"),
    Column("missingBatches", "bigint"),
    Column("maxTimestampMs", "bigint"),
    Column("firstBadPosition", "bigint"),
    Column("firstBadOffset", "bigint"),
    ERROR,
)


@dataclass(frozen=True)
class TimeLimits:
    """
    The range of plausible timestamps: milliseconds in ``[earliest, latest]``.

    Attributes
    ----------
    earliest, latest : int
    options : Options
    """

    earliest: int
    latest: int
    options: Options


def timestamps_task(task: ScanTask, limits: TimeLimits) -> Iterator[pa.RecordBatch]:
    """Count the batches with implausible timestamps, per range of a file."""
    files = concurrent_files(task, limits.options)
    # Retention by time uses the largest timestamp of complete segments.
    ranges = [replace(one, start_offset=None, stop_offset=None) for one in task.ranges]
    whole = replace(task, ranges=tuple(ranges))
    rows = list(scan_ranges(whole, limits.options, partial(_timestamp_rows, limits), files))
    yield record_batch_of_rows(rows, TIMESTAMP_COLUMNS)


def _timestamp_rows(limits: TimeLimits, opened: OpenRange) -> Iterator[Row]:
    """Yield the row of a range if it has batches with implausible timestamps, and its damage."""
    counts, place = _TimestampCounts(), file_values(opened.range.file)
    for batches in _sound_batches(opened):
        counts.add(batches, limits)
    if counts.first_bad_position >= 0:
        yield place | counts.row()
    for error in opened.damage.take_kept():
        yield place | _TimestampCounts().row() | {ERROR.name: str(error)}


@dataclass
class _TimestampCounts:
    """Number of batches by what is wrong with their largest timestamp."""

    batches: int = 0
    late: int = 0
    early: int = 0
    missing: int = 0
    max_timestamp: int = -1
    first_bad_position: int = -1
    first_bad_offset: int = -1

    def add(self, batches: BatchTable, limits: TimeLimits) -> None:
        times = batches["max_timestamp"]
        is_missing = times == -1
        is_late, is_early = times > limits.latest, ~is_missing & (times < limits.earliest)
        bad = np.flatnonzero(is_late | is_early | is_missing)
        if len(bad) and self.first_bad_position < 0:
            self.first_bad_position = int(batches["position"][bad[0]])
            self.first_bad_offset = int(batches["base_offset"][bad[0]])
        self.batches += len(batches)
        self.late += int(is_late.sum())
        self.early += int(is_early.sum())
        self.missing += int(is_missing.sum())
        self.max_timestamp = max(self.max_timestamp, int(times.max()))

    def row(self) -> Row:
        return {
            "batches": self.batches,
            "lateBatches": self.late,
            "earlyBatches": self.early,
            "missingBatches": self.missing,
            "maxTimestampMs": self.max_timestamp,
            "firstBadPosition": self.first_bad_position,
            "firstBadOffset": self.first_bad_offset,
        }
