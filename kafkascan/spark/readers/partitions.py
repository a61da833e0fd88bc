"""Tasks of the data source as Spark's input partitions, and the rows that they yield."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from kafkascan.spark.options.reader_options import Options
from kafkascan.spark.options.view_schemas import Column, arrow_schema
from kafkascan.spark.planning.task_plan import ScanTask
from kafkascan.spark.rows.task_scan import scan_task
from kafkascan.spark.rows.worker_setup import prepare_worker
from kafkascan.tables.schema import require_pyarrow

if TYPE_CHECKING:
    import pyarrow as pa


class ScanPartition(InputPartition):
    """A task of a read or of a micro-batch."""

    def __init__(self, task: ScanTask) -> None:
        self.task = task


def read_partition(
    partition: InputPartition, options: Options, columns: Sequence[Column]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a partition, with the nullability that the query's schema declares."""
    assert isinstance(partition, ScanPartition)
    prepare_worker()
    pa = require_pyarrow()
    schema = arrow_schema(columns)
    for batch in scan_task(partition.task, options):
        yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)
