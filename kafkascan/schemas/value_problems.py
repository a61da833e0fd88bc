"""Problems of keys and values that are decoded into typed columns."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafkascan._core import typed_values as _core
from kafkascan.format.errors import SENTENCES, STATUS, SYMBOLS
from kafkascan.format.findings import Severity
from kafkascan.records.record_table import RecordTable
from kafkascan.records.typed_items import ItemPlace
from kafkascan.schemas.programs.program_runs import Program
from kafkascan.schemas.programs.typed_columns import TypedColumn
from kafkascan.tables.table import Problem

UNDECODED = "UNDECODED_VALUES"
"""Symbol of a problem: more values that could not be decoded, which are not listed."""
INEXACT = "INEXACT_VALUES"
"""Symbol of a problem: more values that are not exactly what was written."""

_MAX_PROBLEMS = 1_000
_LONGEST_TEXT = 40
_JSON_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*"?|[^\s,\]}]+')
_CONTAINERS = {b"{": "an object", b"[": "an array"}
_NAMED_TYPES = {
    "int64": "an int64", "double": "a double", "bool": "a boolean", "string": "a string",
}  # fmt: skip
_WRONG = {STATUS["BAD_VALUE_TYPE"], STATUS["BAD_VALUE_NUMBER"]}


class Reason(NamedTuple):
    """Why a value is not decoded, or not exactly what was written."""

    symbol: str
    why: str


class ItemProblems:
    """
    Problems of the keys or values of a topic; beyond a number of them, they are only counted.

    Parameters
    ----------
    place : ItemPlace
    """

    def __init__(self, place: ItemPlace) -> None:
        self._place, self._left = place, _MAX_PROBLEMS

    def one(
        self, symbol: str, message: str, offset: int | None = None, count: int | None = None
    ) -> Problem:
        """Return a problem: values are missing."""
        place = self._place
        return Problem(
            symbol, message, place.path, topic=place.topic, partition=place.partition,
            offset=offset, count=count,
        )  # fmt: skip

    def note(self, symbol: str, message: str) -> Problem:
        """Return the note that the columns are a guess."""
        one = self.one(symbol, message)
        return replace(one, severity=Severity.NOTE, rows_missing=False)

    def undecoded(
        self, table: RecordTable, rows: NDArray[np.intp], reason: Callable[[int], Reason]
    ) -> Iterator[Problem]:
        """Yield the problems of rows that are not decoded, by their symbols and reasons."""
        return self._of_rows(table, rows, reason, "not decoded", UNDECODED)

    def inexact(
        self, table: RecordTable, rows: NDArray[np.intp], reason: Callable[[int], Reason]
    ) -> Iterator[Problem]:
        """Yield the problems of rows that are decoded, but not exactly what was written."""
        for one in self._of_rows(table, rows, reason, "not exactly what was written", INEXACT):
            yield replace(one, rows_missing=False)

    def _of_rows(
        self,
        table: RecordTable,
        rows: NDArray[np.intp],
        reason: Callable[[int], Reason],
        what: str,
        symbol_of_more: str,
    ) -> Iterator[Problem]:
        listed = rows[: self._left]
        self._left -= len(listed)
        offsets, name = table.columns["offset"], self._place.name
        for row in listed.tolist():
            symbol, why = reason(row)
            offset = int(offsets[row])
            text = f"the {name} of offset {offset} is {what}: {why}"
            yield self.one(symbol, text, offset, 1)
        if len(rows) > len(listed):
            first, count = int(offsets[rows[len(listed)]]), len(rows) - len(listed)
            text = f"{count:,} more {name}s are {what}, from offset {first} on"
            yield self.one(symbol_of_more, text, first, count)


def reason_of(program: Program, status: int, place: NDArray[np.int32], written: bytes) -> Reason:
    """
    Return what the status of a value says, with the path of the column that it is about.

    Parameters
    ----------
    program : Program
    status : int
    place : ndarray of int32, shape (2,)
        See `DecodedValues`.
    written : bytes
        The value; empty if it is not known.
    """
    column, at = place.tolist()
    text = _json_text(written[at:]) if at >= 0 else ""
    why = SENTENCES[status]
    if text and status in _WRONG:
        why = f"{text} is not {_type_name(program.layout.columns[column])}"
    elif text and status == STATUS["ROUNDED_INTEGER"]:
        why = f"{text} is rounded to the nearest double"
    path = program.layout.path_of(column) if column > 0 else ""
    return Reason(SYMBOLS[status], f"{path}: {why}" if path else why)


def _json_text(written: bytes) -> str:
    """Return the JSON value that bytes begin with, in few characters."""
    if written[:1] in _CONTAINERS:
        return _CONTAINERS[written[:1]]
    found = _JSON_TEXT.match(written)
    text = found[0].decode("utf-8", "replace") if found else ""
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}…"


def _type_name(column: TypedColumn) -> str:
    if column.kind == _core.STRUCTS or str(column.type).startswith("map"):
        return "an object"
    return _NAMED_TYPES.get(str(column.type), "an array")
