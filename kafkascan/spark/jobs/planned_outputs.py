"""Outputs of an export or a catalog: planned files, and records of those that are finished.

When a task has written an output, it adds an empty file to the folder ``_finished``. Its name
contains the name of the output, a digest of all that determines the content (source files, range,
options), and the number of rows and bytes. An empty file appears atomically everywhere, and a
listing of the folder shows all that a later run needs to know.
"""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import kafkascan
from kafkascan.spark.options.option_values import TopicPartition
from kafkascan.spark.options.reader_options import Options
from kafkascan.spark.options.view_schemas import declared_type
from kafkascan.spark.planning.planned_logs import PlannedLog, PlannedSegment
from kafkascan.spark.planning.task_plan import ScanRange, ScanTask, cut_range

FINISHED = "_finished"
"""The folder of the records of finished outputs. Readers of Parquet ignore its name."""

# Files that one task writes concurrently. A slot of Spark is a JVM thread and a Python process;
# the JVM thread is idle here.
WRITERS = 2
# More than one file per writer, so that the last one does not keep a single writer busy for long.
_FILES_PER_WRITER = 2
# Limits of the log bytes per output file.
_SMALLEST_FILE, _LARGEST_FILE = 1 << 24, 1 << 27
# Characters of a topic in the name of a file, which contains other parts and is limited to 255.
_TOPIC_IN_NAME = 120
_DIGEST_BYTES = 16
_RECORD = re.compile(
    rf"{FINISHED}/(?P<name>.+)\.(?P<digest>[0-9a-f]{{32}})\.(?P<rows>\d+)\.(?P<bytes>\d+)",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class PlannedOutput:
    """
    A file to write.

    Attributes
    ----------
    name : str
        Relative to the output folder.
    task : ScanTask
        The ranges whose rows it contains.
    digest : str
        Of all that determines the content; empty if nothing shows whether a source changed.
    """

    name: str
    task: ScanTask
    digest: str

    def record(self, rows: int, size: int) -> str:
        """Return the name of the record that the output is finished."""
        return f"{FINISHED}/{self.name}.{self.digest}.{rows}.{size}"


@dataclass(frozen=True, slots=True)
class OutputTask:
    """The outputs that one task of Spark writes."""

    outputs: tuple[PlannedOutput, ...]


@dataclass(frozen=True, slots=True)
class FinishedOutput:
    """Number of rows and bytes of an output that is finished; no file exists without rows."""

    rows: int
    bytes: int


def plan_exports(tasks: Iterable[ScanTask], options: Options, codec: str) -> Iterator[OutputTask]:
    """Yield tasks whose outputs are parts of segments, in a folder for each partition."""
    digests = _Digests(options, codec)
    for task in tasks:
        size = sum(one.stop - one.start for one in task.ranges)
        share = -(-size // (WRITERS * _FILES_PER_WRITER))
        max_bytes = min(_LARGEST_FILE, max(_SMALLEST_FILE, share))
        parts = [part for one in task.ranges for part in cut_range(one, max_bytes, options)]
        outputs = [(_export_name(part), _part_of(task, part)) for part in parts]
        yield OutputTask(tuple(PlannedOutput(*one, digests.of(one[1])) for one in outputs))


def plan_catalog(tasks: Iterable[ScanTask], options: Options, codec: str) -> Iterator[OutputTask]:
    """Yield tasks with one output each."""
    digests = _Digests(options, codec)
    for task in tasks:
        yield OutputTask((PlannedOutput(_catalog_name(task), task, digests.of(task)),))


def without_finished(
    planned: Iterable[OutputTask], finished: Mapping[str, FinishedOutput]
) -> Iterator[OutputTask]:
    """Yield the tasks without finished outputs."""
    for task in planned:
        left = tuple(output for output in task.outputs if output.name not in finished)
        if left:
            yield OutputTask(left)


def _part_of(task: ScanTask, part: ScanRange) -> ScanTask:
    folder = part.file.folder
    logs = {folder: task.logs[folder]} if folder in task.logs else {}
    return ScanTask((part,), logs)


def _export_name(one: ScanRange) -> str:
    file = f"{max(one.file.base_offset, 0):020d}-{one.start:012d}.parquet"
    return f"topic={one.partition[0]}/partition={one.partition[1]}/{file}"


def _catalog_name(task: ScanTask) -> str:
    ranges = "\n".join(f"{one.file.path} {one.start} {one.stop}" for one in task.ranges)
    topic, partition = task.ranges[0].partition
    # The prefix is needed because readers ignore files whose names begin with an underscore, and
    # names of topics may.
    log = f"{topic[:_TOPIC_IN_NAME]}-{partition}"
    return f"batches-{log}-{zlib.crc32(ranges.encode()):08x}.parquet"


# ---- finished outputs --------------------------------------------------------------------------


def is_record(name: str) -> bool:
    """Whether a file has the name of a record."""
    return _RECORD.fullmatch(name) is not None


def find_finished(
    planned: Sequence[PlannedOutput], sizes: Mapping[str, int]
) -> dict[str, tuple[str, FinishedOutput]]:
    """
    Return the outputs that need not be written again.

    Parameters
    ----------
    planned : sequence of PlannedOutput
    sizes : mapping
        Sizes of the files in the output folder by name.

    Returns
    -------
    dict
        The name of the record and the numbers that it contains, by the name of the output.
    """
    wanted = {output.name: output.digest for output in planned if output.digest}
    found = {}
    for record in sizes:
        match = _RECORD.fullmatch(record)
        if match is None or match["digest"] != wanted.get(match["name"]):
            continue
        numbers = FinishedOutput(int(match["rows"]), int(match["bytes"]))
        expected = numbers.bytes if numbers.rows else None
        if sizes.get(match["name"]) == expected:
            found[match["name"]] = (record, numbers)
    return found


_OF_RANGES = ("start", "stop", "start_offset", "stop_offset", "is_last")


class _Digests:
    """Computes digests of all that determines the content of outputs."""

    def __init__(self, options: Options, codec: str) -> None:
        settings = {
            field.name: getattr(options, field.name)
            for field in fields(options)
            if field.metadata["is_content"]
        }
        settings["where"] = None if options.where is None else options.where.text
        settings["registry"] = [
            (one.context, one.id, one.guid, one.text)
            for one in (() if options.registry is None else options.registry.schemas)
        ]
        schema = [(one.name, declared_type(one), one.nullable) for one in options.schema()]
        self._settings = [kafkascan.__version__, codec, settings, schema]
        self._logs: dict[str, str] = {}

    def of(self, task: ScanTask) -> str:
        """Return the digest of an output; empty if nothing shows whether a source changed."""
        logs = list(map(self._log, task.logs.values()))
        if not all(logs) or not all(_has_version(one.file) for one in task.ranges):
            return ""
        ranges = [
            (_version(one.partition, one.file), *(getattr(one, name) for name in _OF_RANGES))
            for one in task.ranges
        ]
        return _digest([*self._settings, ranges, logs])

    def _log(self, log: PlannedLog) -> str:
        """Return the digest of a log, whose transactions determine which records are committed."""
        if log.folder not in self._logs:
            is_known = all(map(_has_version, log.segments))
            versions = [_version(log.partition, file) for file in log.segments]
            self._logs[log.folder] = _digest(versions) if is_known else ""
        return self._logs[log.folder]


def _has_version(file: PlannedSegment) -> bool:
    return bool(file.modified_ns is not None or file.etag)


def _version(partition: TopicPartition, file: PlannedSegment) -> tuple[object, ...]:
    place = (file.path, *partition, file.base_offset)
    return (*place, file.size, file.modified_ns, file.etag)


def _digest(value: Any) -> str:
    data = json.dumps(value, default=repr).encode()
    return hashlib.blake2b(data, digest_size=_DIGEST_BYTES).hexdigest()
