"""Find the last batches of a file without reading all of it. Runs on the driver."""

from __future__ import annotations

import numpy as np

from kafkascan.batches.columns import size_in_bytes
from kafkascan.batches.scan import scan_batches
from kafkascan.format.layout import ScanEnd
from kafkascan.io.sources import Source
from kafkascan.spark.options.reader_options import Options
from kafkascan.spark.planning.file_listing import FoundFile, read_hints

# Bytes at the end of a file among which batches are searched.
_TAIL = 1 << 20


def position_near_end(file: FoundFile, source: Source, options: Options) -> int:
    """
    Return the position of a batch from which a walk soon arrives at the end of a file.

    It is found by the file's index, or by batches with valid checksums that continue up to the end
    of the file. Records can contain such batches, so tasks must check that their walk arrives at
    the offset that was found.

    Returns
    -------
    int
        0 if all of the file must be walked: small files, and other ends than that of a batch.
    """
    if source.size <= 2 * _TAIL:
        return 0
    hints = read_hints(file, options)
    if hints is not None:
        position = hints.last_before(source.size - 1)
        if position and hints.is_proven(source, position):
            return position
    return _first_of_tail(source)


def _first_of_tail(source: Source) -> int:
    """Return the position of the first batch in the tail after which batches follow each other."""
    start = source.size - _TAIL
    found = scan_batches(bytes(source.window(start, _TAIL)), on_corrupt="resync")
    batches = found.batches
    if found.end is not ScanEnd.CLEAN or not len(batches):
        return 0
    ends = batches["position"] + size_in_bytes(batches)
    gaps = np.flatnonzero(batches["position"][1:] != ends[:-1])
    first = int(gaps[-1]) + 1 if len(gaps) else 0
    return start + int(batches["position"][first])
