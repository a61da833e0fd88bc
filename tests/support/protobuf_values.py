"""Values of Protobuf messages, decoded."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from kafkascan.schemas.programs.program_runs import decode_values
from kafkascan.schemas.programs.protobuf_program import ProtobufProgram


def decoded(
    program: ProtobufProgram, values: Sequence[bytes], first_step: int = ProtobufProgram.PLAIN
) -> tuple[list[Any], np.ndarray[Any, Any]]:
    """Return what kafkascan decodes, and the statuses."""
    sizes = np.array([len(one) for one in values], np.int32)
    # Each value ends where its memory ends, so that a sanitizer finds what reads beyond it.
    memory = [np.frombuffer(bytearray(one or b"\0"), np.uint8) for one in values]
    address = np.array([one.ctypes.data for one in memory], np.uintp)
    arrays, status, _ = decode_values(
        program, address, sizes, np.full(len(values), first_step, np.int32),
        np.empty(0, np.uint8), lambda position: AssertionError(position),
    )  # fmt: skip
    rows = []
    for array in arrays:
        array.validate(full=True)
        rows += plain(array)
    return rows, status


def plain(array: pa.Array) -> list[Any]:
    """Return Python objects: maps are dicts, times are nanoseconds."""
    if pa.types.is_timestamp(array.type) or pa.types.is_duration(array.type):
        return array.cast(pa.int64()).to_pylist()
    if pa.types.is_struct(array.type):
        children = [plain(array.field(at)) for at in range(array.type.num_fields)]
        names = [field.name for field in array.type]
        rows: list[Any] = [
            dict(zip(names, one, strict=True)) for one in zip(*children, strict=True)
        ]
        rows = rows if children else [{} for _ in range(len(array))]
    elif pa.types.is_map(array.type):
        keys, items = plain(array.keys), plain(array.items)
        rows = [dict(zip(keys[a:b], items[a:b], strict=True)) for a, b in _ends(array)]
        assert [len(one) for one in rows] == [b - a for a, b in _ends(array)]
    elif pa.types.is_list(array.type):
        items = plain(array.values)
        rows = [items[a:b] for a, b in _ends(array)]
    else:
        return array.to_pylist()
    valid = array.is_valid().to_pylist()
    return [row if is_valid else None for row, is_valid in zip(rows, valid, strict=True)]


def _ends(array: pa.Array) -> list[tuple[int, int]]:
    return list(pairwise(array.offsets.to_pylist()))
