"""Tune Spark's Python worker process for scans: garbage collection and socket buffers."""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import sys

# The first task imports further modules while its rows are sent to the JVM, so the second task
# freezes again.
_TASKS_THAT_IMPORT = 2

# Large enough for a RecordBatch; the kernel may grant less (net.core.wmem_max).
_SEND_BUFFER = 4 << 20

_begun = 0


def prepare_worker() -> None:
    """
    Tune the process that runs a task, if it is a Python worker of Spark. Call it first in a task.

    The worker collects garbage after each task (``pyspark/daemon.py``), which traverses all
    objects of pandas and other modules: 30 to 50 ms, several times the rest of a task's overhead.
    So the objects that exist when the first two tasks begin are frozen (`gc.freeze`). The process
    would keep them until its end anyway, except for reference cycles that lose their last user
    later.

    Data for the JVM waits in the kernel while the JVM processes earlier rows. The default send
    buffer holds a twentieth of a RecordBatch, and each part of the rest wakes a sleeping process
    on one side. So the send buffers are enlarged to hold a whole RecordBatch.
    """
    global _begun
    if _begun < _TASKS_THAT_IMPORT and _is_worker():
        _begun += 1
        gc.freeze()
        for descriptor in _open_descriptors():
            _enlarge_send_buffer(descriptor)


def _is_worker() -> bool:
    """Whether this process is a Python worker of Spark."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec is not None and spec.name in ("pyspark.daemon", "pyspark.worker")


def _open_descriptors() -> list[int]:
    """Return the file descriptors of this process; empty if the system does not list them."""
    with contextlib.suppress(OSError):
        return [int(name) for name in os.listdir("/dev/fd")]
    return []


def _enlarge_send_buffer(descriptor: int) -> None:
    """Enlarge the send buffer of a Unix socket: Spark's worker sends rows to the JVM by those."""
    try:
        one = socket.socket(fileno=descriptor)
    except OSError:  # not a socket, or closed meanwhile
        return
    try:
        # TCP buffers grow automatically unless they are set.
        if one.family == getattr(socket, "AF_UNIX", None):
            size = one.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
            if size < _SEND_BUFFER:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
    except OSError:  # The kernel refuses. Rows are sent more slowly then.
        pass
    finally:
        one.detach()
