"""Jobs that write Parquet: records and batch headers, a file at a time."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kafkascan.arrow import require_pyarrow
from kafkascan.ordered import in_order
from kafkascan.spark.batch_rows import place_of
from kafkascan.spark.options import Options
from kafkascan.spark.outputs import Folder
from kafkascan.spark.plan import ScanRange, ScanTask, cut_range
from kafkascan.spark.scan import scan_task
from kafkascan.spark.schemas import FILE_COLUMNS, Column, arrow_schema
from kafkascan.spark.segment_rows import to_batch

# Files of one task that are written at once: what Spark's own writer takes is a thread of the
# JVM's and a Python process, and the former has nothing to do here.
_WRITERS = 2
# More than one for each, so that none works long while the other one has ended.
_FILES_PER_WRITER = 2
# Bytes of a log that become one file, unless it is small; and rows and bytes of a row group.
_SMALLEST_FILE, _LARGEST_FILE = 1 << 24, 1 << 27
_GROUP_ROWS, _GROUP_BYTES = 1 << 20, 1 << 24
# RecordBatches that a thread gets before they are written: a row group.
_AHEAD = 4

WRITTEN_COLUMNS = (
    *FILE_COLUMNS,
    Column("output", "string"),
    Column("rows", "bigint"),
    Column("bytes", "bigint"),
)


@dataclass(frozen=True)
class Output:
    """
    Where a job writes.

    Attributes
    ----------
    folder : Folder
    options : Options
    compression : str
        Of Parquet.
    """

    folder: Folder
    options: Options
    compression: str


def export_task(task: ScanTask, output: Output) -> Iterator[Any]:
    """Write the records of each range to a Parquet file of its own."""
    columns = [one for one in output.options.schema() if one.name not in ("topic", "partition")]

    def write(one: ScanRange) -> list[dict[str, Any]]:
        name = f"{max(one.file.base_offset, 0):020d}-{one.start:012d}.parquet"
        place = f"topic={one.file.topic}/partition={one.file.partition}/{name}"
        # While one file is written, another one is scanned; what is far away is asked for before.
        ahead = 0 if one.file.is_local else _AHEAD
        part = ScanTask((one,), task.logs, task.views)
        row = _write(part, place, columns, output, ahead)
        return [] if row is None else [row]

    size = sum(one.stop - one.start for one in task.ranges)
    share = -(-size // (_WRITERS * _FILES_PER_WRITER))
    most = min(_LARGEST_FILE, max(_SMALLEST_FILE, share))
    ranges = [part for one in task.ranges for part in cut_range(one, most)]
    yield to_batch(list(in_order(ranges, write, _WRITERS)), WRITTEN_COLUMNS)


def catalog_task(task: ScanTask, output: Output) -> Iterator[Any]:
    """Write the batch headers of all ranges to one Parquet file."""
    ranges = "\n".join(f"{one.file.path} {one.start} {one.stop}" for one in task.ranges)
    first = task.ranges[0]
    # Readers take no file whose name begins with an underscore, as topics may.
    log = f"{first.file.topic}-{first.file.partition}"
    place = f"batches-{log}-{zlib.crc32(ranges.encode()):08x}.parquet"
    row = _write(task, place, list(output.options.schema()), output, _AHEAD)
    yield to_batch([] if row is None else [row], WRITTEN_COLUMNS)


def _write(
    task: ScanTask, place: str, columns: list[Column], output: Output, ahead: int
) -> dict[str, Any] | None:
    """Write a file; None if there is nothing to be written.

    Its name and its bytes depend on the task alone, so that it does no harm to write it twice.
    """
    import pyarrow.parquet

    schema = arrow_schema(columns)
    rows = 0
    batches = scan_task(task, output.options.but(prefetch=ahead))
    try:
        first = next(batches, None)
        if first is None:
            return None
        with output.folder.write(place) as stream:
            with pyarrow.parquet.ParquetWriter(
                stream, schema, compression=output.compression, **_encoding(columns)
            ) as writer:
                for kept in _collected(first, batches):
                    rows += kept.num_rows
                    writer.write_table(kept.select(schema.names).cast(schema))
            size = stream.tell()
    finally:
        batches.close()
    return place_of(task.ranges[0].file) | {"output": place, "rows": rows, "bytes": size}


def _encoding(columns: list[Column]) -> dict[str, Any]:
    """Say how columns are written: few texts repeat, numbers ascend, bytes are all different."""
    ascending = [one.name for one in columns if one.type in ("bigint", "timestamp")]
    repeated = [one.name for one in columns if one.type in ("string", "int", "smallint", "tinyint")]
    return {
        "use_dictionary": repeated,
        "write_statistics": ascending + repeated,
        "column_encoding": dict.fromkeys(ascending, "DELTA_BINARY_PACKED"),
    }


def _collected(first: Any, batches: Iterator[Any]) -> Iterator[Any]:
    """Put batches together to row groups."""
    pa = require_pyarrow()
    kept, rows, size = [first], first.num_rows, first.nbytes
    for batch in batches:
        if rows + batch.num_rows > _GROUP_ROWS or size + batch.nbytes > _GROUP_BYTES:
            yield pa.Table.from_batches(kept)
            kept, rows, size = [], 0, 0
        kept.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
    yield pa.Table.from_batches(kept)
