"""Files that are not in the page cache, or are treated as if they were not; or in small pages."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

import kafkascan as ks
from kafkascan._core.cold_reads import LogFile
from kafkascan.batches.header_reading import cold_headers, header_readers
from kafkascan.io.page_cache import MapOrReads

# Small enough for each way of reading headers to be used in small logs.
EAGER = {
    "_LARGE_BATCH": 0,
    "_LARGE_GUESSED_BATCH": 0,
    "_FIRST_ROWS": 2,
    "_ROWS_AT_ONCE": 50,
    "_WAITS_AT_ONCE": 7,
    "_HINTS_AT_ONCE": 5,
    "_SMALLEST_CHAIN": 2,
    "_GUESS_SHARE": 100.0,
    "_GUESS_STEP": 256,
}


def treat_as_cold(patch: pytest.MonkeyPatch, **constants: float) -> None:
    """Let walks over any file read it as one that is not cached, with small constants."""
    patch.setattr(ks.Source, "is_cached", lambda self, *piece: not self.has_file)
    patch.setattr(header_readers, "_SMALLEST_PIECE", 0)
    for name, value in (EAGER | constants).items():
        patch.setattr(cold_headers, name, value)


class AlwaysReads(MapOrReads):
    """Reads all bytes of a cached file, whatever is faster."""

    def __init__(self, *_: int, **__: float) -> None:
        super().__init__(sys.maxsize, kept=1)
        self.are_read = True


def evict(path: Path) -> None:
    """Drop a file from the page cache; skip the test if the file system keeps it."""
    if not hasattr(os, "posix_fadvise"):
        pytest.skip("the system drops no files from its page cache on request")
    size = path.stat().st_size
    with open(path, "rb") as file:
        log = LogFile(file.fileno(), 0, size)
        for _ in range(20):
            os.fdatasync(file.fileno())  # tests replace fsync
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            cached = log.count_cached(0, size)
            # A sample fetches the page that it asks for.
            if cached == 0 or (cached < 0 and not log.is_cached(0, size, 2)):
                return
            time.sleep(0.05)
    pytest.skip("the file system keeps files in memory")


def bytes_read() -> int:
    """Return the number of bytes that this process has fetched from disks."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(one for one in lines if one.startswith("read_bytes")).split()[1])
