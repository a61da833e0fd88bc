"""The Python process on an executor that runs one task after the other."""

from __future__ import annotations

import contextlib
import gc
import os
import socket
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

# Room for a RecordBatch; the kernel may give less (net.core.wmem_max).
_SEND_BUFFER = 4 << 20

_begun = 0


def begin_task() -> None:
    """
    Make Spark's worker fit for what is done in it.

    The worker collects garbage behind each task (``pyspark/daemon.py``), and goes through all
    that pandas and others have ever defined: 30 to 50 ms, several times of what a task takes
    otherwise. What is there when the first two tasks begin is frozen (`gc.freeze`): the process
    keeps it to its end, as it would have anyway but for reference cycles that lose their last
    user later.

    What is sent to the JVM waits in the kernel while the JVM goes through the rows before it.
    There is room for a twentieth of a RecordBatch; of the rest, every piece wakes one that
    sleeps, on this side or the other. So room is made for a whole one.
    """
    global _begun
    if _begun < _TASKS_THAT_IMPORT and _is_worker():
        _begun += 1
        gc.freeze()
        for descriptor in _open_descriptors():
            _make_room(descriptor)


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


def _open_descriptors() -> list[int]:
    """Return this process's files, as far as the system tells."""
    with contextlib.suppress(OSError):
        return [int(name) for name in os.listdir("/dev/fd")]
    return []


def _make_room(descriptor: int) -> None:
    """Give a Unix socket a larger send buffer: Spark's worker has those to the JVM."""
    try:
        one = socket.socket(fileno=descriptor)
    except OSError:  # No socket, or closed meanwhile.
        return
    try:
        # The buffers of TCP grow by themselves, unless one is set.
        if one.family == getattr(socket, "AF_UNIX", None):
            size = one.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
            if size < _SEND_BUFFER:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
    except OSError:  # No room is given. It works without, slower.
        pass
    finally:
        one.detach()
