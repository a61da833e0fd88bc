"""The data source ``spark.read.format("kafkascan")`` and its reader."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)

from kafkascan.spark.options.reader_options import Options, without_connections
from kafkascan.spark.options.view_schemas import ddl, declared_type
from kafkascan.spark.planning.read_plan import plan_read
from kafkascan.spark.planning.task_plan import ScanTask
from kafkascan.spark.readers.stream_reader import ScanPartition, StreamReader, read_partition
from kafkascan.spark.rows.damage_modes import logger
from kafkascan.tables.schema import Field

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


# Bytes of logs from which on it matters that unused columns are read: some seconds of a core.
_LARGE_READ = 1 << 30

# Properties of a table, which Spark passes with its options when it creates the table.
_OF_TABLES = frozenset({"owner", "provider"})
_NO_TABLES = (
    "Spark does not pass the options of a table to its data source when the table is read: use"
    " CREATE TEMPORARY VIEW … USING kafkascan OPTIONS (…)"
)


def register(spark: SparkSession) -> None:
    """
    Register the data source with a session, for ``spark.read.format("kafkascan")``.

    Classic Spark finds it without this call if the driver can import the package
    ``pyspark_kafkascan``, unless the import of another ``pyspark_…`` package fails.
    """
    from pyspark.errors import PySparkException

    try:
        spark.dataSource.register(KafkaScanSource)
    except PySparkException as error:
        # Spark 4.0 does not replace a data source that it discovered.
        if "DATA_SOURCE_ALREADY_EXISTS" not in str(error):
            raise


class KafkaScanSource(DataSource):
    """
    The data source ``kafkascan``: segment files of Kafka as rows.

    Its options are the fields of `kafkascan.spark.options.reader_options.Options`. Those of Spark's
    Kafka source that have no meaning for files are ignored.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        if _OF_TABLES <= options.keys():
            raise ValueError(_NO_TABLES)
        given, self._ignored = without_connections(options)
        self._options = Options.parse(given)

    @classmethod
    def name(cls) -> str:
        """Return the name for ``spark.read.format``."""
        return "kafkascan"

    def schema(self) -> str:
        """Return the columns, which depend only on the options."""
        return ddl(self._options.schema())

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch query."""
        self._explain_ignored()
        names_columns = bool(self._options.columns) or len(schema) < len(self._options.schema())
        return ScanReader(*_with_schema(self._options, schema), names_columns=names_columns)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return the reader of a stream."""
        self._explain_ignored()
        return StreamReader(*_with_schema(self._options, schema))

    def _explain_ignored(self) -> None:
        if self._ignored:
            logger.warning(
                "options of Spark's Kafka source that have no meaning for files are ignored: %s",
                ", ".join(self._ignored),
            )


def _with_schema(options: Options, schema: StructType) -> tuple[Options, tuple[Field, ...]]:
    """Apply a schema given by the user: its columns, their order and nullability."""
    options = options.replace(columns=tuple(schema.names)).checked()
    columns = []
    for ours, theirs in zip(options.schema(), schema.fields, strict=True):
        kind, given = declared_type(ours).replace("`", ""), theirs.dataType.simpleString()
        if kind != given:
            raise ValueError(f"the column {ours.name!r} is of the type {kind}, not {given}")
        columns.append(replace(ours, name=theirs.name, nullable=theirs.nullable))
    return options, tuple(columns)


def _warn_of_columns(size: int) -> None:
    """Log a warning if a read of all columns is large."""
    if size >= _LARGE_READ:
        logger.warning(
            "this query reads all columns of %d MiB of logs, whatever it selects: name those that"
            " it needs in the option columns, or use kafkascan.spark.records(columns=…); count"
            " records by the view batches",
            size >> 20,
        )


class ScanReader(DataSourceReader):
    """
    Plan a read on the driver and scan in tasks.

    It accepts no filters: in pyspark 4.1 to 4.3 a pushed filter stays with the source and changes
    the results of other queries on it. Nor does Spark tell it which columns a query needs.

    Parameters
    ----------
    options : Options
    columns : sequence of Field
    names_columns : bool, default True
        Whether the user named the columns; otherwise, a large read of records logs a warning.
    """

    def __init__(
        self, options: Options, columns: Sequence[Field], *, names_columns: bool = True
    ) -> None:
        self._options = options
        self._columns = columns
        self._warns = options.view == "records" and not names_columns

    def partitions(self) -> Sequence[InputPartition]:
        """List the files and plan tasks."""
        tasks = plan_read(self._options)
        if self._warns:
            _warn_of_columns(sum(one.stop - one.start for task in tasks for one in task.ranges))
        # Without a partition, Spark would call `read` with None.
        return [ScanPartition(task) for task in tasks or [ScanTask(())]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task."""
        return read_partition(partition, self._options, self._columns)
