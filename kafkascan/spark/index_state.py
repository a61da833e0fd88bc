"""Whether the index files beside a segment say what its batches say."""

from __future__ import annotations

import os
from pathlib import Path

from kafkascan.batch_columns import BatchTable
from kafkascan.errors import CorruptIndexError
from kafkascan.findings import Severity
from kafkascan.folders import DiskFolder
from kafkascan.index_checks import IndexScreen, index_findings, parse_index_file
from kafkascan.indexes import IndexEntries
from kafkascan.names import sibling_name
from kafkascan.sources import Source
from kafkascan.walks import BatchWalk, collect

OK, MISSING, DAMAGED, WRONG, UNKNOWN = "OK", "MISSING", "DAMAGED", "WRONG", "UNKNOWN"
KINDS = ("index", "timeindex")


class IndexStates:
    """
    Judges the ``.index`` and the ``.timeindex`` file of a segment, batches by batches.

    They are read at once: before the log, which a broker may be writing.

    Parameters
    ----------
    path : str
        Of the ``.log`` file.
    base_offset : int
        Of the segment.
    """

    def __init__(self, path: str, base_offset: int) -> None:
        self._base_offset = base_offset
        self._entries: dict[str, IndexEntries] = {}
        self._known = {kind: self._read(path, kind) for kind in KINDS}
        self._screen = IndexScreen(self._entries, base_offset) if self._entries else None

    def _read(self, path: str, kind: str) -> str | None:
        """Take the entries of an index; return its state if they do not matter."""
        folder, name = os.path.split(path)
        sibling = sibling_name(name, kind)
        if sibling is None:
            return MISSING
        try:
            data = DiskFolder(folder).read(sibling)
            if data is None:
                return MISSING
            entries, odd = parse_index_file(data, Path(folder, sibling))
        except OSError:  # or no file at all: what waits for a writer is not opened
            return UNKNOWN
        except CorruptIndexError:
            return DAMAGED
        if any(one.severity is Severity.ERROR for one in odd):
            return DAMAGED
        self._entries[kind] = entries
        return None

    def add(self, batches: BatchTable) -> None:
        """Look at the batches that follow."""
        if self._screen is not None:
            self._screen.add(batches)

    def of(self, source: Source) -> tuple[str, str]:
        """
        Judge both, when all batches have been added.

        Parameters
        ----------
        source : Source
            The segment: what is wrong with an index takes all batches at once to tell.

        Returns
        -------
        tuple of str
            For each: OK; MISSING; DAMAGED, if it is not made of whole entries; WRONG, if
            `check_index` finds an error. An index need not have an entry for every batch, and
            the active segment's may end with zeros.
        """
        offsets, times = (self._state(kind, source) for kind in KINDS)
        return offsets, times

    def _state(self, kind: str, source: Source) -> str:
        known = self._known[kind]
        if known is not None:
            return known
        assert self._screen is not None
        found = self._screen.findings(kind)
        if found is None:
            batches = collect(BatchWalk(source, 0, source.size))
            found = list(index_findings(self._entries[kind], batches, self._base_offset))
        return WRONG if any(one.severity is Severity.ERROR for one in found) else OK
