"""What a table is made of: its fields, their types, and how a person sees them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import cached_property, partial
from typing import TYPE_CHECKING

from kafkascan.format.errors import UnknownColumnError
from kafkascan.format.optional_modules import require_module
from kafkascan.format.suggestions import suggestion

if TYPE_CHECKING:
    import pyarrow as pa

PARTITION_LISTS = "list<struct<topic:string,topic_id:string,partitions:list<int32>>>"
"""Type of a column with lists of topics and partitions."""

TASK_LISTS = "list<struct<role:string,subtopology:string,partitions:list<int32>>>"
"""Type of a column with lists of tasks of Kafka Streams."""

COUNTS_BY_NAME = "map<string,int64>"
"""Type of a column with counts by name: a mapping."""


require_pyarrow = partial(require_module, "pyarrow", extra="arrow")


class Shown(IntEnum):
    """Where a terminal shows a field; a table that is too wide loses the higher ones first."""

    ALWAYS = 0
    """In each table."""

    USUALLY = 1
    """In a table for which the terminal is wide enough."""

    WIDE = 2
    """Only with ``--wide``, or if it is named."""

    BELOW = 3
    """As a line below the row: a long text."""


@dataclass(frozen=True)
class Field:
    """
    A column of a table.

    Attributes
    ----------
    name : str
    type : str
        ``bool``, ``int8`` to ``int64``, ``uint32``, ``float64``, ``string``, ``binary``; ``time``
        for milliseconds since the epoch, of which -1 and None are no time; ``list<T>``,
        ``struct<name:T,...>`` and ``map<K,V>`` of these.
    meaning : str
        One sentence, or a few words, for people.
    unit : str, default ""
        ``bytes`` for an amount that a terminal shortens, ``ms`` for a duration; ``file`` and
        ``path`` for names that a terminal shortens; ``command`` for text that is never broken.
    nullable : bool, default True
    shown : Shown, default `Shown.USUALLY`
    alarms : mapping of str to str
        The colours of cells, by their text.
    arrow : pyarrow.DataType, optional
        The type, where `type` is ``typed``: a column whose type comes from its data.
    """

    name: str
    type: str
    meaning: str = ""
    unit: str = ""
    nullable: bool = True
    shown: Shown = Shown.USUALLY
    alarms: Mapping[str, str] = field(default_factory=dict, hash=False)
    arrow: pa.DataType | None = None

    def arrow_type(self, *, is_spark: bool = False) -> pa.DataType:
        """Return the type in Arrow; see `arrow_type`."""
        return arrow_type(self.type, is_spark=is_spark) if self.arrow is None else self.arrow

    @property
    def is_number(self) -> bool:
        """Whether a terminal aligns the values to the right."""
        return self.type.startswith(("int", "uint", "float"))


@dataclass(frozen=True)
class Schema:
    """
    The fields of a table, in order.

    Attributes
    ----------
    name : str
        Of the table, such as ``transactions``.
    fields : tuple of Field
    """

    name: str
    fields: tuple[Field, ...]

    def __iter__(self) -> Iterator[Field]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self.fields)

    def __getitem__(self, name: str) -> Field:
        found = self._by_name.get(name)
        if found is None:
            hint = suggestion(name, self.names)
            raise UnknownColumnError(f"{self.name} has no column {name!r}{hint}")
        return found

    @cached_property
    def _by_name(self) -> dict[str, Field]:
        return {one.name: one for one in self.fields}

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the fields."""
        return tuple(self._by_name)

    def select(self, names: Iterable[str]) -> Schema:
        """Return the schema of some columns, in the order of their names."""
        return replace(self, fields=tuple(self[name] for name in names))

    def named(self, name: str) -> Schema:
        """Return the same fields as the schema of another table."""
        return replace(self, name=name)

    def with_first(self, fields: Iterable[Field]) -> Schema:
        """Return the schema with fields before its own ones, each name once."""
        return replace(self, fields=_unique((*fields, *self.fields)))

    def with_last(self, fields: Iterable[Field]) -> Schema:
        """Return the schema with fields after its own ones, each name once."""
        return replace(self, fields=_unique((*self.fields, *fields)))

    def without(self, rank: Shown) -> Schema:
        """Return the schema without the fields of a rank."""
        return replace(self, fields=tuple(one for one in self.fields if one.shown != rank))

    def to_arrow(self) -> pa.Schema:
        """Return a `pyarrow.Schema`; times are ``timestamp[ms, tz=UTC]``."""
        pa = require_pyarrow()
        return pa.schema([(one.name, one.arrow_type()) for one in self.fields])


def schemas_by_name(*schemas: Schema) -> dict[str, Schema]:
    """Return the schemas of a result's tables by the names of the tables."""
    return {one.name: one for one in schemas}


TOPIC = Field("topic", "string", "topic of the log", shown=Shown.ALWAYS)
PARTITION = Field("partition", "int32", "partition of the log", shown=Shown.ALWAYS)
SEGMENT = Field("segment", "string", "file of the segment", "file", shown=Shown.ALWAYS)


def _unique(fields: Sequence[Field]) -> tuple[Field, ...]:
    found: dict[str, Field] = {}
    for one in fields:
        found.setdefault(one.name, one)
    return tuple(found.values())


# ---- types -----------------------------------------------------------------------------------

_SPARK_TYPES = {
    "bool": "boolean", "int8": "tinyint", "int16": "smallint", "int32": "int", "int64": "bigint",
    "uint32": "bigint", "float64": "double", "time": "timestamp", "string": "string",
    "binary": "binary",
}  # fmt: skip


def _split(type_name: str) -> tuple[str, list[str]]:
    """Return a nested type's container, and its parts; of a plain one, its name and nothing."""
    container, _, inner = type_name.partition("<")
    if not inner:
        return container, []
    parts, depth, start = [], 0, 0
    inner = inner.removesuffix(">")
    for at, character in enumerate(inner):
        depth += {"<": 1, ">": -1}.get(character, 0)
        if character == "," and depth == 0:
            parts.append(inner[start:at])
            start = at + 1
    return container, [*parts, inner[start:]]


def arrow_type(type_name: str, *, is_spark: bool = False) -> pa.DataType:
    """
    Return the Arrow type of a field's type.

    Parameters
    ----------
    type_name : str
        See `Field.type`.
    is_spark : bool, default False
        Whether Spark reads it: its timestamps have microseconds, and it has no unsigned numbers.
    """
    pa = require_pyarrow()
    container, parts = _split(type_name)
    inner = partial(arrow_type, is_spark=is_spark)
    if container == "list":
        element = inner(parts[0])
        return pa.list_(pa.field("element", element) if is_spark else element)
    if container == "map":
        return pa.map_(inner(parts[0]), inner(parts[1]))
    if container == "struct":
        named = (part.split(":", 1) for part in parts)
        return pa.struct([(name, inner(kind)) for name, kind in named])
    if type_name == "time":
        return pa.timestamp("us" if is_spark else "ms", tz="UTC")
    if is_spark and type_name == "uint32":
        return pa.int64()
    return {"string": pa.string(), "binary": pa.binary(), "bool": pa.bool_()}.get(
        type_name
    ) or pa.type_for_alias(type_name)


def spark_type(type_name: str) -> str:
    """Return a field's type as Spark SQL spells it."""
    container, parts = _split(type_name)
    if not parts:
        return _SPARK_TYPES[type_name]
    if container == "struct":
        named = (part.split(":", 1) for part in parts)
        return f"struct<{','.join(f'{name}:{spark_type(kind)}' for name, kind in named)}>"
    inner = ",".join(map(spark_type, parts))
    return f"{'array' if container == 'list' else container}<{inner}>"
