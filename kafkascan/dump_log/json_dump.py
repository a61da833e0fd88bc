"""The dump as JSON: one object a line, with the names that ``DumpLogSegments`` prints."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from kafkascan._core.text_lines import BIG_ENDIAN
from kafkascan.batches.columns import BatchTable, is_control
from kafkascan.dump_log import index_dump
from kafkascan.dump_log.batch_printer import head_chunks
from kafkascan.dump_log.dump_files import Complaints, absolute_path, shown_path
from kafkascan.dump_log.dump_options import PRINT_TEXT, DumpOptions, ItemDecoder
from kafkascan.dump_log.line_output import ChunkMemory, LineOutput, offsets_of
from kafkascan.dump_log.log_dump import DumpedBatches, DumpJob, OffsetGaps, title_of_log
from kafkascan.dump_log.log_frames import Frame
from kafkascan.dump_log.readable_batches import (
    ReadableBatches,
    readable_batches,
    unprintable_record,
)
from kafkascan.dump_log.record_lines import (
    UNDECODABLE,
    control_text,
    message_checksums,
    printed_sizes,
)
from kafkascan.format.errors import CorruptSnapshotError
from kafkascan.format.layout import TimestampType
from kafkascan.format.texts import java_string
from kafkascan.io.sources import Source
from kafkascan.io.stores.urls import as_path

Fields = dict[str, Any]

_PAIR = re.compile(r"(\w+): (\S+)")
_OPTIONAL = re.compile(r"OptionalLong\[(-?\d+)\]")
_WORDS: dict[str, object] = {"true": True, "false": False, "OptionalLong.empty": None}
_TIMESTAMP_TYPES = tuple(kind.display_name for kind in TimestampType)
_MAGIC_V2 = 2
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
        Where the tool ends; what comes before was written, with the findings up to there.
    """
    complaints = Complaints()
    output = LineOutput(write)
    try:
        for name in files:
            for fields in _of_file(shown_path(name), options, complaints):
                output.add([json.dumps(fields)])
    finally:
        output.add(json.dumps(fields) for fields in _findings(complaints))
        output.flush()


def _of_file(shown: str, options: DumpOptions, complaints: Complaints) -> Iterator[Fields]:
    path, full_path = as_path(shown), absolute_path(shown)
    suffix = "." + path.name.rpartition(".")[2]
    if suffix in _LOGS:
        yield {"kind": "file", "file": shown, "title": title_of_log(path)}
        gaps = complaints.gaps.setdefault(full_path, OffsetGaps())
        yield from _of_log(path, options, gaps)
        return
    yield {"kind": "file", "file": shown}
    if suffix in _INDEXES:
        found = complaints.indexes.setdefault(full_path, index_dump.IndexComplaints())
        for lines in index_dump.index_lines(shown, options, found):
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
    walk = DumpedBatches(source, options)
    for job in walk.jobs():
        if job.error is not None:
            raise job.error
        if options.is_deep:
            yield from _with_records(source, job, options, gaps)
        else:
            yield from _of_heads(source, job.batches, job.frame)
    if walk.left:
        yield {"kind": "finding", "file": str(path), "what": "invalid bytes at the end",
               "count": walk.left}  # fmt: skip


def _of_heads(source: Source, batches: BatchTable, frame: Frame | None) -> Iterator[Fields]:
    chunks = head_chunks(source, batches, frame, ChunkMemory())
    lines = b"".join(chunk.data.tobytes() for chunk in chunks).decode().splitlines()
    for line in lines:
        fields: Fields = {"kind": "batch"}
        for name, value in _pairs(line).items():
            if name in _TIMESTAMP_TYPES:
                fields |= {"timestampType": name, "maxTimestamp": value}
            else:
                fields[name] = value
        yield fields


def _with_records(
    source: Source, job: DumpJob, options: DumpOptions, gaps: OffsetGaps
) -> Iterator[Fields]:
    for readable in readable_batches(source, job.batches, job.frame):
        offsets = offsets_of(readable.records.columns["offset"])
        if offsets is not None:
            gaps.add(offsets)
        records = _of_records(source, readable, options)
        heads = _of_heads(source, readable.batches, job.frame)
        counts = np.diff(readable.ends, prepend=0).tolist()
        for head, count in zip(heads, counts, strict=True):
            yield head
            yield from itertools.islice(records, count)


def _of_records(
    source: Source, readable: ReadableBatches, options: DumpOptions
) -> Iterator[Fields]:
    table = readable.records
    objects = table.to_numpy()
    names = {"offset": objects["offset"], "timestamp": objects["timestamp"],
             "keySize": printed_sizes(table, "key"), "valueSize": printed_sizes(table, "value"),
             "sequence": table["sequence"]}  # fmt: skip
    rows = zip(*(column.tolist() for column in names.values()), strict=True)
    are_control = is_control(table.batches)[table.columns["batch"]].tolist()
    are_legacy = (table["magic"] < _MAGIC_V2).tolist()
    items = zip(
        objects["key"], objects["value"], objects["headers"], are_control, are_legacy, strict=True
    )
    for number, (key, value, headers, is_of_control, is_legacy) in enumerate(items):
        fields: Fields = {"kind": "record", **dict(zip(names, next(rows), strict=True))}
        fields["headerKeys"] = [java_string(name) for name, _ in headers]
        if is_legacy:
            stored, computed = message_checksums(table, number)
            fields |= {"isValid": stored == computed, "crc": stored}
        try:
            if is_of_control:
                fields["control"] = control_text(key, value).strip()
            elif options.prints_data:
                fields |= _data(fields["offset"], key, value, options)
        except UNDECODABLE as error:
            raise unprintable_record(source, readable, number, error) from error
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
