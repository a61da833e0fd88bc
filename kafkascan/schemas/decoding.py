"""Run programs over the values of records."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from kafkascan._core.typed_values import decode_into
from kafkascan.format.errors import STATUS
from kafkascan.io.worker_threads import ChunkSizer
from kafkascan.schemas.columns import ColumnLayout, ColumnMemory

if TYPE_CHECKING:
    import pyarrow as pa

_FIRST_VALUES = 1 << 10


class Program(Protocol):
    """What the compiled loop runs."""

    @property
    def layout(self) -> ColumnLayout:
        """The columns that are filled."""

    def as_arrays(self) -> tuple[NDArray[np.uint8], NDArray[np.int32], NDArray[np.uint8]]:
        """Return steps, their parts, and constants."""


def decode_values(
    program: Program,
    address: NDArray[np.uintp],
    size: NDArray[np.int32],
    first_step: NDArray[np.int32],
    source: NDArray[np.uint8],
    on_fault: Callable[[int], Exception],
) -> tuple[list[pa.Array], NDArray[np.uint8]]:
    """
    Decode values into Arrow arrays, of which each has at most 2 GiB of any kind.

    Parameters
    ----------
    program : Program
    address, size : ndarrays, shape (n,)
        Of the values.
    first_step : ndarray of int32, shape (n,)
        The step of the program for each value; -1 for a value that is not decoded.
    source : ndarray of uint8
        The bytes that may be a map; empty if there are none.
    on_fault : callable
        Returns the error of a position at which the map could not be read.

    Returns
    -------
    arrays : list of pyarrow.Array
        Of n entries together, without a value where it could not be decoded.
    status : ndarray of uint8, shape (n,)
        Why a value could not be decoded; 0 if it was.
    """
    count, done = len(size), 0
    status, chunks = np.zeros(count, np.uint8), []
    memory, pace = ColumnMemory(program.layout, count), ChunkSizer(_FIRST_VALUES)
    arrays = program.as_arrays()
    while done < count:
        stop = min(count, done + pace.next_size())
        while done < stop:
            outcome, done, full, needed, fault = decode_into(
                memory.filled, *arrays, address, size, first_step, status, done, stop, source
            )
            if outcome == STATUS["SOURCE_FAULT"]:
                raise on_fault(fault)
            if outcome == STATUS["OUTPUT_FULL"] and not memory.grow(full, needed):
                if not memory.has_entries:  # one value is larger than a column
                    status[done], first_step = STATUS["TOO_MANY_ITEMS"], first_step.copy()
                    first_step[done] = -1
                    continue
                chunks.append(memory.to_arrow())
                memory = ColumnMemory(program.layout, count - done)
    if memory.has_entries or not chunks:
        chunks.append(memory.to_arrow())
    return chunks, status
