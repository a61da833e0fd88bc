"""Find offsets that are missing where no bytes are lost, among the batches that a salvage keeps."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from kafkascan.format.errors import KafkaScanError
from kafkascan.format.findings import Severity
from kafkascan.format.layout import ScanEnd
from kafkascan.logs.log_problems import LogChecks, LogProblems
from kafkascan.logs.opened_logs import LogView
from kafkascan.logs.segment import SegmentFile
from kafkascan.logs.walking.batch_offsets import SegmentOffsets
from kafkascan.recovery.salvaging.segment_salvage import SegmentSalvage
from kafkascan.tables.table import Problem, Problems


class _ZeroTail(NamedTuple):
    """The `LogEnd` of zeros."""

    position: int
    trailing_bytes: int
    end: ScanEnd = ScanEnd.ZERO_TAIL
    error: None = None


class KeptOffsets:
    """
    The offsets that are kept of a log: those of its batches after the repair of their headers.

    Parameters
    ----------
    log : LogView
    """

    def __init__(self, log: LogView) -> None:
        self._log, self._found = log, LogProblems()
        self._checks = LogChecks(log, self._found)

    def add(self, result: SegmentSalvage, offsets: SegmentOffsets) -> None:
        """Add the next segment that is copied, with the offsets of its kept batches."""
        offsets.is_whole = not offsets.is_after_loss
        if result.zero_tail_bytes and offsets.is_whole:
            position = result.size - result.zero_tail_bytes
            self._checks.add(offsets, _ZeroTail(position, result.zero_tail_bytes))
        else:
            self._checks.add_offsets(offsets)

    def skip(self) -> None:
        """Leave out a segment that is not copied."""
        self._checks.skip()

    def problems(self) -> Problems:
        """Return the problems after the last segment."""
        self._checks.finish()
        return Problems(map(self._judged, self._found.found))

    def _judged(self, one: Problem) -> Problem:
        """Return zeros without batches as a note if the segment is preallocated, and in use."""
        is_of_zeros = one.symbol == str(ScanEnd.ZERO_TAIL) and one.position == 0
        if is_of_zeros and _has_preallocated_index(self._log.segments[-1]):
            return replace(one, severity=Severity.NOTE)
        return one


def _has_preallocated_index(segment: SegmentFile) -> bool:
    """Return whether the index has room for entries, but none; a broker trims it at the end."""
    try:
        found = segment.read_sibling("index")
    except (OSError, KafkaScanError):  # the copy needs no index of the original
        return False
    return found is not None and len(found[1]) > 0 and not any(found[1])
