"""Logs with segments that overlap: stale copies beside the segments that replaced them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import kafkascan as ks
from tests.support.records import RecordV2, batch_of

_T0 = 1_714_000_000_000

Segments = dict[int, bytes]
"""The logs of a partition by base offset."""


def segment(
    name: str,
    first: int,
    stop: int,
    *,
    step: int = 10,
    keep: Callable[[int], bool] = lambda offset: True,
) -> bytes:
    """Return batches of up to `step` offsets; the value of each record is the segment's name."""
    log = b""
    for base in range(first, stop, step):
        last = min(base + step, stop) - 1
        records = [
            RecordV2(key=b"k%d" % offset, value=name.encode(), offset_delta=offset - base)
            for offset in range(base, last + 1)
            if keep(offset)
        ]
        if records:
            log += batch_of(
                records, base_offset=base, last_offset_delta=last - base,
                base_timestamp=_T0 + base, max_timestamp=_T0 + last,
            )  # fmt: skip
    return log


def _is_left(offset: int) -> bool:
    """Return whether the cleaner has left a record."""
    return offset % 7 == 0


SHAPES: dict[str, Segments] = {
    "the first of three stale ones was replaced": {
        0: segment("A", 0, 300, keep=_is_left), 100: segment("B", 100, 200),
        200: segment("C", 200, 300), 300: segment("D", 300, 340),
    },
    "a stale one in the middle": {
        0: segment("A", 0, 100), 100: segment("B", 100, 300, keep=_is_left),
        200: segment("C", 200, 300), 300: segment("D", 300, 340),
    },
    "part of a segment": {
        0: segment("A", 0, 160), 100: segment("B", 100, 200, step=20), 200: segment("C", 200, 240),
    },
    "part of a batch": {
        0: segment("A", 0, 150), 100: segment("B", 100, 200, step=30), 200: segment("C", 200, 240),
    },
    "an identical copy": {
        0: segment("A", 0, 100), 50: segment("A", 50, 100), 100: segment("C", 100, 140),
    },
    "longer than the log": {
        0: segment("A", 0, 400), 100: segment("B", 100, 200), 200: segment("C", 200, 250),
    },
    "a middle one longer than the log": {
        0: segment("A", 0, 100), 100: segment("B", 100, 400), 200: segment("C", 200, 250),
    },
    "an empty one": {0: segment("A", 0, 300), 100: b"", 300: segment("D", 300, 340)},
    "an empty one at the end": {0: segment("A", 0, 300), 100: b""},
}  # fmt: skip
"""What a backup without ``--delete`` leaves, by a name."""

HIDDEN_END: Segments = {
    0: segment("A", 0, 300), 100: segment("B", 100, 500),
    200: segment("C", 200, 250), 500: segment("D", 500, 540),
}  # fmt: skip
"""After A, a broker looks into C, which hides the end of B: offsets 300 to 499."""


def write_indexes(folder: Path) -> None:
    """Write an index of the batches of each segment that its name allows, with many entries."""
    for log in folder.glob("*.log"):
        base_offset, rows = int(log.stem), ks.scan_batches(log).batches
        rows = rows[rows["base_offset"] >= base_offset]
        entries = ks.build_offset_index(rows, base_offset=base_offset, interval_bytes=1)
        ks.write_index(log.with_suffix(".index"), entries)


def write_segments(folder: Path, segments: Segments) -> Path:
    """Write the logs into a new folder, and return it."""
    folder.mkdir(parents=True)
    for base_offset, data in segments.items():
        (folder / f"{base_offset:020}.log").write_bytes(data)
    return folder
