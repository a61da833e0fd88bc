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
    mask = (milliseconds < _EARLIEST_MS) | (milliseconds > _LATEST_MS)
    with np.errstate(over="ignore"):
        microseconds = np.ascontiguousarray(milliseconds * _MICROSECONDS)
    raw = pa.array(microseconds, pa.int64(), mask=mask if mask.any() else None)
    return raw.view(pa.timestamp("us", tz="UTC"))


def codec_names(codes: NDArray[np.int8]) -> Any:
    """Return Kafka's names of codecs as texts."""
    pa = require_pyarrow()
    return pa.array(CODEC_NAMES.tolist(), pa.string()).take(pa.array(codes))


class Repeated:
    """A value as a column of any length up to a limit, made once."""

    def __init__(self, value: object, kind: Any, most: int) -> None:
        self._value = value
        self._kind = kind
        self._most = most
        self._column: Any = None

    def __call__(self, count: int) -> Any:
        """Return the column."""
        if self._column is None or count > len(self._column):
            pa = require_pyarrow()
            length = max(count, min(self._most, 4 * count))
            self._column = pa.repeat(pa.scalar(self._value, self._kind), length)
        return self._column[:count]
