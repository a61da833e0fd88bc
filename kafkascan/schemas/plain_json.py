"""Keys and values that are JSON without a registry, as typed columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kafkascan.format.errors import ValueSchemaError
from kafkascan.records.record_table import RecordTable
from kafkascan.records.typed_items import ItemPlace, TypedItems
from kafkascan.schemas.programs.json_program import JsonProgram
from kafkascan.schemas.programs.json_schema import TEXT, parse_json_schema, type_of_values
from kafkascan.schemas.programs.program_runs import decode_values
from kafkascan.schemas.value_problems import ItemProblems, Reason, reason_of
from kafkascan.tables.schema import require_pyarrow
from kafkascan.tables.table import Problem

if TYPE_CHECKING:
    import pyarrow as pa

INFERRED = "INFERRED_SCHEMA"
"""Symbol of a problem: the columns are those of the first values; others may have more members."""

_SAMPLED = 1_000
_LARGEST_SAMPLE = 1 << 20


def json_values(schema: str | None = None) -> JsonValues:
    """
    Return a decoder of JSON without a prefix, for `read_records`.

    Parameters
    ----------
    schema : str, optional
        The text of a JSON Schema. By default, columns have the types of the first 1 000 values.

    Raises
    ------
    ValueSchemaError
        If the schema is not JSON, or has too many columns.
    """
    return JsonValues(None if schema is None else JsonProgram(parse_json_schema(schema)))


class JsonValues:
    """
    Decodes keys or values of any topic; result of `json_values`.

    Parameters
    ----------
    program : JsonProgram or None
        None if the types are those of a sample.
    """

    def __init__(self, program: JsonProgram | None) -> None:
        self._program = program

    def decoder(self, place: ItemPlace) -> PlainJsonDecoder:
        """Return the decoder of the keys or values of a topic."""
        return PlainJsonDecoder(place, self._program)


class PlainJsonDecoder:
    """
    Decodes the keys or values of a topic.

    Parameters
    ----------
    place : ItemPlace
    program : JsonProgram or None
        None if the types are those of the values that are decoded first.
    """

    def __init__(self, place: ItemPlace, program: JsonProgram | None) -> None:
        self._place, self._program = place, program
        self._problems = ItemProblems(place)

    @property
    def arrow_type(self) -> pa.DataType | None:
        """See `ColumnDecoder`."""
        return None if self._program is None else self._program.layout.columns[0].type

    def at(self, place: ItemPlace) -> PlainJsonDecoder:
        """Return a decoder of another place with the same columns; see `ColumnDecoder`."""
        return PlainJsonDecoder(place, self._program)

    def decode(self, table: RecordTable, threads: int) -> TypedItems:
        """Return the decoded items of a table; see `ColumnDecoder`."""
        address, size = table.addresses(self._place.name)
        problems: list[Problem] = []
        if self._program is None:
            rows = np.flatnonzero((size >= 0) & (size <= _LARGEST_SAMPLE))[:_SAMPLED]
            try:
                kind = type_of_values(table[rows].items(self._place.name))
                self._program = JsonProgram(kind)
            except ValueSchemaError:  # too many columns
                self._program = JsonProgram(TEXT)
            message = (
                f"the columns are those of the first {len(rows):,} {self._place.name}s; members"
                " that these do not have are left out"
            )
            problems.append(self._problems.note(INFERRED, message))
        program = self._program
        steps = np.where(size < 0, -1, program.first_step).astype(np.int32)
        buffers = table.buffers
        decoded = decode_values(
            program, address, size, steps, buffers.source_bytes, buffers.fault_error, threads
        )

        def reason(row: int) -> Reason:
            (item,) = table[row : row + 1].items(self._place.name)
            return reason_of(program, int(decoded.status[row]), decoded.place[row], item or b"")

        problems += self._problems.undecoded(table, np.flatnonzero(decoded.failed), reason)
        problems += self._problems.inexact(table, np.flatnonzero(decoded.inexact), reason)
        values = require_pyarrow().chunked_array(decoded.arrays, decoded.arrays[0].type)
        return TypedItems(values, decoded.failed, problems)
