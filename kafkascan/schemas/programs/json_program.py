"""Programs of csrc/json_values.h: how JSON fills the columns of a JSON Schema."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from kafkascan._core import typed_values as _core
from kafkascan._core.typed_values import JSON_OPS
from kafkascan.format.errors import ValueSchemaError
from kafkascan.schemas.programs.avro_columns import MAX_COLUMNS
from kafkascan.schemas.programs.avro_program import STEP_DTYPE
from kafkascan.schemas.programs.json_schema import SCALARS, JsonType
from kafkascan.schemas.programs.typed_columns import ColumnLayout, TypedColumn
from kafkascan.tables.schema import require_pyarrow

_SMALLEST_ITEM = 2  # bytes: a digit and a comma


class JsonProgram:
    """
    The steps that decode JSON into the columns of a type.

    Parameters
    ----------
    root : JsonType

    Attributes
    ----------
    layout : ColumnLayout
    first_step : int
        The step of a value.

    Raises
    ------
    ValueSchemaError
        If it needs more than `MAX_COLUMNS` columns.
    """

    def __init__(self, root: JsonType) -> None:
        self.layout = ColumnLayout(_Columns().of(root, "value"))
        self._steps: list[tuple[int, int, int, int, int, int]] = []
        self._parts: list[int] = []
        self._names = bytearray()
        self.first_step, _ = self._step(root, 0)

    @property
    def decode_into(self) -> Callable[..., tuple[int, int, int, int, int]]:
        """The compiled loop that runs the program."""
        return _core.decode_json_into

    def as_arrays(self) -> tuple[NDArray[np.uint8], NDArray[np.int32], NDArray[np.uint8]]:
        """Return steps, their parts, and names, for `decode_into`."""
        steps = np.array(self._steps, STEP_DTYPE).view(np.uint8)
        return steps, np.array(self._parts, np.int32), np.frombuffer(bytes(self._names), np.uint8)

    def _step(self, one: JsonType, column: int) -> tuple[int, int]:
        """Return the step that fills a column, and how many columns that are."""
        parts, below, item_columns = list[int](), 0, 0
        first = self.layout.first_child[column]
        if one.members:
            found = [self._step(kind, first + number)
                     for number, kind in enumerate(one.members.values())]  # fmt: skip
            below = sum(columns for _, columns in found)
            parts = [*(step for step, _ in found), *self._named(list(one.members))]
        elif one.item is not None:
            item = first if one.kind == "array" else self.layout.first_child[first] + 1
            step, item_columns = self._step(one.item, item)
            parts, below = [step], item_columns + 2 * (one.kind == "map")
        cost = max(1, item_columns // _SMALLEST_ITEM)
        op = JSON_OPS[one.kind.upper() if parts or one.kind in SCALARS else "TEXT"]
        self._steps.append((op, column, len(self._parts), len(parts), cost, 1 + below))
        self._parts += parts
        return len(self._steps) - 1, 1 + below

    def _named(self, names: Sequence[str]) -> list[int]:
        """Return the order of names, and where each begins and its size."""
        encoded = [one.encode() for one in names]
        places: list[int] = []
        for one in encoded:
            places += [len(self._names), len(one)]
            self._names += one
        return [*sorted(range(len(names)), key=encoded.__getitem__), *places]


class _Columns:
    """Each of them is nullable: members may be missing, and null stands for any value."""

    def __init__(self) -> None:
        self._left = MAX_COLUMNS

    def of(self, one: JsonType, name: str) -> TypedColumn:
        pa = require_pyarrow()
        self._left -= 1
        if self._left < 0:
            raise ValueSchemaError(f"the schema has more than {MAX_COLUMNS} columns")
        if one.members:
            members = tuple(self.of(kind, below) for below, kind in one.members.items())
            kind = pa.struct([below.arrow_field for below in members])
            return TypedColumn(name, kind, members, True)
        if one.item is not None and one.kind == "array":
            item = self.of(one.item, "item")
            return TypedColumn(name, pa.list_(item.arrow_field), (item,), True)
        if one.item is not None:
            value = self.of(one.item, "value")
            below = (TypedColumn("key", pa.string()), value)
            pair = TypedColumn("entries", pa.struct([each.arrow_field for each in below]), below)
            return TypedColumn(name, pa.map_(pa.string(), value.arrow_field), (pair,), True)
        # What has no type, or no members that are known, is text.
        kinds = {"integer": pa.int64(), "number": pa.float64(), "boolean": pa.bool_()}
        return TypedColumn(name, kinds.get(one.kind, pa.string()), (), True)
