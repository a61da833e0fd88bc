"""Values of Arrow as Python's, also times that Python's types cannot hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkascan.tables.schema import require_pyarrow

if TYPE_CHECKING:
    import pyarrow as pa


def python_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """
    Return the values of a column as Python's.

    Parameters
    ----------
    column : pyarrow.Array or pyarrow.ChunkedArray

    Returns
    -------
    list
        As of ``to_pylist``; dates and times before the year 1 or after 9999, which are errors
        there, are texts, in UTC if they have a zone.
    """
    try:
        values: list[Any] = column.to_pylist()
    except (OverflowError, ValueError):
        return [_python_value(one) for one in column]
    return values


def _python_value(scalar: pa.Scalar) -> Any:
    pa = require_pyarrow()
    if not scalar.is_valid:
        return None
    if pa.types.is_struct(scalar.type):
        return {name: _python_value(one) for name, one in scalar.items()}
    if pa.types.is_map(scalar.type):
        return [tuple(map(_python_value, pair.values())) for pair in scalar.values]
    if pa.types.is_union(scalar.type):
        return _python_value(scalar.value)
    if pa.types.is_nested(scalar.type):
        return [_python_value(one) for one in scalar.values]
    try:
        return scalar.as_py()
    except (OverflowError, ValueError):
        if pa.types.is_timestamp(scalar.type) and scalar.type.tz:
            # Arrow's texts of such times in a zone are wrong.
            text: str = _python_value(scalar.cast(pa.timestamp(scalar.type.unit)).cast(pa.string()))
            return text if text.startswith("<") else f"{text}+00:00"  # <value out of range: 1>
        return scalar.cast(pa.string()).as_py()
