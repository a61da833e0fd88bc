"""Programs of csrc/json_values.h: how JSON fills the columns of a JSON Schema."""

from __future__ import annotations

from collections.abc import Sequence

from kafkascan._core import typed_values as _core
from kafkascan.schemas.programs.json_schema import SCALARS, JsonType
from kafkascan.schemas.programs.program_runs import StepProgram
from kafkascan.schemas.programs.typed_columns import ColumnCounter, TypedColumn
from kafkascan.tables.schema import require_pyarrow

_OPS = {"long": "INTEGER"}


class JsonProgram(StepProgram):
    """
    The steps that decode JSON into the columns of a type.

    Parameters
    ----------
    root : JsonType

    Attributes
    ----------
    first_step : int
        The step of a value.

    Raises
    ------
    ValueSchemaError
        If it needs more than `MAX_COLUMNS` columns.
    """

    decode_into, _ops = staticmethod(_core.decode_json_into), _core.JSON_OPS

    def __init__(self, root: JsonType) -> None:
        super().__init__(_Columns().of(root, "value"))
        self.first_step = self._value(root, 0)

    def _value(self, one: JsonType, column: int) -> int:
        """Return the step that fills a column."""
        layout, parts, size = self.layout, list[int](), 0
        first = layout.first_child[column]
        if one.members:
            parts = [self._value(kind, first + at) for at, kind in enumerate(one.members.values())]
            parts += self._named(list(one.members))
        elif one.item is not None:
            item = first if one.kind == "array" else layout.first_child[first] + 1
            parts = [self._value(one.item, item)]
            size = layout.sizes[first]
        op = _OPS.get(one.kind, one.kind.upper()) if parts or one.kind in SCALARS else "TEXT"
        return self._step(op, column, parts, size, layout.sizes[column])

    def _named(self, names: Sequence[str]) -> list[int]:
        """Return the order of names, and where each begins and its size."""
        encoded = [one.encode() for one in names]
        places: list[int] = []
        for one in encoded:
            places += [self._constant(one), len(one)]
        return [*sorted(range(len(names)), key=encoded.__getitem__), *places]


class _Columns(ColumnCounter):
    """Each of them is nullable: members may be missing, and null stands for any value."""

    def of(self, one: JsonType, name: str) -> TypedColumn:
        pa = require_pyarrow()
        self._count()
        if one.members:
            members = [self.of(kind, below) for below, kind in one.members.items()]
            return TypedColumn.of_struct(name, members, nullable=True)
        if one.item is not None and one.kind == "array":
            return TypedColumn.of_list(name, self.of(one.item, "item"), nullable=True)
        if one.item is not None:
            return TypedColumn.of_map(name, self.of(one.item, "value"), nullable=True)
        # What has no type, or no members that are known, is text.
        kinds = {"INTEGER": pa.int64(), "NUMBER": pa.float64(), "BOOLEAN": pa.bool_()}
        op = _OPS.get(one.kind, one.kind.upper())
        return TypedColumn(name, kinds.get(op, pa.string()), (), True)
