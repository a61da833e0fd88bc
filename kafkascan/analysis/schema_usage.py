"""Which schemas the records of topics were written with, and by whom: prefixes only."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kafkascan.analysis.analysis_schemas import USAGE_SCHEMA
from kafkascan.format.findings import Severity
from kafkascan.io.stores.urls import as_object_url
from kafkascan.logs.log_finding import PartitionFilter
from kafkascan.logs.log_problems import LogProblems, notes_of_moving
from kafkascan.logs.opened_logs import LogsLike, LogView, open_logs, selected_logs
from kafkascan.logs.topic_records import topic_problem
from kafkascan.logs.walking.log_reading import iter_log
from kafkascan.records.read_options import ReadOptions
from kafkascan.records.record_table import RecordTable
from kafkascan.schemas.framing import FRAMING_NAMES, FrameReader, Part
from kafkascan.schemas.registry import (
    DEFAULT_CONTEXTS,
    NO_ID,
    RegisteredSchema,
    Registry,
    SchemaError,
    SubjectVersion,
    context_of,
)
from kafkascan.schemas.registry_schemas import SCHEMAS_TOPIC
from kafkascan.tables.table import Problem, Problems, Table

TOO_MANY_PRODUCERS = "TOO_MANY_PRODUCERS"
"""Symbol of a problem: a row does not name all producers."""

MOST_PRODUCERS = 1_000
"""Producer ids in a row."""

_COLUMNS = ("offset", "timestamp", "headers", "producer_id")
_RECORDS_AT_ONCE = 1 << 16
_FORMS = 16
# Contexts that an error names.
_MOST_CONTEXTS = 5
_NO_TIME = np.iinfo(np.int64).max


def read_schema_usage(
    logs: LogsLike,
    registry: Registry,
    /,
    *,
    topics: Collection[str] | None = None,
    partitions: Collection[int] | None = None,
    part: Part = "value",
    context: str = "",
    log_start_offset: int | None = None,
    storage_options: Mapping[str, object] | None = None,
) -> Table:
    """
    Count the records of logs by the schema that they were written with.

    Only prefixes and record headers are read. Topics of Kafka's own (``__consumer_offsets``) and
    the registry's (``_schemas``) are left out in a data dir.

    Parameters
    ----------
    logs : path, LogDir, PartitionDir, bytes-like, Source or SegmentFile
        See `read_transactions`.
    registry : Registry
    topics : collection of str, optional
        Topics to read of a directory or an archive; by default all.
    partitions : collection of int, optional
        Numbers of the partitions to read; by default all.
    part : {"value", "key"}
    context : str, optional
        The context of the ids in the records; by default the default one.
    log_start_offset : int, optional
        See `read_records`.
    storage_options : mapping, optional
        Options of the store, if `logs` is a URL; see `ObjectUrl`.

    Returns
    -------
    Table
        A row per partition, schema and form; `USAGE_SCHEMA` has the columns.

    Raises
    ------
    SchemaError
        If the registry does not have the context.
    As `open_log_dir`.
    """
    _require_context(registry, context)
    logs = selected_logs(
        as_object_url(logs, storage_options), PartitionFilter.of(topics, partitions)
    )
    opened = open_logs(logs, log_start_offset)
    found = [one for one in opened if not _is_internal(one.partition.topic or "")]
    reader = FrameReader(registry, context=context)
    rows: list[dict[str, Any]] = []
    problems: list[Problem] = [*notes_of_moving(opened)]
    for log in found if len(opened) > 1 else opened:
        usage = _LogUsage(log, reader, part)
        rows += usage.rows(registry)
        problems += usage.problems
    return Table.of_rows(USAGE_SCHEMA, rows, Problems(problems))


def _require_context(registry: Registry, context: str) -> None:
    known = sorted({one.context for one in registry.schemas} - {*DEFAULT_CONTEXTS})
    if context in DEFAULT_CONTEXTS or context in known:
        return
    shown = ", ".join(["the default one", *map(repr, known[:_MOST_CONTEXTS])])
    more = f" and {len(known) - _MOST_CONTEXTS} more" if len(known) > _MOST_CONTEXTS else ""
    raise SchemaError(f"{registry.place}: there is no context {context!r}, only {shown}{more}")


def _is_internal(topic: str) -> bool:
    return topic.startswith("__") or topic == SCHEMAS_TOPIC


@dataclass
class _Group:
    """The records of one schema and form."""

    first_offset: int
    records: int = 0
    last_offset: int = -1
    first_timestamp: int = _NO_TIME
    last_timestamp: int = -1
    producer_ids: set[int] = field(default_factory=set)
    has_all_producers: bool = True

    def add_producers(self, found: list[int]) -> None:
        """Add producer ids, up to a limit."""
        fresh = [one for one in found if one >= 0 and one not in self.producer_ids]
        room = MOST_PRODUCERS - len(self.producer_ids)
        self.has_all_producers &= len(fresh) <= room
        self.producer_ids.update(fresh[:room])


class _LogUsage:
    """Counts the records of a log."""

    def __init__(self, log: LogView, reader: FrameReader, part: Part) -> None:
        self._log, self._reader, self._part = log, reader, part
        self._groups: dict[int, _Group] = {}
        known = LogProblems([log])
        options = ReadOptions(
            columns=(*_COLUMNS, part), on_corrupt="stop", batch_size=_RECORDS_AT_ONCE
        )
        for table in iter_log(log, options, known):
            self._add(table)
        self.problems: list[Problem] = [*known.found]

    def _add(self, table: RecordTable) -> None:
        framed = self._reader.read(table, self._part)
        codes = (framed.schema.astype(np.int64) + 1) * _FORMS + framed.framing
        columns = [codes, *(table[name] for name in ("offset", "timestamp", "producer_id"))]
        if int(codes.min()) < int(codes.max()):
            # 16 bits are sorted in linear time.
            is_small = int(codes.max()) < 1 << 16
            order = np.argsort(codes.astype(np.uint16) if is_small else codes, kind="stable")
            columns = [one[order] for one in columns]
        codes, offsets, times, producers = columns
        is_first = _changes(codes)
        self._add_groups(codes, offsets, times, np.flatnonzero(is_first))
        runs = np.flatnonzero(is_first | _changes(producers))
        self._add_producers(codes[runs], producers[runs])

    def _add_groups(
        self,
        codes: NDArray[np.int64],
        offsets: NDArray[np.int64],
        times: NDArray[np.int64],
        starts: NDArray[np.int64],
    ) -> None:
        """Add the counts and ranges of records that are sorted by code, and then by offset."""
        ends = np.append(starts[1:], len(codes))
        known = np.where(times < 0, _NO_TIME, times)
        columns = (
            codes[starts], ends - starts, offsets[starts], offsets[ends - 1],
            np.minimum.reduceat(known, starts), np.maximum.reduceat(times, starts),
        )  # fmt: skip
        for code, count, first, last, earliest, latest in zip(
            *(one.tolist() for one in columns), strict=True
        ):
            group = self._groups.setdefault(code, _Group(first_offset=first))
            group.records += count
            group.last_offset = last
            group.first_timestamp = min(group.first_timestamp, earliest)
            group.last_timestamp = max(group.last_timestamp, latest)

    def _add_producers(self, codes: NDArray[np.int64], producers: NDArray[np.int64]) -> None:
        pairs = np.unique(np.stack([codes, producers], axis=1), axis=0)
        bounds = np.flatnonzero(_changes(pairs[:, 0]))
        for rows in np.split(pairs, bounds[1:]):
            self._groups[int(rows[0, 0])].add_producers(rows[:, 1].tolist())

    def rows(self, registry: Registry) -> Iterator[dict[str, Any]]:
        """Return a row per group: by subject and version, those without a schema last."""
        found = []
        for code, group in self._groups.items():
            row, form = divmod(code, _FORMS)
            schema = self._reader.schemas[row - 1] if row else None
            topic = self._log.partition.topic
            one = None if schema is None else _version_of(registry, schema, topic, self._part)
            order = (one is None, (one.subject, one.version) if one else ("", 0), form)
            found.append((order, self._row(one, FRAMING_NAMES[form], group)))
            if not group.has_all_producers:
                text = f"more than {MOST_PRODUCERS:,} producers wrote with one schema"
                self.problems.append(
                    topic_problem(
                        self._log, TOO_MANY_PRODUCERS, text, Severity.NOTE, rows_missing=False
                    )
                )
        return (row for _, row in sorted(found, key=lambda one: one[0]))

    def _row(self, one: SubjectVersion | None, framing: str, group: _Group) -> dict[str, Any]:
        has_time = group.first_timestamp != _NO_TIME
        return {
            "topic": self._log.partition.topic,
            "partition": self._log.partition.partition,
            "subject": one and one.subject,
            "version": one and one.version,
            "id": None if one is None or one.schema.id == NO_ID else one.schema.id,
            "schema_type": one and one.schema.schema_type,
            "framing": framing,
            "records": group.records,
            "first_offset": group.first_offset,
            "last_offset": group.last_offset,
            "first_timestamp": group.first_timestamp if has_time else -1,
            "last_timestamp": group.last_timestamp,
            "producer_ids": sorted(group.producer_ids),
        }


def _version_of(
    registry: Registry, schema: RegisteredSchema, topic: str | None, part: Part
) -> SubjectVersion:
    """Return the newest version with a schema: of the topic's subject, or else of the first."""
    users = registry.users_of(schema)

    def rank(one: SubjectVersion) -> tuple[bool, str, int]:
        context = context_of(one.subject)
        name = one.subject.removeprefix(f":{context}:") if context else one.subject
        return name != f"{topic}-{part}", one.subject, -one.version

    return min(users, key=rank)


def _changes(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Return where values differ from the one before; the first one does."""
    found = np.ones(len(values), np.bool_)
    np.not_equal(values[1:], values[:-1], out=found[1:])
    return found
