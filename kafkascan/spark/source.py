"""The data source: ``spark.read.format("kafkascan")``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from kafkascan.spark.files import list_files
from kafkascan.spark.options import Options
from kafkascan.spark.plan import ScanTask, plan
from kafkascan.spark.schemas import Column, ddl
from kafkascan.spark.stream import StreamReader
from kafkascan.spark.times import resolve_times
from kafkascan.spark.worker import read_task

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


def register(spark: SparkSession) -> None:
    """
    Make ``spark.read.format("kafkascan")`` known to a session.

    Where the package ``pyspark_kafkascan`` can be imported on the driver, Spark finds it by
    itself, unless some other ``pyspark_…`` package fails to be imported.
    """
    from pyspark.errors import PySparkException

    try:
        spark.dataSource.register(KafkaScanSource)
    except PySparkException as error:
        # Spark 4.0 does not replace what it found by itself.
        if "DATA_SOURCE_ALREADY_EXISTS" not in str(error):
            raise


class KafkaScanSource(DataSource):
    """
    Segment files of Kafka as rows.

    Name: ``kafkascan``. Options: `kafkascan.spark.options.Options`.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = Options.parse(dict(options))

    @classmethod
    def name(cls) -> str:
        """Return the name that Spark's readers ask for."""
        return "kafkascan"

    def schema(self) -> str:
        """Return the columns, which depend on the options alone."""
        return ddl(self._options.schema())

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what reads once."""
        return ScanReader(*_with_schema(self._options, schema))

    def streamReader(self, schema: StructType) -> Any:  # noqa: N802 - Spark's name
        """Return what follows logs that grow."""
        return StreamReader(*_with_schema(self._options, schema))


def _with_schema(options: Options, schema: StructType) -> tuple[Options, tuple[Column, ...]]:
    """Take over a schema that the user gave: its columns, their order and nullability."""
    options = options.but(columns=tuple(schema.names)).checked()
    columns = []
    for ours, theirs in zip(options.schema(), schema.fields, strict=True):
        if ours.type != theirs.dataType.simpleString():
            raise ValueError(
                f"the column {ours.name!r} is of the type {ours.type},"
                f" not {theirs.dataType.simpleString()}"
            )
        columns.append(Column(theirs.name, ours.type, theirs.nullable))
    return options, tuple(columns)


class ScanPartition(InputPartition):
    """What one task scans."""

    def __init__(self, task: ScanTask) -> None:
        self.task = task


class ScanReader(DataSourceReader):
    """
    Lists and packs on the driver, scans in tasks.

    It takes no filters: in pyspark 4.1 to 4.3 a pushed filter stays with the source and changes
    what other queries on it find.
    """

    def __init__(self, options: Options, columns: Sequence[Column]) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> Sequence[InputPartition]:
        """List the files, and share them out."""
        files = list_files(self._options)
        tasks = plan(files, self._options, resolve_times(files, self._options))
        # Without any, Spark would ask for one that has nothing to say.
        return [ScanPartition(task) for task in tasks or [ScanTask(())]]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield a task's rows."""
        assert isinstance(partition, ScanPartition)
        return read_task(partition.task, self._options, self._columns)
