"""Tasks of the jobs that write Parquet: export of records, catalog of batch headers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kafkascan.format.errors import CorruptBatchError
from kafkascan.io.concurrency import map_ordered
from kafkascan.spark.jobs.output_folders import OutputFolder
from kafkascan.spark.jobs.planned_outputs import (
    WRITERS,
    FinishedOutput,
    OutputTask,
    PlannedOutput,
)
from kafkascan.spark.options.manifests import MANIFESTS
from kafkascan.spark.options.reader_options import Options
from kafkascan.spark.options.view_schemas import Row, arrow_schema
from kafkascan.spark.rows.arrow_columns import record_batch_of_rows
from kafkascan.spark.rows.task_scan import scan_task
from kafkascan.tables.schema import Field, require_pyarrow

if TYPE_CHECKING:
    import pyarrow as pa

# Limits of the rows and bytes per row group.
_GROUP_ROWS, _GROUP_BYTES = 1 << 20, 1 << 24
# Record batches that are scanned ahead of the writer: about one row group.
_AHEAD = 4

COMPRESSIONS = ("zstd", "snappy", "gzip", "lz4", "brotli", "none")
"""The codecs of Parquet files, as pyarrow names them."""


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

    @property
    def columns(self) -> list[Field]:
        """The columns of the files; those of an export's folders are not repeated in files."""
        columns = self.options.schema()
        in_folders = ("topic", "partition") if self.options.view == "records" else ()
        return [one for one in columns if one.name not in in_folders]


def write_outputs(task: OutputTask, target: ExportTarget) -> Iterator[pa.RecordBatch]:
    """Write the outputs of a task, each to a Parquet file."""

    def write(output: PlannedOutput) -> list[Row]:
        row = _write_file(output, target)
        return [] if row is None else [row]

    yield record_batch_of_rows(list(map_ordered(task.outputs, write, WRITERS)), MANIFESTS["export"])


def with_damage_apart(found: pa.Table) -> tuple[pa.Table, list[str]]:
    """Return the rows of files that were written, and a finding for each file with damage."""
    import pyarrow.compute

    messages = found["error"].drop_null().to_pylist()
    findings = [line for message in messages for line in message.split("\n")]
    return found.filter(pyarrow.compute.greater(found["rows"], 0)), findings


def with_finished(
    written: pa.Table, planned: Sequence[OutputTask], finished: Mapping[str, FinishedOutput]
) -> pa.Table:
    """Add the rows of finished outputs to a manifest, in the order of the plan."""
    if not finished:
        return written
    rows = {row["output"]: row for row in written.to_pylist()}
    outputs = [output for task in planned for output in task.outputs]
    for output in outputs:
        known = finished.get(output.name)
        if known is not None and known.rows:
            rows[output.name] = _written_row(output, known.rows, known.bytes)
    ordered = [rows[output.name] for output in outputs if output.name in rows]
    return require_pyarrow().Table.from_batches(
        [record_batch_of_rows(ordered, MANIFESTS["export"])]
    )


def _written_row(
    output: PlannedOutput, rows: int, size: int, damage: Sequence[CorruptBatchError] = ()
) -> Row:
    """Return the manifest row of an output."""
    written: Row = {"output": output.name, "rows": rows, "bytes": size}
    found: Row = {"damaged_batches": len(damage), "error": _message(damage)}
    return output.task.ranges[0].file_values | written | found


def _message(damage: Sequence[CorruptBatchError]) -> str | None:
    """Return a line for each damaged file."""
    by_file: dict[str, list[CorruptBatchError]] = {}
    for error in damage:
        by_file.setdefault(error.path, []).append(error)
    lines = [
        f"{first} (the first of {1 + len(others)} damaged batches)" if others else str(first)
        for first, *others in by_file.values()
    ]
    return "\n".join(lines) or None


def _write_file(output: PlannedOutput, target: ExportTarget) -> Row | None:
    """
    Write an output, and the record that it is finished; return None if there is nothing to say.

    The name and content depend only on the plan, so a repeated attempt writes the same file. An
    output with damage has no record, so that a later run finds the damage again.
    """
    damage: list[CorruptBatchError] = []
    options = target.options.replace(prefetch=_ahead(output, target))
    batches = scan_task(output.task, options, damage.append)
    try:
        first = next(batches, None)
        rows, size = (0, 0) if first is None else _write_rows(output.name, first, batches, target)
    finally:
        batches.close()
    if output.digest and not damage and _is_complete(output, rows, target):
        target.folder.mark(output.record(rows, size))
    return _written_row(output, rows, size, damage) if rows or damage else None


def _ahead(output: PlannedOutput, target: ExportTarget) -> int:
    """
    Return the number of record batches to scan ahead of the writer, in a thread.

    The scan of one local segment overlaps with the write of another. Remote reads need more time,
    and the outputs of a catalog are written one after the other.
    """
    is_local = all(one.file.is_local for one in output.task.ranges)
    return 0 if is_local and target.options.view == "records" else _AHEAD


def _is_complete(output: PlannedOutput, rows: int, target: ExportTarget) -> bool:
    """Whether all sources were read; files that were missing may exist when the job runs again."""
    return not target.options.ignore_missing_files or (len(output.task.ranges) == 1 and rows > 0)


def _write_rows(
    name: str, first: pa.RecordBatch, batches: Iterator[pa.RecordBatch], target: ExportTarget
) -> tuple[int, int]:
    """Write the file of an output; return the number of its rows and bytes."""
    import pyarrow.parquet

    rows, columns = 0, target.columns
    schema = arrow_schema(columns)
    with target.folder.write(name) as stream:
        with pyarrow.parquet.ParquetWriter(
            stream, schema, compression=target.compression, **_encoding(columns)
        ) as writer:
            for group in _row_groups(first, batches):
                rows += group.num_rows
                writer.write_table(group.select(schema.names).cast(schema))
        return rows, stream.tell()


def _encoding(columns: list[Field]) -> dict[str, Any]:
    """
    Return the encodings of columns as arguments of ``ParquetWriter``.

    Strings and small numbers repeat (dictionary), large numbers ascend (delta), keys and values
    are mostly distinct (plain).
    """
    ascending = [one.name for one in columns if one.type in ("int64", "uint32", "time")]
    repeated = [one.name for one in columns if one.type in ("string", "int32", "int16", "int8")]
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
