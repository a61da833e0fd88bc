"""State of the index files of a segment: present, intact and consistent with its batches."""

from __future__ import annotations

import os
from pathlib import Path

from kafkascan.batches.columns import BatchTable
from kafkascan.batches.walks import BatchWalk, collect
from kafkascan.broker_state.index_checks import IndexScreen, check_entries, parse_index_file
from kafkascan.broker_state.indexes import IndexEntries
from kafkascan.format.errors import CorruptIndexError
from kafkascan.format.file_names import sibling_name
from kafkascan.format.findings import Severity
from kafkascan.io.folders import DiskFolder
from kafkascan.io.sources import Source

OK, MISSING, DAMAGED, WRONG, UNKNOWN = "OK", "MISSING", "DAMAGED", "WRONG", "UNKNOWN"
KINDS = ("index", "timeindex")


class IndexStates:
    """
    Compare the ``.index`` and ``.timeindex`` files of a segment with its batches.

    Parameters
    ----------
    base_offset : int
        The segment's base offset.
    entries : dict
        Index entries by kind, of the files that could be read.
    known : dict
        States by kind, of the other files.
    """

    def __init__(
        self, base_offset: int, entries: dict[str, IndexEntries], known: dict[str, str]
    ) -> None:
        self._base_offset = base_offset
        self._entries = entries
        self._known = known
        self._screen = IndexScreen(entries, base_offset) if entries else None

    @classmethod
    def read(cls, path: str, base_offset: int) -> IndexStates:
        """
        Read the index files of a ``.log`` file.

        Call this before the log is scanned: a broker may be appending to both, and an index must
        not have entries for batches that the scan did not see.
        """
        found = {kind: _read_index(path, kind) for kind in KINDS}
        entries = {kind: one for kind, one in found.items() if not isinstance(one, str)}
        known = {kind: one for kind, one in found.items() if isinstance(one, str)}
        return cls(base_offset, entries, known)

    def add(self, batches: BatchTable) -> None:
        """Check the next batches of the segment."""
        if self._screen is not None:
            self._screen.add(batches)

    def states(self, source: Source) -> tuple[str, str]:
        """
        Return the states of both files, after all batches were added.

        Parameters
        ----------
        source : Source
            The segment. It is walked again if an index looks wrong, because the exact findings
            need all batches in one table.

        Returns
        -------
        tuple of str
            For each file: OK; MISSING; DAMAGED, if it is not a sequence of complete entries;
            WRONG, if `check_index` finds an error; UNKNOWN, if it cannot be read. An index need
            not have an entry for every batch, and the active segment's may end with zeros.
        """
        offsets, times = (self._state(kind, source) for kind in KINDS)
        return offsets, times

    def _state(self, kind: str, source: Source) -> str:
        if kind in self._known:
            return self._known[kind]
        assert self._screen is not None
        found = self._screen.findings(kind)
        if found is None:
            batches = collect(BatchWalk(source, 0, source.size))
            checks = check_entries(self._entries[kind], batches, self._base_offset)
            return WRONG if checks.wrong else OK
        return WRONG if any(one.severity is Severity.ERROR for one in found) else OK


def _read_index(path: str, kind: str) -> IndexEntries | str:
    """Return the entries of an index file, or its state if it has none to check."""
    folder, name = os.path.split(path)
    sibling = sibling_name(name, kind)
    if sibling is None:
        return MISSING
    try:
        data = DiskFolder(folder).read(sibling)
        if data is None:
            return MISSING
        entries, findings = parse_index_file(data, Path(folder, sibling))
    except OSError:  # also raised for a FIFO, which is not opened
        return UNKNOWN
    except CorruptIndexError:
        return DAMAGED
    if any(one.severity is Severity.ERROR for one in findings):
        return DAMAGED
    return entries
