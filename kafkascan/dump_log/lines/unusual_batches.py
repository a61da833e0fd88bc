"""Lines of batches of every kind, by columns of their records."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kafkascan.batches.columns import BatchTable
from kafkascan.dump_log.dump_options import DumpOptions
from kafkascan.dump_log.lines.batch_lines import Lines, batch_lines
from kafkascan.dump_log.lines.line_output import Piece, PieceMemory, offsets_of, pieces_of
from kafkascan.dump_log.lines.record_lines import record_lines
from kafkascan.dump_log.log_frames import Frame, read_frame
from kafkascan.io.sources import Source
from kafkascan.logs.reading import iter_records
from kafkascan.records.record_table import RecordTable

_COLUMNS = ("offset", "timestamp", "key", "value", "headers")
# So many records, and their bytes, stay in the CPU's caches.
_RECORDS_PER_TABLE = 8192
_NO_LINES: Lines = ((), np.empty(0, np.uint8))


def head_pieces(
    source: Source, batches: BatchTable, frame: Frame | None, memory: PieceMemory
) -> Iterator[Piece]:
    """Yield the lines of batches without records."""
    if not len(batches):
        return
    heads = batch_lines(source, batches, frame)
    yield from pieces_of(source, heads, _NO_LINES, np.zeros(len(batches) + 1, np.int64), memory)


@dataclass(frozen=True)
class UnusualBatches:
    """Prints batches of every kind, by columns of their records."""

    source: Source
    frame: Frame | None
    options: DumpOptions
    memory: PieceMemory

    def pieces(self, batches: BatchTable) -> Iterator[Piece]:
        """Yield the lines; raise the error of the first batch that cannot be read."""
        row = 0
        source, rows = self.source, batches
        if self.frame is not None:
            source, rows = read_frame(source, batches, self.frame)
        positions = rows["position"]
        tables = iter_records(
            source, rows, columns=_COLUMNS, control="include", batch_size=_RECORDS_PER_TABLE
        )
        while True:
            try:
                table = next(tables, None)
            except ValueError:
                yield from self._heads(batches[row : row + 1])
                raise
            if table is None:
                break
            stop = row + int(np.searchsorted(positions[row:], _last_position(table), "right"))
            yield from self._of_table(source, batches[row:stop], positions[row:stop], table)
            row = stop
        yield from self._heads(batches[row:])

    def _heads(self, batches: BatchTable) -> Iterator[Piece]:
        return head_pieces(self.source, batches, self.frame, self.memory)

    def _of_table(
        self, source: Source, batches: BatchTable, positions: NDArray[np.int64], table: RecordTable
    ) -> Iterator[Piece]:
        try:
            lines = record_lines(table, self.options)
        except ValueError:
            first = self._first_unprintable(table)
            heads = int(np.searchsorted(positions, _last_position(table[: first + 1]), "right"))
            lines = record_lines(table[:first], self.options)
            yield from self._lines(source, batches[:heads], positions[:heads], table[:first], lines)
            raise
        yield from self._lines(source, batches, positions, table, lines)

    def _first_unprintable(self, table: RecordTable) -> int:
        for row in range(len(table)):
            try:
                record_lines(table[row : row + 1], self.options)
            except ValueError:
                return row
        return len(table)

    def _lines(
        self,
        source: Source,
        batches: BatchTable,
        positions: NDArray[np.int64],
        table: RecordTable,
        lines: Lines,
    ) -> Iterator[Piece]:
        """Yield the lines of batches, each before those of its records."""
        of_record = table.batches["position"][table.columns["batch"]]
        after = np.searchsorted(of_record, positions, "right")
        first_line = np.concatenate([[0], after]).astype(np.int64)
        heads = batch_lines(self.source, batches, self.frame)
        offsets = offsets_of(table.columns["offset"])
        yield from pieces_of(source, heads, lines, first_line, self.memory, offsets)


def _last_position(table: RecordTable) -> int:
    return int(table.batches["position"][table.columns["batch"][-1]])
