"""What reads leave in the page cache."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import kafkascan as ks
from kafkascan.io.page_cache import DropBehind
from tests.support.cold_files import evict
from tests.support.segments import batch_v2

SIZE, PIECE = 16 << 20, 1 << 22


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "log"
    path.write_bytes(os.urandom(SIZE))
    evict(path)
    with ks.Source(path) as source:
        behind = DropBehind(source)
        path.read_bytes()
        behind.drop()
        if source.is_cached(0, SIZE):
            pytest.skip("the system does not report what is cached")
    return path


@pytest.mark.parametrize("memory_map", [True, False])
def test_what_was_there_stays(path: Path, memory_map: bool) -> None:
    evict(path)
    with ks.Source(path, memory_map=memory_map) as source:
        with open(path, "rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
            file.seek(PIECE)
            file.read(PIECE)
        behind = DropBehind(source)
        assert sum(bytes(source.window(0, SIZE))[:: 1 << 12]) >= 0
        assert source.is_cached(0, SIZE, 64)
        behind.drop()
        cached = [source.is_cached(at, at + PIECE, 1) for at in range(0, SIZE, PIECE)]
    assert cached == [False, True, False, False]


def test_everything(path: Path) -> None:
    path.read_bytes()
    with ks.Source(path) as source:
        kept, dropped = DropBehind(source), DropBehind(source, everything=True)
        kept.drop()
        assert source.is_cached(0, SIZE, 8)
        dropped.drop()
        assert not source.is_cached(0, SIZE, 1)


def test_a_part_of_a_file(path: Path) -> None:
    evict(path)
    part = ks.io.FileRange(str(path), PIECE + 5000, 2 * PIECE, "inside")
    with ks.Source(part) as source:
        behind = DropBehind(source)
        path.read_bytes()
        behind.drop()
        assert not source.is_cached(0, 2 * PIECE, 1)
    with ks.Source(path) as source:
        assert source.is_cached(0, PIECE, 8), "it is outside of the part"
        assert source.is_cached(4 * PIECE - PIECE // 2, SIZE, 2)


def test_bytes_in_memory_have_no_cache() -> None:
    with ks.Source(bytes(100)) as source:
        DropBehind(source).drop()
        assert source.is_cached(0, 100)


def audit(folder: Path, keep_cache: bool) -> object:
    return ks.audit(folder, keep_cache=keep_cache)


def count(folder: Path, keep_cache: bool) -> object:
    return ks.count_records(folder, keep_cache=keep_cache)


def scan(folder: Path, keep_cache: bool) -> object:
    return list(ks.scan_log_dir(folder, keep_cache=keep_cache))


@pytest.mark.parametrize("keep_cache", [True, False])
@pytest.mark.parametrize("read", [audit, count, scan])
def test_a_read_of_cold_files(
    path: Path, tmp_path: Path, read: Callable[[Path, bool], object], keep_cache: bool
) -> None:
    folder = tmp_path / "topic-0"
    folder.mkdir()
    log = folder / "00000000000000000000.log"
    parts = [batch_v2(bytes(3_000), base_offset=number) for number in range(3_000)]
    log.write_bytes(b"".join(parts))
    evict(log)
    read(folder, keep_cache)
    with ks.Source(log) as source:
        assert source.is_cached(0, source.size, 2) == keep_cache
