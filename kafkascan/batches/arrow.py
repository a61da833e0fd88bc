"""Convert batch columns to Arrow arrays. Needs pyarrow (``pip install kafkascan[arrow]``)."""

from __future__ import annotations

import importlib
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kafkascan.batches.columns import TIMESTAMP_COLUMNS, BatchTable, column
from kafkascan.format.layout import NO_TIMESTAMP, CompressionType, NamedCode, TimestampType
from kafkascan.format.texts import with_escaped_bytes

if TYPE_CHECKING:
    import pyarrow as pa


def require_module(name: str, *, extra: str) -> ModuleType:
    """
    Import an optional dependency.

    Parameters
    ----------
    name : str
        Of the module.
    extra : str
        The extra of kafkascan that installs it.

    Raises
    ------
    ImportError
        If it is not installed; the message names the command that installs it.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(
            f"this needs {name}, which is not installed: pip install kafkascan[{extra}]"
        ) from error


require_pyarrow = partial(require_module, "pyarrow", extra="arrow")


def plain_column(values: NDArray[Any]) -> pa.Array:
    """Return numbers or booleans as an Arrow array."""
    pa = require_pyarrow()
    return pa.array(np.ascontiguousarray(values))


def table_of(columns: Mapping[str, Sequence[Any]], *, texts: Collection[str]) -> pa.Table:
    """Return lists of values as a table: `texts` are strings, others are numbers or booleans."""
    pa = require_pyarrow()

    def column_of(name: str, values: Sequence[Any]) -> Any:
        if name in texts:
            texts_of = [None if value is None else with_escaped_bytes(value) for value in values]
            return pa.array(texts_of, pa.string())
        kinds = {type(value) for value in values if value is not None}
        kind = pa.float64() if float in kinds else pa.bool_() if kinds == {bool} else pa.int64()
        return pa.array(values, kind)

    return pa.table({name: column_of(name, values) for name, values in columns.items()})


def timestamp_column(milliseconds: NDArray[np.int64]) -> pa.Array:
    """Return ``timestamp[ms, tz=UTC]``, with null for -1."""
    pa = require_pyarrow()
    values = np.ascontiguousarray(milliseconds)
    # A mask is a pass over fresh memory, and most logs need none.
    may_miss = len(values) > 0 and values.min() <= NO_TIMESTAMP
    raw = pa.array(values, mask=values == NO_TIMESTAMP if may_miss else None)
    return raw.cast(pa.timestamp("ms", tz="UTC"))


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
