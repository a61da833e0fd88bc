"""The system's page cache: what it holds of a file, and reads that fetch only what they need."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from kafkascan._core.cold_reads import LogFile
from kafkascan.io.source_protocols import OPEN_FLAGS
from kafkascan.io.sources import Source


class SelectiveReads:
    """
    A second descriptor of a source's file, for reads that are far apart.

    The system reads ahead on the descriptor of a source. On this one it reads no page that was
    not requested.

    Parameters
    ----------
    source : Source
    descriptor : int
        Closed with this object.
    """

    def __init__(self, source: Source, descriptor: int) -> None:
        self._source = source
        self._descriptor = descriptor

    @contextmanager
    def open(self) -> Iterator[LogFile]:
        """Provide the log, while its source is open."""
        with self._source.borrowed_descriptor():
            yield LogFile(self._descriptor, self._source.file_start, self._source.size)

    def __del__(self) -> None:
        os.close(self._descriptor)


def open_selective(source: Source) -> SelectiveReads | None:
    """Return a descriptor for single reads; None if the system provides none."""
    if not (source.has_file and hasattr(os, "posix_fadvise")):
        return None
    with source.borrowed_descriptor() as opened:
        try:
            # By its path, the file may be another one by now.
            descriptor = os.open(f"/proc/self/fd/{opened}", OPEN_FLAGS)
        except OSError:
            return None
    reads = SelectiveReads(source, descriptor)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
    except OSError:
        return None
    return reads
