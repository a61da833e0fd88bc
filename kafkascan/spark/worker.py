"""The Python process on an executor that runs one task after the other."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from kafkascan.arrow import require_pyarrow
from kafkascan.spark.options import Options
from kafkascan.spark.plan import ScanTask
from kafkascan.spark.scan import scan_task
from kafkascan.spark.schemas import Column, arrow_schema

# Some modules are imported only while the first task's rows are on their way to the JVM.
_TASKS_THAT_IMPORT = 2

_begun = 0


def begin_task() -> None:
    """
    Spare the tasks to come the garbage collection of what was imported.

    Spark's worker collects behind each task (``pyspark/daemon.py``), and goes through all that
    pandas and others have ever defined: 30 to 50 ms, several times of what a task takes
    otherwise. What is there when the first two tasks begin is frozen (`gc.freeze`): the process
    keeps it to its end, as it would have anyway but for reference cycles that lose their last
    user later.
    """
    global _begun
    if _begun < _TASKS_THAT_IMPORT and _is_worker():
        _begun += 1
        gc.freeze()


def read_task(task: ScanTask, options: Options, columns: Sequence[Column]) -> Iterator[Any]:
    """Yield a task's rows, declared as Spark's data source expects them."""
    begin_task()
    pa = require_pyarrow()
    schema = arrow_schema(columns)
    for batch in scan_task(task, options):
        yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)


def _is_worker() -> bool:
    """Tell whether this process is Spark's, not one that runs a task by itself."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec is not None and spec.name in ("pyspark.daemon", "pyspark.worker")
