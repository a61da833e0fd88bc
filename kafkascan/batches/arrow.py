"""Convert batch columns to Arrow arrays. Needs pyarrow (``pip install 'kafkascan[arrow]'``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kafkascan.batches.columns import TIMESTAMP_COLUMNS, BatchTable, as_datetime64, column
from kafkascan.format.layout import CompressionType, NamedCode, TimestampType
from kafkascan.tables.schema import require_pyarrow
from kafkascan.tables.table import Column, as_list, timestamp_column
from kafkascan.tables.text_columns import Repeated

if TYPE_CHECKING:
    import pyarrow as pa


def plain_column(values: NDArray[Any]) -> pa.Array:
    """Return numbers or booleans as an Arrow array."""
    pa = require_pyarrow()
    return pa.array(np.ascontiguousarray(values))


def enum_column(codes: NDArray[np.integer[Any]], names: type[NamedCode]) -> pa.Array:
    """Return a dictionary array of display names; other codes become ``unknown(code)``."""
    pa = require_pyarrow()
    present, indices = np.unique(codes, return_inverse=True)
    labels = [names.name_of(int(code)) for code in present]
    return pa.DictionaryArray.from_arrays(
        pa.array(indices.astype(np.int8)), pa.array(labels, pa.string())
    )


NAMED_CODES: dict[str, tuple[type[NamedCode], range]] = {
    "compression_type": (CompressionType, range(8)),
    "timestamp_type": (TimestampType, range(-1, 2)),
}
"""Batch columns of codes: the names of the codes, and the range of possible values."""


def fixed_enum_column(codes: NDArray[np.int8], names: type[NamedCode], known: range) -> pa.Array:
    """Return a dictionary array whose dictionary is the same for all chunks of a stream."""
    pa = require_pyarrow()
    labels = pa.array([names.name_of(code) for code in known], pa.string())
    return pa.DictionaryArray.from_arrays(pa.array(codes - np.int8(known.start)), labels)


def batch_column(batches: BatchTable, name: str, *, is_stream: bool = False) -> pa.Array:
    """Return a column of the batch table; for a stream, dictionaries do not depend on rows."""
    values = column(batches, name)
    if name in TIMESTAMP_COLUMNS:
        return timestamp_column(values)
    if name in NAMED_CODES:
        names, known = NAMED_CODES[name]
        return fixed_enum_column(values, names, known) if is_stream else enum_column(values, names)
    return plain_column(values)


def named_column(batches: BatchTable, name: str) -> Column:
    """Return the values of a batch column: those of codes by name, others as an array."""
    values = column(batches, name)
    return list(named_codes(name, values)) if name in NAMED_CODES else values


def named_codes(name: str, codes: NDArray[Any]) -> Repeated:
    """Return the names of the codes of a column in `NAMED_CODES`."""
    present, rows = np.unique(codes, return_inverse=True)
    return Repeated([NAMED_CODES[name][0].name_of(int(code)) for code in present], rows)


def display_column(batches: BatchTable, name: str) -> list[object]:
    """Return the values of a batch column for display: times as times, codes by name."""
    if name in TIMESTAMP_COLUMNS:
        return list(as_datetime64(column(batches, name)))
    return as_list(named_column(batches, name))
