"""SegmentWriter: atomic creation of folders, and limits of segments."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kafkascan as ks
from kafkascan.logs.data_dir_lock import locked
from tests.support.broker_lock import broker_in
from tests.support.random_logs import random_log
from tests.support.segments import Rig
from tests.support.waiting import HANG_SECONDS
from tests.support.warm_process import run_warm

T0 = 1_714_000_000_000


def _batches(count: int, *, offset: int = 0, step: int = 1000, **options: Any) -> bytes:
    return ks.build_batches(
        value=[bytes(100)] * count, timestamp=T0 + step * np.arange(count), offset=offset,
        max_records=1, **options,
    )  # fmt: skip


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_folder_appears_on_close(tmp_path: Path) -> None:
    folder = tmp_path / "orders-0"
    with ks.SegmentWriter(folder) as writer:
        assert writer.append(_batches(3)) == 3
        assert not folder.exists()
    assert _names(folder) == [
        f"{0:020}.index", f"{0:020}.log", f"{0:020}.timeindex", f"{3:020}.snapshot",
        "leader-epoch-checkpoint",
    ]  # fmt: skip
    assert _names(tmp_path) == ["orders-0"]
    assert (folder / f"{0:020}.log").read_bytes() == _batches(3)
    if sys.platform == "linux":
        links = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
        opened = [os.readlink(link) for link in links if os.path.lexists(link)]
        assert not [one for one in opened if one.startswith(str(tmp_path))]


def test_the_folder_has_the_default_mode(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with ks.SegmentWriter(tmp_path / "orders-0") as writer:
        writer.append(_batches(1))
    assert (tmp_path / "orders-0").stat().st_mode == (tmp_path / "other").stat().st_mode


@pytest.mark.parametrize(
    ("damaged", "error"),
    [
        (_batches(1)[:-1], ks.CorruptBatchError),
        (_batches(1, offset=3)[:-1] + b"\xff", ks.ChecksumMismatchError),
        (b"no batch is here at all", ks.CorruptBatchError),
        (_batches(1, offset=2), ks.format.BatchTableError),
        (_batches(1, offset=3) * 2, ks.format.BatchTableError),
        (ks.build_batches(value=[bytes(9000)], offset=9), ks.format.BatchTableError),
    ],
)
def test_an_error_leaves_no_files(damaged: bytes, error: type[Exception], tmp_path: Path) -> None:
    with pytest.raises(error):
        _write(tmp_path / "orders-0", _batches(3), damaged)
    assert _names(tmp_path) == []


def test_an_error_about_offsets_names_the_argument(tmp_path: Path) -> None:
    with pytest.raises(ks.format.BatchTableError, match=r"offset=3 or higher \[OFFSETS_NOT_ASC"):
        _write(tmp_path / "orders-0", _batches(3), _batches(3))


def _write(folder: Path, *logs: bytes) -> None:
    with ks.SegmentWriter(folder, segment_bytes=5000) as writer:
        for log in logs:
            writer.append(log)


def test_a_folder_that_is_not_empty_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for use in (
        lambda writer: writer.append(_batches(1)),
        lambda writer: writer.close(),
        lambda writer: writer.__enter__(),
    ):
        with pytest.raises(FileExistsError):
            use(ks.SegmentWriter(tmp_path))
    writer = ks.SegmentWriter(tmp_path / "orders-0")
    writer.append(_batches(1))
    (tmp_path / "orders-0").mkdir()
    (tmp_path / "orders-0" / "came-first").write_text("x")
    with pytest.raises(OSError, match="not empty"):
        writer.close()
    assert _names(tmp_path) == ["file", "orders-0"]


def test_segments_end_by_size_time_and_offset(tmp_path: Path) -> None:
    size = len(_batches(1))
    for number, (options, log, bases) in enumerate(
        [
            ({"segment_bytes": 3 * size}, _batches(7), [0, 3, 6]),
            ({"segment_bytes": 3 * size - 1}, _batches(4), [0, 2]),
            ({"segment_ms": 1999}, _batches(5), [0, 2, 4]),
            ({"segment_ms": 2000}, _batches(5), [0, 3]),
            ({}, _batches(2) + _batches(1, offset=2**31 + 1), [0, 2**31 + 1]),
            ({"max_index_bytes": 48, "interval_bytes": 0}, _batches(9), [0, 4, 8]),
        ]
    ):
        with ks.SegmentWriter(tmp_path / f"t-{number}", **options) as writer:
            writer.append(log)
        assert writer.base_offsets == bases, options
        found = ks.open_log_dir(tmp_path / f"t-{number}")
        assert b"".join(one.path.read_bytes() for one in found.partitions[0].segments) == log


def test_indexes_are_those_of_the_segments(tmp_path: Path) -> None:
    with ks.SegmentWriter(tmp_path / "t-0", interval_bytes=500, segment_bytes=9000) as writer:
        for piece in range(10):
            writer.append(_batches(20, offset=20 * piece))
    assert len(writer.base_offsets) > 2
    for base in writer.base_offsets:
        rows = ks.scan_batches(tmp_path / "t-0" / f"{base:020}.log").batches
        for suffix, build in (("index", ks.build_offset_index), ("timeindex", ks.build_time_index)):
            entries = ks.read_index(tmp_path / "t-0" / f"{base:020}.{suffix}")
            expected = build(rows, base_offset=base, interval_bytes=500)
            assert entries.tobytes() == expected.tobytes()


def test_recovery_changes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    with ks.SegmentWriter(folder, interval_bytes=100, segment_bytes=200_000) as writer:
        writer.append(random_log("writer", batches=60))
    done = ks.recover(folder, interval_bytes=100, recovery_point=0)
    (partition,) = done.partitions
    assert partition.error is None
    changed = {Path(one.name).suffix for one in partition.changes}
    assert not changed & {".log", ".index", ".timeindex", ".txnindex"}, partition.changes


def test_a_log_may_begin_at_any_offset(tmp_path: Path) -> None:
    with ks.SegmentWriter(tmp_path / "a-0") as writer:
        writer.append(_batches(2, offset=70))
    assert writer.base_offsets == [70]
    with ks.SegmentWriter(tmp_path / "b-0", base_offset=50) as writer:
        writer.append(_batches(2, offset=70))
    assert (writer.base_offsets, writer.next_offset) == ([50], 72)
    with ks.SegmentWriter(tmp_path / "c-0") as writer:
        pass
    assert writer.base_offsets == [0]


def test_the_topic_id_is_written(tmp_path: Path) -> None:
    topic_id = "a2Fma2FzY2FuLW9yYWNsZQ"
    with ks.SegmentWriter(tmp_path / "t-0", topic_id=topic_id) as writer:
        writer.append(_batches(1))
    assert (
        ks.broker_state.read_partition_metadata(tmp_path / "t-0" / "partition.metadata").topic_id
        == topic_id
    )


def test_a_closed_writer_refuses_batches(tmp_path: Path) -> None:
    writer = ks.SegmentWriter(tmp_path / "t-0")
    writer.close()
    writer.close()
    with pytest.raises(ValueError, match="closed"):
        writer.append(_batches(1))


@pytest.mark.parametrize(
    "options",
    [{"segment_bytes": 0}, {"segment_bytes": 2**31}, {"segment_ms": -1}, {"max_index_bytes": 12}],
)
def test_limits_out_of_range(options: dict[str, int], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"limits|indexes"):
        ks.SegmentWriter(tmp_path / "t-0", **options)
    assert _names(tmp_path) == []


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"base_offset": -10}, "base_offset"),
        ({"base_offset": 2**63}, "base_offset"),
        ({"topic_id": "orders"}, "not a topic id"),
        ({"topic_id": "A" * 22}, "not a topic id"),  # the zero UUID
        ({"topic_id": "a2Fma2FzY2FuLW9yYWNsZQ\nx: y"}, "not a topic id"),
        ({"topic_id": 7}, "not a topic id"),
    ],
)
def test_invalid_arguments_write_nothing(options: dict[str, Any], why: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=why):
        ks.SegmentWriter(tmp_path / "t-0", **options)
    assert _names(tmp_path) == []


@pytest.mark.parametrize("offset", [-1, -(2**63), 2**63 - 1])
def test_offsets_out_of_range_are_refused(offset: int, tmp_path: Path) -> None:
    data = Rig().batch(base_offset=offset, last_offset_delta=0).log
    with pytest.raises(ks.format.BatchTableError, match="OFFSET_OUT_OF_RANGE"):
        _write(tmp_path / "orders-0", data)
    assert _names(tmp_path) == []


# ---- after an error ------------------------------------------------------------------------------


def _aborting(offset: int) -> bytes:
    """A batch of an open transaction, then one that Kafka rejects."""
    ids = {"producer_id": 7, "producer_epoch": 0}
    data = _batches(1, offset=offset, base_sequence=0, is_transactional=True, **ids)
    return data + _batches(1, offset=0)


def test_after_a_refused_append_only_discard_works(tmp_path: Path) -> None:
    writer = ks.SegmentWriter(tmp_path / "orders-0")
    writer.append(_batches(3))
    with pytest.raises(ks.format.BatchTableError):
        writer.append(_aborting(3))
    assert _names(tmp_path) == [], "a full disk does not stay full"
    for _ in range(2):
        for use in (lambda: writer.append(_batches(1, offset=3)), writer.close, writer.__enter__):
            with pytest.raises(ks.format.SegmentWriterError, match="WRITER_FAILED") as error:
                use()
            assert str(tmp_path / "orders-0") in str(error.value)
            assert "BatchTableError" in error.value.reason
    assert _names(tmp_path) == []
    writer.discard()
    writer.close()
    with pytest.raises(ks.format.SegmentWriterError, match="WRITER_CLOSED"):
        writer.append(_batches(1))
    assert _names(tmp_path) == []


def test_a_block_that_ignored_an_error_does_not_end_silently(tmp_path: Path) -> None:
    with pytest.raises(ks.format.SegmentWriterError, match="WRITER_FAILED"):
        _ignore_an_error(tmp_path / "orders-0", discards=False)
    assert _names(tmp_path) == []
    _ignore_an_error(tmp_path / "orders-0", discards=True)
    assert _names(tmp_path) == []


def _ignore_an_error(folder: Path, *, discards: bool) -> None:
    with ks.SegmentWriter(folder) as writer:
        writer.append(_batches(3))
        with pytest.raises(ks.format.BatchTableError):
            writer.append(_batches(1))
        if discards:
            writer.discard()


@pytest.mark.parametrize("step", range(1, 13))
def test_a_full_disk_at_any_file_ends_the_writer(
    step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ENOSPC, then appends and a close that find room again."""
    calls = 0
    sync = os.fsync

    def full_once(descriptor: int) -> None:
        nonlocal calls
        calls += 1
        if calls == step:
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", full_once)
    writer = ks.SegmentWriter(tmp_path / "orders-0", segment_bytes=500)
    failed = 0
    for use in (
        lambda: writer.append(_batches(5)),
        lambda: writer.append(_batches(5, offset=5)),
        writer.close,
        writer.close,
    ):
        try:
            use()
        except (OSError, ks.format.SegmentWriterError) as error:
            failed += 1
            is_first = failed == 1
            assert (error.errno == errno.ENOSPC) if isinstance(error, OSError) else not is_first
    assert failed
    assert _names(tmp_path) == []


def test_a_writer_that_was_not_used_leaves_nothing(tmp_path: Path) -> None:
    writer = ks.SegmentWriter(tmp_path / "orders-0", base_offset=5)
    assert _names(tmp_path) == []
    assert (writer.base_offsets, writer.next_offset) == ([], 5)
    writer.discard()
    assert _names(tmp_path) == []
    with ks.SegmentWriter(tmp_path / "orders-0", base_offset=5) as writer:
        pass
    assert (writer.base_offsets, writer.next_offset) == ([5], 5)


# ---- locks ---------------------------------------------------------------------------------------


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "meta.properties").write_text("")
    return tmp_path / "data"


@pytest.mark.parametrize("is_linked", [False, True])
def test_the_data_dir_of_a_running_broker_is_not_written(
    is_linked: bool, data_dir: Path, tmp_path: Path
) -> None:
    folder = data_dir / "orders-0"
    if is_linked:
        (tmp_path / "elsewhere").mkdir()
        folder.symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    before = sorted([*_names(data_dir), ".lock"])
    with broker_in(data_dir):
        with pytest.raises(ks.format.LogDirInUseError, match="LOG_DIR_IN_USE"):
            ks.SegmentWriter(folder).append(_batches(1))
        assert _names(data_dir) == before
        with ks.SegmentWriter(folder, ignore_lock=True) as writer:
            writer.append(_batches(1))
    assert (folder / f"{0:020}.log").exists()
    assert "elsewhere" not in _names(tmp_path) or _names(tmp_path) == ["data", "elsewhere"]


def test_a_broker_does_not_start_below_a_writer(data_dir: Path) -> None:
    lock, code = data_dir / ".lock", (
        "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'ab'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    )  # fmt: skip
    (data_dir / "other-0").mkdir()
    with ks.SegmentWriter(data_dir / "orders-0") as writer:
        writer.append(_batches(1))
        assert "BlockingIOError" in run_warm(code, lock).stderr
        with pytest.raises(ks.format.LogDirInUseError), locked(data_dir):
            pass
    assert run_warm(code, lock).returncode == 0
    assert ks.recover(data_dir, write=True).is_marked_clean


def test_writers_of_other_partitions_are_not_excluded(data_dir: Path) -> None:
    def write(number: int) -> None:
        with ks.SegmentWriter(data_dir / f"orders-{number}") as writer:
            both.wait(HANG_SECONDS)
            writer.append(_batches(3))
            both.wait(HANG_SECONDS)

    both = threading.Barrier(3)
    code = (
        "import sys, kafkascan as ks;"
        "writer = ks.SegmentWriter(sys.argv[1]).__enter__(); print('opened', flush=True);"
        "sys.stdin.read(); writer.close()"
    )
    command = [sys.executable, "-c", code, str(data_dir / "orders-2")]
    with (
        ThreadPoolExecutor(2) as pool,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process,
    ):
        found = [pool.submit(write, number) for number in range(2)]
        both.wait(HANG_SECONDS)
        assert process.stdout is not None
        assert process.stdout.readline() == "opened\n"
        both.wait(HANG_SECONDS)
        for one in found:
            one.result()
        process.communicate("")
    assert process.returncode == 0
    names = [name for name in _names(data_dir) if "-" in name]
    assert names == ["orders-0", "orders-1", "orders-2"]


def test_the_lock_is_released_after_an_error(data_dir: Path) -> None:
    (data_dir / "other-0").mkdir()
    writer = ks.SegmentWriter(data_dir / "orders-0")
    with pytest.raises(ks.format.BatchTableError):
        writer.append(_aborting(3))
    with locked(data_dir):
        pass


def test_a_file_size_limit_is_an_error(tmp_path: Path) -> None:
    """The system may write a part of the last bytes without an error, up to the limit."""
    code = (
        "import resource, signal, sys, kafkascan as ks;"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "data = ks.build_batches(value=[bytes(100)] * 1000);"
        "writer = ks.SegmentWriter(sys.argv[1]);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000));"
        "writer.append(data); writer.close()"
    )
    assert "File too large" in run_warm(code, tmp_path / "orders-0").stderr
    assert _names(tmp_path) == []
