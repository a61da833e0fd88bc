"""Finish or discard interrupted replacements of segments, as ``LogLoader`` does."""

from __future__ import annotations

from kafkascan.recovery.loading.loaded_segment import LoadedSegment, offset_of
from kafkascan.recovery.loading.planned_files import PlannedFiles

NO_OFFSET = 1 << 63
"""Above all offsets."""

_DELETED, _CLEANED, _SWAP = ".deleted", ".cleaned", ".swap"
_KRAFT_SNAPSHOT_DELETED = ".checkpoint.deleted"


def finish_replacements(files: PlannedFiles) -> None:
    """Discard replacements that are incomplete, and finish the complete ones."""
    cleaned = [name for name in files.names() if name.endswith(_CLEANED)]
    incomplete_from = min((offset_of(name) or 0 for name in cleaned), default=NO_OFFSET)
    for name in files.names():
        if name.endswith(_DELETED) and not name.endswith(_KRAFT_SNAPSHOT_DELETED):
            files.delete(name, "the broker had marked it for deletion", at_first=True)
        elif name.endswith(_SWAP) and (offset_of(name) or 0) >= incomplete_from:
            files.delete(name, "an incomplete replacement", at_first=True)
    # After the .swap files: without .cleaned files, .swap files count as complete.
    for name in cleaned:
        files.delete(name, "an incomplete replacement", at_first=True)
    _swap_in(files, [name for name in files.names() if name.endswith(_SWAP)])


def _swap_in(files: PlannedFiles, swaps: list[str]) -> None:
    """Replace segments by their complete replacements."""
    named = {name: offset_of(name) for name in swaps if name.endswith(".log" + _SWAP)}
    ranges = [
        (base, LoadedSegment(files, base, _SWAP).read_next_offset())
        for base in named.values()
        if base is not None
    ]
    if ranges:
        first, last = min(start for start, _ in ranges), max(stop for _, stop in ranges)
        for name in files.names():
            offset = offset_of(name)
            if not name.endswith(_SWAP) and offset is not None and first <= offset < last:
                files.delete(name, "replaced by the log cleaner", at_first=True)
    for name in swaps:
        files.rename(name, name.removesuffix(_SWAP), "a complete replacement")
    for name in swaps:
        # Kafka opens the index of a replacement to find the end, and so creates a missing one.
        index = name.removesuffix(".log" + _SWAP) + ".index"
        if name.endswith(".log" + _SWAP) and index not in files:
            files.write(index, b"", "the index of a replacement is missing")
