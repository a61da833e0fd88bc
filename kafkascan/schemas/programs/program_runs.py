"""Run programs over the values of records."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kafkascan.format.errors import STATUS, ValueSchemaError
from kafkascan.io.concurrency import map_parts, split_by_bytes
from kafkascan.io.worker_threads import ChunkSizer
from kafkascan.schemas.programs.typed_columns import ColumnLayout, ColumnMemory, TypedColumn

if TYPE_CHECKING:
    import pyarrow as pa

# Values that are decoded at first before signals are handled.
_FIRST_VALUES = 1 << 10
_BYTES_PER_THREAD = 1 << 19
_MAX_STEPS = 1 << 18
_FIRST_REMARK = STATUS["REPEATED_KEYS"]
_STEP_DTYPE = np.dtype(
    [("op", "i4"), ("column", "i4"), ("first_part", "i4"), ("parts", "i4"),
     ("size", "i8"), ("at", "i8")]
)  # fmt: skip

_Values: TypeAlias = (
    "tuple[NDArray[np.uintp], NDArray[np.int32], NDArray[np.int32], NDArray[np.uint8],"
    " NDArray[np.int32]]"
)
"""Addresses, sizes, first steps, statuses and places of values."""

ProgramArrays: TypeAlias = "tuple[NDArray[np.generic], ...]"
"""What a compiled loop is given as its program."""


class Program(Protocol):
    """What the compiled loop runs."""

    may_repeat_keys: ClassVar[bool]
    """Whether a map that has a key more than once is what the encoding calls a map."""

    @property
    def layout(self) -> ColumnLayout:
        """The columns that are filled."""

    @property
    def decode_into(self) -> Callable[..., tuple[int, int, int, int, int]]:
        """The compiled loop."""

    def as_arrays(self) -> ProgramArrays:
        """Return what the loop is given."""


class StepProgram:
    """
    Steps that fill columns, as csrc/avro.h and csrc/json_values.h read them.

    Parameters
    ----------
    root : TypedColumn

    Attributes
    ----------
    layout : ColumnLayout
        The columns.
    """

    may_repeat_keys: ClassVar[bool] = False
    _ops: ClassVar[Mapping[str, int]]

    def __init__(self, root: TypedColumn) -> None:
        self.layout = ColumnLayout(root)
        self._steps: list[tuple[int, int, int, int, int, int]] = []
        self._parts: list[int] = []
        self._constants = bytearray()

    def as_arrays(self) -> ProgramArrays:
        """Return steps, their parts, and constants, for `decode_into`."""
        steps = np.array(self._steps, _STEP_DTYPE).view(np.uint8)
        parts = np.array(self._parts, np.int32)
        return steps, parts, np.frombuffer(bytes(self._constants), np.uint8)

    def _step(
        self, op: str, column: int = 0, parts: Sequence[int] = (), size: int = 0, at: int = 0
    ) -> int:
        if len(self._steps) == _MAX_STEPS:
            raise ValueSchemaError(f"the schema needs more than {_MAX_STEPS} steps")
        self._steps.append((self._ops[op], column, len(self._parts), len(parts), size, at))
        self._parts += parts
        return len(self._steps) - 1

    def _constant(self, data: bytes) -> int:
        self._constants += data
        return len(self._constants) - len(data)


class DecodedValues(NamedTuple):
    """
    Values in Arrow arrays, and what there is to say about them.

    Attributes
    ----------
    arrays : list of pyarrow.Array
        Of n entries together, without a value where it could not be decoded.
    status : ndarray of uint8, shape (n,)
        Why a value could not be decoded, or is not exactly what was written; 0 if it is.
    place : ndarray of int32, shape (n, 2)
        Of values with a status: the column that it is about, and where what is written of it
        begins in the value; -1 if that is not known.
    """

    arrays: list[pa.Array]
    status: NDArray[np.uint8]
    place: NDArray[np.int32]

    @property
    def failed(self) -> NDArray[np.bool_]:
        """Which values could not be decoded."""
        is_failed: NDArray[np.bool_] = (self.status != 0) & (self.status < _FIRST_REMARK)
        return is_failed

    @property
    def inexact(self) -> NDArray[np.bool_]:
        """Which values are not exactly what was written."""
        return self.status >= _FIRST_REMARK


def decode_values(
    program: Program,
    address: NDArray[np.uintp],
    size: NDArray[np.int32],
    first_step: NDArray[np.int32],
    source: NDArray[np.uint8],
    on_fault: Callable[[int], Exception],
    threads: int = 1,
) -> DecodedValues:
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
    threads : int, default 1
        Largest number of threads; small inputs use fewer.
    """
    status, arrays = np.zeros(len(size), np.uint8), program.as_arrays()
    place = np.zeros((len(size), 2), np.int32)  # takes no memory where there is no status

    def decoded(part: slice) -> list[pa.Array]:
        values = address[part], size[part], first_step[part], status[part], place[part]
        return _decode_part(program, arrays, values, source, on_fault)

    parts = split_by_bytes(size.astype(np.int64), threads, _BYTES_PER_THREAD)
    chunks = itertools.chain.from_iterable(map_parts(parts, decoded))
    return DecodedValues(list(chunks), status, place)


def _decode_part(
    program: Program,
    arrays: ProgramArrays,
    values: _Values,
    source: NDArray[np.uint8],
    on_fault: Callable[[int], Exception],
) -> list[pa.Array]:
    address, size, first_step, status, place = values
    count, done, too_large = len(size), 0, -1
    memory, chunks = _memory_of(program, size), list["pa.Array"]()
    chunk_first = 0
    pace = ChunkSizer(_FIRST_VALUES)
    while done < count:
        stop = min(count, done + pace.next_size())
        while done < stop:
            outcome, done, full, needed, fault = program.decode_into(
                memory.filled, *arrays, address, size, first_step, status, place, done, stop,
                source,
            )  # fmt: skip
            if outcome == STATUS["SOURCE_FAULT"]:
                raise on_fault(fault)
            if outcome == STATUS["OUTPUT_FULL"]:
                is_again, too_large = done == too_large, done
                if memory.grow(full, needed, is_again=is_again):
                    continue
                if memory.has_entries:
                    rows = slice(chunk_first, done)
                    chunks.append(_complete(program, memory, status[rows], place[rows]))
                    memory, chunk_first = _memory_of(program, size[done:]), done
                else:  # one value is larger than a column
                    status[done], first_step = STATUS["TOO_MANY_ITEMS"], first_step.copy()
                    first_step[done], place[done] = -1, (full, -1)
    if memory.has_entries or not chunks:
        chunks.append(_complete(program, memory, status[chunk_first:], place[chunk_first:]))
    return chunks


def _complete(
    program: Program, memory: ColumnMemory, status: NDArray[np.uint8], place: NDArray[np.int32]
) -> pa.Array:
    """Return the values that memory has, and note which of them had a key more than once."""
    found = memory.to_arrow()
    for column, rows in () if program.may_repeat_keys else memory.with_repeated_keys:
        status[rows], place[rows] = STATUS["REPEATED_KEYS"], (column, -1)
    return found


def _memory_of(program: Program, size: NDArray[np.int32]) -> ColumnMemory:
    """Return memory for so many values; their items are taken to be as large as they are."""
    return ColumnMemory(program.layout, len(size), int(np.maximum(size, 0).sum(dtype=np.int64)))
