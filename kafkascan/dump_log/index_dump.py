"""The dumps of index files and producer snapshots."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from kafkascan.batches.columns import BatchTable, join_tables, last_offset
from kafkascan.broker_state.indexes import IndexEntries, entries_of, floor_entry
from kafkascan.dump_log.batch_lines import optional_long
from kafkascan.dump_log.dump_options import DumpOptions
from kafkascan.dump_log.log_dump import offset_of_name
from kafkascan.dump_log.log_frames import (
    Frame,
    frame_at,
    framed_batches,
    last_offset_of,
    read_frame,
)
from kafkascan.format.errors import CorruptBatchError, CorruptIndexError
from kafkascan.format.layout import COMPRESSION_MASK, NO_SEQUENCE, NO_TIMESTAMP
from kafkascan.format.shown_places import shown_url
from kafkascan.io.folders import read_regular
from kafkascan.io.sources import Source
from kafkascan.io.stores.urls import as_path
from kafkascan.logs.reading import read_records

_MAX_SEQUENCE = 2**31 - 1
# Kafka decodes whole records for their timestamps.
_ALL_COLUMNS = ("timestamp", "key", "value", "headers")


@dataclass
class IndexComplaints:
    """What the tool prints about indexes when all files are dumped."""

    mismatches: dict[int, int] = field(default_factory=dict)
    """Offsets of entries, and the last offset of the batch that they lead to."""
    wrong_timestamps: list[tuple[int, int]] = field(default_factory=list)
    """Timestamps of entries and of their batches."""
    unordered: list[tuple[int, int]] = field(default_factory=list)
    """Timestamps of entries and of the entries before."""
    not_found: list[tuple[int, int]] = field(default_factory=list)
    """Offsets of entries, and of the batches that hold them; -1 for none."""


def index_lines(name: str, options: DumpOptions, found: IndexComplaints) -> Iterator[list[str]]:
    """Yield the lines of an ``.index`` or ``.timeindex`` file."""
    lines_of = _time_index_lines if name.endswith(".timeindex") else _offset_index_lines
    return lines_of(name, options, found)


def _offset_index_lines(
    name: str, options: DumpOptions, found: IndexComplaints
) -> Iterator[list[str]]:
    """
    Yield the lines of an ``.index`` file.

    Raises
    ------
    CorruptIndexError
        Where the tool ends: an entry leads out of the log, or to no batch.
    CorruptBatchError, OSError
    """
    path = as_path(name)
    base = offset_of_name(path)
    with Source(_sibling(path, ".log")) as log:
        entries = _whole_entries(path)
        if not len(entries):
            yield [f"{shown_url(name)} is empty."]
            return
        offsets = (entries["relative_offset"].astype("i8") + base).tolist()
        if options.checks_index_only:
            _require_sane(path, offsets[-1] >= base)
            yield [f"{shown_url(name)} passed sanity check."]
            return
        lines: list[str] = []
        try:
            for row, (offset, position) in enumerate(
                zip(offsets, entries["position"].tolist(), strict=True)
            ):
                if offset == base and row > 0:
                    break
                last = _last_offset_at(log, path, row, position, options.max_message_size)
                if last != offset:
                    found.mismatches[offset] = last
                if not options.verifies_index_only:
                    lines.append(f"offset: {offset} position: {position}")
        finally:
            yield lines


def _last_offset_at(log: Source, path: Path, row: int, position: int, size: int) -> int:
    """Return the last offset of the batch at a position, as Kafka reads a slice of a log."""
    if not 0 <= position <= log.size:
        raise _bad_entry(path, row, f"position {position} is not in a log of {log.size} bytes")
    frame = frame_at(log, position, min(log.size, position + size))
    if frame is None:
        raise _bad_entry(path, row, f"no batch is at position {position}")
    return last_offset_of(log, frame)


def _time_index_lines(
    name: str, options: DumpOptions, found: IndexComplaints
) -> Iterator[list[str]]:
    """
    Yield the lines of a ``.timeindex`` file.

    Raises
    ------
    CorruptIndexError, CorruptBatchError, OSError
    """
    path = as_path(name)
    base = offset_of_name(path)
    log = Source(_sibling(path, ".log"))  # closed with the last view of it
    positions = _whole_entries(_sibling(path, ".index"))
    entries = _whole_entries(path)
    times = entries["timestamp"].tolist()
    offsets = (entries["relative_offset"].astype("i8") + base).tolist()
    if options.checks_index_only:
        is_sane = not times or (times[-1] >= times[0] and offsets[-1] >= base)
        _require_sane(path, is_sane)
        yield [f"{shown_url(name)} passed sanity check."]
        return
    batches = _Batches(log, 0) if times else None
    lines: list[str] = []
    previous = NO_TIMESTAMP
    try:
        for row, (time, offset) in enumerate(zip(times, offsets, strict=True)):
            if (offset == base and row > 0) or batches is None:
                break
            start = _floor_position(positions, offset - base)
            if not 0 <= start <= log.size:
                raise _bad_entry(path, row, f"position {start} of its offset is not in the log")
            is_start = (batches.table["position"] == start).any()
            batches = batches if is_start else _Batches(log, start)
            if batches.error is not None:  # the tool reads on to the end
                raise batches.error
            _compare_time(batches, start, (time, offset, previous), found)
            if not options.verifies_index_only:
                lines.append(f"timestamp: {time} offset: {offset}")
            previous = time
    finally:
        yield lines


class _Batches:
    """
    The batches that a reader finds from a position on.

    Attributes
    ----------
    table : array of BATCH_DTYPE, shape (n,)
    error : CorruptBatchError or None
        Damage behind them.
    """

    def __init__(self, log: Source, position: int) -> None:
        parts: list[tuple[BatchTable, Frame | None]] = []
        self.error: CorruptBatchError | None = None
        try:
            parts += framed_batches(log, position, log.size, reads_headers=False)
        except CorruptBatchError as error:
            self.error = error
        self.table = join_tables([batches for batches, _ in parts])
        self._log = log
        self._frames = {frame.position: (row, frame) for row, frame in parts if frame is not None}

    def latest_timestamp(self, batch: BatchTable) -> int:
        """Return the latest timestamp of a batch's records."""
        source, row = self._log, batch
        if int(batch["position"][0]) in self._frames:
            source, row = read_frame(self._log, *self._frames[int(batch["position"][0])])
        if row["magic"][0] < 2 and not row["attributes"][0] & COMPRESSION_MASK:
            return int(row["max_timestamp"][0])  # a message; Kafka does not look at its value
        records = read_records(source, row, columns=_ALL_COLUMNS, control="include")
        return int(records["timestamp"].max(initial=NO_TIMESTAMP))


def _compare_time(
    batches: _Batches, start: int, entry: tuple[int, int, int], found: IndexComplaints
) -> None:
    time, offset, previous = entry
    after = batches.table[batches.table["position"] >= start]
    at_or_after = after[last_offset(after) >= offset][:1]
    last = int(last_offset(at_or_after)[0]) if len(at_or_after) else -1
    if not len(at_or_after) or last != offset:
        found.not_found.append((offset, last))
        return
    latest = batches.latest_timestamp(at_or_after)
    if latest != time:
        found.wrong_timestamps.append((time, latest))
    if previous >= time:
        found.unordered.append((time, previous))


def _floor_position(entries: IndexEntries, offset: int) -> int:
    """Return the position of the last entry up to an offset, as ``OffsetIndex.lookup`` does."""
    row = floor_entry(entries, "relative_offset", offset)
    return int(entries["position"][row]) if row >= 0 else 0


def transaction_index_lines(path: Path) -> list[str]:
    """
    Return the lines of a ``.txnindex`` file.

    Raises
    ------
    CorruptIndexError, OSError
    """
    entries = _whole_entries(path)
    for row, version in enumerate(entries["version"].tolist()):
        if version != 0:
            raise _bad_entry(path, row, f"version {version} is not known")
    names = {
        "producerId": "producer_id", "firstOffset": "first_offset",
        "lastOffset": "last_offset", "lastStableOffset": "last_stable_offset",
    }  # fmt: skip
    return [
        "version: 0 " + " ".join(f"{name}: {entry[column]}" for name, column in names.items())
        for entry in entries
    ]


def snapshot_lines(path: Path) -> list[str]:
    """
    Return the lines of a ``.snapshot`` file.

    Raises
    ------
    CorruptSnapshotError, OSError
    """
    # Imports the state of producers, which no other file needs.
    from kafkascan.broker_state.producer_snapshots import read_producer_snapshot

    lines = []
    for entry in read_producer_snapshot(path):
        line = (
            f"producerId: {entry['producer_id']} producerEpoch: {entry['producer_epoch']}"
            f" coordinatorEpoch: {entry['coordinator_epoch']} currentTxnFirstOffset:"
            f" {optional_long(entry['current_txn_first_offset'])}"
            f" lastTimestamp: {entry['timestamp']}"
        )
        last, delta = int(entry["last_sequence"]), int(entry["offset_delta"])
        if last != NO_SEQUENCE:
            first = last - delta if last >= delta else _MAX_SEQUENCE - (delta - last) + 1
            line += (
                f" firstSequence: {first} lastSequence: {last} lastOffset: {entry['last_offset']}"
                f" offsetDelta: {delta} timestamp: {entry['timestamp']}"
            )
        lines.append(line)
    return lines


def _sibling(path: Path, suffix: str) -> Path:
    return path.with_name(path.name.partition(".")[0] + suffix)


def _whole_entries(path: Path) -> IndexEntries:
    data = read_regular(path)
    return entries_of(path, data[: len(data) - len(data) % _entry_size(path)])


def _entry_size(path: Path) -> int:
    return entries_of(path, b"").itemsize


def _require_sane(path: Path, is_sane: bool) -> None:
    size = path.stat().st_size
    if not is_sane or size % _entry_size(path):
        reason = "the last entry is below the first, or the file ends inside of an entry"
        raise CorruptIndexError(str(path), size, None, reason, "INDEX_NOT_SANE")


def _bad_entry(path: Path, row: int, reason: str) -> CorruptIndexError:
    position = row * _entry_size(path)
    return CorruptIndexError(str(path), position, None, reason, "BAD_INDEX_ENTRY")
