"""Tasks of the job that rebuilds index files."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kafkascan.batches.columns import BatchTable, join_tables
from kafkascan.broker_state.indexes import build_offset_index, build_time_index
from kafkascan.format.errors import KafkaScanError
from kafkascan.format.file_names import sibling_name
from kafkascan.io.atomic_files import AtomicFile
from kafkascan.spark.options.reader_options import Options
from kafkascan.spark.options.view_schemas import FILE_COLUMNS, Column, Row
from kafkascan.spark.planning.task_plan import ScanRange, ScanTask
from kafkascan.spark.rows.arrow_columns import record_batch_of_rows
from kafkascan.spark.rows.batch_rows import file_values
from kafkascan.spark.rows.segment_rows import scan_segment
from kafkascan.spark.rows.task_scan import open_present

if TYPE_CHECKING:
    import pyarrow as pa

INDEX_COLUMNS = (
    *FILE_COLUMNS,
    Column("output", "string"),
    Column("entries", "bigint"),
    Column("crc32", "bigint"),
    Column("action", "string"),
    Column("error", "string", nullable=True),
)


@dataclass(frozen=True)
class IndexTarget:
    """
    Output location and settings of index files.

    Attributes
    ----------
    folder : str or None
        The output folder; None writes next to the segments.
    force : bool
        Also write next to the last segment of a log, which a broker may be appending to.
    interval_bytes : int
        Kafka's ``index.interval.bytes``.
    options : Options
    """

    folder: str | None
    force: bool
    interval_bytes: int
    options: Options


def rebuild_task(task: ScanTask, target: IndexTarget) -> Iterator[pa.RecordBatch]:
    """Build the indexes of each segment, and write those that differ from existing files."""
    for one in task.ranges:
        yield record_batch_of_rows(list(_rebuild(one, target)), INDEX_COLUMNS)


def _rebuild(one: ScanRange, target: IndexTarget) -> Iterator[Row]:
    row: Row = {"output": "", "entries": 0, "crc32": 0, "error": None}
    row |= file_values(one.file)
    if target.folder is None and one.is_last and not target.force:
        yield row | {"action": "SKIPPED", "error": "the last segment of its log"}
        return
    tables: list[BatchTable] = []
    source = open_present(one, target.options)
    if source is None:
        return
    found = scan_segment(source, sums=False, on_table=tables.append, is_last=one.is_last)
    if found.error is not None:
        yield row | {"action": "DAMAGED", "error": str(found.error)}
        return
    batches = join_tables(tables)
    for kind, build in (("index", build_offset_index), ("timeindex", build_time_index)):
        try:
            entries = build(
                batches, base_offset=one.file.base_offset, interval_bytes=target.interval_bytes
            )
        except KafkaScanError as error:
            yield row | {"action": "DAMAGED", "error": f"{one.file.path}: {error}"}
            return
        data = entries.tobytes()
        path = _index_path(one, kind, target)
        written: Row = {"output": str(path), "entries": len(entries), "crc32": zlib.crc32(data)}
        yield row | written | {"action": _write_changed(path, data)}


def _index_path(one: ScanRange, kind: str, target: IndexTarget) -> Path:
    folder, name = os.path.split(one.file.path)
    sibling = sibling_name(name, kind) or f"{name}.{kind}"
    if target.folder is None:
        return Path(folder) / sibling
    return Path(target.folder) / os.path.basename(folder) / sibling


def _write_changed(path: Path, data: bytes) -> str:
    """Write a file atomically unless it already has this content; return the action."""
    try:
        if path.read_bytes() == data:
            return "IDENTICAL"
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
    with AtomicFile(path) as file:
        file.stream.write(data)
    return "WRITTEN"
