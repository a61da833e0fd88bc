"""Typed values as JSON texts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kafkascan._core.text_lines import CSV, READY
from kafkascan._core.typed_text import ASCII, KINDS, UTF8, TextColumns
from kafkascan.tables.schema import require_pyarrow
from kafkascan.tables.text_columns import Part, PrintedColumn, part_of

if TYPE_CHECKING:
    import pyarrow as pa

_FIRST_SIZE = 128
_LARGEST_TEXT = 2**31 - 1


class PrintedValues(PrintedColumn):
    """
    A column of typed values, as a writer of lines prints them: as JSON.

    Bytes are hexadecimal; decimals are texts, with all their digits; dates and times are texts in
    ISO 8601, moments in UTC; a number that is not finite is the text ``NaN``, ``Infinity`` or
    ``-Infinity``; a map is an object, in which the last of several equal keys counts.

    Parameters
    ----------
    values : pyarrow.ChunkedArray
    """

    def __init__(self, values: pa.ChunkedArray) -> None:
        self._values = values

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[Any]:
        """Yield the values in the types that JSON has."""
        for chunk in self._values.chunks:
            starts, sizes, texts = _texts_of(chunk, ASCII)
            for start, size in zip(starts.tolist(), sizes.tolist(), strict=True):
                yield None if size < 0 else json.loads(texts[start : start + size].tobytes())

    @property
    def sizes(self) -> NDArray[np.int32]:
        """The sizes of the texts in ASCII; -1 for a null."""
        found = [_texts_of(chunk, ASCII)[1] for chunk in self._values.chunks]
        return np.concatenate([np.empty(0, np.int32), *found])

    def part(self, literal: bytes, dialect: int) -> Part:
        """Return what a line prints of the column behind a literal."""
        if dialect == CSV and not require_pyarrow().types.is_nested(self._values.type):
            return part_of(list(self), literal, dialect)
        style = UTF8 if dialect == CSV else ASCII
        found = [_texts_of(chunk, style) for chunk in self._values.chunks]
        addresses = [starts + np.uintp(texts.ctypes.data) for starts, _, texts in found]
        sizes = np.concatenate([np.empty(0, np.int32), *(sizes for _, sizes, _ in found)])
        if dialect == CSV:
            sizes[sizes == len("{}")] = 0  # as lists and objects without items
        return READY, literal, np.concatenate([np.empty(0, np.uintp), *addresses]), sizes, found


def _texts_of(
    values: pa.Array, style: int
) -> tuple[NDArray[np.uintp], NDArray[np.int32], NDArray[np.uint8]]:
    """Return starts and sizes of texts, and the texts; a null has the size -1."""
    columns = TextColumns(_text_columns(values, style))
    ends, done = np.zeros(len(values) + 1, np.int64), 0
    texts = np.empty(len(values) * _FIRST_SIZE, np.uint8)
    while (done := columns.write(done, ends, texts, style)) < len(values):
        if len(texts) - ends[done] > _LARGEST_TEXT:
            raise MemoryError("the text of a value is larger than 2 GiB")
        texts = np.concatenate([texts, np.empty_like(texts)])
    sizes = np.diff(ends).astype(np.int32)
    sizes[values.is_null().to_numpy(zero_copy_only=False)] = -1
    return ends[:-1].astype(np.uintp), sizes, texts


# ---- columns of the compiled writer ----------------------------------------------------------

_Ends: TypeAlias = "NDArray[np.int32] | None"
_Labelled: TypeAlias = "list[tuple[bytes, pa.Array]]"


def _text_columns(root: pa.Array, style: int) -> list[tuple[Any, ...]]:
    """Return what `TextColumns` takes: columns below one are contiguous and come later."""
    arrays: _Labelled = [(b"", root)]
    found: list[tuple[Any, ...]] = []
    for label, values in arrays:  # grows while it is walked
        is_valid = None
        if values.null_count:
            is_valid = values.is_valid().to_numpy(zero_copy_only=False).view(np.uint8)
        kind, data, ends, below = _text_column(values, style)
        found.append((KINDS[kind], label, data, ends, is_valid, len(arrays), len(below)))
        arrays += below
    return found


def _text_column(values: pa.Array, style: int) -> tuple[str, NDArray[np.uint8], _Ends, _Labelled]:
    """Return kind, bytes, ends of items, and the columns below, behind what precedes a value."""
    types, nothing = require_pyarrow().types, np.empty(0, np.uint8)
    if types.is_null(values.type):
        return "NULLS", nothing, None, []
    if types.is_struct(values.type):
        below = [(_label(number, one.name, style), values.field(number))
                 for number, one in enumerate(values.type)]  # fmt: skip
        return "STRUCTS", nothing, None, below
    if types.is_map(values.type):
        ends, first, last = _inner(values)
        ends, keys, items = _distinct(ends, values.keys[first:last], values.items[first:last])
        return "MAPS", nothing, ends, [(b"", keys), (b"", items)]
    if types.is_list(values.type):
        ends, first, last = _inner(values)
        return "LISTS", nothing, ends, [(b"", values.values[first:last])]
    kind, texts = _leaf(values)
    if kind == "INTEGERS":
        return kind, texts.to_numpy(zero_copy_only=False).view(np.uint8), None, []
    return kind, *_items(texts), []


def _label(number: int, name: str, style: int) -> bytes:
    text = json.dumps(name, ensure_ascii=style == ASCII)
    return f"{', ' if number else ''}{text}: ".encode()


def _inner(lists: pa.Array) -> tuple[NDArray[np.int32], int, int]:
    """Return the ends of lists, behind a 0, and where their items begin and end."""
    ends = lists.offsets.to_numpy()
    return ends - ends[0], int(ends[0]), int(ends[-1])


def _distinct(
    ends: NDArray[np.int32], keys: pa.Array, items: pa.Array
) -> tuple[NDArray[np.int32], pa.Array, pa.Array]:
    """Return maps without repeated keys: a key at its first place, with its last item."""
    pa = require_pyarrow()
    keys = keys.cast(pa.string())
    codes = keys.dictionary_encode().indices.to_numpy(zero_copy_only=False).astype(np.int64)
    maps = np.repeat(np.arange(len(ends) - 1), np.diff(ends))
    pairs = maps * len(keys) + codes
    distinct, firsts = np.unique(pairs, return_index=True)
    if len(distinct) == len(keys):
        return ends, keys, items
    _, lasts = np.unique(pairs[::-1], return_index=True)
    order = np.argsort(firsts)
    counts = np.bincount(maps[firsts], minlength=len(ends) - 1)
    items = items.take(pa.array(len(keys) - 1 - lasts[order]))
    return (
        np.append(0, np.cumsum(counts)).astype(np.int32),
        keys.take(pa.array(firsts[order])),
        items,
    )


def _leaf(values: pa.Array) -> tuple[str, pa.Array]:
    """Return the kind of a column without columns below, and its texts, bytes or integers."""
    pa, kind = require_pyarrow(), values.type
    types, text = pa.types, pa.string()
    if types.is_boolean(kind) or kind == pa.uint64():
        return "READY", values.cast(text)
    if types.is_integer(kind) or types.is_duration(kind):
        return "INTEGERS", values.cast(pa.int64()).fill_null(0)
    if types.is_floating(kind):
        return "REALS", values.cast(pa.float64()).cast(text)
    if types.is_binary(kind) or types.is_fixed_size_binary(kind):
        return "BYTES", values.cast(pa.binary())
    if types.is_timestamp(kind):
        # Arrow takes 30 times as long to write a time zone.
        is_moment = kind.tz is not None
        return "MOMENTS" if is_moment else "TIMES", values.cast(pa.timestamp(kind.unit)).cast(text)
    return "TEXTS", values.cast(text)


def _items(texts: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
    """Return the bytes of texts, and where each ends, behind where the first one begins."""
    _, ends, data = texts.buffers()
    if ends is None:
        return np.empty(0, np.uint8), np.zeros(1, np.int32)
    found = np.frombuffer(ends, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    return np.frombuffer(b"" if data is None else data, np.uint8), found
