"""Arrow columns that hold one value, or a few by their codes, and times."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kafkascan.arrow import require_pyarrow
from kafkascan.layout import CompressionType

_MICROSECONDS = 1000
# Times that a count of microseconds in 64 bits can hold.
_EARLIEST_MS = -(2**63 // _MICROSECONDS)
_LATEST_MS = (2**63 - 1) // _MICROSECONDS

CODEC_NAMES = np.array([CompressionType.name_of(code) for code in range(8)])
"""By code."""


def timestamps(milliseconds: NDArray[np.int64]) -> Any:
    """
    Return ``timestamp[us, tz=UTC]``: as Spark's Kafka source, -1 is a time like others.

    What 64 bits of microseconds cannot hold becomes null.
    """
    pa = require_pyarrow()
    mask = None
    if (
        len(milliseconds)
        and not _EARLIEST_MS <= milliseconds.min() <= milliseconds.max() <= _LATEST_MS
    ):
        mask = (milliseconds < _EARLIEST_MS) | (milliseconds > _LATEST_MS)
    with np.errstate(over="ignore"):
        microseconds = np.ascontiguousarray(milliseconds * _MICROSECONDS)
    raw = pa.array(microseconds, pa.int64(), mask=mask)
    return raw.view(pa.timestamp("us", tz="UTC"))


def codec_names(codes: NDArray[np.int8]) -> Any:
    """Return Kafka's names of codecs as texts."""
    pa = require_pyarrow()
    if len(codes) and (codes == codes[0]).all():
        return repeated(str(CODEC_NAMES[codes[0]]), pa.string(), len(codes))
    return pa.array(CODEC_NAMES.tolist(), pa.string()).take(pa.array(codes))


def repeated(value: object, kind: Any, count: int) -> Any:
    """Return a value as a column of a length; a worker asks for the same again and again."""
    column = _columns.get((value, kind))
    if column is None or count > len(column):
        pa = require_pyarrow()
        # Pieces of a log are about as long as each other.
        column = pa.repeat(pa.scalar(value, kind), count + count // 4)
        _columns[value, kind] = column
        while len(_columns) > _COLUMNS_KEPT:
            _columns.pop(next(iter(_columns)), None)
    return column[:count]


# A task has a thread of its own that fills this; the one that takes its place finds it full.
_columns: dict[tuple[object, Any], Any] = {}
_COLUMNS_KEPT = 16
