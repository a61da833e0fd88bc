"""The dump as JSON: one object a line, with the names that ``DumpLogSegments`` prints."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from kafkascan.dump_log import index_dump
from kafkascan.dump_log.dump_files import Complaints, absolute_path, java_path
from kafkascan.dump_log.dump_options import DumpOptions
from kafkascan.dump_log.line_output import LineOutput
from kafkascan.dump_log.log_dump import OffsetGaps, dump_batches, title_of_log
from kafkascan.format.errors import CorruptSnapshotError
from kafkascan.format.shown_places import shown_url
from kafkascan.io.stores.urls import as_path

Fields = dict[str, Any]

_PAIR = re.compile(r"(\w+): (\S+)")
_OPTIONAL = re.compile(r"OptionalLong\[(-?\d+)\]")
_WORDS: dict[str, object] = {"true": True, "false": False, "OptionalLong.empty": None}
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
    options = replace(options, is_json=True)
    try:
        for name in files:
            _dump_file(java_path(name), options, complaints, output)
    finally:
        output.add(json.dumps(fields) for fields in _findings(complaints))
        output.flush()


def _dump_file(name: str, options: DumpOptions, complaints: Complaints, output: LineOutput) -> None:
    path, shown = as_path(name), shown_url(name)
    if not path.name.endswith(_LOGS):
        output.add(json.dumps(fields) for fields in _of_side_file(name, options, complaints))
        return
    output.add([json.dumps({"kind": "file", "file": shown, "title": title_of_log(path)})])
    gaps = complaints.gaps.setdefault(absolute_path(name), OffsetGaps())
    left = dump_batches(path, options, gaps, output)
    if left:
        found = {"kind": "finding", "file": str(path), "what": "invalid bytes at the end",
                 "count": left}  # fmt: skip
        output.add([json.dumps(found)])


def _of_side_file(name: str, options: DumpOptions, complaints: Complaints) -> Iterator[Fields]:
    path, full_path = as_path(name), absolute_path(name)
    suffix = "." + path.name.rpartition(".")[2]
    yield {"kind": "file", "file": shown_url(name)}
    if suffix in _INDEXES:
        found = complaints.indexes.setdefault(full_path, index_dump.IndexComplaints())
        for lines in index_dump.index_lines(name, options, found):
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
