"""Setup of Spark's Python workers; other processes, files and sockets are not changed."""

from __future__ import annotations

import gc
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import SparkSession

from kafkascan.spark.readers import frames
from kafkascan.spark.readers.frames import map_tasks

MIB = 1 << 20


def send_buffer(one: socket.socket) -> int:
    return one.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)


def frozen_objects(task: Any, argument: Any) -> Iterator[Any]:
    import pyarrow as pa

    yield pa.RecordBatch.from_pydict({"frozen": pa.array([gc.get_freeze_count()], pa.int64())})


def send_buffers(task: Any, argument: Any) -> Iterator[Any]:
    """Yield the send buffer sizes of the Unix sockets of this process."""
    import pyarrow as pa

    found = []
    for name in os.listdir("/dev/fd"):
        try:
            one = socket.socket(fileno=int(name))
        except OSError:
            continue
        if one.family == socket.AF_UNIX:
            found.append(send_buffer(one))
        one.detach()
    yield pa.RecordBatch.from_pydict({"size": pa.array(found, pa.int64())})


def home_of_pyspark(task: Any, argument: Any) -> Iterator[Any]:
    import pyarrow as pa
    import pyspark

    yield pa.RecordBatch.from_pydict({"path": pa.array([pyspark.__file__])})


def test_workers_of_the_tests_import_compiled_files(spark: SparkSession) -> None:
    frame = map_tasks(spark, [None], home_of_pyspark, None, "path string")  # type: ignore[list-item]
    assert [row.path for row in frame.collect()] == [pyspark.__file__]


def test_the_first_tasks_of_a_worker_freeze(spark: SparkSession) -> None:
    frame = map_tasks(spark, [None] * 8, frozen_objects, None, "frozen bigint")  # type: ignore[list-item]
    counts = [row.frozen for row in frame.collect()]
    assert min(counts) > 10_000
    # Later tasks do not freeze, because reference cycles of tasks must be collected.
    assert len(set(counts)) <= 6


def test_a_worker_sends_into_a_large_buffer(spark: SparkSession) -> None:
    frame = map_tasks(spark, [None], send_buffers, None, "size bigint")  # type: ignore[list-item]
    sizes = [row.size for row in frame.collect()]
    # Before Spark 4.1, it is TCP.
    unix = spark.conf.get("spark.python.unix.domain.socket.enabled", "false") == "true"
    assert bool(sizes) == unix
    first, second = socket.socketpair()
    with first, second:
        second.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * MIB)
        # Other code in the worker may have sockets, too.
        assert not sizes or max(sizes) >= send_buffer(second)
        assert send_buffer(second) > send_buffer(first)


def test_only_unix_sockets_are_changed(tmp_path: Path) -> None:
    first, second = socket.socketpair()
    tcp = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    with first, second, tcp, open(tmp_path / "file", "w+b") as file:
        before, of_tcp = send_buffer(first), send_buffer(tcp)
        for one in (first, tcp, file):
            frames._enlarge_send_buffer(one.fileno())
        assert send_buffer(first) > before
        assert send_buffer(tcp) == of_tcp
        # All of them are still open.
        second.sendall(b"1")
        assert first.recv(1) == b"1"
        file.write(b"2")
        # A larger buffer is not reduced.
        roomy = send_buffer(first)
        frames._enlarge_send_buffer(first.fileno())
        assert send_buffer(first) == roomy
    frames._enlarge_send_buffer(10**6)


def test_other_processes_are_not_changed() -> None:
    first, second = socket.socketpair()
    with first, second:
        before, size = gc.get_freeze_count(), send_buffer(first)
        frames.prepare_worker()
        assert gc.get_freeze_count() == before
        assert send_buffer(first) == size
