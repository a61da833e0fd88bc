"""Who owns the bytes, and for how long."""

from __future__ import annotations

import array
import contextlib
import gc
import mmap
import os
import pickle
import sys
import threading
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kafkascan as ks
from kafkascan.io.sources import borrowed_source
from tests.support.command_line import DATA
from tests.support.records import RecordV2, batch_of
from tests.support.segments import Rig
from tests.support.waiting import HANG_SECONDS

LOG = Rig().batches(3).log
RECORDS = b"".join(batch_of([RecordV2(b"key", b"value")], base_offset=n) for n in range(3))


def is_open(path: Path) -> bool:
    """Whether this process has a descriptor of a file; other tests may have some of other files."""
    links = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
    return str(path) in [os.readlink(link) for link in links if os.path.lexists(link)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(LOG)
    return path


@pytest.mark.parametrize(
    "make",
    [
        bytes, bytearray, memoryview,
        lambda log: memoryview(b"xx" + log)[2:],
        lambda log: np.frombuffer(log, np.uint8),
        lambda log: array.array("b", log),
    ],
)  # fmt: skip
def test_buffers(make: Callable[[bytes], Any]) -> None:
    data = make(LOG)
    scan = ks.scan_batches(data)
    assert len(scan) == 3
    assert ks.verify_crcs(data, scan.batches).all()


def test_structured_and_wide_arrays_are_their_bytes() -> None:
    log = Rig().batch(b"x" * 67).log  # 128 bytes
    assert len(ks.scan_batches(np.frombuffer(log, ">i8"))) == 1
    assert len(ks.scan_batches(np.frombuffer(log, [("a", "i4"), ("b", "i4")]))) == 1
    assert len(ks.scan_batches(np.frombuffer(log, np.uint8).reshape(8, 16))) == 1


@pytest.mark.parametrize("empty", [b"", bytearray(), memoryview(b""), np.empty(0, np.uint8)])
def test_empty_buffers(empty: Any) -> None:
    assert len(ks.scan_batches(empty)) == 0
    assert len(ks.Source(empty).as_array()) == 0


def test_a_map_of_the_caller(path: Path) -> None:
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
        assert len(ks.scan_batches(view)) == 3


def test_invalid_sources() -> None:
    with pytest.raises(TypeError):
        ks.scan_batches(17)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="objects"):
        ks.Source(np.array([object()]))
    with pytest.raises(ValueError, match="contiguous"):
        ks.Source(np.zeros(10, np.uint8)[::2])


@pytest.mark.parametrize("memory_map", [True, False])
def test_files(path: Path, memory_map: bool) -> None:
    with ks.Source(path, memory_map=memory_map) as source:
        assert (source.size, len(source), source.path) == (len(LOG), len(LOG), str(path))
        assert bytes(source.window(5, 7)) == LOG[5:12]
        assert bytes(source.window(len(LOG) - 2, 100)) == LOG[-2:]
        assert bytes(source.window(len(LOG) + 5, 100)) == b""
        assert len(ks.scan_batches(source)) == 3
    assert source.closed
    with pytest.raises(ValueError, match="closed"):
        source.window(0, 1)
    assert len(ks.scan_batches(str(path))) == 3


@pytest.mark.parametrize("memory_map", [True, False])
def test_an_empty_file(tmp_path: Path, memory_map: bool) -> None:
    empty = tmp_path / "0.log"
    empty.touch()
    with ks.Source(empty, memory_map=memory_map) as source:
        scan = ks.scan_batches(source)
        assert (len(scan), scan.end, len(source.as_array())) == (0, "CLEAN", 0)
        assert ks.verify_crcs(source, scan.batches).shape == (0,)


def test_paths_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        ks.scan_batches(tmp_path / "none.log")
    with pytest.raises(IsADirectoryError):
        ks.scan_batches(tmp_path)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with pytest.raises(OSError, match="not a regular file"):
        ks.scan_batches(fifo)


@pytest.mark.parametrize("memory_map", [True, False])
def test_the_size_is_frozen_at_open(path: Path, memory_map: bool) -> None:
    with ks.Source(path, memory_map=memory_map) as source:
        with open(path, "ab") as file:
            file.write(LOG)
        scan = ks.scan_batches(source)
        assert (len(scan), scan.end) == (3, "CLEAN")


def test_small_files_are_read_into_memory(path: Path) -> None:
    with ks.Source(path, read_below=len(LOG) + 1) as source:
        if sys.platform == "linux":
            assert not is_open(path)
        os.truncate(path, 0)  # the file is not read any more
        assert (source.path, source.size, source.is_in_memory) == (str(path), len(LOG), True)
        assert source.as_array().tobytes() == LOG
        scan = ks.scan_batches(source)
        assert ks.verify_crcs(source, scan.batches).all()
    path.write_bytes(LOG)
    with ks.Source(path, read_below=len(LOG)) as source:
        os.truncate(path, 0)
        with pytest.raises(ks.format.SourceReadError, match="truncated"):
            ks.scan_batches(source)


def test_a_small_file_that_shrinks_while_it_is_opened(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = os.read

    def truncate_and_read(descriptor: int, size: int) -> bytes:
        os.truncate(path, 10)
        return read(descriptor, size)

    monkeypatch.setattr(os, "read", truncate_and_read)
    with pytest.raises(ks.format.SourceReadError, match="truncated from"):
        ks.Source(path, read_below=1 << 20)


def test_a_view_outlives_the_source(path: Path) -> None:
    view = ks.open_segment(path).source.as_array()
    gc.collect()
    assert bytes(view) == LOG
    assert not view.flags.writeable
    assert len(ks.scan_batches(view)) == 3


def test_a_window_outlives_the_source(path: Path) -> None:
    window = ks.Source(path).window(0, 61)
    gc.collect()
    assert bytes(window) == LOG[:61]


def test_views_of_a_buffer_are_read_only() -> None:
    data = bytearray(LOG)
    with pytest.raises(TypeError, match="read-only"):
        ks.Source(data).window(0, 3)[0] = 1
    with pytest.raises(ValueError, match="read-only"):
        ks.Source(data).as_array()[0] = 1


def test_closing_while_a_view_lives_is_refused(path: Path) -> None:
    source = ks.Source(path)
    array_view, window = source.as_array(), source.window(0, 10)
    for _ in range(2):
        with pytest.raises(ks.SourceInUseError, match="views of the bytes"):
            source.close()
    assert not source.closed
    assert len(ks.scan_batches(source)) == 3, "a refused close changes nothing"
    del array_view
    with pytest.raises(BufferError):
        source.close()
    window.release()
    source.close()
    source.close()
    assert source.closed


def test_a_borrowed_source_is_closed_if_it_was_opened_for_that(path: Path) -> None:
    with borrowed_source(path) as opened:
        assert not opened.closed
    assert opened.closed
    with borrowed_source(path, close=False) as kept:
        pass
    assert not kept.closed
    with borrowed_source(kept) as same:
        assert same is kept
    assert not kept.closed


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_nothing_stays_open(path: Path) -> None:
    """Operations on paths leave no descriptors and no maps open."""
    for _ in range(20):
        scan = ks.scan_batches(path)
        ks.verify_crcs(path, scan.batches)
        list(ks.iter_batches(path))
        next(ks.iter_batches(path, rows=1))
        ks.Source(path)
    gc.collect()
    assert not is_open(path)
    assert str(path) not in Path("/proc/self/maps").read_text()


def test_as_array_needs_memory(path: Path) -> None:
    with ks.Source(path, memory_map=False) as source, pytest.raises(ValueError, match="memory_map"):
        source.as_array()


def test_repr(path: Path) -> None:
    source = ks.Source(path)
    assert repr(source) == f"<Source {path}: {len(LOG)} bytes>"
    source.close()
    assert "closed" in repr(source)


def test_errors_survive_pickling() -> None:
    """They cross process borders: pools, Spark."""
    errors: list[Exception] = [
        ks.CorruptBatchError("p", 4, 9, "why", "BAD_LENGTH"),
        ks.UnsupportedMagicError("p", 4, None, "why", "BAD_MAGIC"),
        ks.format.SourceReadError("p", 4, "why"),
        ks.format.BatchTableError("p", 4, 30),
    ]
    for error in errors:
        copy = pickle.loads(pickle.dumps(error))
        assert (type(copy), str(copy), copy.__dict__) == (type(error), str(error), error.__dict__)
        assert isinstance(error, ks.KafkaScanError)


@pytest.mark.parametrize("memory_map", [True, False])
def test_closing_while_another_thread_reads(path: Path, memory_map: bool) -> None:
    """Close fails or waits; no reader sees the bytes of another file, or a damaged log."""
    path.write_bytes(RECORDS)
    other = path.with_name("other.log")
    other.write_bytes(Rig().batches(3, b"something else").log)
    expected = ks.scan_batches(path).batches["crc"].tolist()
    outcomes: set[str] = set()

    def read(source: ks.Source) -> None:
        try:
            for _ in range(2000):
                batches = ks.scan_batches(source).batches
                assert batches["crc"].tolist() == expected
                assert len(ks.read_records(source, batches)) == 3
                assert ks.verify_crcs(source, batches).all()
        except ValueError as error:  # not one of a log that looks damaged
            outcomes.add(str(error).rsplit(": ", 1)[-1])

    for _ in range(30):
        source = ks.Source(path, memory_map=memory_map)
        reader = threading.Thread(target=read, args=(source,))
        reader.start()
        while not source.closed:
            with contextlib.suppress(ks.SourceInUseError):
                source.close()
            with open(other, "rb") as file:  # takes the number of a descriptor that is free
                file.read(1)
        reader.join(HANG_SECONDS)
        assert not reader.is_alive()
    assert outcomes <= {"the source is closed"}


def test_a_closed_source_has_no_bytes(path: Path) -> None:
    """What asked before it was closed whether they are in memory is not misled."""
    source = ks.Source(path)
    source.close()
    assert (source.is_in_memory, source.has_file) == (True, True)
    for ask in (source.as_array, lambda: source.window(0, 1), lambda: source.is_cached(0, 1)):
        with pytest.raises(ValueError, match="the source is closed"):
            ask()


@pytest.mark.parametrize("memory_map", [True, False])
def test_the_end_of_a_with_block_leaves_the_bytes_to_their_views(
    path: Path, memory_map: bool
) -> None:
    path.write_bytes(RECORDS)
    with ks.Source(path, memory_map=memory_map) as source:
        records = ks.read_records(source)
    expected = ks.read_records(path).rows()
    assert source.closed
    assert records.rows() == expected
    assert records.to_arrow().num_rows == len(expected)
    with ks.open_segment(path, memory_map=memory_map) as segment:
        again = ks.read_records(segment)
    assert again.rows() == expected


def test_the_end_of_a_with_block_keeps_the_error_of_its_caller(path: Path) -> None:
    windows = []

    def fail() -> None:
        with ks.Source(path) as source:
            windows.append(source.window(0, 3))
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fail()
    assert bytes(windows[0]) == LOG[:3]


def test_the_last_reader_closes_the_file(path: Path) -> None:
    with ks.Source(path, memory_map=False) as source:
        reading = source.borrowed_descriptor()
        descriptor = reading.__enter__()
    assert len(os.pread(descriptor, 3, 0)) == 3
    reading.__exit__(None, None, None)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_memory_is_per_batch_not_per_byte(tmp_path: Path) -> None:
    """Preallocated space after small batches does not make the table large."""
    path = tmp_path / "0.log"
    path.write_bytes(Rig().batches(1100, b"").log)
    os.truncate(path, 20 << 30)
    tracemalloc.start()
    try:
        scan = ks.scan_batches(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (len(scan), scan.end) == (1100, "ZERO_TAIL")
    assert peak < 50_000_000


def test_one_iterator_in_several_threads() -> None:
    log = Rig().batches(5000, b"").log
    iterator = ks.iter_batches(log, rows=3)
    with ThreadPoolExecutor(4) as pool:
        parts = list(pool.map(lambda _: [t["position"].tolist() for t in iterator], range(4)))
    positions = sorted(at for part in parts for table in part for at in table)
    assert positions == list(range(0, len(log), 61))


@pytest.mark.parametrize("memory_map", [True, False])
def test_a_source_and_its_tables_in_several_threads(memory_map: bool) -> None:
    """What docs/concepts.md says about threads."""
    path = DATA / "transactions-0" / "00000000000000000005.log"

    def answers(source: ks.Source, records: ks.RecordTable) -> list[object]:
        scan = ks.scan_batches(source)
        return [
            scan.rows(),
            ks.verify_crcs(source, scan.batches).tolist(),
            ks.read_records(source, verify=True).rows(),
            [record.key for table in ks.iter_records(source, batch_size=3) for record in table],
            ks.count_records(source).rows(),
            records.items("value"),
            records.to_arrow(views=True).to_pylist(),
            records[5:9].rows(),
        ]

    with ks.Source(path, memory_map=memory_map) as source, ThreadPoolExecutor(4) as pool:
        records = ks.read_records(source)
        expected = answers(source, records)
        jobs = [pool.submit(answers, source, records) for _ in range(24)]
        assert all(job.result() == expected for job in jobs)


@pytest.mark.parametrize("data", [None, 5, ["0.log"], object()])
def test_what_is_no_source_is_named(data: Any) -> None:
    message = f"expected a path, a bytes-like object or a Source, not {type(data).__name__}"
    for read in (ks.Source, ks.scan_batches, ks.count_records):
        with pytest.raises(TypeError, match=message):
            read(data)
