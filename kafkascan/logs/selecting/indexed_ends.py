"""Where segments end, as far as it is known without reading all of their headers."""

from __future__ import annotations

from kafkascan.batches.columns import last_offset
from kafkascan.batches.scan import iter_batches
from kafkascan.broker_state.indexes import parse_index
from kafkascan.format.errors import KafkaScanError
from kafkascan.format.layout import ScanEnd
from kafkascan.logs.segment import SegmentFile

# After its last entry, an index says nothing of about 4 KiB of batches (index.interval.bytes).
_ROWS = 64


def ends_before(segment: SegmentFile, offset: int) -> bool:
    """
    Return whether the offsets of a segment end before an offset, if that can be read cheaply.

    The last entry of the ``.index`` is where the batches are read that it does not contain. Without
    such an entry, or if batches do not follow it to the end of the file, the answer is False.

    Parameters
    ----------
    segment : SegmentFile
    offset : int
    """
    start = _last_indexed_position(segment)
    if start is None:
        return False
    try:
        with segment.borrow() as source:
            tail = iter_batches(source, rows=_ROWS, start=start, on_corrupt="stop")
            is_below = [bool((last_offset(table) < offset).all()) for table in tail]
            return bool(is_below) and all(is_below) and tail.end is ScanEnd.CLEAN
    except (OSError, KafkaScanError):
        return False  # a reader of the whole segment says what is wrong with it


def _last_indexed_position(segment: SegmentFile) -> int | None:
    """Return the position of the last entry of a segment's index, if it is within the file."""
    try:
        found = segment.read_sibling("index")
        entries = None if found is None else parse_index(found[1], found[0])
    except (OSError, KafkaScanError):
        return None
    if entries is None or not len(entries):
        return None
    position = int(entries["position"][-1])
    return position if 0 < position < segment.current_size() else None
