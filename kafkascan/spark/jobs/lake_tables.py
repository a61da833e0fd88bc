"""Tables of Iceberg and Delta whose commits say which offsets they contain.

A commit carries a JSON document: the next offset of each partition, and the run that wrote it. In
Iceberg, it is a property of the snapshot; in Delta, it is the user metadata of the commit. A commit
takes place only if the one from which its offsets continue is still the last one.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from kafkascan.spark.options.option_values import format_offsets, parse_offsets
from kafkascan.spark.options.view_schemas import ddl
from kafkascan.spark.readers.log_ends import Positions
from kafkascan.tables.schema import Field

if TYPE_CHECKING:
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

Statement = Callable[[str], str]
"""Returns an INSERT or a MERGE of the rows `{rows}` into a table of a name."""


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

    def commit(
        self, statement: Statement, rows: DataFrame, before: Progress, after: Progress
    ) -> None:
        """Commit rows; raise an error, or do nothing, if another commit followed `before`."""


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


@contextlib.contextmanager
def _settings(spark: SparkSession, values: Mapping[str, str]) -> Iterator[None]:
    """Set values of the session's configuration for the statements in a block."""
    before = {name: spark.conf.get(name, None) for name in values}
    try:
        for name, value in values.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)


def _document(text: str | None) -> Mapping[str, Any] | None:
    """Return the document in a commit's text; other programs write other texts."""
    try:
        found = json.loads(text or "")
    except ValueError:
        return None
    ours = found.get(DOCUMENT) if isinstance(found, dict) else None
    names = {"offsets", "run", "sequence"}
    return ours if isinstance(ours, dict) and ours.keys() >= names else None


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

    def commit(
        self, statement: Statement, rows: DataFrame, before: Progress, after: Progress
    ) -> None:
        """Write rows to a branch, and move the main branch forward to it."""
        branch = f"kafkascan_{after.run}"
        self._retry(
            f"ALTER TABLE {self.name} CREATE BRANCH IF NOT EXISTS {branch}"
            f" AS OF VERSION {before.version} RETAIN 1 DAYS",
            before,
        )
        try:
            self._write(branch, statement, rows, before, after)
            # With the catalog's name: Iceberg takes the first name for a catalog, if there is one.
            call = f"{self.name.partition('.')[0]}.system.fast_forward"
            self._retry(f"CALL {call}('{self.name}', 'main', '{branch}')", before)
        finally:
            self._retry(f"ALTER TABLE {self.name} DROP BRANCH IF EXISTS {branch}")

    def _write(
        self, branch: str, statement: Statement, rows: DataFrame, before: Progress, after: Progress
    ) -> None:
        """Commit rows to a branch. The answer of the catalog may be lost, and the commit not."""
        properties = {f"spark.sql.iceberg.snapshot-property.{DOCUMENT}": after.to_json()}
        try:
            with _settings(self._spark, properties):
                self._spark.sql(statement(f"{self.name}.branch_{branch}"), rows=rows)
        except Exception:
            last = next(self.commits(branch), None)
            if last is None or last.version == before.version:
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
        rows = self._spark.createDataFrame([], f"{columns}, day DATE")
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

    def commit(
        self, statement: Statement, rows: DataFrame, before: Progress, after: Progress
    ) -> None:
        """Write rows as a transaction of an application."""
        properties = {
            "spark.databricks.delta.commitInfo.userMetadata": after.to_json(),
            "spark.databricks.delta.write.txnAppId": DOCUMENT,
            "spark.databricks.delta.write.txnVersion": str(after.sequence),
        }
        with _settings(self._spark, properties):
            self._spark.sql(statement(self.name), rows=rows)


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
