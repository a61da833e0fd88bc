"""The job that fills tables of Iceberg and Delta with records, each offset once."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkascan.schemas.registry_schemas import SCHEMAS_TOPIC
from kafkascan.spark.jobs.fleet_jobs import JobReport, parsed_options
from kafkascan.spark.jobs.lake_tables import (
    Commit,
    LakeTable,
    Progress,
    create_table,
    find_commit,
    lake_table,
    read_progress,
    require_table_name,
    session_for,
    table_exists,
)
from kafkascan.spark.jobs.table_columns import column_changes, follow_columns
from kafkascan.spark.options.manifests import MANIFESTS
from kafkascan.spark.options.option_values import format_offsets, parse_offsets
from kafkascan.spark.options.reader_options import CORRUPT_RECORD, Options
from kafkascan.spark.options.typed_fields import parse_registry
from kafkascan.spark.options.view_schemas import Row, ddl
from kafkascan.spark.planning.read_plan import require_topics
from kafkascan.spark.planning.task_plan import ScanTask, list_selected
from kafkascan.spark.readers.frames import map_tasks
from kafkascan.spark.readers.log_ends import LogEnds, Positions
from kafkascan.spark.readers.stream_reader import ScanPartition, StreamReader
from kafkascan.spark.rows.arrow_columns import record_batch_of_rows
from kafkascan.spark.rows.problem_rows import PROBLEM_FIELDS, ProblemScan, scan_problems
from kafkascan.spark.rows.task_scan import scan_task
from kafkascan.tables.schema import Field, require_pyarrow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kafkascan.spark.readers.frames import Paths

# Options of values with types, and their fields.
_TYPED = {
    "registry": "registry",
    "keyschema": "key_schema",
    "valueschema": "value_schema",
    "valuemessage": "value_message",
}
# For subscribePattern, which selects no internal topics of Kafka: a registry's is none to Kafka.
_ORDINARY_TOPICS = rf"^(?!{SCHEMAS_TOPIC}\Z)"
_COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")


def write_table(
    spark: SparkSession,
    path: Paths,
    table: str,
    *,
    table_format: str = "iceberg",
    upsert: bool = False,
    **options: Any,
) -> JobReport:
    """
    Write the records of logs to tables of Iceberg or Delta, each offset once.

    The table is created if it does not exist, partitioned by topic and day. The next offset of
    each partition stands in the commit of its rows, and a run continues there. A run that was
    killed, that runs twice at once or is repeated therefore adds each offset once. Threads of one
    session may fill several tables at once.

    Records that are no rows go to a second table, whose name ends in ``_problems``: values that
    the registry's schemas do not decode, damaged batches, and with `upsert` records without a key.

    Parameters
    ----------
    spark : SparkSession
        With the catalog of the table; for `upsert`, with the extensions of its format. An upsert
        in Delta over Spark Connect needs PySpark 4.1 or newer.
    path : path, or a sequence of them
        As in `kafkascan.spark.records`. The driver must have access to the files.
    table : str
        ``catalog.database.table``, or ``delta.`/path```. With ``{topic}`` in the name, each topic
        has a table of its own, in whose name other characters than letters and digits are ``_``.
    table_format : {"iceberg", "delta"}
    upsert : bool, default False
        Keep the last record of each key of a partition, as log compaction does: a record replaces
        the one with the same key, and a record whose value is null deletes it.
    **options
        Options of the data source. By default, the columns are topic, partition, offset,
        timestamp, key, value and headers; ``columns`` adds others. ``registry`` gives values
        types; a topic of a table of its own has the schema ``TOPIC-value``, and bytes if there is
        none or it cannot be used. With ``maxBytesPerTrigger`` or ``maxOffsetsPerTrigger``, a run
        makes several commits. ``startingOffsets`` (by default the earliest) applies to a table
        without commits.

    Returns
    -------
    JobReport
        A row per partition and commit. Findings are what is missing in the registry, records that
        went to the table of problems, bytes at the end of a log that are no complete batches,
        topics of new tables whose values are bytes, and offsets that were taken from rows because
        their commits have expired.

    Raises
    ------
    NoLogsError
        If there are no logs, or none of a topic that the options name.
    ValueError
        If offsets after the last commit no longer exist, unless ``failOnDataLoss=false``; or,
        before anything is written, if a column of a table has a type that cannot become that of
        the rows.
    ImportError
        Before anything is written, if a library is missing that the schemas need.
    """
    parsed, typed = parse_table_options(path, table, table_format, options)
    wanted = parsed.replace(ignore_missing_files=False)
    require_topics({log.partition for log in list_selected(wanted)}, wanted)
    own = session_for(spark, table_format, upsert=upsert)
    targets = [
        _Target.of(own, name, table_format, records, upsert=upsert)
        for name, records in _tables(parsed, table, typed)
    ]
    for one in targets:
        one.require_columns(own)
    rows: list[Row] = []
    registry = typed.get("registry", parsed.registry)
    problems = () if registry is None else registry.problems
    findings = [str(one) for one in problems if one.rows_missing]
    totals = {"tables": len(targets), "commits": 0, "offsets": 0, "problems": 0}
    for one in targets:
        name, logs = one.main.name, _Logs.of(one.records.options)
        filled = list(_fill(own, one.main, logs, one.rows))
        rows += [row for step in filled for row in _manifest(name, step)]
        if one.records.note and filled and not filled[0].before.offsets:  # a new table
            findings.append(one.records.note)
        findings += [
            f"{name}: no commit of kafkascan is left: continued after the offsets of its rows"
            for step in filled
            if step.before.offsets and not step.before.run
        ]
        findings += logs.unread_tails()
        totals["commits"] += len(filled)
        totals["offsets"] += sum(map(_advance, filled))
        until = read_progress(own, one.main).offsets
        apart = list(_fill(own, one.apart, logs, one.problems, until))
        count = sum(step.commit.added_rows for step in apart)
        totals["problems"] += count
        if count:
            findings.append(f"{name}: {count} records are no rows: see {one.apart.name}")
    manifest = require_pyarrow().Table.from_batches(
        [record_batch_of_rows(rows, MANIFESTS["table"])]
    )
    return JobReport("table", manifest, totals, findings)


def table_offsets(spark: SparkSession, table: str, *, table_format: str = "iceberg") -> str:
    """
    Return the next offsets of a table that `write_table` filled.

    Returns
    -------
    str
        JSON as Spark's Kafka source expects it in ``startingOffsets``.
    """
    progress = read_progress(spark, lake_table(spark, table, table_format))
    return json.dumps(format_offsets(progress.offsets))


def problems_name(table: str) -> str:
    """Return the name of the table of records that are no rows."""
    return f"{table[:-1]}_problems`" if table.endswith("`") else f"{table}_problems"


# ---- which tables, and which records ----


def parse_table_options(
    path: Paths, table: str, table_format: str, options: Mapping[str, Any]
) -> tuple[Options, dict[str, Any]]:
    """Return the options, and those of values with types if each topic has a table of its own."""
    require_table_name(table, table_format)
    given = dict(options)
    typed: dict[str, Any] = {}
    if "{topic}" in table:
        for name in [name for name in given if name.lower() in _TYPED]:
            typed[_TYPED[name.lower()]] = given.pop(name)
        if "registry" in typed:
            typed["registry"] = parse_registry(typed["registry"])
    parsed = parsed_options("table", path, given)
    if not parsed.selects_topics:  # internal topics only if they are named
        parsed = parsed.replace(subscribe_pattern=_ORDINARY_TOPICS)
    more = [name for name in parsed.columns if name not in (*_COLUMNS, CORRUPT_RECORD.name)]
    ours = parsed.replace(
        columns=(*_COLUMNS, *more),
        mode=parsed.mode or "PERMISSIVE",
        starting_offsets=parsed.starting_offsets or "earliest",
        ignore_missing_files=not parsed.fail_on_data_loss,
    )
    return ours, typed


class _Records(NamedTuple):
    """The records of a table, and a note if their values are bytes although there is a registry."""

    options: Options
    note: str = ""


def _tables(
    options: Options, table: str, typed: Mapping[str, Any]
) -> Iterator[tuple[str, _Records]]:
    """Yield the name of each table, and its records."""
    if "{topic}" not in table:
        yield table, _Records(options)
        return
    names: dict[str, str] = {}
    for topic in dict.fromkeys(topic for topic, _ in LogEnds(options).logs()):
        name = table.replace("{topic}", re.sub(r"\W", "_", topic))
        for one in (name, problems_name(name)):
            if one in names:
                raise ValueError(f"the topics {names[one]} and {topic} have the same table {one}")
            names[one] = topic
        yield name, _of_topic(topic, options.replace(topics=(topic,)), typed)


def _of_topic(topic: str, options: Options, typed: Mapping[str, Any]) -> _Records:
    """Return records with values of types, if the registry has a schema for these."""
    try:
        return _Records(options.replace(**typed).checked())
    except ValueError as error:
        return _Records(options, f"{topic}: values are bytes: {error}")


@dataclass(frozen=True)
class _Source:
    """
    The rows of a table: their columns, a task's work, and how to commit them.

    Attributes
    ----------
    fields : tuple of Field
    frame : callable
        Returns the rows of tasks as a DataFrame.
    upsert : bool
        Whether only the last row of each key is kept.
    """

    fields: tuple[Field, ...]
    frame: Callable[[SparkSession, Sequence[ScanTask]], DataFrame]
    upsert: bool = False


@dataclass(frozen=True)
class _Target:
    """A table and the one of its problems, with what both are filled from."""

    records: _Records
    main: LakeTable
    rows: _Source
    apart: LakeTable
    problems: _Source

    @classmethod
    def of(
        cls, spark: SparkSession, name: str, kind: str, records: _Records, *, upsert: bool
    ) -> _Target:
        """Return a table by its name."""
        return cls(
            records,
            lake_table(spark, name, kind),
            _rows_of(records.options, upsert=upsert),
            lake_table(spark, problems_name(name), kind),
            _problems_of(records.options, upsert=upsert),
        )

    def require_columns(self, spark: SparkSession) -> None:
        """Raise `ValueError` if a table exists whose columns cannot hold the rows."""
        try:
            for table, source in ((self.main, self.rows), (self.apart, self.problems)):
                if table_exists(spark, table.name):
                    column_changes(table, source.fields)
        except ValueError as error:
            note = f" ({self.records.note})" if self.records.note else ""
            raise ValueError(f"{error}{note}") from None


def _rows_of(options: Options, *, upsert: bool) -> _Source:
    """Return the records that are rows."""
    keeps_damage = not options.fails_fast
    names = (*options.columns, *((CORRUPT_RECORD.name,) if keeps_damage else ()))
    read = options.replace(columns=names)
    conditions = [f"{CORRUPT_RECORD.name} IS NULL"] if keeps_damage else []
    conditions += ["key IS NOT NULL"] if upsert else []

    def frame(spark: SparkSession, tasks: Sequence[ScanTask]) -> DataFrame:
        found = map_tasks(spark, tasks, scan_task, read, ddl(read.schema()))
        return found.where(" AND ".join(conditions) or "true")

    return _Source(options.schema(), frame, upsert)


def _problems_of(options: Options, *, upsert: bool) -> _Source:
    """Return the records that are not."""
    scan = ProblemScan(options, needs_key=upsert)

    def frame(spark: SparkSession, tasks: Sequence[ScanTask]) -> DataFrame:
        return map_tasks(spark, tasks, scan_problems, scan, ddl(PROBLEM_FIELDS))

    return _Source(PROBLEM_FIELDS, frame)


# ---- filling a table ----


class _Logs(NamedTuple):
    """The selected logs, up to where they end when the job starts."""

    options: Options
    reader: StreamReader

    @classmethod
    def of(cls, options: Options) -> _Logs:
        """Return the logs that options select."""
        reader = StreamReader(options, options.schema())
        reader.prepareForTriggerAvailableNow()
        return cls(options, reader)

    def range_after(self, known: Positions, until: Positions | None) -> tuple[Positions, Positions]:
        """Return the offsets where the next commit starts and ends."""
        selected = {one: at for one, at in known.items() if self.options.selects(*one)}
        start = selected or parse_offsets(self.reader.initialOffset())
        if until is None:
            return start, parse_offsets(self.reader.latestOffset(format_offsets(start)))
        # Another driver may have gone further meanwhile.
        ends = {one: max(at, start.get(one, at)) for one, at in until.items()}
        return start, {one: at for one, at in ends.items() if self.options.selects(*one)}

    def unread_tails(self) -> list[str]:
        """Return a finding for each log whose last bytes are no complete batches."""
        return self.reader.unread_tails()

    def tasks(self, start: Positions, end: Positions) -> list[ScanTask]:
        """Return the tasks that read the records between offsets."""
        found = self.reader.partitions(format_offsets(start), format_offsets(end))
        return [one.task for one in found if isinstance(one, ScanPartition)]


@dataclass(frozen=True)
class _Step:
    """A commit: how far the table was filled before, where the commit starts, and its result."""

    before: Progress
    start: Positions
    end: Positions
    commit: Commit


def _fill(
    spark: SparkSession,
    table: LakeTable,
    logs: _Logs,
    source: _Source,
    until: Positions | None = None,
) -> Iterator[_Step]:
    """Commit records to a table until it contains all offsets, or those until some."""
    create_table(spark, table, source.fields)
    follow_columns(spark, table, source.fields)
    while True:
        before = read_progress(spark, table)
        start, end = logs.range_after(before.offsets, until)
        if all(before.offsets.get(one) == at for one, at in end.items()):
            return
        after = Progress(
            before.offsets | end, uuid.uuid4().hex, before.sequence + 1, before.version
        )
        rows = table.with_partitioning(source.frame(spark, logs.tasks(start, end)))
        rows = rows.to(table.columns())
        # If another driver was first, its commit says where to continue.
        commit = _commit(table, source, rows, before, after)
        if commit is not None:
            yield _Step(before, start, end, commit)


def _commit(
    table: LakeTable, source: _Source, rows: DataFrame, before: Progress, after: Progress
) -> Commit | None:
    """Commit rows; return None if another driver's commit took place instead."""
    try:
        commit = table.upsert if source.upsert else table.append
        commit(rows, before, after)
    except Exception:
        # Spark does not say whether a commit that failed has taken place.
        found = find_commit(table, before, after)
        if found is None and next(table.commits()).version == before.version:
            raise
        return found
    return find_commit(table, before, after)


def _advance(step: _Step) -> int:
    return sum(at - max(0, step.start.get(one, 0)) for one, at in step.end.items())


def _manifest(table: str, step: _Step) -> Iterator[Row]:
    """Yield a row for each partition that a commit advanced."""
    for (topic, partition), at in sorted(step.end.items()):
        first = step.start.get((topic, partition))
        if first != at:
            yield {
                "table": table,
                "version": step.commit.version,
                "topic": topic,
                "partition": partition,
                "first_offset": first,
                "next_offset": at,
            }
