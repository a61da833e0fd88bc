"""The job that builds indexes."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kafkascan.batch_columns import BatchTable, join_tables
from kafkascan.errors import KafkaScanError
from kafkascan.files import AtomicFile
from kafkascan.indexes import build_offset_index, build_time_index
from kafkascan.names import sibling_name
from kafkascan.spark.batch_rows import place_of
from kafkascan.spark.files import open_file
from kafkascan.spark.options import Options
from kafkascan.spark.plan import ScanRange, ScanTask
from kafkascan.spark.schemas import FILE_COLUMNS, Column
from kafkascan.spark.segment_rows import scan_segment, to_batch

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
    Where indexes are written.

    Attributes
    ----------
    folder : str or None
        None is next to the segments.
    force : bool
        Also next to the last segment of a log, which a broker may be writing.
    interval_bytes : int
        Kafka's ``index.interval.bytes``.
    options : Options
    """

    folder: str | None
    force: bool
    interval_bytes: int
    options: Options


def rebuild_task(task: ScanTask, target: IndexTarget) -> Iterator[Any]:
    """Build the indexes of each segment, and write what differs from what is there."""
    for one in task.ranges:
        yield to_batch(list(_rebuild(one, target)), INDEX_COLUMNS)


def _rebuild(one: ScanRange, target: IndexTarget) -> Iterator[dict[str, Any]]:
    nothing = place_of(one.file) | {"output": "", "entries": 0, "crc32": 0, "error": None}
    if target.folder is None and one.is_last and not target.force:
        yield nothing | {"action": "SKIPPED", "error": "the last segment of its log"}
        return
    tables: list[BatchTable] = []
    source = open_file(one.file, target.options)
    found = scan_segment(source, sums=False, look=tables.append, is_last=one.is_last)
    if found.error is not None:
        yield nothing | {"action": "DAMAGED", "error": str(found.error)}
        return
    batches = join_tables(tables)
    for kind, build in (("index", build_offset_index), ("timeindex", build_time_index)):
        try:
            entries = build(
                batches, base_offset=one.file.base_offset, interval_bytes=target.interval_bytes
            )
        except KafkaScanError as error:
            yield nothing | {"action": "DAMAGED", "error": f"{one.file.path}: {error}"}
            return
        data = entries.tobytes()
        path = _index_path(one, kind, target)
        counts = {"output": str(path), "entries": len(entries), "crc32": zlib.crc32(data)}
        yield nothing | counts | {"action": _put(path, data)}


def _index_path(one: ScanRange, kind: str, target: IndexTarget) -> Path:
    folder, name = os.path.split(one.file.path)
    sibling = sibling_name(name, kind) or f"{name}.{kind}"
    if target.folder is None:
        return Path(folder) / sibling
    return Path(target.folder) / os.path.basename(folder) / sibling


def _put(path: Path, data: bytes) -> str:
    """Write a file at once, unless it is there as it should be."""
    try:
        if path.read_bytes() == data:
            return "IDENTICAL"
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
    with AtomicFile(path) as file:
        file.stream.write(data)
    return "WRITTEN"
