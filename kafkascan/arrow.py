"""NumPy columns to Arrow columns. Needs pyarrow (``pip install kafkascan[arrow]``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kafkascan.layout import NamedCode

if TYPE_CHECKING:
    import pyarrow as pa


def require_pyarrow() -> Any:
    """Return pyarrow, or say how to get it."""
    try:
        import pyarrow
    except ImportError as error:
        raise ImportError(
            "this needs pyarrow, which is not installed: pip install kafkascan[arrow]"
        ) from error
    return pyarrow


def plain_column(values: NDArray[Any]) -> pa.Array:
    """Return numbers or booleans as they are."""
    pa = require_pyarrow()
    return pa.array(np.ascontiguousarray(values))


def timestamp_column(milliseconds: NDArray[np.int64], none: int) -> pa.Array:
    """Return ``timestamp[ms, tz=UTC]``, null where the value is `none`."""
    pa = require_pyarrow()
    values = np.ascontiguousarray(milliseconds)
    raw = pa.array(values, mask=values == none)
    return raw.cast(pa.timestamp("ms", tz="UTC"))


def enum_column(codes: NDArray[np.integer[Any]], names: type[NamedCode]) -> pa.Array:
    """Return a dictionary of display names; a code without a name is ``unknown(code)``."""
    pa = require_pyarrow()
    present, indices = np.unique(codes, return_inverse=True)
    labels = [names.name_of(int(code)) for code in present]
    return pa.DictionaryArray.from_arrays(
        pa.array(indices.astype(np.int8)), pa.array(labels, pa.string())
    )
