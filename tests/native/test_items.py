"""Loops that copy keys, values and headers read only their bytes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import kafkascan as ks


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_encoders_read_only_the_items(magic: int, page: np.ndarray) -> None:
    """The process ends if one more byte is read."""
    for size in [*range(70), 4096]:
        for data in (page[:size], page[len(page) - size :]):
            offsets = pa.py_buffer(np.array([0, size], np.int32))
            items = pa.BinaryArray.from_buffers(
                pa.binary(), 1, [None, offsets, pa.py_buffer(memoryview(data))]
            )
            for columns in ({"key": items}, {"value": items}, {"key": items, "value": items}):
                table = ks.read_records(ks.build_batches(columns, magic=magic))
                for name in columns:
                    assert table.items(name) == [data.tobytes()]
