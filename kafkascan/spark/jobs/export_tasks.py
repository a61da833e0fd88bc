"""Tasks of the jobs that write Parquet: export of records, catalog of batch headers."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kafkascan.batches.arrow import require_pyarrow
from kafkascan.io.concurrency import map_ordered
from kafkascan.spark.jobs.output_folders import OutputFolder
from kafkascan.spark.options.reader_options import Options
from kafkascan.spark.options.view_schemas import FILE_COLUMNS, Column, Row, arrow_schema
from kafkascan.spark.planning.task_plan import ScanRange, ScanTask, cut_range
from kafkascan.spark.rows.arrow_columns import record_batch_of_rows
from kafkascan.spark.rows.batch_rows import file_values
from kafkascan.spark.rows.task_scan import scan_task

if TYPE_CHECKING:
    import pyarrow as pa

# Files that one task writes concurrently. A slot of Spark is a JVM thread and a Python process;
# the JVM thread is idle here.
_WRITERS = 2
# More than one file per writer, so that the last one does not keep a single writer busy for long.
_FILES_PER_WRITER = 2
# Limits of the log bytes per output file, and of the rows and bytes per row group.
_SMALLEST_FILE, _LARGEST_FILE = 1 << 24, 1 << 27
_GROUP_ROWS, _GROUP_BYTES = 1 << 20, 1 << 24
# Record batches that are scanned ahead of the writer: about one row group.
_AHEAD = 4

COMPRESSIONS = ("zstd", "snappy", "gzip", "lz4", "brotli", "none")
"""The codecs of Parquet files, as pyarrow names them."""

WRITTEN_COLUMNS = (
    *FILE_COLUMNS,
    Column("output", "string"),
    Column("rows", "bigint"),
    Column("bytes", "bigint"),
)


@dataclass(frozen=True)
class ExportTarget:
    """
    Output location and settings of Parquet files.

    Attributes
    ----------
    folder : OutputFolder
    options : Options
    compression : str
        Codec of the Parquet files.
    """

    folder: OutputFolder
    options: Options
    compression: str


def export_task(task: ScanTask, target: ExportTarget) -> Iterator[pa.RecordBatch]:
    """Write the records of each range to a Parquet file."""
    columns = [one for one in target.options.schema() if one.name not in ("topic", "partition")]

    def write(one: ScanRange) -> list[Row]:
        file = f"{max(one.file.base_offset, 0):020d}-{one.start:012d}.parquet"
        name = f"topic={one.file.topic}/partition={one.file.partition}/{file}"
        # The scan of one local file overlaps with the write of another. Remote reads need more
        # time, so they run ahead in a thread.
        ahead = 0 if one.file.is_local else _AHEAD
        part = ScanTask((one,), task.logs, task.views)
        row = _write_file(part, name, columns, target, ahead)
        return [] if row is None else [row]

    size = sum(one.stop - one.start for one in task.ranges)
    share = -(-size // (_WRITERS * _FILES_PER_WRITER))
    max_bytes = min(_LARGEST_FILE, max(_SMALLEST_FILE, share))
    ranges = [part for one in task.ranges for part in cut_range(one, max_bytes, target.options)]
    yield record_batch_of_rows(list(map_ordered(ranges, write, _WRITERS)), WRITTEN_COLUMNS)


def catalog_task(task: ScanTask, target: ExportTarget) -> Iterator[pa.RecordBatch]:
    """Write the batch headers of all ranges to one Parquet file."""
    ranges = "\n".join(f"{one.file.path} {one.start} {one.stop}" for one in task.ranges)
    first = task.ranges[0]
    # The prefix is needed because readers ignore files whose names begin with an underscore, and
    # names of topics may.
    log = f"{first.file.topic}-{first.file.partition}"
    name = f"batches-{log}-{zlib.crc32(ranges.encode()):08x}.parquet"
    row = _write_file(task, name, list(target.options.schema()), target, _AHEAD)
    yield record_batch_of_rows([] if row is None else [row], WRITTEN_COLUMNS)


def _write_file(
    task: ScanTask, name: str, columns: list[Column], target: ExportTarget, ahead: int
) -> Row | None:
    """
    Write the rows of a task to a file; return its manifest row, or None if there are no rows.

    The name and content depend only on the task, so a repeated attempt writes the same file.
    """
    import pyarrow.parquet

    schema = arrow_schema(columns)
    rows = 0
    batches = scan_task(task, target.options.but(prefetch=ahead))
    try:
        first = next(batches, None)
        if first is None:
            return None
        with target.folder.write(name) as stream:
            with pyarrow.parquet.ParquetWriter(
                stream, schema, compression=target.compression, **_encoding(columns)
            ) as writer:
                for group in _row_groups(first, batches):
                    rows += group.num_rows
                    writer.write_table(group.select(schema.names).cast(schema))
            size = stream.tell()
    finally:
        batches.close()
    written: Row = {"output": name, "rows": rows, "bytes": size}
    return file_values(task.ranges[0].file) | written


def _encoding(columns: list[Column]) -> dict[str, Any]:
    """
    Return the encodings of columns as arguments of ``ParquetWriter``.

    Strings and small numbers repeat (dictionary), large numbers ascend (delta), keys and values
    are mostly distinct (plain).
    """
    ascending = [one.name for one in columns if one.type in ("bigint", "timestamp")]
    repeated = [one.name for one in columns if one.type in ("string", "int", "smallint", "tinyint")]
    return {
        "use_dictionary": repeated,
        "write_statistics": ascending + repeated,
        "column_encoding": dict.fromkeys(ascending, "DELTA_BINARY_PACKED"),
    }


def _row_groups(first: pa.RecordBatch, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Combine record batches into tables of the size of a row group."""
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
