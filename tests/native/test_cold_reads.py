"""Guesses of batches in cold files, and descriptors that cannot be read."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from kafkascan._core.cold_reads import LogFile
from kafkascan.format.errors import STATUS
from kafkascan.format.layout import BATCH_DTYPE
from tests.support.cold_files import evict
from tests.support.segments import Rig, batch_v2
from tests.support.warm_process import run_warm


def guess(folder: Path, data: bytes, last_offset: int = -1) -> int:
    path = folder / "log"
    path.write_bytes(data)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        file = LogFile(descriptor, 0, len(data))
        return file.guess(0, len(data), last_offset, np.empty(1000, np.uint8))
    finally:
        os.close(descriptor)


IMPLAUSIBLE = {
    "a negative delta": {"last_offset_delta": -1},
    "a negative count": {"records_count": -1},
    "more records than offsets": {"records_count": 2},
    "an unknown attribute": {"attributes": 0x80},
    "an unknown codec": {"attributes": 7},
    "the offset before": {"base_offset": 9},
    "a later offset by 2**31": {"base_offset": 9 + 2**31},
}


@pytest.mark.parametrize("fields", IMPLAUSIBLE.values(), ids=IMPLAUSIBLE)
def test_implausible_headers_are_not_guessed(tmp_path: Path, fields: dict[str, int]) -> None:
    log = b"".join(batch_v2(base_offset=offset) for offset in (10, 11, 12))
    odd = batch_v2(**{"base_offset": 10, **fields})
    assert guess(tmp_path, odd + log, last_offset=9) == len(odd)
    assert guess(tmp_path, log, last_offset=9) == 0


def test_a_guess_gives_up_after_sixteen_headers_that_nothing_follows(tmp_path: Path) -> None:
    log = b"".join(batch_v2(base_offset=offset) for offset in range(100, 103))
    alone = batch_v2(base_offset=1) + b"x" * 100
    assert guess(tmp_path, alone * 15 + log, last_offset=0) == 15 * len(alone)
    assert guess(tmp_path, alone * 16 + log, last_offset=0) == -1


def test_a_descriptor_that_cannot_be_read() -> None:
    file = LogFile(-1, 0, 1000)
    rows = np.zeros(3, BATCH_DTYPE)
    assert file.scan_into(0, 1000, rows) == (STATUS["SOURCE_FAULT"], 0, 0)
    assert file.offset_of(0) is None
    assert file.count_cached(0, 1000) == -1
    assert file.is_cached(0, 1000, 1), "unknown counts as cached"


@pytest.mark.skipif(os.geteuid() != 0, reason="takes another user")
def test_who_may_not_write_a_file_learns_by_a_read_whether_it_is_cached(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(Rig().batches(3).log)
    program = """
        import os, sys
        from kafkascan._core.cold_reads import LogFile
        descriptor = os.open(sys.argv[1], os.O_RDONLY)
        size = os.fstat(descriptor).st_size
        file = LogFile(descriptor, 0, size)
        os.seteuid(65534)
        counts = file.count_cached(0, size)
        before = file.is_cached(0, size, 1)
        os.pread(descriptor, size, 0)
        after = file.is_cached(0, size, 1)
        longer = LogFile(descriptor, 0, size + 20_000)  # than the file, which shrank
        unknown = longer.is_cached(size + 10_000, size + 20_000, 1)
        os.seteuid(0)
        print(counts, before, after, unknown)
    """
    # The read starts to fetch the page; a disk may have it before the read looks again.
    for _ in range(20):
        evict(path)
        ended = run_warm(program, path)
        assert ended.returncode == 0, ended.stderr
        counts, before, *answers = ended.stdout.split()
        if counts != "-1":
            pytest.skip("this kernel tells everybody")
        assert answers == ["True", "True"]
        if before == "False":
            return
    pytest.skip("the disk is too fast: each page is there when the read looks again")
