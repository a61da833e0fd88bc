"""The records of a task that are no rows of a table, with the reason."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkascan.spark.options.reader_options import CORRUPT_RECORD, Options
from kafkascan.spark.options.view_schemas import VIEWS, arrow_schema
from kafkascan.spark.planning.task_plan import ScanTask
from kafkascan.spark.rows.task_scan import scan_task
from kafkascan.tables.schema import Field, require_pyarrow

if TYPE_CHECKING:
    import pyarrow as pa

_NO_KEY = "the record has no key"
_READ = ("topic", "partition", "offset", "timestamp", "key_raw", "value_raw")

PROBLEM_FIELDS = (
    *VIEWS["records"].select(_READ),
    Field("reason", "string", "why the record, or the batch at this offset, is no row"),
)
"""The columns of such records."""


@dataclass(frozen=True)
class ProblemScan:
    """
    How tasks find these records.

    Attributes
    ----------
    options : Options
        Those of the table's rows.
    needs_key : bool
        Whether a record without a key is no row.
    """

    options: Options
    needs_key: bool

    @property
    def read_options(self) -> Options:
        """The options of the scan."""
        names = [*_READ, *self.options.readers]
        if not self.options.fails_fast:
            names.append(CORRUPT_RECORD.name)
        return self.options.replace(columns=tuple(names))


def scan_problems(task: ScanTask, scan: ProblemScan) -> Iterator[pa.RecordBatch]:
    """Yield the records of a task that are no rows of a table."""
    import pyarrow.compute as pc

    pa = require_pyarrow()
    schema = arrow_schema(PROBLEM_FIELDS)
    for batch in scan_task(task, scan.read_options):
        names = batch.schema.names
        reasons = (
            batch.column(CORRUPT_RECORD.name)
            if CORRUPT_RECORD.name in names
            else pa.nulls(batch.num_rows, pa.string())
        )
        if scan.needs_key:
            no_key = pc.and_(pc.is_null(reasons), pc.is_null(batch.column("key_raw")))
            reasons = pc.if_else(no_key, _NO_KEY, reasons)
        rows = [batch.column(name) for name in _READ]
        found = pa.RecordBatch.from_arrays([*rows, reasons], schema=schema)
        yield found.filter(pc.is_valid(reasons))
