"""Jobs that batch headers answer; only sums come back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kafkascan.arrow import require_pyarrow
from kafkascan.batch_columns import (
    BatchTable,
    is_transactional,
    last_offset,
    size_in_bytes,
)
from kafkascan.ordered import in_order
from kafkascan.spark.batch_rows import place_of
from kafkascan.spark.files import open_file
from kafkascan.spark.options import Options
from kafkascan.spark.plan import ScanRange, ScanTask, files_at_once
from kafkascan.spark.ranges import RangeWalk
from kafkascan.spark.schemas import FILE_COLUMNS, Column, arrow_schema, arrow_type
from kafkascan.spark.segment_rows import to_batch

_ROWS = 1 << 16

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
)
PRODUCER_KEYS = ("topic", "partition", "producerId")
PRODUCER_JOINS = {
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


def producers_task(task: ScanTask, options: Options) -> Iterator[Any]:
    """Sum up the batches of each producer; partial sums, to be joined."""
    return in_order(task.ranges, partial(_producers, options), files_at_once(task, options))


def _producers(options: Options, one: ScanRange) -> Iterator[Any]:
    pa = require_pyarrow()
    schema = arrow_schema(PRODUCER_COLUMNS)
    place = {"topic": one.file.topic, "partition": one.file.partition}
    for batches in _tables(one, options):
        sums = _by_producer(batches)
        count = len(sums["producerId"])
        arrays = [
            pa.repeat(pa.scalar(place[c.name], arrow_type(c.type)), count)
            if c.name in place
            else pa.array(sums[c.name].astype(np.int32 if c.type == "int" else np.int64))
            for c in PRODUCER_COLUMNS
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _tables(one: ScanRange, options: Options) -> Iterator[BatchTable]:
    source = open_file(one.file, options)
    walk = RangeWalk(source, one.start, one.stop)
    yield from walk.tables(_ROWS)
    if walk.error is not None and options.mode == "FAILFAST":
        raise walk.error


def _by_producer(batches: BatchTable) -> dict[str, NDArray[Any]]:
    order = np.argsort(batches["producer_id"], kind="stable")
    ids = batches["producer_id"][order]
    firsts = np.flatnonzero(np.append(True, ids[1:] != ids[:-1]))

    def joined(values: NDArray[Any], how: np.ufunc) -> NDArray[Any]:
        result: NDArray[Any] = how.reduceat(values[order], firsts)
        return result

    counts = np.maximum(batches["records_count"], 0).astype(np.int64)
    epochs = batches["producer_epoch"]
    times = batches["max_timestamp"]
    return {
        "producerId": ids[firsts],
        "batches": np.diff(np.append(firsts, len(ids))),
        "records": joined(counts, np.add),
        "bytes": joined(size_in_bytes(batches), np.add),
        "transactionalBatches": joined(is_transactional(batches).astype(np.int64), np.add),
        "firstEpoch": joined(epochs, np.minimum),
        "lastEpoch": joined(epochs, np.maximum),
        "firstOffset": joined(batches["base_offset"], np.minimum),
        "lastOffset": joined(last_offset(batches), np.maximum),
        "minTimestampMs": joined(times, np.minimum),
        "maxTimestampMs": joined(times, np.maximum),
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
)


@dataclass(frozen=True)
class TimeLimits:
    """
    Which timestamps are believed: milliseconds, ``[earliest, latest]``.

    Attributes
    ----------
    earliest, latest : int
    options : Options
    """

    earliest: int
    latest: int
    options: Options


def timestamps_task(task: ScanTask, limits: TimeLimits) -> Iterator[Any]:
    """Count, for each range, the batches whose timestamps cannot be true."""
    at_once = files_at_once(task, limits.options)
    rows = list(in_order(task.ranges, partial(_timestamps, limits), at_once))
    yield to_batch(rows, TIMESTAMP_COLUMNS)


def _timestamps(limits: TimeLimits, one: ScanRange) -> Iterator[dict[str, Any]]:
    row = place_of(one.file) | _NO_TIMESTAMPS
    for batches in _tables(one, limits.options):
        times = batches["max_timestamp"]
        is_missing = times == -1
        is_late, is_early = times > limits.latest, ~is_missing & (times < limits.earliest)
        bad = np.flatnonzero(is_late | is_early | is_missing)
        if len(bad) and row["firstBadPosition"] < 0:
            row["firstBadPosition"] = int(batches["position"][bad[0]])
            row["firstBadOffset"] = int(batches["base_offset"][bad[0]])
        row["batches"] += len(batches)
        row["lateBatches"] += int(is_late.sum())
        row["earlyBatches"] += int(is_early.sum())
        row["missingBatches"] += int(is_missing.sum())
        row["maxTimestampMs"] = max(row["maxTimestampMs"], int(times.max()))
    if row["firstBadPosition"] >= 0:
        yield row


_NO_TIMESTAMPS = {
    "batches": 0,
    "lateBatches": 0,
    "earlyBatches": 0,
    "missingBatches": 0,
    "maxTimestampMs": -1,
    "firstBadPosition": -1,
    "firstBadOffset": -1,
}
