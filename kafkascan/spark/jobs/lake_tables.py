"""Tables of Iceberg and Delta whose commits say which offsets they contain.

A commit carries a JSON document: the next offset of each partition, and the run that wrote it. In
Iceberg, it is a property of the snapshot; in Delta, it is the user metadata of the commit. A commit
takes place only if the one from which its offsets continue is still the last one.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from kafkascan.spark.options.option_values import format_offsets, parse_offsets
from kafkascan.spark.options.view_schemas import ddl
from kafkascan.spark.readers.log_ends import Positions
from kafkascan.tables.schema import Field

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_NAMES = {
    "iceberg": (r"\w+(\.\w+){2,}", "catalog.database.table"),
    "delta": (r"\w+(\.\w+)+|delta\.`[^`]+`", "database.table or delta.`/path`"),
}

DOCUMENT = "kafkascan"
"""The name of the document in a commit."""

_SECONDS = "unix_micros(`timestamp`) / 1000000"
_COMMITS_READ = (20, 1000)
_PUBLISH_ATTEMPTS = 20

# The last record of each key. Without a condition on offsets, a run that continues from the rows
# of a table, because its commits have expired, would write older records again.
_MERGE = """
MERGE INTO {target} AS t USING (
  SELECT * EXCEPT (number) FROM (
    SELECT *, row_number() OVER (PARTITION BY topic, `partition`, key ORDER BY offset DESC) number
    FROM {{rows}}
  ) WHERE number = 1
) AS s
ON t.topic = s.topic AND t.`partition` = s.`partition` AND t.key = s.key
WHEN MATCHED AND s.offset > t.offset AND s.value IS NULL THEN DELETE
WHEN MATCHED AND s.offset > t.offset THEN UPDATE SET *
WHEN NOT MATCHED AND s.value IS NOT NULL THEN INSERT *
"""


@dataclass(frozen=True)
class Progress:
    """
    How far a table is filled.

    Attributes
    ----------
    offsets : dict
        The next offset by topic and partition.
    run : str
        The run that made the commit; empty if the offsets are those of the rows.
    sequence : int
        Number of the commit among those with a document.
    version : int
        The last version (Delta) or snapshot (Iceberg) of the table when the offsets were read.
    """

    offsets: Positions
    run: str
    sequence: int
    version: int

    def to_json(self) -> str:
        """Return the document of a commit."""
        offsets = format_offsets(self.offsets)
        return json.dumps(
            {DOCUMENT: {"offsets": offsets, "run": self.run, "sequence": self.sequence}}
        )


@dataclass(frozen=True)
class Commit:
    """A version of a table, its document (None if another program wrote it), and its new rows."""

    version: int
    document: Mapping[str, Any] | None
    added_rows: int


class LakeTable(Protocol):
    """A table of a format."""

    name: str

    def create(self, columns: str) -> None:
        """Create the table with columns (DDL), partitioned by topic and day."""

    def columns(self) -> StructType:
        """Return the columns that the table has now."""

    def with_partitioning(self, rows: DataFrame) -> DataFrame:
        """Return rows with the columns that only the partitioning needs."""

    def commits(self) -> Iterator[Commit]:
        """Yield the commits of the table, the last one first."""

    def append(self, rows: DataFrame, before: Progress, after: Progress) -> None:
        """Commit rows; raise an error, or do nothing, if another commit followed `before`."""

    def upsert(self, rows: DataFrame, before: Progress, after: Progress) -> None:
        """Commit the last row of each key in the same way."""


def read_progress(spark: SparkSession, table: LakeTable) -> Progress:
    """
    Return how far a table is filled.

    Commits are deleted when they expire. If none with a document is left, the next offset of a
    partition is the one after its largest offset in the table: the records after it that are no
    rows, such as markers of transactions, are read again and are no rows again.
    """
    last = None
    for one in table.commits():
        last = one.version if last is None else last
        if one.document is not None:
            offsets = parse_offsets(one.document["offsets"])
            return Progress(offsets, one.document["run"], one.document["sequence"], last)
    if last is None:
        raise ValueError(f"{table.name}: the table has no commit")
    rows = spark.sql(
        f"SELECT topic, `partition`, max(offset) + 1 AS next FROM {table.name}"
        " WHERE offset IS NOT NULL GROUP BY topic, `partition`"
    ).collect()
    found = {(row["topic"], row["partition"]): row["next"] for row in rows}
    # Not less than the number of commits with a document that have expired.
    return Progress(found, "", last, last)


def create_table(spark: SparkSession, table: LakeTable, fields: Sequence[Field]) -> None:
    """Create a table if it does not exist, with a first commit, from which others continue."""
    if not table_exists(spark, table.name):
        try:
            table.create(ddl(replace(one, nullable=True) for one in fields))
        except Exception:
            if not table_exists(spark, table.name):  # not created by another driver meanwhile
                raise
    if next(table.commits(), None) is None:
        spark.sql(f"INSERT INTO {table.name} SELECT * FROM {table.name} WHERE false")


def table_exists(spark: SparkSession, name: str) -> bool:
    """Whether a catalog has a table, or a path contains one of Delta."""
    from pyspark.errors import AnalysisException

    try:
        return bool(spark.catalog.tableExists(name))
    except AnalysisException:  # a path without a table of Delta
        return False


def find_commit(table: LakeTable, before: Progress, after: Progress) -> Commit | None:
    """Return the commit of a run after another commit; None if it did not take place."""
    for one in table.commits():
        if one.version == before.version:
            return None
        if one.document is not None and one.document["run"] == after.run:
            return one
    return None


def _no_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield nothing."""
    yield from ()


def _document(text: str | None) -> Mapping[str, Any] | None:
    """Return the document in a commit's text; other programs write other texts."""
    try:
        found = json.loads(text or "")
    except ValueError:
        return None
    ours = found.get(DOCUMENT) if isinstance(found, dict) else None
    names = {"offsets", "run", "sequence"}
    return ours if isinstance(ours, dict) and ours.keys() >= names else None


class _Branch(NamedTuple):
    """A branch of a table of Iceberg, and the table's name with it."""

    name: str
    table: str


class IcebergTable:
    """
    A table of Iceberg: ``catalog.database.table``.

    Rows are written to a branch that starts at the snapshot from which the offsets continue. Then
    the main branch is moved forward to it, which Iceberg does only if that snapshot is still its
    last one. An append to the main branch would be repeated after another driver's append, as
    Iceberg does not know that both have the same offsets. Branches of drivers that were killed
    expire after a day.
    """

    def __init__(self, spark: SparkSession, name: str) -> None:
        self._spark = spark
        self.name = name

    def create(self, columns: str) -> None:
        """Create the table."""
        self._spark.sql(
            f"CREATE TABLE IF NOT EXISTS {self.name} ({columns})"
            " USING iceberg PARTITIONED BY (topic, days(timestamp))"
        )

    def columns(self) -> StructType:
        """Return the columns that the table has now."""
        self._spark.catalog.refreshTable(self.name)
        return self._spark.table(self.name).schema

    def with_partitioning(self, rows: DataFrame) -> DataFrame:
        """Return the rows: Iceberg computes the day itself."""
        return rows

    def commits(self, branch: str = "main") -> Iterator[Commit]:
        """Yield the snapshots of a branch."""
        self._spark.catalog.refreshTable(self.name)
        rows = self._spark.sql(
            "SELECT snapshot_id, parent_id, summary['kafkascan'] AS document,"
            f" summary['added-records'] AS added FROM {self.name}.snapshots"
        ).collect()
        by_id = {row["snapshot_id"]: row for row in rows}
        refs = f"SELECT snapshot_id FROM {self.name}.refs WHERE name = '{branch}'"
        current = self._spark.sql(refs).first()
        row = None if current is None else by_id.get(current["snapshot_id"])
        while row is not None:
            yield Commit(row["snapshot_id"], _document(row["document"]), int(row["added"] or 0))
            row = by_id.get(row["parent_id"])

    def append(self, rows: DataFrame, before: Progress, after: Progress) -> None:
        """Write rows to a branch, and move the main branch forward to it."""
        with self._branch(before, after) as branch:
            self._append(branch, rows, after)

    def upsert(self, rows: DataFrame, before: Progress, after: Progress) -> None:
        """
        Merge rows into a branch, and move the main branch forward to it.

        MERGE has no options: the document is in another commit, of no rows. The main branch moves
        over both at once.
        """
        with self._branch(before, after) as branch:
            try:
                self._spark.sql(_MERGE.format(target=branch.table), rows=rows)
            except Exception:
                last = next(self.commits(branch.name), None)
                if last is None or last.version == before.version:
                    raise
            self._append(branch, rows.where("false"), after)

    @contextlib.contextmanager
    def _branch(self, before: Progress, after: Progress) -> Iterator[_Branch]:
        """Create a branch at a snapshot; then move the main branch to its end, and drop it."""
        name = f"kafkascan_{after.run}"
        self._retry(
            f"ALTER TABLE {self.name} CREATE BRANCH IF NOT EXISTS {name}"
            f" AS OF VERSION {before.version} RETAIN 1 DAYS",
            before,
        )
        try:
            yield _Branch(name, f"{self.name}.branch_{name}")
            # With the catalog's name: Iceberg takes the first name for a catalog, if there is one.
            call = f"{self.name.partition('.')[0]}.system.fast_forward"
            self._retry(f"CALL {call}('{self.name}', 'main', '{name}')", before)
        finally:
            self._retry(f"ALTER TABLE {self.name} DROP BRANCH IF EXISTS {name}")

    def _append(self, branch: _Branch, rows: DataFrame, after: Progress) -> None:
        """Commit rows with a document. The answer may be lost although the commit is not."""
        writer = rows.writeTo(branch.table)
        try:
            writer.option(f"snapshot-property.{DOCUMENT}", after.to_json()).append()
        except Exception:
            last = next(self.commits(branch.name), None)
            if last is None or last.document is None or last.document["run"] != after.run:
                raise

    def _retry(self, statement: str, before: Progress | None = None) -> None:
        """Run a statement again while others change the table, but not its last snapshot."""
        for attempt in range(_PUBLISH_ATTEMPTS):
            try:
                self._spark.sql(statement)
                return
            except Exception:
                last = next(self.commits(), None)
                is_changed = before is not None and (last is None or last.version != before.version)
                if is_changed or attempt == _PUBLISH_ATTEMPTS - 1:
                    raise


class DeltaTable:
    """
    A table of Delta: ``catalog.database.table``, or a path as ``delta.`/path```.

    The number of the commit is the version of an application's transaction. Of two drivers that
    continue from the same commit, both have the same number: Delta skips the later one, or fails
    it if both are written at once.
    """

    def __init__(self, spark: SparkSession, name: str) -> None:
        self._spark = spark
        self.name = name

    def create(self, columns: str) -> None:
        """
        Create the table by an append.

        CREATE TABLE does nothing, or fails, in a folder that a driver left without a commit
        because it was killed.
        """
        # Not createDataFrame, which makes the session the active one of its thread.
        rows = self._spark.range(0).mapInArrow(_no_rows, f"{columns}, day DATE")
        writer = rows.write.format("delta").mode("append").partitionBy("topic", "day")
        path = self.name.partition("`")[2].rstrip("`")
        if path:
            writer.save(path)
        else:
            writer.saveAsTable(self.name)

    def columns(self) -> StructType:
        """Return the columns that the table has now."""
        return self._spark.table(self.name).schema

    def with_partitioning(self, rows: DataFrame) -> DataFrame:
        """Return rows with their day in UTC; a cast would depend on the session's time zone."""
        return rows.selectExpr(
            "*",
            f"date_from_unix_date(CAST(floor({_SECONDS} / 86400) AS INT)) AS day",
        )

    def commits(self) -> Iterator[Commit]:
        """Yield the versions of the table."""
        read = 0
        for limit in (*_COMMITS_READ, None):
            bound = "" if limit is None else f" LIMIT {limit}"
            rows = self._spark.sql(f"DESCRIBE HISTORY {self.name}{bound}").collect()
            for row in rows[read:]:
                added = (row["operationMetrics"] or {}).get("numOutputRows", 0)
                yield Commit(row["version"], _document(row["userMetadata"]), int(added))
            if limit is None or len(rows) < limit:
                return
            read = len(rows)

    def append(self, rows: DataFrame, before: Progress, after: Progress) -> None:
        """Write rows as a transaction of an application."""
        options = {"userMetadata": after.to_json()} | _transaction(after)
        rows.writeTo(self.name).options(**options).append()

    def upsert(self, rows: DataFrame, before: Progress, after: Progress) -> None:
        """
        Merge rows as a transaction of an application.

        MERGE has no options, but takes the settings of its session, which is not the caller's
        (`session_for`). It makes no commit if it changes no row.
        """
        prefix = "spark.databricks.delta"
        settings = {f"{prefix}.commitInfo.userMetadata": after.to_json()}
        settings |= {f"{prefix}.write.{name}": text for name, text in _transaction(after).items()}
        try:
            for name, value in settings.items():
                self._spark.conf.set(name, value)
            self._spark.sql(_MERGE.format(target=self.name), rows=rows)
        finally:
            for name in settings:
                self._spark.conf.unset(name)
        if next(self.commits()).version == before.version:
            self.append(rows.where("false"), before, after)


def _transaction(after: Progress) -> dict[str, str]:
    """Return the options by which Delta knows two commits with the same number."""
    return {"txnAppId": DOCUMENT, "txnVersion": str(after.sequence)}


def session_for(spark: SparkSession, kind: str, *, upsert: bool) -> SparkSession:
    """
    Return the session that fills tables of a format.

    Settings apply to all statements of a session, in all of its threads. What needs them has a
    session of its own, with the settings and the current database of the caller's.
    """
    if kind != "delta" or not upsert:
        return spark
    # Over Spark Connect, PySpark 4.0 has neither, and newSession is that of 4.3.
    own = spark.cloneSession() if hasattr(spark, "cloneSession") else spark.newSession()
    known = own.conf.getAll
    for name, value in spark.conf.getAll.items():
        if known.get(name) != value:
            own.conf.set(name, value)
    own.catalog.setCurrentCatalog(spark.catalog.currentCatalog())
    own.catalog.setCurrentDatabase(spark.catalog.currentDatabase())
    return own


def require_table_name(name: str, kind: str) -> None:
    """
    Check the name and the format of a table; ``{topic}`` stands for a name.

    Raises
    ------
    ValueError
        If the format is unknown, or the name is not that of a table in a catalog.
    """
    if kind not in _NAMES:
        raise ValueError(f"table_format={kind!r}: expected one of {', '.join(_NAMES)}")
    pattern, expected = _NAMES[kind]
    if not re.fullmatch(pattern, name.replace("{topic}", "topic")):
        raise ValueError(f"table={name!r}: expected {expected}")


def lake_table(spark: SparkSession, name: str, kind: str) -> LakeTable:
    """Return a table of a format by its name, which is checked."""
    require_table_name(name, kind)
    return IcebergTable(spark, name) if kind == "iceberg" else DeltaTable(spark, name)
