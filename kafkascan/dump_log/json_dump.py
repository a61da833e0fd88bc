"""The dump as JSON: one object a line, with the names that ``DumpLogSegments`` prints."""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from kafkascan._core.text_lines import BIG_ENDIAN
from kafkascan.batches.columns import BatchTable, is_control, size_in_bytes
from kafkascan.dump_log import index_dump
from kafkascan.dump_log.dump_files import Complaints, shown_path
from kafkascan.dump_log.dump_options import MAX_INT, DumpOptions
from kafkascan.dump_log.lines.item_decoders import PRINT_TEXT, ItemDecoder
from kafkascan.dump_log.lines.line_output import LineOutput, PieceMemory, offsets_of
from kafkascan.dump_log.lines.record_lines import control_text
from kafkascan.dump_log.lines.unusual_batches import head_pieces
from kafkascan.dump_log.log_dump import OffsetGaps, title_of_log
from kafkascan.dump_log.log_frames import Frame, framed_batches, read_frame
from kafkascan.format.errors import CorruptSnapshotError
from kafkascan.format.layout import TimestampType
from kafkascan.format.texts import java_string
from kafkascan.io.sources import Source
from kafkascan.logs.reading import iter_records
from kafkascan.records.record_table import RecordTable

Fields = dict[str, Any]

_PAIR = re.compile(r"(\w+): (\S+)")
_OPTIONAL = re.compile(r"OptionalLong\[(-?\d+)\]")
_WORDS: dict[str, object] = {"true": True, "false": False, "OptionalLong.empty": None}
_TIMESTAMP_TYPES = tuple(kind.display_name for kind in TimestampType)
_COLUMNS = ("offset", "timestamp", "key", "value", "headers")
_LOGS, _INDEXES = (".log", ".checkpoint"), (".index", ".timeindex")


def dump_as_json(
    files: list[str], options: DumpOptions, write: Callable[[memoryview], object]
) -> None:
    """
    Dump files in turn; the findings follow the last one.

    Parameters
    ----------
    files : list of str
    options : DumpOptions
    write : callable
        As in `dump_files`.

    Raises
    ------
    CorruptLogError, OSError, ValueError
        Where the tool ends; what comes before was written.
    """
    complaints = Complaints()
    output = LineOutput(write)
    try:
        for name in files:
            for fields in _of_file(shown_path(name), options, complaints):
                output.add([json.dumps(fields)])
        for fields in _findings(complaints):
            output.add([json.dumps(fields)])
    finally:
        output.flush()


def _of_file(shown: str, options: DumpOptions, complaints: Complaints) -> Iterator[Fields]:
    path, full_path = Path(shown), os.path.join(os.getcwd(), shown)
    suffix = "." + path.name.rpartition(".")[2]
    if suffix in _LOGS:
        yield {"kind": "file", "file": shown, "title": title_of_log(path)}
        gaps = complaints.gaps.setdefault(full_path, OffsetGaps())
        yield from _of_log(path, options, gaps)
        return
    yield {"kind": "file", "file": shown}
    if suffix in _INDEXES:
        found = complaints.indexes.setdefault(full_path, index_dump.IndexComplaints())
        lines_of = index_dump.offset_index_lines
        if suffix == ".timeindex":
            lines_of = index_dump.time_index_lines
        for lines in lines_of(shown, options, found):
            yield from (_of_index_line(line) for line in lines)
    elif suffix == ".txnindex":
        for line in index_dump.transaction_index_lines(path):
            yield {"kind": "aborted transaction", **_pairs(line)}
    elif suffix == ".snapshot":
        try:
            for line in index_dump.snapshot_lines(path):
                yield {"kind": "producer", **_pairs(line)}
        except CorruptSnapshotError as error:
            yield {"kind": "finding", "file": full_path, "what": str(error)}
    else:
        yield {"kind": "finding", "file": full_path, "what": "unknown file, ignored"}


def _of_index_line(line: str) -> Fields:
    fields = _pairs(line)
    return {"kind": "index entry", **fields} if fields else {"kind": "message", "text": line}


def _pairs(line: str) -> Fields:
    """Return the fields of a line without texts of users."""
    return {name: _value(text) for name, text in _PAIR.findall(line)}


def _value(text: str) -> object:
    if text in _WORDS:
        return _WORDS[text]
    optional = _OPTIONAL.fullmatch(text)
    digits = optional[1] if optional else text
    return int(digits) if digits.lstrip("-").isdecimal() else text


# ---- logs ------------------------------------------------------------------------------------


def _of_log(path: Path, options: DumpOptions, gaps: OffsetGaps) -> Iterator[Fields]:
    source = Source(path)
    stop = min(source.size, options.max_bytes)
    position = 0
    for batches, frame in framed_batches(source, 0, stop):
        if options.is_deep:
            yield from _with_records(source, batches, frame, options, gaps)
        else:
            yield from _of_heads(source, batches, frame)
        position = int(batches["position"][-1] + size_in_bytes(batches[-1:])[0])
    if position < stop and options.max_bytes == MAX_INT:
        yield {"kind": "finding", "file": str(path), "what": "invalid bytes at the end",
               "count": stop - position}  # fmt: skip


def _of_heads(source: Source, batches: BatchTable, frame: Frame | None) -> Iterator[Fields]:
    pieces = head_pieces(source, batches, frame, PieceMemory())
    lines = b"".join(piece.data.tobytes() for piece in pieces).decode().splitlines()
    for line in lines:
        fields: Fields = {"kind": "batch"}
        for name, value in _pairs(line).items():
            if name in _TIMESTAMP_TYPES:
                fields |= {"timestampType": name, "maxTimestamp": value}
            else:
                fields[name] = value
        yield fields


def _with_records(
    source: Source, batches: BatchTable, frame: Frame | None, options: DumpOptions, gaps: OffsetGaps
) -> Iterator[Fields]:
    readable, rows = (source, batches) if frame is None else read_frame(source, batches, frame)
    tables = iter_records(readable, rows, columns=_COLUMNS, control="include")
    done = 0
    while True:
        try:
            table = next(tables, None)
        except ValueError:
            yield from _of_heads(source, batches[done : done + 1], frame)
            raise
        if table is None:
            break
        of_record = table.batches["position"][table.columns["batch"]]
        stop = done + int(np.searchsorted(rows["position"][done:], of_record[-1], "right"))
        offsets = offsets_of(table.columns["offset"])
        if offsets is not None:
            gaps.add(offsets)
        records = _of_records(table, options)
        heads = _of_heads(source, batches[done:stop], frame)
        ends = np.searchsorted(of_record, rows["position"][done:stop], "right")
        for head, count in zip(heads, np.diff(ends, prepend=0).tolist(), strict=True):
            yield head
            yield from itertools.islice(records, count)
        done = stop
    yield from _of_heads(source, batches[done:], frame)


def _of_records(table: RecordTable, options: DumpOptions) -> Iterator[Fields]:
    objects = table.to_numpy()
    names = {"offset": objects["offset"], "timestamp": objects["timestamp"],
             "keySize": table.columns["key_size"], "valueSize": table.columns["value_size"],
             "sequence": table["sequence"]}  # fmt: skip
    rows = zip(*(column.tolist() for column in names.values()), strict=True)
    are_control = is_control(table.batches)[table.columns["batch"]].tolist()
    items = zip(objects["key"], objects["value"], objects["headers"], are_control, strict=True)
    for row, (key, value, headers, is_of_control) in zip(rows, items, strict=True):
        fields: Fields = {"kind": "record", **dict(zip(names, row, strict=True))}
        fields["headerKeys"] = [java_string(name) for name, _ in headers]
        if is_of_control:
            fields["control"] = control_text(key, value).strip()
        elif options.prints_data:
            fields |= _data(fields["offset"], key, value, options)
        yield fields


def _data(offset: int, key: bytes | None, value: bytes | None, options: DumpOptions) -> Fields:
    if options.decode is not None:
        text = options.decode(offset, key, value)
        return {"key": text.key, "payload": text.value}
    return {"key": _item(key, options.key), "payload": _item(value, options.value)}


def _item(item: bytes | None, decoder: ItemDecoder) -> str | int | None:
    if item is None:
        return None
    if decoder == PRINT_TEXT:
        return java_string(item)
    decoder.require_decodable(np.array([len(item)], np.int32))
    if decoder.kind == BIG_ENDIAN:
        return int.from_bytes(item[: decoder.size], "big", signed=True)
    return item.hex()


# ---- findings --------------------------------------------------------------------------------


def _findings(complaints: Complaints) -> Iterator[Fields]:
    for file, found in complaints.indexes.items():
        for what, names, pairs in (
            ("mismatch", ("indexOffset", "logOffset"), sorted(found.mismatches.items())),
            ("timestamp mismatch", ("indexTimestamp", "logTimestamp"), found.wrong_timestamps),
            ("out of order timestamp", ("indexTimestamp", "previousTimestamp"), found.unordered),
            ("indexed offset not found", ("indexedOffset", "foundOffset"), found.not_found),
        ):
            for pair in pairs:
                yield {"kind": "finding", "file": file, "what": what,
                       **dict(zip(names, pair, strict=True))}  # fmt: skip
    for file, gaps in complaints.gaps.items():
        for before, after in sorted(gaps.pairs.items()):
            yield {"kind": "finding", "file": file, "what": "non-consecutive offsets",
                   "offset": before, "followedBy": after}  # fmt: skip
