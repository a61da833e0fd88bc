"""The dump of a log: its batches and records."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kafkascan.batches.columns import BatchTable, compression_type, size_in_bytes
from kafkascan.dump_log.batch_lines import Lines, batch_lines
from kafkascan.dump_log.dump_options import MAX_INT, DumpOptions
from kafkascan.dump_log.file_numbers import offset_of_name
from kafkascan.dump_log.line_output import LineOutput
from kafkascan.dump_log.log_frames import Frame, framed_batches, read_frame
from kafkascan.dump_log.record_lines import record_lines
from kafkascan.format.errors import UnsupportedCompressionError
from kafkascan.format.layout import CompressionType
from kafkascan.io.concurrency import are_small, map_ordered
from kafkascan.io.sources import Source
from kafkascan.logs.reading import iter_records
from kafkascan.records.record_table import RecordTable

_COLUMNS = ("offset", "timestamp", "key", "value", "headers")
# So many records, and their bytes, stay in the CPU's caches.
_RECORDS_PER_TABLE = 8192
_NO_LINES: Lines = ((), np.empty(0, np.uint8))
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


def dump_log(path: Path, options: DumpOptions, gaps: OffsetGaps, output: LineOutput) -> None:
    """
    Write the lines of a log or snapshot.

    Parameters
    ----------
    path : Path
    options : DumpOptions
    gaps : OffsetGaps
        Receives the offsets of records.
    output : LineOutput

    Raises
    ------
    CorruptBatchError
        Where the tool ends: at the first batch whose size is impossible, or whose records cannot
        be read. The lines before it were added to the output.
    OSError
    """
    output.add([title_of_log(path)])
    source = Source(path)  # closed with the last view of it
    stop = min(source.size, options.max_bytes)
    position = 0
    for batches, frame in framed_batches(source, 0, stop):
        _dump_batches(source, batches, frame, options, gaps, output)
        position = int(batches["position"][-1] + size_in_bytes(batches[-1:])[0])
    if position < stop and options.max_bytes == MAX_INT:
        output.add([f"Found {stop - position} invalid bytes at the end of {path.name}"])


def _dump_batches(
    source: Source,
    batches: BatchTable,
    frame: Frame | None,
    options: DumpOptions,
    gaps: OffsetGaps,
    output: LineOutput,
) -> None:
    printed = _before_unknown_codec(batches)
    if options.is_deep:
        dump = _DeepDump(source, frame, options, gaps, output)
        dump.add(printed)
    else:
        _add_heads(source, printed, frame, output)
    if len(printed) < len(batches):
        raise _unknown_codec(source, batches[len(printed) :][:1])


def _add_heads(
    source: Source, batches: BatchTable, frame: Frame | None, output: LineOutput
) -> None:
    """Add the lines of batches without records."""
    if not len(batches):
        return
    heads = batch_lines(source, batches, frame)
    output.add_lines(source, heads, _NO_LINES, np.zeros(len(batches) + 1, np.int64))


def _before_unknown_codec(batches: BatchTable) -> BatchTable:
    unknown = np.flatnonzero(~np.isin(compression_type(batches), list(CompressionType)))
    return batches[: unknown[0]] if len(unknown) else batches


def _unknown_codec(source: Source, batch: BatchTable) -> UnsupportedCompressionError:
    reason = f"compression type {compression_type(batch)[0]} is not known"
    position, base_offset = int(batch["position"][0]), int(batch["base_offset"][0])
    symbol = "UNSUPPORTED_COMPRESSION"
    return UnsupportedCompressionError(source.path, position, base_offset, reason, symbol)


def _decoded_ahead(source: Source, batches: BatchTable) -> Iterator[RecordTable]:
    """Yield the records of batches; a thread decodes the next tables of a large log."""

    def decode(batches: BatchTable) -> Iterator[RecordTable]:
        return iter_records(
            source, batches, columns=_COLUMNS, control="include", batch_size=_RECORDS_PER_TABLE
        )

    threads = 1 if are_small([int(size_in_bytes(batches).sum())]) else 2
    return map_ordered([batches], decode, threads, results_ahead=1)


@dataclass(frozen=True)
class _DeepDump:
    """Adds batches, each followed by its records."""

    source: Source
    frame: Frame | None
    options: DumpOptions
    gaps: OffsetGaps
    output: LineOutput

    def add(self, batches: BatchTable) -> None:
        """Add batches; raise the error of the first one that cannot be read."""
        row = 0
        readable = self.source, batches
        if self.frame is not None:
            readable = read_frame(self.source, batches, self.frame)
        tables = _decoded_ahead(*readable)
        positions = readable[1]["position"]
        while True:
            try:
                table = next(tables, None)
            except ValueError:
                self._add_heads(batches[row : row + 1])
                raise
            if table is None:
                break
            self.gaps.add(table.columns["offset"])
            stop = row + int(np.searchsorted(positions[row:], _last_position(table), "right"))
            self._add_table(readable[0], batches[row:stop], positions[row:stop], table)
            row = stop
        self._add_heads(batches[row:])

    def _add_heads(self, batches: BatchTable) -> None:
        _add_heads(self.source, batches, self.frame, self.output)

    def _add_table(
        self, source: Source, batches: BatchTable, positions: NDArray[np.int64], table: RecordTable
    ) -> None:
        try:
            lines = record_lines(table, self.options)
        except ValueError:
            first = self._first_unprintable(table)
            heads = int(np.searchsorted(positions, _last_position(table[: first + 1]), "right"))
            lines = record_lines(table[:first], self.options)
            self._add_lines(source, batches[:heads], positions[:heads], table[:first], lines)
            raise
        self._add_lines(source, batches, positions, table, lines)

    def _first_unprintable(self, table: RecordTable) -> int:
        for row in range(len(table)):
            try:
                record_lines(table[row : row + 1], self.options)
            except ValueError:
                return row
        return len(table)

    def _add_lines(
        self,
        source: Source,
        batches: BatchTable,
        positions: NDArray[np.int64],
        table: RecordTable,
        lines: Lines,
    ) -> None:
        """Add the lines of batches, each before those of its records."""
        of_record = table.batches["position"][table.columns["batch"]]
        after = np.searchsorted(of_record, positions, "right")
        first_line = np.concatenate([[0], after]).astype(np.int64)
        heads = batch_lines(self.source, batches, self.frame)
        self.output.add_lines(source, heads, lines, first_line)


def _last_position(table: RecordTable) -> int:
    return int(table.batches["position"][table.columns["batch"][-1]])
