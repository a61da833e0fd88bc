"""Print batches and their records, by columns of the records."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kafkascan.batches.columns import BatchTable
from kafkascan.dump_log.batch_lines import Lines, batch_lines
from kafkascan.dump_log.dump_options import DumpOptions
from kafkascan.dump_log.line_output import ChunkMemory, TextChunk, chunks_of, offsets_of
from kafkascan.dump_log.log_frames import Frame
from kafkascan.dump_log.readable_batches import (
    ReadableBatches,
    readable_batches,
    unprintable_record,
)
from kafkascan.dump_log.record_lines import UNDECODABLE, record_lines
from kafkascan.io.sources import Source
from kafkascan.records.record_table import RecordTable

_NO_LINES: Lines = ((), np.empty(0, np.uint8))


def head_chunks(
    source: Source,
    batches: BatchTable,
    frame: Frame | None,
    options: DumpOptions,
    memory: ChunkMemory,
) -> Iterator[TextChunk]:
    """Yield the lines of batches without records."""
    if not len(batches):
        return
    heads = batch_lines(source, batches, frame, is_json=options.is_json)
    yield from chunks_of(source, heads, _NO_LINES, np.zeros(len(batches) + 1, np.int64), memory)


@dataclass(frozen=True)
class BatchPrinter:
    """Prints batches of every format with their records."""

    source: Source
    frame: Frame | None
    options: DumpOptions
    memory: ChunkMemory

    def chunks(self, batches: BatchTable) -> Iterator[TextChunk]:
        """Yield the lines; raise the error of the first record that cannot be read or printed."""
        for readable in readable_batches(self.source, batches, self.frame):
            yield from self._chunks_of(readable)

    def _chunks_of(self, readable: ReadableBatches) -> Iterator[TextChunk]:
        try:
            lines = record_lines(readable.records, self.options)
        except UNDECODABLE as error:
            row = self._first_unprintable(readable.records)
            printable = readable.up_to(row)
            yield from self._lines(printable, record_lines(printable.records, self.options))
            raise unprintable_record(self.source, readable, row, error) from error
        yield from self._lines(readable, lines)

    def _first_unprintable(self, table: RecordTable) -> int:
        for row in range(len(table)):
            try:
                record_lines(table[row : row + 1], self.options)
            except UNDECODABLE:
                return row
        return len(table)

    def _lines(self, readable: ReadableBatches, lines: Lines) -> Iterator[TextChunk]:
        """Yield the lines of batches, each before those of its records."""
        first_line = np.concatenate([[0], readable.ends]).astype(np.int64)
        is_json = self.options.is_json
        heads = batch_lines(self.source, readable.batches, self.frame, is_json=is_json)
        offsets = offsets_of(readable.records.columns["offset"])
        yield from chunks_of(readable.source, heads, lines, first_line, self.memory, offsets)
