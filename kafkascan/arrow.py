"""NumPy columns to Arrow columns. Needs pyarrow (``pip install kafkascan[arrow]``)."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kafkascan._core import items as _core
from kafkascan.batch_columns import TIMESTAMP_COLUMNS, BatchTable, column
from kafkascan.columns import Buffers, Gathered
from kafkascan.layout import NO_TIMESTAMP, CompressionType, NamedCode, TimestampType

if TYPE_CHECKING:
    import pyarrow as pa

_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")


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


def table_of(columns: Mapping[str, Sequence[Any]], *, texts: Collection[str]) -> pa.Table:
    """Return lists as a table: those that are texts, and others, which are numbers or flags."""
    pa = require_pyarrow()

    def column_of(name: str, values: Sequence[Any]) -> Any:
        if name in texts:
            return pa.array(values, pa.string())
        kinds = {type(value) for value in values if value is not None}
        kind = pa.float64() if float in kinds else pa.bool_() if kinds == {bool} else pa.int64()
        return pa.array(values, kind)

    return pa.table({name: column_of(name, values) for name, values in columns.items()})


def timestamp_column(milliseconds: NDArray[np.int64]) -> pa.Array:
    """Return ``timestamp[ms, tz=UTC]``, null where Kafka says that there is none."""
    pa = require_pyarrow()
    values = np.ascontiguousarray(milliseconds)
    raw = pa.array(values, mask=values == NO_TIMESTAMP)
    return raw.cast(pa.timestamp("ms", tz="UTC"))


def enum_column(codes: NDArray[np.integer[Any]], names: type[NamedCode]) -> pa.Array:
    """Return a dictionary of display names; a code without a name is ``unknown(code)``."""
    pa = require_pyarrow()
    present, indices = np.unique(codes, return_inverse=True)
    labels = [names.name_of(int(code)) for code in present]
    return pa.DictionaryArray.from_arrays(
        pa.array(indices.astype(np.int8)), pa.array(labels, pa.string())
    )


_CODES: dict[str, tuple[type[NamedCode], range]] = {
    "compression_type": (CompressionType, range(8)),
    "timestamp_type": (TimestampType, range(-1, 2)),
}


def fixed_enum_column(codes: NDArray[np.int8], names: type[NamedCode], known: range) -> pa.Array:
    """Return a dictionary of all display names: the same one for each piece of a stream."""
    pa = require_pyarrow()
    labels = pa.array([names.name_of(code) for code in known], pa.string())
    return pa.DictionaryArray.from_arrays(pa.array(codes - np.int8(known.start)), labels)


def batch_column(batches: BatchTable, name: str, *, is_stream: bool = False) -> pa.Array:
    """Return a column of the batch table, stored or derived; of a stream, or of all of it."""
    values = column(batches, name)
    if name in TIMESTAMP_COLUMNS:
        return timestamp_column(values)
    if name in _CODES:
        names, known = _CODES[name]
        return fixed_enum_column(values, names, known) if is_stream else enum_column(values, names)
    return plain_column(values)


# ---- bytes of any size -------------------------------------------------------------------

_LARGEST_BINARY = 2**31 - 1
# A view counts from the start of a piece, in 31 bits. Pieces start every 2**30 bytes and
# overlap, so that every item lies whole in the piece that it starts in.
_PIECE_BITS = 30
_PIECE_SIZE = (1 << _PIECE_BITS) + (1 << 31)


def binary_column(items: Gathered) -> pa.Array:
    """Return ``binary``, or ``large_binary`` where that is too small."""
    pa = require_pyarrow()
    is_large = len(items.data) > _LARGEST_BINARY
    kind, width = (pa.large_binary(), np.int64) if is_large else (pa.binary(), np.int32)
    starts = pa.py_buffer(items.starts.astype(width, copy=False))
    return pa.Array.from_buffers(
        kind, len(items.is_null), [_validity(items.is_null), starts, pa.py_buffer(items.data)]
    )


def utf8_column(items: Gathered) -> pa.Array:
    """Return ``string``; what is not UTF-8 is replaced, as Java does."""
    pa = require_pyarrow()
    raw = binary_column(items)
    try:
        return raw.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [None if item is None else java_string(item) for item in items.to_list()]
        return pa.array(texts, pa.string())


def java_string(item: bytes) -> str:
    """Decode UTF-8 as Java does: an encoded surrogate is replaced once, not byte by byte."""
    return _SURROGATE.sub(b"\xff", item).decode("utf-8", "replace")


def headers_column(starts: NDArray[np.int64], keys: pa.Array, values: pa.Array) -> pa.Array:
    """Return ``list<struct<key, value>>``, or ``large_list`` where that is too small."""
    pa = require_pyarrow()
    pairs = pa.StructArray.from_arrays([keys, values], ["key", "value"])
    if starts[-1] > _LARGEST_BINARY:
        return pa.LargeListArray.from_arrays(pa.array(starts), pairs)
    return pa.ListArray.from_arrays(pa.array(starts.astype(np.int32)), pairs)


def view_column(
    buffers: Buffers,
    batch: NDArray[np.int32],
    position: NDArray[np.int64],
    size: NDArray[np.int32],
) -> pa.Array:
    """Return ``binary_view`` over the buffers themselves."""
    pa = require_pyarrow()
    pieces: list[Any] = []
    arrays = buffers.lend()
    first_piece = np.empty(len(arrays), np.int32)
    for number, array in enumerate(arrays):
        first_piece[number] = len(pieces)
        pieces += [
            pa.py_buffer(array[start : start + _PIECE_SIZE])
            for start in range(0, len(array), 1 << _PIECE_BITS)
        ]
    views = np.empty((len(size), 16), np.uint8)
    buffers.require_done(
        _core.views_into(
            buffers.addresses, buffers.sizes, buffers.of_batch,
            batch, position, size, first_piece, _PIECE_BITS, views,
        )
    )  # fmt: skip
    validity = _validity(size < 0)
    return pa.Array.from_buffers(
        pa.binary_view(), len(size), [validity, pa.py_buffer(views), *pieces]
    )


def _validity(is_null: NDArray[np.bool_]) -> pa.Buffer | None:
    if not is_null.any():
        return None
    return require_pyarrow().py_buffer(np.packbits(~is_null, bitorder="little"))
