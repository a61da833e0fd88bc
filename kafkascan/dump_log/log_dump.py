"""The dump of a log: its batches and records."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kafkascan.batches.columns import BatchTable, compression_type, size_in_bytes
from kafkascan.dump_log.batch_lines import batch_lines
from kafkascan.dump_log.dump_options import MAX_INT, DumpOptions
from kafkascan.dump_log.file_numbers import offset_of_name
from kafkascan.dump_log.log_frames import Frame, framed_batches, read_frame
from kafkascan.dump_log.record_lines import record_lines
from kafkascan.format.errors import UnsupportedCompressionError
from kafkascan.format.layout import CompressionType
from kafkascan.io.sources import Source
from kafkascan.logs.reading import iter_records
from kafkascan.records.record_table import RecordTable

_COLUMNS = ("offset", "timestamp", "key", "value", "headers")
_BOOTSTRAP = "bootstrap.checkpoint"


class OffsetGaps:
    """
    Offsets that do not follow the one before, as the tool collects them.

    Attributes
    ----------
    pairs : dict of int to int
        The offset before, and the one that follows it.
    """

    def __init__(self) -> None:
        self.pairs: dict[int, int] = {}
        self._last = -1

    def add(self, offsets: NDArray[np.int64]) -> None:
        """Compare the offsets of the next records."""
        before = np.concatenate([[self._last], offsets[:-1]])
        for row in np.flatnonzero(offsets != before + 1).tolist():
            self.pairs[int(before[row])] = int(offsets[row])
        self._last = int(offsets[-1])


def title_of_log(path: Path) -> str:
    """Return the first line of a log's or snapshot's dump."""
    if path.suffix == ".log":
        return f"Log starting offset: {offset_of_name(path)}"
    if path.name == _BOOTSTRAP:
        return "KRaft bootstrap snapshot"
    offset, _, epoch = path.stem.partition("-")
    return f"Snapshot end offset: {int(offset)}, epoch: {int(epoch)}"


def log_lines(path: Path, options: DumpOptions, gaps: OffsetGaps) -> Iterator[list[str]]:
    """
    Yield the lines of a log or snapshot.

    Parameters
    ----------
    path : Path
    options : DumpOptions
    gaps : OffsetGaps
        Receives the offsets of records.

    Yields
    ------
    list of str

    Raises
    ------
    CorruptBatchError
        Where the tool ends: at the first batch whose size is impossible, or whose records cannot
        be read. The lines before it were yielded.
    OSError
    """
    yield [title_of_log(path)]
    source = Source(path)  # closed with the last view of it
    stop = min(source.size, options.max_bytes)
    position = 0
    for batches, frame in framed_batches(source, 0, stop):
        yield from _lines_of(source, batches, frame, options, gaps)
        position = int(batches["position"][-1] + size_in_bytes(batches[-1:])[0])
    if position < stop and options.max_bytes == MAX_INT:
        yield [f"Found {stop - position} invalid bytes at the end of {path.name}"]


def _lines_of(
    source: Source,
    batches: BatchTable,
    frame: Frame | None,
    options: DumpOptions,
    gaps: OffsetGaps,
) -> Iterator[list[str]]:
    printed = _before_unknown_codec(batches)
    heads = batch_lines(source, printed, frame)
    if not options.is_deep:
        yield heads
    elif frame is None:
        yield from _deep_lines(source, printed, heads, options, gaps)
    else:
        yield from _deep_lines(*read_frame(source, printed, frame), heads, options, gaps)
    if len(printed) < len(batches):
        raise _unknown_codec(source, batches[len(printed) :][:1])


def _before_unknown_codec(batches: BatchTable) -> BatchTable:
    unknown = np.flatnonzero(~np.isin(compression_type(batches), list(CompressionType)))
    return batches[: unknown[0]] if len(unknown) else batches


def _unknown_codec(source: Source, batch: BatchTable) -> UnsupportedCompressionError:
    reason = f"compression type {compression_type(batch)[0]} is not known"
    position, base_offset = int(batch["position"][0]), int(batch["base_offset"][0])
    symbol = "UNSUPPORTED_COMPRESSION"
    return UnsupportedCompressionError(source.path, position, base_offset, reason, symbol)


def _deep_lines(
    source: Source,
    batches: BatchTable,
    heads: list[str],
    options: DumpOptions,
    gaps: OffsetGaps,
) -> Iterator[list[str]]:
    """Yield the lines of batches, each followed by those of its records."""
    row = 0
    tables = iter_records(source, batches, columns=_COLUMNS, control="include")
    while True:
        try:
            table = next(tables, None)
        except ValueError:
            yield heads[row : row + 1]
            raise
        if table is None:
            break
        gaps.add(table.columns["offset"])
        lines = _readable_lines(table, options)
        stop = row + int(np.searchsorted(batches["position"][row:], _last_position(table), "right"))
        yield _merged(batches["position"][row:stop], heads[row:stop], table, lines)
        if len(lines) < len(table):
            record_lines(table[len(lines) :], options)  # raises the error
        row = stop
    yield heads[row:]


def _last_position(table: RecordTable) -> int:
    return int(table.batches["position"][table.columns["batch"][-1]])


def _merged(
    positions: NDArray[np.int64], heads: list[str], table: RecordTable, lines: list[str]
) -> list[str]:
    """Return the lines of batches, each before those of its records."""
    of_record = table.batches["position"][table.columns["batch"]]
    # The number of the line in front of which each batch belongs.
    before = np.searchsorted(of_record, positions).tolist()
    merged: list[str] = []
    at = 0
    for head, first in zip(heads, before, strict=True):
        if first > len(lines):
            break
        merged += lines[at:first]
        merged.append(head)
        at = first
    return merged + lines[at:]


def _readable_lines(table: RecordTable, options: DumpOptions) -> list[str]:
    """Return the lines of records up to one that cannot be printed."""
    try:
        return record_lines(table, options)
    except ValueError:
        lines: list[str] = []
        with suppress(ValueError):
            for row in range(len(table)):
                lines += record_lines(table[row : row + 1], options)
        return lines
